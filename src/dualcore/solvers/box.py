"""Training on a box support or with categories, without an auxiliary variable per row and feature."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dualcore.certificates import dual_point, lower_bound
from dualcore.certificates.region import unbounded_features
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers.base import Iterate, RawSolution, Solver, able_solver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.moving.bundle import Bundle
from dualcore.solvers.moving.methods import NewtonMethod, choose_newton
from dualcore.solvers.moving.narrow import Narrow
from dualcore.solvers.moving.result import NewtonResult
from dualcore.solvers.structured import StructuredSolver

__all__ = ["BoxSolver"]

# A step of the bundle is worth less than one of an interior point, and costs far less: allow this many for one.
_STEPS = 5
# How near the problem without walls is solved before planes, and the risk of its optimum found.
_START = 1e-4
# A start this much above what is known to be possible, relatively, is compared with those at shares of the radius;
# where data are this small, passes of the bundle cost less than more starts.
_FAR, _RADII, _SMALL = 0.2, (0.1, 0.01), 2000
# Shares of the radius whose optima without walls Newton's methods begin with, one after the other.
_SHARES = (1.0, 0.3)
# Work for a Newton matrix, rows times features squared, from which on descent finds a start sooner.
_WIDE = 2e8
# A risk of this share of the other is nothing beside it.
_NOTHING = 1e-6


class _ScoredModel(NamedTuple):
    """A model, its risk and the multiplier there."""

    value: float
    multiplier: float
    model: tuple[FloatArray, float]


def _scored(problem: Problem, data: Data, model: tuple[FloatArray, float]) -> _ScoredModel:
    """Return a model with its risk, or a little more: it is only a start."""
    least, _ = BoxFamily.of(problem.family).search(data.rows, data.y, data.weights, *model, sharpness=_START)
    return _ScoredModel(least.value + problem.penalty(model[0]), least.multiplier, model)


class BoxSolver(Solver):
    """Newton's methods and a level bundle method for problems with a support or categories.

    The first where there is one for the problem (`choose_newton`). Planes finish what it leaves, and do the rest: one
    pass over the rows a step, O(n + m) memory beyond them, from the best of a few optima without support or categories.
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
                "cannot move (infinite weight or category cost, or walls without room and no intercept) need ridge > 0."
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        narrow = Narrow.of(problem, data)
        start = None if start is None else narrow.inside(*start)
        found = self._run(narrow.problem, narrow.data, tol, max_iter, start)
        return replace(found, coef=narrow.outside(found.coef))

    def _run(
        self, problem: Problem, data: Data, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        reached, first = 0.0, start
        newton = choose_newton(problem, data)
        if newton is not None:
            found = self._by_newton(newton, problem, data, tol, max_iter, start)
            if found.is_within(tol):
                history = tuple(Iterate(k, upper, upper - lower) for k, (lower, upper) in enumerate(found.history))
                family = BoxFamily.of(problem.family)
                model = found.coef, found.intercept
                least, _ = family.search(data.rows, data.y, data.weights, *model, near=found.multiplier)
                risk = least._replace(value=float(least.value + problem.penalty(found.coef)))
                return RawSolution(
                    *model, None, len(history), history, lower=found.lower, rounding=found.rounding, risk=risk
                )
            first, reached = (found.coef, found.intercept), max(found.lower, 0.0)
        first = self._start(problem, data, tol, max_iter, 1.0) if first is None else first
        best = _scored(problem, data, first)
        floor, still = _unmoved(problem, data, 0.1 * tol, max_iter, best.value)
        if start is None and best.value - floor > _FAR * best.value:
            # Walls hold the adversary back, so the optimum without them at a smaller radius may be nearer.
            radii = _RADII if data.rows.n * data.rows.m > _SMALL else ()
            others = [still, *(self._start(problem, data, tol, max_iter, share) for share in radii)]
            best = min([best, *(_scored(problem, data, other) for other in others)], key=lambda each: each.value)
        bundle = Bundle(problem, data, *best.model, floor=max(floor, reached), multiplier=best.multiplier)
        count = bundle.run(0.9 * tol, _STEPS * max_iter)
        coef, intercept, _ = bundle.best
        history = tuple(Iterate(k, upper, upper - lower) for k, (lower, upper) in enumerate(bundle.history))
        return RawSolution(coef, intercept, None, count, history, count == _STEPS * max_iter, bundle.lower)

    def _by_newton(
        self,
        newton: NewtonMethod,
        problem: Problem,
        data: Data,
        tol: float,
        max_iter: int,
        start: tuple[FloatArray, float] | None,
    ) -> NewtonResult:
        """Go as far as Newton's method goes, if it needs a start from the optimum without walls (categories: l1).

        Walls hold the adversary back. Where nothing is learned without them, and Newton's method goes nowhere from
        there, the optimum at a smaller radius is the second start.
        """
        if start is None and not newton.needs_start:
            start = np.zeros(data.rows.m), 0.0
        if start is not None:
            return newton.run(problem, data, *start, tol)
        family, tried = BoxFamily.of(problem.family), []
        for share in _SHARES:
            free = problem.unwalled(**{"radius": share * problem.radius, **family.free_changes})
            model = _free_solver(free, data).run(free, data, tol=family.free_tolerance, max_iter=max_iter, start=None)
            tried.append(newton.run(problem, data, model.coef, model.intercept, tol))
            if tried[-1].is_within(_FAR):
                break
        return min(tried, key=lambda found: found.upper - found.lower)

    def _start(self, problem: Problem, data: Data, tol: float, max_iter: int, share: float) -> tuple[FloatArray, float]:
        """Return the optimum without walls at a share of the radius."""
        free = problem.unwalled(radius=share * problem.radius)
        found = _free_solver(free, data).run(free, data, tol=max(tol, _START), max_iter=max_iter, start=None)
        return found.coef, found.intercept


def _free_solver(problem: Problem, data: Data) -> Solver:
    """Return the solver of a problem without walls: descent where Newton matrices of all rows would take longer."""
    descent, (n, m) = DescentSolver(), (data.rows.n, data.rows.m)
    is_wide = float(n) * m * min(n, m) >= _WIDE and descent.obstacle(problem, data) is None
    return descent if is_wide else StructuredSolver()


def _unmoved(
    problem: Problem, data: Data, tol: float, max_iter: int, value: float
) -> tuple[float, tuple[FloatArray, float]]:
    """Return a lower bound on the least risk of an adversary who does nothing, and the model behind it.

    Where that risk is nothing beside ``value``, a known risk with the adversary, the bound is 0.
    """
    plain = problem.unwalled(radius=0.0)
    found = StructuredSolver().run(plain, data, tol=tol, max_iter=max_iter, start=None)
    t = plain.signal(found.coef, found.intercept, data)
    upper = plain.evaluate(found.coef, found.intercept, data).value
    lower = 0.0
    if upper > _NOTHING * value:
        points = [dual_point(plain, t, data, plain.size(found.coef)), *([] if found.dual is None else [found.dual])]
        for point in points:
            if upper - lower > tol * upper:
                lower = max(lower, lower_bound(plain, data, point, upper))
    return lower, (found.coef, found.intercept)
