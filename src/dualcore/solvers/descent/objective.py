"""The smoothed worst-case risk as a function of a model and a bound on its dual norm.

With ``k >= max(||theta||_*, floor)`` the risk is

    sum_i w_i h_i(theta, b, Lip k) + sigma Lip k + ridge          for order 1,
    (N(theta, b) + sigma k)^p + ridge,  N^p = sum_i w_i L(t_i)    for order p,

both jointly convex and, after smoothing, differentiable in (theta, b, k). The constraint on ``k``, which is not smooth,
is handled by the methods.
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
    """A point, its risk, and the gradient in the coefficients (m,), the intercept and the size ``k``."""

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
        The feature norm for scaled columns: the prices of features are multiplied by the scales.
    floor : float
        Lower bound on ``k``: ``2 / gamma`` in regression, else 0.
    ridge : ndarray of shape (m,)
        Ridge penalty of each coefficient of the scaled columns.
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
        """Return ``max(||coef||_*, floor)``, the smallest feasible ``k``."""
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
        """Return the derivative of the risk in the mean loss: 1 for order 1."""
        if self.problem.family.linear_in_multiplier:
            return 1.0
        mean, root = self._roots(point, sums)
        return float((root / mean) ** (self.order - 1.0)) if mean > 0.0 else 1.0

    def outer_curvature(self, at: Valued) -> FloatArray:
        """Return ``v`` (m + 1 or m + 2,) such that an order above 1 adds ``v v^T`` to the Hessian in (coef, b, k).

        It is the gradient of ``N + sigma k`` times the root of the second derivative of the power.
        """
        p = self.order
        mean, root = self._roots(at.point, at.sums)
        inward = mean ** (1.0 - p) / p if mean > 0.0 else 0.0
        rest = [inward * at.sums.intercept] * self.problem.fit_intercept + [self.radius]
        vector = np.concatenate([inward * at.sums.coef, rest])
        return np.asarray(np.sqrt(p * (p - 1.0) * root ** (p - 2.0)) * vector) if root > 0.0 else np.zeros_like(vector)

    def estimated_gap(self, at: Valued, per_scale: float | None = None) -> float:
        """Estimate, without a pass, the gap of a certificate with the slopes at this point.

        The bound is the dual value of the slopes, minus the first-order cost of making them feasible: their sum must be
        zero, and the norm of their moment at most the budget. If it exceeds the budget, either all slopes are scaled
        down or the excess is multiplied by a bound on the dual norm of optimal models, whichever costs less.
        ``per_scale`` is the loss of dual value per unit of scaling, if a better value than that of the smoothed loss is
        known.
        """
        point, sums, p = at.point, at.sums, self.order
        growth = self.growth(point, sums)
        moment, budget = growth * sums.coef, at.size
        if self.problem.family.flips and point.size > self.norm.dual(point.coef) * (1.0 + 1e-12):
            budget = min(budget, 0.0)  # at the optimum label flips spend all of it
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
            limit = 2.0 * self.norm.dual(point.coef)  # a guess: at radius 0 no bound on the coefficients is known
        out_of_balance = abs(at.intercept) * (1.0 + abs(point.intercept)) if self.problem.fit_intercept else 0.0
        if self.problem.ridge > 0.0:
            # The moment is split into a part within the ball of the norm and a rest, which the ridge pays for. Two
            # splits are tried: the projection on the ball, and that with the ridge gradient at this point as the rest,
            # which is exact at the optimum.
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
