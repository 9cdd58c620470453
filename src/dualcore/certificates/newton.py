"""Which of Newton's methods, if any, trains and bounds a problem whose rows are moved one by one."""

from __future__ import annotations

from dualcore.certificates.atoms import can_use_atoms, run_atoms
from dualcore.certificates.branches import can_use_branches, run_branches
from dualcore.certificates.plane import NewtonResult
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem

__all__ = ["can_use_newton", "run_newton"]


def can_use_newton(problem: Problem, data: Data) -> bool:
    """Whether there is such a method for this problem; there are planes for all others."""
    return can_use_atoms(problem, data) or can_use_branches(problem, data)


def run_newton(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as the method goes."""
    run = run_branches if can_use_branches(problem, data) else run_atoms
    return run(problem, data, coef, intercept, tol)
