"""Working sets of features with linf: planes that hold for all features, and sets that hold the optimum."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from dualcore.certificates.plane import PlaneBound
from dualcore.problem.families import BoxFamily
from dualcore.solvers.moving.branches.featureset import FeatureSet
from pairs import every_value


def draw(seed, loss="hinge", n=80, m=8, **settings):
    """Return a problem with a box of several widths, rows at some of its limits, and two features that matter."""
    rng = np.random.default_rng(seed)
    low, high = -rng.random(m), rng.random(m) + 0.2
    X = np.clip(rng.uniform(1.2 * low, 1.2 * high, size=(n, m)), low, high)
    score = 4.0 * X[:, 0] - 3.0 * X[:, 1] + 0.3 * rng.normal(size=n)
    problem = Problem(loss, **{"radius": 0.05, "norm": "linf", "support": (low, high)} | settings)
    return problem, X, np.where(score > np.median(score), 1.0, -1.0)


@every_value(
    loss=["hinge", "logistic"], label_cost=[np.inf, 0.7], prices=[None, [1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0, np.inf]]
)
def test_planes_bound_all_features_from_some(loss, label_cost, prices):
    for seed in range(4):
        problem, X, y = draw(seed, loss, label_cost=label_cost, feature_weights=prices, ridge=0.01 if prices else 0.0)
        data, family = problem.validate(X, y), BoxFamily.of(problem.family)
        best = solve(problem, X, y)
        below = PlaneBound(problem, family, data)
        coef = np.append([2.0, -1.5], np.zeros(6))
        work = FeatureSet(problem, data, below.centre, coef)
        assert work.features.tolist() == ([0, 1] if prices is None else [0, 1, 7])
        x = np.append(coef, [best.intercept, best.dual_variable])
        for mu in (0.1, 0.01):
            work.smoothed.set_width(mu, work.inside(x))
            plane, wanted = work.widened(work.smoothed.sums(work.inside(x)))
            assert plane.moment.size == 9
            assert not wanted[work.features].any()
            # Whatever the plane says of the optimum is no more than its risk.
            shifted = np.append(best.coef, best.intercept)
            left = best.dual_variable * (problem.radius - plane.spent)
            said = plane.value + plane.moment @ shifted + left + problem.penalty(best.coef)
            assert said <= best.value * (1.0 + 1e-9)
            assert below.least(plane, best.value)[0] <= best.value * (1.0 + 1e-9)


@pytest.mark.parametrize("loss", ["hinge", "logistic", "smooth_hinge"])
def test_many_features_without_a_coefficient(loss):
    rng = np.random.default_rng(7)
    X = rng.random((150, 300))
    y = np.where(X[:, 0] + X[:, 1] - X[:, 2] + 0.2 * rng.normal(size=150) > 0.5, 1.0, -1.0)
    problem = Problem(loss, radius=0.06, norm="linf", support=(0.0, 1.0))
    found = solve(problem, X, y, tol=1e-4)
    assert found.converged
    some = np.flatnonzero(np.abs(found.coef) > 1e-4 * np.abs(found.coef).max())
    assert some.size < 150
    alone = solve(problem, X[:, some], y, tol=1e-4)
    assert alone.value == pytest.approx(found.value, rel=2e-4)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_model_of_zeros_can_be_certified(loss):
    problem, X, y = draw(1, loss, n=200, m=15)
    zeros = SimpleNamespace(coef=np.zeros(15), intercept=0.0)
    bound, best = certify(problem, zeros, X, y).lower, solve(problem, X, y)
    assert best.value * (1.0 - 1e-5) <= bound <= best.value * (1.0 + 1e-9)
