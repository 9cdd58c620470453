"""Softmax problems that lose digits: columns far from the origin, scales far apart, cheap changes of label."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, solve
from dualcore.certificates.softmax.bound import spread_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.solvers.base import Status
from many_classes import certify_model, softmax_of
from pairs import every_value

TOL = 1e-6


def make(n_classes=3, **settings):
    return softmax_of(Problem("logistic", **{"radius": 0.05, "norm": "l2", **settings}), n_classes)


def sample(n=40, m=3, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = (X @ rng.normal(size=(m, n_classes)) + rng.normal(size=(n, n_classes))).argmax(axis=1)
    y[:n_classes] = np.arange(n_classes)
    return X, y


@every_value(norm=["l1", "l2", "linf"], label_cost=[np.inf, 0.5])
def test_far_columns_without_an_intercept_are_solved(norm, label_cost):
    """Two columns a million spreads from the origin are parallel to six digits."""
    X, y = sample(m=2)
    X += [1e6, -1e7] if np.isinf(label_cost) else [1e5, -1e6]
    solution = solve(make(norm=norm, label_cost=label_cost, fit_intercept=False), X, y, tol=TOL)
    assert solution.status is Status.OPTIMAL
    assert solution.relative_gap <= TOL


def test_ridge_with_scales_far_apart():
    """A column of 1e-6 has a ridge of 1e12 in its own units, which must not damp the others."""
    X, y = sample(m=4)
    solution = solve(make(radius=1e-5, ridge=1e-3), X * [1e-6, 1e-2, 1.0, 1e4], y, tol=TOL)
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_large_radius_on_small_columns_leaves_no_coefficients(norm):
    """What a cone program leaves over in a column of 1e-6 is a coefficient of weight in the units of the data."""
    X, y = sample(n=25, m=4, n_classes=4, seed=2)
    weights = 10.0 ** np.random.default_rng(2).uniform(-6, 0, 25)
    solution = solve(make(4, radius=0.8, ridge=0.005, norm=norm), 4e-6 * X, y, weights, tol=TOL)
    shares = np.bincount(y, weights) / weights.sum()
    assert solution.value == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-10)
    assert solution.relative_gap < 1e-10


def test_large_columns_with_a_small_radius_are_certified():
    """The radius alone bounds the coefficients of columns of 1e5 so weakly that rounding seemed to decide."""
    X, y = sample(m=3)
    solution = solve(make(radius=3e-5, norm="linf"), X * [1e3, 1e-6, 1e5], y, tol=TOL)
    assert solution.status is Status.OPTIMAL


def test_intercepts_far_from_the_origin_keep_the_risk():
    """The intercepts are about 1e12 here: what their last digit cannot hold goes to the nearer column."""
    X, y = sample(m=2, n_classes=6, seed=1)
    solution = solve(make(6, radius=3e-4), X + np.array([1e12, 1e4]), y, tol=1e-9)
    assert solution.status is Status.OPTIMAL
    assert solution.relative_gap < 1e-9


def test_affordable_changes_of_all_labels_leave_chance():
    """A radius that pays for labels spread evenly: no model beats log K, and the first bound says so."""
    X, y = sample(n=300, m=8, n_classes=9)
    problem = make(n_classes=9, radius=0.2, label_cost=0.08, ridge=1.0)
    solution = solve(problem, X, y, tol=TOL)
    assert solution.status is Status.OPTIMAL
    assert solution.iterations == 0
    assert solution.value == pytest.approx(np.log(9.0))
    said = certify_model(problem, solution.coef, solution.intercept, X, y)
    assert said.lower == pytest.approx(np.log(9.0))


@pytest.mark.parametrize("radius", [0.001, 0.01, 0.03, 0.1])
def test_the_bound_of_spread_labels_holds(radius):
    X, y = sample(seed=3)
    problem = make(radius=radius, label_cost=0.05)
    bound = spread_bound(ClassDesign.of(problem, problem.validate(X, y)))
    assert 0.0 < bound.value <= solve(problem, X, y).value + bound.rounding


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9, 1e12])
def test_lower_bounds_of_far_columns_hold(offset):
    """A far column whose rows are all the same number stands for an intercept: both problems bound each other."""
    X, y = sample(m=2, seed=5)
    plain = solve(make(radius=0.02), X, y, tol=1e-9)
    far = np.column_stack([X, np.full(len(X), offset)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve(make(radius=0.02, fit_intercept=False), far, y, tol=TOL)
    # Without a price the intercept can only be cheaper.
    levels = plain.intercept - plain.intercept.mean()
    reached = make(radius=0.02, fit_intercept=False).risk(
        np.column_stack([plain.coef, levels / offset]), np.zeros(3), far, y
    )
    assert found.lower_bound <= reached * (1.0 + 1e-12) + found.rounding
    assert found.value >= plain.lower_bound - plain.rounding - found.rounding


def test_small_risks_are_certified_to_the_same_share():
    """A risk of 1e-4 is below what a cone program tells apart unless its objective is stretched."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(17, 2))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.0).astype(int)
    solution = solve(make(2, radius=1.7e-6, norm="l1"), X, y, tol=TOL)
    assert solution.status is Status.OPTIMAL
    assert solution.relative_gap <= TOL
