"""What Newton's methods for moving families return."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data

__all__ = ["NewtonResult", "modest_gap"]

# Numbers of the data from which on planes are left out if Newton's methods end with a relative gap of at most 1e-9 for
# each of them, and 1e-4 at most: planes would take minutes for the rest. From the second on they aim no lower.
_SOME, _MANY = 2e4, 1e5


def modest_gap(data: Data, tol: float, *, aimed: bool) -> float:
    """Return the relative gap that Newton's methods aim for, or the one after which planes are not worth their time."""
    numbers = data.rows.n * data.rows.m
    return tol if numbers <= (_MANY if aimed else _SOME) else max(tol, min(1e-9 * numbers, 1e-4))


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
