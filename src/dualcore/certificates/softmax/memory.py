"""A limited memory of steps and changes of the gradient, which outlives small changes of the function."""

from __future__ import annotations

from collections import deque

from dualcore.data.arrays import FloatArray

__all__ = ["Memory"]

_MOST_PAIRS, _MOST_NUMBERS = 30, 60_000_000
_CURVED = 1e-12


class Memory:
    """The pairs of the limited-memory BFGS formula.

    Priors and widths change between rounds, the loss does not: pairs from before are still good to start with.

    Parameters
    ----------
    size : int
        Numbers of a step.
    """

    def __init__(self, size: int) -> None:
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(
            maxlen=int(min(_MOST_PAIRS, max(4, _MOST_NUMBERS // (2 * size))))
        )

    def add(self, step: FloatArray, change: FloatArray) -> None:
        """Remember a step, unless the function is not curved along it."""
        product = float(step @ change)
        if product > _CURVED * float(change @ change) and product > 0.0:
            self.pairs.append((step, change, product))

    def direction(self, gradient: FloatArray) -> FloatArray:
        """Return where to go from a gradient."""
        out, factors = -gradient, []
        for step, change, product in reversed(self.pairs):
            factor = float(step @ out) / product
            factors.append(factor)
            out -= factor * change
        if self.pairs:
            _, change, product = self.pairs[-1]
            out *= product / float(change @ change)
        for (step, change, product), factor in zip(self.pairs, reversed(factors), strict=True):
            out += (factor - float(change @ out) / product) * step
        return out
