"""The dual against an adversary that is played out: ``kappa``, ``h`` and the risk, and what follows from convexity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualcore import Problem
from pairs import every_value
from reference.brute_force import Adversary, BruteWorstCase, plain_losses
from reference.cases import (
    FIRST_ORDER,
    LABEL_COSTS,
    LOSS_NAMES,
    MARGIN_LOSSES,
    NORMS,
    SECOND_ORDER,
    Case,
    cases,
    for_every_geometry,
    small_case,
    some_model,
)
from reference.referee import plain_loss

AGREEMENT = 1e-6
any_case = st.sampled_from(LOSS_NAMES).flatmap(cases)
some = settings(max_examples=60)


def relative_error(value, reference) -> float:
    """Largest difference relative to the reference, to 1e-3 where that is less: moved rows carry rounding errors."""
    value, reference = np.asarray(value, dtype=float), np.asarray(reference, dtype=float)
    return float((np.abs(value - reference) / np.maximum(np.abs(reference), 1e-3)).max())


def compare_h(case: Case) -> None:
    """Check where ``h`` becomes finite, and ``h`` there and above, against searches for the best perturbation."""
    adversary, problem, kappa = Adversary(case), case.problem, case.problem.kappa(case.coef)
    assert abs(kappa - adversary.kappa()) <= AGREEMENT * max(kappa, 1.0)
    if kappa > 0.0:
        growing = np.array([adversary.far(0.999 * kappa, distance) for distance in (1e5, 1e6, 1e7)])
        assert (growing[1:] > 5.0 * growing[:-1]).all()
        assert np.isposinf(problem.h(*case.model, 0.999 * kappa, *case.data)).all()
    for extra in (0.0, 0.2, 3.0) if case.order == 1 else (0.2, 3.0):
        h = problem.h(*case.model, kappa + extra, *case.data)
        assert relative_error(h, adversary.h(kappa + extra)) <= AGREEMENT
        assert (h >= plain_losses(case) * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_h_is_what_the_best_perturbation_earns(loss):
    for_every_geometry(loss, 1, compare_h)


def compare_risk(case: Case) -> BruteWorstCase:
    """Check risk and multiplier against the transport programme."""
    brute = Adversary(case).worst_case()
    risk = case.problem.risk(*case.model, *case.data, case.weights)
    assert relative_error(risk, brute.value) <= AGREEMENT
    multiplier = case.problem.multiplier(*case.model, *case.data, case.weights)
    low, high = case.problem.multiplier_interval(*case.model, *case.data)
    tau = case.problem.multiplier_bound(*case.model, *case.data)
    assert low <= multiplier <= high
    assert multiplier <= tau
    if case.radius > 0.0:  # the objective is flat near its minimum: a value to 1e-6 is a multiplier to 1e-3
        assert low * (1.0 - 1e-3) <= brute.multiplier <= high * (1.0 + 1e-3)
        assert brute.multiplier <= tau * (1.0 + 1e-3)
    return brute


@every_value(loss=LOSS_NAMES, examples=[2, pytest.param(60, marks=pytest.mark.slow)])
def test_the_risk_is_the_worst_expected_loss_in_the_ball(loss, examples):
    """Over all losses 9 * 3 * 4 * 2 = 216 problems."""
    flips = []
    for_every_geometry(loss, examples, lambda case: flips.append(compare_risk(case).flipped > 1e-9))
    assert len(flips) >= examples * len(NORMS) * len(LABEL_COSTS)
    if loss in MARGIN_LOSSES:
        assert sum(flips) >= len(flips) / 3.0, f"only {sum(flips)} of {len(flips)} problems have active flips"


@pytest.mark.parametrize(
    ("loss", "truth", "lie"),
    [
        ("hinge", {}, {"radius": 0.51}),
        ("smooth_hinge", {"label_cost": 0.5}, {"label_cost": 0.55}),
        ("squared", {}, {"norm": "linf"}),
        ("absolute", {"label_cost": 0.5}, {"label_cost": 0.501}),
        ("pinball", {}, {"parameters": {"quantile": 0.51}}),
    ],
)
def test_the_transport_programme_notices_a_wrong_problem(loss, truth, lie):
    case = small_case(loss, **truth)
    right = case.problem.risk(*case.model, *case.data)
    assert relative_error(right, Adversary(case).worst_case().value) <= AGREEMENT
    wrong = case.replace(**lie).problem.risk(*case.model, *case.data)
    assert relative_error(wrong, Adversary(case).worst_case().value) > 10.0 * AGREEMENT


def test_the_growth_constant_of_the_paper_is_too_small():
    """One row, x = 10, y = 1, theta = .05, gamma = 1, sigma = .99: the multiplier exceeds the paper's bound.

    The second row has no mass; it only gives the data their second class.
    """
    X, y = np.array([[10.0], [0.0]]), np.array([1.0, -1.0])
    case = Case("hinge", "l2", 1.0, 0.99, np.array([0.05]), 0.0, X, y, np.array([1.0, 0.0]))
    problem = case.problem
    multiplier = problem.multiplier(*case.model, *case.data, case.weights)
    assert multiplier == pytest.approx(1.0, rel=1e-12)
    assert Adversary(case).worst_case().multiplier == pytest.approx(1.0, rel=1e-6)
    farthest = 10.0
    paper = problem.size(case.coef) * (1.0 + (1.0 + farthest) / problem.radius)
    assert paper == pytest.approx(0.606, abs=5e-4)
    assert multiplier > paper
    tau = problem.multiplier_bound(*case.model, *case.data)
    assert tau == pytest.approx(12.1, abs=0.02)
    assert multiplier <= tau
    assert problem.multiplier_interval(*case.model, *case.data)[1] == pytest.approx(1.0, rel=1e-12)


@some
@given(any_case, st.data())
def test_the_growth_constant_bounds_the_loss_everywhere(case, data):
    far = data.draw(st.sampled_from((0.0, 1.0, 10.0, 1e4)))
    X = far * case.X
    target = case.y
    if not case.is_classification:
        target = far * case.y if np.isfinite(case.label_cost) else case.y
    distance = case.problem.validate(X, case.y).rows.row_norms(case.norm)
    if np.isfinite(case.label_cost):
        origin = 1.0 if case.is_classification else 0.0
        distance = distance + 0.5 * case.label_cost * np.abs(target - origin)
    reached = plain_loss(case.problem, X @ case.coef + case.intercept, target)
    growth = case.problem.growth(*case.model, case.y)
    assert (reached <= growth * (1.0 + distance**case.order) * (1.0 + 1e-12) + 1e-12).all()


@some
@given(any_case)
def test_h_falls_and_is_convex_in_the_multiplier_and_the_risk_is_the_least_objective(case):
    problem, arguments, kappa = case.problem, (*case.data, case.weights), case.problem.kappa(case.coef)
    multipliers = kappa + np.array([1e-9, 0.1, 0.2, 1.0, 1.8, 5.0, 8.2, 40.0])
    h = np.array([problem.h(*case.model, lam, *case.data) for lam in multipliers])
    assert (np.diff(h, axis=0) <= 1e-12 * (1.0 + np.abs(h[1:]))).all()
    slopes = np.diff(h, axis=0) / np.diff(multipliers)[:, None]
    # The first point lies where h of order 2 blows up, and takes no part.
    assert (np.diff(slopes[1:], axis=0) >= -1e-9 * (1.0 + np.abs(slopes[1:-1]))).all()
    assert (h >= plain_losses(case) * (1.0 - 1e-12)).all()
    assume(case.radius > 0.0)
    risk, best = problem.risk(*case.model, *arguments), problem.multiplier(*case.model, *arguments)
    if best > kappa or case.order == 1:  # at kappa itself an order-2 objective is only a limit
        assert problem.objective(*case.model, best, *arguments) == pytest.approx(risk, rel=1e-9, abs=1e-12)
    for other in (*multipliers[1:], max(0.9 * best, kappa + 1e-6), 1.1 * best + 1e-6):
        assert problem.objective(*case.model, other, *arguments) >= risk - 1e-9 * (1.0 + risk)


@some
@given(any_case)
def test_the_risk_grows_with_the_radius_and_is_concave_in_what_it_pays(case):
    paid = np.array([0.0, 1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0])
    radii = paid ** (1.0 / case.order)
    risks = np.array([case.replace(radius=float(r)).problem.risk(*case.model, *case.data, case.weights) for r in radii])
    assert (np.diff(risks) >= -1e-12 * (1.0 + risks[1:])).all()
    slopes = np.diff(risks) / np.diff(paid)
    assert (np.diff(slopes[1:]) <= 1e-7 * (1.0 + slopes[1:-1])).all()


@pytest.mark.parametrize("loss", SECOND_ORDER)
def test_the_objective_at_kappa_leaves_out_rows_of_no_mass(loss):
    """The first row has no loss, so its ``h`` is zero at ``kappa = 1``; that of the second is infinite there."""
    X, y = np.array([[3.0], [-0.2]]), np.array([1.0, -1.0]) if loss in MARGIN_LOSSES else np.array([3.0, 5.0])
    problem = Problem(loss, radius=0.5)
    np.testing.assert_array_equal(problem.h([1.0], 0.0, 1.0, X, y), [0.0, np.inf])
    assert problem.objective([1.0], 0.0, 1.0, X, y, [1.0, 0.0]) == 0.25
    assert problem.objective([1.0], 0.0, 1.0, X, y, [0.0, 1.0]) == np.inf
    assert problem.objective([1.0], 0.0, 1.0, X, y) == np.inf


def test_h_of_the_squared_hinge_is_infinite_at_kappa_where_a_flipped_row_gains_by_moving():
    """At ``lam = K^2`` a flipped row earns ``2 K (v - K gamma)`` a unit of distance: no end where ``v > K gamma``."""
    case = Case("squared_hinge", "l2", 2.0, 0.5, np.array([1.0]), 0.0, np.array([[5.0], [-5.0]]), np.array([1.0, -1.0]))
    adversary, kappa = Adversary(case), case.problem.kappa(case.coef)
    near, far, farther = (adversary.far(kappa, distance) for distance in (1e2, 1e4, 1e6))
    assert (far > 50.0 * near).all()
    assert (farther > 50.0 * far).all()
    assert np.isposinf(case.problem.h(*case.model, kappa, *case.data)).all()


def test_the_gradient_of_the_squared_hinge_grows_with_the_norm_where_no_row_is_short():
    """All margins exceed 1 and no flip pays: the risk is ``(sigma K)^2`` and its gradient ``2 sigma^2 K``."""
    X, y = np.array([[-1.4], [5.6]]), np.array([1.0, -1.0])
    case = Case("squared_hinge", "l1", 7.0, 0.5, np.array([-0.3]), 0.6, X, y)
    assert case.problem.risk(*case.model, *case.data) == pytest.approx(0.0225, rel=1e-12)
    assert case.problem.gradient(*case.model, *case.data).coef[0] == pytest.approx(-0.15, rel=1e-9)
    zero = Case("squared_hinge", "l1", 0.1, 0.5, np.zeros(1), 0.2, X, y)  # the radius pays for every flip
    assert zero.problem.gradient(*zero.model, *zero.data).intercept == pytest.approx(2.4, rel=1e-9)


@some
@given(any_case, st.data())
def test_the_gradients_of_risk_and_objective_are_subgradients(case, data):
    """``R(other) >= R(model) + g . (other - model)``, smooth or not; the objective jointly with the multiplier."""
    problem = case.problem.replace(ridge=data.draw(st.sampled_from((0.0, 0.2))))
    arguments = (*case.data, case.weights)
    coef, intercept = data.draw(some_model(len(case.coef)))
    extras = st.sampled_from((0.5, 0.0, 2.0, 20.0) if case.order == 1 else (0.5, 2.0, 20.0))
    multiplier, other = (problem.kappa(each) + data.draw(extras) for each in (case.coef, coef))
    if case.order == 1:  # the formula of h holds above both kappas, and is what the gradient describes
        other = max(other, problem.kappa(case.coef))
    of_risk, of_objective = (problem.gradient(*case.model, *arguments, multiplier=at) for at in (None, multiplier))
    assert of_risk.multiplier == 0.0
    for gradient, here, there in (
        (of_risk, problem.risk(*case.model, *arguments), problem.risk(coef, intercept, *arguments)),
        (
            of_objective,
            problem.objective(*case.model, multiplier, *arguments),
            problem.objective(coef, intercept, other, *arguments),
        ),
    ):
        rise = gradient.coef @ (coef - case.coef) + gradient.intercept * (intercept - case.intercept)
        rise += gradient.multiplier * (other - multiplier)
        assert there >= here + rise - 1e-8 * (1.0 + abs(here) + abs(rise))


@some
@given(st.sampled_from(FIRST_ORDER).flatmap(cases), st.data())
def test_the_constants_are_lipschitz_constants_of_h(case, data):
    problem = case.problem
    coef, intercept = data.draw(some_model(len(case.coef)))
    extras = st.sampled_from((0.0, 0.3, 4.0))
    floor = max(problem.kappa(case.coef), problem.kappa(coef))
    one, other = floor + data.draw(extras), floor + data.draw(extras)
    constants = problem.constants(case.X)
    distance = float(np.linalg.norm(np.append(coef - case.coef, intercept - case.intercept)))
    change = np.abs(problem.h(*case.model, one, *case.data) - problem.h(coef, intercept, other, *case.data))
    allowed = constants.parameters * distance + constants.multiplier * abs(one - other)
    assert (change <= allowed * (1.0 + 1e-12) + 1e-12).all()
