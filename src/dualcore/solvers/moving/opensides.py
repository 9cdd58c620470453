"""Features without a limit, whose moves are bounded by constraints on the multiplier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.families import BoxFamily

__all__ = ["OpenSide", "open_sides"]


class OpenSide(NamedTuple):
    """Features without a limit in one direction of the score: ``lam >= ||max(up theta, -down theta)||_*``."""

    up: FloatArray
    down: FloatArray


def open_sides(problem: Problem, n_features: int) -> list[OpenSide]:
    """Return the constraints on the multiplier, one per direction of the score.

    If the stricter one implies the other, only that: near the zero model the other would carry part of the moment too,
    at a higher cost for each unit.
    """
    family = BoxFamily.of(problem.family)
    low, high = family.support.spread(n_features)
    least, most = problem.loss.slope_range
    rises, falls = np.isposinf(high), np.isneginf(low)
    both = (1.0, -1.0) if problem.is_classification or most >= -least else (-1.0, 1.0)
    out = []
    for push in both[:1] if (rises == falls).all() else both:
        rate = (-least if problem.is_classification or push < 0.0 else most) / family.prices(n_features)
        up, down = (rises, falls) if push > 0.0 else (falls, rises)
        if (rate * (up | down)).any():
            out.append(OpenSide(np.where(up, rate, 0.0), np.where(down, rate, 0.0)))
    return out
