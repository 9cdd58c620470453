"""An adversary inside a box who tries everything: nothing of the package is used but a problem's attributes.

With l1 a best move puts every feature at its place or at a wall; with linf all features go the same distance, or to
their wall, and that distance is zero or the way to some wall. Both are finitely many points, whatever the model. With
l2 a local search from many starts has to do, and for each linear piece of a loss a convex program.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import minimize

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}


def landing_points(problem: Any, x: np.ndarray) -> np.ndarray:
    """Every place where a best move of a row can end, l1 and linf."""
    low, high = problem.geometry.support.spread(x.size)
    if problem.geometry.norm.name == "l1":
        return np.array(list(product(*zip(x, low, high, strict=True))))
    distances = np.unique(np.concatenate([[0.0], x - low, high - x]))
    signs = np.array(list(product((-1.0, 1.0), repeat=x.size)))
    return np.clip(x + distances[:, None, None] * signs, low, high).reshape(-1, x.size)


def labels(problem: Any, y: float) -> list[tuple[float, float]]:
    """Labels within reach and what they cost."""
    gamma = problem.geometry.label_cost
    return [(y, 0.0), (-y, gamma)] if problem.is_classification and np.isfinite(gamma) else [(y, 0.0)]


def loss_at(problem: Any, coef: np.ndarray, intercept: float, points: np.ndarray, y: float) -> np.ndarray:
    score = points @ coef + intercept
    return problem.loss.value(y * score if problem.is_classification else score - y)


def earned(problem: Any, coef: Any, intercept: float, lam: float, x: Any, y: float, points: Any) -> np.ndarray:
    """What moving a row to each of the points earns, with the better label."""
    cost = np.linalg.norm(points - x, ord=ORDERS[problem.geometry.norm.name], axis=-1)
    return np.max(
        [
            loss_at(problem, coef, intercept, points, label) - lam * (cost + price)
            for label, price in labels(problem, y)
        ],
        0,
    )


def brute_h(problem: Any, coef: Any, intercept: float, lam: float, x: Any, y: float, rng: Any) -> float:
    """The supremum over the box, by enumeration or search."""
    if problem.geometry.norm.name != "l2":
        return float(earned(problem, coef, intercept, lam, x, y, landing_points(problem, x)).max())
    low, high = problem.geometry.support.spread(x.size)
    if problem.loss.pieces is not None:
        return _by_pieces(problem, coef, intercept, lam, x, y)
    starts = np.vstack([x, rng.uniform(low, high, size=(12, x.size)), list(product(*zip(low, high, strict=True)))])
    best = -np.inf
    for label, price in labels(problem, y):

        def shortfall(point: np.ndarray, label: float = label, price: float = price) -> float:
            distance = np.sqrt(float((point - x) @ (point - x)) + 1e-24)
            return lam * (distance + price) - float(loss_at(problem, coef, intercept, point[None], label)[0])

        best = max(best, -shortfall(np.asarray(x)))
        for start in starts:
            with np.errstate(all="ignore"):
                options = {"ftol": 1e-15, "gtol": 1e-10}
                found = minimize(
                    shortfall, start, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)), options=options
                )
            best = max(best, -float(found.fun))
    return best


def _by_pieces(problem: Any, coef: Any, intercept: float, lam: float, x: Any, y: float) -> float:
    import cvxpy as cp

    low, high = problem.geometry.support.spread(x.size)
    best = -np.inf
    for label, price in labels(problem, y):
        for slope, offset in problem.loss.pieces:
            v = cp.Variable(x.size)
            score = coef @ (x + v) + intercept
            signal = label * score if problem.is_classification else score - label
            walls = [x + v >= low, x + v <= high]
            asked = cp.Problem(cp.Maximize(slope * signal + offset - lam * cp.norm(v, 2)), walls)
            with np.errstate(all="ignore"):
                asked.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
            best = max(best, float(asked.value) - lam * price)
    return best


def cvxpy_optimum(problem: Any, X: np.ndarray, y: np.ndarray) -> float:
    """The least worst-case risk as a modelling language states it, l1 and linf, few features.

    Every place a row can be moved to is a constraint. The paper's hypercube programme, which takes l2 too, is in
    `torture.parts.boxsearch`.
    """
    import cvxpy as cp

    from peers.cvxpy_referee import LOSSES, minimum

    n, m = X.shape
    coef, lam, s, intercept = cp.Variable(m), cp.Variable(nonneg=True), cp.Variable(n), cp.Variable()
    rules: list[Any] = []
    if not problem.is_classification:
        rules.append(lam >= problem.loss.lipschitz * 2.0 / problem.geometry.label_cost)
    for i in range(n):
        points = np.unique(landing_points(problem, X[i]), axis=0)
        cost = np.linalg.norm(points - X[i], ord=ORDERS[problem.geometry.norm.name], axis=1)
        for label, price in labels(problem, y[i]):
            score = points @ coef + intercept
            signal = label * score if problem.is_classification else score - label
            rules.append(s[i] >= LOSSES[problem.loss.name](problem.loss, signal) - lam * (cost + price))
    objective = problem.radius * lam + cp.sum(s) / n + problem.ridge / 2.0 * cp.sum_squares(coef)
    with np.errstate(all="ignore"):
        return minimum(objective, rules)
