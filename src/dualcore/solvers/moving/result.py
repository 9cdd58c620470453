"""What Newton's methods for moving families return."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray

__all__ = ["MANY_NUMBERS", "MODEST_GAP", "NewtonResult"]

# The relative gap with which Newton's methods may end where the data hold more numbers than these. Of 1,000 images of
# 784 pixels they leave 3e-6 to 5e-5 after 10 s; planes would take minutes for the rest.
MODEST_GAP, MANY_NUMBERS = 1e-4, 1e5


class NewtonResult(NamedTuple):
    """The best model and its objective at its multiplier, the bound and its rounding, and the two of every round."""

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
