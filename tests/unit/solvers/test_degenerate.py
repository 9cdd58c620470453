"""Ordinary calls on data that leave a solver nothing to do: a model of risk zero, targets all alike, no intercept."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from pairs import every_pair

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=(1100, 5))


@every_pair(
    pytest.mark.parametrize(("target", "fit_intercept"), [(3.0, True), (0.0, False)]),
    norm=["l1", "l2", "linf"],
    loss=["huber", "pinball", "absolute", "epsilon_insensitive"],
)
def test_targets_all_alike_inside_walls(loss, norm, target, fit_intercept):
    problem = Problem(loss, radius=1.0, norm=norm, support=(-1.0, 1.0), fit_intercept=fit_intercept)
    found = solve(problem, X, np.full(len(X), target))
    assert found.converged
    assert found.value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("label_cost", "radius"), [(0.1, 100.0), (0.01, 10.0)])
def test_a_risk_that_is_nearly_all_the_price_of_targets(label_cost, radius):
    y = X @ RNG.normal(size=5) + RNG.normal(size=len(X))
    problem = Problem("huber", radius=radius, norm="l1", label_cost=label_cost, support=(-1.0, 1.0))
    found = solve(problem, X, y)
    assert found.converged
    assert found.lower_bound <= found.value


@pytest.mark.parametrize(("radius", "label_cost"), [(0.1, 2.0), (0.01, 50.0)])
def test_descent_with_flips_and_no_intercept(radius, label_cost):
    wide = np.random.default_rng(0).normal(size=(2500, 60))
    y = np.where(wide[:, 0] + np.random.default_rng(1).normal(size=2500) > 0.0, 1.0, -1.0)
    problem = Problem("logistic", radius=radius, label_cost=label_cost, fit_intercept=False)
    found = solve(problem, wide, y, solver="descent", tol=1e-3)
    assert found.converged
