"""The descent solver for many features: its work is products with the data, typically a few dozen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import SparseRows
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import SquaredHinge
from dualcore.solvers.base import RawSolution, Solver, able_solver
from dualcore.solvers.descent.continuation import Continuation, Stalling
from dualcore.solvers.descent.memory import MemoryOracle
from dualcore.solvers.descent.multipliers import Multipliers, can_multiply
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.oracle import Oracle
from dualcore.solvers.descent.proximal import (
    MOST_FEATURES,
    Quadratic,
    diagonal_model,
    proximal_newton,
    sample_model,
    sample_size,
)
from dualcore.solvers.descent.quasinewton import quasi_newton
from dualcore.solvers.descent.rowsums import Point

# Evaluations that count as one iteration of `solve`.
_ROUND = 50


class DescentSolver(Solver):
    """Proximal quasi-Newton with smoothing of kinks; see `descend`."""

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


class _ProximalSteps:
    """Proximal Newton steps with a diagonal model of mean curvature, and if that is slow with the Hessian of a sample.

    Parameters
    ----------
    loop : Continuation
    rng : Generator
    """

    def __init__(self, loop: Continuation, rng: np.random.Generator) -> None:
        self.loop, self.rng, self.oracle = loop, rng, loop.oracle
        # With many rows and a smooth loss the Hessian of a sample is cheap compared with a pass, and saves most passes.
        # With l1 or label flips it saves few.
        problem, many = self.oracle.problem, self.oracle.n_rows >= 2 * sample_size(self.oracle.n_features)
        hard = problem.family.flips or problem.loss.kinks or isinstance(problem.geometry.norm, L1Norm)
        self.plain = not (self.oracle.has_pilot or (many and not hard))

    def model(self, objective: Objective, at: Valued, width: float, least: FloatArray | None = None) -> Quadratic:
        """Return the quadratic model at a point."""
        if self.plain or self.oracle.n_features > MOST_FEATURES:
            return diagonal_model(objective, at, width)
        return sample_model(objective, at, width, self.rng, least)

    def run(
        self, objective: Objective, here: Valued, enough: Callable[[Valued], bool], most: int, width: float
    ) -> Valued:
        """Minimise from a point until ``enough`` returns True; see `Method`."""
        m = self.oracle.n_features
        if self.plain and m <= MOST_FEATURES:
            # The cost of the Hessian of a sample and of the dozen steps after it, in evaluations.
            cost = 15.0 + 0.4 * m * m / self.oracle.n_rows
            progress = Stalling(self.oracle.n_evaluations, here.value, 10)

            def is_slow(at: Valued) -> bool:
                gap, goal = objective.estimated_gap(at), self.loop.goal(at)
                return progress.stalls(self.oracle.n_evaluations, at.value, gap, goal, cost)

            here = self._steps(objective, here, lambda at: enough(at) or is_slow(at), most, width)
            if progress.slow < 2 and (objective.width > 0.0 or self.loop.is_done()):
                return here
            self.plain = False
        return self._steps(objective, here, enough, self.loop.left, width)

    def _steps(
        self, objective: Objective, here: Valued, enough: Callable[[Valued], bool], most: int, width: float
    ) -> Valued:
        def renew(at: Valued, least: FloatArray) -> Quadratic:
            return self.model(objective, at, objective.width, least)

        model = self.model(objective, here, width)
        if self._is_smooth(objective):
            if not here.point.coef.any():  # the norm is not differentiable at the origin
                here = proximal_newton(
                    objective, here, lambda at: enough(at) or bool(at.point.coef.any()), most, model, renew
                )
            if here.point.coef.any() and not enough(here):
                here = quasi_newton(objective, here, enough, most, model)
            if enough(here):
                return here
        return proximal_newton(objective, here, enough, most, model, renew)

    def _is_smooth(self, objective: Objective) -> bool:
        """Whether the risk is smooth away from the origin: order 1, l2 norm and a loss without kinks."""
        return isinstance(objective.norm, L2Norm) and objective.order == 1 and not objective.problem.loss.kinks


def descend(oracle: Oracle, loop: Continuation, start: Point | None, rng: np.random.Generator) -> None:
    """Minimise the risk on an oracle's data.

    For a piecewise linear loss with the l2 norm and rows in memory the method of multipliers is tried first.
    """
    problem, here, width = oracle.problem, start, loop.first_width()
    steps, objective = _ProximalSteps(loop, rng), Objective(oracle, width)
    if here is None or not here.coef.any():
        [at] = objective.at([Point(np.zeros(oracle.n_features), oracle.constant(), objective.floor)])
        if (width > 0.0 and problem.loss.kinks) or objective.norm.value(at.coef) <= at.size:
            loop.certify(at, width)
        if loop.is_done():
            return
        here = at.point
    if isinstance(oracle, MemoryOracle) and can_multiply(problem, oracle.n_features):
        if not here.coef.any():  # the norm is not differentiable at the origin
            here = steps.run(objective, at, lambda at: bool(at.point.coef.any()), loop.left, width).point
        if here.coef.any():
            here = Multipliers(oracle, loop).run(here, 10.0 * width)  # a large width costs it no accuracy
    loop.run(here, width, steps.run)


def shrunk(objective: Objective, point: Point) -> Point:
    """Return the best of a few multiples of the optimum of a sample, which tends to overfit the sample."""
    coefs = [share * point.coef for share in (1.0, 0.8, 0.6, 0.4)]
    points = [Point(coef, point.intercept, max(objective.size(coef), point.size)) for coef in coefs]
    return min(objective.at(points), key=lambda at: at.value).point


def is_wide(problem: Problem, data: Data) -> bool:
    """Whether descent is faster than the interior point, whose work is a weighted Gram matrix in every step.

    Both were timed over a grid of shapes, losses and norms; at the limits below they take the same time.
    """
    if able_solver(problem) != "structured":
        return False
    n, m, norm = data.rows.n, data.rows.m, problem.geometry.norm.name
    # The work of a Newton matrix. With few features the interior point is faster for any number of rows.
    work, kinks, flips = float(n) * m * min(n, m), bool(problem.loss.kinks), problem.family.flips
    # The number of descent's steps depends on the columns under l1 (one-hot columns), with sparse rows, label flips and
    # coefficients that nothing penalises.
    hard = norm == "l1" or isinstance(data.rows, SparseRows) or flips or free_features(problem, m).any()
    multiplied = can_multiply(problem, m)
    if not hard and not (kinks and norm == "l2" and not multiplied):
        # Descent takes more steps with kinks, except by the method of multipliers on many rows.
        if m >= 50 and work >= (2.5e7 if kinks else 5e6):
            return True
        if multiplied and m >= 20 and n >= 10_000:
            return True
    # With kinks under l1 the interior point remains faster up to the largest data. With label flips under l1 it does
    # where rows are few for each feature: on 3,000 x 1,000 descent takes more than a minute.
    slow = kinks or (flips and n < 50 * m)
    many = 3e10 if slow and norm == "l1" else 1.5e9 if kinks or (flips and norm == "l1") else 2e8
    return m >= 150 and work >= many
