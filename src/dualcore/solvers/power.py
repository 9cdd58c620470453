"""Training for losses of order p > 1: see `rootmean` where labels stay, and `squaredflips` where they may flip."""

from __future__ import annotations

from contextlib import nullcontext

from dualcore.data.arrays import FloatArray
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Data, Problem
from dualcore.problem.losses import Power, Squared, SquaredHinge
from dualcore.solvers.base import RawSolution, Solver, able_solver
from dualcore.solvers.cones import DUAL_BOUNDS, ScaledRows
from dualcore.solvers.rootmean import descend
from dualcore.solvers.squaredflips import descend_flips

# Up to this many features one thread is quicker.
_FEW_FEATURES = 256


class PowerSolver(Solver):
    """Descent for powers: a factor of the rows and a cone program of the size of a model for each step.

    Takes ``|r|^p``, the squared loss, and the squared hinge.
    """

    name = "power"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        # Only these very classes will do: a subclass may mean another loss.
        if type(problem.loss) not in (Power, Squared, SquaredHinge):
            return (
                f"PowerSolver cannot solve {type(problem.loss).__name__}: it takes powers of the residual and the "
                f"squared hinge. Use solver='{able_solver(problem)}'."
            )
        if type(problem.geometry.norm) not in DUAL_BOUNDS:
            known = sorted(cls.__name__ for cls in DUAL_BOUNDS)
            return f"PowerSolver knows no cone for the norm {type(problem.geometry.norm).__name__}: use one of {known}."
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        # Factors of few columns are too small for BLAS to share: its threads would wait for each other.
        with one_blas_thread() if data.rows.m <= _FEW_FEATURES else nullcontext():
            design = ScaledRows.of(problem, data)
            if problem.family.flips:
                return descend_flips(problem, data, design, start, tol, max_iter)
            return descend(problem, data, design, start, max_iter)
