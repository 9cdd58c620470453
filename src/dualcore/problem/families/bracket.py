"""The minimum of a convex function of the multiplier, between two tangents that close in on each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dualcore.problem.forms import Minimum


class Bracket(NamedTuple):
    """Two multipliers with the minimiser between them."""

    low: float
    high: float


def minimise_between(
    at: Callable[[float], tuple[float, float]], low: float, high: float, sharpness: float, *, within: bool
) -> tuple[Minimum, Bracket] | None:
    """Minimise between two multipliers, from values and slopes; None where the minimiser is not ``within`` them."""
    value, slope = at(low)
    if slope >= 0.0 or high <= low:
        return None if within else (Minimum(value, low), Bracket(low, low))
    high_value, high_slope = at(high)
    if within and high_slope < 0.0:
        return None
    best = min((high_value, high), (value, low))
    if high_slope < 0.0:  # rows that are undecided at the very end, by rounding: beyond it they stay
        low, value, slope = high, high_value, high_slope
        high *= 1.0 + 1e-12
        high_value, high_slope = at(high)
    # Passes over the data that the search for the multiplier may take; it seldom needs forty.
    for count in range(200):
        if high_slope <= 0.0:
            break
        meet = low + (high_value - value - high_slope * (high - low)) / (slope - high_slope)
        # Where the tangents meet, by the one or the other: a steep one has few digits there.
        floor = min(value + slope * (meet - low), high_value - high_slope * (high - meet))
        # Every third trial halves the bracket: tangents alone may creep.
        trial = 0.5 * (low + high) if count % 3 == 2 or not low < meet < high else meet
        if best[0] - floor <= sharpness * abs(best[0]) or not low < trial < high:
            break
        trial_value, trial_slope = at(trial)
        best = min(best, (trial_value, trial))
        if trial_slope < 0.0:
            low, value, slope = trial, trial_value, trial_slope
        else:
            high, high_value, high_slope = trial, trial_value, trial_slope
    return Minimum(*best), Bracket(low, high)
