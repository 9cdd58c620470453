"""What Newton's methods for moving families return."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data

__all__ = ["NewtonResult", "modest_gap"]

# Data of more than the first many numbers (rows times features): Newton's methods may end with a relative gap of 1e-9
# for each number, 1e-4 at most, without the bundle method, which would take minutes for the rest. Above the second many
# numbers they do not aim for less.
_SOME, _MANY = 1e4, 1e5


def modest_gap(data: Data, tol: float, *, aimed: bool) -> float:
    """Return the relative gap that Newton's methods aim for, or the one at which the bundle method is not started."""
    numbers = data.rows.n * data.rows.m
    return tol if numbers <= (_MANY if aimed else _SOME) else max(tol, min(1e-9 * numbers, 1e-4))


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
