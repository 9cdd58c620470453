"""Factors of systems that are positive semidefinite up to rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dualcore.data.arrays import FloatArray

__all__ = ["DampedFactor", "solve_damped"]


def solve_damped(H: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a system that is positive semidefinite up to rounding, damped as little as its factor asks for.

    Zeros where it holds no numbers.

    Examples
    --------
    >>> solve_damped(np.array([[4.0, 0.0], [0.0, 2.0]]), np.array([2.0, 1.0])).round(6)
    array([0.5, 0.5])
    """
    return DampedFactor(H).solve(right)


class DampedFactor:
    """The factor behind `solve_damped`, for several right-hand sides."""

    def __init__(self, H: FloatArray) -> None:
        self._factor: tuple[FloatArray, bool] | None = None
        self._finite = bool(np.isfinite(H).all())
        if not self._finite:
            return
        self._scale = np.sqrt(np.maximum(np.diag(H), max(1e-12 * float(np.diag(H).max()), 1e-300)))
        unit = H / np.outer(self._scale, self._scale)
        for damping in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
            try:
                moved = unit.copy()
                moved[np.diag_indices(len(H))] += damping
                self._factor = cho_factor(moved, lower=True)
                return
            except LinAlgError:
                continue

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution; zeros where there are no numbers."""
        if not (self._finite and np.isfinite(right).all()):
            return np.zeros(right.size)
        if self._factor is None:
            return np.asarray(right / self._scale**2)
        return np.asarray(cho_solve(self._factor, right / self._scale) / self._scale)
