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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxsums import Places, Side, of_rows
from dualcore.problem.losses import Loss

__all__ = ["FEW", "ROUNDING", "Best", "Place", "Price", "Walls", "nowhere", "pick", "put", "rising_rates"]

# Price of a unit of gain, ``lam / slope of the loss``, from the gains of some rows; None stands for all of them.
Price = Callable[[FloatArray, Places | None], float | FloatArray]

# Share of the rows that are found when the others are looked at alone.
FEW = 0.3
# A gain below its tangents by this, relatively, lies on them; a difference below it is rounding.
ROUNDING = 1e-14
_LEAST_SLOPE = 1e-100
_NO_ROWS: Places = np.empty(0, dtype=np.intp)


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
    #: how often rows are looked at
    most_looks = 60
    #: how often an interval that may hold a better place is split
    most_splits = 3

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
    def glance(self, price: float | FloatArray) -> Place:
        """Return a place of every row that is not far from the answer to a price, with one look."""

    @abstractmethod
    def middle(self, rows: Places, first: FloatArray, last: FloatArray) -> tuple[Place, FloatArray | None]:
        """Return a place of some rows between two keys, and the least ``d^2 cost / ds^2 * cost^3`` behind it.

        None stands for zero.
        """

    def best(self, loss: Loss, start: FloatArray, side: Side, multiplier: float, best: Best) -> tuple[Best, Places]:
        """Return the best place of every row and the rows for which it is not known to be the best.

        ``best`` is what they earn where they stay. The multiplier must be positive.
        """
        if self.has_few_corners(start.size):
            return self._at_corners(loss, start, side, multiplier, best), _NO_ROWS
        if loss.pieces is None:
            return self._curved(loss, start, side, multiplier, best)
        undecided = None
        # Each linear piece alone is a concave problem: sup |q| s - lam phi(s).
        for rate in rising_rates(loss, side):
            if multiplier >= rate * self.length:
                continue
            place = self.answer(_constant(multiplier / rate), near=False)
            undecided = np.isnan(place.key) if undecided is None else undecided | np.isnan(place.key)
            best = _better(best, place, loss.value(start + side * place.gain) - multiplier * place.cost)
        return best, _NO_ROWS if undecided is None else undecided.nonzero()[0]

    def ceiling(self, loss: Loss, start: FloatArray, side: Side, multiplier: float) -> FloatArray:
        """Return a bound of what rows earn that do not stay, by tangents at the start, at one place and at the end.

        The loss less a line is largest at an end of it: where two tangents meet, or at the end of the path.
        """
        value, slope = loss.value_and_slope(start + side * self.gain)
        place = self.glance(multiplier / np.maximum(side * slope, _LEAST_SLOPE))
        value = value - multiplier * (place.cost + place.slope * (self.gain - place.gain))
        return np.maximum(value, _between(loss, start, side, multiplier, self.first(), place))

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
            best = best._replace(upper=upper)
            for whole, new in zip(best, few, strict=True):
                whole[some] = new
            return best, _NO_ROWS
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
        """Return the better of what is known of some rows, or of all, and their best corner."""
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
            first, last = pick(first, rows), pick(last, rows)
        for _ in range(self.most_splits):
            middle, stiffness = self.middle(rows, first.key, last.key)
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
                _join(pick(first, one), pick(middle, other)),
                _join(pick(middle, one), pick(last, other)),
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


def _constant(price: float) -> Price:
    return lambda gain, rows: price


def _between(loss: Loss, t: FloatArray, side: Side, multiplier: float, first: Place, last: Place) -> FloatArray:
    """Return a bound by the tangents at two places: where they meet, the places themselves apart."""
    room = np.maximum(last.slope - first.slope, ROUNDING * last.slope)
    meet = (last.slope * last.gain - last.cost - first.slope * first.gain + first.cost) / room
    meet = np.minimum(np.maximum(meet, first.gain), last.gain)
    return np.asarray(loss.value(t + side * meet) - multiplier * (first.cost + first.slope * (meet - first.gain)))


def pick(place: Place, rows: Places) -> Place:
    """Return the places of some rows."""
    return Place(*(part[rows] for part in place))


def _join(one: Place, other: Place) -> Place:
    return Place(*(np.concatenate(parts) for parts in zip(one, other, strict=True)))


def put(out: Place, rows: Places | None, part: Place) -> Place:
    """Return the places of all rows, those of some of them given anew."""
    if rows is None:
        return part
    for whole, new in zip(out, part, strict=True):
        whole[rows] = new
    return out


def nowhere(n: int) -> Place:
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
