"""Newton systems: factored once an iteration, solved for every direction."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotrs

from dualcore.data.arrays import FloatArray


class NewtonSystem(Protocol):
    """A factored symmetric system."""

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution for one right-hand side."""


class DenseNewton:
    """Cholesky of the whole matrix after equilibration, with a growing diagonal shift where it is singular.

    The matrix, shape (d, d), is symmetric and positive semidefinite up to rounding.
    """

    def __init__(self, matrix: FloatArray) -> None:
        diagonal = np.diag(matrix)
        largest = max(float(diagonal.max()), 1e-200)
        self.scale = np.sqrt(np.where(diagonal > 1e-200, diagonal, largest))
        self.scaled = matrix / np.outer(self.scale, self.scale)
        # By LAPACK itself: for few features the checks of its wrappers take longer than the numbers.
        self.factor: FloatArray | None = None
        shift = 0.0
        for _ in range(12):
            shifted = self.scaled + shift * np.eye(self.scale.size) if shift else self.scaled
            factor, failed = dpotrf(shifted, lower=1, clean=0)
            if not failed:
                self.factor = factor
                break
            shift = max(10.0 * shift, 1e-14)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution; refinement takes back what the shift and rounding cost."""
        goal = right / self.scale
        if self.factor is None:
            try:
                return np.asarray(np.linalg.lstsq(self.scaled, goal, rcond=None)[0] / self.scale)
            except np.linalg.LinAlgError:  # the matrix holds numbers that are not finite: there is no direction
                return np.full_like(goal, np.nan)
        x = dpotrs(self.factor, goal, lower=1)[0]
        for _ in range(2):
            x += dpotrs(self.factor, goal - self.scaled @ x, lower=1)[0]
        return np.asarray(x / self.scale)


class ThinNewton:
    """``[[diag(d) + A' W A, B], [B', C]]`` with few rows in ``A``: an n x n factor instead of an m x m one (Woodbury).

    Parameters
    ----------
    diagonal : ndarray of shape (m,)
        Positive.
    rows : ndarray of shape (n, m)
    weights : ndarray of shape (n,)
        Non-negative.
    border : ndarray of shape (m, k)
    corner : ndarray of shape (k, k)
    """

    def __init__(
        self, diagonal: FloatArray, rows: FloatArray, weights: FloatArray, border: FloatArray, corner: FloatArray
    ) -> None:
        self.diagonal, self.border, self.corner = diagonal, border, corner
        self.rows = rows * np.sqrt(weights)[:, None]
        inner = (self.rows / diagonal) @ self.rows.T
        inner.flat[:: inner.shape[0] + 1] += 1.0
        self.whole: DenseNewton | None = None
        try:
            self.factor = cho_factor(inner, lower=True, check_finite=False)
            self.solved_border = self._inverse(border)
            self.schur = DenseNewton(corner - border.T @ self.solved_border)
        except np.linalg.LinAlgError:  # features of very different reach: rounding has eaten the ones on the diagonal
            self.whole = self._whole()

    def _inverse(self, right: FloatArray) -> FloatArray:
        scaled = right / (self.diagonal if right.ndim == 1 else self.diagonal[:, None])
        back = self.rows.T @ cho_solve(self.factor, self.rows @ scaled, check_finite=False)
        return np.asarray(scaled - back / (self.diagonal if right.ndim == 1 else self.diagonal[:, None]))

    def _eliminate(self, right: FloatArray) -> FloatArray:
        m = self.diagonal.size
        first = self._inverse(right[:m])
        last = self.schur.solve(right[m:] - self.border.T @ first)
        return np.concatenate([first - self.solved_border @ last, last])

    def _apply(self, x: FloatArray) -> FloatArray:
        m = self.diagonal.size
        top = self.diagonal * x[:m] + self.rows.T @ (self.rows @ x[:m]) + self.border @ x[m:]
        return np.concatenate([top, self.border.T @ x[:m] + self.corner @ x[m:]])

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution, refined twice; by the whole matrix where that does not help."""
        if self.whole is not None:
            return self.whole.solve(right)
        x = self._eliminate(right)
        for _ in range(2):
            x = x + self._eliminate(right - self._apply(x))
        off = float(np.abs(right - self._apply(x)).max())
        return x if off <= 1e-10 * float(np.abs(right).max()) else self._whole().solve(right)

    def _whole(self) -> DenseNewton:
        top = self.rows.T @ self.rows
        top.flat[:: top.shape[0] + 1] += self.diagonal
        return DenseNewton(np.block([[top, self.border], [self.border.T, self.corner]]))
