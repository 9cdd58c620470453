"""What Newton's methods for moving families return."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray

__all__ = ["NewtonResult"]


class NewtonResult(NamedTuple):
    """The best model, its objective at its multiplier, the lower bound, its rounding, and both bounds by iteration."""

    coef: FloatArray
    intercept: float
    multiplier: float
    upper: float
    lower: float
    rounding: float
    history: list[tuple[float, float]]

    def is_within(self, tol: float) -> bool:
        """Whether the relative gap is at most ``tol``."""
        return self.upper - self.lower <= tol * abs(self.upper)
