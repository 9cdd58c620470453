"""The minimiser of the smoothed risk of a moving family: where the mixtures of rows meet the optimality conditions."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.families import BoxFamily

__all__ = ["mixed_anchor"]

# Weight of the barrier at the least multiplier, in widths.
_BARRIER = 0.01


def mixed_anchor(problem: Problem, data: Data, start: Anchor, width: float, *, max_iter: int = 500) -> Anchor:
    """Minimise the objective smoothed at a width, by limited-memory quasi-Newton steps from a model on.

    The mean over all rows of what `BoxFamily.mixed_rows` returns there meets the optimality conditions: the moment in
    the coefficients balances the ridge, the slopes sum to zero, and the transport spent is the radius (or less where
    the multiplier is the least one). A logarithmic barrier keeps the multiplier above the least one.
    """
    family, m, w = BoxFamily.of(problem.family), data.rows.m, data.masses
    unit = np.append(np.ones(m + 1), max(start.multiplier, width))

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        x = z * unit
        value, gradient = problem.radius * x[-1] + problem.penalty(x[:m]), np.zeros(m + 2)
        gradient[:m], gradient[-1] = problem.ridge * x[:m], problem.radius
        least, direction = family.soft_kappa(x[:m], width)
        slack = float(x[-1]) - least
        if not slack > 0.0:
            return np.inf, gradient
        value -= _BARRIER * width * float(np.log(slack))
        gradient[:m] += _BARRIER * width / slack * direction
        gradient[-1] -= _BARRIER * width / slack
        for part, X in data.rows.dense_blocks():
            found = family.mixed_rows(Anchor(x[:m], float(x[m]), float(x[-1])), X, data.y[part], width)
            value += float(w[part] @ found.value)
            gradient[:m] += w[part] @ found.moment
            gradient[m] += float(w[part] @ found.slope) if problem.fit_intercept else 0.0
            gradient[-1] -= float(w[part] @ found.spent)
        return value, gradient * unit

    least, _ = family.soft_kappa(start.coef, width)
    x0 = np.append(start.coef, [start.intercept, max(start.multiplier, least + width)])
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(objective, x0 / unit, jac=True, method="L-BFGS-B", options=options).x * unit
    return Anchor(found[:m], float(found[m]), float(found[-1]))
