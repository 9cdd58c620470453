"""The parts of the structured solver: rows, norm cones, Newton systems."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers import design as design_module
from dualcore.solvers.barrier import NormCone, norm_cone
from dualcore.solvers.design import Design
from dualcore.solvers.factor import DampedFactor
from dualcore.solvers.interior import InteriorPoint
from dualcore.solvers.newtonsystem import ThinNewton
from dualcore.solvers.rowmodel import Pieces, RowState
from dualcore.solvers.structured import StructuredSolver
from own_losses import LogCosh, Probit
from pairs import every_value
from solver_cases import FIRST_ORDER, every_norm, sample

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


def test_products_far_from_their_target_are_corrected_and_others_left_alone():
    rows, _ = row_state(Problem("hinge", radius=0.1))
    rows.s, rows.p = np.ones_like(rows.s), np.full_like(rows.p, 0.5)
    still = np.zeros_like(rows.s)
    np.testing.assert_array_equal(rows.outliers(still, still, 1.0, 1.0, 0.5), still)
    assert (rows.outliers(still, still, 1.0, 1.0, 100.0) > 0.0).all()
    assert (rows.outliers(still, still, 1.0, 1.0, 1e-3) < 0.0).all()


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


# The norm cone


def cone_and_point(norm: str, classification: bool = True) -> tuple[NormCone, np.ndarray]:
    problem = (
        Problem("hinge", radius=0.2, norm=norm)
        if classification
        else Problem("huber", radius=0.2, norm=norm, label_cost=3.0)
    )
    cone = norm_cone(problem, np.array([1.0, 0.5, 4.0]))
    return cone, cone.start(np.array([0.3, -0.2, 0.1, 0.7, 0.0]), 0.5, problem.radius)


both_kinds = pytest.mark.parametrize("classification", [True, False])


@every_value(every_norm, both_kinds)
def test_the_start_is_interior_and_spends_the_radius(norm, classification):
    cone, x = cone_and_point(norm, classification)
    np.testing.assert_allclose(cone.s, cone.slack(x), atol=1e-12)
    assert min(cone.max_step(-cone.s, -cone.z)) == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_array_equal(x[:4], [0.3, -0.2, 0.1, 0.7])
    assert cone.adjoint(cone.z)[cone.m + 1] == pytest.approx(0.2, rel=1e-9)
    assert cone.gap() > 0.0


@every_norm
def test_the_slack_says_whether_the_norm_fits(norm):
    """Cone membership of the slack is ``Lip ||theta||_* <= lam``."""
    problem = Problem("hinge", radius=0.2, norm=norm)
    scales = np.array([1.0, 0.5, 4.0])
    cone, x = cone_and_point(norm)
    theta = x[:3] / scales
    for lam, fits in ((problem.size(theta) * 1.001, True), (problem.size(theta) * 0.999, False)):
        trial = x.copy()
        trial[4] = lam
        if norm == "linf":
            trial[5:] = np.abs(theta) * (1.0 + 1e-6)
        slack = cone.slack(trial)
        inside = slack[1] > np.linalg.norm(slack[2:]) if norm == "l2" else bool((slack > 0.0).all())
        assert bool(inside) is fits


@every_value(every_norm, both_kinds)
def test_the_slack_is_affine_and_push_and_pull_are_its_linear_part(norm, classification):
    cone, x = cone_and_point(norm, classification)
    rng = np.random.default_rng(4)
    dx, z = rng.normal(size=cone.dimension), rng.normal(size=cone.s.size)
    np.testing.assert_allclose(cone.slack(x + dx) - cone.slack(x), cone.product(dx), atol=1e-12)
    assert float(z @ cone.product(dx)) == pytest.approx(float(cone.adjoint(z) @ dx))


@every_value(every_norm, both_kinds)
def test_the_scaling_maps_slacks_to_multipliers(norm, classification):
    cone, _ = cone_and_point(norm, classification)
    rng = np.random.default_rng(5)
    cone.s = cone.s * rng.uniform(0.9, 1.1, size=cone.s.size)
    cone.z = cone.z * rng.uniform(0.9, 1.1, size=cone.z.size)
    cone.scale()
    np.testing.assert_allclose(cone.weigh(cone.s), cone.z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cone.target(0.0, None), -cone.z, rtol=1e-9, atol=1e-12)
    dx = rng.normal(size=cone.dimension)
    np.testing.assert_allclose(cone.hessian() @ dx, cone.adjoint(cone.weigh(cone.product(dx))), rtol=1e-9, atol=1e-12)


@every_norm
def test_the_longest_step_ends_on_the_boundary(norm):
    cone, _ = cone_and_point(norm)
    rng = np.random.default_rng(6)
    for _ in range(50):
        ds, dz = rng.normal(size=cone.s.size), rng.normal(size=cone.s.size)
        primal, dual = cone.max_step(ds, dz)
        for point, direction, step in ((cone.s, ds, primal), (cone.z, dz, dual)):
            if not np.isfinite(step):
                continue
            inner, outer = point + 0.999 * step * direction, point + 1.001 * step * direction
            if norm == "l2":
                assert inner[0] > 0.0
                assert inner[1] > np.linalg.norm(inner[2:])
                assert outer[0] < 0.0 or outer[1] < np.linalg.norm(outer[2:])
            else:
                assert (inner > 0.0).all()
                assert (outer < 0.0).any()


def test_radius_zero_needs_no_cone():
    cone = norm_cone(Problem("hinge"), np.ones(3))
    assert cone.degree == 0
    assert cone.gap() == 0.0
    assert cone.max_step(np.zeros(0), np.zeros(0)) == (np.inf, np.inf)


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


@pytest.mark.parametrize("seed", range(5))
def test_the_thin_system_is_the_dense_one(seed):
    rng = np.random.default_rng(seed)
    n, m, k = 6, 40, 2
    diagonal, rows, weights = rng.uniform(0.1, 10.0, size=m), rng.normal(size=(n, m)), rng.uniform(size=n)
    border = 0.1 * rng.normal(size=(m, k))
    corner = np.diag(rng.uniform(5.0, 9.0, size=k))
    top = np.diag(diagonal) + rows.T @ (weights[:, None] * rows)
    matrix = np.block([[top, border], [border.T, corner]])
    right = rng.normal(size=m + k)
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(ThinNewton(diagonal, rows, weights, border, corner).solve(right), expected, rtol=1e-8)


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
