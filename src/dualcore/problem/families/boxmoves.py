"""How far the score of a row can be moved inside a box, and at what cost: one path for each feature norm.

Write ``u_j = |theta_j|`` and let ``cap_j`` be the room that feature ``j`` has on the side where it pushes the score the
wanted way. The cheapest way to move the score by ``s`` costs

    phi(s) = min { ||v|| : u . v = s, 0 <= v <= cap } ,

convex, and the moves that attain it form a path: with l1 the features fill up one after the other, steepest first;
with linf all move together until each meets its wall; with l2 feature ``j`` moves by ``min(cap_j, mu u_j)``. On such
a path

    sup_s L(t + d s) - lam phi(s)

is a maximum over the corners of ``phi`` where it is piecewise linear (l1, linf), a closed form for each linear piece of
``L``, and otherwise enclosed by branch and bound (l2). Everything works on a block of rows at a time.

The order of a row's walls and the sums up to each of them do not depend on the multiplier. They are made once, for the
rows that a move may pay for, and asked again at every other multiplier. A chord lies above the convex ``L``, and
``phi(s) >= s / ||u||_*``, so a row with the longest gain ``S`` earns at most

    max { L(t), L(t + d S) - lam S / ||u||_* } :

where that is no more than what is known already the row is left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.problem.losses import Loss

__all__ = ["TOLERANCE", "Best", "L2Path", "Path", "Response", "best_corner", "get_path"]

Places = npt.NDArray[np.intp]

# Width of the enclosure where no closed form exists, relative above one.
TOLERANCE = 1e-9
_MOST_SPLITS = 120
# A slope below this moves nothing, and the square of a price divided by it is still a number.
_LEAST_SLOPE = 1e-100
# Sums up to every wall are made in groups of so many.
_GROUP = 8
_UPPER = np.triu(np.ones((_GROUP, _GROUP)))
# By how much, relatively, the end of a search is moved outwards for rounding.
_MARGIN = 1e-9


class Best(NamedTuple):
    """The best point of every row's path: ``lower`` is attained there, nothing on the path earns above ``upper``.

    ``key`` is where on the path it lies, `Path.displacement` knows how to read it.
    """

    lower: FloatArray
    upper: FloatArray
    gain: FloatArray
    cost: FloatArray
    key: FloatArray


class Response(NamedTuple):
    """The best move of every row where the loss is linear along it: ``sup_s slope s - lam phi(s)``.

    ``key``: where on the path. ``gain``: of the score. ``free``: ``sum u_j^2`` of the features that met no wall.
    """

    key: FloatArray
    gain: FloatArray
    free: FloatArray


class Path(ABC):
    """The cheapest moves of a block of rows in one direction.

    Parameters
    ----------
    slopes : ndarray of shape (n_features,)
        ``u``, in units of the unweighted norm; not negative.
    caps : ndarray of shape (n_rows, n_features)
        Room of every feature in the same units; may be infinite.

    Notes
    -----
    An infinite cap asks for ``lam >= Lip ||u_J||_*`` over the features ``J`` without a wall. Moving them further than
    the last corner then never pays, so the path may end there.
    """

    #: the features that the path is about; None for all
    columns: Places | None = None

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        self.slopes, self.caps = slopes, caps

    @abstractmethod
    def best(
        self, loss: Loss, start: FloatArray, side: float, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        """Return where ``L(start + side * s) - lam phi(s)`` is largest.

        A row that earns no more than ``enough`` (n_rows,) may stay; its ``upper`` is then at most that, or its loss.
        """

    @abstractmethod
    def displacement(self, key: FloatArray) -> FloatArray:
        """Return ``v >= 0``, shape (n_rows, n_features), at the place ``key`` of each path."""

    def longest(self) -> FloatArray:
        """Return the largest gain of each row, infinite where nothing stops it."""
        if self.slopes.all():
            return np.asarray(self.caps @ self.slopes)
        pushed = self.slopes > 0.0
        return np.asarray(self.caps[:, pushed] @ self.slopes[pushed])


class _WalledPath(Path):
    """A path whose walls are put in order, for the rows that a move may pay for.

    Subclasses give ``length``, the dual norm of the slopes; `_order`, which makes the sums for the rows chosen; and
    `_search`, which finds the best places of some of those.
    """

    length: float

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self._far: FloatArray | None = None
        # Of every row its place among those with sums, or -1.
        self._place: Places | None = None

    @abstractmethod
    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        """Make the sums for rows with this room."""

    @abstractmethod
    def _search(self, loss: Loss, at: Places, start: FloatArray, side: float, multiplier: float) -> Best:
        """Return the best places of the rows whose sums stand at ``at``."""

    def best(
        self, loss: Loss, start: FloatArray, side: float, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        here, zero = loss.value(start), np.zeros(start.size)
        stay = Best(here, here, zero, zero, zero)
        if multiplier >= loss.lipschitz * self.length:  # the first step already costs more than it can earn
            return stay
        if self._far is None:
            self._far = self.longest()
        far = self._far
        with np.errstate(invalid="ignore"):
            bound = loss.value(start + side * far) - multiplier / self.length * far
        known = here if enough is None else np.maximum(here, enough)
        rows = np.flatnonzero(~(bound <= known) & (far > 0.0))
        if rows.size == 0:
            return stay
        found = self._search(loss, self._ordered(rows), start[rows], side, multiplier)
        if rows.size == start.size:
            return found
        out = Best(*(part.copy() for part in stay))
        for whole, part in zip(out, found, strict=True):
            whole[rows] = part
        return out

    def _ordered(self, rows: Places) -> Places:
        """Return where the sums of these rows stand; make them if they are not there."""
        if self._place is None or (self._place[rows] < 0).any():
            n = self.caps.shape[0]
            # The first question is of few rows or of all that will be asked about; a second one is of any.
            chosen = rows if self._place is None else np.arange(n)
            self._place = np.full(n, -1, dtype=np.intp)
            self._place[chosen] = np.arange(chosen.size)
            caps = self.caps if chosen.size == n else self.caps[chosen]
            if self.slopes.all():
                self._order(caps, self.slopes)
            else:
                pushed = self.slopes > 0.0
                self._order(caps[:, pushed], self.slopes[pushed])
        return self._place[rows]


def _sums_table(n: int, k: int) -> FloatArray:
    """Return a table for `_add_up`, of which columns 1 to k are to be filled; 0 and those beyond are zero."""
    table = np.empty((n, -(-(k + 1) // _GROUP) * _GROUP))
    table[:, 0] = 0.0
    table[:, k + 1 :] = 0.0
    return table


def _add_up(table: FloatArray) -> FloatArray:
    """Return the sums of the first columns, ``out[:, k] = sum of table[:, : k + 1]``."""
    n, width = table.shape
    # A product with a small triangle of ones is several times faster than numpy's cumulative sum.
    inner = (table.reshape(-1, _GROUP) @ _UPPER).reshape(n, width // _GROUP, _GROUP)
    before = np.cumsum(inner[:, :-1, -1], axis=1)
    inner[:, 1:] += before[:, :, None]
    return inner.reshape(n, width)


def _count(table: FloatArray, first: int, width: int, at: Places, bound: float | FloatArray, *, falls: bool) -> Places:
    """Return how many of the entries ``first``, ``first + 1``, ... of each row come before ``bound``, by bisection.

    Of rows that rise: those ``<= bound``. Of rows that fall: those ``> bound``.
    """
    flat, begin = table.reshape(-1), at * table.shape[1] + first
    if width == 0:
        return np.zeros(at.size, dtype=np.intp)
    place = begin.copy()
    while width > 1:
        half = width // 2
        seen = flat.take(place + (half - 1))
        place += half * (seen > bound if falls else seen <= bound)
        width -= half
    seen = flat.take(place)
    place += seen > bound if falls else seen <= bound
    return np.asarray(place - begin)


def best_corner(
    loss: Loss, start: FloatArray, side: float, multiplier: float, gain: FloatArray, cost: FloatArray
) -> Best:
    """Choose among corners; of equal ones the cheapest, which stands first."""
    value = loss.value(start[:, None] + side * gain)
    value -= multiplier * cost
    rows, upper = np.arange(start.size), value.max(axis=1)
    # A tie that rounding breaks would move a row for nothing.
    at = (value >= (upper - 1e-15 * np.abs(upper))[:, None]).argmax(axis=1)
    return Best(value[rows, at], upper, gain[rows, at], cost[rows, at], at.astype(np.float64))


def _best_of(
    places: list[tuple[FloatArray, FloatArray, FloatArray]],
    value: Callable[[FloatArray], FloatArray],
    multiplier: float,
) -> Best:
    """Choose among a few places ``(gain, cost, key)`` of every row, no move first; of equal ones the first."""
    found: Best | None = None
    for gain, cost, key in places:
        earned = value(gain)
        earned -= multiplier * cost
        new = Best(earned, earned, gain, cost, key)
        if found is None:
            found = new
            continue
        better = earned > found.lower + 1e-15 * np.abs(found.lower)
        upper = np.maximum(found.upper, earned)
        found = Best(*(np.where(better, a, b) for a, b in zip(new, found, strict=True)))._replace(upper=upper)
    if found is None:
        raise RuntimeError("a row can always stay")
    return found


def _rates(loss: Loss, side: float) -> list[float]:
    """Return the positive slopes of the loss's pieces along the move, flattest first."""
    return sorted(side * slope for slope, _ in loss.pieces or () if side * slope > 0.0)


class L1Path(Path):
    """Features fill up one after the other, steepest first: the same order for every row."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.order = np.argsort(-slopes, kind="stable")

    def best(
        self, loss: Loss, start: FloatArray, side: float, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        # The first features that a slope of the loss pays for; no later corner is better.
        steep = self.slopes[self.order]
        rates = [loss.lipschitz] if loss.pieces is None else _rates(loss, side)
        counts = [int((rate * steep > multiplier).sum()) for rate in rates]
        most = max(counts, default=0)
        room = self.caps[:, self.order[:most]]
        if not np.isfinite(room).all():
            room = np.where(np.isfinite(room), room, 0.0)
        if loss.pieces is None:
            gain, cost = np.zeros((start.size, most + 1)), np.zeros((start.size, most + 1))
            np.cumsum(room, axis=1, out=cost[:, 1:])
            np.cumsum(room * steep[:most], axis=1, out=gain[:, 1:])
            return best_corner(loss, start, side, multiplier, gain, cost)
        zero = np.zeros(start.size)
        places = [(zero, zero, zero)]
        for count in sorted(set(counts) - {0}):
            part = room[:, :count]
            places.append((part @ steep[:count], part.sum(axis=1), np.full(start.size, float(count))))
        return _best_of(places, lambda gain: loss.value(start + side * gain), multiplier)

    def displacement(self, key: FloatArray) -> FloatArray:
        rank = np.empty(self.order.size)
        rank[self.order] = np.arange(self.order.size)
        return np.where((rank < key[:, None]) & np.isfinite(self.caps) & (self.slopes > 0.0), self.caps, 0.0)


class LinfPath(_WalledPath):
    """All features move together until each meets its wall; ``key`` is how far."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.length = float(slopes.sum())

    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        n, m = caps.shape
        if not np.isfinite(caps).all():
            caps = np.minimum(caps, np.where(np.isfinite(caps), caps, 0.0).max(axis=1, initial=0.0)[:, None])
        order = np.argsort(caps, axis=1)
        steep = slopes.take(order)
        order += np.arange(n)[:, None] * m
        self.m = m
        # After k walls: how far, what the features that met one gained, and the slope of the others.
        self.walls, gained = _sums_table(n, m), _sums_table(n, m)
        caps.take(order, out=self.walls[:, 1 : m + 1])
        np.multiply(self.walls[:, 1 : m + 1], steep, out=gained[:, 1 : m + 1])
        self.gained = _add_up(gained)
        free = _sums_table(n, m)
        free[:, 1 : m + 1] = steep[:, ::-1]
        self.free = np.ascontiguousarray(_add_up(free)[:, m::-1])

    def _corner(self, at: Places, k: Places) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return gain, cost and key where the k-th wall is met."""
        far = self.walls[at, k]
        return self.gained[at, k] + far * self.free[at, k], far, far

    def _search(self, loss: Loss, at: Places, start: FloatArray, side: float, multiplier: float) -> Best:
        def walls(rate: float) -> Places:
            return _count(self.free, 0, self.m + 1, at, multiplier / rate, falls=True)

        if loss.pieces is not None:
            zero = np.zeros(at.size)
            places = [(zero, zero, zero), *(self._corner(at, walls(rate)) for rate in _rates(loss, side))]
            return _best_of(places, lambda gain: loss.value(start + side * gain), multiplier)
        # A corner that the steepest slope does not pay for is never the best.
        most = int(walls(loss.lipschitz).max(initial=0)) + 1
        cost = self.walls[at, :most] if at.size < self.walls.shape[0] else self.walls[:, :most]
        gain = cost * (self.free[at, :most] if at.size < self.walls.shape[0] else self.free[:, :most])
        gain += self.gained[at, :most] if at.size < self.walls.shape[0] else self.gained[:, :most]
        found = best_corner(loss, start, side, multiplier, gain, cost)
        return found._replace(key=found.cost)

    def displacement(self, key: FloatArray) -> FloatArray:
        v = np.minimum(self.caps, key[:, None])
        if not self.slopes.all():
            v[:, self.slopes == 0.0] = 0.0
        return v


class L2Path(_WalledPath):
    """Feature ``j`` moves by ``min(cap_j, mu u_j)``; ``key`` is ``mu``.

    After k walls ``mu`` is between ``ratio_k`` and ``ratio_{k+1}``, the cost is ``sqrt(T + mu^2 Q)`` and the gain
    ``S + mu Q``.
    """

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.length = float(np.linalg.norm(slopes))

    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        n, m = caps.shape
        with np.errstate(over="ignore"):
            ratio = caps / slopes
        order = np.argsort(ratio, axis=1)
        steep = slopes.take(order)
        order += np.arange(n)[:, None] * m
        walls = caps.take(order)
        self.m, self.is_endless = m, not np.isfinite(walls).all()
        # An infinite wall is never met: the features behind it stay free.
        self.last = np.isfinite(walls).sum(axis=1) if self.is_endless else np.full(n, m)
        self.ratio = _sums_table(n, m)
        ratio.take(order, out=self.ratio[:, 1 : m + 1])
        self.ratio[:, m + 1 :] = np.inf
        held = np.where(np.isfinite(walls), walls, 0.0) if self.is_endless else walls
        sums = _sums_table(3 * n, m)
        np.multiply(held, held, out=sums[:n, 1 : m + 1])
        np.multiply(held, steep, out=sums[n : 2 * n, 1 : m + 1])
        back = steep[:, ::-1]
        np.multiply(back, back, out=sums[2 * n :, 1 : m + 1])
        sums = _add_up(sums)
        self.T, self.S, self.Q = sums[:n], sums[n : 2 * n], sums[2 * n :]
        self._steep: FloatArray | None = None
        self._corner: FloatArray | None = None

    def _later(self, table: FloatArray, at: Places, k: Places) -> FloatArray:
        """Return the entry after k walls of a table that is summed from the last wall on."""
        return np.asarray(table.reshape(-1).take(at * table.shape[1] + (self.m - k)))

    def _entry(self, table: FloatArray, at: Places, k: Places) -> FloatArray:
        return np.asarray(table.reshape(-1).take(at * table.shape[1] + k))

    def _steepness(self) -> FloatArray:
        """Return squares of the prices below which walls are met: those without room always, infinite ones never."""
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
        """Return the gains at which walls are met, shape (rows, walls)."""
        if self._corner is None:
            with np.errstate(invalid="ignore"):
                corner = self.ratio[:, 1 : self.m + 1] * self.Q[:, : self.m][:, ::-1]
                corner += self.S[:, 1 : self.m + 1]
            if self.is_endless:
                corner[np.arange(self.m) >= self.last[:, None]] = np.inf
            self._corner = corner
        return self._corner

    def displacement(self, key: FloatArray) -> FloatArray:
        v = key[:, None] * self.slopes
        return np.minimum(self.caps, v, out=v)

    def corners(self) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost where walls are met, shape (n_rows, walls + 1); no move comes first."""
        self._ordered(np.arange(self.caps.shape[0]))
        gain = np.hstack([np.zeros((self.caps.shape[0], 1)), self._gains()])
        ratio, m = self.ratio[:, : self.m + 1], self.m
        return gain, np.sqrt(self.T[:, : m + 1] + ratio * ratio * self.Q[:, : m + 1][:, ::-1])

    def first_wall(self) -> FloatArray:
        """Return the least positive ``mu`` that meets a wall, 0 where there is none."""
        at = self._ordered(np.arange(self.caps.shape[0]))
        k = _count(self.ratio, 1, self.m, at, 0.0, falls=False)
        return np.where(k < self.m, self._entry(self.ratio, at, np.minimum(k + 1, self.m)), 0.0)

    def respond(self, slope: FloatArray, multiplier: float) -> Response:
        """Return the best move of each row for a loss that rises by ``slope`` (n_rows,) per unit of gain."""
        at = self._ordered(np.arange(slope.size))
        key, _, k = self._stationary(at, multiplier / np.maximum(slope, _LEAST_SLOPE))
        moves, free = slope * self.length > multiplier, self._later(self.Q, at, k)
        gain = self._entry(self.S, at, k) + key * free
        return Response(np.where(moves, key, 0.0), np.where(moves, gain, 0.0), free)

    def _at(self, at: Places, key: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost at ``mu``."""
        k = _count(self.ratio, 1, self.m, at, key, falls=False)
        Q = self._later(self.Q, at, k)
        return self._entry(self.S, at, k) + key * Q, np.sqrt(self._entry(self.T, at, k) + key * key * Q)

    def _search(self, loss: Loss, at: Places, start: FloatArray, side: float, multiplier: float) -> Best:
        if loss.pieces is None:
            return self._enclose(loss, at, start, side, multiplier)
        # Each linear piece alone is a concave problem: sup |q| s - lam phi(s).
        zero = np.zeros(at.size)
        here = loss.value(start)
        found = Best(here, here, zero, zero, zero)
        for rate in _rates(loss, side):
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

        At the very price of the features without a wall the supremum lies at infinity. There ``mu`` is where it is as
        good as met, and the second array says what it misses. The third counts the walls that are met.
        """
        square = np.asarray(price * price)
        k = _count(self._steepness(), 0, self.m, at, square, falls=True)
        T, Q, low = self._entry(self.T, at, k), self._later(self.Q, at, k), self._entry(self.ratio, at, k)
        following = self._entry(self.ratio, at, np.minimum(k + 1, self.m))
        high = np.where(k < self.last[at], following, np.inf)
        room = square - Q
        with np.errstate(divide="ignore", invalid="ignore"):
            key = np.where(room > 0.0, np.sqrt(T / room), np.where(T > 0.0, 1e8 * (1.0 + low), low))
        key = np.where(Q > 0.0, np.clip(key, low, np.maximum(high, low)), low)
        if not self.is_endless:
            return key, np.zeros_like(T), k
        endless = (room <= 0.0) & (T > 0.0) & (Q > 0.0) & np.isinf(high)
        missed = np.divide(0.5 * price * T, key * np.sqrt(Q), out=np.zeros_like(T), where=endless)
        return key, missed, k

    def _ends(
        self, loss: Loss, at: Places, start: FloatArray, side: float, multiplier: float
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
            return np.zeros(at.size), self._at(at, np.maximum(key, beyond))[0]
        end = self._entry(self.S, at, np.full(at.size, self.m))
        steepest = np.maximum(side * loss.slope(start + side * end), _LEAST_SLOPE)
        key, _, k = self._stationary(at, multiplier / steepest)
        answer = self._entry(self.S, at, k) + key * self._later(self.Q, at, k)
        moves = steepest * self.length > multiplier
        return np.zeros(at.size), np.where(moves, np.minimum(answer * (1.0 + _MARGIN), end), 0.0)

    def _enclose(self, loss: Loss, at: Places, start: FloatArray, side: float, multiplier: float) -> Best:
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
            value = loss.value(start[row] + side * where)
            earned = value - multiplier * cost
            order = np.argsort(earned, kind="stable")  # of two places of one row the better writes last
            better = order[earned[order] > best[row[order]]]
            best[row[better]], gain[row[better]] = earned[better], where[better]
            return np.stack([where, value, cost, slope])

        left, right = look(row, first[row]), look(row, end[row])
        bound = np.empty(0)
        for _ in range(_MOST_SPLITS):
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
        k = _count(self._gains(), 0, self.m, at, gain, falls=False)
        low, Q = self._entry(self.ratio, at, k), self._later(self.Q, at, k)
        key = np.divide(gain - self._entry(self.S, at, k), Q, out=low.copy(), where=Q > 0.0)
        # Rounding must not carry a place over the next wall.
        key = np.minimum(np.maximum(key, low), self._entry(self.ratio, at, np.minimum(k + 1, self.m)))
        cost = np.sqrt(self._entry(self.T, at, k) + key * key * Q)
        return key, cost, np.divide(key, cost, out=np.full_like(key, 1.0 / self.length), where=cost > 0.0)


_PATHS: dict[type[Norm], Callable[[FloatArray, FloatArray], Path]] = {
    L1Norm: L1Path,
    L2Norm: L2Path,
    LinfNorm: LinfPath,
}


def get_path(norm: Norm, slopes: FloatArray, caps: FloatArray, columns: Places | None = None) -> Path:
    """Return the path of the cheapest moves in this norm; ``columns`` names the features it is about."""
    if type(norm) not in _PATHS:
        known = sorted(cls.__name__ for cls in _PATHS)
        raise TypeError(f"A support needs one of the norms {known}, not {type(norm).__name__}.")
    path = _PATHS[type(norm)](slopes, caps)
    path.columns = columns
    return path
