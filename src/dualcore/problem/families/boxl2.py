"""Paths of l2: a closed form for each linear piece of the loss, branch and bound for a curved one."""

from __future__ import annotations

from math import sqrt

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxpath import Best, MoveDirection, Path, Positions, running_sums
from dualcore.problem.losses import Loss

__all__ = ["TOLERANCE", "L2Path"]

# Width of the enclosure where no closed form exists, relative above one.
TOLERANCE = 1e-9
# Smaller slopes count as zero; the square of a price divided by this is still finite.
_LEAST_SLOPE = 1e-100
# By how much, relatively, the end of a search is moved outwards for rounding.
_MARGIN = 1e-9


class L2Path(Path):
    """Feature ``j`` moves by ``min(cap_j, mu u_j)``; the position is ``mu``.

    After k limits ``mu`` is between ``ratio_k`` and ``ratio_{k+1}``, the cost is ``sqrt(T + mu^2 Q)`` and the gain
    ``S + mu Q``.
    """

    def __init__(
        self, loss: Loss, direction: MoveDirection, slopes: FloatArray, caps: FloatArray, least: float
    ) -> None:
        self.length = sqrt(slopes @ slopes)
        super().__init__(loss, direction, caps @ slopes, self.length, least)
        caps = caps[self.rows]
        n, m = caps.shape
        with np.errstate(over="ignore"):
            ratio = caps / slopes
        # For tiny coefficients the ratio of limit to coefficient may exceed the range of positions.
        if slopes.min(initial=1.0) < 1e-50:  # squares of these ratios, which are never reached, would overflow
            np.minimum(ratio, 1e100, out=ratio, where=np.isfinite(caps))
        order = np.argsort(ratio, axis=1)
        u, caps = slopes[order], np.take_along_axis(caps, order, axis=1)
        # An infinite limit is never met: the features behind it are always free to move.
        self.last = np.isfinite(caps).sum(axis=1)
        never = np.isinf(caps)
        self.is_endless = bool(never.any())
        met = np.where(never, 0.0, caps) if self.is_endless else caps
        self.ratio = np.zeros((n, m + 1))
        self.ratio[:, 1:] = np.take_along_axis(ratio, order, axis=1)
        self.T, self.S = running_sums(met * met), running_sums(met * u)
        self.Q = np.ascontiguousarray(running_sums(u[:, ::-1] ** 2)[:, ::-1])
        with np.errstate(all="ignore"):  # of limits at no distance and of those that are never met, which follow
            # Minus the squares of the prices below which limits are met, and the gains at which they are.
            self.met_below = -(self.T[:, 1:] / self.ratio[:, 1:] ** 2 + self.Q[:, 1:])
            self.met_at = self.ratio[:, 1:] * self.Q[:, 1:] + self.S[:, 1:]
        self.met_below[self.ratio[:, 1:] == 0.0] = -np.inf
        self.met_below[never], self.met_at[never] = 1.0, np.inf

    def _at(self, at: Positions, k: Positions, mu: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost at ``mu``, after k limits."""
        Q = self.Q[at, k]
        return self.S[at, k] + mu * Q, np.sqrt(self.T[at, k] + mu * mu * Q)

    def _search(self, at: Positions, start: FloatArray, multiplier: float) -> Best:
        if self.loss.pieces is None:
            return self._enclose(at, start, multiplier)
        # Each linear piece alone is a concave problem: sup |q| s - lam phi(s).
        zero, here = np.zeros(at.size), self.loss.value(start)
        found = Best(here, here, zero, zero, zero)
        for slope in self.slopes_met:
            if multiplier >= slope * self.length:
                continue
            mu, missed, k = self._stationary(at, multiplier / slope)
            gain, cost = self._at(at, k, mu)
            value = self.loss.value(start + self.direction.side * gain) - multiplier * cost
            better = value > found.lower
            new = Best(value, np.maximum(found.upper, value + slope * missed), gain, cost, mu)
            found = Best(*(np.where(better, a, b) for a, b in zip(new, found, strict=True)))
        return found

    def _stationary(self, at: Positions, price: float | FloatArray) -> tuple[FloatArray, FloatArray, Positions]:
        """Return the ``mu`` that maximises ``s - price * cost``, where ``cost / mu`` falls to ``price``.

        If ``price`` equals that of the features without a limit, the supremum is approached at infinity. Then ``mu`` is
        large, and the second array is the difference to the supremum. The third is the number of limits met.
        """
        square = np.asarray(price * price)
        k = _count_up_to(self.met_below, at, -square)
        T, Q, low = self.T[at, k], self.Q[at, k], self.ratio[at, k]
        following = self.ratio[at, np.minimum(k + 1, self.ratio.shape[1] - 1)]
        high = np.where(k < self.last[at], following, np.inf)
        excess = square - Q
        with np.errstate(divide="ignore", invalid="ignore"):
            # The length of a move whose supremum is at infinity, in units of the limits it has met: the difference to
            # the supremum is then about the rounding of the difference of gain and cost.
            mu = np.where(excess > 0.0, np.sqrt(T / excess), np.where(T > 0.0, low + 1e8 * np.sqrt(T / Q), low))
        mu = np.where(Q > 0.0, np.clip(mu, low, np.maximum(high, low)), low)
        endless = (excess <= 0.0) & (T > 0.0) & (Q > 0.0) & np.isinf(high)
        missed = np.divide(0.5 * price * T, mu * np.sqrt(Q), out=np.zeros_like(T), where=endless)
        return mu, missed, k

    def _farthest_gain(self, at: Positions, start: FloatArray, multiplier: float) -> FloatArray:
        """Return an upper bound (k,) on the gain of the best point.

        The best move is stationary for the slope of the loss after it, and moves grow with that slope. So it is no
        longer than the stationary one for the slope at the end.
        """
        side, last = self.direction.side, self.last[at]
        if not self.is_endless:
            end = self.S[at, last]
            steepest = np.maximum(side * self.loss.slope(start + side * end), _LEAST_SLOPE)
            mu, _, k = self._stationary(at, multiplier / steepest)
            gain = np.minimum(self._at(at, k, mu)[0] * (1.0 + _MARGIN), end)
            return np.where(steepest * self.length > multiplier, gain, 0.0)
        T, Q, met = self.T[at, last], self.Q[at, last], self.ratio[at, last]
        # Beyond this mu the cost is within half the tolerance of its asymptote, along which moving further never pays.
        beyond = np.divide(2.0 / TOLERANCE * multiplier * T, np.sqrt(Q), out=met.copy(), where=Q > 0.0)
        # The best point is not beyond the stationary point for the largest slope of the loss either. That is often much
        # closer, and differences of the huge numbers at the other bound would have no correct digits.
        least, most = self.loss.slope_range
        mu, _, _ = self._stationary(at, multiplier / max(most if side > 0.0 else -least, _LEAST_SLOPE))
        far = np.minimum(np.maximum(met, beyond), mu * (1.0 + _MARGIN))
        return self._at(at, _count_up_to(self.ratio[:, 1:], at, far), far)[0]

    def _enclose(self, at: Positions, start: FloatArray, multiplier: float) -> Best:
        """Branch and bound over ``s``: on an interval a chord lies above ``L``, tangents below ``phi``."""
        side, here = self.direction.side, self.loss.value(start)
        best, upper, gain = here.copy(), here.copy(), np.zeros(start.size)
        end = self._farthest_gain(at, start, multiplier)
        steepest = side * self.loss.slope(start + side * end)  # L is convex, so it is steepest at the end
        row = np.flatnonzero((end > 0.0) & (steepest * self.length > multiplier))
        tolerance = TOLERANCE * np.maximum(1.0, np.abs(here))

        def evaluate(row: Positions, where: FloatArray) -> FloatArray:
            """Return ``s, L, phi, phi'`` at gains ``where``, shape (4, k), and update the best values."""
            _, cost, slope = self._position_of(at[row], where)
            value = self.loss.value(start[row] + side * where)
            earned = value - multiplier * cost
            order = np.argsort(earned, kind="stable")  # of two points of one row the better is written last
            better = order[earned[order] > best[row[order]]]
            best[row[better]], gain[row[better]] = earned[better], where[better]
            return np.stack([where, value, cost, slope])

        left, right = evaluate(row, np.zeros(row.size)), evaluate(row, end[row])
        bound = np.empty(0)
        for _ in range(120):
            width = right[0] - left[0]
            low, high = left[1] - multiplier * left[2], right[1] - multiplier * right[2]
            chord = (right[1] - left[1]) / width
            rise, fall = chord - multiplier * left[3], chord - multiplier * right[3]
            inside = (rise > 0.0) & (fall < 0.0)
            step = np.divide(high - low - fall * width, rise - fall, out=0.5 * width, where=inside)
            bound = np.where(inside, low + rise * np.clip(step, 0.0, width), np.maximum(low, high))
            bound = np.maximum(bound, np.maximum(low, high))
            keep = (bound > best[row] + tolerance[row]) & (width > 1e-14 * right[0])
            np.maximum.at(upper, row[~keep], bound[~keep])
            row, left, right, bound = row[keep], left[:, keep], right[:, keep], bound[keep]
            if row.size == 0:
                break
            middle = evaluate(row, left[0] + np.clip(step[keep], 0.2 * width[keep], 0.8 * width[keep]))
            row = np.concatenate([row, row])
            left, right = np.hstack([left, middle]), np.hstack([middle, right])
        np.maximum.at(upper, row[: bound.size], bound)
        upper = np.maximum(upper, best)
        if self.is_endless:
            upper += np.where(self.Q[at, self.last[at]] > 0.0, 0.5 * tolerance, 0.0)
        mu, cost, _ = self._position_of(at, gain)
        return Best(best, upper, gain, cost, mu)

    def _position_of(self, at: Positions, gain: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``mu`` at which the gain is ``s``, ``phi(s)`` and ``phi'(s)``."""
        k = _count_up_to(self.met_at, at, gain)
        low, Q = self.ratio[at, k], self.Q[at, k]
        mu = np.divide(gain - self.S[at, k], Q, out=low.copy(), where=Q > 0.0)
        # Rounding must not carry a position over the next limit.
        mu = np.minimum(np.maximum(mu, low), self.ratio[at, np.minimum(k + 1, self.ratio.shape[1] - 1)])
        cost = np.sqrt(self.T[at, k] + mu * mu * Q)
        return mu, cost, np.divide(mu, cost, out=np.full_like(mu, 1.0 / self.length), where=cost > 0.0)


def _count_up_to(table: FloatArray, at: Positions, bound: FloatArray) -> Positions:
    """Return how many entries of each row ``at`` are at most ``bound``, by bisection: rows do not fall."""
    first, last = np.zeros(at.size, dtype=np.intp), np.full(at.size, table.shape[1], dtype=np.intp)
    for _ in range(table.shape[1].bit_length()):
        middle = (first + last) // 2
        below = (first < last) & (table[at, np.minimum(middle, table.shape[1] - 1)] <= bound)
        first, last = np.where(below, middle + 1, first), np.where(below, last, np.minimum(middle, last))
    return first
