"""Quasi-Newton for curved losses under the Euclidean norm: away from the origin the risk is smooth.

The inner problems of proximal steps cost more than an evaluation of the risk where rows are few or sparse; with label
flips they have no closed solution.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import OptimizeResult, minimize

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.proximal import DenseQuadratic, Quadratic
from dualcore.solvers.descent.rowsums import Point


def quasi_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    model: Quadratic,
    *,
    n_pairs: int = 20,
    most_numbers: int = 8_000_000,
) -> Valued:
    """Minimise from a point off the origin until ``enough`` says so, or no step lowers the risk any more.

    Variables are the coefficients, the intercept if there is one, and what the size of a point exceeds the norm of its
    coefficients by where labels flip, in coordinates in which the Hessian of the ``model`` is the identity.
    ``n_pairs`` of steps and gradients are kept, fewer where they would be more than ``most_numbers`` (64 MB).
    """
    m, fit_intercept = objective.oracle.n_features, objective.problem.fit_intercept
    flips = model.diagonal.size > m + fit_intercept
    root = _hessian_root(objective, start, model)
    seen = best = start

    def point(z: FloatArray) -> Point:
        x = z / root if root.ndim == 1 else solve_triangular(root, z, check_finite=False)
        coef = x[:m]
        excess = max(float(x[-1]), 0.0) if flips else 0.0
        return Point(coef, float(x[m]) if fit_intercept else 0.0, objective.size(coef) + excess)

    def gradient(at: Valued) -> FloatArray:
        in_coef = at.coef + at.size * objective.norm.steepest(at.point.coef)
        g = np.concatenate([in_coef, [at.intercept] * fit_intercept, [at.size] * flips])
        return g / root if root.ndim == 1 else solve_triangular(root, g, trans="T", check_finite=False)

    def function(z: FloatArray) -> tuple[float, FloatArray]:
        nonlocal seen
        [seen] = [start] if np.array_equal(z, first) else objective.at([point(z)])  # the start has been evaluated
        return seen.value, gradient(seen)

    def look(intermediate_result: OptimizeResult) -> None:
        nonlocal best
        best = min(best, seen, key=lambda at: at.value)
        if enough(best):
            raise StopIteration

    # The first step of L-BFGS-B has length one: in this unit it is the step that the model suggests.
    root = root / (float(np.linalg.norm(gradient(start))) or 1.0)
    here = start.point
    excess = max(here.size - objective.size(here.coef), 0.0)
    first = np.concatenate([here.coef, [here.intercept] * fit_intercept, [excess] * flips])
    first = root * first if root.ndim == 1 else root @ first
    # A triangular root leaves the excess a coordinate of its own, with its bound.
    bounds = [(None, None)] * (first.size - 1) + [(0.0, None)] if flips else None
    pairs = max(6, min(n_pairs, most_numbers // first.size))
    options = {"maxcor": pairs, "maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": 0.0, "gtol": 0.0}
    minimize(function, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=look, options=options)
    return best


def _hessian_root(objective: Objective, at: Valued, model: Quadratic) -> FloatArray:
    """Return an upper triangular root of the Hessian in (coef, intercept, excess); of a diagonal model its diagonal."""
    if not isinstance(model, DenseQuadratic):
        return np.sqrt(model.diagonal)
    m, prices, hessian = objective.oracle.n_features, objective.prices, model.matrix.copy()
    slope = objective.norm.steepest(at.point.coef)
    if hessian.shape[0] > m + objective.problem.fit_intercept:  # the size is that of the coefficients and the excess
        edge = hessian[-1].copy()
        hessian[:m] += np.outer(slope, edge)
        hessian[:, :m] += np.outer(hessian[:, -1], slope)
    # The norm curves across its slope.
    length = float(np.linalg.norm(at.point.coef / prices))
    curve = max(at.size, 0.0) / length if length > 0.0 else 0.0
    hessian[:m, :m] += curve * (np.diag(1.0 / prices**2) - np.outer(slope, slope))
    scale = np.sqrt(np.diag(hessian))
    return np.asarray(np.linalg.cholesky(hessian / np.outer(scale, scale) + 1e-7 * np.eye(scale.size)).T * scale)
