"""The referee's search for the best l2 move, against dense grids."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from torture.parts.boxpeaks import SLOPES, Road, best_keys
from torture.parts.boxrisk import BoxReferee, Table, Way
from torture.parts.cases import draw_case
from torture.parts.exact import Long
from torture.parts.risks import LOSSES

PARAMETERS = {"huber": {"delta": 0.7}, "pinball": {"quantile": 0.3}, "epsilon_insensitive": {"epsilon": 0.2}}


def dense_best(way: Way, row: int, loss: object, lam: float) -> float:
    """The best of very many places between all walls, crowded at either end of every part."""
    used = way.u > 0
    u, cap = way.u[used].astype(float), way.cap[row][used].astype(float)
    walls = np.unique(np.append(0.0, cap / u))
    near = np.append(0.0, np.logspace(-7, -1, 1000))
    share = np.unique(np.concatenate([near, np.linspace(0.1, 0.9, 3000), 1.0 - near]))
    key = (walls[:-1, None] + np.diff(walls)[:, None] * share).ravel()
    v = np.minimum(cap, key[:, None] * u)
    worth = loss(float(way.start[row]) + way.side * (v @ u)) - lam * np.sqrt((v * v).sum(axis=1))
    return float(worth.max())


@pytest.mark.parametrize(
    ("number", "radius", "theta", "shift"),
    [
        (789, 0.841696184235955, [0.0, -0.327965735, -0.13726213], 0.17348841539),
        (1744, 0.11100875336003244, [-0.66242013, 0.12021999, -0.40958243], -0.51694098763),
    ],
)
def test_no_narrow_peak_is_missed(number: int, radius: float, theta: list[float], shift: float) -> None:
    """Peaks between all points of a grid made the risk of these models too small, by 2.4e-5 and 1.8e-6."""
    case = draw_case(2029, number, small=True, family="box", paired=False)
    case.radius, case.label_cost = radius, np.inf  # as they were drawn when the peaks were missed
    referee = BoxReferee(case)
    point = referee.centred(np.array(theta, dtype=Long), shift)

    def brute(lam: float) -> float:
        total = case.radius * lam
        for rows, way in referee.ways(point):
            each = [dense_best(way, row, referee.loss, lam) for row in range(way.start.size)]
            total += float(referee.w[rows] @ np.array(each))
        return total

    lam = minimize_scalar(brute, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-7}).x
    assert float(referee.risk(point)) == pytest.approx(brute(lam), abs=2e-8)


@pytest.mark.parametrize("loss", SLOPES)
def test_best_keys_against_a_dense_grid(loss: str) -> None:
    rng = np.random.default_rng(list(SLOPES).index(loss))
    parameters = PARAMETERS.get(loss, {})
    value = partial(LOSSES[loss], **parameters)
    side = -1.0
    for m in (1, 2, 4):
        # Yields and room of very different sizes make long parts with narrow peaks.
        u, cap = 10.0 ** rng.uniform(-2, 0.5, m), 10.0 ** rng.uniform(-2, 1, (30, m))
        start, lam = rng.normal(scale=2.0, size=30), float(rng.uniform(0.05, 0.9) * np.linalg.norm(u))
        keys = np.sort(np.hstack([np.zeros((30, 1)), cap / u]), axis=1)
        road = Road(start, side, u, cap, value, partial(SLOPES[loss], **parameters))
        key = best_keys(road, keys, lam)
        v = np.minimum(cap, key[:, None] * u)
        worth = value(start + side * (v @ u)) - lam * np.sqrt((v * v).sum(axis=1))
        way = Way(start, side, u, cap, 0.0)
        grid = np.array([dense_best(way, row, value, lam) for row in range(30)])
        assert (worth >= grid - 1e-12).all()
        assert (worth <= grid + 1e-5).all()


@pytest.mark.parametrize("loss", SLOPES)
def test_slopes_are_those_of_the_losses(loss: str) -> None:
    parameters = PARAMETERS.get(loss, {})
    t = np.concatenate([np.linspace(-3.0, 3.0, 301), [0.2, -0.2, 0.7, 1.0]])
    left, right = SLOPES[loss](t, **parameters)
    here, step = LOSSES[loss](t.astype(Long), **parameters), Long(1e-7)
    for slope, to in ((left, -step), (right, step)):
        there = LOSSES[loss](t.astype(Long) + to, **parameters)
        # A corner that a grid point misses by rounding has either slope.
        near = np.abs(slope.astype(Long) - (there - here) / to) < 1e-6
        assert near.sum() >= t.size - 3
    assert (left <= right).all()


def test_beyond_the_last_wall_the_line_of_the_loss_decides() -> None:
    """Far out, where a unit costs hardly more than it earns, the closed form is the supremum over the path."""
    case = draw_case(2029, 1744, small=True, family="box", paired=False)
    low, high = case.support
    case = type(case)(**{**vars(case), "support": (np.append(-np.inf, low[1:]), np.append(np.inf, high[1:]))})
    referee = BoxReferee(case)
    point = referee.centred(np.array([-0.6, 0.2, -0.4], dtype=Long), -0.5)
    table = Table(referee, referee.ways(point))
    for (_, way), lam in zip(table.ways, (0.6001, 0.62), strict=False):
        worth, cost = table._far(way, Long(lam))
        key = np.logspace(-3, 5, 400_001)
        for row in range(way.start.size):
            v = np.minimum(way.cap[row].astype(float), key[:, None] * way.u.astype(float))
            gain, length = v @ way.u.astype(float), np.sqrt((v * v).sum(axis=1))
            earned = referee.loss(float(way.start[row]) - gain) - lam * length
            if np.isfinite(worth[row]):
                assert worth[row] <= earned.max() + 1e-8
                at = np.argmin(np.abs(length - float(cost[row])))
                assert float(worth[row]) <= earned[at] + 1e-5


def test_parts_that_are_flat_but_for_rounding_end_the_search() -> None:
    """A feature without a wall, where every unit costs what it earns, in margins of 1e9: nothing there to be found."""
    looked = 0

    def value(t: np.ndarray) -> np.ndarray:
        nonlocal looked
        looked += np.size(t)
        return LOSSES["logistic"](t)

    start, u = np.array([8.07418048e9, 3.35436678e7, 3.09402649e8]), np.array([5.07993408e9])
    keys = np.tile(np.append(0.0, 10.0 ** np.linspace(-3, 7, 120)), (3, 1))
    road = Road(start, -1.0, u, np.full((3, 1), np.inf), value, SLOPES["logistic"])
    best_keys(road, keys, float(u[0]))
    assert looked < 20_000
