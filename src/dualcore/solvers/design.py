"""The data of the interior point: scaled columns, the intercept as a column of ones, no rows without weight."""

from __future__ import annotations

import numpy as np

from dualcore.certificates import DualPoint, column_sizes
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows, as_rows
from dualcore.problem import Data, Problem

# Dense rows of at most this many numbers (32 MB) are copied once, scaled and in column order: products with the copy
# are faster, and an iteration needs about ten of them.
_COPIED_NUMBERS = 4_000_000
# Numbers of the copy that are multiplied by weights at a time for a Gram matrix.
_BLOCK_NUMBERS = 131_072


def gram_with_ones(rows: Rows, weights: FloatArray) -> FloatArray:
    """Return ``[X, 1].T @ diag(weights) @ [X, 1]``, shape (m + 1, m + 1)."""
    out = np.empty((rows.m + 1, rows.m + 1))
    out[:-1, :-1] = rows.gram(weights)
    out[:-1, -1] = out[-1, :-1] = rows.transpose_dot(weights)
    out[-1, -1] = weights.sum()
    return out


class Design:
    """Products with ``A = diag(sign) [X / scales, 1]``, where ``sign`` is the label (margins) or one (residuals).

    ``scales`` (m,) are the root mean squares of the columns of the data unless others are passed.
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
        self._copy: FloatArray | None = None
        self._weighed: FloatArray | None = None
        if isinstance(rows, DenseRows) and rows.n * (rows.m + 1) <= _COPIED_NUMBERS:
            self._copy = np.empty((rows.n, rows.m + 1), order="F")
            np.divide(rows.X, self.scales, out=self._copy[:, :-1])
            self._copy[:, -1] = 1.0
            if self.sign is not None:
                self._copy *= self.sign[:, None]

    def signal(self, model: FloatArray) -> FloatArray:
        """Return the margins or residuals of a scaled model (coef, intercept)."""
        t = self.product(model)
        if self.sign is None:
            t -= self.y
        return t

    def product(self, model: FloatArray) -> FloatArray:
        """Return ``A @ model`` (n,), the change of the signals along a direction (m + 1,)."""
        if self._copy is not None:
            return np.asarray(self._copy @ model)
        t = self.rows.dot(model[:-1] / self.scales)
        t += model[-1]
        if self.sign is not None:
            t *= self.sign
        return t

    def adjoint(self, slope: FloatArray) -> FloatArray:
        """Return ``A.T @ (weights * slope)``, shape (m + 1,)."""
        weighted = slope * self.weights
        if self._copy is not None:
            return np.asarray(self._copy.T @ weighted)
        if self.sign is not None:
            weighted *= self.sign
        return np.append(self.rows.transpose_dot(weighted) / self.scales, weighted.sum())

    def gram(self, curvature: FloatArray) -> FloatArray:
        """Return ``A.T @ diag(weights * curvature) @ A``, shape (m + 1, m + 1)."""
        weights = curvature * self.weights
        if self._copy is not None:
            return self._blocked_gram(self._copy, weights)
        scales = np.append(self.scales, 1.0)
        return gram_with_ones(self.rows, weights) / np.outer(scales, scales)

    def _blocked_gram(self, A: FloatArray, weights: FloatArray) -> FloatArray:
        """Return ``A.T @ diag(weights) @ A``, a block of rows at a time.

        The buffer for weighted rows is reused: allocating it anew costs as much as the product.
        """
        n, m = A.shape
        step = max(256, _BLOCK_NUMBERS // m)
        if self._weighed is None:
            self._weighed = np.empty((min(step, n), m), order="F")
        out = np.zeros((m, m))
        for start in range(0, n, step):
            block = A[start : start + step]
            weighed = np.multiply(block, weights[start : start + step, None], out=self._weighed[: len(block)])
            out += block.T @ weighed
        return out

    def dense_rows(self) -> FloatArray:
        """Return ``X / scales`` as a dense array (n, m); only for few rows."""
        X = self.rows.take(np.arange(self.rows.n))
        dense: FloatArray = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        return dense / self.scales

    def all_rows(self, point: DualPoint) -> DualPoint:
        """Return a dual point with an entry for every row of the data, zero for those without weight."""
        if self.kept is None:
            return point
        full = [np.zeros(self.n_given) for _ in range(3)]
        for target, part in zip(full, point, strict=True):
            if part is not None:
                target[self.kept] = part
        return DualPoint(
            full[0], *(None if part is None else target for target, part in zip(full[1:], point[1:], strict=True))
        )
