"""The solvers of softmax problems: descent by products with the rows, and Newton's method for few parameters."""

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

# Largest number of parameters for Newton's method, whose matrix is dense.
_MOST_NUMBERS = 700


class ClassDescentSolver(Solver):
    """Quasi-Newton steps on the smoothed risk, each with one pass over the rows."""

    name = "descent"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        """Return why it cannot take the problem: a custom norm."""
        return norm_fault(problem)

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, Any] | None
    ) -> RawSolution:
        """Minimise; return the best point found, without raising, where the method does not converge."""
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
    """Return a model for every radius, ascending, without bounds; ``tol`` is compared with an estimate of the gap.

    Descent goes from the largest radius, whose model is the simplest, to the smallest. Every run starts from the model
    and the priors of the previous one.
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
    """Return the limit on evaluations of the risk: ten per iteration, or one for a source, where each is a read."""
    return max_iter * (10 if data.rows.in_memory else 1)


class ClassNewtonSolver(Solver):
    """Newton's method by small cone programs: few steps, each with a dense matrix of all parameters."""

    name = "structured"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        """Return why it cannot take the problem: a custom norm, or too many parameters."""
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
        """Minimise; return the best point found, without raising, where the method does not converge.

        Without a start, the problem without label flips is solved first. Its risk is lower for every model, so its
        lower bound is valid with flips too.
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
    """The best model so far with its risk, the best lower bound, and the history.

    It begins with the zero model, whose risk is ``log(n_classes)``, or with ``start`` if that is better.
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
        """Risk minus the best bound, which is at least 0 because risks are not negative."""
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
        """Keep a bound if it is the best; an infinite allowance for rounding means that there is no bound."""
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

    At a gap of 1e-6 the coefficients have about three correct digits; the last step doubles these.
    """
    design, narrowest, since, more = best.design, np.inf, 0, 1
    # Newton's method ends after six steps in a row that reduce the gap by less than a tenth.
    while more and since < 6 and best.iterations < max_iter:
        more -= int(best.closed(tol))
        here, risk = best.W, best.risk
        # The threshold below which curvature counts as zero grows while the gap does not fall: a smaller one corrects
        # the dual point better, but with more rounding.
        step = newton_step(design, here, risk, tol, flat=1e-13 * 1e3 ** (since % 4))
        best.iterations += 1
        lengths = (here + length * step.change for length in 0.5 ** np.arange(12))
        moved = any(best.see(W, design.problem.evaluate(*design.model(W), design.data)) for W in lengths)
        # After a Newton step that lowers the risk by more than 2 % no bound is computed: it would not be tight.
        near = risk.value - best.risk.value <= 0.02 * risk.value or best.iterations == max_iter
        if near and not runs_away(design.problem, design.data, *design.model(here)):  # else the infimum is 0
            best.bound(lower_bound(design, here, step, best.risk.value))
        best.history.append(Iterate(best.iterations, best.risk.value, best.gap))
        tell(best.history[-1])
        narrowest, since = (best.gap, 0) if best.gap < 0.9 * narrowest else (narrowest, since + 1)
        if not moved:
            break


def certify_classes(problem: Problem, coef: FloatArray, intercept: FloatArray, data: Data) -> tuple[float, Bound, int]:
    """Return the worst-case risk of a model, a lower bound on the best possible one, and the number of passes.

    The bound comes from a few dozen steps of descent from the model; if that is loose and the model has few parameters,
    from Newton steps. The closer the model is to the optimum, the fewer steps a tight bound needs.
    """
    upper = problem.evaluate(coef, intercept, data).value
    design = ClassDesign.of(problem, data)
    W, lower, n_passes = design.weights(coef, intercept), max(Bound(0.0, 0.0), spread_bound(design)), 3

    with np.errstate(under="ignore"):
        least = upper
        if not free_features(problem, data.rows.m).any():
            # At most 60 evaluations of descent, and four Newton steps below.
            descent = ClassDescent(design, 1e-6, 60, W, known=upper)
            descent.run()
            W, lower, n_passes = descent.W, max(lower, descent.lower), n_passes + descent.n_passes
            least = min(upper, descent.upper)
        steps = 4 if ClassNewtonSolver().obstacle(problem, data) is None else 0
        for _ in range(steps):
            if least - lower.value <= ENOUGH * (upper - lower.value):  # no bound can be much better
                break
            step = newton_step(design, W, problem.evaluate(*design.model(W), data), 1e-7)
            lower = max(lower, lower_bound(design, W, step, least))
            W = W + step.change
            least = min(least, problem.evaluate(*design.model(W), data).value)
            n_passes += 6  # the step, two for its multiplier and risk, at most three for the bound
    rounding = lower.rounding + design.risk_error(coef, intercept, upper)
    return upper, Bound(min(lower.value, upper), rounding), n_passes


def norm_fault(problem: Problem) -> str | None:
    """Return why the softmax solvers cannot take the norm of a problem; None if they can."""
    norm = problem.geometry.norm
    if type(norm) in (L1Norm, L2Norm, LinfNorm):
        return None
    return f"Softmax problems know no cone for the norm {type(norm).__name__}: use l1, l2 or linf."
