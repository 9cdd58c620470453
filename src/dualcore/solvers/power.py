"""Training for powers of the residual, order p: the risk is ``(N + sigma K)^p``, see `dualcore.solvers.rootmean`."""

from __future__ import annotations

import numpy as np

from dualcore.certificate import DualPoint
from dualcore.geometry import FloatArray
from dualcore.losses import Power
from dualcore.problem import Data, Problem
from dualcore.solvers.base import Iterate, RawSolution, Solver, able_solver
from dualcore.solvers.cones import DUAL_BOUNDS, ScaledRows
from dualcore.solvers.rootmean import Descent

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
        design = ScaledRows.of(problem, data)
        descent = Descent(problem, design)
        origin = np.zeros(data.rows.m + int(problem.fit_intercept)) if start is None else descent.scaled(*start)
        found = descent.run(origin, tol=tol, max_iter=max_iter)
        coef, intercept = descent.model(found.x)
        factor = design.unit**problem.geometry.order
        history = tuple(
            Iterate(k + 1, factor * risk, factor * risk * max(promised, 0.0))
            for k, (risk, promised) in enumerate(found.history)
        )
        dual = None
        if found.slopes is not None:
            p = problem.geometry.order
            root = (descent.risk(descent.at(found.x))) ** (1.0 / p)
            stay = np.zeros(data.rows.n)
            stay[design.kept] = p * (root * design.unit) ** (p - 1.0) * found.slopes
            dual = DualPoint(stay)
        return RawSolution(coef, intercept, dual, len(history), history, stopped_early=not found.finished)
