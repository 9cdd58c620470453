"""The referee of boxes: its search for the best l2 move against dense grids, and risks that were once disputed."""

from functools import partial

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from torture.parts.boxpeaks import Road, best_keys, slopes
from torture.parts.boxrisk import BoxReferee, Way
from torture.parts.cases import ORDER_ONE, draw_case
from torture.parts.risks import LOSSES

PARAMETERS = {"huber": {"delta": 0.7}, "pinball": {"quantile": 0.3}, "epsilon_insensitive": {"epsilon": 0.2}}


def dense_best(way: Way, row: int, loss: object, lam: float) -> float:
    """The best of very many points between all limits, dense at either end of every part."""
    used = way.u > 0
    u, cap = way.u[used].astype(float), way.cap[row][used].astype(float)
    limits = np.unique(np.append(0.0, cap / u))
    near = np.append(0.0, np.logspace(-7, -1, 1000))
    share = np.unique(np.concatenate([near, np.linspace(0.1, 0.9, 3000), 1.0 - near]))
    key = (limits[:-1, None] + np.diff(limits)[:, None] * share).ravel()
    v = np.minimum(cap, key[:, None] * u)
    worth = loss(float(way.start[row]) + way.side * (v @ u)) - lam * np.sqrt((v * v).sum(axis=1))
    return float(worth.max())


@pytest.mark.parametrize("loss", ORDER_ONE)
def test_best_keys_against_a_dense_grid(loss: str) -> None:
    rng = np.random.default_rng(ORDER_ONE.index(loss))
    parameters = PARAMETERS.get(loss, {})
    value = partial(LOSSES[loss], **parameters)
    side = -1.0
    for m in (1, 2, 4):
        # Yields and room of very different sizes make long parts with narrow peaks.
        u, cap = 10.0 ** rng.uniform(-2, 0.5, m), 10.0 ** rng.uniform(-2, 1, (30, m))
        start, lam = rng.normal(scale=2.0, size=30), float(rng.uniform(0.05, 0.9) * np.linalg.norm(u))
        keys = np.sort(np.hstack([np.zeros((30, 1)), cap / u]), axis=1)
        road = Road(start, side, u, cap, value, partial(slopes, loss, **parameters))
        key = best_keys(road, keys, lam)
        v = np.minimum(cap, key[:, None] * u)
        worth = value(start + side * (v @ u)) - lam * np.sqrt((v * v).sum(axis=1))
        way = Way(start, side, u, cap, 0.0)
        grid = np.array([dense_best(way, row, value, lam) for row in range(30)])
        assert (worth >= grid - 1e-12).all()
        assert (worth <= grid + 1e-5).all()


def test_parts_that_are_flat_but_for_rounding_end_the_search() -> None:
    """A feature without a limit, where every unit costs what it earns, in margins of 1e9: nothing there to be found."""
    looked = 0

    def value(t: np.ndarray) -> np.ndarray:
        nonlocal looked
        looked += np.size(t)
        return LOSSES["logistic"](t)

    start, u = np.array([8.07418048e9, 3.35436678e7, 3.09402649e8]), np.array([5.07993408e9])
    keys = np.tile(np.append(0.0, 10.0 ** np.linspace(-3, 7, 120)), (3, 1))
    road = Road(start, -1.0, u, np.full((3, 1), np.inf), value, partial(slopes, "logistic"))
    best_keys(road, keys, float(u[0]))
    assert looked < 20_000


@pytest.mark.parametrize(
    ("seed", "number", "small", "coef", "shift", "radius"),
    [
        # Peaks between all points of a grid made the risk of these two too small, by 2.4e-5 and 1.8e-6.
        (2029, 789, True, [0.0, -0.327965735, -0.13726213], 0.17348841539, 0.841696184235955),
        (2029, 1744, True, [-0.66242013, 0.12021999, -0.40958243], -0.51694098763, 0.11100875336003244),
        # Far out on an open side a move earns and pays 1e18: a referee that believed the difference had 3.281118698.
        (50001, 1784, True, [6409.163272944311], 163.3229176308282, None),
        # Limits divided by what such features yield overflow; the referee had no number.
        (60002, 70, False, [-4.6e-309, -6.8e-309, -4.7e-308, 3.7e-308], 0.0, None),
    ],
)
def test_risks_that_were_once_disputed(seed, number, small, coef, shift, radius) -> None:
    case = draw_case(seed, number, small=small, family="box", paired=False)
    if radius is not None:  # as they were drawn when the peaks were missed
        case.radius, case.label_cost = radius, np.inf
    problem, referee = Problem(**case.settings()), BoxReferee(case)
    intercept = shift if radius is None else shift + referee.y_centre - float(referee.centre @ coef)  # was centred
    found = problem.risk(np.array(coef), intercept, case.X, case.y, case.weights)
    assert float(referee.risk(referee.point(coef, intercept))) == pytest.approx(found, rel=1e-8)


def test_flips_that_spend_nearly_all_of_the_budget_leave_a_bound_in_finite_time():
    """Rounding hid that a smaller move costs less, and `certify` took 1e-13 of it off, again and again."""
    case = draw_case(60002, 100, family="plain", paired=False)
    problem = Problem(**case.settings())
    found = solve(problem, case.X, case.y, case.weights)
    assert certify(problem, found, case.X, case.y, case.weights).relative_gap <= 1e-6
