"""Which of Newton's methods train and bound a problem whose rows are moved one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import CategoriesFamily
from dualcore.problem.geometry import LinfNorm
from dualcore.solvers.moving.atoms import can_use_atoms, run_atoms
from dualcore.solvers.moving.branches import can_use_branches, run_branches
from dualcore.solvers.moving.extremes import can_lift_moves
from dualcore.solvers.moving.result import NewtonResult, modest_gap

# With linf and a smooth loss atoms are tried first on data of fewer numbers (rows times features).
_FEW_NUMBERS = 5000

_Run = Callable[[Problem, Data, FloatArray, float, float], NewtonResult]


class NewtonMethod(NamedTuple):
    """Methods that run one after the other until one of them closes the gap.

    ``needs_start``: whether the starting model matters. A certificate aims for the relative gap ``tight``; the bundle
    method is started only where the gap is above ``enough``.
    """

    methods: tuple[_Run, ...]
    needs_start: bool
    tight: float = 1e-7
    enough: float = 1e-7

    def run(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
        """Close the gap to ``tol``; a method begins where the one before it ended, and keeps the better bound."""
        tol = modest_gap(data, tol, aimed=True)
        found = self.methods[0](problem, data, coef, intercept, tol)
        for method in self.methods[1:]:
            if found.is_within(tol):
                break
            last, found = found, method(problem, data, found.coef, found.intercept, tol)
            if last.lower > found.lower:
                found = found._replace(lower=last.lower, rounding=last.rounding)
        return found


def choose_newton(problem: Problem, data: Data) -> NewtonMethod | None:
    """Return the methods for a problem; None where there is none, or the rows are those of a source."""
    if not data.rows.in_memory:
        return None
    methods = [run_branches] if can_use_branches(problem, data) else []
    if can_use_atoms(problem, data):  # faster, except where rows have many different moves, as with linf
        is_small = data.rows.n * data.rows.m < _FEW_NUMBERS
        is_first = is_small or not isinstance(problem.geometry.norm, LinfNorm) or problem.loss.pieces is not None
        methods.insert(0 if is_first else len(methods), run_atoms)
    if not methods:
        return None
    if can_lift_moves(problem, data) and problem.radius > 0.0:
        return NewtonMethod(tuple(methods), needs_start=False)
    if isinstance(problem.family, CategoriesFamily):  # of many rows planes would take minutes
        return NewtonMethod(tuple(methods), needs_start=True, tight=1e-5, enough=1e-3)
    return NewtonMethod(tuple(methods), needs_start=True, tight=1e-6, enough=1e-5)
