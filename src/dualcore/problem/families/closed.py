"""Features that move anywhere: ``h`` is a function of the margin or the residual, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.anchor import Anchor
from dualcore.problem.families.base import Data, Family, Gradient, RowDual
from dualcore.problem.forms import DualForm, Minimum, get_form, weighted_sum
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss


class ClosedFamily(Family):
    """Losses of order 1 and their powers on unbounded features, custom losses included."""

    name = kernel = "closed"
    is_closed = True

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        super().__init__(loss, geometry, radius)
        self._form = get_form(loss, geometry, radius)
        self.linear_in_multiplier = self._form.linear_in_multiplier
        self.finite_at_kappa = self._form.finite_at_kappa

    @property
    def form(self) -> DualForm:
        return self._form

    def kappa(self, coef: FloatArray) -> float:
        return self._form.kappa(self.size(coef))

    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> float:
        return self._form.largest_multiplier(self.signal(rows, y, coef, intercept), self.size(coef))

    def feasible_multiplier(self, coef: FloatArray, multiplier: float) -> float:
        return self._form.feasible_multiplier(self.size(coef), multiplier)

    def multiplier_face(self, coef: FloatArray, target: FloatArray, budget: float) -> FloatArray:
        least = 0.0 if self.is_classification else self.geometry.target_slope
        if self.size(coef) < least * (1.0 - 1e-9):  # below the price of the target the norm has no slope
            return np.zeros_like(coef)
        rate = self.loss.lipschitz if self.linear_in_multiplier else 1.0
        return self.geometry.norm.face(coef, target, rate * budget)

    def rows(self, model: Anchor, X: Any, y: FloatArray) -> RowDual:
        t, size = self.signal_at(model, X, y), self.size(model.coef)
        h, parts = self._form.h(t, model.multiplier, size), self._form.partials(t, model.multiplier, size)
        slope = parts.t * y if self.is_classification else parts.t
        return RowDual(h, h, slope, -parts.multiplier, X)

    def bounds(self, model: Anchor, rows: Rows, y: FloatArray, *, rule: str = "exact") -> tuple[FloatArray, FloatArray]:
        h = self._form.h(self.signal(rows, y, model.coef, model.intercept), model.multiplier, self.size(model.coef))
        return h, h

    def minimise(self, data: Data, coef: FloatArray, intercept: Any) -> Minimum:
        return self._form.minimise(self.signal(data.rows, data.y, coef, intercept), data.weights, self.size(coef))

    def gradient(self, data: Data, coef: FloatArray, intercept: Any, multiplier: float | None = None) -> Gradient:
        rows, y, weights = data
        t, size = self.signal(rows, y, coef, intercept), self.size(coef)
        in_multiplier = 0.0
        if multiplier is None:
            slope, in_size = self._form.subgradient(t, weights, size)
        else:
            parts = self._form.partials(t, multiplier, size)
            slope, in_size = parts.t, weighted_sum(parts.size, weights)
            in_multiplier = weighted_sum(parts.multiplier, weights)
        slope *= 1.0 / y.size if weights is None else weights
        if self.is_classification:
            slope *= y
        in_coef = rows.transpose_dot(slope) + in_size * self.geometry.norm.steepest(coef)
        return Gradient(in_coef, float(slope.sum()), in_multiplier)
