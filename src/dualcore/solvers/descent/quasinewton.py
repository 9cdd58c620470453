"""Quasi-Newton for smooth losses with the Euclidean norm, where the risk is smooth except at the origin.

Where rows are few or sparse, the inner problem of a proximal step costs more than an evaluation of the risk.
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
    """Minimise from a point other than the origin until ``enough`` returns True or no step lowers the risk.

    The variables are the coefficients, the intercept if there is one, and with label flips the excess of ``size`` over
    the norm of the coefficients. They are transformed so that the Hessian of the ``model`` is the identity. L-BFGS
    keeps ``n_pairs`` pairs of steps and gradients, fewer if these would exceed ``most_numbers`` (64 MB).
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

    # The first step of L-BFGS-B has length one; in these units it is the Newton step of the model.
    root = root / (float(np.linalg.norm(gradient(start))) or 1.0)
    here = start.point
    excess = max(here.size - objective.size(here.coef), 0.0)
    first = np.concatenate([here.coef, [here.intercept] * fit_intercept, [excess] * flips])
    first = root * first if root.ndim == 1 else root @ first
    # The root is upper triangular, so the last coordinate depends on the excess alone and its bound remains a bound.
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
    if hessian.shape[0] > m + objective.problem.fit_intercept:  # size = norm of the coefficients + excess: chain rule
        edge = hessian[-1].copy()
        hessian[:m] += np.outer(slope, edge)
        hessian[:, :m] += np.outer(hessian[:, -1], slope)
    # The norm has curvature orthogonal to its gradient.
    length = float(np.linalg.norm(at.point.coef / prices))
    curve = max(at.size, 0.0) / length if length > 0.0 else 0.0
    hessian[:m, :m] += curve * (np.diag(1.0 / prices**2) - np.outer(slope, slope))
    scale = np.sqrt(np.diag(hessian))
    return np.asarray(np.linalg.cholesky(hessian / np.outer(scale, scale) + 1e-7 * np.eye(scale.size)).T * scale)
