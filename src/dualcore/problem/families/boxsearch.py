"""The best move of every row at one multiplier, without sorting: a few looks at the table of walls.

With ``r_j`` the place on the path where feature ``j`` meets its wall and ``w_j`` its weight, a row that went to the
place ``k`` has gained ``sum_j w_j min(r_j, k)``:

    linf:  r = cap,       w = u,    cost  k,                              ds/dcost = sum of w over r > k ,
    l2:    r = cap / u,   w = u^2,  cost  (sum_j w_j min(r_j, k)^2)^1/2,  ds/dcost = cost / k .

Where the loss is linear with slope ``q`` along the move the best place is where ``ds/dcost`` falls to ``lam / q``.
Both are found by tangents of concave functions with finitely many linear pieces, in a handful of looks.

Where the loss is curved the slope is the one after the move. From the farthest place on, answers to the slope at the
last answer fall towards the farthest place that answers its own slope; behind it nothing is better. What lies before
it is excluded by tangents: ``L(t + d s) - lam (tangent of phi)`` is convex, so on an interval it is largest at an end.
The rows for which these bounds do not suffice are named, and left to the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxsums import Places, Side, of_rows, order_rows
from dualcore.problem.losses import Loss

__all__ = ["Best", "L2Walls", "LinfWalls", "Walls", "rising_rates"]

# Price of a unit of gain, ``lam / slope of the loss``, from the gains of some rows; None stands for all of them.
Price = Callable[[FloatArray, Places | None], float | FloatArray]

_MOST_LOOKS = 60
# How often an interval that may hold a better place is split.
_MOST_SPLITS = 3
# How often the slope of a curved loss is answered with l2: where answers fall slowly, splitting is faster.
_MOST_ANSWERS = 7
# Share of the rows that are found when the others are looked at alone.
_FEW = 0.3
# Relative change at which a place is found; of a curved loss with l2 the enclosure makes up for it.
_STILL, _NEAR = 1e-13, 1e-7
# Share of the square of a guessed key at which a place well before the answer is looked at.
_BEFORE = 1.0
# A gain below its tangents by this, relatively, lies on them; a difference below it is rounding.
_ROUNDING = 1e-14
_LEAST_SLOPE = 1e-100
# Rows of up to so many walls are sorted faster than looked at a few times; sums are made in groups of so many.
_NARROW, _GROUP = 128, 8
# Pairs of walls up to which all corners of some rows are listed.
_MOST_CORNERS = 80_000
_UPPER = np.triu(np.ones((_GROUP, _GROUP)))


class Best(NamedTuple):
    """The best point of every row's path: ``lower`` is attained there, nothing on the path earns above ``upper``.

    ``key`` is where on the path it lies.
    """

    lower: FloatArray
    upper: FloatArray
    gain: FloatArray
    cost: FloatArray
    key: FloatArray


class Place(NamedTuple):
    """A place on the path of every row; ``slope`` is that of a tangent of the cost as a function of the gain."""

    key: FloatArray
    gain: FloatArray
    cost: FloatArray
    slope: FloatArray


class Walls(ABC):
    """The walls of a block of rows, all of them finite.

    Parameters
    ----------
    caps : ndarray of shape (n_rows, n_features)
    slopes : ndarray of shape (n_features,)
        ``u``, positive.
    length : float
        The dual norm of the slopes.
    gain : ndarray of shape (n_rows,)
        The largest gain, ``caps @ slopes``; positive.

    Attributes
    ----------
    table : ndarray of shape (n_rows, n_features)
        ``r``, where on its path a row meets the wall of a feature.
    weights : ndarray of shape (n_features,)
        ``w``.
    """

    table: FloatArray
    weights: FloatArray

    def __init__(self, caps: FloatArray, slopes: FloatArray, length: float, gain: FloatArray) -> None:
        self.length, self.gain = length, gain
        self._held, self._free = np.empty(caps.shape), np.empty(caps.shape, dtype=bool)

    def _met(self, table: FloatArray, key: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return ``min(r, key)`` and ``r > key`` of some rows; the next look may overwrite them."""
        held, free = self._held, self._free
        if key.size != len(held):
            if key.size > len(held):
                self._held, self._free = held, free = np.empty(table.shape), np.empty(table.shape, dtype=bool)
            held, free = held[: key.size], free[: key.size]
        np.minimum(table, key[:, None], out=held)
        np.greater(table, held, out=free)
        return held, free

    @abstractmethod
    def answer(self, price: Price, *, near: bool) -> Place:
        """Return the farthest place where ``ds/dcost`` falls to the price there, or with ``near`` one behind it.

        A row for which there is none stays, and has the key 0. One whose search does not end has the key NaN.
        """

    def first(self) -> Place:
        """Return where all rows begin."""
        zero = np.zeros(self.gain.size)
        return Place(zero, zero, zero, np.full(self.gain.size, 1.0 / self.length))

    @abstractmethod
    def tolerance(self, here: FloatArray, cost: FloatArray) -> FloatArray:
        """Return by how much a bound may exceed what is found."""

    @abstractmethod
    def middle(
        self, rows: Places, first: FloatArray, last: FloatArray, *, is_first: bool
    ) -> tuple[Place, FloatArray | None]:
        """Return a place of some rows between two keys, and the least ``d^2 cost / ds^2 * cost^3`` behind it.

        None stands for zero. The first time a place will do that the search for the answer has looked at.
        """

    def best(self, loss: Loss, start: FloatArray, side: Side, multiplier: float, best: Best) -> tuple[Best, Places]:
        """Return the best place of every row and the rows for which it is not known to be the best.

        ``best`` is what they earn where they stay. The multiplier must be positive.
        """
        if self.has_few_corners(start.size):
            return self._at_corners(loss, start, side, multiplier, best), np.empty(0, dtype=np.intp)
        if loss.pieces is None:
            return self._curved(loss, start, side, multiplier, best)
        undecided = np.zeros(start.size, dtype=bool)
        # Each linear piece alone is a concave problem: sup |q| s - lam phi(s).
        for rate in rising_rates(loss, side):
            if multiplier >= rate * self.length:
                continue
            place = self.answer(_constant(multiplier / rate), near=False)
            undecided |= np.isnan(place.key)
            best = _better(best, place, loss.value(start + side * place.gain) - multiplier * place.cost)
        return best, undecided.nonzero()[0]

    def _curved(self, loss: Loss, start: FloatArray, side: Side, multiplier: float, stay: Best) -> tuple[Best, Places]:
        def price(gain: FloatArray, rows: Places | None) -> FloatArray:
            d = of_rows(side, rows)
            slope = d * loss.slope((start if rows is None else start[rows]) + d * gain)
            return np.asarray(multiplier / np.maximum(slope, _LEAST_SLOPE))

        place = self.answer(price, near=True)
        best = _better(stay, place, loss.value(start + side * place.gain) - multiplier * place.cost)
        most = best.lower + self.tolerance(stay.lower, multiplier * place.cost)
        first = self.first()
        bound = _between(loss, start, side, multiplier, first, place)
        is_open = ~(bound <= most)
        some = is_open.nonzero()[0]
        if some.size == 0:
            return best._replace(upper=np.maximum(best.upper, bound)), some
        upper = np.where(is_open, best.upper, np.maximum(best.upper, bound))
        if self.has_few_corners(some.size):
            few = Best(*(part[some] for part in best))
            few = self._at_corners(loss, start[some], of_rows(side, some), multiplier, few, some)
            upper[some] = few.upper
            return Best(*(_replaced(part, some, new) for part, new in zip(best, few, strict=True)))._replace(
                upper=upper
            ), some[:0]
        undecided = self._split(loss, start, side, multiplier, (first, place), most, upper, some)
        return best._replace(upper=upper), undecided

    def has_few_corners(self, n_rows: int) -> bool:
        """Whether to list all corners of so many rows takes less time than to search."""
        return False

    def corners(self, rows: Places | None) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost where rows meet each of their walls, one of which is the best place or no move is."""
        raise NotImplementedError(f"{type(self).__name__} has better places than corners")

    def _at_corners(
        self,
        loss: Loss,
        start: FloatArray,
        side: Side,
        multiplier: float,
        best: Best,
        rows: Places | None = None,
    ) -> Best:
        gain, cost = self.corners(rows)
        value = loss.value(start[:, None] + (side if isinstance(side, float) else side[:, None]) * gain)
        value -= multiplier * cost
        most = value.max(axis=1)
        # Of corners that earn the same, to rounding, the cheapest.
        at = np.where(value >= (most - 1e-15 * np.abs(most))[:, None], cost, np.inf).argmin(axis=1)
        every = np.arange(at.size)
        far, far_cost = gain[every, at], cost[every, at]
        return _better(best, Place(far_cost, far, far_cost, far_cost), most)

    def _split(
        self,
        loss: Loss,
        start: FloatArray,
        side: Side,
        multiplier: float,
        ends: tuple[Place, Place],
        most: FloatArray,
        upper: FloatArray,
        rows: Places,
    ) -> Places:
        """Split what lies between two places of some rows, until no part of it can earn more than ``most``.

        Raises ``upper`` to the bounds of the parts, and returns the rows with a part that may be better.
        """
        t, d, limit, (first, last) = start, side, most, ends
        if rows.size < start.size:
            t, d, limit = start[rows], of_rows(side, rows), most[rows]
            first, last = _pick(first, rows), _pick(last, rows)
        for turn in range(_MOST_SPLITS):
            middle, stiffness = self.middle(rows, first.key, last.key, is_first=turn == 0)
            # A better place than the answer is left to the caller.
            better = loss.value(t + d * middle.gain) - multiplier * middle.cost > limit
            before = np.where(better, np.inf, _between(loss, t, d, multiplier, first, middle))
            if stiffness is None:
                after = _between(loss, t, d, multiplier, middle, last)
            else:
                after = self._peak(loss, t, d, multiplier, middle, last, multiplier * stiffness / last.cost**3)
            before_open, after_open = ~(before <= limit), ~(after <= limit)
            closed = np.maximum(np.where(before_open, -np.inf, before), np.where(after_open, -np.inf, after))
            np.maximum.at(upper, rows, closed)
            one, other = before_open.nonzero()[0], after_open.nonzero()[0]
            both = np.concatenate([one, other])
            rows = rows[both]
            if both.size == 0:
                return both
            t, d, limit = t[both], of_rows(d, both), limit[both]
            first, last = (
                _join(_pick(first, one), _pick(middle, other)),
                _join(_pick(middle, one), _pick(last, other)),
            )
        return np.unique(rows)

    def _peak(
        self,
        loss: Loss,
        t: FloatArray,
        side: Side,
        multiplier: float,
        first: Place,
        last: Place,
        stiff: FloatArray,
    ) -> FloatArray:
        """Return a bound between two places, where ``lam phi''`` is at least ``stiff``.

        Where the loss is flatter than ``q - d`` nowhere, and ``q`` and ``q + e`` are the slopes of loss and cost at the
        last place, ``f(s) <= f(last) + (d + e) x - stiff x^2 / 2`` at the distance ``x`` from it. That is below
        ``f(last)`` but for ``x <= 2 (d + e) / stiff``: so the interval can be cut, and ``d`` falls.
        """
        value, slope = loss.value_and_slope(t + side * last.gain)
        ahead = np.maximum(multiplier * last.slope, side * slope)  # q + e
        width = last.gain - first.gain
        stiff = np.maximum(stiff, 1e-200)
        for _ in range(2):
            rise = ahead - side * loss.slope(t + side * (last.gain - width))
            width = np.minimum(width, 2.0 * rise / stiff)
        rise = ahead - side * loss.slope(t + side * (last.gain - width))
        return np.asarray(value - multiplier * last.cost + rise * np.minimum(width, 0.5 * rise / stiff))


class LinfWalls(Walls):
    """``r = cap``, ``w = u``; the cost is the key."""

    def __init__(self, caps: FloatArray, slopes: FloatArray, length: float, gain: FloatArray) -> None:
        super().__init__(caps, slopes, length, gain)
        self.table, self.weights = caps, slopes

    def tolerance(self, here: FloatArray, cost: FloatArray) -> FloatArray:
        return _ROUNDING * (np.abs(here) + cost)

    def first(self) -> Place:
        # Features without room make the first step dearer, and the bounds by it lower.
        zero, free = np.zeros(self.gain.size), np.greater(self.table, 0.0, out=self._free)
        return Place(zero, zero, zero, 1.0 / (free @ self.weights))

    def has_few_corners(self, n_rows: int) -> bool:
        return n_rows * self.weights.size**2 <= _MOST_CORNERS

    def corners(self, rows: Places | None) -> tuple[FloatArray, FloatArray]:
        table = self.table if rows is None else self.table.take(rows, axis=0)
        return np.minimum(table[:, :, None], table[:, None, :]) @ self.weights, table

    def middle(
        self, rows: Places, first: FloatArray, last: FloatArray, *, is_first: bool
    ) -> tuple[Place, FloatArray | None]:
        key = 0.5 * (first + last)
        gain, free = self._look(self.table.take(rows, axis=0), key)
        return Place(key, gain, key, 1.0 / np.maximum(free, _ROUNDING * self.length)), None

    def _look(self, table: FloatArray, key: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and ``ds/dcost`` behind the place."""
        held, free = self._met(table, key)
        return held @ self.weights, free @ self.weights

    def answer(self, price: Price, *, near: bool) -> Place:
        return (self._by_order if self.weights.size <= _NARROW else self._by_tangents)(price, near)

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
        for _ in range(_MOST_LOOKS):
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
            ahead = np.maximum(behind + steep.reshape(-1).take(at), _ROUNDING * self.length)
            at = np.minimum(at - width * rows, m - 1) + m * rows
            key = self.table.reshape(-1).take(order.reshape(-1).take(at) + m * rows)
            if near:
                key[met <= 0.0] = 0.0
            held = self._held[: rows.size]
            gain = np.minimum(table, key[:, None], out=held) @ self.weights
            out = _put(out, None if every else rows, Place(key, gain, key, 1.0 / ahead))
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
        high, flat, rounding = self.gain, np.zeros(n), _ROUNDING * self.gain
        out = Place(high, high, high, flat)
        bar = price(high, None)
        for _ in range(_MOST_LOOKS):
            key = (high - low) / np.maximum(steep - flat, _ROUNDING * steep)
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
                return _put(out, rows, Place(key, gain, key, 1.0 / steep))
            is_steep = free > bar
            line = gain - free * key
            if rows is None and count > _FEW * n:
                out = Place(key, gain, key, 1.0 / steep)
                rows = np.flatnonzero(~found)
                table, rounding, bar = table.take(rows, axis=0), rounding[rows], of_rows(bar, rows)
                is_steep, low, steep, high, flat = is_steep[rows], low[rows], steep[rows], high[rows], flat[rows]
                line, free = line[rows], free[rows]
            np.copyto(low, line, where=is_steep)
            np.copyto(steep, free, where=is_steep)
            high, flat = np.where(is_steep, high, line), np.where(is_steep, flat, free)
        return _put(out, rows, _nowhere(high.size))


class L2Walls(Walls):
    """``r = cap / u``, ``w = u^2``; the square of the cost is concave in the square of the key."""

    #: Width of the enclosure where the loss is curved, relative above one.
    enclosure = 1e-9

    def __init__(self, caps: FloatArray, slopes: FloatArray, length: float, gain: FloatArray) -> None:
        super().__init__(caps, slopes, length, gain)
        with np.errstate(over="ignore"):
            self.table = caps / slopes
        self.weights = slopes * slopes
        self.most = np.einsum("ij,ij->i", caps, caps)

    def tolerance(self, here: FloatArray, cost: FloatArray) -> FloatArray:
        return self.enclosure * np.maximum(1.0, np.abs(here))

    def middle(
        self, rows: Places, first: FloatArray, last: FloatArray, *, is_first: bool
    ) -> tuple[Place, FloatArray | None]:
        if is_first:
            every = rows.size == self.gain.size
            key, gain, square, free = self.guess if every else _pick(self.guess, rows)
            behind = ((key > 0.95 * last) | (key <= first)).nonzero()[0]
            if behind.size:
                there = 0.5 * (first + last)[behind]
                looked = Place(there, *self._look(self.table.take(rows[behind], axis=0), there))
                key, gain, square, free = _put(Place(key, gain, square, free), behind, looked)
        else:
            key = 0.5 * (first + last)
            gain, square, free = self._look(self.table.take(rows, axis=0), key)
        cost = np.sqrt(square)
        stiffness = np.maximum(square - key * key * free, 0.0) / np.maximum(free, 1e-200)
        return Place(key, gain, cost, key / cost), stiffness

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
        last = self.most / (bar * bar)
        # One before the answer serves as a place between it and the start, too.
        square = (_BEFORE if near else 1.0) * self._first_guess(bar, last)
        still = 1.0 - (_NEAR if near else _STILL)
        last_turn, is_new = _MOST_ANSWERS if near else -1, near
        for turn in range(_MOST_LOOKS):
            key = np.sqrt(square)
            gain, cost, free = self._look(table, key)
            if is_new and turn:  # where the guess lies the loss may be flatter than at the answer
                # A loss that is linear all the way there has one price; bounds find rows that come back from there.
                now = price(gain, rows)
                is_new, bar = bool(np.count_nonzero(now != bar)), now
            bars, met = bar * bar, cost - square * free
            following = met / np.maximum(bars - free, _ROUNDING * bars)
            # Where no wall is met and the price is not either, nothing pays.
            stays = met <= _ROUNDING * cost
            if turn == 0:
                is_flat = free < bars
                stays &= is_flat
                found = stays
                following = np.minimum(np.where(is_flat, following, last), last)
                if near:
                    self.guess = Place(key, gain, cost, free)
            else:
                found = following >= still * square
                found |= stays
            count = np.count_nonzero(found)
            if count > _FEW * found.size or turn == last_turn:
                out = _put(out, rows, self._place(key, gain, cost, stays))
                if count == found.size or turn == last_turn:
                    return out
                rest = (~found).nonzero()[0]
                rows = rest if rows is None else rows[rest]
                table, square, bar = table.take(rest, axis=0), following[rest], of_rows(bar, rest)
            elif count:  # what is found stays, whatever other rows are in the block
                square = np.where(found, square, following)
            else:
                square = following
        return _put(out, rows, _nowhere(square.size))

    def _first_guess(self, bar: Side, last: FloatArray) -> FloatArray:
        """Return a guess of the square of the answer's key, which is at most ``last``.

        It is ``last`` where all walls are met at once. The more the walls are spread, and the higher the price, the
        nearer it is: by how much is fitted to data, and decides about the number of looks only.
        """
        steep = bar / self.length
        spread = 1.0 - self.gain * self.gain / np.maximum(self.length**2 * self.most, 1e-300)
        share = (1.0 + 0.35 * steep) - (2.6 * steep - 0.25) * spread
        share = np.minimum(np.maximum(share, 0.05), 1.0)
        share *= steep < 1.0
        share *= last
        return np.asarray(share)

    def _place(self, key: FloatArray, gain: FloatArray, square: FloatArray, stays: npt.NDArray[np.bool_]) -> Place:
        cost = np.sqrt(square)
        if not np.count_nonzero(stays) and np.count_nonzero(cost) == cost.size:
            return Place(key, gain, cost, key / cost)
        stays = stays | (cost == 0.0)
        key, gain, cost = (np.where(stays, 0.0, part) for part in (key, gain, cost))
        return Place(key, gain, cost, np.divide(key, cost, out=np.full(key.size, 1.0 / self.length), where=~stays))


@lru_cache
def _up_to_groups(width: int) -> FloatArray:
    """Return the matrix that adds up so many columns to the end of every group."""
    return np.repeat(np.triu(np.ones((width // _GROUP, width // _GROUP))), _GROUP, axis=0)


def _constant(price: float) -> Price:
    return lambda gain, rows: price


def _between(loss: Loss, t: FloatArray, side: Side, multiplier: float, first: Place, last: Place) -> FloatArray:
    """Return a bound by the tangents at two places: where they meet, the places themselves apart."""
    room = np.maximum(last.slope - first.slope, _ROUNDING * last.slope)
    meet = (last.slope * last.gain - last.cost - first.slope * first.gain + first.cost) / room
    meet = np.minimum(np.maximum(meet, first.gain), last.gain)
    return np.asarray(loss.value(t + side * meet) - multiplier * (first.cost + first.slope * (meet - first.gain)))


def _pick(place: Place, rows: Places) -> Place:
    return Place(*(part[rows] for part in place))


def _join(one: Place, other: Place) -> Place:
    return Place(*(np.concatenate(parts) for parts in zip(one, other, strict=True)))


def _put(out: Place, rows: Places | None, part: Place) -> Place:
    """Return the places of all rows, those of some of them given anew."""
    if rows is None:
        return part
    for whole, new in zip(out, part, strict=True):
        whole[rows] = new
    return out


def _replaced(whole: FloatArray, rows: Places, part: FloatArray) -> FloatArray:
    whole = whole.copy()
    whole[rows] = part
    return whole


def _nowhere(n: int) -> Place:
    """Return the place of rows whose search did not end."""
    return Place(*(np.full(n, np.nan) for _ in range(4)))


def _better(best: Best, place: Place, value: FloatArray) -> Best:
    """Return the better of what is known and a place; of equal ones, to rounding, the first."""
    wins = value > best.lower + 1e-15 * np.abs(best.lower)
    new = (value, value, place.gain, place.cost, place.key)
    if np.count_nonzero(wins) == wins.size:
        return Best(value, np.maximum(value, best.upper), *new[2:])
    found = Best(*(np.where(wins, a, b) for a, b in zip(new, best, strict=True)))
    return found._replace(upper=np.maximum(found.lower, best.upper))


def rising_rates(loss: Loss, side: Side) -> list[float]:
    """Return the positive slopes of the loss's pieces along the move, flattest first."""
    if not isinstance(side, float):
        raise TypeError("rows go to one side where the loss has linear pieces, not each to its own")
    return sorted(side * slope for slope, _ in loss.pieces or () if side * slope > 0.0)
