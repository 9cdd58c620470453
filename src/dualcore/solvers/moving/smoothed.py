"""What Newton's methods on smoothed worst cases have in common: the risk, the barrier at the least multiplier, bounds.

A method smooths ``radius lam + sum_i w_i h_i(theta, b, lam)`` at a width ``mu``, minimises it, and makes the width
smaller until the plane of its shares (`dualcore.certificates.plane`) is near enough to the risk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.plane import Plane, PlaneBound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers.moving.result import NewtonResult

__all__ = ["ObjectiveSums", "Progress", "SmoothedObjective"]

# Numbers of a block of rows: a Hessian of all features is added to once for each.
_BLOCK = 262_144
# Weight of the barrier at the least multiplier, in widths.
_BARRIER = 0.01
# How near the first multiplier is to the best one, by the risk.
_SHARPNESS = 1e-3


class ObjectiveSums(NamedTuple):
    """Value, gradient and Hessian of the smoothed objective, and the plane of its shares."""

    value: float
    gradient: FloatArray
    hessian: FloatArray
    plane: Plane


class SmoothedObjective:
    """A smoothed objective over coefficients, intercept and multiplier, ``x = (theta, b, lam)``.

    Parameters
    ----------
    problem : Problem
    family : BoxFamily
    data : Data
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.m, self.w = data.rows.m, data.masses
        self.below = PlaneBound(problem, family, data)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, block)`` in order, every block an array large enough for a product with its transpose."""
        rows, step = self.data.rows, max(_BLOCK // max(self.m, 1), 64)
        if not rows.in_memory:  # its own blocks are one read
            yield from rows.dense_blocks()
            return
        for first in range(0, rows.n, step):
            part = slice(first, min(first + step, rows.n))
            block = rows.block(part)
            yield part, np.asarray(block.toarray() if sp.issparse(block) else block)

    def slack(self, x: FloatArray) -> float:
        """Return how far the multiplier is above the least one."""
        return float(x[-1]) - self.family.floor()

    def complete(self, x: FloatArray, mu: float, total: float) -> float:
        """Return the objective from the sum over rows; infinite where the multiplier is not above the least one."""
        slack = self.slack(x)
        if not slack > 0.0:
            return float(np.inf)
        value = total + self.problem.radius * float(x[-1]) + self.problem.penalty(x[:-2])
        return float(value - _BARRIER * mu * np.log(slack))

    def complete_derivatives(self, x: FloatArray, mu: float, gradient: FloatArray, H: FloatArray) -> None:
        """Add to the derivatives of the sum over rows, in place, those of the other terms."""
        problem, m, slack = self.problem, self.m, self.slack(x)
        gradient[:m] += problem.ridge * x[:m]
        gradient[-1] += problem.radius - _BARRIER * mu / slack
        H[np.arange(m), np.arange(m)] += problem.ridge
        H[-1, -1] += _BARRIER * mu / slack**2
        if not problem.fit_intercept:
            gradient[m], H[m], H[:, m] = 0.0, 0.0, 0.0
            H[m, m] = 1.0

    def risk(self, x: FloatArray) -> float:
        """Return the objective without smoothing."""
        sweep = self.family.sweep(self.data.rows, self.data.y, x[:-2], float(x[-2]), float(x[-1]))
        total = sum(float(self.w[part] @ moves.upper) for part, moves in sweep)
        return self.problem.radius * float(x[-1]) + total + self.problem.penalty(x[:-2])


class Progress:
    """The best point so far, its risk, and the best lower bound.

    Parameters
    ----------
    smoothed : SmoothedObjective
    coef : ndarray of shape (m,)
    intercept : float
        The model to begin with; its multiplier is looked for.
    """

    def __init__(self, smoothed: SmoothedObjective, coef: FloatArray, intercept: float) -> None:
        self.smoothed = smoothed
        family, data = smoothed.family, smoothed.data
        least, _ = family.search(data.rows, data.y, data.weights, coef, intercept, sharpness=_SHARPNESS)
        # With a ridge the penalty may be all there is of the risk; the barrier needs a multiplier above the least one.
        value = least.value + smoothed.problem.penalty(coef)
        multiplier = max(least.multiplier, family.floor() + 1e-3 * value / smoothed.problem.radius)
        self.best = np.append(coef, [intercept, multiplier])
        self.upper, self.lower, self.rounding = smoothed.risk(self.best), 0.0, 0.0  # losses are not negative
        self.history: list[tuple[float, float]] = []

    def record(self, x: FloatArray, plane: Plane) -> tuple[float, float]:
        """Take note of a point and a plane; return the risk there and the plane's bound before rounding."""
        value = self.look(x)
        known = self.bound(x, plane)
        self.history.append((self.lower, self.upper))
        return value, known

    def look(self, x: FloatArray) -> float:
        """Take note of a point, and return the risk there."""
        value = self.smoothed.risk(x)
        if value < self.upper:
            self.upper, self.best = value, x
        return value

    def bound(self, x: FloatArray, plane: Plane) -> float:
        """Take note of a plane at a point, and return its bound before rounding."""
        known, off = self.smoothed.below.least(plane, x[:-2], self.upper)
        if known - off > self.lower:
            self.lower, self.rounding = known - off, off
        return known

    @property
    def gap(self) -> float:
        """What is open between risk and bound."""
        return self.upper - self.lower

    def is_within(self, tol: float) -> bool:
        """Whether the relative gap is at most 0.9 ``tol``: a little is left for the scores of the solution."""
        return self.gap <= 0.9 * tol * abs(self.upper)

    def result(self) -> NewtonResult:
        """Return the best model with its bounds."""
        history = self.history or [(self.lower, self.upper)]
        coef, (intercept, multiplier) = self.best[:-2], self.best[-2:].tolist()
        return NewtonResult(coef, intercept, multiplier, self.upper, self.lower, self.rounding, history)
