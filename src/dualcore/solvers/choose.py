"""Which solver takes a problem."""

from __future__ import annotations

from dualcore.problem import Data, Problem
from dualcore.solvers.base import IncompatibleError, Solver, able_solver
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.conic import ConicSolver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.power import PowerSolver
from dualcore.solvers.structured import StructuredSolver

__all__ = ["SOLVERS", "check_classes", "choose_solver"]

# From this many features on, and this much work for a Newton matrix (rows times features squared, of the smaller of the
# two), descent is the quicker way: `benchmarks/bench_wide.py`. Kinks and flips cost it more steps.
_MANY_FEATURES = 150
_WIDE_SMOOTH, _WIDE = 2e8, 1.5e9

SOLVERS: dict[str, type[Solver]] = {
    cls.name: cls for cls in (StructuredSolver, BoxSolver, PowerSolver, ConicSolver, DescentSolver)
}


def check_classes(problem: Problem, data: Data) -> None:
    """Weights of zero can empty a class that the labels alone do not."""
    if problem.is_classification and data.weights is not None:
        for label in (-1.0, 1.0):
            if not (data.weights[data.y == label] > 0.0).any():
                raise ValueError(f"Every row of class {label:+g} has zero weight; a classifier needs both classes.")


def choose_solver(problem: Problem, data: Data, solver: str, tol: float = 1e-6) -> Solver:
    """Return the solver of a name, or the one that is made for the problem; refuse what it cannot do."""
    if solver == "auto":
        descent = DescentSolver()
        if _is_wide(problem, data) and descent.obstacle(problem, data) is None:
            return descent
        for cls in SOLVERS.values():
            candidate = cls()
            if candidate.obstacle(problem, data) is None:
                return candidate
        reason = BoxSolver().obstacle(problem, data) if not problem.family.is_closed else None
        raise IncompatibleError(reason or f"No solver can take {problem!r}.")
    if solver not in SOLVERS:
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(SOLVERS)}.")
    chosen = SOLVERS[solver]()
    obstacle = chosen.obstacle(problem, data)
    if obstacle is not None:
        raise IncompatibleError(obstacle)
    return chosen


def _is_wide(problem: Problem, data: Data) -> bool:
    """Whether products with the data are cheaper than a few Newton matrices of them; by measurement."""
    n, m = data.rows.n, data.rows.m
    if able_solver(problem) != "structured" or m < _MANY_FEATURES:
        return False
    smooth = not (problem.loss.kinks or problem.family.flips)
    return float(n) * m * min(n, m) >= (_WIDE_SMOOTH if smooth else _WIDE)
