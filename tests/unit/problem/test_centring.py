"""Columns and targets far from the origin: the risk of a model is the same number wherever it is asked for.

The referee has exact constants and twice the digits of a long double in its scores.
"""

from fractions import Fraction

import numpy as np
import pytest

from dualcore import (
    Problem,
    WassersteinHuberRegressor,
    WassersteinLinearSVC,
    WassersteinLogisticRegression,
    solve,
    worst_case_distribution,
)
from reference.referee import referee_of

CASES = [
    ("logistic", {}),
    ("logistic", {"label_cost": 0.5}),
    ("hinge", {"label_cost": 1.0, "norm": "l1"}),
    ("squared_hinge", {}),
    ("huber", {}),
    ("pinball", {"quantile": 0.9, "norm": "linf"}),
    ("absolute", {"label_cost": 2.0}),
    ("squared", {"ridge": 0.1}),
    ("power", {"power": 1.5}),
]


def on_grid(values, digits=20):
    """Numbers that are exact after a shift by a power of two up to ``2**(53 - digits)``."""
    return np.round(np.asarray(values) * 2.0**digits) / 2.0**digits


def make_data(classification, offset, n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) + np.array([offset, 0.0, -2.0 * offset])
    y = (X - X.mean(axis=0)) @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=n)
    return X, np.where(y > 0.0, 1.0, -1.0) if classification else y


def centred_model(X, target=0.0, seed=1):
    """A model whose scores are moderate though columns are not: its intercept has few digits behind the point."""
    coef = on_grid(np.random.default_rng(seed).normal(size=X.shape[1]), 10)
    middle = sum(Fraction(a) * Fraction(b) for a, b in zip(X[0].tolist(), coef.tolist(), strict=True))
    return coef, float(Fraction(target) - middle)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("offset", [1e9, 1e12])
@pytest.mark.parametrize(("loss", "settings"), CASES)
def test_far_columns_take_no_digits_from_the_risk(loss, settings, offset, fit_intercept):
    problem = Problem(loss, radius=0.1, fit_intercept=fit_intercept, **settings)
    X, y = make_data(problem.is_classification, offset)
    coef, intercept = centred_model(X, 0.0 if problem.is_classification else y[0])
    referee = referee_of(problem, X, y)
    point = referee.point(coef, intercept)
    assert problem.risk(coef, intercept, X, y) == pytest.approx(float(referee.risk(point)), rel=1e-12)
    t = (y * point.score if problem.is_classification else point.score - referee.target).astype(float)
    value, multiplier = problem.form.minimise(t, None, problem.size(coef))
    assert problem.risk(coef, intercept, X, y) == pytest.approx(value + problem.penalty(coef), rel=1e-13)
    assert problem.multiplier(coef, intercept, X, y) == pytest.approx(multiplier, rel=1e-12)
    above = problem.form.feasible_multiplier(problem.size(coef), 1.5 * multiplier)
    expected = problem.form.h(t, above, problem.size(coef))
    np.testing.assert_allclose(problem.h(coef, intercept, above, X, y), expected, rtol=1e-11, atol=1e-13)
    objective = problem.price * above + expected.mean() + problem.penalty(coef)
    assert problem.objective(coef, intercept, above, X, y) == pytest.approx(objective, rel=1e-12)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
def test_a_box_may_be_anywhere(loss, norm):
    """The same box, rows and model, at the origin and 2**32 away: all differences are exact."""
    problem = Problem(loss, radius=0.05, norm=norm, support=(-1.0, 1.0))
    rng = np.random.default_rng(2)
    X, centre = on_grid(rng.uniform(-1.0, 1.0, size=(40, 3))), np.array([2.0**32, 0.0, -(2.0**30)])
    y = on_grid(X @ [1.0, -2.0, 0.5])
    y = np.where(y > 0.0, 1.0, -1.0) if problem.is_classification else y
    coef, intercept = on_grid(rng.normal(size=3), 8), 0.25
    away = problem.replace(support=(centre - 1.0, centre + 1.0))
    model = (coef, intercept - float(centre @ coef))
    assert away.risk(*model, X + centre, y) == problem.risk(coef, intercept, X, y)
    lam = 1.5 * problem.multiplier(coef, intercept, X, y)
    np.testing.assert_array_equal(away.h(*model, lam, X + centre, y), problem.h(coef, intercept, lam, X, y))
    here, there = problem.gradient(coef, intercept, X, y), away.gradient(*model, X + centre, y)
    np.testing.assert_allclose(there.coef, here.coef + here.intercept * centre, rtol=1e-14)
    near, far = solve(problem, X, y), solve(away, X + centre, y)
    assert far.value == pytest.approx(near.value, rel=2e-6)
    assert far.lower_bound <= near.value
    assert away.risk(far.coef, far.intercept, X + centre, y) == pytest.approx(far.value, rel=1e-12)


def test_one_hot_columns_stay_where_they_are():
    """A column of categories that is nearly always 1 is far from the origin beside tiny columns, but never centred."""
    rng = np.random.default_rng(3)
    codes = np.eye(2)[(rng.uniform(size=80) > 0.02).astype(int)]
    X = np.column_stack([codes, 2.0**32 + on_grid(rng.normal(size=80))])
    problem = Problem("hinge", radius=0.1, categories=[[0, 1]])
    y = np.where(rng.normal(size=80) > 0.0, 1.0, -1.0)
    coef, shift = np.array([0.25, -0.5, 0.75]), np.array([0.0, 0.0, 2.0**32])
    near = problem.risk(coef, 0.5, X - shift, y)
    assert problem.risk(coef, 0.5 - 0.75 * 2.0**32, X, y) == near


@pytest.mark.parametrize("label_cost", [np.inf, 0.5])
def test_many_classes_are_centred_alike(label_cost):
    problem = Problem("softmax", n_classes=3, radius=0.1, label_cost=label_cost)
    X, _ = make_data(False, 1e9)
    y = np.arange(len(X)) % 3
    coef, intercept = map(np.array, zip(*(centred_model(X, seed=seed) for seed in range(3)), strict=True))
    referee = referee_of(problem, X, y)
    expected = float(referee.risk(referee.point(coef, intercept)))
    assert problem.risk(coef, intercept, X, y) == pytest.approx(expected, rel=1e-12)
    found = solve(problem, X, y, tol=1e-4)
    assert problem.risk(found.coef, found.intercept, X, y) == pytest.approx(found.value, rel=1e-14)


@pytest.mark.parametrize(("loss", "settings"), [*CASES[:3], *CASES[4:7]])
def test_the_worst_distribution_of_far_rows_is_as_bad_as_the_risk(loss, settings):
    problem = Problem(loss, radius=0.1, **settings)
    X, y = make_data(problem.is_classification, 1e9)
    model = centred_model(X, 0.0 if problem.is_classification else y[0])
    worst = worst_case_distribution(problem, *model, X, y)
    assert worst.expected_loss == pytest.approx(problem.risk(*model, X, y), rel=1e-6)
    np.testing.assert_allclose(np.median(worst.X, axis=0), np.median(X, axis=0), atol=1.0)  # in the units of the user
    assert worst.X[:, 0].mean() == pytest.approx(1e9, rel=1e-3)


@pytest.mark.parametrize("multi_class", ["ovr", "multinomial"])
def test_estimators_say_the_same_risk(multi_class):
    X, y = make_data(False, 1e9)
    labels = np.digitize(y, [-1.0, 1.0])
    many = WassersteinLogisticRegression(multi_class=multi_class, tol=1e-4).fit(X, labels)
    np.testing.assert_allclose(many.worst_case_risk(X, labels), many.worst_case_risk_, rtol=1e-13)
    two = WassersteinLinearSVC(label_cost=1.0).fit(X, y > 0.0)
    assert two.worst_case_risk(X, y > 0.0) == pytest.approx(two.worst_case_risk_, rel=1e-13)
    farther = X + np.array([1e12, 0.0, 0.0])
    regressor = WassersteinHuberRegressor().fit(farther, y)
    assert regressor.worst_case_risk(farther, y) == pytest.approx(regressor.worst_case_risk_, rel=1e-13)
