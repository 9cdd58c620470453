"""The problem as a modelling language states it: an independent referee for solvers and closed forms.

Nothing of dualcore is called but the attributes that define a problem. Where the package uses a closed form the referee
uses another statement of the same thing: both branches of ``h`` in full, and linear matrix inequalities of order 2.
"""

import contextlib
import warnings
from typing import Any

import cvxpy as cp
import numpy as np

# Tried in turn. Clarabel stalls near 1e-8 on some exponential cones whatever it is asked for: we insist on 1e-7.
TOLERANCES, LEAST_TOLERANCE = (1e-10, 1e-9, 1e-8, 1e-7), 1e-7
# Where it gives up: other settings of it, and then SCS, which needs no factorisation near the boundary of a cone.
OTHER_SETTINGS = ({"equilibrate_enable": False}, {"max_step_fraction": 0.9})
SCS_TOLERANCE, SCS_SECONDS = 1e-9, 300.0
DUAL_ORDERS = {"l1": "inf", "l2": 2, "linf": 1}


def smooth_hinge(loss: Any, z: Any) -> Any:
    """The least of ``pos(1 - z - f)^2 / 2 + f`` over ``f >= 0``; ``huber(pos(1 - z))``, its equal, stalls Clarabel."""
    f = cp.Variable(z.shape, nonneg=True)
    return 0.5 * cp.square(cp.pos(1 - z - f)) + f


LOSSES = {
    "logistic": lambda loss, z: cp.logistic(-z),
    "hinge": lambda loss, z: cp.pos(1 - z),
    "smooth_hinge": smooth_hinge,
    "huber": lambda loss, r: 0.5 * cp.huber(r, loss.delta),
    "pinball": lambda loss, r: cp.maximum(-loss.quantile * r, (1 - loss.quantile) * r),
    "epsilon_insensitive": lambda loss, r: cp.pos(cp.abs(r) - loss.epsilon),
    "absolute": lambda loss, r: cp.abs(r),
}
LIPSCHITZ = {
    "logistic": lambda loss: 1.0,
    "hinge": lambda loss: 1.0,
    "smooth_hinge": lambda loss: 1.0,
    "huber": lambda loss: loss.delta,
    "pinball": lambda loss: max(loss.quantile, 1 - loss.quantile),
    "epsilon_insensitive": lambda loss: 1.0,
    "absolute": lambda loss: 1.0,
}
CLASSIFICATION = {"logistic", "hinge", "smooth_hinge", "squared_hinge"}


class UndecidedError(RuntimeError):
    """CVXPY found no answer to the accuracy we insist on."""


def cvxpy_optimum(problem: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the least worst-case risk over all models, ridge included."""
    X, y, w = with_mass(X, y, sample_weight)
    coef = cp.Variable(X.shape[1])
    intercept = cp.Variable() if problem.fit_intercept else 0.0
    cost, constraints = robust_cost(problem, coef, intercept, X, y, w)
    if problem.ridge > 0:
        cost = cost + problem.ridge / 2 * cp.sum_squares(coef)
    return minimum(cost, constraints)


def with_mass(X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of positive mass: the others would leave variables without a cost, which unsettles Clarabel."""
    X, y = np.asarray(X, float), np.asarray(y, float)
    w = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
    return X[w > 0], y[w > 0], w[w > 0] / w.sum()


def minimum(cost: Any, constraints: list[Any]) -> float:
    """Solve; then, as Clarabel's gap is absolute below 1, solve a small cost again, brought to about 1."""
    value = attempt(cost, constraints)
    if 1e-9 < value < 0.3:
        with contextlib.suppress(UndecidedError):  # the first answer stands, to 1e-7 absolutely
            return value * attempt(cost / value, constraints)
    return value


def attempt(cost: Any, constraints: list[Any]) -> float:
    program = cp.Problem(cp.Minimize(cost), constraints)
    insisted = dict.fromkeys(("reduced_tol_gap_abs", "reduced_tol_gap_rel", "reduced_tol_feas"), LEAST_TOLERANCE)
    for tolerance, others in [*((each, {}) for each in TOLERANCES), *((1e-8, each) for each in OTHER_SETTINGS)]:
        wanted = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        if solved(program, solver=cp.CLARABEL, **wanted, **insisted, **others) in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return float(program.value)
    few = {"eps_abs": SCS_TOLERANCE, "eps_rel": SCS_TOLERANCE, "max_iters": 10**6, "time_limit_secs": SCS_SECONDS}
    if solved(program, solver=cp.SCS, **few) == cp.OPTIMAL:
        return float(program.value)
    raise UndecidedError(f"the referee could not decide: CVXPY says {program.status}")


def solved(program: Any, **settings: Any) -> str | None:
    """Solve, and return the status; None where the solver gave up."""
    with np.errstate(all="ignore"), warnings.catch_warnings(), contextlib.suppress(cp.SolverError):
        warnings.simplefilter("ignore")  # of CVXPY's warnings none is about dualcore
        program.solve(warm_start=False, **settings)
        return str(program.status)
    return None


def dual_norm(problem: Any, coef: Any) -> Any:
    norm = problem.geometry.norm
    if norm.weights is not None:
        coef = cp.multiply(1.0 / norm.weights, coef)
    return cp.norm(coef, DUAL_ORDERS[norm.name])


def robust_cost(problem: Any, coef: Any, intercept: Any, X: Any, y: Any, w: Any) -> tuple[Any, list[Any]]:
    """``sigma^p lam + sum_i w_i h_i`` with ``lam`` and the ``h_i`` as variables of the modelling language."""
    name = problem.loss.name
    score = X @ coef + intercept
    size, gamma = dual_norm(problem, coef), problem.geometry.label_cost
    if name in ("squared", "squared_hinge"):
        return second_order_cost(problem, score, size, y, w)
    loss = LOSSES[name]
    lipschitz = LIPSCHITZ[name](problem.loss)
    lam = cp.Variable()
    if name not in CLASSIFICATION:
        constraints = [lam >= lipschitz * size]
        if np.isfinite(gamma):
            constraints.append(lam >= lipschitz * 2 / gamma)
        return problem.radius * lam + w @ loss(problem.loss, score - y), constraints
    z = cp.multiply(y, score)
    h = loss(problem.loss, z)
    if np.isfinite(gamma):
        h = cp.maximum(h, loss(problem.loss, -z) - gamma * lam)
    return problem.radius * lam + w @ h, [lam >= lipschitz * size]


def second_order_cost(problem: Any, score: Any, size: Any, y: Any, w: Any) -> tuple[Any, list[Any]]:
    """Order 2, by linear matrix inequalities (the S-lemma) in (lam, t, K, u), one or two for every row.

    ``sup_d (u + K d)^2 - lam d^2 <= t`` says that ``[[lam, 0, K], [0, t, u], [K, u, 1]]`` is positive semidefinite. A
    flip at cost ``(d + gamma)^2`` adds ``[[lam, lam gamma - nu, K], [., t + lam gamma^2, v], [K, v, 1]]``, ``nu >= 0``.
    """
    n, sigma, gamma = len(y), problem.radius, problem.geometry.label_cost
    squared = problem.loss.name == "squared"
    lift = cp.Variable(n)
    constraints = [lift == score - y] if squared else [lift >= 1 - cp.multiply(y, score), lift >= 0]
    if sigma == 0:
        return cp.sum(cp.multiply(w, cp.square(lift))), constraints
    lam, steep, t = cp.Variable(), cp.Variable(), cp.Variable(n)
    constraints.append(steep >= size)
    if squared and np.isfinite(gamma):
        constraints.append(steep >= 2 / gamma)
    flips = not squared and np.isfinite(gamma)
    if flips:
        nu, up = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
        constraints.append(up >= 1 + cp.multiply(y, score))
    for i in range(n):
        constraints.append(psd(lam, 0.0, t[i], steep, lift[i]))
        if flips:
            constraints.append(psd(lam, gamma * lam - nu[i], t[i] + gamma**2 * lam, steep, up[i]))
    return sigma**2 * lam + w @ t, constraints


def psd(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """``[[a, b, d], [b, c, e], [d, e, 1]]`` is positive semidefinite."""
    entry = [[a, b, d], [b, c, e], [d, e, 1.0]]
    matrix = cp.Variable((3, 3), PSD=True)
    return cp.hstack([matrix[i, j] - entry[i][j] for i in range(3) for j in range(i + 1)]) == 0
