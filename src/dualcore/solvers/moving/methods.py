"""Which of Newton's methods, if any, trains and bounds a problem whose rows are moved one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.solvers.moving.atoms import can_use_atoms, run_atoms
from dualcore.solvers.moving.branches import can_use_branches, run_branches
from dualcore.solvers.moving.decoupled import can_use_curves, can_use_pieces, run_curves, run_pieces
from dualcore.solvers.moving.result import NewtonResult


class NewtonMethod(NamedTuple):
    """A method that closes the gap to a tolerance from a model on, or goes as far as it goes.

    ``run(problem, data, coef, intercept, tol)``; ``needs_start`` says whether the model matters. A certificate asks for
    the gap ``tight`` and is content with ``enough``: beyond it planes take over.
    """

    run: Callable[[Problem, Data, FloatArray, float, float], NewtonResult]
    needs_start: bool
    tight: float = 1e-7
    enough: float = 1e-7


def choose_newton(problem: Problem, data: Data) -> NewtonMethod | None:
    """Return the method for a problem; None where there is none, or the rows are those of a source."""
    if not data.rows.in_memory:
        return None
    if can_use_pieces(problem, data):
        return NewtonMethod(run_pieces, needs_start=False)
    if can_use_curves(problem, data):
        return NewtonMethod(run_curves, needs_start=True)
    if can_use_branches(problem, data):
        return NewtonMethod(run_branches, needs_start=True, tight=1e-6, enough=1e-5)
    if can_use_atoms(problem, data):  # of many rows planes would take minutes
        return NewtonMethod(run_atoms, needs_start=True, tight=1e-5, enough=1e-3)
    return None
