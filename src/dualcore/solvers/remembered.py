"""Rows that keep what was computed with them: a product that was asked for before costs no further read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.data.sources import Source
from dualcore.data.sources.products import SourceRows

# By how much, relatively, a vector may differ from a combination of known ones and still be it: a few roundings, far
# less than what the rounding of the moment itself is granted.
_SAME = 16.0 * float(np.finfo(np.float64).eps)


class RememberedRows(SourceRows):
    """The rows of a source, and what reads have found of them already: a question asked again costs no read.

    Whoever reads may leave its results here. Scores are remembered of one model, moments of one pair of vectors, and
    the mean squares of the columns for the masses of the data.

    Examples
    --------
    >>> from dualcore import open_source
    >>> rows = RememberedRows(open_source(np.eye(3), np.ones(3)))
    >>> rows.remember_scores(np.ones(3), np.ones(3))
    >>> rows.dot(np.ones(3)), rows.source.n_reads
    (array([1., 1., 1.]), 0)
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._scores: tuple[FloatArray, FloatArray] | None = None
        self._moments: tuple[FloatArray, FloatArray] | None = None
        self._squares: tuple[FloatArray, FloatArray] | None = None

    def remember_scores(self, coef: FloatArray, scores: FloatArray) -> None:
        """Keep ``X @ coef``."""
        self._scores = (coef, scores)

    def remember_moments(self, vectors: FloatArray, moments: FloatArray) -> None:
        """Keep ``X.T @ vectors.T`` for a few vectors of shape (k, n), transposed: shape (k, m)."""
        self._moments = (vectors, moments)

    def remember_squares(self, weights: FloatArray, squares: FloatArray) -> None:
        """Keep ``sum_i weights_i x_ij^2``."""
        self._squares = (weights, squares)

    def dot(self, coef: FloatArray) -> FloatArray:
        if self._scores is not None and np.array_equal(self._scores[0], coef):
            return self._scores[1].copy()
        found = super().dot(coef)
        if coef.ndim == 1:
            self._scores = (coef.copy(), found.copy())
        return found

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        if self._moments is not None and vector.ndim == 1:
            shares = _combination(self._moments[0], vector)
            if shares is not None:
                return np.asarray(shares @ self._moments[1])
        return super().transpose_dot(vector)

    def column_squares(self, weights: FloatArray) -> FloatArray:
        if self._squares is None or not np.array_equal(self._squares[0], weights):
            self._squares = (weights, super().column_squares(weights))
        return self._squares[1].copy()


class KnownRows(Rows):
    """Rows with the moments ``vectors @ X`` of k vectors, shape (k, n), known: a combination of these costs no product.

    Examples
    --------
    >>> from dualcore.data.rows import as_rows
    >>> known = KnownRows(as_rows(np.eye(2)), np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]))
    >>> known.transpose_dot(np.array([2.0, 0.0]))
    array([2., 0.])
    """

    def __init__(self, rows: Rows, vectors: FloatArray, moments: FloatArray) -> None:
        self.rows, self.vectors, self.moments = rows, vectors, moments
        self.n, self.m, self.in_memory = rows.n, rows.m, rows.in_memory

    @property
    def block_rows(self) -> int:
        """As many as of the rows themselves."""
        return self.rows.block_rows

    def block(self, part: slice) -> Any:
        return self.rows.block(part)

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        return self.rows.take(indices)

    def column_sizes(self, weights: FloatArray | None) -> FloatArray:
        return self.rows.column_sizes(weights)

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        shares = _combination(self.vectors, vector) if vector.ndim == 1 else None
        return self.rows.transpose_dot(vector) if shares is None else np.asarray(shares @ self.moments)


def _combination(vectors: FloatArray, vector: FloatArray) -> FloatArray | None:
    """Return the shares with which known vectors make up another, up to a few roundings; None where they do not."""
    gram = vectors @ vectors.T
    shares, left = np.zeros(len(vectors)), vector
    for _ in range(3):  # the second and third time the shares lose their own rounding
        shares = shares + np.linalg.lstsq(gram, vectors @ left, rcond=None)[0]
        left = vector - shares @ vectors
    return shares if bool((np.abs(left) <= _SAME * (np.abs(shares) @ np.abs(vectors))).all()) else None
