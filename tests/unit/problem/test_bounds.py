"""Generic bounds on h: never violated, and no wider than the theory says."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, lipschitz_bounds, smooth_bounds

STEPS = np.concatenate([np.linspace(-3.0, 3.0, 1201), np.geomspace(3.0, 300.0, 60), -np.geomspace(3.0, 300.0, 60)])


class Wave:
    """``1 + sin(a x + c)``: neither convex nor monotone; Lipschitz ``a``, smooth ``a^2``."""

    convex = False

    def __init__(self, rng):
        self.a, self.c = rng.uniform(0.1, 3.0), rng.uniform(0.0, 6.0)
        self.lipschitz, self.smoothness = self.a, self.a**2

    def value(self, x):
        return 1.0 + np.sin(self.a * x + self.c)

    def slope(self, x):
        return self.a * np.cos(self.a * x + self.c)


class Softplus:
    """``log(1 + exp(a x + c))``, a logistic loss in one feature: convex, Lipschitz ``a``, smooth ``a^2 / 4``."""

    convex = True

    def __init__(self, rng):
        self.a, self.c = rng.uniform(0.1, 3.0), rng.normal()
        self.lipschitz, self.smoothness = self.a, 0.25 * self.a**2

    def value(self, x):
        return np.logaddexp(0.0, self.a * x + self.c)

    def slope(self, x):
        return self.a * np.exp(-np.logaddexp(0.0, -(self.a * x + self.c)))


def dual_loss(model, x, multiplier, diameter, order):
    """``sup l(x') - lam |x' - x|^p`` over a fine grid of moves: no more than h, and nearly h."""
    moves = STEPS if diameter is None else np.unique(np.clip(STEPS, -diameter, diameter))
    return (model.value(x + moves) - multiplier * np.abs(moves) ** order).max()


def test_no_bound_is_ever_violated():
    """1,500 random losses, rows, multipliers and diameters."""
    rng = np.random.default_rng(0)
    for trial in range(1500):
        model = (Wave, Softplus)[trial % 2](rng)
        x, order = rng.normal(), 1 + trial // 2 % 2
        diameter = None if trial % 3 == 0 else rng.uniform(0.0, 2.0)
        loss, slope = model.value(x), abs(model.slope(x))
        lam = rng.uniform(0.01, 2.0) * (model.lipschitz if order == 1 else model.smoothness)
        found = []
        if order == 2 or diameter is not None or lam >= model.lipschitz:
            found.append(lipschitz_bounds([loss], model.lipschitz, lam, diameter=diameter, order=order))
        if diameter is not None or (order == 2 and lam > 0.5 * model.smoothness):
            found.append(
                smooth_bounds(
                    [loss], [slope], model.smoothness, lam, diameter=diameter, order=order, convex=model.convex
                )
            )
        h = dual_loss(model, x, lam, diameter, order)
        for lower, upper in found:
            assert h <= upper[0] + 1e-9
            assert lower[0] <= upper[0]
            # A grid of moves misses the best one by at most half a step of 0.005, hence by less than this.
            assert lower[0] <= h + (model.smoothness + 2.0 * lam) * 0.005**2 + 1e-9


def test_bounds_that_are_attained():
    """Above the Lipschitz constant ``h`` is the loss; ``l = x^2 / 2`` is 1-smooth: ``h = lam x^2 / (2 lam - 1)``."""
    lower, upper = lipschitz_bounds([0.5, 2.0], [1.0, 3.0], 3.0)
    np.testing.assert_array_equal(lower, upper)
    problem = Problem("hinge", radius=0.1)
    X, y = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    h = problem.h(np.array([0.5]), 0.0, 0.5, X, y)
    np.testing.assert_allclose(lipschitz_bounds(h, 0.5, 0.5).upper, h)
    x, lam = np.array([0.5, 1.0, 3.0]), 2.0
    upper = smooth_bounds(0.5 * x**2, np.abs(x), 1.0, lam, convex=True).upper
    np.testing.assert_allclose(upper, lam * x**2 / (2.0 * lam - 1.0))


def test_outside_its_region_a_bound_is_refused():
    for call, message in [
        (lambda: lipschitz_bounds([1.0], 2.0, 1.0), "Lipschitz"),
        (lambda: lipschitz_bounds([1.0], 2.0, 0.0, order=2), "diameter"),
        (lambda: smooth_bounds([1.0], [2.0], 2.0, 1.0), "smoothness / 2"),
        (lambda: smooth_bounds([1.0], [2.0], 2.0, 1.0, order=1), "order 1 needs it"),
        (lambda: smooth_bounds([1.0], [2.0], -1.0, 1.0), "smoothness must be"),
        (lambda: lipschitz_bounds([-1.0], 2.0, 3.0), "non-negative"),
        (lambda: lipschitz_bounds([1.0, 2.0], [1.0, 2.0, 3.0], 3.0), "one per row"),
        (lambda: lipschitz_bounds([1.0], 2.0, 3.0, order=3), "order must be"),
        (lambda: lipschitz_bounds([1.0], 2.0, -3.0), "non-negative numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
