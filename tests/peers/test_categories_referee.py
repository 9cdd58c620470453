"""Training with categories against CVXPY, which is given every assignment of every row."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

cp = pytest.importorskip("cvxpy")

from sklearn.exceptions import ConvergenceWarning  # noqa: E402

from dualcore import Solution, certify, solve  # noqa: E402
from peers.cvxpy_referee import CLASSIFICATION, LIPSCHITZ, LOSSES, dual_norm, minimum  # noqa: E402
from reference.category_cases import Case, draw_case, draw_rows, moved_rows  # noqa: E402

NAMES = ["hinge", "logistic", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute"]


def referee(case: Case, X: np.ndarray, y: np.ndarray, model: tuple[np.ndarray, float] | None = None) -> float:
    """Return the least risk, or that of a model: one constraint a row for every assignment, corner and label."""
    problem = case.problem
    name, gamma, m = problem.loss.name, problem.geometry.label_cost, case.n_features
    lipschitz, loss = LIPSCHITZ[name](problem.loss), LOSSES[name]
    if model is None:
        coef, intercept = cp.Variable(m), cp.Variable() if problem.fit_intercept else 0.0
    else:
        coef, intercept = model
    lam, h = cp.Variable(nonneg=True), cp.Variable(len(y))
    numbers = np.setdiff1d(np.arange(m), np.concatenate(case.columns))
    is_margin = name in CLASSIFICATION
    constraints: list[Any] = []
    corners: list[tuple[float | None, ...]] = [(None,) * numbers.size]
    if problem.geometry.support is not None:
        corners = list(itertools.product(*[[None, -2.0, 2.0]] * numbers.size))
    elif numbers.size:
        only = np.zeros(m)
        only[numbers] = 1.0
        constraints.append(lam >= lipschitz * dual_norm(problem, cp.multiply(only, coef)))
    if not is_margin and np.isfinite(gamma):
        constraints.append(lam >= lipschitz * 2 / gamma)
    weights = problem.geometry.norm.weights
    weights = np.ones(m) if weights is None else weights
    for moved, cost in moved_rows(case, X):
        for corner in corners:
            there, paid = moved.copy(), cost.copy()
            for column, wall in zip(numbers, corner, strict=True):
                if wall is not None:
                    paid += weights[column] * np.abs(wall - X[:, column])
                    there[:, column] = wall
            able = np.flatnonzero(np.isfinite(paid))
            for flip in (1.0, -1.0) if is_margin and np.isfinite(gamma) else (1.0,):
                score = there[able] @ coef + intercept
                signal = cp.multiply(flip * y[able], score) if is_margin else score - y[able]
                price = paid[able] + (gamma if flip < 0.0 else 0.0)
                constraints.append(h[able] >= loss(problem.loss, signal) - price * lam)
    cost = problem.radius * lam + cp.sum(h) / len(y) + problem.ridge / 2 * cp.sum_squares(coef)
    return minimum(cost, constraints)


def draw(seed: int) -> tuple[Case, np.ndarray, np.ndarray]:
    """Return a problem of at most 64 assignments and at most 60 rows."""
    rng = np.random.default_rng(seed)
    settings = {"ridge": float(rng.choice([0.0, 0.0, 0.02])), "fit_intercept": bool(rng.random() < 0.8)}
    case = draw_case(rng, NAMES[seed % len(NAMES)], immovable=0.15 if settings["ridge"] else 0.0, **settings)
    X, y = draw_rows(rng, case, int(rng.integers(8, 61)))
    return case, X, y


def trained(case: Case, X: np.ndarray, y: np.ndarray, **settings: Any) -> Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(case.problem, X, y, **settings)


SEEDS = [pytest.param(seed, marks=[] if seed < 5 or seed == 103 else [pytest.mark.slow]) for seed in range(200)]


@pytest.mark.parametrize("seed", SEEDS)
def test_optimum_and_risk_are_those_of_all_assignments(seed):
    case, X, y = draw(seed)
    found = trained(case, X, y, tol=1e-7)
    assert found.converged
    best = referee(case, X, y)
    allowed = 1e-6 * max(1.0, best)
    assert found.value == pytest.approx(best, abs=allowed)
    assert found.lower_bound <= best + allowed
    rng = np.random.default_rng(seed)
    model = rng.normal(size=case.n_features), float(rng.normal()) if case.problem.fit_intercept else 0.0
    risk = case.problem.risk(*model, X, y)
    assert risk == pytest.approx(referee(case, X, y, model), abs=1e-6 * max(1.0, risk))


def test_the_bound_of_any_model_holds():
    """Bounds of rough training and of models far off, against the optimum of the same problem trained finely."""
    for seed in range(300, 308):
        case, X, y = draw(seed)
        best = trained(case, X, y, tol=1e-8)
        rng = np.random.default_rng(seed)
        for _ in range(3):
            model = best.__class__(**{**vars(best), "coef": best.coef + rng.normal(size=best.coef.size)})
            known = certify(case.problem, model, X, y)
            assert known.lower <= best.value * (1.0 + 1e-9) + known.rounding
            rough = trained(case, X, y, tol=float(rng.choice([0.3, 0.1, 0.01])), max_iter=int(rng.integers(1, 5)))
            assert rough.lower_bound <= best.value * (1.0 + 1e-9) + rough.rounding
