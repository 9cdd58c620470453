"""The result of Newton's methods for boxes and categories."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray

__all__ = ["NewtonResult"]


class NewtonResult(NamedTuple):
    """The best model, its objective at its multiplier, the lower bound, its allowance for rounding, and a history.

    ``history`` holds (lower, upper) of each iteration. ``ideal`` is the best bound before the allowance is subtracted.
    """

    coef: FloatArray
    intercept: float
    multiplier: float
    upper: float
    lower: float
    rounding: float
    history: list[tuple[float, float]]
    ideal: float = 0.0

    def is_within(self, tol: float) -> bool:
        """Whether the relative gap is at most ``tol``."""
        return self.upper - self.lower <= tol * abs(self.upper)

    def joined(self, other: NewtonResult) -> NewtonResult:
        """Return the better of the two models with the better of the two bounds."""
        best = self if self.upper <= other.upper else other
        bound = self if self.lower >= other.lower else other
        history, ideal = [*self.history, *other.history], max(self.ideal, other.ideal)
        return best._replace(lower=bound.lower, rounding=bound.rounding, history=history, ideal=ideal)
