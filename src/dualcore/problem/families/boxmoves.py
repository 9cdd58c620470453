"""How far the score of a row can be moved inside a box, and at what cost: one path for each feature norm.

Write ``u_j = |theta_j|`` and let ``cap_j`` be the room that feature ``j`` has on the side where it pushes the score the
wanted way. The cheapest way to move the score by ``s`` costs

    phi(s) = min { ||v|| : u . v = s, 0 <= v <= cap } ,

convex, and the moves that attain it form a path: with l1 the features fill up one after the other, steepest first;
with linf all move together until each meets its wall; with l2 feature ``j`` moves by ``min(cap_j, mu u_j)``. On such
a path

    sup_s L(t + d s) - lam phi(s)

is a maximum over the corners of ``phi`` where it is piecewise linear (l1, linf), a closed form for each linear piece of
``L`` (l2), and otherwise enclosed by branch and bound. Everything works on a block of rows at a time.
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

# Width of the enclosure where no closed form exists, relative above one.
TOLERANCE = 1e-9
_MOST_SPLITS = 120
# A slope below this moves nothing, and the square of a price divided by it is still a number.
_LEAST_SLOPE = 1e-100


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

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        self.slopes, self.caps = slopes, caps

    @abstractmethod
    def best(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        """Return where ``L(start + side * s) - lam phi(s)`` is largest."""

    @abstractmethod
    def displacement(self, key: FloatArray) -> FloatArray:
        """Return ``v >= 0``, shape (n_rows, n_features), at the place ``key`` of each path."""

    def longest(self) -> FloatArray:
        """Return the largest gain of each row, infinite where nothing stops it."""
        pushed = self.slopes > 0.0
        return np.asarray(self.caps[:, pushed] @ self.slopes[pushed])


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


class L1Path(Path):
    """Features fill up one after the other, steepest first: the same order for every row."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.order = np.argsort(-slopes, kind="stable")

    def best(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        room = np.where(np.isfinite(self.caps), self.caps, 0.0)[:, self.order]
        gain, cost = np.zeros((room.shape[0], room.shape[1] + 1)), np.zeros((room.shape[0], room.shape[1] + 1))
        np.cumsum(room, axis=1, out=cost[:, 1:])
        np.cumsum(room * self.slopes[self.order], axis=1, out=gain[:, 1:])
        return best_corner(loss, start, side, multiplier, gain, cost)

    def displacement(self, key: FloatArray) -> FloatArray:
        rank = np.empty(self.order.size)
        rank[self.order] = np.arange(self.order.size)
        return np.where((rank < key[:, None]) & np.isfinite(self.caps) & (self.slopes > 0.0), self.caps, 0.0)


class LinfPath(Path):
    """All features move together until each meets its wall; ``key`` is how far."""

    def best(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        pushed = self.slopes > 0.0
        caps, u = self.caps[:, pushed], self.slopes[pushed]
        last = np.where(np.isfinite(caps), caps, 0.0).max(axis=1, initial=0.0)
        caps = np.minimum(caps, last[:, None])
        order = np.argsort(caps, axis=1)
        walls, steep = np.take_along_axis(caps, order, axis=1), u[order]
        gain, cost = np.zeros((walls.shape[0], walls.shape[1] + 1)), np.zeros((walls.shape[0], walls.shape[1] + 1))
        cost[:, 1:] = walls
        free = np.cumsum(steep[:, ::-1], axis=1)[:, ::-1]  # slope of the features not at their wall yet
        gain[:, 1:] = np.cumsum(np.diff(cost, axis=1) * free, axis=1)
        found = best_corner(loss, start, side, multiplier, gain, cost)
        return found._replace(key=found.cost)

    def displacement(self, key: FloatArray) -> FloatArray:
        return np.where(self.slopes > 0.0, np.minimum(self.caps, key[:, None]), 0.0)


class L2Path(Path):
    """Feature ``j`` moves by ``min(cap_j, mu u_j)``; ``key`` is ``mu``."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.length, self._is_sorted = float(np.linalg.norm(slopes)), False

    def _sort(self) -> None:
        """Order the walls by the ``mu`` that meets them, once."""
        if self._is_sorted:
            return
        self._is_sorted = True
        pushed = self.slopes > 0.0
        caps, u = self.caps[:, pushed], self.slopes[pushed]
        with np.errstate(over="ignore"):
            ratio = caps / u
        order = np.argsort(ratio, axis=1)
        n = caps.shape[0]
        walls, square = np.take_along_axis(caps, order, axis=1), (u * u)[order]
        finite = np.isfinite(walls)
        blank = np.zeros((n, 1))
        held = np.where(finite, walls, 0.0)
        # After k walls: mu is between ratio_k and ratio_{k+1}, the cost sqrt(T + mu^2 Q), the gain S + mu Q.
        self.ratio = np.hstack([blank, np.take_along_axis(ratio, order, axis=1)])
        self.T = np.hstack([blank, np.cumsum(held * held, axis=1)])
        self.S = np.hstack([blank, np.cumsum(held * np.sqrt(square), axis=1)])
        self.Q = np.hstack([np.cumsum(square[:, ::-1], axis=1)[:, ::-1], blank])
        # An infinite wall is never met: the features behind it stay free.
        self.last = finite.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = self.T[:, 1:] / self.ratio[:, 1:] ** 2 + self.Q[:, 1:]
        # Squares of the prices below which walls are met: those without room always, those that are none never.
        self.steep = np.where(finite, np.where(self.ratio[:, 1:] == 0.0, np.inf, steep), -1.0)
        with np.errstate(invalid="ignore"):
            self.corner = np.where(finite, self.S[:, 1:] + self.ratio[:, 1:] * self.Q[:, 1:], np.inf)

    def best(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        if multiplier >= loss.lipschitz * self.length:  # the first step already costs more than it can earn
            here, zero = loss.value(start), np.zeros(start.size)
            return Best(here, here, zero, zero, zero)
        self._sort()
        if loss.pieces is not None:
            return self._best_piece(loss, start, side, multiplier)
        return self._enclose(loss, start, side, multiplier)

    def displacement(self, key: FloatArray) -> FloatArray:
        return np.minimum(self.caps, key[:, None] * self.slopes)

    def corners(self) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost where walls are met, shape (n_rows, walls + 1); no move comes first."""
        self._sort()
        gain = np.hstack([np.zeros((self.corner.shape[0], 1)), self.corner])
        return gain, np.sqrt(self.T + self.ratio * self.ratio * self.Q)

    def respond(self, slope: FloatArray, multiplier: float) -> Response:
        """Return the best move of each row for a loss that rises by ``slope`` (n_rows,) per unit of gain."""
        self._sort()
        key, _, k = self._stationary(multiplier / np.maximum(slope, _LEAST_SLOPE))
        moves, free = slope * self.length > multiplier, self.Q[np.arange(key.size), k]
        gain = self.S[np.arange(key.size), k] + key * free
        return Response(np.where(moves, key, 0.0), np.where(moves, gain, 0.0), free)

    def _at(self, key: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gain and cost at ``mu``."""
        rows = np.arange(key.size)
        k = (self.ratio[:, 1:] <= key[:, None]).sum(axis=1)
        return self.S[rows, k] + key * self.Q[rows, k], np.sqrt(self.T[rows, k] + key * key * self.Q[rows, k])

    def _best_piece(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        """Each linear piece alone is a concave problem: ``sup |q| s - lam phi(s)``."""
        zero = np.zeros(start.size)
        here = loss.value(start)
        found = Best(here, here, zero, zero, zero)
        for slope, _ in loss.pieces or ():
            rate = side * slope
            if rate <= 0.0 or multiplier >= rate * self.length:
                continue
            key, missed, _ = self._stationary(multiplier / rate)
            gain, cost = self._at(key)
            value = loss.value(start + side * gain) - multiplier * cost
            better = value > found.lower
            new = Best(value, np.maximum(found.upper, value + rate * missed), gain, cost, key)
            found = Best(*(np.where(better, a, b) for a, b in zip(new, found, strict=True)))
        return found

    def _stationary(self, price: float | FloatArray) -> tuple[FloatArray, FloatArray, npt.NDArray[np.intp]]:
        """Return the ``mu`` that maximises ``s - price * cost``, where ``cost / mu`` falls to ``price``.

        At the very price of the features without a wall the supremum lies at infinity. There ``mu`` is where it is as
        good as met, and the second array says what it misses. The third counts the walls that are met.
        """
        rows = np.arange(self.last.size)
        k = (self.steep > np.reshape(price * price, (-1, 1))).sum(axis=1)
        T, Q, low = self.T[rows, k], self.Q[rows, k], self.ratio[rows, k]
        high = np.where(k < self.last, self.ratio[rows, np.minimum(k + 1, self.ratio.shape[1] - 1)], np.inf)
        room = price * price - Q
        with np.errstate(divide="ignore", invalid="ignore"):
            key = np.where(room > 0.0, np.sqrt(T / room), np.where(T > 0.0, 1e8 * (1.0 + low), low))
        key = np.where(Q > 0.0, np.clip(key, low, np.maximum(high, low)), low)
        endless = (room <= 0.0) & (T > 0.0) & (Q > 0.0) & np.isinf(high)
        missed = np.divide(0.5 * price * T, key * np.sqrt(Q), out=np.zeros_like(T), where=endless)
        return key, missed, k

    def _enclose(self, loss: Loss, start: FloatArray, side: float, multiplier: float) -> Best:
        """Branch and bound over ``s``: on an interval a chord lies above ``L``, tangents below ``phi``."""
        rows = np.arange(start.size)
        here = loss.value(start)
        best, upper, gain = here.copy(), here.copy(), np.zeros(start.size)
        T, free, key = self.T[rows, self.last], self.Q[rows, self.last], self.ratio[rows, self.last]
        # Beyond this mu the cost is within half the tolerance of its asymptote, along which nothing pays.
        beyond = np.divide(2.0 / TOLERANCE * multiplier * T, np.sqrt(free), out=key.copy(), where=free > 0.0)
        end, _ = self._at(np.maximum(key, beyond))
        steepest = side * loss.slope(start + side * end)  # L is convex, so it is steepest at the end
        row = np.flatnonzero((end > 0.0) & (steepest * self.length > multiplier))
        tolerance = TOLERANCE * np.maximum(1.0, np.abs(here))

        def look(row: npt.NDArray[np.intp], at: FloatArray) -> FloatArray:
            """Return ``s, L, phi, phi'`` there, one line each, and keep what is better than the best so far."""
            _, cost, slope = self._place(row, at)
            value = loss.value(start[row] + side * at)
            earned = value - multiplier * cost
            order = np.argsort(earned, kind="stable")  # of two places of one row the better writes last
            better = order[earned[order] > best[row[order]]]
            best[row[better]], gain[row[better]] = earned[better], at[better]
            return np.stack([at, value, cost, slope])

        left, right = look(row, np.zeros(row.size)), look(row, end[row])
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
        upper = np.maximum(upper, best) + np.where(free > 0.0, 0.5 * tolerance, 0.0)
        key, cost, _ = self._place(rows, gain)
        return Best(best, upper, gain, cost, key)

    def _place(self, row: npt.NDArray[np.intp], gain: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``mu`` where the gain is reached, ``phi(s)`` and ``phi'(s)``."""
        k = (self.corner[row] <= gain[:, None]).sum(axis=1)
        low, Q = self.ratio[row, k], self.Q[row, k]
        key = np.divide(gain - self.S[row, k], Q, out=low.copy(), where=Q > 0.0)
        # Rounding must not carry a place over the next wall.
        key = np.minimum(np.maximum(key, low), self.ratio[row, np.minimum(k + 1, self.ratio.shape[1] - 1)])
        cost = np.sqrt(self.T[row, k] + key * key * Q)
        return key, cost, np.divide(key, cost, out=np.full_like(key, 1.0 / self.length), where=cost > 0.0)


_PATHS: dict[type[Norm], Callable[[FloatArray, FloatArray], Path]] = {
    L1Norm: L1Path,
    L2Norm: L2Path,
    LinfNorm: LinfPath,
}


def get_path(norm: Norm, slopes: FloatArray, caps: FloatArray) -> Path:
    """Return the path of the cheapest moves in this norm."""
    if type(norm) not in _PATHS:
        known = sorted(cls.__name__ for cls in _PATHS)
        raise TypeError(f"A support needs one of the norms {known}, not {type(norm).__name__}.")
    return _PATHS[type(norm)](slopes, caps)
