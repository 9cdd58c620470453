"""A risk on which package and referee disagree: the corners of the worst case decide."""

from __future__ import annotations

import numpy as np
from torture_parts import families  # noqa: F401  (they register themselves)
from torture_parts.boxrisk import BoxReferee
from torture_parts.cases import draw_case

from dualcore import Problem


def test_the_corners_give_what_the_package_states():
    """One feature, a piecewise linear loss: a row's best move ends where it began, at the wall, or at the kink.

    Far out on the open side a move earns and pays 1e18, and a referee that believed the difference had 3.281118698 for
    this model (`python benchmarks/torture.py --seed 50001 --small --family box --only 1784`).
    """
    case = draw_case(50001, 1784, small=True, family="box")
    problem = Problem(case.loss, **case.settings())
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
