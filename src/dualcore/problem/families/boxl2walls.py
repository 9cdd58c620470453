"""The best move of every row with l2 at one multiplier, by a few looks at the walls."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxsearch import FEW, ROUNDING, Place, Price, Walls, nowhere, put
from dualcore.problem.families.boxsums import Places, Side, of_rows

__all__ = ["L2Walls", "guess_share"]

# Relative change at which a place is found; of a curved loss the enclosure makes up for it.
_STILL, _NEAR = 1e-13, 1e-7


class L2Walls(Walls):
    """``r = cap / u``, ``w = u^2``; the square of the cost is concave in the square of the key."""

    #: width of the enclosure where the loss is curved, relative above one
    enclosure = 1e-9
    #: how often the slope of a curved loss is answered: where answers fall slowly, splitting is faster
    most_answers = 7

    def __init__(self, caps: FloatArray, slopes: FloatArray, length: float, gain: FloatArray) -> None:
        super().__init__(caps, slopes, length, gain)
        with np.errstate(over="ignore"):
            self.table = caps / slopes
        self.weights = slopes * slopes
        self.most = np.multiply(caps, caps, out=self._held) @ np.ones(slopes.size)

    def tolerance(self, here: FloatArray, cost: FloatArray) -> FloatArray:
        return self.enclosure * np.maximum(1.0, np.abs(here))

    def middle(self, rows: Places, first: FloatArray, last: FloatArray) -> tuple[Place, FloatArray | None]:
        return self._place_at(self.table.take(rows, axis=0), 0.5 * (first + last))

    def glance(self, price: float | FloatArray) -> Place:
        return self._place_at(self.table, np.sqrt(self._guess(price)))[0]

    def _place_at(self, table: FloatArray, key: FloatArray) -> tuple[Place, FloatArray]:
        """Return the places at these keys, and their stiffness as `middle` does."""
        gain, square, free = self._look(table, key)
        cost = np.sqrt(square)
        stiffness = np.maximum(square - key * key * free, 0.0) / np.maximum(free, 1e-200)
        slope = np.divide(key, cost, out=np.full(key.size, 1.0 / self.length), where=cost > 0.0)
        return Place(key, gain, cost, slope), stiffness

    def _look(self, table: FloatArray, key: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return gain, the square of the cost, and ``sum u_j^2`` of the features that met no wall."""
        held, free = self._met(table, key)
        gain = held @ self.weights
        held *= held
        return gain, held @ self.weights, free @ self.weights

    def answer(self, price: Price, *, near: bool) -> Place:
        # cost^2 = met + free key^2: the tangent meets price^2 key^2 farther on than cost^2 does, and comes nearer.
        table, rows, out = self.table, None, Place(*(self.gain,) * 4)
        bar = price(self.gain, None)
        last, square = self.most / (bar * bar), self._guess(bar)
        still = 1.0 - (_NEAR if near else _STILL)
        last_turn, is_new = self.most_answers if near else -1, near
        for turn in range(self.most_looks):
            key = np.sqrt(square)
            gain, cost, free = self._look(table, key)
            if is_new and turn:  # where the guess lies the loss may be flatter than at the answer
                # A loss that is linear all the way there has one price; bounds find rows that come back from there.
                now = price(gain, rows)
                is_new, bar = bool(np.count_nonzero(now != bar)), now
            bars, met = bar * bar, cost - square * free
            following = met / np.maximum(bars - free, ROUNDING * bars)
            # Where no wall is met and the price is not either, nothing pays.
            stays = met <= ROUNDING * cost
            if turn == 0:
                is_flat = free < bars
                stays &= is_flat
                found = stays
                following = np.minimum(np.where(is_flat, following, last), last)
            else:
                found = following >= still * square
                found |= stays
            count = np.count_nonzero(found)
            if count > FEW * found.size or turn == last_turn:
                out = put(out, rows, Place(key, gain, cost, met))
                if count == found.size or turn == last_turn:
                    return self._place(*out)
                rest = (~found).nonzero()[0]
                rows = rest if rows is None else rows[rest]
                table, square, bar = table.take(rest, axis=0), following[rest], of_rows(bar, rest)
            elif count:  # what is found stays, whatever other rows are in the block
                square = np.where(found, square, following)
            else:
                square = following
        return self._place(*put(out, rows, nowhere(square.size)))

    def _guess(self, price: float | FloatArray) -> FloatArray:
        """Return about the square of the key that answers a price."""
        even = self.gain * self.gain / np.maximum(self.length**2 * self.most, 1e-300)
        return np.asarray(self.most / (price * price) * guess_share(price / self.length, even))

    def _place(self, key: FloatArray, gain: FloatArray, square: FloatArray, met: FloatArray) -> Place:
        cost, stays = np.sqrt(square), met <= ROUNDING * square
        if not np.count_nonzero(stays):
            return Place(key, gain, cost, key / cost)
        key, gain, cost = (np.where(stays, 0.0, part) for part in (key, gain, cost))
        return Place(key, gain, cost, np.divide(key, cost, out=np.full(key.size, 1.0 / self.length), where=~stays))


def guess_share(steep: Side, even: Side) -> FloatArray:
    """Return about where a price is answered: the square of the key, as a share of the largest possible.

    It is 1 where all walls are met at once, and ``even``, ``gain^2 / (length^2 cost^2)`` of the farthest place, is 1.
    The more they are spread and the higher the price, ``steep`` times the length, the nearer it is. By how much is
    fitted to data: it decides about the number of looks only.
    """
    share = (1.0 + 0.35 * steep) - (2.6 * steep - 0.25) * (1.0 - even)
    return np.asarray(np.minimum(np.maximum(share, 0.05), 1.0) * (steep < 1.0))
