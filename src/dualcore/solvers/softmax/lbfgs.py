"""A limited memory of steps and changes of the gradient, which outlives small changes of the function."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dtrtrs

from dualcore.data.arrays import FloatArray

__all__ = ["Memory"]

_MOST_PAIRS, _MOST_NUMBERS = 60, 60_000_000
_CURVED = 1e-12


class Memory:
    """The pairs of the limited-memory BFGS formula, in its compact form.

    With steps S and changes of the gradient Y as rows, the oldest first, R the upper triangle of ``S Y'``, D its
    diagonal and ``g`` the last ``s.y / y.y``, the inverse second derivative is about

        H = g I + S' R^-T (D + g Y Y') R^-1 S - g S' R^-T Y - g Y' R^-1 S .

    Priors and widths change between rounds, the loss does not: pairs from before are still good to start with.

    Parameters
    ----------
    size : int
        Numbers of a step.
    """

    def __init__(self, size: int) -> None:
        most = int(min(_MOST_PAIRS, max(4, _MOST_NUMBERS // (2 * size))))
        self.count = 0
        self._steps, self._changes = np.empty((most, size)), np.empty((most, size))
        # Of the products of steps and changes only the upper triangle is used.
        self._products, self._squares = np.zeros((most, most)), np.zeros((most, most))

    def clear(self) -> None:
        """Forget all pairs."""
        self.count = 0

    def add(self, step: FloatArray, change: FloatArray) -> None:
        """Remember a step, unless the function is not curved along it."""
        product = float(step @ change)
        if not (product > _CURVED * float(change @ change) and product > 0.0):
            return
        if self.count == len(self._steps):
            for table in (self._steps, self._changes):
                table[:-1] = table[1:]
            for table in (self._products, self._squares):
                table[:-1, :-1] = table[1:, 1:]
            self.count -= 1
        last = self.count
        self.count += 1
        self._steps[last], self._changes[last] = step, change
        self._products[: self.count, last] = self._steps[: self.count] @ change
        self._squares[: self.count, last] = self._squares[last, : self.count] = self._changes[: self.count] @ change

    def direction(self, gradient: FloatArray) -> FloatArray:
        """Return where to go from a gradient."""
        if not self.count:
            return -gradient
        kept = slice(self.count)
        steps, changes = self._steps[kept], self._changes[kept]
        products, squares = self._products[kept, kept], self._squares[kept, kept]
        factor = float(products[-1, -1] / squares[-1, -1])
        inner = dtrtrs(products, steps @ gradient)[0]
        outer = np.diag(products) * inner + factor * (squares @ inner - changes @ gradient)
        outer = dtrtrs(products, outer, trans=1)[0]
        return np.asarray(factor * (inner @ changes - gradient) - outer @ steps)
