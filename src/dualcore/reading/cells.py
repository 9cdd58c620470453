"""Cells: rows whose dual losses behave alike near the anchor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray

Levels = npt.NDArray[np.intp]


class CellRule(NamedTuple):
    """Which cell a row belongs to: its stratum, the curvature of ``h`` near it, and how large ``h`` is there.

    Levels of curvature halve: level 0 holds the rows nearest to a kink or a bend of ``h``, or of the largest curvature,
    the last level those where ``h`` is nearly linear. Loss layers double, against ``scale``: 0 for ``h <= scale``, j
    for ``(2^{j-1}, 2^j] scale``. Strata are the classes: none may be lost in a draw.
    """

    scale: float
    width: float
    n_curvatures: int
    n_layers: int
    n_strata: int = 1

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return self.n_curvatures * self.n_layers * self.n_strata

    def assign(self, h: FloatArray, stratum: Levels | None = None, level: Levels | None = None) -> Levels:
        """Return the cell of each row from ``h``, the number of its stratum and its level of curvature."""
        cell = np.zeros(h.size, dtype=np.intp)
        if self.n_curvatures > 1:
            if level is None:
                raise ValueError("This rule has levels of curvature: give the level of every row.")
            cell = np.minimum(np.maximum(level, 0), self.n_curvatures - 1)
            cell *= self.n_layers
        if self.n_layers > 1 and self.scale > 0.0:
            layer = binary_level(h / self.scale)
            cell += np.minimum(np.maximum(layer, 0, out=layer), self.n_layers - 1, out=layer)
        if self.n_strata > 1 and stratum is not None:
            cell += stratum * np.intp(self.n_curvatures * self.n_layers)
        return cell


class CellPlan(NamedTuple):
    """Cells for a read, made from a few weighted rows: the rule, the masses it will find, how far to smooth kinks."""

    rule: CellRule
    mass: FloatArray
    smoothing: float


def cell_rule(n_strata: int, mean_h: float, size: int, width: float, *, focused: bool) -> CellRule:
    """Return cells that ``size`` draws can cover: by stratum, by curvature where ``focused``, by loss."""
    n_curvatures = int(np.clip(size // 8, 1, 6)) if focused else 1
    n_layers = int(np.clip(size // (8 * n_curvatures), 1, 4 if focused else 12))
    return CellRule(mean_h, width, n_curvatures, n_layers, n_strata)


def first_reach(n_parameters: int, size: int) -> float:
    """Return how far scores may still move from a model of ``size`` rows, in units of their spread.

    Rows within that distance of a kink count as curved.
    """
    return min(1.0, 2.0 * float(np.sqrt(n_parameters / max(size, 1))))


def spread_of(t: FloatArray, weights: FloatArray) -> float:
    """Return the standard deviation of ``t``, at least a tiny positive number."""
    mean = float(weights @ t)
    return max(float(np.sqrt(weights @ (t - mean) ** 2)), 1e-12)


def binary_level(values: FloatArray) -> Levels:
    """Return k with ``2^{k-1} <= value < 2^k``, for non-negative values; far below any other for 0."""
    return ((np.ascontiguousarray(values).view(np.int64) >> 52) - 1022).astype(np.intp, copy=False)
