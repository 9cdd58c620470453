"""The parts of the descent solver: smoothing, proximal steps, gradients, quadratic models."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import Absolute, EpsilonInsensitive, Hinge, Pinball
from dualcore.solvers.descent.memory import MemoryOracle
from dualcore.solvers.descent.objective import Objective
from dualcore.solvers.descent.prox import prox, prox_with_size
from dualcore.solvers.descent.rowsums import Point, SmoothedLoss
from pairs import every_pair, every_value

NORMS = (L1Norm, L2Norm, LinfNorm)


def rows_of(problem: Problem, n: int = 60, m: int = 4, offset: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m)) + offset
    score = X @ rng.normal(size=m) + rng.normal(size=n)
    return X, np.where(score > np.median(score), 1.0, -1.0) if problem.is_classification else score


@pytest.mark.parametrize("loss", [Hinge(), Pinball(0.3), EpsilonInsensitive(0.2), Absolute()])
def test_a_smoothed_loss_is_above_the_loss_by_at_most_its_width(loss):
    width, t = 0.1, np.linspace(-2.0, 2.0, 4001)
    value, slope = SmoothedLoss(loss, width).value_and_slope(t)
    above = value - loss.value(t)
    assert above.min() >= -1e-15
    assert above.max() <= 0.25 * width * 2.0
    np.testing.assert_allclose(slope[1:-1], (value[2:] - value[:-2]) / (t[2:] - t[:-2]), atol=0.02)
    assert (np.diff(slope) >= -1e-12).all()
    low, high = loss.slope_range
    assert slope.min() >= low
    assert slope.max() <= high


@every_value(norm=NORMS, seed=range(6))
def test_a_proximal_step_is_a_minimum(norm, seed):
    rng = np.random.default_rng(seed)
    target, weights, prices = rng.normal(size=5), rng.uniform(0.3, 3.0, size=5), rng.uniform(0.3, 3.0, size=5)
    if seed % 2:
        prices[1] = np.inf
    level = float(rng.choice([0.1, 1.0, 4.0]))

    def cost(x):
        return 0.5 * float(weights @ (x - target) ** 2) + level * norm(prices).dual(x)

    found = cost(prox(norm(), prices, target, weights, level))
    for step in rng.normal(size=(200, 5)) * rng.choice([1e-3, 1e-1, 1.0], size=(200, 1)):
        assert found <= cost(prox(norm(), prices, target, weights, level) + step) + 1e-12


@every_pair(norm=NORMS, stiffness=[0.0, 0.5, 10.0], floor=[0.0, 1.5])
def test_a_proximal_step_with_a_size_is_a_minimum_on_the_cone(norm, stiffness, floor):
    rng = np.random.default_rng(int(10 * stiffness) + int(floor))
    for _ in range(20):
        target, weights, prices = rng.normal(size=4), rng.uniform(0.3, 3.0, size=4), rng.uniform(0.3, 3.0, size=4)
        size = -abs(float(rng.normal())) if stiffness == 0.0 else float(rng.normal())

        def cost(x, k, target=target, weights=weights, size=size):
            in_size = -size * k if stiffness == 0.0 else 0.5 * stiffness * (k - size) ** 2
            return 0.5 * float(weights @ (x - target) ** 2) + in_size

        x, k = prox_with_size(norm(), prices, target, weights, size, stiffness, floor)
        assert k >= max(norm(prices).dual(x), floor) - 1e-12
        for step in rng.normal(size=(60, 5)) * rng.choice([1e-3, 1e-1], size=(60, 1)):
            other = x + step[:4]
            least = max(norm(prices).dual(other), floor)
            assert cost(x, k) <= cost(other, max(k + step[4], least)) + 1e-10


@every_value(loss=["logistic", "hinge", "huber", "pinball", "squared"], kind=[np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_the_gradient_is_that_of_the_value(loss, kind):
    problem = Problem(loss, radius=0.1, ridge=0.1, label_cost=1.0 if loss in ("logistic", "hinge") else np.inf)
    X, y = rows_of(problem, offset=40.0)
    oracle = MemoryOracle(problem, problem.validate(kind(X), y))
    objective = Objective(oracle, 0.3)
    rng = np.random.default_rng(1)
    coef = 0.3 * rng.normal(size=4)
    here = Point(coef, 0.2, objective.size(coef) + 0.1)
    [at] = objective.at([here])
    step = 1e-6
    for j in range(4):
        move = np.eye(4)[j] * step
        ends = objective.at([here._replace(coef=coef + move), here._replace(coef=coef - move)])
        assert at.coef[j] == pytest.approx((ends[0].value - ends[1].value) / (2.0 * step), abs=2e-6)
    ends = objective.at([here._replace(intercept=0.2 + step), here._replace(intercept=0.2 - step)])
    assert at.intercept == pytest.approx((ends[0].value - ends[1].value) / (2.0 * step), abs=2e-6)
    ends = objective.at([here._replace(size=here.size + step), here._replace(size=here.size - step)])
    assert at.size == pytest.approx((ends[0].value - ends[1].value) / (2.0 * step), abs=2e-6)
    oracle.close()
