"""The data as the structured solvers see them: unit columns, zero-weight rows dropped, nothing copied."""

from __future__ import annotations

import numpy as np

from dualcore.certificates import DualPoint, column_sizes
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.problem import Data, Problem

__all__ = ["Design"]


class Design:
    """Products with ``A = diag(sign) [X / scales, 1]``, where ``sign`` is the label (margins) or one (residuals).

    Parameters
    ----------
    problem : Problem
    data : Data
    scales : ndarray of shape (m,), optional
        Column sizes to divide by, those of the data by default.
    """

    def __init__(self, problem: Problem, data: Data, scales: FloatArray | None = None) -> None:
        self.kept: np.ndarray | None = None
        rows, y, masses = data.rows, data.y, data.masses
        if data.weights is not None and not data.weights.all():
            self.kept = np.flatnonzero(data.weights)
            rows, y, masses = as_rows(rows.take(self.kept)), y[self.kept], masses[self.kept]
        self.n_given = data.rows.n
        self.rows, self.y, self.weights = rows, y, masses
        self.m = rows.m
        self.sign = y if problem.is_classification else None
        if scales is None:
            scales = column_sizes(Data(rows, y, masses))
        self.scales = np.where(scales > 0.0, scales, 1.0)

    def signal(self, coef: FloatArray, intercept: float, *, linear: bool = False) -> FloatArray:
        """Return margins or residuals for scaled coefficients; ``linear`` leaves the target out (for directions)."""
        t = self.rows.dot(coef / self.scales)
        t += intercept
        if self.sign is not None:
            t *= self.sign
        elif not linear:
            t -= self.y
        return t

    def _signed(self, slope: FloatArray) -> FloatArray:
        out = slope * self.weights
        if self.sign is not None:
            out *= self.sign
        return out

    def transpose(self, slope: FloatArray) -> FloatArray:
        """Return ``sum_i w_i slope_i sign_i x_i / scales``."""
        return self.rows.transpose_dot(self._signed(slope)) / self.scales

    def total(self, slope: FloatArray) -> float:
        """Return ``sum_i w_i slope_i sign_i``."""
        return float(self._signed(slope).sum())

    def moments(self, slope: FloatArray) -> tuple[FloatArray, float]:
        """Return `transpose` and `total` of the same slopes."""
        signed = self._signed(slope)
        return self.rows.transpose_dot(signed) / self.scales, float(signed.sum())

    def first_moment(self, curvature: FloatArray) -> tuple[FloatArray, float]:
        """Return ``sum_i w_i c_i x_i / scales`` and ``sum_i w_i c_i``."""
        weights = curvature * self.weights
        return self.rows.transpose_dot(weights) / self.scales, float(weights.sum())

    def gram(self, curvature: FloatArray) -> FloatArray:
        """Return the weighted Gram matrix of X / scales."""
        gram = self.rows.gram(curvature * self.weights) / np.outer(self.scales, self.scales)
        return np.asarray(gram, dtype=np.float64)

    def dense_rows(self) -> FloatArray:
        """Return X / scales, written out; for a few rows only."""
        X = self.rows.take(np.arange(self.rows.n))
        dense: FloatArray = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        return dense / self.scales

    def spread(self, point: DualPoint) -> DualPoint:
        """Return a dual point with an entry for every row given, zero-weight rows included."""
        if self.kept is None:
            return point
        full = [np.zeros(self.n_given) for _ in range(3)]
        for target, part in zip(full, point, strict=True):
            if part is not None:
                target[self.kept] = part
        return DualPoint(
            full[0], *(None if part is None else target for target, part in zip(full[1:], point[1:], strict=True))
        )
