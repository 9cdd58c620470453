"""Moves within the limits of a box."""

import numpy as np

from dualcore.solvers.moving.branches.rowmoves import L2Moves


def test_a_coefficient_next_to_zero_has_numbers():
    moves, every = L2Moves(np.array([1e-60]), np.array([[0.5], [1.0]]), 1e-61), np.arange(2)
    found = moves.respond(np.ones(2), every, np.zeros(2))
    np.testing.assert_allclose(found.move, [[0.5], [1.0]])
    follow = moves.follow(np.ones(2), found, every)
    assert all(np.isfinite(part).all() for part in follow)
