"""Choice among Newton's methods for boxes and categories: closed form, atoms, branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import CategoriesFamily
from dualcore.solvers.moving.atoms import run_atoms
from dualcore.solvers.moving.branches import can_use_branches, run_branches
from dualcore.solvers.moving.closedform import closed_form, run_closed, with_unmoved
from dualcore.solvers.moving.extremes import can_lift_moves
from dualcore.solvers.moving.result import NewtonResult

# With more than FEW_NUMBERS numbers (rows times features) a relative gap of 1e-9 per number, at most 1e-4, is accepted
# and no further method is tried. Above _MANY the methods aim at this gap: a smaller one would take minutes.
FEW_NUMBERS, _MANY = 1e4, 1e5

_Run = Callable[[Problem, Data, FloatArray, float, float], NewtonResult]


class NewtonMethod(NamedTuple):
    """Methods that run one after another until the gap is closed.

    ``needs_start``: whether the starting model matters.
    """

    methods: tuple[_Run, ...]
    needs_start: bool

    def run(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
        """Reduce the relative gap to ``tol``; each method starts from the best model so far."""
        numbers = data.rows.n * data.rows.m
        enough = max(tol, min(1e-9 * numbers, 1e-4)) if numbers > FEW_NUMBERS else tol
        asked, tol, first = tol, enough if numbers > _MANY else tol, self.methods[0]
        found = first(problem, data, coef, intercept, asked if first is run_closed else tol)  # which is quick
        for method in self.methods[1:]:
            if found.is_within(enough):
                break
            found = found.joined(method(problem, data, found.coef, found.intercept, tol))
        return found if found.is_within(enough) else with_unmoved(found, problem, data)


def choose_newton(problem: Problem, data: Data) -> NewtonMethod:
    """Return the methods for a problem.

    Branches work on a source with one read per pass. Atoms keep moved rows in memory, so on a source they are used only
    for problems that branches cannot solve.
    """
    methods: list[_Run] = [run_branches] if can_use_branches(problem, data) else []
    is_closed, is_lifted = closed_form(problem, data).family.is_closed, can_lift_moves(problem, data)
    # Atoms come first where a row has few different best moves. With l2 and more features than this the best moves
    # change too often: 350 rows of 64 pixels took more than 70 passes.
    is_few = is_lifted or isinstance(problem.family, CategoriesFamily) or data.rows.m <= 30
    if data.rows.in_memory and is_few:
        methods = [*[run_closed] * is_closed, run_atoms, *methods]
    elif not methods or (data.rows.in_memory and data.rows.n * data.rows.m <= FEW_NUMBERS):
        methods.append(run_atoms)
    return NewtonMethod(tuple(methods), needs_start=not (is_closed or is_lifted))
