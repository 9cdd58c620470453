"""Training on all rows: `solve` and its solvers; `certify` and `assess`, whose bounds take the same work on boxes."""

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
