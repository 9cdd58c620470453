"""Statements that were false once: each with data on which it was, and its neighbours."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, WassersteinHuberRegressor, certify, solve
from dualcore.certificates import lower_bound
from dualcore.certificates.sums import trivial_bound
from dualcore.solvers import Status
from pairs import every_pair, every_value
from solver_cases import data_for

RESIDUAL_LOSSES = {
    "pinball .05": ("pinball", {"quantile": 0.05}),
    "pinball .95": ("pinball", {"quantile": 0.95}),
    "absolute": ("absolute", {}),
    "huber 1": ("huber", {"delta": 1.0}),
    "huber 100": ("huber", {"delta": 100.0}),
    "epsilon_insensitive": ("epsilon_insensitive", {"epsilon": 0.5}),
    "squared": ("squared", {}),
}
MARGIN_LOSSES = {name: (name, {}) for name in ("logistic", "hinge", "smooth_hinge", "squared_hinge")}
LOSSES = RESIDUAL_LOSSES | MARGIN_LOSSES


def quietly(problem: Problem, X, y, sample_weight=None, **settings):
    """Solve without a word about convergence: what is claimed is looked at below."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, X, y, sample_weight, **settings)


def heavy_tails() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 3))
    return X, X @ [1.0, -1.0, 0.5] + 3.0 * rng.standard_t(2, 200)


@every_value(
    pytest.mark.parametrize(
        ("theirs", "ours"),
        [*itertools.pairwise([*RESIDUAL_LOSSES, "pinball .05"]), *itertools.permutations(MARGIN_LOSSES, 2)],
    ),
    label_cost=[np.inf, 1.0],
)
def test_a_solution_of_another_loss_bounds_this_one(theirs, ours, label_cost):
    X, y = heavy_tails()
    problems = [
        Problem(LOSSES[name][0], radius=0.1, label_cost=label_cost, **LOSSES[name][1]) for name in (theirs, ours)
    ]
    y = np.where(y > 0.0, 1.0, -1.0) if problems[0].is_classification else y
    foreign, own = (quietly(problem, X, y) for problem in problems)
    certificate = certify(problems[1], foreign, X, y)
    assert certificate.lower <= own.value * (1.0 + 1e-9)
    assert certificate.upper == pytest.approx(problems[1].risk(foreign.coef, foreign.intercept, X, y), rel=1e-12)


def test_a_dual_point_is_not_carried_to_another_problem():
    """Of one loss the slopes may fit another's domain and still be no good guess; they are left out altogether."""
    X, y = heavy_tails()
    first, second = Problem("absolute", radius=0.1), Problem("absolute", radius=0.2)
    solution = quietly(first, X, y)
    bare = SimpleNamespace(coef=solution.coef, intercept=solution.intercept)
    assert certify(second, solution, X, y) == certify(second, bare, X, y)


def test_flips_of_a_point_do_not_count_where_labels_cannot_flip():
    X, target = heavy_tails()
    y = np.where(target > 0.0, 1.0, -1.0)
    flipping, fixed = (Problem("hinge", radius=0.1, label_cost=cost) for cost in (0.5, np.inf))
    solution, best = quietly(flipping, X, y), quietly(fixed, X, y)
    assert solution.dual.share is not None
    assert lower_bound(fixed, fixed.validate(X, y), solution.dual, best.value) <= best.value * (1.0 + 1e-9)


@every_value(
    offset=[0.0, 1.7e9, -1.7e12], loss=[("huber", {}), ("absolute", {}), ("squared", {}), ("power", {"power": 7.3})]
)
def test_a_target_with_a_large_mean_is_fitted_as_one_without(loss, offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = offset + np.round(1024.0 * (3.0 * X[:, 0] - 2.0 * X[:, 1] + rng.normal(size=500))) / 1024.0
    problem = Problem(loss[0], radius=0.05, **loss[1])
    here, there = quietly(problem, X, y), quietly(problem, X, y - offset)
    assert here.status is Status.OPTIMAL
    # The intercept keeps as many digits behind the point as its size allows.
    assert here.value == pytest.approx(there.value, rel=2e-6)
    np.testing.assert_allclose(here.coef, there.coef, atol=1e-3)


@every_value(difference=[1e-9, 1e-11, 1e-13], loss=["huber", "absolute", "logistic", "hinge", "squared"])
def test_columns_that_differ_by_rounding_get_no_false_bound(loss, difference):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    wobble = rng.normal(size=60)
    X = np.column_stack([x, x * (1.0 + difference * wobble)])
    y = x + 2.0 * x * wobble + 0.1 * rng.normal(size=60)
    problem = Problem(loss)
    if problem.is_classification:
        y = np.where(y > 0.0, 1.0, -1.0)
    solution = quietly(problem, X, y)
    # What a model with coefficients of 1 / difference attains: the difference of the columns as a column of its own.
    apart = np.column_stack([x, (X[:, 1] - x) / difference])
    best = quietly(problem, apart, y)
    assert solution.lower_bound <= best.value * (1.0 + 1e-6)
    assert certify(problem, solution, X, y).lower <= best.value * (1.0 + 1e-6)


def test_dependence_up_to_rounding_is_said():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    solution = quietly(Problem("absolute"), np.column_stack([x, 0.1 * x]), x + rng.normal(size=60))
    assert solution.status is Status.UNCERTIFIED
    assert "radius > 0 or ridge > 0" in solution.status.value


@pytest.mark.parametrize("loss", ["huber", "absolute", "logistic", "hinge", "squared"])
def test_columns_that_are_dependent_exactly_are_no_obstacle(loss):
    """Repeated columns, a full set of indicators beside an intercept, a constant column."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, size=90)
    x = rng.normal(size=90)
    X = np.column_stack([x, x, -2.0 * x, np.eye(3)[group], np.full(90, 0.3)])
    y = x + group + rng.normal(size=90)
    problem = Problem(loss)
    if problem.is_classification:
        y = np.where(y > 1.0, 1.0, -1.0)
    solution = quietly(problem, X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.rounding <= 1e-9


# Exact dependences between columns that cannot move and columns that can

DEPENDENCES = {
    "equal": lambda x, z, code: np.c_[x, x],
    "negative": lambda x, z, code: np.c_[x, -x],
    "multiple": lambda x, z, code: np.c_[x, 2.0 * x],
    "sum": lambda x, z, code: np.c_[x, np.round(64.0 * z) / 64.0, x + np.round(64.0 * z) / 64.0],
    "total": lambda x, z, code: np.c_[x, np.eye(3)[code], (code < 2).astype(float)],
}


def test_an_immovable_column_that_equals_a_movable_one():
    x = np.random.default_rng(0).normal(size=20)
    X, zero = np.c_[x, x], SimpleNamespace(coef=np.zeros(2), intercept=0.0)
    problem = Problem("absolute", radius=0.5, feature_weights=[np.inf, 1.0], fit_intercept=False)
    assert certify(problem, zero, X, 3.0 * x).lower == problem.risk([3.0, 0.0], 0.0, X, 3.0 * x) == 0.0


@every_pair(
    fit_intercept=[True, False], dependence=list(DEPENDENCES), loss=["absolute", "huber 1", "squared", *MARGIN_LOSSES]
)
def test_columns_of_different_prices_that_are_dependent_exactly(loss, dependence, fit_intercept):
    """Any model bounds nothing beyond the optimum, and the optimum is still certified."""
    name, parameters = LOSSES[loss]
    rng = np.random.default_rng(1)
    x, z, code = np.round(64.0 * rng.normal(size=40)) / 64.0, rng.normal(size=40), rng.integers(0, 3, size=40)
    X = DEPENDENCES[dependence](x, z, code)
    m = X.shape[1]
    for immovable in range(m):
        prices = np.where(np.arange(m) == immovable, np.inf, 1.0 + np.arange(m))
        problem = Problem(name, radius=0.5, feature_weights=prices, fit_intercept=fit_intercept, **parameters)
        y = X @ np.arange(3.0, 3.0 - m, -1.0) + 0.2 * z
        if problem.is_classification:
            y = np.where(y > 0.5 * z, 1.0, -1.0)
        best = quietly(problem, X, y)
        assert best.status is Status.OPTIMAL
        for coef in (np.zeros(m), 0.9 * best.coef, np.ones(m)):
            model = SimpleNamespace(coef=coef, intercept=best.intercept)
            assert certify(problem, model, X, y).lower <= best.value * (1.0 + 1e-9) + best.rounding


@pytest.mark.parametrize("coreset", [5, 0.1])
def test_coresets_of_equal_columns_of_different_prices(coreset):
    """Of 40 such fits 16 and 12 had a lower bound above the optimum; a quarter of them are repeated."""
    problem = Problem("huber", radius=0.5, feature_weights=[np.inf, 1.0])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=300)
        X, y = np.c_[x, x], 3.0 * x + rng.normal(size=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of five rows too
            model = WassersteinHuberRegressor(
                radius=0.5, feature_weights=[np.inf, 1.0], coreset=coreset, random_state=seed
            ).fit(X, y)
        best = quietly(problem, X, y)
        assert model.certificate_.lower <= best.value * (1.0 + 1e-9)


@every_value(norm=["l1", "l2", "linf"], loss=["logistic", "hinge", "huber", "absolute", "squared"])
def test_prices_and_a_ridge_are_certified(loss, norm):
    prices = 10.0 ** np.random.default_rng(2).uniform(-1, 1, size=5)
    problem = Problem(loss, radius=0.2, norm=norm, ridge=0.3, feature_weights=prices, label_cost=3.0)
    assert quietly(problem, *data_for(problem, n=80, m=5)).status is Status.OPTIMAL


@pytest.mark.parametrize("seed", range(3))
def test_solve_never_raises_on_wide_data_with_offsets(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 60)) + 10.0 ** rng.uniform(0, 6, size=60)
    y = rng.normal(size=9)
    for loss, parameters in (("huber", {"delta": 33.0}), ("absolute", {})):
        solution = quietly(Problem(loss, radius=1e-6, norm="l1", **parameters), X, y)
        assert np.isfinite(solution.value)
        assert solution.lower_bound <= solution.value


@pytest.mark.parametrize("mean", [1e-12, 1.0, 8.2, 1e6])
@pytest.mark.parametrize("loss", ["squared", "squared_hinge"])
def test_the_error_granted_to_a_risk_is_not_negative(loss, mean):
    """As a difference of two powers it was lost in rounding, and could be below zero."""
    own = Problem(loss, radius=0.1).loss
    for change in (0.0, 1e-17, 1e-9, 1.0):
        rise = own.largest_rise(mean, change)
        assert rise >= max(2.0 * change * np.sqrt(mean), 0.0)
        assert rise <= 2.0 * change * (np.sqrt(mean) + change)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "smooth_hinge", "squared_hinge", "softmax"])
def test_labels_at_random_bound_every_model(loss):
    """Where half of the labels can be flipped nothing is learned, and the bound says so; just below it may not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] > 0.0, 1.0, 0.0 if loss == "softmax" else -1.0)
    settings = {"n_classes": 2} if loss == "softmax" else {}
    power = 2.0 if loss == "squared_hinge" else 1.0
    for label_cost, is_random in ((0.499 * 2.0 ** (1.0 / power), True), (0.51 * 2.0 ** (1.0 / power), False)):
        problem = Problem(loss, radius=0.5, label_cost=label_cost, **settings)
        bound, (coef, intercept) = trivial_bound(problem), problem.family.zero_model(2)
        least = problem.risk(coef, intercept, X, y)
        assert bound == (pytest.approx(least, rel=1e-14) if is_random else 0.0)
        for _ in range(20 if is_random else 0):
            other = rng.normal(size=coef.shape), rng.normal(size=np.shape(intercept))
            assert problem.risk(*other, X, y) >= bound
