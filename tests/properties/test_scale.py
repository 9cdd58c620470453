"""Units change nothing: powers of two in columns, targets and weights leave iterations and every digit as they are."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualcore import Problem, solve
from pairs import every_value

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
TARGET = X @ [1.0, -0.5, 0.2] + RNG.standard_t(3, 3000)
CLASSES = np.digitize(X @ [1.0, -0.5, 0.2], [-0.5, 0.5])
WEIGHTS = RNG.uniform(0.5, 2.0, 3000)

CLASSIFIERS = ["logistic", "hinge", "smooth_hinge", "squared_hinge", "softmax"]
REGRESSORS = ["huber", "pinball", "absolute", "epsilon_insensitive", "squared"]
# 2**20 is a little more than 1e6.
EXPONENTS = st.integers(-20, 20)


def run(loss, norm, solver, *, label_cost=np.inf, n=150, boxed=False, column=0, target=0, weight=0):
    """Solve with the second column, the target and the weights times powers of two; return in the old units."""
    factors, c = np.array([1.0, 2.0**column, 1.0]), 1.0 if loss in CLASSIFIERS else 2.0**target
    parameters = {
        "huber": {"delta": 1.35 * c},
        "epsilon_insensitive": {"epsilon": 0.1 * c},
        "softmax": {"n_classes": 3},
    }
    own = parameters.get(loss, {}) | ({"support": (-4.0 * factors, 4.0 * factors)} if boxed else {})
    problem = Problem(loss, radius=0.05, norm=norm, label_cost=label_cost, feature_weights=1.0 / factors, **own)
    y = CLASSES if loss == "softmax" else np.sign(TARGET) if loss in CLASSIFIERS else c * TARGET
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how a solve ends is compared below
        found = solve(problem, X[:n] * factors, y[:n], WEIGHTS[:n] * 2.0**weight, solver=solver)
    value = found.value / c ** (2 if loss in ("huber", "squared") else 1)
    return found.iterations, found.status, value, *np.ravel(found.coef * factors / c), *np.ravel(found.intercept / c)


def solvers_of(loss):
    """Every solver that takes the loss."""
    several = {"softmax": ["auto"], "squared": ["auto", "conic"], "squared_hinge": ["auto", "conic"]}
    return several.get(loss, ["structured", "descent", "conic"])


@pytest.mark.parametrize(
    ("loss", "solver"), [(loss, solver) for loss in CLASSIFIERS + REGRESSORS for solver in solvers_of(loss)]
)
@settings(max_examples=3, deadline=None)
@given(st.sampled_from(["l1", "l2", "linf"]), st.sampled_from([np.inf, 2.0]), EXPONENTS, EXPONENTS, EXPONENTS)
def test_powers_of_two_change_no_digit(loss, solver, norm, label_cost, column, target, weight):
    # A unit of target has a price of its own where targets move.
    target = 0 if np.isfinite(label_cost) else target
    expected = run(loss, norm, solver, label_cost=label_cost)
    assert run(loss, norm, solver, label_cost=label_cost, column=column, target=target, weight=weight) == expected


@every_value(norm=["l1", "l2", "linf"], loss=["hinge", "absolute"])
def test_powers_of_two_change_no_digit_where_rows_are_fixed_to_pieces(loss, norm):
    """So many rows that the interior point leaves most of them out of its last iterations."""
    expected = run(loss, norm, "structured", n=3000)
    for column, target in ((19, -17), (-20, 11)):
        assert run(loss, norm, "structured", n=3000, column=column, target=target) == expected


run_boxed = partial(run, solver="box", n=30, boxed=True)
BOXED = [loss for loss in CLASSIFIERS + REGRESSORS if not loss.startswith("s") or loss == "smooth_hinge"]


@every_value(norm=["l1", "l2", "linf"], loss=BOXED)
def test_units_change_no_digit_and_no_iteration_on_a_support(loss, norm):
    iterations, status, *numbers = run_boxed(loss, norm)
    assert run_boxed(loss, norm, target=18, weight=15) == (iterations, status, *numbers)
    for column in (-20, 13):
        steps, outcome, *found = run_boxed(loss, norm, column=column)
        assert (steps, outcome) == (iterations, status)
        # The linear programme of l1 mixes columns in its sums; all others keep every digit.
        programme = norm == "l1" and loss in ("hinge", "pinball", "absolute", "epsilon_insensitive")
        assert found == (pytest.approx(numbers, rel=1e-11) if programme else numbers)
