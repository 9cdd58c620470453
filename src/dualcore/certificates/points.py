"""Dual points: one slope and one share of flipped mass for every row, and how a model suggests them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem

# Slopes below this share of the largest are rounding errors.
_NO_SLOPE = 1e-14


class DualPoint(NamedTuple):
    """A dual choice per row.

    ``stay`` (n,): slope of the loss in ``t`` times the share that stays, ``(1-q) s``: non-positive for margins, signed
    for residuals. ``flip`` (n,): ``-q s'`` at the flipped margin, non-negative. ``share`` (n,): ``q`` in [0, 1].
    ``flip`` and ``share`` are None where no row flips.
    """

    stay: FloatArray
    flip: FloatArray | None = None
    share: FloatArray | None = None

    @property
    def slope(self) -> FloatArray:
        """The derivative of the linear part in ``t``, shape (n,)."""
        return self.stay if self.flip is None else self.stay + self.flip

    @property
    def absolute_slope(self) -> FloatArray:
        """The sum of the absolute values of the two slopes of a row, shape (n,)."""
        return np.abs(self.stay) if self.flip is None else np.abs(self.stay) + np.abs(self.flip)

    def times(self, factor: float) -> DualPoint:
        """Return the point with all slopes multiplied; the shares stay."""
        return DualPoint(factor * self.stay, None if self.flip is None else factor * self.flip, self.share)


def feasible(problem: Problem, point: DualPoint) -> DualPoint:
    """Return the point with every slope moved into the domain of the conjugate, and every share into [0, 1].

    A point that was made for another loss becomes a valid one. The bound evaluates all its terms at the point that is
    returned here, so it is valid wherever the point came from.
    """
    low, high = problem.loss.slope_range
    if problem.is_classification:  # what rounding leaves of a slope of zero would have to be balanced by other rows
        sizes = np.abs(point.stay)
        least = _NO_SLOPE * min(float(sizes.max(initial=0.0)), 1.0)
        point = DualPoint(np.where(sizes <= least, 0.0, point.stay), point.flip, point.share)
    if not problem.family.flips or point.share is None or point.flip is None:
        return DualPoint(np.clip(point.stay, low, high))
    share = np.clip(point.share, 0.0, 1.0)
    stays = 1.0 - share
    # The domain is an interval that holds zero, so a share of it is the interval times the share. Where an end is
    # infinite a share of zero still allows a slope of zero only.
    stay = np.clip(point.stay, _part(low, stays), _part(high, stays))
    flip = np.clip(point.flip, _part(-high, share), _part(-low, share))
    return DualPoint(stay, flip, share)


def _part(end: float, share: FloatArray) -> FloatArray:
    return end * share if np.isfinite(end) else np.where(share > 0.0, end, 0.0)


def dual_point(problem: Problem, t: FloatArray, data: Data, size: float, width: float = 0.0) -> DualPoint:
    """Return the dual point that the primal point suggests: the slopes of ``h`` at ``t``.

    A positive ``width`` replaces each slope by the mean slope over ``[t - width, t + width]``: near a kink
    the right slope lies strictly between its two sides, and the mean is a far better guess than either.
    """
    return DualPoint(*problem.form.dual_slopes(t, data.weights, size, width))


def smoothing_widths(problem: Problem, t: FloatArray) -> tuple[float, ...]:
    """Return the smoothing widths worth trying: none where ``h`` is smooth."""
    if not problem.form.has_kinks:
        return (0.0,)
    spread = max(float(np.median(np.abs(t - np.median(t)))), 1e-12)
    # Smoothing widths tried for losses with kinks, as shares of the spread of t.
    return (0.0, *(share * spread for share in (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)))
