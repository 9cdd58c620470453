"""The structured solver: what a general conic solver cannot see, put to use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dualcore.forms import MarginForm
from dualcore.geometry import FloatArray
from dualcore.losses import Logistic
from dualcore.problem import Data, Problem
from dualcore.solvers.base import RawSolution, Solver
from dualcore.solvers.interior import InteriorPoint

__all__ = ["StructuredSolver"]


class StructuredSolver(Solver):
    """Interior point with the rows eliminated: one weighted Gram matrix and O(n) work an iteration.

    Takes every loss of order 1, a user's own included; the squared losses of order 2 go to the conic solver, which
    first compresses the rows they allow it to.
    """

    name = "structured"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if problem.geometry.order != 1:
            return (
                f"StructuredSolver cannot solve {type(problem.loss).__name__}: it takes losses of order 1. "
                "Use solver='conic'."
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        with np.errstate(under="ignore"):
            if (
                not isinstance(problem.form, MarginForm)
                or np.isinf(problem.geometry.label_cost)
                or problem.radius == 0.0
            ):
                return InteriorPoint(problem, data, start).run(tol, max_iter)
            return _flips_last(problem, problem.form, data, tol, max_iter, start)


def _flips_last(
    problem: Problem, form: MarginForm, data: Data, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
) -> RawSolution:
    """Solve without label flips first; where none would pay at that optimum, it is the optimum with flips too.

    Forbidding flips only lowers the risk, so a point whose risk does not change when they are allowed stays optimal. Where some
    pay, solve again from there, giving only the rows near the flip boundary a flip piece if the loss is smooth without it.
    """
    found = InteriorPoint(problem.replace(label_cost=np.inf), data, start).run(tol, max_iter)
    spent, history = found.iterations, found.history
    t, size = problem.signal(found.coef, found.intercept, data), problem.size(found.coef)
    if not form.candidates(t, size)[0].size:
        return found
    multiplier = form.minimise(t, data.weights, size).multiplier
    here = (found.coef, found.intercept)
    attempts: list[npt.NDArray[np.bool_] | None] = [None]
    if isinstance(problem.loss, Logistic):
        attempts = [form.flips(t, share * multiplier) for share in (0.5, 0.25)] + attempts
    for allowed in attempts:
        if allowed is not None and 2 * np.count_nonzero(allowed) > t.size:
            continue
        on = None if allowed is None else np.flatnonzero(allowed[data.masses > 0.0])
        found = InteriorPoint(problem, data, here, on).run(tol, max_iter)
        spent, history = spent + found.iterations, history + found.history
        if found.stopped_early:
            continue
        t, size = problem.signal(found.coef, found.intercept, data), problem.size(found.coef)
        flipping = form.flips(t, form.minimise(t, data.weights, size).multiplier * (1.0 - 1e-9))
        if allowed is None or not (flipping & ~allowed).any():
            return replace(found, iterations=spent, history=history)
    found = InteriorPoint(problem, data).run(
        tol, max_iter
    )  # a start too near the boundary can stall: once more from afar
    return replace(found, iterations=spent + found.iterations, history=history + found.history)
