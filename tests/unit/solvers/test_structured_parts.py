"""The parts of the structured solver: rows, norm cones, Newton systems."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers import design as design_module
from dualcore.solvers.design import Design
from dualcore.solvers.factor import DampedFactor
from dualcore.solvers.interior import InteriorPoint
from dualcore.solvers.rowmodel import Pieces, RowState
from dualcore.solvers.structured import StructuredSolver
from own_losses import LogCosh, Probit
from pairs import every_value
from solver_cases import FIRST_ORDER, sample

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


def row_state(problem: Problem, n: int = 7) -> tuple[RowState, float]:
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.5, size=n)
    state = RowState(Pieces(problem), weights / weights.sum(), rng.normal(size=n))
    state.start_above(0.8, 1.0)
    state.s = rng.uniform(0.5, 2.0, size=state.s.shape)
    state.p = rng.uniform(0.2, 1.0, size=state.p.shape)
    return state, 0.8


@pytest.mark.parametrize(
    "problem",
    [
        Problem("hinge", radius=0.1),
        Problem("hinge", radius=0.1, label_cost=0.7),
        Problem("logistic", radius=0.1, label_cost=0.7),
        Problem("epsilon_insensitive", radius=0.1),
        Problem("pinball", radius=0.1, quantile=0.2),
        Problem(Probit(), radius=0.1, label_cost=0.7),
    ],
    ids=repr,
)
def test_eliminating_a_row_solves_its_equations(problem):
    """The closed form against what it solves: shares sum to one, slacks fit, products meet the target."""
    rows, lam = row_state(problem)
    residual = rows.residual(lam)
    rng = np.random.default_rng(2)
    target = rng.uniform(0.1, 0.5, size=rows.s.shape)
    dz, dlam = rng.normal(size=rows.z.size), 0.3
    answer = rows.respond(residual, target, None)
    dt, (ds, dp) = rows.height_step(answer, dz, dlam), rows.finish(answer, residual, dz, dlam)
    now = rows.pieces(rows.z)
    slopes = np.stack([piece.slope for piece in now])
    prices = np.array([piece.price for piece in now])[:, None]
    np.testing.assert_allclose((rows.p + dp).sum(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(ds, dt - (slopes * dz - prices * dlam) - residual, atol=1e-12)
    np.testing.assert_allclose(rows.p * rows.s + rows.p * ds + rows.s * dp, target, atol=1e-12)
    # What is left of the row in the Newton system: its slope changes by a constant, zz times dz and z_lam times dlam.
    curvature = rows.curvature()
    smooth = rows.pieces.loss.curvature(rows.z) if rows.pieces.smooth else 0.0
    curved = sum(0.0 if piece.curvature is None else p * piece.curvature for p, piece in zip(rows.p, now, strict=True))
    changed = rows.combine(dp) + (smooth + curved) * dz
    crossed = 0.0 if curvature.z_lam is None else curvature.z_lam * dlam
    np.testing.assert_allclose(changed, answer.slope + curvature.zz * dz + crossed, atol=1e-12)


def test_rows_without_weight_are_dropped_and_come_back_as_zeros():
    problem = Problem("hinge", radius=0.1, label_cost=1.0)
    X, y = sample(problem, n=12)
    weights = np.ones(12)
    weights[[2, 5]] = 0.0
    data = problem.validate(X, y, weights)
    design = Design(problem, data)
    assert design.rows.n == 10
    raw = StructuredSolver().run(problem, data, tol=1e-6, max_iter=100, start=None)
    assert raw.dual.stay.shape == (12,)
    np.testing.assert_array_equal(raw.dual.stay[[2, 5]], 0.0)


@pytest.mark.parametrize("copied", [True, False])
def test_the_design_scales_columns_to_one_and_changes_no_product(copied, monkeypatch):
    if not copied:
        monkeypatch.setattr(design_module, "_COPIED_NUMBERS", 0)
    monkeypatch.setattr(design_module, "_BLOCK_NUMBERS", 8)
    problem = Problem("hinge", radius=0.1)
    X, y = sample(problem)
    X[:, 1] = 0.0
    data = problem.validate(X, y, np.linspace(1.0, 2.0, len(y)))
    design, w = Design(problem, data), data.masses
    rng = np.random.default_rng(3)
    coef, slope = rng.normal(size=4), rng.normal(size=len(y))
    scaled = X / design.scales
    np.testing.assert_allclose(np.sqrt(w @ scaled**2), [1.0, 0.0, 1.0, 1.0], atol=1e-12)
    A = y[:, None] * np.column_stack([scaled, np.ones(len(y))])
    np.testing.assert_allclose(design.signal(np.append(coef, 0.3)), A @ np.append(coef, 0.3), atol=1e-12)
    np.testing.assert_allclose(design.adjoint(slope), A.T @ (w * slope), atol=1e-12)
    gram = A.T @ np.diag(w * slope**2) @ A
    np.testing.assert_allclose(design.gram(slope**2), gram, atol=1e-12)


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


@pytest.mark.parametrize("norm", ["l1", "linf"])
@pytest.mark.parametrize(("loss", "label_cost"), [("hinge", np.inf), ("logistic", 0.5), ("hinge", 0.5)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_eliminating_features_gives_the_step_of_the_whole_newton_matrix(norm, loss, label_cost, fit_intercept):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 20)), np.repeat([1.0, -1.0], 3)
    problem = Problem(loss, radius=0.1, norm=norm, label_cost=label_cost, fit_intercept=fit_intercept)
    engine = InteriorPoint(problem, problem.validate(X, y))
    assert engine.few is not None
    engine.cone.scale()
    curvature, right = engine.rows.curvature(), rng.normal(size=engine.cone.dimension)
    right[engine.m] *= fit_intercept
    thin = engine._system(curvature).solve(right)
    engine.few = None
    np.testing.assert_allclose(thin, engine._system(curvature).solve(right), rtol=1e-6, atol=1e-9)
