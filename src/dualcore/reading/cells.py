"""Cells: rows whose dual losses behave alike near the anchor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.forms import MarginForm
from dualcore.problem.losses import Logistic

__all__ = ["CellRule"]


class CellRule(NamedTuple):
    """Which cell a row belongs to: how sharply ``h`` bends near it, and how large ``h`` is there.

    Bend levels halve: level 0 holds the rows where ``h`` bends most (nearest to a kink, or of the largest
    curvature), the last level those where it is as good as linear. Loss layers double, against ``scale``: 0
    for ``h <= scale``, j for ``(2^{j-1}, 2^j] scale``.
    """

    scale: float
    width: float
    n_bends: int
    n_layers: int
    by_class: bool = False

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return self.n_bends * self.n_layers * (2 if self.by_class else 1)

    def assign(
        self, problem: Problem, multiplier: float, t: FloatArray, h: FloatArray, slope: FloatArray, y: FloatArray
    ) -> npt.NDArray[np.intp]:
        """Return the cell of each row."""
        cell = np.zeros(t.size, dtype=np.intp)
        if self.n_bends > 1:
            level = self._bend_level(problem, multiplier, t, slope)
            cell = np.minimum(np.maximum(level, 0, out=level), self.n_bends - 1, out=level)
            cell *= self.n_layers
        if self.n_layers > 1 and self.scale > 0.0:
            layer = _exponent(h / self.scale)
            cell += np.minimum(np.maximum(layer, 0, out=layer), self.n_layers - 1, out=layer)
        if self.by_class:
            cell += (y > 0.0) * np.intp(self.n_bends * self.n_layers)
        return cell

    def _bend_level(
        self, problem: Problem, multiplier: float, t: FloatArray, slope: FloatArray
    ) -> npt.NDArray[np.intp]:
        loss, gamma = problem.loss, problem.geometry.label_cost
        flips = problem.is_classification and np.isfinite(gamma) and problem.geometry.order == 1
        distance: FloatArray | None = None
        for kink in loss.kinks:
            here = np.abs(t - kink)
            distance = here if distance is None else np.minimum(distance, here)
        if flips and isinstance(problem.form, MarginForm):
            here = np.abs(problem.form.loss.flip_gain(t) - multiplier * gamma) / loss.lipschitz
            distance = here if distance is None else np.minimum(distance, here)
        level: npt.NDArray[np.intp] | None = None
        if not loss.kinks:
            if isinstance(loss, Logistic):
                size = np.abs(slope)  # a flipped row has slope 1 + L'(z), and the same curvature
                curvature = 4.0 * size * (1.0 - size)
            else:
                curvature = loss.curvature(t)
            level = -_exponent(curvature)
        if distance is not None:
            near = _exponent(distance / self.width)
            level = near if level is None else np.minimum(level, near)
        return np.full(t.size, self.n_bends, dtype=np.intp) if level is None else level


def _exponent(values: FloatArray) -> npt.NDArray[np.intp]:
    """Return k with ``2^{k-1} <= value < 2^k``, for non-negative values; far below any other for 0."""
    return ((np.ascontiguousarray(values).view(np.int64) >> 52) - 1022).astype(np.intp, copy=False)
