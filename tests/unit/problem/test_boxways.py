"""Bounds of the two ways of a residual, and what is found with them: the same as by searching both ways."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.families import boxpath, boxways
from dualcore.problem.families.boxways import bound_ways, has_bounds
from pairs import every_value

NORMS = ("l1", "l2", "linf")
SHARES = (1e-3, 0.2, 0.5, 0.8, 0.999)


def draw(norm, seed, n=60):
    """Return a problem, rows, targets and a model; boxes are cubes or not, and models of any size."""
    rng = np.random.default_rng(seed)
    m = int(rng.choice([1, 2, 7, 150]))
    low = np.zeros(m) if seed % 2 else rng.normal(size=m) * 10.0 ** rng.uniform(-2.0, 3.0)
    high = low + (1.0 if seed % 2 else rng.random(m))
    X = rng.uniform(low, high, size=(n, m))
    X = np.where(rng.random((n, m)) < 0.3, low, X)
    problem = Problem("huber", norm=norm, radius=0.1, support=(low, high))
    coef = rng.normal(size=m) * 10.0 ** rng.uniform(-2.0, 1.0)
    score = X @ coef
    return problem, X, score + rng.normal(size=n) * (0.1 + score.std()), coef


def both_ways(problem, X, y, coef, multiplier):
    """Return what each way earns, that of a score pushed up first, by the order of the walls."""
    for way, path in problem.family.paths(X, y, coef, 0.0, least=multiplier):
        path.is_kept = True
        yield path.best(problem.loss, way.start, way.side, multiplier)


@every_value(share=SHARES, norm=NORMS)
def test_no_way_earns_more_than_its_bound(norm, share):
    for seed in range(20):
        problem, X, y, coef = draw(norm, seed)
        multiplier = share * problem.loss.lipschitz * problem.size(coef)
        walls, residual = problem.geometry.support.spread(coef.size), X @ coef - y
        bounds = bound_ways(problem.loss, problem.geometry.norm, walls, X, coef, residual, multiplier)
        stay, rounding = problem.loss.value(residual), 1e-12 * (1.0 + np.abs(X) @ np.abs(coef))
        for bound, best in zip(bounds, both_ways(problem, X, y, coef, multiplier), strict=True):
            assert (best.lower <= np.maximum(bound, stay) + rounding).all()


def test_bounds_of_l1_are_exact_where_the_loss_is_linear():
    problem, X, y, coef = draw("l1", 1)
    y = y + 100.0  # all residuals are far below zero, and stay there
    multiplier = 0.5 * problem.loss.lipschitz * problem.size(coef)
    walls, residual = problem.geometry.support.spread(coef.size), X @ coef - y
    _, down = bound_ways(problem.loss, problem.geometry.norm, walls, X, coef, residual, multiplier)
    _, best = both_ways(problem, X, y, coef, multiplier)
    np.testing.assert_allclose(down, best.lower, rtol=1e-12)


# Rows whose bounds are close go both ways at once, or one after the other; one look excludes the second way, or not.
LIMITS = {
    "as it is": {},
    "at once": {(boxways, "_CLOSE"): dict.fromkeys(NORMS, 0.0), (boxways, "_FEW"): 1.0},
    "one after the other": {(boxways, "_FEW"): 0.0},
    "after a look": {(boxways, "_FEW"): 0.0, (boxpath, "_MANY"): 0},
}


@every_value(limits=list(LIMITS), norm=NORMS)
def test_the_way_that_promises_more_is_the_best_of_both(norm, limits, monkeypatch):
    for (module, name), value in LIMITS[limits].items():
        monkeypatch.setattr(module, name, value)
    for seed in range(10):
        problem, X, y, coef = draw(norm, seed)
        for share in SHARES:
            multiplier = share * problem.loss.lipschitz * problem.size(coef)
            assert has_bounds(problem.loss, problem.geometry.norm, coef, multiplier)
            found = problem.family.rows(Anchor(coef, 0.0, multiplier), X, y)
            up, down = both_ways(problem, X, y, coef, multiplier)
            here = problem.loss.value(X @ coef - y)
            rounding = 1e-12 * (1.0 + np.abs(X) @ np.abs(coef)) * problem.loss.lipschitz
            width = rounding + 1.01 * problem.family.enclosure * np.maximum(1.0, here)
            lower, upper = np.maximum(up.lower, down.lower), np.maximum(up.upper, down.upper)
            assert (found.lower <= upper + rounding).all()
            assert (found.upper >= lower - rounding).all()
            assert (found.upper - found.lower <= width).all()
            earned = problem.loss.value(found.moved @ coef - y)
            earned -= multiplier * problem.family.lengths(found.moved - X)
            assert (np.abs(earned - found.lower) <= 10.0 * rounding).all()


@pytest.mark.parametrize("loss", ["huber", "absolute", "hinge"])
def test_bounds_are_of_curved_losses_between_the_largest_and_the_least_multiplier(loss):
    problem = Problem(loss, norm="l2", radius=0.1, support=(0.0, 1.0))
    norm, coef = problem.geometry.norm, np.array([3.0, 4.0])
    largest = 5.0 * problem.loss.lipschitz
    assert has_bounds(problem.loss, norm, coef, 0.5 * largest) == (loss == "huber")
    assert not has_bounds(problem.loss, norm, coef, largest)
    assert not has_bounds(problem.loss, norm, coef, 0.0)
    assert not has_bounds(problem.loss, norm, 0.0 * coef, 0.0)


@pytest.mark.parametrize("norm", NORMS)
def test_ways_are_not_ranked_where_a_feature_has_no_wall(norm):
    rng = np.random.default_rng(0)
    X = rng.random((60, 3))
    y = X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=60)
    for support in (([0.0, 0.0, 0.0], [1.0, 1.0, np.inf]), ([0.0, 0.0, -np.inf], [1.0, 1.0, 1.0])):
        problem = Problem("huber", radius=0.1, norm=norm, support=support)
        coef = np.array([1.0, 2.0, 0.001])
        multiplier = 0.5 * problem.loss.lipschitz * problem.size(coef)
        found = problem.family.moves(X, y, coef, 0.0, multiplier)
        exact = problem.h(coef, 0.0, multiplier, X, y)
        np.testing.assert_allclose(found.upper, exact, rtol=2e-9, atol=2e-9)
