"""The worst-case distribution: inside the ball, as bad as the risk says, and honest about what it falls short of."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, WorstCase, worst_case_distribution
from reference.cases import FIRST_ORDER, NORMS, SECOND_ORDER, Case, for_every_geometry, small_case
from reference.worst_cases import check_distribution

MODEL = {"coef": np.array([1.0, -0.5]), "radius": 0.3, "label_cost": np.inf}


def solve(case: Case, rows=None, **options) -> WorstCase:
    rows = case.X if rows is None else rows
    return worst_case_distribution(case.problem, *case.model, rows, case.y, case.weights, **options)


def check(case: Case, worst: WorstCase) -> None:
    check_distribution(case.problem, case.model, *case.data, case.weights, worst)
    assert worst.attained == (worst.gap == 0.0)


def check_dense_and_sparse(case: Case) -> None:
    check(case, solve(case))
    sparse = solve(case, sp.csr_matrix(case.X))
    assert sp.issparse(sparse.X)
    check(case, sparse)


@pytest.mark.parametrize("loss", FIRST_ORDER)
def test_random_distributions_are_as_bad_as_the_risk_says(loss):
    """7 * 3 * 4 * 4 = 336 problems."""
    for_every_geometry(loss, 4, check_dense_and_sparse)


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
    case = small_case("hinge", **MODEL | {"label_cost": 2.0})
    worst = solve(case)
    check(case, worst)
    if np.ndim(value):
        value = np.resize(value, len(worst.weights))
    forged = WorstCase(**{**vars(worst), change: value})
    with pytest.raises(AssertionError):
        check(case, forged)


@pytest.mark.parametrize("loss", ["hinge", "absolute", "huber", "pinball", "epsilon_insensitive"])
def test_the_supremum_is_attained_from_a_row_on_the_steep_side(loss):
    worst = solve(small_case(loss, **MODEL, intercept=-1.0))
    assert worst.attained
    assert worst.transport_cost == pytest.approx(0.3, rel=1e-12)


def test_a_logistic_supremum_is_approached():
    case = small_case("logistic", **MODEL)
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
    check(case, worst)
    plan = {(int(s), float(label)): float(w) for s, label, w in zip(worst.source, worst.y, worst.weights, strict=True)}
    assert plan == pytest.approx({(0, -1.0): 0.5, (1, -1.0): 0.25, (1, 1.0): 0.25})
    np.testing.assert_array_equal(worst.X, X[worst.source])


def odd_cases():
    """Yield problem, model, data and tolerance."""
    X, y, ends = np.array([[100.0, 0.0], [-100.0, 50.0]]), np.array([1.0, -1.0]), np.array([np.inf, 1.0])
    for loss, norm in product(FIRST_ORDER, NORMS):
        case = small_case(loss, **MODEL | {"intercept": -1.0, "norm": norm, "label_cost": 3.0})
        yield case.problem.replace(feature_weights=[4.0, np.inf]), case.model, case.data, 1e-7
        yield case.problem.replace(radius=0.0), case.model, case.data, 1e-7
    # The radius flips the one row that the open side hurts: a vanishing mass of the other is flipped and moved.
    for loss, norm, radius, coef in product(["hinge", "logistic"], NORMS, [0.01, 1e3], [[-50.0, 0.0], [-4.0, 9.0]]):
        problem = Problem(loss, radius=radius, label_cost=min(radius, 1.0), norm=norm, support=(-np.ones(2), ends))
        yield problem, (np.array(coef), 1.0), (0.0 * X, y), 1e-7
    # A row of equal worth at its place and at a corner, up to rounding: a part of it moves.
    problem = Problem("smooth_hinge", radius=1e-3, norm="l1", support=([-100.0, -300.0], [300.0, 200.0]))
    yield problem.replace(feature_weights=[0.3, 1.0]), (np.array([0.2, 0.1]), 0.0), (X, y), 1e-7
    # A row that has another class already is moved in that of the data.
    problem = Problem("softmax", n_classes=3, radius=0.3, label_cost=0.1)
    model = np.array([[2.0], [0.0], [0.0]]), np.array([2.0, -4.0, 2.0])
    yield problem, model, (np.arange(3.0)[:, None], np.arange(3.0)), 0.1


@pytest.mark.parametrize(("problem", "model", "data", "tol"), [*odd_cases()])
def test_prices_limits_ties_and_no_radius(problem, model, data, tol):
    worst = worst_case_distribution(problem, *model, *data, tol=tol)
    check_distribution(problem, model, *data, None, worst, tol=tol)
    assert worst.attained or problem.radius > 0.0


def test_inputs_are_never_modified():
    case = small_case("logistic", label_cost=0.5, weights=np.array([1.0, 2.0, 3.0]))
    arrays = (case.X, case.y, case.coef, case.weights)
    for array in arrays:
        array.flags.writeable = False  # a write raises
    worst = solve(case)
    for array in arrays:
        assert not np.shares_memory(worst.X, array)
        assert not np.shares_memory(worst.y, array)


@pytest.mark.parametrize("kind", [sp.csc_matrix, sp.csr_array, np.float32, np.asfortranarray])
def test_containers_give_the_same_distribution(kind):
    case = small_case("logistic", **MODEL | {"label_cost": 1.0})
    expected, found = solve(case), solve(case, kind(case.X))
    assert sp.issparse(found.X) == sp.issparse(kind(case.X))
    dense = found.X.toarray() if sp.issparse(found.X) else found.X
    np.testing.assert_allclose(dense, expected.X, rtol=1e-6)
    np.testing.assert_array_equal(found.source, expected.source)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)


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


def test_what_cannot_be_done_is_described():
    case = small_case("hinge", **MODEL)
    for change, message in [
        ({"y": case.y[:2]}, "X has 3 rows but y has 2"),
        ({"y": np.ones(3)}, "one class only"),
        ({"coef": np.ones(5)}, "one number per feature"),
        ({"weights": np.zeros(3)}, "sums to zero"),
        *(({"loss": loss}, "available for transport order 1; this problem has order 2") for loss in SECOND_ORDER),
    ]:
        with pytest.raises(ValueError, match=message):
            solve(case.replace(**change))
    for tol in (-1e-3, np.nan):
        with pytest.raises(ValueError, match="tol must be"):
            solve(case, tol=tol)
