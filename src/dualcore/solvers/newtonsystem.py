"""Newton systems with far fewer rows than features, solved without a matrix of shape (m, m)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dualcore.data.arrays import FloatArray
from dualcore.solvers.barrier import NormCone
from dualcore.solvers.factor import DampedFactor


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
    cone : NormCone, optional
        The matrix is in the coordinates of this cone; right-hand sides and solutions are in those of the variables.
    """

    def __init__(
        self,
        diagonal: FloatArray,
        rows: FloatArray,
        weights: FloatArray,
        border: FloatArray,
        corner: FloatArray,
        cone: NormCone | None = None,
    ) -> None:
        self.cone = cone
        self.diagonal, self.border, self.corner = diagonal, border, corner
        self.rows = rows * np.sqrt(weights)[:, None]
        inner = (self.rows / diagonal) @ self.rows.T
        inner.flat[:: inner.shape[0] + 1] += 1.0
        self.whole: DampedFactor | None = None
        try:
            self.factor = cho_factor(inner, lower=True, check_finite=False)
            self.solved_border = self._inverse(border)
            self.schur = DampedFactor(corner - border.T @ self.solved_border, undefined=np.nan)
        except np.linalg.LinAlgError:  # entries of very different magnitude: the ones on the diagonal are rounded away
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
        """Return the solution with iterative refinement, or by the full matrix if that does not converge."""
        return self._solve(right) if self.cone is None else self.cone.outward(self._solve(self.cone.inward(right)))

    def _solve(self, right: FloatArray) -> FloatArray:
        if self.whole is not None:
            return self.whole.solve(right)
        x, size = self._eliminate(right), float(np.abs(right).max())
        for _ in range(5):
            left = right - self._apply(x)
            if float(np.abs(left).max()) <= 1e-10 * size:
                return x
            x = x + self._eliminate(left)
        self.whole = self._whole()
        return self.whole.solve(right)

    def _whole(self) -> DampedFactor:
        top = self.rows.T @ self.rows
        top.flat[:: top.shape[0] + 1] += self.diagonal
        return DampedFactor(np.block([[top, self.border], [self.border.T, self.corner]]), undefined=np.nan)
