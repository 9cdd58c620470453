"""The structured solver and its parts: norm cones, rows, Newton systems, and losses of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.problem.losses import Logistic
from dualcore.solvers import settle, structured
from dualcore.solvers.barrier import NormCone, norm_cone
from dualcore.solvers.design import Design
from dualcore.solvers.interior import InteriorPoint
from dualcore.solvers.newton import DenseNewton, ThinNewton
from dualcore.solvers.rowmodel import Pieces, RowState
from dualcore.solvers.structured import StructuredSolver, _row_space
from own_losses import CappedExponential, LogCosh, Probit

NORMS = ("l1", "l2", "linf")
FIRST_ORDER = ("logistic", "hinge", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")
stalls = pytest.mark.xfail(strict=True, reason="curved flips of a user's loss under weights from 1e-4 to 1 stall")
every_norm = pytest.mark.parametrize("norm", NORMS)
every_loss = pytest.mark.parametrize("loss", FIRST_ORDER)


def sample(problem: Problem, n: int = 50, m: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.3, 3.0, size=m)
    score = X @ rng.normal(size=m) + rng.normal(size=n) + 0.2
    if problem.is_classification:
        score = np.where(score > np.median(score), 1.0, -1.0)
    return X, score


# Losses of the user's own


class Steep(LogCosh):
    """``3 log cosh(r)``: a Lipschitz constant that is not one."""

    name = "steep"
    lipschitz = 3.0

    def value(self, t):
        return 3.0 * super().value(t)

    def slope(self, t):
        return 3.0 * super().slope(t)


class PlainLogistic(Logistic):
    """The logistic loss under another name and with no closed forms: what defaults must reproduce."""

    name = "plain_logistic"

    def curvature(self, t):
        return super(Logistic, self).curvature(t)

    def conjugate(self, s):
        return super(Logistic, self).conjugate(s)


OWN = {loss.name: loss for loss in (LogCosh(), Steep(), Probit(), CappedExponential())}


@every_norm
@pytest.mark.parametrize("loss", OWN.values(), ids=OWN)
@pytest.mark.parametrize("extra", [{}, {"ridge": 0.05}, {"fit_intercept": False}, {"label_cost": 1.0}])
def test_a_loss_of_the_users_own_is_solved_and_certified(loss, norm, extra):
    problem = Problem(loss, radius=0.1, norm=norm, **extra)
    solution = solve(problem, *sample(problem))
    assert solution.solver == "structured"
    assert solution.converged
    assert solution.relative_gap <= 1e-6


@pytest.mark.parametrize("loss", OWN.values(), ids=OWN)
def test_a_loss_of_the_users_own_at_radius_zero(loss):
    problem = Problem(loss)
    X, y = sample(problem)
    if problem.is_classification:  # not separable, so that a minimiser exists
        y[::5] *= -1.0
    solution = solve(problem, X, y)
    assert solution.converged
    gradient = problem.gradient(solution.coef, solution.intercept, X, y)
    assert np.abs(gradient.coef).max() <= 1e-4
    assert abs(gradient.intercept) <= 1e-4


@pytest.mark.parametrize("loss", [LogCosh(), Steep()], ids=repr)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_a_smooth_loss_whose_curvature_vanishes_far_away(loss, scale, offset):
    """Newton's step from a flat start points anywhere: it must not be followed blindly."""
    problem = Problem(loss, radius=0.1)
    X, y = sample(problem)
    assert solve(problem, X, scale * y + offset).converged


@every_norm
@pytest.mark.parametrize("label_cost", [1.0, np.inf])
def test_the_defaults_of_a_loss_lead_where_its_closed_forms_lead(norm, label_cost):
    named = Problem("logistic", radius=0.1, norm=norm, label_cost=label_cost)
    own = named.replace(loss=PlainLogistic())
    X, y = sample(named)
    assert solve(own, X, y).value == pytest.approx(solve(named, X, y).value, rel=1e-6)


# What it takes


def test_it_takes_every_loss_of_order_one_and_says_where_to_go_with_order_two():
    for loss in FIRST_ORDER:
        problem = Problem(loss, radius=0.1)
        assert StructuredSolver().obstacle(problem, problem.validate(*sample(problem))) is None
    problem = Problem("squared", radius=0.1)
    assert "solver='power'" in StructuredSolver().obstacle(problem, problem.validate(*sample(problem)))


def test_it_refuses_a_newton_matrix_that_would_not_fit_in_memory():
    n = 10_001
    problem = Problem("hinge", radius=0.1)
    data = problem.validate(sp.eye_array(n, format="csr"), np.where(np.arange(n) % 2, 1.0, -1.0))
    reason = StructuredSolver().obstacle(problem, data)
    assert "10001" in reason
    assert "descent" in reason


# How it goes


@every_norm
@every_loss
def test_a_few_dozen_iterations_are_enough(loss, norm):
    problem = Problem(loss, radius=0.05, norm=norm)
    solution = solve(problem, *sample(problem, n=400, m=8))
    assert solution.converged
    assert solution.iterations <= 60


@every_loss
def test_the_number_of_iterations_hardly_grows_with_the_rows(loss):
    problem = Problem(loss, radius=0.05, norm="l2")
    small, large = (solve(problem, *sample(problem, n=n, m=5)).iterations for n in (100, 10_000))
    assert large <= 2 * small + 10


@every_norm
@every_loss
def test_tight_tolerances_are_met(loss, norm):
    problem = Problem(loss, radius=0.05, norm=norm)
    assert solve(problem, *sample(problem), tol=1e-9).relative_gap <= 1e-9


def test_labels_too_dear_to_flip_cost_nothing_extra():
    """Solved without flips first: where none pays, that is the answer, to the last digit."""
    problem = Problem("logistic", radius=0.1, label_cost=50.0)
    X, y = sample(problem)
    dear, forbidden = solve(problem, X, y), solve(problem.replace(label_cost=np.inf), X, y)
    np.testing.assert_array_equal(dear.coef, forbidden.coef)
    assert dear.iterations == forbidden.iterations


@every_norm
@pytest.mark.parametrize("loss", ["logistic", "hinge", "smooth_hinge"])
def test_cheap_labels_flip_and_the_dual_point_shows_it(loss, norm):
    problem = Problem(loss, radius=0.3, norm=norm, label_cost=2.0)
    X, y = sample(problem, n=80)
    X = X + 0.8 * y[:, None]
    solution = solve(problem, X, y)
    assert solution.converged
    assert solution.dual.share is not None
    assert solution.value > solve(problem.replace(label_cost=np.inf), X, y).value * (1.0 + 1e-4)
    flipping = solution.dual.share > 0.5
    gain = problem.loss.flip_gain(y * (X @ solution.coef + solution.intercept))
    assert flipping.any()
    assert (gain[flipping] >= 2.0 * solution.dual_variable * (1.0 - 1e-3)).all()


@every_norm
@pytest.mark.parametrize(
    "loss",
    [
        "logistic",
        "hinge",
        "smooth_hinge",
        pytest.param("probit", marks=pytest.mark.slow),
        pytest.param("capped_exponential", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("label_cost", [0.5, 2.0])
def test_flips_with_nearly_all_the_weight_on_three_rows(loss, label_cost, norm, request):
    if loss in OWN and (label_cost, norm) != (0.5, "l1"):
        request.applymarker(stalls)
    problem = Problem(OWN.get(loss, loss), radius=0.1, norm=norm, label_cost=label_cost)
    for seed in range(4):
        X, y = sample(problem, n=30, seed=seed)
        weights = np.where(np.arange(30) < 3, 1.0, 1e-4)
        weights[[int(np.argmin(y)), int(np.argmax(y))]] = 0.01
        assert solve(problem, X, y, weights).relative_gap <= 1e-6


@every_norm
@every_loss
@pytest.mark.parametrize("size", [(5, 40), (20, 30), (20, 100)])
def test_wide_data_take_other_routes_to_the_same_optimum(loss, norm, size):
    """With n < m the l2 problem is solved in the span of the rows, the l1 problem with a thin Newton system."""
    problem = Problem(loss, radius=0.3, norm=norm, label_cost=4.0)
    X, y = sample(problem, *size)
    solution = solve(problem, X, y)
    assert solution.converged
    reference = solve(problem, X, y, solver="conic")
    assert solution.value == pytest.approx(reference.value, rel=1e-6)


def test_repeated_rows_leave_no_noise_in_the_row_space():
    X, times = np.random.default_rng(0).random((9, 30)), np.array([0, 1, 4, 2, 0, 3, 1, 1, 4])
    repeated = np.repeat(X, times, axis=0)
    basis, inner = _row_space(repeated, np.full(16, 1.0 / 16.0))
    assert basis.shape == (30, 7)
    np.testing.assert_allclose(basis.T @ basis, np.eye(7), atol=1e-13)
    np.testing.assert_allclose(inner @ basis.T, repeated, atol=1e-13)
    weighted, _ = _row_space(X, times / 16.0)
    np.testing.assert_allclose(np.abs(weighted), np.abs(basis), atol=1e-12)
    basis, inner = _row_space(np.zeros((3, 5)), np.full(3, 1.0 / 3.0))
    assert basis.shape == (5, 1)
    assert not inner.any()


@pytest.mark.parametrize("label_cost", [np.inf, 2.0])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_repeated_rows_of_wide_data_are_a_weight(loss, label_cost):
    problem = Problem(loss, radius=0.1, label_cost=label_cost)
    X, y = sample(problem, 12, 40, seed=3)
    times = np.arange(12) % 4
    weighted = solve(problem, X, y, times)
    repeated = solve(problem, np.repeat(X, times, axis=0)[::-1], np.repeat(y, times)[::-1])
    assert repeated.iterations == weighted.iterations
    np.testing.assert_allclose(repeated.coef, weighted.coef, rtol=1e-6, atol=1e-8)


def test_a_start_is_used_and_not_modified():
    problem = Problem("logistic", radius=0.1, norm="l1")
    X, y = sample(problem, n=300)
    data = problem.validate(X, y)
    cold = StructuredSolver().run(problem, data, tol=1e-8, max_iter=100, start=None)
    start = cold.coef.copy(), cold.intercept
    warm = StructuredSolver().run(problem, data, tol=1e-8, max_iter=100, start=start)
    np.testing.assert_array_equal(start[0], cold.coef)
    assert not warm.stopped_early
    assert warm.iterations <= cold.iterations


def test_the_history_of_an_attempt_that_stops_is_kept():
    problem = Problem("hinge", radius=0.1)
    raw = InteriorPoint(problem, problem.validate(*sample(problem))).run(tol=1e-6, max_iter=3)
    assert raw.stopped_early
    assert [step.iteration for step in raw.history] == [0, 1, 2, 3]
    assert np.isfinite(raw.coef).all()


# The rows


@pytest.mark.parametrize("loss", [*FIRST_ORDER, Probit(), LogCosh()], ids=str)
@pytest.mark.parametrize("label_cost", [0.7, np.inf])
def test_the_pieces_of_a_row_make_its_dual_loss(loss, label_cost):
    """Smooth part plus highest piece is ``h``; a Moreau envelope is its polyhedral function behind a spring."""
    problem = Problem(loss, radius=0.1, label_cost=label_cost)
    pieces, t, multiplier = Pieces(problem), np.linspace(-6.0, 6.0, 1201), 1.3
    total = problem.loss.value(t) if pieces.smooth else np.zeros_like(t)
    if not problem.is_classification:
        multiplier = max(multiplier, problem.kappa(np.zeros(1)))
    if pieces.spring:
        pull = np.linspace(-2.0, 2.0, 401)  # the best pull is on this grid wherever t is
        stretched = (t[:, None] - pull[None, :]).ravel()
        heights = np.max([piece.value for piece in pieces(stretched)], axis=0).reshape(t.size, pull.size)
        total = (heights + 0.5 * pull**2).min(axis=1)
    elif now := pieces(t):
        total = total + np.max([piece.value - piece.price * multiplier for piece in now], axis=0)
    np.testing.assert_allclose(total, problem.form.h(t, multiplier, 0.0), atol=1e-12)


def row_state(problem: Problem, n: int = 7) -> tuple[RowState, float]:
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.5, size=n)
    state = RowState(Pieces(problem), weights / weights.sum(), rng.normal(size=n))
    state.rise(0.8, 1.0)
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
    dt, ds, dp = rows.finish(answer, residual, None, dz, dlam)
    slopes = np.stack([piece.slope for piece in rows.now])
    prices = np.array([piece.price for piece in rows.now])[:, None]
    np.testing.assert_allclose((rows.p + dp).sum(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(ds, dt - (slopes * dz - prices * dlam) - residual, atol=1e-12)
    np.testing.assert_allclose(rows.p * rows.s + rows.p * ds + rows.s * dp, target, atol=1e-12)
    # What is left of the row in the Newton system: the slope changes by the force plus curvature times dz, z_lam dlam.
    curvature = rows.curvature()
    smooth = rows.pieces.loss.curvature(rows.z) if rows.pieces.smooth else 0.0
    bent = sum(
        0.0 if piece.curvature is None else p * piece.curvature for p, piece in zip(rows.p, rows.now, strict=True)
    )
    changed = rows.force(dp) + (smooth + bent) * dz
    crossed = 0.0 if curvature.z_lam is None else curvature.z_lam * dlam
    np.testing.assert_allclose(changed, answer.force + curvature.zz * dz + crossed, atol=1e-12)


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


def test_the_design_scales_columns_to_one_and_changes_no_product():
    problem = Problem("hinge", radius=0.1)
    X, y = sample(problem)
    X[:, 1] = 0.0
    data = problem.validate(X, y, np.linspace(1.0, 2.0, len(y)))
    design, w = Design(problem, data), data.masses
    rng = np.random.default_rng(3)
    coef, slope = rng.normal(size=4), rng.normal(size=len(y))
    scaled = X / design.scales
    np.testing.assert_allclose(np.sqrt(w @ scaled**2), [1.0, 0.0, 1.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(design.signal(coef, 0.3), y * (scaled @ coef + 0.3), atol=1e-12)
    np.testing.assert_allclose(design.transpose(slope), scaled.T @ (w * y * slope), atol=1e-12)
    assert design.total(slope) == pytest.approx(float(w @ (y * slope)))
    np.testing.assert_allclose(design.gram(slope**2), scaled.T @ np.diag(w * slope**2) @ scaled, atol=1e-12)


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


@every_norm
@both_kinds
def test_the_start_is_interior_and_spends_the_radius(norm, classification):
    cone, x = cone_and_point(norm, classification)
    np.testing.assert_allclose(cone.s, cone.slack(x), atol=1e-12)
    assert min(cone.max_step(-cone.s, -cone.z)) == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_array_equal(x[:4], [0.3, -0.2, 0.1, 0.7])
    assert cone.pull(cone.z)[cone.m + 1] == pytest.approx(0.2, rel=1e-9)
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


@every_norm
@both_kinds
def test_the_slack_is_affine_and_push_and_pull_are_its_linear_part(norm, classification):
    cone, x = cone_and_point(norm, classification)
    rng = np.random.default_rng(4)
    dx, z = rng.normal(size=cone.dimension), rng.normal(size=cone.s.size)
    np.testing.assert_allclose(cone.slack(x + dx) - cone.slack(x), cone.push(dx), atol=1e-12)
    assert float(z @ cone.push(dx)) == pytest.approx(float(cone.pull(z) @ dx))


@every_norm
@both_kinds
def test_the_scaling_maps_slacks_to_multipliers(norm, classification):
    cone, _ = cone_and_point(norm, classification)
    rng = np.random.default_rng(5)
    cone.s = cone.s * rng.uniform(0.9, 1.1, size=cone.s.size)
    cone.z = cone.z * rng.uniform(0.9, 1.1, size=cone.z.size)
    cone.scale()
    np.testing.assert_allclose(cone.weigh(cone.s), cone.z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cone.target(0.0, None), -cone.z, rtol=1e-9, atol=1e-12)
    dx = rng.normal(size=cone.dimension)
    np.testing.assert_allclose(cone.hessian() @ dx, cone.pull(cone.weigh(cone.push(dx))), rtol=1e-9, atol=1e-12)


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
    found = DenseNewton(matrix).solve(matrix @ truth)
    np.testing.assert_allclose(found * np.sqrt(np.diag(matrix)), truth * np.sqrt(np.diag(matrix)), rtol=1e-6, atol=1e-8)


def test_a_singular_system_is_solved_where_it_has_a_solution():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 6))
    matrix = A.T @ A
    right = matrix @ rng.normal(size=6)
    found = DenseNewton(matrix).solve(right)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(matrix @ found, right, atol=1e-6)


def test_a_matrix_of_zeros_gives_finite_steps():
    assert np.isfinite(DenseNewton(np.zeros((3, 3))).solve(np.ones(3))).all()


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


SETTLING = [
    ("logistic", {"label_cost": np.inf}),
    ("logistic", {"label_cost": 2.0}),
    ("hinge", {"label_cost": np.inf}),
    ("hinge", {"label_cost": 2.0}),
    ("pinball", {"quantile": 0.3}),
    ("epsilon_insensitive", {"label_cost": 7.0}),
]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize(("loss", "settings"), SETTLING)
def test_settled_rows_change_nothing(loss, settings, norm, monkeypatch):
    """The large-data path and the whole problem agree to the tolerance, weights and ridge included."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(8000, 3)) * [1.0, 10.0, 0.1]
    score = X @ [1.0, -0.1, 5.0] + 0.5 * rng.normal(size=8000)
    y = np.where(score * rng.choice([1.0] * 9 + [-1.0], size=8000) > 0.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.05, norm=norm, ridge=0.01 if norm == "l2" else 0.0, **settings)
    y = y if problem.is_classification else score
    weights = rng.exponential(size=8000) * (rng.random(8000) < 0.9)
    whole = solve(problem, X, y, weights, solver="structured")
    settled = []

    def watched(*args, **options):
        settled.append(settle.solve_settled(*args, **options))
        return settled[-1]

    monkeypatch.setattr(settle, "_MANY", 1000)
    monkeypatch.setattr(settle, "_MANY_SMOOTH", 1000)
    monkeypatch.setattr(structured, "solve_settled", watched)
    quick = solve(problem, X, y, weights, solver="structured")
    assert settled
    assert settled[-1] is not None
    assert quick.relative_gap <= 1e-6
    assert quick.value == pytest.approx(whole.value, rel=1e-6)


def test_a_stalled_interior_point_is_finished_by_newton_steps():
    """Columns over four orders of magnitude and uneven weights once stopped the interior point at a gap of 20 %."""
    rng = np.random.default_rng(1)
    for _ in range(8):
        X = rng.normal(size=(600, 8)) * 10.0 ** rng.uniform(-3, 3, 8)
        score = X @ (rng.normal(size=8) / X.std(axis=0)) + 0.5 * rng.normal(size=600)
        y = np.where(score * rng.choice([1.0] * 9 + [-1.0], size=600) > 0.0, 1.0, -1.0)
        weights = rng.exponential(size=600) * (rng.random(600) < 0.8)
        problem = Problem("logistic", radius=0.01, norm="l1", label_cost=float(rng.choice([2.0, np.inf])))
        assert solve(problem, X, y, weights, solver="structured").converged
