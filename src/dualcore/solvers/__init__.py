"""Whole-data training: `solve` and the solvers behind it."""

from __future__ import annotations

from dualcore.solvers.base import IncompatibleError, Iterate, Solution, Solver, Status
from dualcore.solvers.choose import SOLVERS
from dualcore.solvers.solve import solve, solve_quietly

__all__ = ["SOLVERS", "IncompatibleError", "Iterate", "Solution", "Solver", "Status", "solve", "solve_quietly"]
