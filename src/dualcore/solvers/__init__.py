"""Whole-data training: `solve` and the solvers behind it; `certify` and `assess`, because to certify is to train."""

from __future__ import annotations

from dualcore.solvers.assess import assess, certify
from dualcore.solvers.base import IncompatibleError, Iterate, Solution, Solver, Status
from dualcore.solvers.choose import SOLVERS
from dualcore.solvers.solve import solve, solve_quietly

__all__ = [
    "SOLVERS",
    "IncompatibleError",
    "Iterate",
    "Solution",
    "Solver",
    "Status",
    "assess",
    "certify",
    "solve",
    "solve_quietly",
]
