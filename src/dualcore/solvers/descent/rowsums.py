"""Sums over a block of rows: the smoothed risk and its gradient.

Kinks are smoothed with a width ``mu``: ``(u)_+`` becomes ``(u + mu)^2 / (4 mu)`` on ``[-mu, mu]``, which is never below
it and equal outside. A loss whose slope jumps by ``j`` at ``c`` is a smooth function plus ``j (t - c)_+``, so every
loss with known kinks can be smoothed. A flip adds ``(L(-t) - L(t) - gamma lam)_+``, smoothed in the same way. The
slope of the smoothed loss lies between the slopes on both sides of the kink, so it is a feasible dual point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.losses import Loss


class Point(NamedTuple):
    """A model in the coordinates of centred and scaled columns.

    ``size`` is an upper bound on the dual norm of the coefficients. For order 1 the multiplier is ``Lip * size``.
    """

    coef: FloatArray
    intercept: float
    size: float


class RowSums(NamedTuple):
    """Sums over rows at one model, weighted by their masses."""

    value: float  # sum w h, smoothed
    coef: FloatArray  # (m,): its gradient in the coefficients, the moment of the slopes
    intercept: float  # its derivative in the intercept
    flipped: float  # sum w q of the flip probabilities q: the derivative in the multiplier is -label_cost * flipped
    roughness: float  # error of smoothing: `value` minus the dual value of these slopes at the same scores

    @classmethod
    def join(cls, parts: list[RowSums]) -> RowSums:
        """Return the sums over the rows of all parts."""
        return cls(*(sum(column[1:], start=column[0]) for column in zip(*parts, strict=True)))


class RowParts(NamedTuple):
    """Value, flipped mass and roughness as in `RowSums`, and the slope in ``t`` of each row, shape (n,)."""

    value: float
    slope: FloatArray
    flipped: float
    roughness: float


class RowCurvatures(NamedTuple):
    """Second derivatives of the rows, times their masses.

    ``along`` (n,) is that in ``t``. For the rows ``rows`` (k,), which are within the width of a flip, the second-order
    term in ``t`` and the multiplier is ``flip (slope_change dt - gamma dlam)^2``, with ``flip`` (k,).
    """

    along: FloatArray
    rows: np.ndarray
    flip: FloatArray
    slope_change: FloatArray


def kinks_of(loss: Loss) -> list[tuple[float, float, float]]:
    """Return the kinks in ascending order: position, slope on the left, and jump of the slope."""
    found = []
    for kink in sorted(loss.kinks):
        step = 1e-9 * max(1.0, abs(kink))
        left, right = loss.slope(np.array([kink - step, kink + step]))
        found.append((float(kink), float(left), float(right - left)))
    return found


class SmoothedLoss:
    """A loss whose kinks are rounded within ``width`` of them; the loss itself where the width is 0.

    Examples
    --------
    >>> from dualcore.problem.losses import Hinge
    >>> SmoothedLoss(Hinge(), 0.5).value_and_slope(np.array([0.0, 1.0, 2.0]))
    (array([1.   , 0.125, 0.   ]), array([-1. , -0.5,  0. ]))
    """

    def __init__(self, loss: Loss, width: float) -> None:
        self.loss, self.width = loss, width
        self.kinks = kinks_of(loss) if width > 0.0 else []

    def value_and_slope(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smoothed loss and its slope."""
        value, slope = self.loss.value_and_slope(t)
        for kink, left, jump in self.kinks:
            away = (t - kink) / self.width
            near = np.flatnonzero(np.abs(away) < 1.0)
            if near.size:
                inside = away[near]
                short = 1.0 - np.abs(inside)
                value[near] += (0.25 * jump * self.width) * short * short
                change = np.sign(inside) * short
                slope[near] -= 0.5 * jump * change
                slope[near[inside == 0.0]] = left + 0.5 * jump
        return value, slope

    def roughness(self, t: FloatArray) -> FloatArray:
        """Return by how much smoothing increases the conjugate at the slope, for each row (n,)."""
        out = np.zeros_like(t)
        for kink, _, jump in self.kinks:
            away = (t - kink) / self.width
            out += (0.25 * jump * self.width) * np.maximum(1.0 - away * away, 0.0)
        return out

    def curvature(self, t: FloatArray) -> FloatArray:
        """Return the second derivative of the smoothed loss."""
        out = np.array(self.loss.curvature(t), dtype=np.float64)
        for kink, _, jump in self.kinks:
            out += np.where(np.abs(t - kink) < self.width, 0.5 * jump / self.width, 0.0)
        return out


class RowFunction:
    """The smoothed ``h(t, lam)`` of each row; for powers, which have no flips here, the loss itself.

    ``width`` is that of the smoothing, in the units of ``t``; 0 for none.
    """

    def __init__(self, problem: Problem, width: float) -> None:
        self.problem, self.width = problem, width
        self.loss = SmoothedLoss(problem.loss, width)
        self.margins = problem.is_classification
        self.label_cost = problem.geometry.label_cost
        self.flips = problem.family.flips
        self.lipschitz = problem.loss.lipschitz
        self.flip_width = width * self.lipschitz if self.flips else 0.0

    def signal(self, scores: FloatArray, y: FloatArray) -> FloatArray:
        """Return the margins or residuals of the scores ``theta . x + b``."""
        return scores * y if self.margins else scores - y

    def sums(self, t: FloatArray, y: FloatArray, masses: FloatArray, size: float) -> tuple[RowSums, FloatArray]:
        """Return the sums over the rows with ``coef`` empty, and ``w_i s_i sign_i`` (n,), whose moment is ``coef``."""
        parts = self.parts(t, masses, size)
        slope = parts.slope * masses
        if self.margins:
            slope *= y
        return RowSums(parts.value, np.zeros(0), float(slope.sum()), parts.flipped, parts.roughness), slope

    def parts(self, t: FloatArray, masses: FloatArray, size: float) -> RowParts:
        """Return the sums over the rows that need no features, and the slope of each."""
        value, slope = self.loss.value_and_slope(t)
        roughness = float(masses @ self.loss.roughness(t)) if self.loss.kinks else 0.0
        flipped = 0.0
        if self.flips:
            near, gain, flip_slope = self._near(t, value, size)
            if near.size:
                share = self.share(gain)
                value[near] += self.flip_width * share * share + np.maximum(gain - self.flip_width, 0.0)
                slope[near] = (1.0 - share) * slope[near] - share * flip_slope
                flipped = float(masses[near] @ share)
                roughness += self.flip_width * float(masses[near] @ (share * (1.0 - share)))
        return RowParts(float(masses @ value), slope, flipped, roughness)

    def share(self, gain: FloatArray) -> FloatArray:
        """Return the flip probabilities from the gains ``L(-t) - L(t) - gamma lam``."""
        if self.flip_width == 0.0:
            return np.where(gain > 0.0, 1.0, 0.0)
        return np.clip(0.5 + gain / (2.0 * self.flip_width), 0.0, 1.0)

    def _near(self, t: FloatArray, value: FloatArray, size: float) -> tuple[np.ndarray, FloatArray, FloatArray]:
        """Return the rows of positive flip probability, the gain of the flip, and the slope of the loss at ``-t``."""
        price = self.label_cost * self.lipschitz * size
        rows = np.flatnonzero(t > self._least_flipped(size))
        flipped, slope = self.loss.value_and_slope(-t[rows])
        gain = flipped - value[rows] - price
        kept = gain > -self.flip_width
        return rows[kept], gain[kept], slope[kept]

    def _least_flipped(self, size: float) -> float:
        """Return a margin below which no row flips: a gain is at most ``2 Lip t``."""
        return 0.5 * (self.label_cost * self.lipschitz * size - self.flip_width) / self.lipschitz

    def dual(self, t: FloatArray, size: float) -> DualPoint:
        """Return the slopes as a dual point."""
        value, slope = self.loss.value_and_slope(t)
        if not self.flips:
            return DualPoint(slope)
        near, gain, flip_slope = self._near(t, value, size)
        if not near.size:
            return DualPoint(slope)
        shares, flip = np.zeros_like(t), np.zeros_like(t)
        shares[near] = self.share(gain)
        flip[near] = -shares[near] * flip_slope
        return DualPoint((1.0 - shares) * slope, flip, shares)

    def curvature(self, t: FloatArray, masses: FloatArray, size: float) -> RowCurvatures:
        """Return the second derivatives, times the masses."""
        along = self.loss.curvature(t)
        rows, flip, slope_change = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
        if self.flips:
            value, slope = self.loss.value_and_slope(t)
            near, gain, flip_slope = self._near(t, value, size)
            if near.size:
                share = self.share(gain)
                along[near] = (1.0 - share) * along[near] + share * self.loss.curvature(-t[near])
                tied = np.abs(gain) < self.flip_width
                rows, slope_change = near[tied], (-flip_slope - slope[near])[tied]
                flip = masses[rows] / (2.0 * self.flip_width)
        return RowCurvatures(along * masses, rows, flip, slope_change)
