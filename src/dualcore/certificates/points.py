"""Dual points: one slope and one share of flipped mass for every row, and how a model suggests them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.forms import MarginForm, SquaredForm, SquaredHingeForm, weighted_sum
from dualcore.problem.losses import Loss

__all__ = ["DualPoint", "dual_point", "feasible", "mean_slope", "smoothing_widths"]

# Smoothing widths tried for losses with kinks, as shares of the spread of t.
_WIDTHS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
# Slopes of this size, as a share of the largest, are zero but for rounding.
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
    def steepness(self) -> FloatArray:
        """The sizes of the two slopes of a row together, shape (n,)."""
        return np.abs(self.stay) if self.flip is None else np.abs(self.stay) + np.abs(self.flip)

    def times(self, factor: float) -> DualPoint:
        """Return the point with all slopes multiplied; the shares stay."""
        return DualPoint(factor * self.stay, None if self.flip is None else factor * self.flip, self.share)


def feasible(problem: Problem, point: DualPoint) -> DualPoint:
    """Return the point with every slope moved into the domain of the conjugate, and every share into [0, 1].

    A point that was made for another loss becomes a valid one. The bound evaluates all its terms at the point that is
    returned here, so what it says holds wherever the point came from.
    """
    low, high = problem.loss.slope_range
    if problem.is_classification:  # what rounding leaves of a slope of zero would have to be balanced by other rows
        sizes = np.abs(point.stay)
        least = _NO_SLOPE * min(float(sizes.max(initial=0.0)), 1.0)
        point = DualPoint(np.where(sizes <= least, 0.0, point.stay), point.flip, point.share)
    flips = problem.is_classification and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0
    if not flips or point.share is None or point.flip is None:
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


def mean_slope(loss: Loss, t: FloatArray, width: float) -> FloatArray:
    """Return the mean slope of the loss over ``[t - width, t + width]``, its slope at ``t`` where the width is 0."""
    if width == 0.0:
        return np.asarray(loss.slope(t), dtype=np.float64)
    low, high = loss.slope_range
    slope = np.clip((loss.value(t + width) - loss.value(t - width)) / (2.0 * width), low, high)
    return np.asarray(slope, dtype=np.float64)


def dual_point(problem: Problem, t: FloatArray, data: Data, size: float, width: float = 0.0) -> DualPoint:
    """Return the dual point that the primal point suggests: the slopes of ``h`` at ``t``.

    A positive ``width`` replaces each slope by the mean slope over ``[t - width, t + width]``: near a kink
    the right slope lies strictly between its two sides, and the mean is a far better guess than either.
    """
    form, loss = problem.form, problem.loss
    if isinstance(form, SquaredHingeForm) and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0:
        return _squared_hinge_point(form, t, data.weights, size)
    if isinstance(form, SquaredForm):
        return DualPoint(form.subgradient(t, data.weights, size).t)
    if not isinstance(form, MarginForm):
        return DualPoint(mean_slope(loss, t, width))
    stay = mean_slope(loss, t, width)
    share = _flip_share(form, t, data, size, width)
    if share is None:
        return DualPoint(stay)
    return DualPoint((1.0 - share) * stay, -share * mean_slope(loss, -t, width), share)


def _flip_share(form: MarginForm, t: FloatArray, data: Data, size: float, width: float) -> FloatArray | None:
    rows, exact = form.flip_shares(t, data.weights, size)
    if not rows.size:
        return None
    share = np.zeros(t.size)
    share[rows] = exact
    if width > 0.0:
        gamma, lam = form.geometry.label_cost, form.minimise(t, data.weights, size).multiplier
        gain = form.loss.flip_gain(t) - lam * gamma
        share = np.clip(0.5 + gain / (4.0 * width * form.loss.lipschitz), 0.0, 1.0)
        spent = gamma * weighted_sum(share, data.weights)
        if spent > form.radius:
            share *= form.radius / spent
    return share


def _squared_hinge_point(form: SquaredHingeForm, t: FloatArray, weights: FloatArray | None, size: float) -> DualPoint:
    lam = form.minimise(t, weights, size).multiplier
    above, below = form.partials(t, lam * (1.0 + 1e-9), size), form.partials(t, lam * (1.0 - 1e-9), size)
    budget = form.radius**2
    up, down = (budget + weighted_sum(side.multiplier, weights) for side in (above, below))
    mix = float(np.clip(up / (up - down), 0.0, 1.0)) if up > down else 0.0
    stay = (1.0 - mix) * np.minimum(above.t, 0.0) + mix * np.minimum(below.t, 0.0)
    flip = (1.0 - mix) * np.maximum(above.t, 0.0) + mix * np.maximum(below.t, 0.0)
    share = (1.0 - mix) * (above.t > 0.0) + mix * (below.t > 0.0)
    return DualPoint(stay, flip, share)


def smoothing_widths(problem: Problem, t: FloatArray) -> tuple[float, ...]:
    """Return the smoothing widths worth trying: none for smooth losses without flips."""
    flips = problem.is_classification and np.isfinite(problem.geometry.label_cost)
    if problem.geometry.order > 1 or not (problem.loss.kinks or flips):
        return (0.0,)
    spread = max(float(np.median(np.abs(t - np.median(t)))), 1e-12)
    return (0.0, *(share * spread for share in _WIDTHS))
