"""The published way to train with categories, as a referee: cutting planes over cone programmes with CVXPY.

Selvi, Belbasi, Haugh and Wiesemann (Wasserstein logistic regression with mixed features, NeurIPS 2022) state

    min over theta, b, lam, s of   radius lam + mean s_i,     lam >= ||theta_num||_* ,
    L(y' (theta . x' + b)) <= s_i + lam cost(x', y')          for every row i, assignment x' and label y' ,

which has a constraint for every assignment of every row. They solve it with few of them, find for every row the one
that is violated most, add it, and solve again. The mean violation bounds how far the value is from the optimum.

Nothing of dualcore is called here. Logistic loss; numbers move at the l1 norm.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

__all__ = ["Answer", "cutting_planes", "worst_assignments"]

# Digits asked of the solver, fewer where it gives up: both answers are compared to 1e-4.
ACCURACIES = (1e-8, 1e-6)
# Before the assignments that matter are known the rows may be separable: a limit keeps coefficients finite until then.
# It is raised where the answer reaches it. With 10 the solver gives up at 250 rows of a9a.
FIRST_LIMIT = 3.0
# Constraints violated by less are not added.
LEAST_VIOLATION = 1e-9


class Answer(NamedTuple):
    """What the programme found: the optimum is between ``value`` and ``value + violation``."""

    value: float
    violation: float
    rounds: int
    constraints: int
    seconds: float
    finished: bool


def worst_assignments(
    coef: Any, intercept: float, lam: float, X: Any, label: Any, groups: Sequence[Sequence[int | None]], costs: Any
) -> tuple[Any, Any, Any]:
    """Return the largest ``L(label score) - lam cost`` of every row over its assignments, these rows, and their costs.

    Changing a set of groups costs the sum of their prices, and takes the sum of their gains off the margin. Of all sets
    as long as another only the ones with the largest gain per price can be best, so that prefixes are enough.
    """
    n, g = len(label), len(groups)
    gains, target = np.zeros((n, g)), np.zeros((n, g), dtype=int)
    for j, group in enumerate(groups):
        of = np.array([0.0 if column is None else coef[column] for column in group])
        has = np.column_stack([np.zeros(n) if column is None else X[:, column] for column in group])
        if None in group:
            has[:, list(group).index(None)] = 1.0 - has.sum(axis=1)
        smallest, largest = int(of.argmin()), int(of.argmax())
        target[:, j] = np.where(label > 0.0, smallest, largest)
        gains[:, j] = label * (has @ of - of[target[:, j]])
    order = np.argsort(-gains / costs, axis=1, kind="stable")
    taken = np.hstack([np.zeros((n, 1)), np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1)])
    paid = np.hstack([np.zeros((n, 1)), np.cumsum(costs[order], axis=1)])
    values = np.logaddexp(0.0, taken - (label * (X @ coef + intercept))[:, None]) - lam * paid
    length = values.argmax(axis=1)
    moved = X.copy()
    for j, group in enumerate(groups):
        changed = np.flatnonzero((np.argsort(order, axis=1)[:, j] < length) & (gains[:, j] > 0.0))
        moved[np.ix_(changed, [column for column in group if column is not None])] = 0.0
        for k, column in enumerate(group):
            if column is not None:
                moved[changed[target[changed, j] == k], column] = 1.0
    rows = np.arange(n)
    return values[rows, length], moved, paid[rows, length]


def _solve(program: Any, seconds: float) -> bool:
    """Solve a programme and say whether there is an answer; fewer digits are asked for where the solver gives up."""
    import cvxpy as cp

    end = time.perf_counter() + seconds
    for accuracy in ACCURACIES:
        settings = {name: accuracy for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas")}
        left = end - time.perf_counter()
        if left <= 0.0:
            return False
        with warnings.catch_warnings(), contextlib.suppress(cp.SolverError):
            warnings.simplefilter("ignore")  # an inaccurate answer shows in the violation of the next round
            program.solve(solver=cp.CLARABEL, time_limit=left, **settings)
            if program.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                return True
    return False


def cutting_planes(
    X: Any,
    y: Any,
    groups: Sequence[Sequence[int | None]],
    costs: Any,
    *,
    radius: float,
    label_cost: float = np.inf,
    tol: float,
    seconds: float,
) -> Answer:
    """Solve the programme until its mean violation is at most ``tol`` times its value, or until the time is over."""
    import cvxpy as cp

    began, (n, m) = time.perf_counter(), X.shape
    costs = np.broadcast_to(np.asarray(costs, float), len(groups))
    coef, shift, lam, s = cp.Variable(m), cp.Variable(), cp.Variable(nonneg=True), cp.Variable(n)
    limit = cp.Parameter(nonneg=True, value=FIRST_LIMIT)
    constraints = [cp.abs(coef) <= limit]
    numbers = np.setdiff1d(np.arange(m), [column for group in groups for column in group if column is not None])
    if numbers.size:
        constraints.append(lam >= cp.norm(coef[numbers], "inf"))
    count, rounds, value, violation = 0, 0, -np.inf, np.inf

    def add(rows: Any, there: Any, label: Any, cost: Any) -> None:
        nonlocal count
        score = sparse.csr_array(there) @ coef + shift
        constraints.append(s[rows] >= cp.logistic(-cp.multiply(label, score)) - cost * lam)
        count += len(label)

    def answer(finished: bool) -> Answer:
        return Answer(value, violation, rounds, count, time.perf_counter() - began, finished)

    add(np.arange(n), X, y, np.zeros(n))
    flips = (1.0,) if np.isinf(label_cost) else (1.0, -1.0)
    while True:
        left = seconds - (time.perf_counter() - began)
        if left <= 0.0:
            return answer(False)
        program = cp.Problem(cp.Minimize(radius * lam + cp.sum(s) / n), constraints)
        if not _solve(program, seconds - (time.perf_counter() - began)):
            return answer(False)
        rounds, value = rounds + 1, float(program.value)
        beyond = np.zeros(n)
        for flip in flips:
            price = 0.0 if flip > 0.0 else label_cost
            at = coef.value, float(shift.value), float(lam.value)
            found, there, cost = worst_assignments(*at, X, flip * y, groups, costs)
            excess = found - price * at[2] - s.value
            beyond = np.maximum(beyond, excess)
            rows = np.flatnonzero(excess > LEAST_VIOLATION)
            if rows.size:
                add(rows, there[rows], flip * y[rows], cost[rows] + price)
        violation = float(beyond.mean())
        if violation <= tol * value:
            if np.abs(coef.value).max() < 0.999 * limit.value:
                return answer(time.perf_counter() - began <= seconds)
            limit.value *= 4.0
