"""The worst-case distribution: inside the ball, as bad as the risk says, and honest about what it falls short of."""

from __future__ import annotations

from itertools import product
from zlib import crc32

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import Phase, given, seed, settings

from dualcore import Problem, WorstCase, worst_case_distribution
from dualcore.problem.geometry import get_norm
from pairs import every_value
from reference.brute_force import feature_norm, plain_loss
from reference.cases import LABEL_COSTS, LOSS_NAMES, MARGIN_LOSSES, NORMS, SECOND_ORDER, Case, cases

FIRST_ORDER = tuple(name for name in LOSS_NAMES if name not in SECOND_ORDER)


def transport_cost(case: Case, worst: WorstCase) -> float:
    """What the plan that carries each atom from its source costs."""
    points = worst.X.toarray() if sp.issparse(worst.X) else worst.X
    prices = feature_norm(case.norm, points - case.X[worst.source])
    moved = np.abs(worst.y - case.y[worst.source])
    if np.isfinite(case.label_cost):
        prices = prices + 0.5 * case.label_cost * moved
    else:
        assert (moved == 0.0).all()
    return float(worst.weights @ prices)


def check_distribution(case: Case, worst: WorstCase) -> None:
    """All that a worst case promises, measured without asking it."""
    points = worst.X.toarray() if sp.issparse(worst.X) else worst.X
    atoms = len(worst.weights)
    assert points.shape == (atoms, case.X.shape[1])
    assert worst.y.shape == worst.source.shape == (atoms,)
    assert (worst.weights > 0.0).all()
    assert worst.weights.sum() == pytest.approx(1.0, rel=1e-12)
    # The plan carries each row's mass, no more and no less.
    np.testing.assert_allclose(
        np.bincount(worst.source, worst.weights, len(case.y)), case.masses, rtol=1e-12, atol=1e-15
    )
    assert atoms <= 2 * len(case.y) + 1
    if case.is_classification:
        assert set(np.unique(worst.y)) <= {-1.0, 1.0}

    cost = transport_cost(case, worst)
    assert cost <= case.radius * (1.0 + 1e-9)
    assert worst.transport_cost == pytest.approx(cost, rel=1e-9, abs=1e-12)
    losses = plain_loss(case, points @ case.coef + case.intercept, worst.y)
    expected = float(worst.weights @ losses)
    assert worst.expected_loss == pytest.approx(expected, rel=1e-12, abs=1e-15)

    risk = case.problem.risk(*case.model, *case.data, case.weights)
    rounding = 1e-9 * max(1.0, risk)
    assert expected <= risk + rounding
    assert risk - expected <= 1e-6 * max(1.0, risk)
    assert risk - expected <= worst.gap + rounding
    assert 0.0 <= worst.gap <= 1e-6 * max(1.0, risk)
    assert worst.attained == (worst.gap == 0.0)


@pytest.mark.parametrize("loss", FIRST_ORDER)
def test_random_distributions_are_as_bad_as_the_risk_says(loss):
    """7 * 3 * 4 * 6 = 504 problems, dense and sparse."""
    count = 0
    for norm, cost in product(NORMS, LABEL_COSTS):

        @seed(crc32(f"{loss} {norm} {cost}".encode()))
        @settings(max_examples=6, deadline=None, phases=(Phase.generate,))
        @given(cases(loss, norm, cost))
        def run(case):
            nonlocal count
            count += 1
            arguments = (case.problem, *case.model, *case.data, case.weights)
            check_distribution(case, worst_case_distribution(*arguments))
            sparse = worst_case_distribution(case.problem, *case.model, sp.csr_matrix(case.X), case.y, case.weights)
            assert sp.issparse(sparse.X)
            check_distribution(case, sparse)

        run()
    assert count >= 72


def simple(loss: str, **changes) -> Case:
    X, y = np.array([[2.0, 0.0], [-1.0, 1.0], [0.5, -2.0]]), np.array([1.0, -1.0, 1.0])
    if loss not in MARGIN_LOSSES:
        y = np.array([0.5, 3.0, -1.0])
    case = Case(loss, "l2", np.inf, 0.3, np.array([1.0, -0.5]), 0.1, X, y, None, {})
    defaults = {"huber": {"delta": 1.0}, "pinball": {"quantile": 0.3}, "epsilon_insensitive": {"epsilon": 0.1}}
    return case.replace(parameters=defaults.get(loss, {})).replace(**changes)


def solve(case: Case, **options) -> WorstCase:
    return worst_case_distribution(case.problem, *case.model, *case.data, case.weights, **options)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("weights", np.array([0.2, 0.3, 0.4])),
        ("expected_loss", 0.0),
        ("transport_cost", 0.1),
        ("gap", 1e-3),
        ("attained", False),
        ("source", np.array([0, 1, 2, 2])),
        ("y", np.array([1.0, 1.0, 1.0, 1.0])),
    ],
)
def test_the_check_notices_a_lie(change, value):
    case = simple("hinge", label_cost=2.0)
    worst = solve(case)
    check_distribution(case, worst)
    if np.ndim(value):
        value = np.resize(value, len(worst.weights))
    forged = WorstCase(**{**vars(worst), change: value})
    with pytest.raises(AssertionError):
        check_distribution(case, forged)


@pytest.mark.parametrize("loss", ["hinge", "absolute", "huber", "pinball", "epsilon_insensitive"])
def test_the_supremum_is_attained_from_a_row_on_the_steep_side(loss):
    worst = solve(simple(loss, intercept=-1.0))
    assert worst.attained
    assert worst.gap == 0.0
    assert worst.transport_cost == pytest.approx(0.3, rel=1e-12)


def test_a_logistic_supremum_is_approached():
    case = simple("logistic")
    risk = case.problem.risk(*case.model, *case.data)
    for tol in (1e-3, 1e-5, 1e-9):
        worst = solve(case, tol=tol)
        assert not worst.attained
        assert 0.0 < worst.gap <= tol * max(1.0, risk)
        assert 0.0 < risk - worst.expected_loss <= worst.gap * (1.0 + 1e-6) + 1e-12


def test_flips_come_first_and_the_last_row_is_split():
    """Margins 3 and 1 at label cost 1: the radius flips the first row (mass 1/2) and half of the second."""
    X, y = np.array([[3.0], [-1.0]]), np.array([1.0, -1.0])
    case = Case("hinge", "l2", 1.0, 0.75, np.array([1.0]), 0.0, X, y)
    worst = solve(case)
    check_distribution(case, worst)
    plan = {(int(s), float(label)): float(w) for s, label, w in zip(worst.source, worst.y, worst.weights, strict=True)}
    assert plan == pytest.approx({(0, -1.0): 0.5, (1, -1.0): 0.25, (1, 1.0): 0.25})
    np.testing.assert_array_equal(worst.X, X[worst.source])
    assert worst.expected_loss == pytest.approx(0.5 * 4.0 + 0.25 * 2.0)


@pytest.mark.parametrize("loss", FIRST_ORDER)
def test_radius_zero_returns_the_data(loss):
    case = simple(loss, radius=0.0, label_cost=1.0)
    worst = solve(case)
    np.testing.assert_array_equal(worst.X, case.X)
    np.testing.assert_array_equal(worst.y, case.y)
    np.testing.assert_array_equal(worst.source, np.arange(3))
    assert worst.transport_cost == 0.0
    assert worst.attained


@every_value(norm=list(NORMS), loss=FIRST_ORDER)
def test_dear_features_move_less_and_immovable_ones_not_at_all(loss, norm):
    case, prices = simple(loss, intercept=-1.0, norm=norm, label_cost=3.0), np.array([4.0, np.inf])
    problem = case.problem.replace(norm=get_norm(norm, prices))
    worst = worst_case_distribution(problem, *case.model, *case.data)
    moved = worst.X - case.X[worst.source]
    assert (moved[:, 1] == 0.0).all()
    cost = worst.weights @ (4.0 * np.abs(moved[:, 0]) + 1.5 * np.abs(worst.y - case.y[worst.source]))
    assert cost == pytest.approx(worst.transport_cost, rel=1e-9)
    assert cost <= case.radius * (1.0 + 1e-9)
    assert worst.expected_loss == pytest.approx(problem.risk(*case.model, *case.data), rel=1e-6)


def test_inputs_are_never_modified():
    case = simple("logistic", label_cost=0.5, weights=np.array([1.0, 2.0, 3.0]))
    arrays = (case.X, case.y, case.coef, case.weights)
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    worst = solve(case)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)
        assert not np.shares_memory(worst.X, array)
        assert not np.shares_memory(worst.y, array)


@pytest.mark.parametrize(
    "kind", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array, np.float32, np.asfortranarray]
)
def test_containers_give_the_same_distribution(kind):
    case = simple("logistic", label_cost=1.0)
    expected = solve(case)
    found = worst_case_distribution(case.problem, *case.model, kind(case.X), case.y)
    assert sp.issparse(found.X) == sp.issparse(kind(case.X))
    dense = found.X.toarray() if sp.issparse(found.X) else found.X
    np.testing.assert_allclose(dense, expected.X, rtol=1e-6)
    np.testing.assert_array_equal(found.source, expected.source)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)
    check_distribution(case, found)


def test_wide_sparse_data_stay_sparse():
    rng = np.random.default_rng(0)
    X = sp.random(400, 3000, density=1e-3, random_state=0, format="csr")
    y = np.where(rng.random(400) < 0.5, -1.0, 1.0)
    for norm in NORMS:
        problem = Problem("hinge", radius=0.1, norm=norm, label_cost=0.2)
        coef = rng.standard_normal(3000) * (rng.random(3000) < 0.01)
        worst = worst_case_distribution(problem, coef, 0.0, X, y)
        assert sp.issparse(worst.X)
        assert worst.X.nnz <= 2 * X.nnz + 3000
        assert worst.expected_loss == pytest.approx(problem.risk(coef, 0.0, X, y), rel=1e-6)


@pytest.mark.parametrize("loss", SECOND_ORDER)
def test_order_two_is_refused(loss):
    case = simple("hinge" if loss == "squared_hinge" else "absolute")
    with pytest.raises(ValueError, match="available for transport order 1; this problem has order 2"):
        worst_case_distribution(Problem(loss, radius=0.1), *case.model, *case.data)


def test_bad_input_is_described():
    case = simple("hinge")
    with pytest.raises(ValueError, match="X has 3 rows but y has 2"):
        worst_case_distribution(case.problem, *case.model, case.X, case.y[:2])
    with pytest.raises(ValueError, match="one class only"):
        worst_case_distribution(case.problem, *case.model, case.X, np.ones(3))
    with pytest.raises(ValueError, match="one number per feature"):
        worst_case_distribution(case.problem, np.ones(5), 0.0, case.X, case.y)
    with pytest.raises(ValueError, match="sums to zero"):
        worst_case_distribution(case.problem, *case.model, *case.data, np.zeros(3))


@pytest.mark.parametrize("tol", [-1e-3, np.nan])
def test_a_tolerance_that_cannot_be_used_is_described(tol):
    with pytest.raises((TypeError, ValueError), match="tol must be"):
        solve(simple("logistic"), tol=tol)
