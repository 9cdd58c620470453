"""Products of a softmax design with all rows: centred and scaled in the result, never in the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows

__all__ = ["ClassProducts", "empty_scores"]


def empty_scores(n_rows: int, n_classes: int) -> FloatArray:
    """Return an empty array of one number for each row and class, class after class in memory.

    Sums and maxima over few classes are many times as fast that way.
    """
    return np.empty((n_rows, n_classes), order="F")


class ClassProducts:
    """Scores of a model and moments of row vectors, a pass over the rows each, or one pass for both.

    Parameters
    ----------
    design : ClassDesign

    Attributes
    ----------
    single : bool
        Whether the rows are float32: then products are too, unless they are asked for ``wide``.
    n_passes : int
        Passes so far.
    """

    def __init__(self, design: ClassDesign) -> None:
        self.design, self.rows = design, design.data.rows
        self.n_passes = 0
        self._X = None
        if isinstance(self.rows, DenseRows) and self.rows.X.dtype in (np.float32, np.float64):
            self._X = self.rows.X
        self.single = self._X is not None and self._X.dtype == np.float32

    def _blocks(self, wide: bool) -> Iterator[tuple[slice, Any]]:
        self.n_passes += 1
        if self._X is None:
            yield from self.rows.blocks()
            return
        # A block of this many numbers is large enough for threads and small enough for a cache.
        step = max(256, 524_288 // self.rows.m)
        for start in range(0, self.rows.n, step):
            part = slice(start, min(start + step, self.rows.n))
            block = self._X[part]
            yield part, block.astype(np.float64, copy=False) if wide else block

    def _across(self, W: FloatArray, wide: bool) -> tuple[FloatArray, FloatArray]:
        """Return coefficients of shape (K, m) and intercepts of a model, for rows as they are."""
        design = self.design
        coef = W[:, : design.scale.size] / design.scale
        intercept = -coef @ design.shift
        if design.intercept:
            intercept = intercept + W[:, -1]
        kind = np.float32 if self.single and not wide else np.float64
        return np.ascontiguousarray(coef, dtype=kind), intercept

    def scores(self, W: FloatArray, *, wide: bool = True) -> FloatArray:
        """Return the scores of all rows, shape (n, K)."""
        coef, intercept = self._across(W, wide)
        out = empty_scores(self.rows.n, W.shape[0])
        for part, block in self._blocks(wide):
            out[part] = (coef @ block.T).T
        out += intercept
        return out

    def moment(self, slopes: FloatArray, *, wide: bool = True) -> FloatArray:
        """Return ``sum_i slopes_i x_i`` in units of the design, shape (K, width)."""
        total = np.zeros((slopes.shape[1], self.rows.m))
        for part, block in self._blocks(wide):
            total += self._product(block, slopes[part])
        return self._centred(total, slopes.sum(axis=0))

    def sweep(self, W: FloatArray, slopes_of: Callable[[slice, FloatArray], FloatArray]) -> FloatArray:
        """Return the moment of the slopes that a function makes of the scores, in one pass."""
        coef, intercept = self._across(W, wide=False)
        total, sums = np.zeros((W.shape[0], self.rows.m)), np.zeros(W.shape[0])
        for part, block in self._blocks(wide=False):
            slopes = slopes_of(part, np.asarray((coef @ block.T).T, dtype=np.float64) + intercept)
            total += self._product(block, slopes)
            sums += slopes.sum(axis=0)
        return self._centred(total, sums)

    def _product(self, block: Any, slopes: FloatArray) -> FloatArray:
        if isinstance(block, np.ndarray):
            return np.asarray(slopes.astype(block.dtype, order="C", copy=False).T @ block)
        return np.asarray(block.T @ slopes).T

    def _centred(self, total: FloatArray, sums: FloatArray) -> FloatArray:
        design = self.design
        moment = (total - sums[:, None] * design.shift) / design.scale
        return np.column_stack([moment, sums]) if design.intercept else moment
