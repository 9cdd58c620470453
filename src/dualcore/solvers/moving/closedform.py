"""Problems of a closed form that have the optimum of a problem with categories, or bound one that moves rows.

Let the slopes of the loss be 0 and ``+-Lip``, as those of the hinge. Then a distribution of moved rows is worth the
mass that it gives to each slope of a row, wherever that mass goes; it must make the moments ``M_j[k]`` vanish, the sums
of slopes at category ``k`` of group ``j``. Mass of slope ``+Lip`` that goes from ``k`` to ``l`` does what mass of slope
``-Lip`` does on the way back. So it is best to move only what is left over at ``k`` once both are taken together, which
is there to be moved, and a group costs ``c_j ||M_j||_1 / (2 Lip)``: as much as features that move anywhere with l1 at a
weight of ``c_j / 2``. So with an intercept and without a ridge both problems have the same optimum. The risk of a model
is no larger with categories than in closed form.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import Bound, RowBounds, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.problem import Data, Problem
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.problem.forms import Minimum
from dualcore.problem.geometry import L1Norm
from dualcore.solvers.base import RawSolution, observed
from dualcore.solvers.descent import DescentSolver, is_wide
from dualcore.solvers.moving.result import NewtonResult
from dualcore.solvers.structured import StructuredSolver

__all__ = ["has_closed_form", "run_closed", "solve_closed", "with_unmoved"]


def has_closed_form(problem: Problem, data: Data) -> bool:
    """Whether a problem with categories has the optimum of a closed form: see the module."""
    family, slopes = problem.family, {abs(slope) for slope, _ in problem.loss.pieces or ()} - {0.0}
    if not isinstance(family, CategoriesFamily) or family.has_limits or len(slopes) != 1:
        return False
    # One number moves alike under every norm.
    is_l1 = isinstance(problem.geometry.norm, L1Norm) or data.rows.m - family.one_hot.size <= 1
    return is_l1 and problem.fit_intercept and problem.ridge == 0.0 and data.rows.in_memory


def run_closed(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Solve the closed form to ``tol``; where zeros are a category, it gets a column of its own first."""
    family, m = CategoriesFamily.of(problem.family), data.rows.m
    dropped = [columns for columns, is_dropped in zip(family.columns, family.is_dropped, strict=True) if is_dropped]
    prices = np.ones(m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights.copy()
    prices[family.one_hot] = 0.5 * family.costs[family.group_of]
    inner = data
    if dropped:
        X = data.rows.take(np.arange(data.rows.n))
        zeros = 1.0 - np.column_stack([X[:, columns].sum(axis=1) for columns in dropped])
        inner = data._replace(rows=as_rows(sp.hstack([X, zeros]).tocsr() if sp.issparse(X) else np.hstack([X, zeros])))
        prices = np.append(prices, 0.5 * family.costs[family.is_dropped])
    closed = problem.without_limits(norm="l1", feature_weights=prices)
    raw = solve_closed(closed, inner, tol)
    risk, bound = _bounded(closed, inner, raw, tol)
    coef, intercept = raw.coef[:m].copy(), raw.intercept
    for columns, at_zeros in zip(dropped, raw.coef[m:].tolist(), strict=True):
        coef[columns] -= at_zeros
        intercept += at_zeros
    history = [(bound.value, risk.value)]
    return NewtonResult(coef, intercept, risk.multiplier, risk.value, *bound, history)


def with_unmoved(found: NewtonResult, problem: Problem, data: Data) -> NewtonResult:
    """Return a result that is no worse than the optimum of rows that nobody moves, and its bound.

    A tiny radius alone leaves room for so large coefficients that rounding takes all of a bound; the rows say more.
    """
    plain = problem.without_limits(radius=0.0)
    if StructuredSolver().obstacle(plain, data) is not None:
        return found
    raw = solve_closed(plain, data, 1e-9)
    risk, bound = problem.evaluate(raw.coef, raw.intercept, data), _bounded(plain, data, raw, 1e-9)[1]
    return found.joined(NewtonResult(raw.coef, raw.intercept, risk.multiplier, risk.value, *bound, []))


def solve_closed(problem: Problem, data: Data, tol: float) -> RawSolution:
    """Return the optimum of a closed form. The callback is not called: the risks are those of another problem."""
    solver = DescentSolver() if is_wide(problem, data) else StructuredSolver()
    with observed(None):
        return solver.run(problem, data, tol=tol, max_iter=200, start=None)


def _bounded(problem: Problem, data: Data, raw: RawSolution, tol: float) -> tuple[Minimum, Bound]:
    """Return the risk of a model in closed form, and the bound of its dual point, repaired where it is not near."""
    risk, best = problem.evaluate(raw.coef, raw.intercept, data), Bound(trivial_bound(problem), 0.0)
    bounds = RowBounds(problem, data, risk.value)
    for repair in (False, True):
        if raw.dual is not None and risk.value - best.value > tol * risk.value:
            best = max(best, bounds.bound(raw.dual, repair=repair))
    return risk, best
