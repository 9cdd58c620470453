"""The solvers of softmax problems: descent by products with the rows, and Newton's method for few numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.certificates import Bound
from dualcore.certificates.rounding import free_features
from dualcore.certificates.softmax.bound import lower_bound, spread_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.forms import Minimum
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.normal import Normal
from dualcore.solvers.base import Iterate, RawSolution, Solver, observed, tell
from dualcore.solvers.capacity import check_classes
from dualcore.solvers.scoring import runs_away
from dualcore.solvers.softmax.classnewton import newton_step
from dualcore.solvers.softmax.descent import ENOUGH, ClassDescent

__all__ = ["ClassDescentSolver", "ClassNewtonSolver", "certify_classes", "class_models"]

# Newton's matrix has one row and column for every number of the model.
_MOST_NUMBERS = 700


class ClassDescentSolver(Solver):
    """Quasi-Newton steps on the smoothed risk: a pass over the rows each."""

    name = "descent"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        """Return why it cannot take the problem: a norm of the user's own."""
        return norm_fault(problem)

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, Any] | None
    ) -> RawSolution:
        """Minimise; never raise for want of convergence."""
        design, limit = ClassDesign.of(problem, data), _evaluations(data, max_iter)
        best = _Best(design, start)
        if not best.closed(tol):
            with np.errstate(under="ignore"):
                descent = ClassDescent(design, tol, limit, best.W if best.W.any() else None)
                descent.run()
            best.see(descent.W, Minimum(descent.upper, 0.0))
            best.bound(descent.lower)
            best.bound(descent.last)
            best.iterations, best.history = descent.iterations, [Iterate(*line) for line in descent.history]
        return best.solution(limit)


def class_models(problem: Problem, data: Data, radii: list[float], tol: float, max_iter: int) -> list[RawSolution]:
    """Return a model for every radius, ascending, without bounds: ``tol`` is asked of an estimate of the gap.

    Descent goes from the largest radius, whose model is the simplest, to the smallest. Every run has the model and the
    priors of the one before.
    """
    data.rows.check_finite()
    check_classes(problem, data)
    normal = Normal.of(problem, data)
    design, runs = ClassDesign.of(normal.problem, normal.data), list[ClassDescent]()
    for radius in reversed(radii):
        at = replace(design, problem=normal.problem.replace(radius=radius))
        run = ClassDescent(at, tol, _evaluations(data, max_iter), certified=False)
        if runs:
            run.follow(runs[-1])
            run.risk.prior = runs[-1].risk.prior
        with np.errstate(under="ignore"):
            run.run()
        runs.append(run)
    return [RawSolution(*normal.outside(*design.model(run.W)), None, run.iterations) for run in reversed(runs)]


def _evaluations(data: Data, max_iter: int) -> int:
    """Return how many evaluations of the risk descent may take: ten an iteration, of a source one, which is a read."""
    return max_iter * (10 if data.rows.in_memory else 1)


class ClassNewtonSolver(Solver):
    """Newton's method through small cone programs: few steps, each with a dense matrix of all numbers of the model."""

    name = "structured"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        """Return why it cannot take the problem: a norm of the user's own, or too many numbers."""
        n_classes, m = problem.family.n_outputs, data.rows.m
        size = n_classes * (m + int(problem.fit_intercept))
        if size <= _MOST_NUMBERS:
            return norm_fault(problem)
        return (
            f"A softmax model of {n_classes} classes and {m} features has {size} numbers, too many for Newton's method "
            f"beyond {_MOST_NUMBERS}. Use solver='descent', or 'auto', which takes it."
        )

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, Any] | None
    ) -> RawSolution:
        """Minimise; never raise for want of convergence.

        Without a start label flips are forbidden first. That only lowers the risk, so the bound found without them
        holds with them.
        """
        design = ClassDesign.of(problem, data)
        best = _Best(design, start)
        with np.errstate(under="ignore"):
            if not best.closed(tol):
                if problem.family.flips and start is None:
                    fixed = replace(design, problem=problem.replace(label_cost=np.inf))
                    plain = _Best(fixed, None)
                    with observed(None):  # risks without label flips are those of another problem
                        _newton(plain, tol, max_iter)
                    best.see(plain.W, problem.evaluate(*design.model(plain.W), data))
                    best.bound(plain.lower)
                    best.iterations = plain.iterations
                _newton(best, tol, max_iter)
        return best.solution(max_iter)


class _Best:
    """The best model so far and its risk, the best lower bound, and what led to them.

    It begins with the model of zeros, whose risk is that of chance, or with a start that is better.
    """

    def __init__(self, design: ClassDesign, start: tuple[FloatArray, Any] | None) -> None:
        self.design, self.W, self.risk = design, np.zeros(design.shape), Minimum(float(np.log(design.shape[0])), 0.0)
        self.lower, self.withheld = spread_bound(design), False
        self.iterations = 0
        self.history: list[Iterate] = []
        if start is not None and not self.closed(0.0):
            W = design.weights(*start)
            self.see(W, design.problem.evaluate(*design.model(W), design.data))

    @property
    def gap(self) -> float:
        """What the bound leaves open; no risk is negative."""
        return self.risk.value - max(self.lower.value, 0.0)

    def closed(self, tol: float) -> bool:
        """Whether the relative gap is within a tolerance."""
        return self.risk.value - self.lower.value <= tol * self.risk.value

    def see(self, W: FloatArray, risk: Minimum) -> bool:
        """Keep a model if it is no worse than the best; return whether it is."""
        better = risk.value < self.risk.value * (1.0 + 1e-13)
        if better:
            self.W, self.risk = W, risk
        return better

    def bound(self, found: Bound) -> None:
        """Keep a bound if it is the best; an infinite allowance for rounding says that there is none."""
        self.withheld = np.isinf(found.rounding)
        self.lower = max(self.lower, found)

    def solution(self, limit: int) -> RawSolution:
        """Return the best model with its bound."""
        coef, intercept = self.design.model(self.W)
        return RawSolution(
            coef,
            intercept,
            None,
            self.iterations,
            tuple(self.history),
            lower=self.lower.value,
            rounding=self.lower.rounding,
            withheld=self.withheld,
            limit=limit,
        )


def _newton(best: _Best, tol: float, max_iter: int) -> None:
    """Take Newton steps until the certified gap is within tolerance, and one more.

    A gap of 1e-6 leaves the coefficients with three digits; the last step doubles them.
    """
    design, narrowest, since, more = best.design, np.inf, 0, 1
    # Steps that do not narrow the gap by a tenth, after which Newton's method ends.
    while more and since < 6 and best.iterations < max_iter:
        more -= int(best.closed(tol))
        here, risk = best.W, best.risk
        # The share of the largest curvature below which a direction counts as flat grows while the gap does not narrow:
        # the smaller it is, the better the dual point is corrected, and the more digits rounding takes.
        step = newton_step(design, here, risk, tol, flat=1e-13 * 1e3 ** (since % 4))
        best.iterations += 1
        lengths = (here + length * step.change for length in 0.5 ** np.arange(12))
        moved = any(best.see(W, design.problem.evaluate(*design.model(W), design.data)) for W in lengths)
        # A Newton step that lowers the risk by more than this share is far from the optimum: no bound is computed for
        # it.
        near = risk.value - best.risk.value <= 0.02 * risk.value or best.iterations == max_iter
        if near and not runs_away(design.problem, design.data, *design.model(here)):  # else the infimum is 0
            best.bound(lower_bound(design, here, step, best.risk.value))
        best.history.append(Iterate(best.iterations, best.risk.value, best.gap))
        tell(best.history[-1])
        narrowest, since = (best.gap, 0) if best.gap < 0.9 * narrowest else (narrowest, since + 1)
        if not moved:
            break


def certify_classes(problem: Problem, coef: FloatArray, intercept: FloatArray, data: Data) -> tuple[float, Bound, int]:
    """Return the worst-case risk of a model, a lower bound on the best possible one, and the passes over the rows.

    The bound is that of a few dozen steps of descent from the model; where that is loose and the model has few numbers,
    that of Newton steps. The nearer the model is to the optimum, the sooner the bound is tight.
    """
    upper = problem.evaluate(coef, intercept, data).value
    design = ClassDesign.of(problem, data)
    W, lower, n_passes = design.weights(coef, intercept), max(Bound(0.0, 0.0), spread_bound(design)), 3

    with np.errstate(under="ignore"):
        least = upper
        if not free_features(problem, data.rows.m).any():
            # Evaluations of descent and Newton steps that `certify_classes` may take.
            descent = ClassDescent(design, 1e-6, 60, W, known=upper)
            descent.run()
            W, lower, n_passes = descent.W, max(lower, descent.lower), n_passes + descent.n_passes
            least = min(upper, descent.upper)
        steps = 4 if ClassNewtonSolver().obstacle(problem, data) is None else 0
        for _ in range(steps):
            if least - lower.value <= ENOUGH * (upper - lower.value):  # no bound can be much better than this one
                break
            step = newton_step(design, W, problem.evaluate(*design.model(W), data), 1e-7)
            lower = max(lower, lower_bound(design, W, step, least))
            W = W + step.change
            least = min(least, problem.evaluate(*design.model(W), data).value)
            n_passes += 6  # the step, two for its multiplier and risk, at most three for the bound
    rounding = lower.rounding + design.risk_error(coef, intercept, upper)
    return upper, Bound(min(lower.value, upper), rounding), n_passes


def norm_fault(problem: Problem) -> str | None:
    """Return why no solver takes the norm of a problem; None if they do."""
    norm = problem.geometry.norm
    if type(norm) in (L1Norm, L2Norm, LinfNorm):
        return None
    return f"Softmax problems know no cone for the norm {type(norm).__name__}: use l1, l2 or linf."
