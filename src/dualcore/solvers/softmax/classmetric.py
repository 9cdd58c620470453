"""Coordinates in which the smoothed risk is well conditioned: one factor for all classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor
from scipy.linalg.lapack import dtrtrs

from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray

__all__ = ["ClassMetric", "sample_gram"]

# Multiple of the identity that is added to the matrix, relative to the curvature.
_DAMPING = 1e-8


def sample_rows(design: ClassDesign, per_feature: int, fewest: int) -> np.ndarray:
    """Return indices of evenly spaced rows and a few rows of every class, ascending."""
    n, size = design.data.rows.n, max(fewest, per_feature * design.scale.size)
    if size >= n:
        return np.arange(n)
    picked = [np.arange(size, dtype=np.int64) * n // size]
    for k in range(design.shape[0]):
        own = np.flatnonzero((design.code == k) & (design.data.masses > 0.0))
        picked.append(own[: max(1, fewest // (8 * design.shape[0]))])
    return np.unique(np.concatenate(picked))


def sample_gram(design: ClassDesign) -> FloatArray | None:
    """Return the mean square of sampled rows in units of the design, shape (m, m); None for many features."""
    m = design.scale.size
    # With more features only the diagonal of the matrix is used.
    if m > 2500:
        return None
    # Four rows per feature, and at least 2,000.
    chosen = sample_rows(design, 4, 2000)
    rows = design.rows(design.data.rows.take(chosen))[:, :m]
    masses = design.data.masses[chosen]
    total = float(masses.sum())
    masses = masses / total if total > 0.0 else np.full(chosen.size, 1.0 / chosen.size)
    return np.asarray(rows.T @ (masses[:, None] * rows))


class ClassMetric(NamedTuple):
    """Coordinates ``W_k = R^-1 z_k`` for the coefficients of every class, with ``R'R`` an estimate of their Hessian.

    ``factor`` is R, of shape (m, m), or its diagonal, of shape (m,). ``intercept`` is the scale of the intercepts.
    """

    factor: FloatArray
    intercept: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, design: ClassDesign, gram: FloatArray | None, curvature: float, extra: FloatArray) -> ClassMetric:
        """Return the metric of ``curvature * gram + diag(extra)``, where ``extra`` (m,) is due to radius and ridge."""
        intercept = float(np.sqrt(curvature))
        if gram is None:
            return cls(np.sqrt(curvature * (1.0 + _DAMPING) + extra), intercept, design.shape)
        matrix = curvature * gram + np.diag(extra)
        matrix += _DAMPING * curvature * np.eye(len(matrix))
        return cls(np.asfortranarray(np.triu(cho_factor(matrix)[0])), intercept, design.shape)

    def outward(self, z: FloatArray) -> FloatArray:
        """Return the model with given coordinates."""
        return self._divided(z.reshape(self.shape), trans=0)

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient in the coordinates."""
        return self._divided(gradient, trans=1).ravel()

    def inward(self, W: FloatArray) -> FloatArray:
        """Return the coordinates of a model."""
        z, m = W.copy(), len(self.factor)
        z[:, :m] = z[:, :m] * self.factor if self.factor.ndim == 1 else z[:, :m] @ self.factor.T
        z[:, m:] *= self.intercept
        return z.ravel()

    def _divided(self, given: FloatArray, *, trans: int) -> FloatArray:
        out, m = given.copy(), len(self.factor)
        if self.factor.ndim == 1:
            out[:, :m] /= self.factor
        else:
            out[:, :m] = dtrtrs(self.factor, out[:, :m].T, trans=trans)[0].T
        out[:, m:] /= self.intercept
        return out
