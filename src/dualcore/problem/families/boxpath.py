"""What the cheapest moves of every norm have in common: their interface, and walls in order with the sums up to them.

The order of a row's walls and the sums up to each of them do not depend on the multiplier. They are made once, for the
rows that a move may pay for, and asked again at every other multiplier. A chord lies above the convex ``L``, and
``phi(s) >= s / ||u||_*``, so a row with the longest gain ``S`` earns at most

    max { L(t), L(t + d S) - lam S / ||u||_* } :

where that is no more than what is known already the row is left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss

__all__ = [
    "Best",
    "Path",
    "Places",
    "Response",
    "WalledPath",
    "add_up",
    "count_before",
    "order_rows",
    "rising_rates",
    "sums_table",
]

Places = npt.NDArray[np.intp]

# Columns whose numbers fit into the last bits of what is sorted: twelve of the 52 of a fraction.
_MOST_PACKED = 4096
# Sums up to every wall are made in groups of so many.
_GROUP = 8
_UPPER = np.triu(np.ones((_GROUP, _GROUP)))


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


class WalledPath(Path):
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


def order_rows(table: FloatArray) -> Places:
    """Return the columns of each row in the order of its entries, which are not negative.

    Entries that agree to 2^-40, relatively, may come in any order.

    Notes
    -----
    The bits of numbers that are not negative are integers in the same order. With the column's number in the last bits
    a plain sort, several times faster than `numpy.argsort`, carries the columns along.

    Examples
    --------
    >>> order_rows(np.array([[0.5, 0.0, np.inf, 0.25]]))
    array([[1, 3, 0, 2]])
    """
    m = table.shape[1]
    if not 0 < m <= _MOST_PACKED:
        return np.argsort(table, axis=1)
    mask = (1 << max(m - 1, 1).bit_length()) - 1
    packed = np.ascontiguousarray(table, dtype=np.float64).view(np.int64) & ~mask
    packed |= np.arange(m)
    packed.sort(axis=1)
    packed &= mask
    return np.asarray(packed, dtype=np.intp)


def sums_table(n: int, k: int) -> FloatArray:
    """Return a table for `add_up`, of which columns 1 to k are to be filled; 0 and those beyond are zero."""
    table = np.empty((n, -(-(k + 1) // _GROUP) * _GROUP))
    table[:, 0] = 0.0
    table[:, k + 1 :] = 0.0
    return table


def add_up(table: FloatArray) -> FloatArray:
    """Return the sums of the first columns, ``out[:, k] = sum of table[:, : k + 1]``."""
    n, width = table.shape
    # A product with a small triangle of ones is several times faster than numpy's cumulative sum.
    inner = (table.reshape(-1, _GROUP) @ _UPPER).reshape(n, width // _GROUP, _GROUP)
    before = np.cumsum(inner[:, :-1, -1], axis=1)
    inner[:, 1:] += before[:, :, None]
    return inner.reshape(n, width)


def count_before(
    table: FloatArray, first: int, width: int, at: Places, bound: float | FloatArray, *, falls: bool
) -> Places:
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


def rising_rates(loss: Loss, side: float) -> list[float]:
    """Return the positive slopes of the loss's pieces along the move, flattest first."""
    return sorted(side * slope for slope, _ in loss.pieces or () if side * slope > 0.0)
