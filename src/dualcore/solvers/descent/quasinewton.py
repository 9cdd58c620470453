"""Limited-memory quasi-Newton for the Euclidean norm: the risk is smooth away from the origin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.metric import DiagonalHessian, Hessian
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.rowsums import Point

# Pairs of steps and gradients that the method remembers, as long as they are few numbers (128 MB).
_MEMORY, _FEWEST, _NUMBERS = 20, 6, 8_000_000
# Where the step from the origin does not lower the risk, this many shorter ones are tried at once, each this share of
# the one before.
_SHORTER, _TRIALS = 0.3, 5


class Variables:
    """The variables ``(coef, intercept, slack)``, those that there are, and the points they stand for."""

    def __init__(self, objective: Objective, *, slack: bool = True) -> None:
        self.objective, self.m = objective, objective.oracle.n_features
        self.intercept = objective.problem.fit_intercept
        self.slack = objective.problem.family.flips and slack

    def point(self, x: FloatArray) -> Point:
        """Return the point that the variables stand for."""
        coef = x[: self.m]
        slack = max(float(x[-1]), 0.0) if self.slack else 0.0
        return Point(coef, float(x[self.m]) if self.intercept else 0.0, self.objective.norm.dual(coef) + slack)

    def vector(self, point: Point) -> FloatArray:
        """Return the variables of a point."""
        parts = [point.coef]
        parts += [np.array([point.intercept])] if self.intercept else []
        if self.slack:
            parts += [np.array([max(point.size - self.objective.norm.dual(point.coef), 0.0)])]
        return np.concatenate(parts)

    def gradient(self, at: Valued) -> FloatArray:
        """Return the gradient in the variables."""
        parts = [at.coef + at.size * self.objective.norm.steepest(at.point.coef)]
        parts += [np.array([at.intercept])] if self.intercept else []
        parts += [np.array([at.size])] if self.slack else []
        return np.concatenate(parts)


def quasi_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    hessian: Hessian,
) -> Valued:
    """Minimise from a point off the origin until ``enough`` says so, or no step lowers the risk any more.

    The size of a point is the norm of its coefficients plus a slack, which only flips make positive.
    """
    fit_size = objective.fits_size and not hessian.knows_size
    variables = Variables(objective, slack=not fit_size)
    if fit_size:
        [start] = objective.at([start.point], fit_size=True)
    metric = hessian.metric(objective, start)
    # scipy's first step has length one: in this unit it is the step that the metric suggests.
    length = float(np.linalg.norm(metric.gradient(variables.gradient(start))))
    unit = length if length > 0.0 else 1.0
    seen = best = start

    def point(z: FloatArray) -> Point:
        return variables.point(metric.outward(unit * z))

    def function(z: FloatArray) -> tuple[float, FloatArray]:
        nonlocal seen
        known = np.array_equal(z, first)  # the start has been evaluated
        [seen] = [start] if known else objective.at([point(z)], fit_size=fit_size)
        return seen.value, unit * metric.gradient(variables.gradient(seen))

    def look(intermediate_result: OptimizeResult) -> None:
        nonlocal best
        if seen.value <= best.value:
            best = seen
        if enough(best):
            raise StopIteration

    first = metric.inward(variables.vector(start.point)) / unit
    bounds = [(None, None)] * (first.size - 1) + [(0.0, None)] if variables.slack else None
    memory = max(_FEWEST, min(_MEMORY, _NUMBERS // first.size))
    options = {"maxcor": memory, "maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": 0.0, "gtol": 0.0}
    minimize(function, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=look, options=options)
    return best


def leave_origin(objective: Objective, start: Valued, hessian: DiagonalHessian) -> Valued | None:
    """Return a point off the origin of lower risk, along the step that the Hessian suggests; None if none is found."""
    step = hessian.first_step(objective, start)
    if not step.any():
        return None
    factor, lengths = 1.0, [1.0]
    for _ in range(7):
        points = [start.point._replace(coef=start.point.coef + factor * length * step) for length in lengths]
        trials = objective.at([point._replace(size=objective.size(point.coef)) for point in points], fit_size=True)
        best = min(trials, key=lambda trial: trial.value)
        if best.value < start.value:
            return best
        factor, lengths = _SHORTER * factor * lengths[-1], [_SHORTER**k for k in range(_TRIALS)]
    return None
