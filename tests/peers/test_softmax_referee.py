"""The optimum of a softmax problem is that of CVXPY, by every solver."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve

pytest.importorskip("cvxpy")
from pairs import every_value
from peers.softmax_programme import softmax_optimum


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
