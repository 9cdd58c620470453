"""Closed-form problems that have the same optimum as a problem with categories, or a lower one than a box problem.

Let the slopes of the loss be 0, one of absolute value ``Lip``, and at most one of the other sign, as for the hinge and
pinball. The dual problem distributes the mass of every row over slopes and categories. Its objective depends only on
the mass of each row at each slope, and its constraints are that the moments ``M_j[k]``, the sums of slopes at category
``k`` of group ``j``, vanish. Moving a unit of mass changes two moments by at most ``Lip`` each, so group ``j`` costs at
least ``c_j ||M_j||_1 / (2 Lip)``, for the moments of the unmoved rows. If ``Lip`` itself is a slope this cost is
attained by moving mass of this slope away from each ``k`` with ``M_j[k] > 0``, where there is enough: at least
``M_j[k] / Lip``, because the other slopes are not positive. The case of ``-Lip`` is its mirror image. That is the cost
of features that move without limits under l1 with weight ``c_j / 2``. So with an intercept and without a ridge both
problems have the same optimum. For every model the risk with categories is at most that in closed form.
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

__all__ = ["closed_form", "run_closed", "solve_closed", "with_unmoved"]


def closed_form(problem: Problem, data: Data) -> Problem:
    """Return the closed form with the optimum of a problem with categories: see the docstring of the module.

    A category that is encoded by zeros has no column, and a closed form no price for it. The columns of its group then
    have the whole price instead of half of it: the smallest multiplier is at most that of the exact closed form, and
    ``h`` is the same at the multiplier of its optimum. A problem without a closed form is returned as it is.
    """
    family, signs = problem.family, [slope > 0.0 for slope, _ in problem.loss.pieces or () if slope]
    if not isinstance(family, CategoriesFamily) or family.has_limits or not signs or len({*signs}) < len(signs):
        return problem
    # With a single numeric feature all norms agree.
    is_l1 = isinstance(problem.geometry.norm, L1Norm) or data.rows.m - family.one_hot.size <= 1
    if not (is_l1 and problem.fit_intercept and problem.ridge == 0.0 and data.rows.in_memory):
        return problem
    prices = np.ones(data.rows.m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights.copy()
    prices[family.one_hot] = (family.costs * np.where(family.is_dropped, 1.0, 0.5))[family.group_of]
    return problem.without_limits(norm="l1", feature_weights=prices)


def run_closed(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Solve the closed form to ``tol``; a category that is encoded by zeros first gets its own column."""
    family, m, inner, closed = CategoriesFamily.of(problem.family), data.rows.m, data, closed_form(problem, data)
    dropped = [columns for columns, is_dropped in zip(family.columns, family.is_dropped, strict=True) if is_dropped]
    if dropped:
        X = data.rows.take(np.arange(data.rows.n))
        zeros = 1.0 - np.column_stack([X[:, columns].sum(axis=1) for columns in dropped])
        inner = data._replace(rows=as_rows(sp.hstack([X, zeros]).tocsr() if sp.issparse(X) else np.hstack([X, zeros])))
        prices = np.append(np.asarray(closed.geometry.norm.weights), 0.5 * family.costs[family.is_dropped])
        prices[np.concatenate(dropped)] *= 0.5
        closed = closed.replace(feature_weights=prices)
    raw = solve_closed(closed, inner, tol)
    risk, bound = _bounded(closed, inner, raw, tol)
    coef, intercept = raw.coef[:m].copy(), raw.intercept
    for columns, at_zeros in zip(dropped, raw.coef[m:].tolist(), strict=True):
        coef[columns] -= at_zeros
        intercept += at_zeros
    return NewtonResult(coef, intercept, risk.multiplier, risk.value, *bound, [(bound.value, risk.value)])


def with_unmoved(found: NewtonResult, problem: Problem, data: Data) -> NewtonResult:
    """Return the better of a result and the optimum at radius 0, with the better of both bounds.

    At a tiny radius the region that contains the optimum is so large that the allowance for rounding can exceed the
    bound of a plane. The bound at radius 0, where no row moves, has a smaller allowance.
    """
    plain = problem.without_limits(radius=0.0)
    if StructuredSolver().obstacle(plain, data) is not None:
        return found
    raw = solve_closed(plain, data, 1e-9)
    risk, bound = problem.evaluate(raw.coef, raw.intercept, data), _bounded(plain, data, raw, 1e-9)[1]
    return found.joined(NewtonResult(raw.coef, raw.intercept, risk.multiplier, risk.value, *bound, []))


def solve_closed(problem: Problem, data: Data, tol: float) -> RawSolution:
    """Return the optimum of a closed form; the callback is not called, because the risks are of another problem."""
    solver = DescentSolver() if is_wide(problem, data) else StructuredSolver()
    with observed(None):
        return solver.run(problem, data, tol=tol, max_iter=200, start=None)


def _bounded(problem: Problem, data: Data, raw: RawSolution, tol: float) -> tuple[Minimum, Bound]:
    """Return the risk of a model in closed form, and the bound of its dual point, repaired if that is not tight."""
    risk, best = problem.evaluate(raw.coef, raw.intercept, data), Bound(trivial_bound(problem), 0.0)
    bounds = RowBounds(problem, data, risk.value)
    for repair in (False, True):
        if raw.dual is not None and risk.value - best.value > tol * risk.value:
            best = max(best, bounds.bound(raw.dual, repair=repair))
    return risk, best
