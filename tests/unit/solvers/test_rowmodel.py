"""Rows of the interior point: what is kept between directions belongs to one point."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers.rowmodel import Pieces, RowState

CASES = [("hinge", {}), ("hinge", {"label_cost": 1.0}), ("logistic", {"label_cost": 1.0}), ("pinball", {})]


def state(problem: Problem, z: np.ndarray) -> RowState:
    rows = RowState(Pieces(problem), np.full(z.size, 1.0 / z.size), z)
    rows.start_above(0.7, 1.3)
    return rows


@pytest.mark.parametrize(("loss", "more"), CASES)
def test_a_step_forgets_what_was_computed_before_it(loss, more):
    rng = np.random.default_rng(0)
    problem = Problem(loss, radius=0.1, **more)
    rows = state(problem, rng.normal(size=20))
    rows.curvature()
    step = rng.normal(size=20), 0.1 * rng.random(rows.s.shape), 0.1 * rng.random(rows.p.shape)
    rows.advance(rows.respond(None, 0.05, None), *step, 0.2, (1.0, 1.0))
    fresh = state(problem, rows.z)
    fresh.t, fresh.s, fresh.p = rows.t, rows.s.copy(), rows.p.copy()
    residual = rows.residual(0.7)
    one, other = (each.respond(residual, 0.05, None) for each in (rows, fresh))
    np.testing.assert_array_equal(one.p, other.p)
    dz = rng.normal(size=20)
    for mine, theirs in zip(rows.finish(one, residual, dz, 0.2), fresh.finish(other, residual, dz, 0.2), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (rows.curvature().zz == fresh.curvature().zz).all()
