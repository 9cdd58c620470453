"""Limited-memory BFGS in compact form, whose pairs may be kept when the function changes slightly."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dtrtrs

from dualcore.data.arrays import FloatArray

__all__ = ["LimitedMemory"]


class LimitedMemory:
    """The last pairs of a step and the change of the gradient along it.

    With steps S and changes Y as rows, the oldest first, R the upper triangle of ``S Y'``, L the strictly lower one, D
    the diagonal and ``g`` the last ``s.y / y.y``, the inverse second derivative is about

        H = g I + S' R^-T (D + g Y Y') R^-1 S - g S' R^-T Y - g Y' R^-1 S

    and, from a diagonal ``B0``, the second derivative itself about

        B = B0 - [B0 S', Y'] [[S B0 S', L], [L', -D]]^-1 [B0 S', Y']' .

    Parameters
    ----------
    n_variables : int
        Length of a step.
    n_pairs : int, default=60
        Pairs to keep, as far as memory allows; at least four.
    """

    def __init__(self, n_variables: int, n_pairs: int = 60) -> None:
        # The pairs take at most this many numbers (128 MB) where the variables are many.
        most = int(min(n_pairs, max(4, 16_000_000 // (2 * n_variables))))
        self.count = 0
        self._steps, self._changes = np.empty((most, n_variables)), np.empty((most, n_variables))
        self._products, self._squares = np.zeros((most, most)), np.zeros((most, most))

    def clear(self) -> None:
        """Discard all pairs."""
        self.count = 0

    def add(self, step: FloatArray, change: FloatArray) -> bool:
        """Store a pair, unless the function is not curved along the step; return whether it was stored."""
        product = float(step @ change)
        # Pairs of almost no curvature are discarded: they come from rounding or from a function that is not convex.
        if not (product > 1e-12 * float(change @ change) and product > 0.0):
            return False
        if self.count == len(self._steps):
            for table in (self._steps, self._changes):
                table[:-1] = table[1:]
            for table in (self._products, self._squares):
                table[:-1, :-1] = table[1:, 1:]
            self.count -= 1
        last, kept = self.count, slice(self.count + 1)
        self.count += 1
        self._steps[last], self._changes[last] = step, change
        self._products[kept, last] = self._steps[kept] @ change
        self._products[last, kept] = self._changes[kept] @ step
        self._squares[kept, last] = self._squares[last, kept] = self._changes[kept] @ change
        return True

    def direction(self, gradient: FloatArray) -> FloatArray:
        """Return ``-H gradient``."""
        if not self.count:
            return -gradient
        kept = slice(self.count)
        steps, changes = self._steps[kept], self._changes[kept]
        products, squares = self._products[kept, kept], self._squares[kept, kept]
        factor = float(products[-1, -1] / squares[-1, -1])
        inner = dtrtrs(products, steps @ gradient)[0]  # reads the upper triangle alone
        outer = np.diag(products) * inner + factor * (squares @ inner - changes @ gradient)
        outer = dtrtrs(products, outer, trans=1)[0]
        return np.asarray(factor * (inner @ changes - gradient) - outer @ steps)

    def correction(self, diagonal: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``W`` (2 k, n) and ``C`` (2 k, 2 k) of ``B = diag(diagonal) - W' C W``."""
        kept = slice(self.count)
        scaled, products = self._steps[kept] * diagonal, self._products[kept, kept]
        lower = np.tril(products, -1)
        core = np.block([[scaled @ self._steps[kept].T, lower], [lower.T, -np.diag(np.diag(products))]])
        return np.concatenate([scaled, self._changes[kept]]), np.linalg.inv(core)
