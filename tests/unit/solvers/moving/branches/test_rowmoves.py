"""Moves within walls: the best ones, and how they follow the model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dualcore.solvers.moving.branches.rowmoves import L2Moves


@pytest.mark.parametrize("seed", range(5))
def test_moves_of_l2_are_the_best_ones(seed):
    rng = np.random.default_rng(seed)
    caps = rng.random((6, 4)) * (rng.random((6, 4)) < 0.8)
    sizes, slope, lam = rng.random(4) + 0.1, rng.random(6) + 0.2, 0.3
    moves, every = L2Moves(sizes, caps, lam), np.arange(6)
    found = moves.respond(slope, every, np.zeros(6))

    def lost(v, a):
        return lam * np.linalg.norm(v) - a * sizes @ v

    for cap, a, move in zip(caps, slope, found.move, strict=True):
        known = min(minimize(lost, share * cap, (a,), bounds=[(0.0, c) for c in cap]).fun for share in (1.0, 0.5, 1e-3))
        assert lost(move, a) <= min(known, 0.0) + 1e-7
    np.testing.assert_allclose(found.cost, np.linalg.norm(found.move, axis=1))
    np.testing.assert_allclose(found.gain, found.move @ sizes)
    assert (found.move <= caps).all()
    near = moves.respond(slope, every, 1.5 * found.position)
    np.testing.assert_allclose(near.move, found.move, atol=1e-4)


@pytest.mark.parametrize("unit", [1e-14, 1e14])
def test_moves_of_l2_are_the_same_in_any_unit(unit):
    rng = np.random.default_rng(0)
    caps, sizes, slope, every = rng.random((6, 4)), rng.random(4), rng.random(6) + 0.5, np.arange(6)
    here, there = L2Moves(sizes, caps, 0.4), L2Moves(sizes / unit, caps * unit, 0.4 / unit)
    found, moved = (moves.respond(slope, every, np.zeros(6)) for moves in (here, there))
    assert found.gain.any()
    np.testing.assert_allclose(moved.move, unit * found.move, rtol=1e-4)
    np.testing.assert_allclose(there.growth(slope, moved, every), here.growth(slope, found, every), rtol=1e-3)


def test_a_coefficient_next_to_zero_has_numbers():
    moves, every = L2Moves(np.array([1e-60]), np.array([[0.5], [1.0]]), 1e-61), np.arange(2)
    found = moves.respond(np.ones(2), every, np.zeros(2))
    np.testing.assert_allclose(found.move, [[0.5], [1.0]])
    follow = moves.follow(np.ones(2), found, every)
    assert all(np.isfinite(part).all() for part in follow)
