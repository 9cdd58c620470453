"""Coresets of one row, and data of one or two: targets have no spread, moments of a dual point no length."""

import numpy as np
import pytest

from dualcore import DualCoreset, Problem, fit_coreset, solve
from dualcore.certificates.sums import squared_bound
from dualcore.problem.geometry import L2Norm
from dualcore.solvers.descent.prox import prox
from expected import may_stop_early


def make_data(seed, n=200):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, 2.0, 3.0] + np.random.default_rng(seed + 1).normal(size=n)


@may_stop_early
@pytest.mark.parametrize(
    ("loss", "settings"),
    [("pinball", {"quantile": 0.9}), ("huber", {}), ("absolute", {}), ("squared", {}), ("power", {"power": 1.1})],
)
@pytest.mark.parametrize("radius", [1e-4, 0.1])
def test_a_coreset_of_one_row_is_built_and_certified(loss, settings, radius):
    problem = Problem(loss, radius=radius, **settings)
    for seed in range(3):
        X, y = make_data(seed)
        fit = fit_coreset(problem, X, y, DualCoreset(size=1), random_state=seed)
        assert len(fit.coreset) == 1
        assert fit.certificate.lower <= solve(problem, X, y).value * (1.0 + 1e-9)


@pytest.mark.parametrize("loss", ["pinball", "absolute", "epsilon_insensitive", "huber"])
def test_descent_takes_two_rows(loss):
    X, y = make_data(0)
    problem = Problem(loss, radius=0.1)
    found = solve(problem, X[:2], y[:2], solver="descent")
    assert found.value == pytest.approx(solve(problem, X[:2], y[:2]).value, rel=1e-4, abs=1e-6)


def test_a_proximal_step_of_tiny_coefficients_is_that_of_moderate_ones():
    """Coefficients in other units: weights grow with the square of the unit, the level with the unit."""
    prices, target, weights = np.array([1.0, 0.9, 1.1]), np.array([1.0, -2.0, 0.5]), np.array([2.0, 1.0, 3.0])
    plain = prox(L2Norm(), prices, target, weights, 0.7)
    unit = 2.0**-1000
    tiny = prox(L2Norm(), prices, target * unit, weights / unit, 0.7)
    np.testing.assert_array_equal(tiny, plain * unit)


@pytest.mark.parametrize(
    ("power", "moment", "radius"), [(1.1, 1e-31, 0.1), (1.1, 1e-29, 0.1), (1.01, 1e4, 1e-4), (40.0, 1e-3, 0.1)]
)
def test_bounds_of_extreme_powers_are_finite(power, moment, radius):
    problem = Problem("power", power=power, radius=radius, label_cost=1.0)
    for linear, power_sum in ((0.5, 0.0), (0.5, 1e-300), (0.5, 0.1)):
        bound = squared_bound(problem, linear, power_sum, np.array([moment]), 0.5)
        assert bound < np.inf
        assert not np.isnan(bound)
