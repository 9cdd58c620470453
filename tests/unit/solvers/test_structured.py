"""The structured solver: what it takes, how it goes, and losses of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.problem.losses import Logistic
from dualcore.solvers import structured, working_set
from dualcore.solvers.structured import StructuredSolver
from own_losses import CappedExponential, LogCosh, Probit
from pairs import every_pair, every_value
from solver_cases import FIRST_ORDER, every_norm, sample

stalls = pytest.mark.xfail(strict=True, reason="curved flips of a user's loss under weights from 1e-4 to 1 stall")
every_loss = pytest.mark.parametrize("loss", FIRST_ORDER)


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


@every_value(every_norm, loss=OWN, extra=[{}, {"ridge": 0.05}, {"fit_intercept": False}, {"label_cost": 1.0}])
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


@every_pair(loss=[LogCosh(), Steep()], scale=[1e-3, 1.0, 30.0, 1e3], offset=[0.0, 100.0])
def test_a_smooth_loss_whose_curvature_vanishes_far_away(loss, scale, offset):
    """Newton's step from a flat start points anywhere: it must not be followed blindly."""
    problem = Problem(loss, radius=0.1)
    X, y = sample(problem)
    assert solve(problem, X, scale * y + offset).converged


@every_value(every_norm, label_cost=[1.0, np.inf])
def test_the_defaults_of_a_loss_lead_where_its_closed_forms_lead(norm, label_cost):
    named = Problem("logistic", radius=0.1, norm=norm, label_cost=label_cost)
    own = named.replace(loss=PlainLogistic())
    X, y = sample(named)
    assert solve(own, X, y).value == pytest.approx(solve(named, X, y).value, rel=1e-6)


# What it takes


def test_it_refuses_a_newton_matrix_that_would_not_fit_in_memory():
    n = 10_001
    problem = Problem("hinge", radius=0.1)
    data = problem.validate(sp.eye_array(n, format="csr"), np.where(np.arange(n) % 2, 1.0, -1.0))
    reason = StructuredSolver().obstacle(problem, data)
    assert "10001" in reason
    assert "descent" in reason


# How it goes


@every_value(every_norm, loss=["logistic", "hinge", "smooth_hinge"])
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


@every_pair(
    every_norm,
    loss=[
        "logistic",
        "hinge",
        "smooth_hinge",
        pytest.param("probit", marks=pytest.mark.slow),
        pytest.param("capped_exponential", marks=pytest.mark.slow),
    ],
    label_cost=[0.5, 2.0],
)
def test_flips_with_nearly_all_the_weight_on_three_rows(loss, label_cost, norm, request):
    if loss in OWN and (label_cost, norm) != (0.5, "l1"):
        request.applymarker(stalls)
    problem = Problem(OWN.get(loss, loss), radius=0.1, norm=norm, label_cost=label_cost)
    for seed in range(4):
        X, y = sample(problem, n=30, seed=seed)
        weights = np.where(np.arange(30) < 3, 1.0, 1e-4)
        weights[[int(np.argmin(y)), int(np.argmax(y))]] = 0.01
        assert solve(problem, X, y, weights).relative_gap <= 1e-6


@every_value(every_norm, every_loss, size=[(5, 40), (20, 30), (20, 100)])
def test_wide_data_take_other_routes_to_the_same_optimum(loss, norm, size):
    """With n < m the l2 problem is solved in the span of the rows, the l1 problem with a thin Newton system."""
    problem = Problem(loss, radius=0.3, norm=norm, label_cost=4.0)
    X, y = sample(problem, *size)
    solution = solve(problem, X, y)
    assert solution.converged
    reference = solve(problem, X, y, solver="conic")
    assert solution.value == pytest.approx(reference.value, rel=1e-6)


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


WITH_WORKING_SET = [
    ("logistic", {"label_cost": np.inf}),
    ("logistic", {"label_cost": 2.0}),
    ("hinge", {"label_cost": np.inf}),
    ("hinge", {"label_cost": 2.0}),
    ("pinball", {"quantile": 0.3}),
    ("epsilon_insensitive", {"label_cost": 7.0}),
]


@every_value(pytest.mark.parametrize(("loss", "settings"), WITH_WORKING_SET), norm=["l1", "l2", "linf"])
def test_a_working_set_changes_nothing(loss, settings, norm, monkeypatch):
    """The large-data path and the whole problem agree to the tolerance, weights and ridge included."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(8000, 3)) * [1.0, 10.0, 0.1]
    score = X @ [1.0, -0.1, 5.0] + 0.5 * rng.normal(size=8000)
    y = np.where(score * rng.choice([1.0] * 9 + [-1.0], size=8000) > 0.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.05, norm=norm, ridge=0.01 if norm == "l2" else 0.0, **settings)
    y = y if problem.is_classification else score
    weights = rng.exponential(size=8000) * (rng.random(8000) < 0.9)
    whole = solve(problem, X, y, weights, solver="structured")
    found = []

    def watched(*args, **options):
        found.append(working_set.solve_working_set(*args, **options))
        return found[-1]

    monkeypatch.setattr(structured, "worth_a_working_set", lambda problem, data: data.rows.n >= 1000)
    monkeypatch.setattr(structured, "solve_working_set", watched)
    quick = solve(problem, X, y, weights, solver="structured")
    assert found
    assert found[-1] is not None
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


@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon_insensitive"])
def test_rows_that_a_model_fits_without_a_loss_are_solved(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8))
    score = X @ rng.normal(size=8)
    problem = Problem(loss, radius=0.0)
    y = np.where(score > 0.0, 1.0, -1.0) if problem.is_classification else score
    assert solve(problem, X, y, solver="structured").value < 1e-6
