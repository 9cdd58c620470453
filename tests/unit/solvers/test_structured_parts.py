"""The parts of the structured solver: rows, norm cones, Newton systems."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers.factor import DampedFactor
from dualcore.solvers.rowmodel import Pieces
from own_losses import LogCosh, Probit
from pairs import every_value
from solver_cases import FIRST_ORDER

# The rows


@every_value(loss=[*FIRST_ORDER, Probit(), LogCosh()], label_cost=[0.7, np.inf])
def test_the_pieces_of_a_row_make_its_dual_loss(loss, label_cost):
    """Smooth part plus highest piece is ``h``; a Moreau envelope is a polyhedral function plus a square, minimised."""
    problem = Problem(loss, radius=0.1, label_cost=label_cost)
    pieces, t, multiplier = Pieces(problem), np.linspace(-6.0, 6.0, 1201), 1.3
    total = problem.loss.value(t) if pieces.smooth else np.zeros_like(t)
    if not problem.is_classification:
        multiplier = max(multiplier, problem.kappa(np.zeros(1)))
    if pieces.envelope:
        v = np.linspace(-2.0, 2.0, 401)  # the best v is on this grid wherever t is
        shifted = (t[:, None] - v[None, :]).ravel()
        heights = np.max([piece.value for piece in pieces(shifted)], axis=0).reshape(t.size, v.size)
        total = (heights + 0.5 * v**2).min(axis=1)
    elif now := pieces(t):
        total = total + np.max([piece.value - piece.price * multiplier for piece in now], axis=0)
    np.testing.assert_allclose(total, problem.form.h(t, multiplier, 0.0), atol=1e-12)


# Newton systems


@pytest.mark.parametrize("seed", range(5))
def test_a_badly_scaled_system_is_solved_to_rounding(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(30, 8)) * 10.0 ** rng.uniform(-6.0, 6.0, size=8)
    matrix = A.T @ A
    truth = rng.normal(size=8) / np.sqrt(np.diag(matrix))
    found = DampedFactor(matrix).solve(matrix @ truth)
    np.testing.assert_allclose(found * np.sqrt(np.diag(matrix)), truth * np.sqrt(np.diag(matrix)), rtol=1e-6, atol=1e-8)


def test_a_singular_system_is_solved_where_it_has_a_solution():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 6))
    matrix = A.T @ A
    right = matrix @ rng.normal(size=6)
    found = DampedFactor(matrix).solve(right)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(matrix @ found, right, atol=1e-6)


def test_a_matrix_of_zeros_gives_finite_steps():
    assert np.isfinite(DampedFactor(np.zeros((3, 3))).solve(np.ones(3))).all()
