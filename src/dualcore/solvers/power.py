"""Training for powers of the residual, order p: the risk is ``(N + sigma K)^p``, see `dualcore.solvers.rootmean`."""

from __future__ import annotations

from dualcore.geometry import FloatArray
from dualcore.losses import Power
from dualcore.problem import Data, Problem
from dualcore.solvers.base import RawSolution, Solver, able_solver
from dualcore.solvers.cones import DUAL_BOUNDS, ScaledRows
from dualcore.solvers.rootmean import descend

__all__ = ["PowerSolver"]


class PowerSolver(Solver):
    """Descent for ``|r|^p``: a factor of the rows and a cone program of the size of a model for each step."""

    name = "power"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if not isinstance(problem.loss, Power):
            return (
                f"PowerSolver cannot solve {type(problem.loss).__name__}: it takes powers of the residual. "
                f"Use solver='{able_solver(problem)}'."
            )
        if type(problem.geometry.norm) not in DUAL_BOUNDS:
            known = sorted(cls.__name__ for cls in DUAL_BOUNDS)
            return f"PowerSolver knows no cone for the norm {type(problem.geometry.norm).__name__}: use one of {known}."
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        return descend(problem, data, ScaledRows.of(problem, data), start, max_iter)
