"""Units change nothing: powers of two in columns, targets and weights leave iterations and every digit as they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualcore import Problem, solve
from pairs import every_value

N, M = 150, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, M))
SCORE = X @ [1.0, -0.5, 0.2]
LABELS = np.where(SCORE + RNG.logistic(size=N) > 0, 1.0, -1.0)
TARGET = SCORE + RNG.standard_t(3, N)
WEIGHTS = RNG.uniform(0.5, 2.0, N)

CLASSIFIERS = ["logistic", "hinge", "smooth_hinge", "squared_hinge"]
REGRESSORS = ["huber", "pinball", "absolute", "epsilon_insensitive", "squared"]
# 2**20 is a little more than 1e6.
EXPONENTS = st.integers(-20, 20)


def run(loss, norm, solver, *, label_cost=np.inf, n=N, boxed=False, column=0, target=0, weight=0):
    """Solve with the second column, the target and the weights times powers of two; return in the old units."""
    factors, c = np.array([1.0, 2.0**column, 1.0]), 2.0**target
    own = {"huber": {"delta": 1.35 * c}, "epsilon_insensitive": {"epsilon": 0.1 * c}}.get(loss, {})
    own |= {"support": (-4.0 * factors, 4.0 * factors)} if boxed else {}
    problem = Problem(loss, radius=0.05, norm=norm, label_cost=label_cost, feature_weights=1.0 / factors, **own)
    y = LABELS if loss in CLASSIFIERS else c * TARGET
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how a solve ends is compared below
        found = solve(problem, X[:n] * factors, y[:n], WEIGHTS[:n] * 2.0**weight, solver=solver)
    power = 2 if loss in ("huber", "squared") else 1
    return found.iterations, found.status, found.value / c**power, *(found.coef * factors / c), found.intercept / c


def solvers_of(loss):
    """Every solver that takes the loss."""
    return ["auto", "conic"] if loss in ("squared", "squared_hinge") else ["structured", "descent", "conic"]


@pytest.mark.parametrize(
    ("loss", "solver"), [(loss, solver) for loss in CLASSIFIERS + REGRESSORS for solver in solvers_of(loss)]
)
@settings(max_examples=4, deadline=None)
@given(st.sampled_from(["l1", "l2", "linf"]), st.sampled_from([np.inf, 2.0]), EXPONENTS, EXPONENTS, EXPONENTS)
def test_powers_of_two_change_no_digit(loss, solver, norm, label_cost, column, target, weight):
    # A unit of target has a price of its own where targets move; labels have no unit.
    target = 0 if loss in CLASSIFIERS or np.isfinite(label_cost) else target
    expected = run(loss, norm, solver, label_cost=label_cost)
    assert run(loss, norm, solver, label_cost=label_cost, column=column, target=target, weight=weight) == expected


@every_value(norm=["l1", "l2", "linf"], loss=["hinge", "absolute"])
def test_powers_of_two_change_no_digit_where_rows_are_fixed_to_pieces(loss, norm):
    """So many rows that the interior point leaves most of them out of its last iterations."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, M))
    score = rows @ [1.0, -0.5, 0.2] + rng.logistic(size=3000)
    y = np.sign(score) if loss == "hinge" else score

    def solved(column, target):
        factors, c = np.array([1.0, 2.0**column, 1.0]), 1.0 if loss == "hinge" else 2.0**target
        problem = Problem(loss, radius=0.05, norm=norm, feature_weights=1.0 / factors)
        found = solve(problem, rows * factors, c * y, solver="structured")
        assert found.converged
        return found.iterations, found.value / c, *(found.coef * factors / c)

    assert solved(19, -17) == solved(-20, 11) == solved(0, 0)


def run_boxed(loss, norm, **units):
    return run(loss, norm, "box", n=40, boxed=True, **units)


BOXED = [loss for loss in CLASSIFIERS + REGRESSORS if not loss.startswith("squared")]


@every_value(norm=["l1", "l2", "linf"], loss=BOXED)
def test_powers_of_two_change_no_digit_on_a_support(loss, norm):
    target = 0 if loss in CLASSIFIERS else 18
    assert run_boxed(loss, norm, target=target, weight=15) == run_boxed(loss, norm)


@every_value(norm=["l1", "l2", "linf"], loss=BOXED)
def test_the_unit_of_a_column_changes_no_iteration_on_a_support(loss, norm):
    iterations, status, *numbers = run_boxed(loss, norm)
    for column in (-20, -13, 13):
        steps, outcome, *found = run_boxed(loss, norm, column=column)
        assert (steps, outcome) == (iterations, status)
        # The linear programme of l1 mixes columns in its sums; all others keep every digit.
        programme = norm == "l1" and loss in ("hinge", "pinball", "absolute", "epsilon_insensitive")
        assert found == (pytest.approx(numbers, rel=1e-11) if programme else numbers)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_powers_of_two_change_no_digit_of_softmax(norm):
    y = np.digitize(SCORE, [-0.5, 0.5])

    def solved(column, weight):
        factors = np.array([1.0, 2.0**column, 1.0])
        problem = Problem("softmax", n_classes=3, radius=0.05, norm=norm, feature_weights=1.0 / factors)
        found = solve(problem, X * factors, y, WEIGHTS * 2.0**weight)
        return found.iterations, found.status, found.value, *(found.coef * factors).ravel(), *found.intercept

    assert solved(20, -13) == solved(0, 0)
