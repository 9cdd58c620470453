"""Which of Newton's methods train and bound a problem whose rows are moved one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dualcore.certificates import Bound, RowBounds
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.solvers.base import observed
from dualcore.solvers.moving.atoms import has_few_moves, run_atoms
from dualcore.solvers.moving.branches import can_use_branches, run_branches
from dualcore.solvers.moving.extremes import can_lift_moves
from dualcore.solvers.moving.result import NewtonResult
from dualcore.solvers.structured import StructuredSolver

# Data of more than so many numbers (rows times features) may end with a relative gap of 1e-9 for each number, 1e-4 at
# most, and above the second count Newton's methods do not aim for less: the rest would take minutes.
FEW_NUMBERS, _MANY = 1e4, 1e5

_Run = Callable[[Problem, Data, FloatArray, float, float], NewtonResult]


class NewtonMethod(NamedTuple):
    """Methods that run one after the other until one of them closes the gap.

    ``needs_start``: whether the starting model matters.
    """

    methods: tuple[_Run, ...]
    needs_start: bool

    def run(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
        """Close the gap to ``tol``; a method begins where the one before it ended."""
        numbers = data.rows.n * data.rows.m
        enough = max(tol, min(1e-9 * numbers, 1e-4)) if numbers > FEW_NUMBERS else tol
        tol = enough if numbers > _MANY else tol
        found = self.methods[0](problem, data, coef, intercept, tol)
        for method in self.methods[1:]:
            if found.is_within(enough):
                break
            found = found.joined(method(problem, data, found.coef, found.intercept, tol))
        return found if found.is_within(enough) else _with_unmoved(found, problem, data)


def _with_unmoved(found: NewtonResult, problem: Problem, data: Data) -> NewtonResult:
    """Return a result that is no worse than the optimum of rows that nobody moves, and its bound.

    A tiny radius alone leaves room for so large coefficients that rounding takes all of a bound; the rows say more.
    """
    plain, solver = problem.without_limits(radius=0.0), StructuredSolver()
    if solver.obstacle(plain, data) is not None:
        return found
    with observed(None):
        raw = solver.run(plain, data, tol=1e-9, max_iter=100, start=None)
    risk = problem.evaluate(raw.coef, raw.intercept, data)
    least = plain.evaluate(raw.coef, raw.intercept, data).value
    bound = Bound(0.0, 0.0) if raw.dual is None else RowBounds(plain, data, least).bound(raw.dual)
    return found.joined(NewtonResult(raw.coef, raw.intercept, risk.multiplier, risk.value, *bound, []))


def choose_newton(problem: Problem, data: Data) -> NewtonMethod:
    """Return the methods for a problem.

    Branches take every pass from a source. Atoms keep rows, so there they are left to what has no branches.
    """
    methods: list[_Run] = [run_branches] if can_use_branches(problem, data) else []
    numbers = data.rows.n * data.rows.m
    if data.rows.in_memory and has_few_moves(problem, data):
        methods.insert(0, run_atoms)
    elif not methods or (data.rows.in_memory and numbers <= FEW_NUMBERS):
        methods.append(run_atoms)
    return NewtonMethod(tuple(methods), needs_start=not can_lift_moves(problem, data))
