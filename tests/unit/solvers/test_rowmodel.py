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


@pytest.mark.parametrize(("loss", "more"), CASES)
def test_a_direction_solves_the_linearised_rows(loss, more):
    """Slacks follow the heights, multipliers keep their sum, and products meet their target to first order."""
    rng = np.random.default_rng(1)
    rows = state(Problem(loss, radius=0.1, **more), rng.normal(size=20))
    residual, dz, dlam, target = rows.residual(0.7), rng.normal(size=20), 0.3, 0.05
    step = rows.respond(residual, target, None)
    dt, (ds, dp) = rows.height_step(step, dz, dlam), rows.finish(step, residual, dz, dlam)
    now = rows.pieces(rows.z)
    moved = np.stack([piece.slope * dz - piece.price * dlam for piece in now])
    np.testing.assert_allclose(ds, dt - moved - residual, atol=1e-12)
    np.testing.assert_allclose((rows.p + dp).sum(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(rows.p * rows.s + rows.p * ds + rows.s * dp, target, atol=1e-12)
    slopes = sum(share * piece.slope for share, piece in zip(dp, now, strict=True))
    np.testing.assert_allclose(rows.combine(dp), slopes, atol=1e-14)
