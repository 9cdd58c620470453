"""The best move of every row with linf at one multiplier: by the order of the walls, or by a few looks at them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxsearch import FEW, ROUNDING, Place, Price, Walls, nowhere, put
from dualcore.problem.families.boxsums import Places, of_rows, order_rows

__all__ = ["LinfWalls"]

# Sums are made in groups of so many.
_GROUP = 8
_UPPER = np.triu(np.ones((_GROUP, _GROUP)))


class LinfWalls(Walls):
    """``r = cap``, ``w = u``; the cost is the key."""

    #: rows of up to so many walls are sorted faster than looked at a few times
    narrow = 128
    #: pairs of walls up to which all corners of some rows are listed
    most_corners = 80_000

    def __init__(self, caps: FloatArray, slopes: FloatArray, length: float, gain: FloatArray) -> None:
        super().__init__(caps, slopes, length, gain)
        self.table, self.weights = caps, slopes

    def tolerance(self, here: FloatArray, cost: FloatArray) -> FloatArray:
        return ROUNDING * (np.abs(here) + cost)

    def first(self) -> Place:
        # Features without room make the first step dearer, and the bounds by it lower.
        zero, free = np.zeros(self.gain.size), np.greater(self.table, 0.0, out=self._free)
        return Place(zero, zero, zero, 1.0 / (free @ self.weights))

    def has_few_corners(self, n_rows: int) -> bool:
        return n_rows * self.weights.size**2 <= self.most_corners

    def corners(self, rows: Places | None) -> tuple[FloatArray, FloatArray]:
        table = self.table if rows is None else self.table.take(rows, axis=0)
        return np.minimum(table[:, :, None], table[:, None, :]) @ self.weights, table

    def middle(self, rows: Places, first: FloatArray, last: FloatArray) -> tuple[Place, FloatArray | None]:
        return self._place_at(self.table.take(rows, axis=0), 0.5 * (first + last)), None

    def glance(self, price: float | FloatArray) -> Place:
        # Where all walls would be if they were at one place.
        return self._place_at(self.table, self.gain / self.length)

    def _place_at(self, table: FloatArray, key: FloatArray) -> Place:
        gain, free = self._look(table, key)
        return Place(key, gain, key, 1.0 / np.maximum(free, ROUNDING * self.length))

    def _look(self, table: FloatArray, key: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and ``ds/dcost`` behind the place."""
        held, free = self._met(table, key)
        return held @ self.weights, free @ self.weights

    def answer(self, price: Price, *, near: bool) -> Place:
        return (self._by_order if self.weights.size <= self.narrow else self._by_tangents)(price, near)

    def _by_order(self, price: Price, near: bool) -> Place:
        # The weights of the walls in order, and their sums up to the end of every group.
        (n, m), order = self.table.shape, order_rows(self.table)
        steep = self.weights.take(order)
        if m % _GROUP:
            steep = np.pad(steep, ((0, 0), (0, -m % _GROUP)))
        width = steep.shape[1]
        ends = steep @ _up_to_groups(width)
        parts, flat = steep.reshape(-1, _GROUP), ends.reshape(-1)
        rows, out, bar = np.arange(n), Place(*(self.gain,) * 4), price(self.gain, None)
        for _ in range(self.most_looks):
            # The first wall behind which the slope is no more than the price.
            every = rows.size == n
            table, sums = (self.table, ends) if every else (self.table.take(rows, axis=0), ends.take(rows, axis=0))
            met = np.minimum(self.length - bar, sums[:, -1])
            group = rows * sums.shape[1] + (sums >= met[:, None]).argmax(axis=1)
            sums, last = parts.take(group, axis=0) @ _UPPER, flat.take(group)
            sums += (last - sums[:, -1])[:, None]
            sums[:, -1] = last
            k = (sums >= met[:, None]).argmax(axis=1)
            at = _GROUP * group + k
            behind = self.length - sums.reshape(-1).take(np.arange(0, sums.size, _GROUP) + k)
            ahead = np.maximum(behind + steep.reshape(-1).take(at), ROUNDING * self.length)
            at = np.minimum(at - width * rows, m - 1) + m * rows
            key = self.table.reshape(-1).take(order.reshape(-1).take(at) + m * rows)
            if near:
                key[met <= 0.0] = 0.0
            held = self._held[: rows.size]
            gain = np.minimum(table, key[:, None], out=held) @ self.weights
            out = put(out, None if every else rows, Place(key, gain, key, 1.0 / ahead))
            if not near:
                break
            # The price here may be another, and never a lower one.
            now = price(gain, None if every else rows)
            again = ((now >= ahead) & (key > 0.0)).nonzero()[0]
            if self.has_few_corners(again.size):  # of a few, bounds will find those that have a better place before
                break
            rows, bar = rows[again], of_rows(now, again)
        return out

    def _by_tangents(self, price: Price, near: bool) -> Place:
        # The gain is concave in the key. One tangent is steeper than the price, one is not; they meet at the next key.
        n, table, rows = self.gain.size, self.table, None
        low, steep = np.zeros(n), np.full(n, self.length)
        high, flat, rounding = self.gain, np.zeros(n), ROUNDING * self.gain
        out = Place(high, high, high, flat)
        bar = price(high, None)
        for _ in range(self.most_looks):
            key = (high - low) / np.maximum(steep - flat, ROUNDING * steep)
            gain, free = self._look(table, key)
            found = low + steep * key <= gain + rounding
            count = np.count_nonzero(found)
            if near and count:
                # The price here may be another, and never a lower one.
                now = price(gain, rows)
                again = found & (now >= steep)
                if again.any():
                    bar, found = np.where(again, now, bar), found & ~again
                    low, steep = np.where(again, 0.0, low), np.where(again, self.length, steep)
                    stays = again & (bar >= self.length)
                    key, gain, found = np.where(stays, 0.0, key), np.where(stays, 0.0, gain), found | stays
                    count = np.count_nonzero(found)
            if count == found.size:
                return put(out, rows, Place(key, gain, key, 1.0 / steep))
            is_steep = free > bar
            line = gain - free * key
            if rows is None and count > FEW * n:
                out = Place(key, gain, key, 1.0 / steep)
                rows = np.flatnonzero(~found)
                table, rounding, bar = table.take(rows, axis=0), rounding[rows], of_rows(bar, rows)
                is_steep, low, steep, high, flat = is_steep[rows], low[rows], steep[rows], high[rows], flat[rows]
                line, free = line[rows], free[rows]
            np.copyto(low, line, where=is_steep)
            np.copyto(steep, free, where=is_steep)
            high, flat = np.where(is_steep, high, line), np.where(is_steep, flat, free)
        return put(out, rows, nowhere(high.size))


@lru_cache
def _up_to_groups(width: int) -> FloatArray:
    """Return the matrix that adds up so many columns to the end of every group."""
    return np.repeat(np.triu(np.ones((width // _GROUP, width // _GROUP))), _GROUP, axis=0)
