"""Rows of a source with a cache: a product that was computed before costs no further read."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.data.sources.products import SourceRows


class RememberedRows(SourceRows):
    """The rows of a source, with a cache of products.

    The caller may store products that it computed itself. Cached are the scores of one model, the moments of a few
    vectors, and the mean squares of the columns for one vector of weights.

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


def _combination(vectors: FloatArray, vector: FloatArray) -> FloatArray | None:
    """Return ``c`` with ``vector = c @ vectors`` up to rounding, or None if there is none; ``vectors`` is (k, n)."""
    gram = vectors @ vectors.T
    shares, left = np.zeros(len(vectors)), vector
    for _ in range(3):  # iterative refinement
        shares = shares + np.linalg.lstsq(gram, vectors @ left, rcond=None)[0]
        left = vector - shares @ vectors
    # A few roundings, far less than the allowance for rounding in the moment itself.
    rounding = 16.0 * float(np.finfo(np.float64).eps) * (np.abs(shares) @ np.abs(vectors))
    return shares if bool((np.abs(left) <= rounding).all()) else None
