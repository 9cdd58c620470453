"""Cholesky factors of systems that are positive semidefinite up to rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from dualcore.data.arrays import FloatArray

__all__ = ["DampedFactor", "solve_damped"]


def solve_damped(H: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a system that is positive semidefinite up to rounding; return zeros if its entries are not finite.

    Examples
    --------
    >>> solve_damped(np.array([[4.0, 0.0], [0.0, 2.0]]), np.array([2.0, 1.0])).round(6)
    array([0.5, 0.5])
    """
    return DampedFactor(H).solve(right)


class DampedFactor:
    """Cholesky after equilibration, with a diagonal shift that grows until the factor exists.

    Parameters
    ----------
    H : ndarray of shape (d, d)
        Symmetric, and positive semidefinite up to rounding.
    shift : float, default=0.0
        First shift, relative to the diagonal.
    undefined : float, default=0.0
        Value of all entries of the solution if an entry of the system is not finite.
    """

    def __init__(self, H: FloatArray, shift: float = 0.0, undefined: float = 0.0) -> None:
        diagonal = np.diag(H)
        largest = max(float(diagonal.max(initial=0.0)), 1e-200)
        self.undefined = undefined
        self.scale = np.sqrt(np.where(diagonal > 1e-200, diagonal, largest))
        with np.errstate(invalid="ignore", over="ignore"):  # checked by `finite`
            self.scaled = H / np.outer(self.scale, self.scale)
        self.factor: FloatArray | None = None  # lower triangular
        self.finite = bool(np.isfinite(self.scaled).all())
        for _ in range(12 if self.finite else 0):
            shifted = self.scaled + shift * np.eye(self.scale.size) if shift else self.scaled
            # LAPACK is called directly: for few features the checks of the wrappers take longer than the factor.
            factor, failed = dpotrf(shifted, lower=1, clean=1)
            if not failed:
                self.factor = factor
                return
            shift = max(10.0 * shift, 1e-14)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution (d,); two steps of iterative refinement correct for shift and rounding."""
        goal = right / self.scale
        if not (self.finite and np.isfinite(goal).all()):
            return np.full_like(goal, self.undefined)
        if self.factor is None:
            return np.asarray(np.linalg.lstsq(self.scaled, goal, rcond=None)[0] / self.scale)
        x = dpotrs(self.factor, goal, lower=1)[0]
        for _ in range(2):
            x += dpotrs(self.factor, goal - self.scaled @ x, lower=1)[0]
        return np.asarray(x / self.scale)
