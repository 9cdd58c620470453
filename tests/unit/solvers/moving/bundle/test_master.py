"""The master programme against CVXPY, and what its multipliers promise."""

import cvxpy as cp
import numpy as np
import pytest

from dualcore.problem.losses import Logistic, MarginLoss, SmoothHinge
from dualcore.solvers.moving.bundle.caps import LengthCaps, LinearCaps
from dualcore.solvers.moving.bundle.cuts import CurveStore, PlaneStore
from dualcore.solvers.moving.bundle.master import MOST_STEPS, Found, Master, _Weighted
from pairs import every_value


def draw(seed: int, d: int = 3, groups: int = 4, each: int = 6) -> tuple[PlaneStore, np.ndarray]:
    """Planes that bound their groups from below in every direction, and a cost."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(groups), each)
    planes = PlaneStore(rng.normal(size=(owner.size, d)), rng.normal(size=owner.size), owner, groups)
    return planes, 0.1 * rng.normal(size=d)


def reference(
    planes: PlaneStore, cost: np.ndarray, curve: np.ndarray, low: np.ndarray, high: np.ndarray, caps: object = None
) -> float:
    x, shares = cp.Variable(cost.size), cp.Variable(planes.n_groups)
    rules = [planes.rows @ x + planes.offsets <= shares[planes.owner], x >= low, x <= high]
    if isinstance(caps, LinearCaps):
        rules.append(caps.rows @ x <= 0)
    elif isinstance(caps, LengthCaps):
        for up, down, by in zip(caps.up, caps.down, np.atleast_2d(caps.multiplier), strict=True):
            part = cp.multiply(up, cp.pos(x)) + cp.multiply(down, cp.neg(x))
            rules.append(cp.norm(part) + by @ x <= 0)
    goal = cost @ x + 0.5 * cp.sum(cp.multiply(curve, x**2)) + cp.sum(shares)
    return float(cp.Problem(cp.Minimize(goal), rules).solve(solver=cp.CLARABEL))


def solved(
    planes: PlaneStore, cost: np.ndarray, curve: np.ndarray, size: float, caps: object, firm: bool = False
) -> Found:
    d = cost.size
    low, high = np.full(d, 0.0 if firm else -size), np.full(d, size)
    master = Master(planes, cost, curve, low, high, caps, np.full(d, firm))
    return master.solve(np.zeros(d), gap=10.0, target=1e-9)


NO_CAPS = LinearCaps(np.empty((0, 3)))


@every_value(seed=range(5), ridge=[0.0, 0.7])
def test_value_is_that_of_cvxpy(seed: int, ridge: float) -> None:
    planes, cost = draw(seed)
    curve = np.full(3, ridge)
    found = solved(planes, cost, curve, 50.0, NO_CAPS)
    assert found.steps < MOST_STEPS
    assert found.value == pytest.approx(reference(planes, cost, curve, -50.0, 50.0), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_firm_walls_and_linear_caps(seed: int) -> None:
    planes, cost = draw(seed)
    caps = LinearCaps(np.array([[1.0, 0.5, -1.0], [-0.2, 1.0, -1.0]]))
    found = solved(planes, cost, np.zeros(3), 20.0, caps, firm=True)
    assert found.value == pytest.approx(reference(planes, cost, np.zeros(3), 0.0, 20.0, caps), abs=1e-6)
    assert (found.x >= 0.0).all()
    assert (caps.at(found.x)[0] <= 1e-7).all()


@pytest.mark.parametrize("seed", range(3))
def test_caps_on_a_length(seed: int) -> None:
    planes, cost = draw(seed)
    caps = LengthCaps(np.array([[1.0, 0.0, 0.0]]), np.array([[2.0, 1.0, 0.0]]), np.array([0.0, 0.0, -1.0]), 1e-9)
    found = solved(planes, cost, np.zeros(3), 20.0, caps)
    assert found.value == pytest.approx(reference(planes, cost, np.zeros(3), -20.0, 20.0, caps), abs=1e-5)


@pytest.mark.parametrize("target", [1.0, 1e-2, 1e-8])
def test_multipliers_bound_the_programme_however_rough(target: float) -> None:
    """``mix`` sums to one in each group, and half of ``gap`` is what its bound lacks where nothing is left over."""
    planes, cost = draw(1)
    master = Master(planes, cost, np.zeros(3), np.full(3, -50.0), np.full(3, 50.0), NO_CAPS, np.zeros(3, dtype=bool))
    found = master.solve(np.zeros(3), gap=10.0, target=target)
    np.testing.assert_allclose(np.bincount(planes.owner, found.mix), 1.0, atol=1e-12)
    assert (found.mix >= 0.0).all()
    np.testing.assert_allclose(cost + found.mix @ planes.rows, found.left, atol=1e-12)
    bound = float(found.mix @ planes.offsets) - float(np.abs(found.left).sum()) * 50.0
    least = reference(planes, cost, np.zeros(3), -50.0, 50.0)
    assert bound <= least + 1e-7
    assert float(found.mix @ planes.offsets) + found.left @ found.x == pytest.approx(
        found.value - 0.5 * found.gap, abs=1e-9
    )


@pytest.mark.parametrize("seed", range(4))
def test_spans_hold_every_point_below_a_level(seed: int) -> None:
    planes, cost = draw(seed)
    found = solved(planes, cost, np.zeros(3), 50.0, NO_CAPS)
    rng = np.random.default_rng(seed)
    points = found.x + rng.normal(size=(4000, 3)) * 10.0 ** rng.uniform(-3, 1, (4000, 1))
    heights = points @ planes.rows.T + planes.offsets
    shares = np.stack([heights[:, planes.owner == g].max(axis=1) for g in range(planes.n_groups)], axis=1)
    values = points @ cost + shares.sum(axis=1)
    away = np.abs(points - found.x)
    over = values - found.value + found.gap + away @ np.abs(found.left)
    assert (away <= over[:, None] * found.spans + away @ np.abs(found.stray).T + 1e-9).all()


def test_a_bend_draws_the_point_and_is_no_part_of_the_value() -> None:
    planes, cost = draw(2)
    low, high = np.full(3, -50.0), np.full(3, 50.0)
    bend = (1e3 * np.eye(3), np.array([1.0, -2.0, 0.5]))
    master = Master(planes, cost, np.zeros(3), low, high, NO_CAPS, np.zeros(3, dtype=bool), bend)
    found = master.solve(np.zeros(3), gap=10.0, target=1e-8)
    np.testing.assert_allclose(found.x, bend[1], atol=0.05)
    heights = planes.rows @ found.x + planes.offsets
    tops = sum(heights[planes.owner == g].max() for g in range(planes.n_groups))
    assert found.value == pytest.approx(cost @ found.x + tops, abs=1e-9)


@every_value(loss=[Logistic(), SmoothHinge()], seed=range(3))
def test_curves_reach_the_value_of_cvxpy(loss: MarginLoss, seed: int) -> None:
    """Two moves of every row, each at its cost: the programme with the losses as they are, not as planes."""
    rng = np.random.default_rng(seed)
    rows, d = 25, 4
    owner = np.tile(np.arange(rows), 2)
    gradients = np.column_stack([rng.normal(size=(2 * rows, d - 1)), np.zeros(2 * rows)])
    costs, masses = rng.uniform(0.1, 1.0, 2 * rows), np.tile(rng.dirichlet(np.ones(rows)), 2)
    curves = CurveStore(loss, gradients, np.zeros(2 * rows), costs, masses, np.ones(2 * rows), owner, rows, unit=2.0)
    cost, low, high = np.array([0.0, 0.0, 0.0, 0.2]), np.array([-9.0, -9.0, -9.0, 0.0]), np.full(d, 9.0)
    firm = np.array([False, False, False, True])
    found = Master(curves, cost, np.full(d, 0.01), low, high, LinearCaps(np.empty((0, d))), firm).solve(
        np.zeros(d), gap=1.0, target=1e-9
    )
    x, shares = cp.Variable(d), cp.Variable(rows)
    signal = gradients @ x
    if isinstance(loss, Logistic):
        value = cp.logistic(-signal)
    else:
        value = 0.5 * cp.huber(cp.pos(1 - signal), 1)
    rules = [cp.multiply(masses, value - costs * x[3] / 2.0) <= shares[owner], x >= low, x <= high]
    goal = cp.Minimize(cost @ x + 0.005 * cp.sum_squares(x) + cp.sum(shares))
    best = float(cp.Problem(goal, rules).solve(solver=cp.CLARABEL))
    assert found.steps < MOST_STEPS
    assert found.value == pytest.approx(best, abs=1e-7)
    # The multipliers of the tangents at the solution bound the programme from below.
    planes = curves.tangents(found.x)
    slope = found.mix @ planes.rows + cost
    at = np.clip(-slope / 0.01, low, high)
    lower = found.mix @ planes.offsets + float(slope @ at + 0.005 * (at @ at))
    assert best - 1e-6 <= lower <= best + 1e-9


def test_a_tangent_touches_its_curve_from_below() -> None:
    rng = np.random.default_rng(0)
    gradients = np.column_stack([rng.normal(size=(6, 2)), np.zeros(6)])
    offsets, costs, masses = rng.normal(size=6), rng.uniform(size=6), rng.uniform(size=6)
    curves = CurveStore(Logistic(), gradients, offsets, costs, masses, np.ones(6), np.arange(6), 6, unit=3.0)
    x = np.array([0.3, -1.0, 0.7])
    planes = curves.tangents(x)
    np.testing.assert_allclose(planes.rows @ x + planes.offsets, curves.heights(x), rtol=1e-13)
    np.testing.assert_allclose(planes.rows, curves.at(x)[1], rtol=1e-13)
    for _ in range(50):
        other = rng.normal(scale=3.0, size=3)
        assert (planes.rows @ other + planes.offsets <= curves.heights(other) + 1e-12).all()
        for free in (np.array([0, 2]), np.array([0, 1])):  # the multiplier free, and held
            near = curves.near(other, free)
            np.testing.assert_allclose(near.heights(other[free]), curves.heights(other), rtol=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 1e-20])
def test_least_changes_balance_whatever_the_spread_of_the_weights(ratio: float) -> None:
    """``A' c = b`` to the last digits, and ``c`` is the one of least ``sum c^2 / D``."""
    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(12, 4)), rng.normal(size=(4, 2))
    D = np.where(np.arange(12) < 3, 1.0, ratio)  # three strong constraints do not span four directions
    c = _Weighted(A, D).solve(b)
    np.testing.assert_allclose(A.T @ c, b, atol=1e-13)
    free = np.linalg.svd(A.T)[2][4:].T  # changes that leave the balance alone
    np.testing.assert_allclose(free.T @ (c / D[:, None]), 0.0, atol=1e-9 * np.abs(c / D[:, None]).max())


def test_a_firm_wall_takes_the_slope_that_is_positive() -> None:
    """What is left has no positive part where a lower wall counts: there the wall itself holds it."""
    for seed in range(3):
        planes, cost = draw(seed)
        found = solved(planes, cost + 1.0, np.zeros(3), 20.0, NO_CAPS, firm=True)
        assert (found.left <= 1e-15).all()
        slope = cost + 1.0 + found.mix @ planes.rows
        bound = float(found.mix @ planes.offsets) + 20.0 * float(np.minimum(slope, 0.0).sum())
        least = reference(planes, cost + 1.0, np.zeros(3), 0.0, 20.0)
        assert least - 1e-6 <= bound <= least + 1e-7


def test_a_gap_below_rounding_leaves_slack() -> None:
    planes, cost = draw(0)
    start, walls = np.full(3, 0.25), np.full(3, 10.0)
    state = Master(planes, cost, np.zeros(3), -walls, walls, NO_CAPS, np.full(3, False))._begin(start, 1e-18)
    assert (state.slack > 0.0).all()
    assert np.isfinite(state.mult).all()
