"""Paths of the cheapest moves: what is kept from one multiplier to the next changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.problem.families.box import BoxFamily
from dualcore.problem.families.boxmoves import get_path
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
def test_a_search_that_keeps_the_order_of_walls_finds_the_same(loss, norm, monkeypatch):
    for seed in range(5):
        problem, X, y, coef = draw(loss, norm, seed)
        kept = problem.evaluate(coef, 0.1, problem.validate(X, y))
        with monkeypatch.context() as patch:
            patch.setattr(BoxFamily, "keeps_order", lambda self, rows: False)
            again = problem.evaluate(coef, 0.1, problem.validate(X, y))
        assert kept.value == pytest.approx(again.value, rel=1e-9 if (loss, norm) in CURVED else 1e-13)


@every_value(norm=NORMS, loss=LOSSES)
def test_a_path_answers_any_order_of_multipliers(loss, norm):
    problem, X, y, coef = draw(loss, norm, seed=9)
    start = y * (X @ coef) if problem.is_classification else X @ coef - y
    low, high = problem.family.support.spread(coef.size)
    push = -y if problem.is_classification else np.full(y.size, -1.0)
    slopes, caps = np.abs(coef), np.where(np.multiply.outer(push, coef) > 0.0, high - X, X - low)
    path = get_path(problem.geometry.norm, slopes, caps)
    for share in (0.9, 0.3, 0.0, 0.6, 1.1):
        multiplier = share * problem.size(coef)
        found = path.best(problem.loss, start, -1.0, multiplier)
        fresh = get_path(problem.geometry.norm, slopes, caps).best(problem.loss, start, -1.0, multiplier)
        for a, b in zip(found, fresh, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        v = np.abs(problem.family.displaced(X, coef, push, found.key) - X)
        assert (v <= caps + 1e-12).all()
        np.testing.assert_allclose(v @ slopes, found.gain, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(problem.family.lengths(v), found.cost, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_a_row_that_earns_no_more_than_is_known_may_stay(norm):
    problem, X, y, coef = draw("absolute", norm, seed=3)
    low, high = problem.family.support.spread(coef.size)
    path = get_path(problem.geometry.norm, np.abs(coef), np.where(coef > 0.0, high - X, X - low))
    start, multiplier = X @ coef - y, 0.4 * problem.size(coef)
    full = path.best(problem.loss, start, 1.0, multiplier)
    enough = full.upper + np.where(np.arange(start.size) % 2 == 0, 0.01, -0.01)
    some = path.best(problem.loss, start, 1.0, multiplier, enough=enough)
    asked = enough < full.upper
    np.testing.assert_allclose(some.lower[asked], full.lower[asked], rtol=1e-13)
    assert (some.upper <= np.maximum(full.upper, enough) + 1e-12).all()


def test_l2_walls_on_one_side_are_searched_where_digits_are_left() -> None:
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
