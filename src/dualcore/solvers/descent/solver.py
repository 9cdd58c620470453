"""The descent solver: a few dozen products with the data, whatever the number of features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import SquaredHinge
from dualcore.solvers.base import RawSolution, Solver, able_solver
from dualcore.solvers.descent.continuation import Continuation, Pace, Rate
from dualcore.solvers.descent.memory import MemoryOracle
from dualcore.solvers.descent.metric import MOST_FEATURES, DiagonalHessian, Hessian, find_hessian, sample_size
from dualcore.solvers.descent.multipliers import Multipliers, can_multiply
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.oracle import Oracle
from dualcore.solvers.descent.proximal import proximal_newton
from dualcore.solvers.descent.quasinewton import leave_origin, quasi_newton
from dualcore.solvers.descent.rowsums import Point

# Evaluations in what `solve` counts as one iteration.
_ROUND = 50
# The rows must be this many times those of a sample for a solve on the sample to pay.
_MANY = 4
# Relative gap asked of the sample: its optimum is no nearer to that of all rows.
_SAMPLE_TOL = 1e-2
_SAMPLE_EVALUATIONS = 200
# By how much, relatively, the norm must exceed the price of the target for the risk to be smooth.
_CLEAR = 1e-3
# The first width of multipliers from afar, in units of that of smoothing: they lose nothing by a wide one.
_WIDER = 10.0
# Multiples of the sample's solution to start from.
_SHARES = (1.0, 0.8, 0.6, 0.4)


class DescentSolver(Solver):
    """Quasi-Newton and proximal steps: the cost is products with the data."""

    name = "descent"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if not problem.family.is_closed:
            return (
                f"DescentSolver cannot solve {type(problem.loss).__name__} on a support or with categories. "
                "Use solver='box'."
            )
        if type(problem.geometry.norm) not in (L1Norm, L2Norm, LinfNorm):
            return f"DescentSolver knows no steps for the norm {type(problem.geometry.norm).__name__}."
        if isinstance(problem.loss, SquaredHinge) and problem.family.flips:
            return (
                "DescentSolver cannot solve SquaredHinge with label flips. "
                f"Use solver='{able_solver(problem)}' or label_cost=inf."
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        oracle = MemoryOracle(problem, data)
        with np.errstate(under="ignore"):
            try:
                loop = Continuation(oracle, tol, _ROUND * max_iter)
                first = None if start is None else oracle.columns.point(*start)
                descend(oracle, loop, first, np.random.default_rng(0))
            finally:
                oracle.close()
        return best_of(loop, -(-oracle.n_evaluations // _ROUND))


def best_of(loop: Continuation, iterations: int) -> RawSolution:
    """Return the best model and the best bound of a loop, in the units of the data."""
    best, oracle = loop.best, loop.oracle
    coef, intercept = oracle.columns.model(best.point)
    return RawSolution(
        coef=coef,
        intercept=intercept if oracle.problem.fit_intercept else 0.0,
        dual=best.dual,
        iterations=iterations,
        history=tuple(loop.history),
        stopped_early=not loop.is_done(),
        lower=best.lower if best.risk is not None else -np.inf,
        rounding=best.rounding,
        risk=best.risk,
    )


def descend(oracle: Oracle, loop: Continuation, start: Point | None, rng: np.random.Generator) -> None:
    """Minimise the risk on an oracle's data.

    A smooth risk is descended in the scaled columns as they are, and in the metric of a sample only where that is slow.
    """
    m, problem = oracle.n_features, oracle.problem
    here, width = start, loop.first_width()
    if here is None and width > 0.0 and problem.loss.kinks:
        here = _approached(oracle, width, rng)
    known: Hessian | None = None
    far = start is not None  # a start may be another radius's
    plain = not oracle.has_pilot
    smooth = isinstance(problem.geometry.norm, L2Norm)
    if here is not None and smooth:  # below the price of the target the norm is not felt
        objective = Objective(oracle, width)
        smooth = objective.norm.dual(here.coef) >= objective.floor * (1.0 + _CLEAR)

    def method(objective: Objective, here: Valued, enough: Callable[[Valued], bool], most: int, width: float) -> Valued:
        nonlocal known, plain
        if plain:
            rate = Rate(oracle, loop.goal(here))
            # Where nothing is smoothed there is no next stage, and a metric may do what these steps cannot.
            pace = Pace(oracle.n_evaluations, here.value) if width == 0.0 and m <= MOST_FEATURES else None

            def crawls(at: Valued) -> bool:
                gap = objective.estimated_gap(at)
                if pace is not None and pace.crawls(
                    oracle.n_evaluations, at.value, gap, loop.goal(at), loop.left, by_gap=False
                ):
                    return True
                return rate.crawls(gap)

            here = step(objective, here, lambda at: enough(at) or crawls(at), most, width)
            if loop.is_done() or not (rate.slow or (pace is not None and loop.left > 0)):
                return here
            plain = False
        return step(objective, here, enough, loop.left, width)

    def step(objective: Objective, here: Valued, enough: Callable[[Valued], bool], most: int, width: float) -> Valued:
        nonlocal known, smooth
        hessian, known = known or hessian_at(objective, here, width), None
        if smooth:
            found = quasi_newton(objective, here, enough, most, hessian)
            if objective.norm.dual(found.point.coef) >= objective.floor * (1.0 + _CLEAR):
                return found
            # Here or nearby the price of the target begins to count, and the risk has an edge.
            smooth, point = False, found.point
            [here] = objective.at([point._replace(size=objective.size(point.coef))])
        return proximal_newton(
            objective, here, enough, most, hessian, lambda at: hessian_at(objective, at, objective.width)
        )

    def hessian_at(objective: Objective, at: Valued, width: float) -> Hessian:
        return DiagonalHessian(objective, at, width) if plain else find_hessian(objective, at, width, rng)

    if here is None or not here.coef.any():
        objective = Objective(oracle, width)
        [at] = objective.at([Point(np.zeros(m), oracle.constant(), objective.floor)], fit_size=True)
        if (width > 0.0 and problem.loss.kinks) or objective.norm.value(at.coef) <= at.size:
            loop.certify(at, width)
            if loop.is_done():
                return
        here = at.point
        if smooth:
            diagonal = DiagonalHessian(objective, at, width)
            off, known = leave_origin(objective, at, diagonal), diagonal if plain else None
            here = here if off is None else off.point
            smooth, far = off is not None, True
    if smooth and isinstance(oracle, MemoryOracle) and can_multiply(problem, m):
        here = Multipliers(oracle, loop).run(here, _WIDER * width if far else width)
        if loop.is_done():
            return
    loop.run(here, width, method)
    if smooth and not loop.is_done() and loop.certified is not None:
        # The optimum may lie where the norm is not smooth: at the origin, or where the target's price begins to count.
        smooth = False
        loop.run(loop.certified.point, loop.width, method)


def _approached(oracle: Oracle, width: float, rng: np.random.Generator) -> Point | None:
    """Return where to begin with a risk that has kinks: a sample's solution where rows are many."""
    m, problem = oracle.n_features, oracle.problem
    if m <= MOST_FEATURES and oracle.n_rows >= _MANY * sample_size(m):
        part = oracle.part(sample_size(m), rng)
        return None if part is None else shrunk(Objective(oracle, width), _approach(part, rng))
    if problem.family.flips:
        # Where no flip pays at the optimum without flips, that is the optimum.
        return _approach(oracle.with_problem(problem.replace(label_cost=np.inf)), rng)
    return None


def shrunk(objective: Objective, point: Point | None) -> Point | None:
    """Return the best of a few multiples of a sample's solution: it fits its rows too well."""
    if point is None or not point.coef.any():
        return point
    coefs = [share * point.coef for share in _SHARES]
    points = [Point(coef, point.intercept, max(objective.size(coef), point.size)) for coef in coefs]
    return min(objective.at(points, fit_size=True), key=lambda at: at.value).point


def _approach(oracle: Oracle, rng: np.random.Generator) -> Point | None:
    """Return a rough solution on a part of the data, or of a simpler problem."""
    loop = Continuation(oracle, _SAMPLE_TOL, _SAMPLE_EVALUATIONS)
    descend(oracle, loop, None, rng)
    oracle.close()
    return None if loop.certified is None else loop.certified.point
