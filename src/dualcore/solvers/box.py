"""Training on a box support or with categories, without an auxiliary variable per row and feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from dualcore.certificates.region import unbounded_features
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily, CategoriesFamily
from dualcore.solvers.base import Iterate, RawSolution, Solver, able_solver
from dualcore.solvers.descent import is_wide
from dualcore.solvers.moving.closedform import solve_closed
from dualcore.solvers.moving.methods import FEW_NUMBERS, choose_newton
from dualcore.solvers.moving.narrow import Narrow
from dualcore.solvers.moving.result import NewtonResult

__all__ = ["BoxSolver"]

# The starting points are the optimum without limits and the zero model. The second is tried where the first ends with a
# relative gap above this; on small data wherever the gap is above the tolerance.
_FAR = 0.2


class BoxSolver(Solver):
    """Newton's methods for problems with a support or categories; `choose_newton` picks one.

    Where the rows are in a source, a step takes one or two reads.
    """

    name = "box"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if not problem.family.moves_rows:
            return (
                f"BoxSolver cannot solve {type(problem.loss).__name__} without a support or categories. "
                f"Use solver='{able_solver(problem)}'."
            )
        loose = np.flatnonzero(unbounded_features(problem, data.rows.m))
        if loose.size:
            return (
                f"Nothing bounds the coefficient of feature {loose[0]}: on a support or with categories, features that "
                "cannot move (infinite weight or category cost, or equal limits and no intercept) need ridge > 0."
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        problem, data, *_ = narrow = Narrow.of(problem, data)
        found = _by_newton(problem, data, tol, None if start is None else narrow.inside(*start))
        history = tuple(Iterate(k, upper, upper - lower) for k, (lower, upper) in enumerate(found.history))
        model, near = (found.coef, found.intercept), found.multiplier
        least, _ = BoxFamily.of(problem.family).search(data.rows, data.y, data.weights, *model, near=near)
        risk = least._replace(value=float(least.value + problem.penalty(found.coef)))
        # Whether the allowance for rounding is more than half of the gap.
        withheld = found.ideal - found.lower > 0.5 * (found.upper - found.lower)
        raw = RawSolution(*model, None, len(history), history, lower=found.lower, rounding=found.rounding, risk=risk)
        return replace(raw, coef=narrow.outside(raw.coef), withheld=withheld)


def _by_newton(problem: Problem, data: Data, tol: float, start: tuple[FloatArray, float] | None) -> NewtonResult:
    """Run Newton's method from ``start`` if there is one, and from further points while the gap is too large."""
    newton, is_small = choose_newton(problem, data), data.rows.n * data.rows.m <= FEW_NUMBERS
    starts: list[Callable[[], tuple[FloatArray, float]]] = [partial(_free_optimum, problem, data)]
    starts.insert(int(newton.needs_start), lambda: (np.zeros(data.rows.m), 0.0))
    if start is not None:
        starts.insert(0, lambda: start)
    found = newton.run(problem, data, *starts[0](), tol)
    for other in starts[1:]:
        if found.is_within(tol if is_small else _FAR):
            break
        found = found.joined(newton.run(problem, data, *other(), tol))
    return found


def _free_optimum(problem: Problem, data: Data) -> tuple[FloatArray, float]:
    """Return the optimum of the problem in which features move without limits, which has a closed form of ``h``."""
    family = BoxFamily.of(problem.family)
    free = problem.without_limits(**family.start_changes)
    if isinstance(family, CategoriesFamily) and is_wide(free, data):
        # A start need not be exact: a ridge penalises about as strongly as the norm, and takes far fewer steps.
        free = free.replace(radius=0.0, ridge=problem.ridge + 10.0 * free.radius / data.rows.m)
    model = solve_closed(free, data, family.start_tolerance)
    return model.coef, model.intercept
