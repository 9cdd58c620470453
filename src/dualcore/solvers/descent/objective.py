"""The smoothed worst-case risk as a function of a model and a bound on its dual norm.

With ``k >= max(||theta||_*, floor)`` the risk is

    sum_i w_i h_i(theta, b, Lip k) + sigma Lip k + ridge          of order 1,
    (N(theta, b) + sigma k)^p + ridge,  N^p = sum_i w_i L(t_i)    of order p,

both jointly convex and, smoothed, differentiable in (theta, b, k). What is not smooth, the norm, is left to the
methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import Norm
from dualcore.solvers.descent.oracle import Oracle
from dualcore.solvers.descent.rowsums import Point, RowSums


class Valued(NamedTuple):
    """A point, its risk and the gradient there: in the coefficients, the intercept and the size."""

    point: Point
    sums: RowSums
    value: float
    coef: FloatArray
    intercept: float
    size: float


class Objective:
    """The risk on an oracle's data, smoothed with one width.

    Attributes
    ----------
    norm : Norm
        The feature norm in the engine's coordinates: scaled columns have scaled prices.
    floor : float
        Least size: ``2 / gamma`` in regression.
    ridge : ndarray of shape (m,)
        Of each coefficient in the engine's coordinates.
    """

    def __init__(self, oracle: Oracle, width: float) -> None:
        self.oracle, self.width, problem = oracle, width, oracle.problem
        self.problem = problem
        self.order = problem.geometry.order
        self.radius, self.lipschitz = problem.radius, problem.loss.root_lipschitz
        scale, prices = oracle.columns.scale, problem.geometry.norm.weights
        self.prices = scale if prices is None else prices * scale
        self.norm: Norm = type(problem.geometry.norm)(self.prices)
        self.floor = 0.0 if problem.is_classification else problem.geometry.target_slope
        self.ridge = problem.ridge / scale**2

    def size(self, coef: FloatArray) -> float:
        """Return the least size that these coefficients allow."""
        return max(self.norm.dual(coef), self.floor)

    def at(self, points: Sequence[Point]) -> list[Valued]:
        """Return value and gradient at each point, from one pass."""
        return [
            self.compose(point, sums)
            for point, sums in zip(points, self.oracle.evaluate(points, self.width), strict=True)
        ]

    def compose(self, point: Point, sums: RowSums) -> Valued:
        """Return value and gradient at a point from the sums over rows there."""
        ridge_slope = self.ridge * point.coef
        penalty = 0.5 * float(ridge_slope @ point.coef)
        if self.problem.family.linear_in_multiplier:
            value = sums.value + self.radius * self.lipschitz * point.size + penalty
            spent = self.problem.geometry.label_cost * sums.flipped if sums.flipped else 0.0
            in_size = self.lipschitz * (self.radius - spent)
            return Valued(point, sums, value, sums.coef + ridge_slope, sums.intercept, in_size)
        root = self._roots(point, sums)[1]
        growth = self.growth(point, sums)
        in_size = self.order * root ** (self.order - 1.0) * self.radius
        return Valued(
            point, sums, root**self.order + penalty, growth * sums.coef + ridge_slope, growth * sums.intercept, in_size
        )

    def _roots(self, point: Point, sums: RowSums) -> tuple[float, float]:
        p = self.order
        mean = float((sums.value + self.width**p) ** (1.0 / p))
        return mean, mean + self.radius * point.size

    def growth(self, point: Point, sums: RowSums) -> float:
        """Return the derivative of the risk in the mean loss: 1 of order 1."""
        if self.problem.family.linear_in_multiplier:
            return 1.0
        mean, root = self._roots(point, sums)
        return float((root / mean) ** (self.order - 1.0)) if mean > 0.0 else 1.0

    def outer_curvature(self, at: Valued) -> FloatArray:
        """Return the root of the part of the Hessian that an order above 1 adds, one vector in (coef, intercept, size).

        The power of ``N + sigma k`` curves along the gradient of ``N + sigma k``.
        """
        p = self.order
        mean, root = self._roots(at.point, at.sums)
        inward = mean ** (1.0 - p) / p if mean > 0.0 else 0.0
        rest = [inward * at.sums.intercept] * self.problem.fit_intercept + [self.radius]
        vector = np.concatenate([inward * at.sums.coef, rest])
        return np.asarray(np.sqrt(p * (p - 1.0) * root ** (p - 2.0)) * vector) if root > 0.0 else np.zeros_like(vector)

    def estimated_gap(self, at: Valued, per_scale: float | None = None) -> float:
        """Estimate the gap that a certificate with the slopes at this point would show, without a pass.

        The dual value of the slopes, less what it costs to first order to make them feasible: to balance them and to
        shorten their moment to the budget, or to pay for what exceeds it. ``per_scale`` is what it costs to scale all
        slopes down, where that is known better than from the slopes of the smoothed loss.
        """
        point, sums, p = at.point, at.sums, self.order
        growth = self.growth(point, sums)
        moment, budget = growth * sums.coef, at.size
        if self.problem.family.flips and point.size > self.norm.dual(point.coef) * (1.0 + 1e-12):
            budget = min(budget, 0.0)  # label flips are to spend all of it
        along = float(moment @ point.coef) + growth * sums.intercept * point.intercept
        length = self.norm.value(moment)
        if p == 1:
            in_level = -self.problem.geometry.label_cost * sums.flipped if sums.flipped else 0.0
            dual = sums.value - along - in_level * self.lipschitz * point.size - sums.roughness
            per_scale = -along if per_scale is None else per_scale
            limit = at.value / (self.lipschitz * self.radius) if self.radius > 0.0 else np.inf
        else:
            mean, root = self._roots(point, sums)
            per_scale = p * root ** (p - 1.0) * mean - along
            dual = per_scale - (p - 1.0) * root**p
            limit = root / self.radius if self.radius > 0.0 else np.inf
        if self.radius == 0.0:
            limit = 2.0 * self.norm.dual(point.coef)  # nothing bounds the coefficients: a guess
        out_of_balance = abs(at.intercept) * (1.0 + abs(point.intercept)) if self.problem.fit_intercept else 0.0
        if self.problem.ridge > 0.0:
            # What the norm leaves of the moment is the ridge's: the nearest point of the ball, or what is left where
            # the ridge takes its share at this point. The second is exact at the optimum.
            ridge_slope = self.ridge * point.coef
            shares, most = (0.0 * ridge_slope, ridge_slope), max(budget, 0.0)
            left = [moment - self.norm.project(moment + taken, most) for taken in shares]
            cost = min(float((rest * rest / self.ridge).sum()) for rest in left)
            return at.value - (dual - 0.5 * cost) + out_of_balance
        if length <= budget:
            return at.value - (dual + self.floor * (budget - length)) + out_of_balance
        inner = (budget - length) * limit if np.isfinite(length) else -np.inf
        if budget > 0.0:
            inner = max(inner, -(1.0 - budget / length) * per_scale)
        return at.value - (dual + inner) + out_of_balance
