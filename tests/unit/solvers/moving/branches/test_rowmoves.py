"""Moves within walls: the best ones, and how they follow the model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dualcore.solvers.moving.branches.rowmoves import L2Moves, LinfMoves


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


def test_rows_that_do_not_pay_go_to_their_first_wall():
    moves = L2Moves(np.array([1.0, 2.0]), np.array([[0.3, 0.2], [0.0, 0.5], [0.0, 0.0]]), 10.0)
    found = moves.respond(np.ones(3), np.arange(3), np.zeros(3), at_limits=True)
    np.testing.assert_allclose(found.move, [[0.1, 0.2], [0.0, 0.5], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(moves.respond(np.ones(3), np.arange(3), np.zeros(3)).move, np.zeros((3, 2)))


def test_moves_of_l2_follow_the_model():
    rng = np.random.default_rng(3)
    sizes, lam, a, one = rng.random(4) + 0.5, 0.6, np.array([0.8]), np.arange(1)
    caps = np.array([[0.1, 0.4, 0.0, 0.3]])

    def move(sizes, lam):
        return L2Moves(sizes, caps, lam).respond(a, one, np.zeros(1))

    here, moves, step = move(sizes, lam), L2Moves(sizes, caps, lam), 1e-3
    follow = moves.follow(a, here, one)
    for _ in range(3):
        change = rng.normal(size=4)
        ahead, behind = move(sizes + step * change, lam), move(sizes - step * change, lam)
        c = a[0] * change
        expected = follow.single[0] * c + follow.weight[0] * follow.together[0] * (follow.together[0] @ c)
        np.testing.assert_allclose((ahead.move - behind.move)[0] / (2.0 * step), expected, atol=5e-3)
    ahead, behind = move(sizes, lam + step), move(sizes, lam - step)
    expected = -follow.single[0] * follow.shift[0] - follow.weight[0] * follow.fixed[0] * follow.together[0]
    np.testing.assert_allclose((ahead.move - behind.move)[0] / (2.0 * step), expected, atol=5e-3)


def test_levels_are_the_walls_with_their_gains():
    rng = np.random.default_rng(0)
    caps = np.round(rng.random((5, 7)), 1)
    sizes = rng.random(7)
    step, gain = LinfMoves(sizes, caps, 0.5, 0.0).steps()
    for k, cap in enumerate(caps):
        known = step[k][~np.isnan(step[k])]
        np.testing.assert_allclose(known, np.unique(np.append(0.0, cap)))
        np.testing.assert_allclose(gain[k][~np.isnan(step[k])], np.minimum.outer(known, cap) @ sizes)


def test_rounded_edges_are_never_higher_and_moves_never_longer():
    rng = np.random.default_rng(1)
    caps, sizes = rng.random((5, 7)), np.append(rng.random(6), 0.0)
    moves = LinfMoves(sizes, caps, 0.5, 0.1)
    step, gain = moves.steps()
    rows = np.arange(5)
    found = moves.up_to(step[:, -1], gain[:, -1], rows)
    assert (found.move <= caps).all()
    assert (found.move <= step[:, -1:]).all()
    assert (found.move[:, -1] == 0.0).all()
    assert (gain[:, -1] <= found.move @ sizes).all()
    assert (found.move @ sizes <= caps @ sizes).all()
