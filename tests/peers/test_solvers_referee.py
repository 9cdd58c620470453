"""Every solver against CVXPY on random problems: every loss, norm and label cost, kind and unkind data, many classes.

``value`` is the exact risk of a model and ``lower_bound`` is certified, so two one-sided questions can be asked however
inaccurate the referee is: no model of ours is worse than the referee's, and no bound of ours exceeds its risk.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, solve
from pairs import every_value
from reference.cases import LABEL_COSTS, LOSS_NAMES, MARGIN_LOSSES, NORMS
from reference.referee import least_risk

pytestmark = pytest.mark.needs("cvxpy")
AGREEMENT = 1e-6
TRAITS = ("plain", "badly scaled", "duplicate rows", "wide", "separable", "constant columns", "one row per class")


def draw_data(rng: np.random.Generator, trait: str, *, classification: bool) -> tuple[np.ndarray, np.ndarray]:
    n, m = int(rng.integers(15, 50)), int(rng.integers(1, 6))
    if trait == "wide":
        n, m = int(rng.integers(4, 10)), int(rng.integers(11, 20))
    if trait == "one row per class":
        n = 2
    X = rng.normal(size=(n, m)) + rng.normal(size=m)
    if trait == "constant columns":
        X = np.column_stack([X, np.full(n, 3.7), np.zeros(n)])
    score = X @ rng.normal(size=X.shape[1])
    target = score - np.median(score) + (0.0 if trait == "separable" else 1.5) * rng.normal(size=n)
    if trait == "duplicate rows":
        X[n // 2 : n // 2 * 2], target[n // 2 : n // 2 * 2] = X[: n // 2], target[: n // 2]
    if trait == "badly scaled":
        X = X * 10.0 ** rng.uniform(-3.0, 3.0, size=X.shape[1])
    if not classification:
        return X, target
    y = np.where(target > np.median(target), 1.0, -1.0)
    y[np.argmax(target)], y[np.argmin(target)] = 1.0, -1.0
    return X, y


@every_value(loss=LOSS_NAMES, norm=NORMS, label_cost=LABEL_COSTS, trait=TRAITS)
def test_the_optimum_is_the_referees(loss, norm, label_cost, trait):
    rng = np.random.default_rng([LOSS_NAMES.index(loss), TRAITS.index(trait), 5])
    X, y = draw_data(rng, trait, classification=loss in MARGIN_LOSSES)
    weights = rng.uniform(0.1, 1.0, size=y.size) if rng.random() < 0.5 else None
    ridge = float(rng.choice([0.0, 0.01, 1.0]))
    radius = float(rng.choice([0.01, 0.1, 0.3, 1.0] if ridge == 0.0 else [0.0, 0.01, 0.1, 0.3]))
    settings = {"ridge": ridge, "radius": radius, "fit_intercept": bool(rng.random() < 0.7)}
    settings |= {"huber": {"delta": 0.5}, "pinball": {"quantile": 0.3}}.get(loss, {})
    problem = Problem(loss, norm=norm, label_cost=label_cost, **settings)
    optimum = least_risk(problem, X, y, weights)
    for name in ("auto", "conic"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told by the gap
            found = solve(problem, X, y, weights, solver=name)
        assert found.relative_gap <= AGREEMENT, name
        assert found.value <= optimum * (1.0 + AGREEMENT) + 1e-9, name
        assert found.lower_bound <= optimum * (1.0 + 1e-9) + found.rounding, name


@pytest.mark.parametrize(
    "change", [{"radius": 0.101}, {"label_cost": 0.99}, {"ridge": 0.0101}, {"fit_intercept": False}]
)
def test_the_referee_notices_another_problem(change):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    y = np.where(X @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=40) > 0.3, 1.0, -1.0)
    problem = Problem("hinge", radius=0.1, norm="l2", label_cost=1.0, ridge=0.01)
    right, wrong = solve(problem, X, y).value, solve(problem.replace(**change), X, y).value
    optimum = least_risk(problem, X, y)
    assert right == pytest.approx(optimum, rel=AGREEMENT)
    assert abs(wrong - optimum) > 10.0 * AGREEMENT * optimum


def classes(n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=40)
    y[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(40, 3)), y, rng.uniform(0.5, 2.0, size=40)


@every_value(
    norm=NORMS,
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
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_optimum_of_many_classes_is_that_of_cvxpy(norm, extra, n_classes):
    X, y, w = classes(n_classes)
    problem = Problem("softmax", n_classes=n_classes, norm=norm, **{"radius": 0.1, **extra})
    optimum = least_risk(problem, X, y, w)
    for solver, accuracy in (("auto", 2e-6), ("structured", 2e-6), ("descent", 1e-3)):
        solution = solve(problem, X, y, w, solver=solver, tol=0.5 * accuracy)
        # Descent certifies nothing where some coefficient has no price.
        if solver != "descent" or (problem.radius > 0.0 and "feature_weights" not in extra):
            assert solution.relative_gap <= accuracy
            assert solution.value == pytest.approx(optimum, rel=accuracy)
        assert solution.value == pytest.approx(problem.risk(solution.coef, solution.intercept, X, y, w), rel=1e-12)
        assert solution.lower_bound <= optimum * (1.0 + 1e-9) + solution.rounding
