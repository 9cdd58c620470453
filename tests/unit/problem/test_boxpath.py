"""Paths of the cheapest moves inside a box."""

from __future__ import annotations

import numpy as np

from dualcore import Problem
from pairs import every_value

LOSSES = ("hinge", "logistic", "huber", "absolute")
NORMS = ("l1", "l2", "linf")


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
    _, best = problem.minimum(coef, 0.1, problem.validate(X, y))
    for multiplier in (best, *(share * problem.size(coef) for share in (0.9, 0.3, 0.0, 0.6, 1.1))):
        found = problem.family.moves(X, y, coef, 0.1, multiplier, points=True)
        np.testing.assert_array_equal(np.clip(found.X, low, high), found.X)
        np.testing.assert_allclose(problem.family.lengths(found.X - X), found.travel, rtol=1e-9, atol=1e-9)
        fee = np.where(found.label == y, 0.0, problem.geometry.label_cost)
        np.testing.assert_allclose(found.travel + fee, found.cost, rtol=1e-12)
        score = found.X @ coef + 0.1
        after = problem.loss.value(found.label * score if problem.is_classification else score - y)
        np.testing.assert_allclose(after - multiplier * found.cost, found.lower, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.upper, problem.h(coef, 0.1, multiplier, X, y), rtol=1e-12)


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
