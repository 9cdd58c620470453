"""No lower bound exceeds the optimum, whatever it is made from: any model, any dual point, any data."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, Solution, certify, solve
from dualcore.certificates import DualPoint, lower_bound, trivial_bound
from reference.cases import LOSS_NAMES, MARGIN_LOSSES, Case, cases, small_case, some_model, vectors

# Every example solves a problem: few of them, unless the profile asks for many, and too slow to shrink.
modest = settings(max_examples=settings.default.max_examples // 3, phases=(Phase.explicit, Phase.generate))


@st.composite
def problems(draw: st.DrawFn, max_rows: int = 8) -> tuple[Case, Problem]:
    """A case and its problem, with a ridge and without an intercept at times; both classes weigh: `solve` insists."""
    case = draw(cases(st.sampled_from(LOSS_NAMES), max_rows=max_rows))
    assume(not case.is_classification or len(set(case.y[case.masses > 0.0])) == 2)
    ridge, fit_intercept = draw(st.sampled_from((0.0, 0.0, 0.02, 1.0))), draw(st.sampled_from((True, True, False)))
    return case, case.problem.replace(ridge=ridge, fit_intercept=fit_intercept)


def best(problem: Problem, case: Case) -> Solution:
    """The optimum to 1e-6, or the best model found: its risk is never below the optimum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, case.X, case.y, case.weights)


def assert_below(bound: float, value: float, case: Case) -> None:
    """Fail where a bound exceeds the risk of the best model known by more than rounding."""
    assert bound <= value + 1e-9 * abs(value) + 1e-13 * float(np.abs(case.y).max())


@st.composite
def some_dual(draw: st.DrawFn, problem: Problem, size: int) -> DualPoint:
    """Any dual point: slopes anywhere in their range, shares of flips that need not fit the budget."""
    low, high = (np.clip(end, -9.0, 9.0) for end in problem.loss.slope_range)
    numbers = st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size).map(np.array)
    stay = low + (high - low) * draw(numbers)
    if not problem.is_classification or np.isinf(problem.geometry.label_cost) or draw(st.booleans()):
        return DualPoint(stay)
    share = draw(st.sampled_from((0.01, 0.3, 1.0))) * draw(numbers)
    flip = -(low + (high - low) * draw(numbers))
    return DualPoint((1.0 - share) * stay, share * flip, share)


@modest
@given(problems(), st.data())
def test_no_bound_of_any_model_or_dual_point_is_above_the_optimum(asked, data):
    case, problem = asked
    value = best(problem, case).value
    coef, intercept = data.draw(some_model(case.X.shape[1]))
    stretch = data.draw(st.sampled_from((1.0, 0.0, 0.1, 1e3)))
    model = SimpleNamespace(coef=stretch * coef, intercept=intercept if problem.fit_intercept else 0.0)
    certificate = certify(problem, model, case.X, case.y, case.weights)
    assert certificate.upper == problem.risk(model.coef, model.intercept, case.X, case.y, case.weights)
    assert trivial_bound(problem) <= certificate.lower <= certificate.upper
    assert_below(certificate.lower, value, case)
    rows = problem.validate(case.X, case.y, case.weights)
    point = data.draw(some_dual(problem, len(case.y)))
    upper = problem.evaluate(np.zeros(rows.rows.m), 0.0, rows).value
    for repair in (False, True):
        assert_below(lower_bound(problem, rows, point, upper, repair=repair), value, case)


@modest
@given(problems(max_rows=6), st.data())
def test_the_solver_closes_the_gap_and_its_dual_point_bounds_other_data(asked, data):
    """A solution carries its dual point; on other rows, as many of them, it is a point like any other."""
    case, problem = asked
    own = best(problem, case)
    if problem.radius > 0.0 or problem.ridge > 0.0:  # else there may be no minimiser
        # With flips the bound of a squared hinge may stay loose, as the guide says.
        assert own.converged or (case.loss == "squared_hinge" and np.isfinite(case.label_cost))
        again = certify(problem, own, case.X, case.y, case.weights)
        assert again.upper == own.value
        assert again.lower >= own.lower_bound * (1.0 - 1e-9)
    n, m = case.X.shape
    shift = 0.5 * data.draw(vectors(n * m)).reshape(n, m)
    other = case.replace(X=case.X[::-1] + shift, y=case.y if case.is_classification else case.y + shift[:, 0])
    certificate = certify(problem, best(problem, other), case.X, case.y, case.weights)
    assert certificate.lower <= certificate.upper
    assert_below(certificate.lower, own.value, case)


@pytest.mark.parametrize("loss", MARGIN_LOSSES)
def test_a_bound_that_is_too_high_is_noticed(loss):
    case = small_case(loss)
    value = best(case.problem, case).value
    assert_below(value, value, case)
    with pytest.raises(AssertionError):
        assert_below(value * (1.0 + 1e-6), value, case)
