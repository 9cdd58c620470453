"""Paths of l2: a closed form for each linear piece of the loss, branch and bound for a curved one."""

from __future__ import annotations

from math import sqrt

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxpath import (
    Best,
    Places,
    Side,
    WalledPath,
    count_before,
    of_rows,
    rising_rates,
    running_sums,
)
from dualcore.problem.losses import Loss

__all__ = ["TOLERANCE", "L2Path"]

# Width of the enclosure where no closed form exists, relative above one.
TOLERANCE = 1e-9
# A slope below this moves nothing, and the square of a price divided by it is still a number.
_LEAST_SLOPE = 1e-100
# By how much, relatively, the end of a search is moved outwards for rounding.
_MARGIN = 1e-9


class L2Path(WalledPath):
    """Feature ``j`` moves by ``min(cap_j, mu u_j)``; ``key`` is ``mu``.

    After k limits ``mu`` is between ``ratio_k`` and ``ratio_{k+1}``, the cost is ``sqrt(T + mu^2 Q)`` and the gain
    ``S + mu Q``.
    """

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.length = sqrt(slopes @ slopes)

    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        n, m = caps.shape
        with np.errstate(over="ignore"):
            ratio = caps / slopes
        # Below this a coefficient may have a ratio of limit to coefficient beyond the farthest that is told apart.
        if slopes.min() < 1e-50:  # next to none: squares of their ratios, which nothing reaches, would overflow
            np.minimum(ratio, 1e100, out=ratio, where=np.isfinite(caps))
        order = np.argsort(ratio, axis=1)
        steep, walls = slopes[order], np.take_along_axis(caps, order, axis=1)
        self.m, self.is_endless = m, not np.isfinite(walls).all()
        # An infinite limit is never met: the features behind it stay free.
        self.last = np.isfinite(walls).sum(axis=1)
        self.ratio = np.zeros((n, m + 1))
        self.ratio[:, 1:] = np.take_along_axis(ratio, order, axis=1)
        met = np.where(np.isfinite(walls), walls, 0.0) if self.is_endless else walls
        self.T, self.S, self.Q = (running_sums(part) for part in (met * met, met * steep, steep[:, ::-1] ** 2))
        self._steep: FloatArray | None = None
        self._corner: FloatArray | None = None

    def _later(self, table: FloatArray, at: Places, k: Places) -> FloatArray:
        """Return the entry after k limits of a table that is summed from the last limit on."""
        return np.asarray(table.reshape(-1).take(at * table.shape[1] + (self.m - k)))

    def _entry(self, table: FloatArray, at: Places, k: Places) -> FloatArray:
        return np.asarray(table.reshape(-1).take(at * table.shape[1] + k))

    def _steepness(self) -> FloatArray:
        """Return squares of the prices below which limits are met: those at no distance always, infinite ones never."""
        if self._steep is None:
            met = self.ratio[:, 1 : self.m + 1]
            with np.errstate(divide="ignore", invalid="ignore"):
                steep = self.T[:, 1 : self.m + 1] / (met * met)
                steep += self.Q[:, : self.m][:, ::-1]
            steep[met == 0.0] = np.inf
            if self.is_endless:
                steep[np.arange(self.m) >= self.last[:, None]] = -1.0
            self._steep = steep
        return self._steep

    def _gains(self) -> FloatArray:
        """Return the gains at which limits are met, shape (rows, limits)."""
        if self._corner is None:
            with np.errstate(invalid="ignore"):
                corner = self.ratio[:, 1 : self.m + 1] * self.Q[:, : self.m][:, ::-1]
                corner += self.S[:, 1 : self.m + 1]
            if self.is_endless:
                corner[np.arange(self.m) >= self.last[:, None]] = np.inf
            self._corner = corner
        return self._corner

    def _at(self, at: Places, key: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost at ``mu``."""
        k = count_before(self.ratio, 1, self.m, at, key, falls=False)
        Q = self._later(self.Q, at, k)
        return self._entry(self.S, at, k) + key * Q, np.sqrt(self._entry(self.T, at, k) + key * key * Q)

    def _search(self, loss: Loss, at: Places, start: FloatArray, side: Side, multiplier: float) -> Best:
        if loss.pieces is None:
            return self._enclose(loss, at, start, side, multiplier)
        # Each linear piece alone is a concave problem: sup |q| s - lam phi(s).
        zero = np.zeros(at.size)
        here = loss.value(start)
        found = Best(here, here, zero, zero, zero)
        for rate in rising_rates(loss, side):
            if multiplier >= rate * self.length:
                continue
            key, missed, k = self._stationary(at, multiplier / rate)
            Q = self._later(self.Q, at, k)
            gain, cost = self._entry(self.S, at, k) + key * Q, np.sqrt(self._entry(self.T, at, k) + key * key * Q)
            value = loss.value(start + side * gain) - multiplier * cost
            better = value > found.lower
            new = Best(value, np.maximum(found.upper, value + rate * missed), gain, cost, key)
            found = Best(*(np.where(better, a, b) for a, b in zip(new, found, strict=True)))
        return found

    def _stationary(self, at: Places, price: float | FloatArray) -> tuple[FloatArray, FloatArray, Places]:
        """Return the ``mu`` that maximises ``s - price * cost``, where ``cost / mu`` falls to ``price``.

        At the very price of the features without a limit the supremum lies at infinity. There ``mu`` is where it is as
        good as met, and the second array says what it misses. The third counts the limits that are met.
        """
        square = np.asarray(price * price)
        k = count_before(self._steepness(), 0, self.m, at, square, falls=True)
        T, Q, low = self._entry(self.T, at, k), self._later(self.Q, at, k), self._entry(self.ratio, at, k)
        following = self._entry(self.ratio, at, np.minimum(k + 1, self.m))
        high = np.where(k < self.last[at], following, np.inf)
        room = square - Q
        with np.errstate(divide="ignore", invalid="ignore"):
            # How far a move goes that pays the more the farther it goes, in units of the limits it has met: what it
            # misses is then about what rounding takes from the difference of gain and cost.
            key = np.where(room > 0.0, np.sqrt(T / room), np.where(T > 0.0, low + 1e8 * np.sqrt(T / Q), low))
        key = np.where(Q > 0.0, np.clip(key, low, np.maximum(high, low)), low)
        if not self.is_endless:
            return key, np.zeros_like(T), k
        endless = (room <= 0.0) & (T > 0.0) & (Q > 0.0) & np.isinf(high)
        missed = np.divide(0.5 * price * T, key * np.sqrt(Q), out=np.zeros_like(T), where=endless)
        return key, missed, k

    def _ends(
        self, loss: Loss, at: Places, start: FloatArray, side: Side, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return two gains between which the best place lies, no move apart.

        The best move answers the slope of the loss after it, and the answer grows with the slope. So it is no shorter
        than the answer to the slope at the start, and no longer than the answer to the slope at the end.
        """
        if self.is_endless:
            T, free, key = (
                table[np.arange(at.size)]
                for table in (
                    self._entry(self.T, at, self.last[at]),
                    self._later(self.Q, at, self.last[at]),
                    self._entry(self.ratio, at, self.last[at]),
                )
            )
            # Beyond this mu the cost is within half the tolerance of its asymptote, along which nothing pays.
            beyond = np.divide(2.0 / TOLERANCE * multiplier * T, np.sqrt(free), out=key.copy(), where=free > 0.0)
            # Nor beyond the answer to the steepest slope of all. It is often far nearer, and differences of the huge
            # numbers at the other end have no digits.
            least, most = loss.slope_range
            answer, _, _ = self._stationary(
                at, multiplier / np.maximum(np.where(np.asarray(side) > 0.0, most, -least), _LEAST_SLOPE)
            )
            far = np.minimum(np.maximum(key, beyond), answer * (1.0 + _MARGIN))
            return np.zeros(at.size), self._at(at, far)[0]
        end = self._entry(self.S, at, np.full(at.size, self.m))
        steepest = np.maximum(side * loss.slope(start + side * end), _LEAST_SLOPE)
        key, _, k = self._stationary(at, multiplier / steepest)
        answer = self._entry(self.S, at, k) + key * self._later(self.Q, at, k)
        moves = steepest * self.length > multiplier
        return np.zeros(at.size), np.where(moves, np.minimum(answer * (1.0 + _MARGIN), end), 0.0)

    def _enclose(self, loss: Loss, at: Places, start: FloatArray, side: Side, multiplier: float) -> Best:
        """Branch and bound over ``s``: on an interval a chord lies above ``L``, tangents below ``phi``."""
        here = loss.value(start)
        best, upper, gain = here.copy(), here.copy(), np.zeros(start.size)
        first, end = self._ends(loss, at, start, side, multiplier)
        steepest = side * loss.slope(start + side * end)  # L is convex, so it is steepest at the end
        row = np.flatnonzero((end > first) & (steepest * self.length > multiplier))
        tolerance = TOLERANCE * np.maximum(1.0, np.abs(here))

        def look(row: Places, where: FloatArray) -> FloatArray:
            """Return ``s, L, phi, phi'`` there, one line each, and keep what is better than the best so far."""
            _, cost, slope = self._place_of(at[row], where)
            value = loss.value(start[row] + of_rows(side, row) * where)
            earned = value - multiplier * cost
            order = np.argsort(earned, kind="stable")  # of two places of one row the better writes last
            better = order[earned[order] > best[row[order]]]
            best[row[better]], gain[row[better]] = earned[better], where[better]
            return np.stack([where, value, cost, slope])

        left, right = look(row, first[row]), look(row, end[row])
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
            middle = look(row, left[0] + np.clip(step[keep], 0.2 * width[keep], 0.8 * width[keep]))
            row = np.concatenate([row, row])
            left, right = np.hstack([left, middle]), np.hstack([middle, right])
        np.maximum.at(upper, row[: bound.size], bound)
        upper = np.maximum(upper, best)
        if self.is_endless:
            upper += np.where(self._later(self.Q, at, self.last[at]) > 0.0, 0.5 * tolerance, 0.0)
        key, cost, _ = self._place_of(at, gain)
        return Best(best, upper, gain, cost, key)

    def _place_of(self, at: Places, gain: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``mu`` where the gain is reached, ``phi(s)`` and ``phi'(s)``."""
        k = count_before(self._gains(), 0, self.m, at, gain, falls=False)
        low, Q = self._entry(self.ratio, at, k), self._later(self.Q, at, k)
        key = np.divide(gain - self._entry(self.S, at, k), Q, out=low.copy(), where=Q > 0.0)
        # Rounding must not carry a place over the next limit.
        key = np.minimum(np.maximum(key, low), self._entry(self.ratio, at, np.minimum(k + 1, self.m)))
        cost = np.sqrt(self._entry(self.T, at, k) + key * key * Q)
        return key, cost, np.divide(key, cost, out=np.full_like(key, 1.0 / self.length), where=cost > 0.0)
