"""Choice of the solver for a problem."""

from __future__ import annotations

from dualcore.certificates.rounding import free_features
from dualcore.problem import Data, Problem
from dualcore.problem.losses import Squared
from dualcore.solvers.base import IncompatibleError, Solver
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.conic import ConicSolver
from dualcore.solvers.descent import DescentSolver, is_wide
from dualcore.solvers.softmax import ClassDescentSolver, ClassNewtonSolver
from dualcore.solvers.structured import StructuredSolver

SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (StructuredSolver, BoxSolver, DescentSolver, ConicSolver)}


# The same for problems of many classes.
CLASS_SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (ClassDescentSolver, ClassNewtonSolver)}


def solvers_for(problem: Problem) -> dict[str, type[Solver]]:
    """Return the solvers by name, in the order in which they are tried: those of softmax, or of one score per row."""
    return CLASS_SOLVERS if problem.family.n_outputs > 1 else SOLVERS


def choose_solver(problem: Problem, data: Data, solver: str) -> Solver:
    """Return the solver of a given name, or for "auto" the first that takes the problem.

    Raises IncompatibleError if the named solver, or every solver, has an obstacle.
    """
    solvers = solvers_for(problem)
    if solver == "auto":
        first: list[type[Solver]] = []
        if is_wide(problem, data):
            first = [DescentSolver]
        elif problem.family.n_outputs == 1 and _suits_cones(problem, data):
            first = [ConicSolver]
        order = list(solvers.values())
        if problem.family.n_outputs > 1 and _suits_newton(problem, data):
            order.reverse()
        for cls in (*first, *order):
            candidate = cls()
            if candidate.obstacle(problem, data) is None:
                return candidate
        reason = BoxSolver().obstacle(problem, data) if not problem.family.is_closed else None
        raise IncompatibleError(reason or f"No solver can take {problem!r}.")
    if solver not in solvers:
        kind = " for a softmax problem" if problem.family.n_outputs > 1 else ""
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(solvers)}{kind}.")
    chosen = solvers[solver]()
    obstacle = chosen.obstacle(problem, data)
    if obstacle is not None:
        raise IncompatibleError(obstacle)
    return chosen


def _suits_newton(problem: Problem, data: Data) -> bool:
    """Whether Newton's method comes first for a softmax problem: few parameters and label flips, or free coefficients.

    Where a coefficient has no penalty, descent has no lower bound.
    """
    # Measured: with label flips Newton's method is faster than descent up to about this many parameters.
    few = problem.family.n_outputs * (data.rows.m + 1) <= 100
    return (few and problem.family.flips) or bool(free_features(problem, data.rows.m).any())


def _suits_cones(problem: Problem, data: Data) -> bool:
    """Whether the cone program comes first: a small squared loss, or an order above 1 and rows that may fit exactly.

    The cone program of a squared loss is more accurate where columns are nearly dependent. Descent stalls near an exact
    fit, where the risk of order above 1 is flat.
    """
    n, m = data.rows.n, data.rows.m
    fitted = n <= m and n * m <= 200_000 and problem.radius > 0.0 and not problem.family.linear_in_multiplier
    return fitted or (isinstance(problem.loss, Squared) and n * m <= 2_000)


def fold_tolerance(problem: Problem, data: Data, solver: str, tol: float) -> float:
    """Return the relative gap for models that are only scored on held-out rows, or used for their slopes.

    It is ``tol``, but at least 1e-3 where the solver is "descent" and for families without a closed form. The held-out
    loss changes by far less than folds differ. It saves most of the time at small radii, where the risk is near zero.

    Examples
    --------
    >>> import numpy as np
    >>> data = Problem("logistic").validate(np.eye(4), np.array([1.0, 1.0, -1.0, -1.0]))
    >>> fold_tolerance(Problem("logistic"), data, "auto", 1e-6)
    1e-06
    >>> fold_tolerance(Problem("logistic"), data, "descent", 1e-6)
    0.001
    """
    # For descent every further digit takes several times as long as the one before.
    is_slow = problem.family.moves_rows or choose_solver(problem, data, solver).name == DescentSolver.name
    return max(tol, 1e-3) if is_slow else tol
