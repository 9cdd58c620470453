"""Quasi-Newton for curved losses under the Euclidean norm: away from the origin the risk is smooth.

The inner problems of proximal steps cost more than an evaluation of the risk where rows are few or sparse; with label
flips they have no closed solution.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.rowsums import Point


def quasi_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    diagonal: FloatArray,
    *,
    n_pairs: int = 20,
    most_numbers: int = 8_000_000,
) -> Valued:
    """Minimise from a point off the origin until ``enough`` says so, or no step lowers the risk any more.

    Variables are the coefficients, the intercept if there is one, and what the size of a point exceeds the norm of its
    coefficients by where labels flip, each in the unit that the ``diagonal`` of the Hessian suggests. ``n_pairs`` of
    steps and gradients are kept, fewer where they would be more than ``most_numbers`` (64 MB).
    """
    m, fit_intercept = objective.oracle.n_features, objective.problem.fit_intercept
    flips = diagonal.size > m + fit_intercept
    units = 1.0 / np.sqrt(diagonal)
    seen = best = start

    def point(z: FloatArray) -> Point:
        x = units * z
        coef = x[:m]
        excess = max(float(x[-1]), 0.0) if flips else 0.0
        return Point(coef, float(x[m]) if fit_intercept else 0.0, objective.size(coef) + excess)

    def gradient(at: Valued) -> FloatArray:
        in_coef = at.coef + at.size * objective.norm.steepest(at.point.coef)
        return np.asarray(units * np.concatenate([in_coef, [at.intercept] * fit_intercept, [at.size] * flips]))

    def function(z: FloatArray) -> tuple[float, FloatArray]:
        nonlocal seen
        [seen] = [start] if np.array_equal(z, first) else objective.at([point(z)])  # the start has been evaluated
        return seen.value, gradient(seen)

    def look(intermediate_result: OptimizeResult) -> None:
        nonlocal best
        best = min(best, seen, key=lambda at: at.value)
        if enough(best):
            raise StopIteration

    here = start.point
    excess = max(here.size - objective.size(here.coef), 0.0)
    first = np.concatenate([here.coef, [here.intercept] * fit_intercept, [excess] * flips]) / units
    bounds = [(None, None)] * (first.size - flips) + [(0.0, None)] * flips
    pairs = max(6, min(n_pairs, most_numbers // first.size))
    options = {"maxcor": pairs, "maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": 0.0, "gtol": 0.0}
    minimize(function, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=look, options=options)
    return best
