"""Paths of the cheapest moves inside a box."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from pairs import every_value

LOSSES = ("hinge", "logistic", "huber", "absolute")
NORMS = ("l1", "l2", "linf")
# Enclosed to 1e-9 only.
CURVED = {("logistic", "l2"), ("huber", "l2")}


def draw(loss, norm, seed, n=80, m=11):
    rng = np.random.default_rng(seed)
    low, high = -rng.random(m), 0.2 + rng.random(m)
    problem = Problem(loss, norm=norm, radius=0.2, support=(low, high), label_cost=float(rng.choice([0.7, np.inf])))
    X = np.clip(rng.uniform(1.4 * low, 1.4 * high, size=(n, m)), low, high)
    coef = rng.normal(size=m)
    coef[rng.random(m) < 0.2] = 0.0
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0) if problem.is_classification else rng.normal(size=n)
    return problem, X, y, coef


@every_value(norm=NORMS, loss=LOSSES)
def test_the_best_move_attains_the_bound(loss, norm):
    problem, X, y, coef = draw(loss, norm, seed=9)
    low, high = problem.family.support.spread(coef.size)
    for share in (0.9, 0.3, 0.0, 0.6, 1.1):
        multiplier = share * problem.size(coef)
        found = problem.family.moves(X, y, coef, 0.1, multiplier, points=True)
        np.testing.assert_array_equal(np.clip(found.X, low, high), found.X)
        np.testing.assert_allclose(problem.family.lengths(found.X - X), found.travel, rtol=1e-9, atol=1e-9)
        fee = np.where(found.label == y, 0.0, problem.geometry.label_cost)
        np.testing.assert_allclose(found.travel + fee, found.cost, rtol=1e-12)
        score = found.X @ coef + 0.1
        after = problem.loss.value(found.label * score if problem.is_classification else score - y)
        np.testing.assert_allclose(after - multiplier * found.cost, found.lower, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.upper, problem.h(coef, 0.1, multiplier, X, y), rtol=1e-12)


@every_value(norm=NORMS, loss=LOSSES)
def test_what_is_kept_from_one_multiplier_to_the_next_changes_nothing(loss, norm):
    for seed in range(5):
        problem, X, y, coef = draw(loss, norm, seed)
        risk, multiplier = problem.minimum(coef, 0.1, problem.validate(X, y))
        tolerance = 1e-9 if (loss, norm) in CURVED else 1e-13
        assert risk == pytest.approx(problem.objective(coef, 0.1, multiplier, X, y), rel=tolerance)
        for share in (0.0, 0.5, 0.999, 1.001, 2.0):
            assert risk <= problem.objective(coef, 0.1, share * multiplier, X, y) * (1.0 + tolerance)


def test_l2_limits_on_one_side_are_searched_where_digits_are_left() -> None:
    """Coefficients of 1e6 and a price near ``Lip ||theta||``: a search out to where costs are 1e16 missed the peak."""
    delta = 10.75
    low = np.array([-0.18, -np.inf, -0.84, -0.34])
    high = np.array([0.40, np.inf, np.inf, 0.22])
    problem = Problem("huber", delta=delta, radius=1.4e-5, norm="l2", support=(low, high))
    coef = np.array([-519863.0, 852621.0, -474471.0, 292806.0])
    X = np.array([[-0.124, 0.049, 0.299, 0.119], [-0.063, 0.025, 0.151, 0.060], [0.348, -0.138, -0.836, -0.334]])
    y = X @ coef + np.array([2.6, -4.2, 0.65])
    steepest = delta * float(np.linalg.norm(coef))
    values = []
    for share in np.linspace(0.99, 1.0 - 1e-9, 60):
        lower, upper = problem.bounds(coef, 0.0, share * steepest, X, y)
        assert (lower <= upper).all()
        np.testing.assert_allclose(lower, upper, rtol=1e-8, atol=1e-8)
        values.append(upper)
    falls = np.diff(values, axis=0)
    assert (falls <= 1e-7).all()  # h does not rise with the multiplier
    assert (np.diff(falls, axis=0) >= -1e-6 * np.max(values)).all()  # and is convex in it
    lam = np.linspace(0.99, 1.01, 201) * steepest
    means = [problem.radius * each + problem.bounds(coef, 0.0, each, X, y)[1].mean() for each in lam]
    assert problem.risk(coef, 0.0, X, y) <= min(means) * (1.0 + 1e-9)
