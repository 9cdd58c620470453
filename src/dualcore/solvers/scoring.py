"""The evaluation of the result of a solver: exact risk, lower bound, and status."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.certificates import Bound, RowBounds, RowLevelSet, dual_point, trivial_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.base import RawSolution, Solution, Status

# Bounds in the order in which they are tried: whether the solver's dual point is used (else that of the slopes at the
# model), whether it is repaired, and whether the repair aims at the moment with which the model would be optimal.
_ATTEMPTS = (
    (True, False, False),
    (True, True, False),
    (False, True, False),
    (True, True, True),
    (False, True, True),
)


def score(
    problem: Problem, normal: Normal, raw: RawSolution, solver: str, tol: float, max_iter: int, began: float
) -> Solution:
    """Evaluate the point exactly, bound the optimum from below, and return both with a status.

    The model is converted to the units of the user and back before it is evaluated, so the value includes the rounding
    of the model that is returned.
    On a support and with categories the lower bound is the one that the solver computed.
    """
    inner, data = normal.problem, normal.data
    exact = _fitted(inner, data, raw)
    coef, intercept = normal.outside(*exact)
    theta, offset = normal.inside(coef, intercept)
    known = raw.risk if np.array_equal(theta, raw.coef) and np.array_equal(offset, raw.intercept) else None
    value, multiplier = inner.evaluate(theta, offset, data) if known is None else known
    best, dual, error = Bound(max(trivial_bound(inner), raw.lower), raw.rounding), raw.dual, raw.rounding
    withheld = raw.withheld
    if inner.family.is_closed:
        bounds = RowBounds(inner, data, value)
        error = bounds.level_set.risk_error(theta, offset)
        # A gap below the rounding error of the risk counts as zero.
        goal = max(tol * abs(value), error)
        for given, repair, aim in _ATTEMPTS:
            if value - best.value <= goal:
                break
            point = raw.dual
            if not given:
                point = dual_point(inner, inner.signal(theta, offset, data), data, inner.size(theta))
            if point is not None:
                bound = bounds.bound(point, repair=repair, coef=theta if aim else None)
                best, dual = (bound, point) if bound > best else (best, dual)
        withheld = bounds.level_set.withheld
    elif inner.family.n_outputs > 1:
        error = ClassDesign.of(inner, data).risk_error(theta, offset, value)
        goal = max(tol * abs(value), error)
    else:
        plain = RowLevelSet(inner.without_limits(), data, value)
        error = plain.risk_error(theta, offset) + inner.family.enclosure
        goal = max(tol * abs(value), plain.risk_error(theta, offset))
    lower = min(best.value, value)
    status = Status.OPTIMAL
    if runs_away(inner, data, theta, offset):
        status = Status.UNBOUNDED
    elif value - lower > goal:
        limit = max_iter if raw.limit is None else raw.limit
        status = Status.MAX_ITER if raw.iterations >= limit else Status.INACCURATE
        # Rounding is the reason if the allowance for it is most of the gap, if it rules out any bound, or if the model
        # loses too many digits in the units of the user.
        lost = 0.0
        if normal.centre is not None or normal.target_shift != 0.0:
            lost = value - inner.evaluate(*exact, data).value
        withheld = withheld or max(best.rounding, lost) > 0.5 * (value - lower)
        if withheld:
            status = Status.UNCERTIFIED
    factor = normal.factor
    history = raw.history
    if factor != 1.0:
        history = tuple(replace(each, value=factor * each.value, gap=factor * each.gap) for each in history)
    return Solution(
        coef=coef,
        intercept=intercept,
        dual_variable=factor * multiplier,
        value=factor * value,
        lower_bound=factor * lower,
        gap=factor * (value - lower),
        status=status,
        solver=solver,
        iterations=raw.iterations,
        history=history,
        seconds=time.perf_counter() - began,
        dual=None if dual is None else dual.times(normal.slope_unit),
        rounding=factor * (best.rounding + error),
        problem=problem,
    )


def _fitted(problem: Problem, data: Data, raw: RawSolution) -> tuple[FloatArray, Any]:
    """Return the model, or one with an exact fit where the model nearly has one.

    Without a penalty an exact fit is optimal, and an interior-point method only approaches it. A target of zeros is
    fitted exactly by the zero model, which also has the smallest penalty. Without a penalty, positive margins are
    scaled up until the loss is zero, if the loss is zero at some margin.
    """
    if problem.family.n_outputs > 1:
        return raw.coef, raw.intercept
    free, has_mass = problem.radius == 0.0 and problem.ridge == 0.0, data.masses > 0.0
    if problem.is_classification:
        factor = _lengthening(problem, problem.signal(raw.coef, raw.intercept, data)[has_mass]) if free else 1.0
        return factor * raw.coef, factor * raw.intercept
    if not data.y[has_mass].any():
        nothing = np.zeros(data.rows.m), 0.0
        kept = problem.evaluate(raw.coef, raw.intercept, data).value < problem.evaluate(*nothing, data).value
        return (raw.coef, raw.intercept) if kept else nothing
    # An exact fit is computed only for data of at most this many numbers.
    if not free or not data.rows.in_memory or data.rows.n * data.rows.m > 1_000_000:
        return raw.coef, raw.intercept
    left = problem.signal(raw.coef, raw.intercept, data)
    if np.abs(left[has_mass]).max() > 1e-6 * np.abs(data.y[has_mass]).max():
        return raw.coef, raw.intercept
    X = np.vstack([block for _, block in data.rows.dense_blocks()])[has_mass]
    columns = np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X
    change = np.linalg.lstsq(columns, -left[has_mass], rcond=None)[0]
    coef = raw.coef + change[: data.rows.m]
    intercept = raw.intercept + float(change[-1]) if problem.fit_intercept else raw.intercept
    better = problem.evaluate(coef, intercept, data).value < problem.evaluate(raw.coef, raw.intercept, data).value
    return (coef, intercept) if better else (raw.coef, raw.intercept)


def _lengthening(problem: Problem, margins: FloatArray) -> float:
    """Return a factor on the margins that makes every loss zero; 1 if all are zero already or no factor does."""
    least = float(margins.min(initial=np.inf))
    # Smaller margins would overflow the factor.
    if not least > 1e-150 or not problem.loss.slope(margins).any():
        return 1.0
    for goal in 2.0 ** np.arange(1, 10, 2):  # the logistic loss vanishes at none of these margins
        if not problem.loss.value(goal / least * margins).any():
            return float(goal / least)
    return 1.0


def runs_away(problem: Problem, data: Data, coef: FloatArray, intercept: Any) -> bool:
    """Whether scaling the model up always lowers the risk: separable data without a penalty on coefficients."""
    if not problem.is_classification or problem.radius > 0.0 or problem.ridge > 0.0:
        return False
    if problem.family.n_outputs > 1:  # below log 2 every other class has a smaller score
        losses = problem.family.losses(data.rows, data.y, coef, intercept)
        return bool((losses[data.masses > 0.0] < np.log(2.0)).all())
    if not problem.loss.value(np.array([100.0])).any():  # the loss of large margins is zero: a minimum is attained
        return False
    margins = problem.signal(coef, intercept, data)[data.masses > 0.0]
    return bool((margins > 0.0).all())
