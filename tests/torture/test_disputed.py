"""A risk on which package and referee disagree: the corners of the worst case decide."""

from __future__ import annotations

import numpy as np

from dualcore import Problem, certify, solve
from torture.parts.boxrisk import BoxReferee
from torture.parts.cases import draw_case


def test_the_corners_give_what_the_package_states():
    """One feature, a piecewise linear loss: a row's best move ends where it began, at the wall, or at the kink.

    Far out on the open side a move earns and pays 1e18, and a referee that believed the difference had 3.281118698 for
    this model (`python -m tests.torture --seed 50001 --small --family box --unpaired --only 1784`).
    """
    case = draw_case(50001, 1784, small=True, family="box", paired=False)
    problem = Problem(**case.settings())
    theta, b = 6409.163272944311, 163.3229176308282
    x, wall = np.asarray(case.X, dtype=float)[:, 0], float(np.ravel(problem.geometry.support.high)[0])
    assert np.isneginf(np.ravel(problem.geometry.support.low)[0])
    assert case.weights is None
    ends = np.stack([x, np.full_like(x, wall), np.minimum((case.y - b) / theta, wall)])
    price = float(problem.geometry.norm.weights[0])

    def objective(multiplier: float) -> float:
        earned = problem.loss.value(theta * ends + b - case.y) - multiplier * price * np.abs(ends - x)
        return problem.radius * multiplier + float(earned.max(axis=0).mean())

    least = problem.kappa(np.array([theta]))  # below it a row would run away where there is no wall
    corners = min(objective(multiplier) for multiplier in least * np.geomspace(1.0, 100.0, 2000))
    stated = problem.risk(np.array([theta]), b, case.X, case.y)
    assert abs(stated - corners) <= 1e-9 * corners
    referee = BoxReferee(case)
    assert abs(float(referee.risk(referee.point(np.array([theta]), b))) - corners) <= 1e-9 * corners


def test_coefficients_next_to_nothing_have_the_risk_of_none():
    """Walls divided by what such a feature yields overflow; the referee had no number for this model."""
    case = draw_case(60002, 70, family="box", paired=False)
    referee = BoxReferee(case)
    tiny = np.array([-4.6e-309, -6.8e-309, -4.7e-308, 3.7e-308])
    assert float(referee.risk(referee.point(tiny, 0.0))) == float(referee.risk(referee.point(0.0 * tiny, 0.0)))
    problem = Problem(**case.settings())
    assert problem.risk(tiny, 0.0, case.X, case.y) == problem.risk(0.0 * tiny, 0.0, case.X, case.y)


def test_flips_that_spend_nearly_all_of_the_budget_leave_a_bound_in_finite_time():
    """Rounding hid that a smaller move costs less, and `certify` took 1e-13 of it off, again and again."""
    case = draw_case(60002, 100, family="plain", paired=False)
    problem = Problem(**case.settings())
    found = solve(problem, case.X, case.y, case.weights)
    assert certify(problem, found, case.X, case.y, case.weights).relative_gap <= 1e-6
