"""The optimum of a softmax problem is that of CVXPY, by every solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualcore import Problem, solve
from pairs import every_value

cp = pytest.importorskip("cvxpy")

from peers.cvxpy_referee import DUAL_ORDERS, minimum  # noqa: E402


def softmax_optimum(problem: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the least worst-case risk over all models; of dualcore only the attributes of the problem are used."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y).astype(int)
    n_classes, (n, m) = problem.family.n_outputs, X.shape
    w = np.ones(n) if sample_weight is None else np.asarray(sample_weight)
    theta, b, multiplier = cp.Variable((n_classes, m)), cp.Variable(n_classes), cp.Variable(nonneg=True)
    scores = X @ theta.T + np.ones((n, 1)) @ cp.reshape(b, (1, n_classes), order="C")
    own = cp.sum(cp.multiply(scores, np.eye(n_classes)[y]), axis=1)
    h = cp.log_sum_exp(scores, axis=1) - own
    if np.isfinite(problem.geometry.label_cost):
        h = h + cp.pos(own - cp.min(scores, axis=1) - problem.geometry.label_cost * multiplier)
    prices = np.ones(m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights
    movable = np.flatnonzero(np.isfinite(prices))
    order = DUAL_ORDERS[problem.geometry.norm.name]
    limits = [] if problem.fit_intercept else [b == 0]
    for j in range(n_classes):
        for k in range(j):
            apart = cp.multiply(theta[j] - theta[k], 1.0 / prices)[movable]
            limits.append(cp.norm(apart, order) <= multiplier)
    cost = problem.radius * multiplier + (w / w.sum()) @ h + 0.5 * problem.ridge * cp.sum_squares(theta)
    return minimum(cost, limits)


def make(n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=40)
    y[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(40, 3)), y, rng.uniform(0.5, 2.0, size=40)


@every_value(
    norm=["l1", "l2", "linf"],
    extra=[
        {},
        {"label_cost": 0.7},
        {"ridge": 0.1},
        {"label_cost": 0.3, "ridge": 0.01},
        {"fit_intercept": False},
        {"radius": 0.0},
        {"feature_weights": [1.0, 3.0, np.inf]},
    ],
    n_classes=[2, 3, 5],
)
def test_the_optimum_is_that_of_cvxpy(norm, extra, n_classes):
    X, y, w = make(n_classes)
    problem = Problem("softmax", n_classes=n_classes, norm=norm, **{"radius": 0.1, **extra})
    optimum = softmax_optimum(problem, X, y, w)
    for solver in ("auto", "structured"):
        solution = solve(problem, X, y, w, solver=solver)
        assert solution.converged
        assert solution.relative_gap <= 1e-6
        assert solution.value == pytest.approx(optimum, rel=2e-6)
        assert solution.value == pytest.approx(problem.risk(solution.coef, solution.intercept, X, y, w), rel=1e-12)
        assert solution.lower_bound <= optimum * (1.0 + 1e-7)


@every_value(
    norm=["l1", "l2", "linf"],
    extra=[{}, {"label_cost": 1.0}, {"ridge": 0.05}, {"fit_intercept": False}, {"label_cost": 0.3, "ridge": 0.01}],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_descent_alone_is_near_and_its_bound_holds(norm, extra):
    X, y, w = make(4)
    problem = Problem("softmax", n_classes=4, norm=norm, radius=0.08, **extra)
    optimum = softmax_optimum(problem, X, y, w)
    found = solve(problem, X, y, w, solver="descent", tol=1e-4)
    assert found.solver == "descent"
    assert found.relative_gap <= 1e-3
    assert found.value == pytest.approx(optimum, rel=1e-3)
    assert found.lower_bound <= optimum * (1.0 + 1e-7)
