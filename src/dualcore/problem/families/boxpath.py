"""What the cheapest moves of every norm have in common: their interface, and limits in order with the sums up to them.

The order of a row's limits and the sums up to each of them do not depend on the multiplier. They are made once, for the
rows that a move may pay for, and asked again at every other multiplier. A chord lies above the convex ``L``, and
``phi(s) >= s / ||u||_*``, so a row with the longest gain ``S`` earns at most

    max { L(t), L(t + d S) - lam S / ||u||_* } :

where that is no more than what is known already the row is left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from math import isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss

__all__ = ["Best", "Path", "Places", "Side", "WalledPath", "count_before", "of_rows", "rising_rates", "running_sums"]

Places = npt.NDArray[np.intp]
# Whether the signal rises or falls along the move, +1 or -1: of all rows, or of each.
Side = float | FloatArray


class Best(NamedTuple):
    """The best point of every row's path: ``lower`` is attained there, nothing on the path earns above ``upper``.

    ``key`` is where on the path it lies.
    """

    lower: FloatArray
    upper: FloatArray
    gain: FloatArray
    cost: FloatArray
    key: FloatArray


def rising_rates(loss: Loss, side: Side) -> list[float]:
    """Return the positive slopes of the loss's pieces along the move, flattest first."""
    if not isinstance(side, float):
        raise TypeError("rows go to one side where the loss has linear pieces, not each to its own")
    return sorted(side * slope for slope, _ in loss.pieces or () if side * slope > 0.0)


class Path(ABC):
    """The cheapest moves of a block of rows in one direction.

    Parameters
    ----------
    slopes : ndarray of shape (n_features,)
        ``u``, in units of the unweighted norm; not negative.
    caps : ndarray of shape (n_rows, n_features)
        Capacity of every feature in the same units; may be infinite.

    Notes
    -----
    An infinite cap asks for ``lam >= Lip ||u_J||_*`` over the features ``J`` without a limit. Moving them further than
    the last corner then never pays, so the path may end there.
    """

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        self.slopes, self.caps = slopes, caps

    @abstractmethod
    def best(
        self, loss: Loss, start: FloatArray, side: Side, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        """Return where ``L(start + side * s) - lam phi(s)`` is largest.

        Where the loss has linear pieces all rows have one ``side``. A row that earns no more than ``enough`` (n_rows,)
        may stay; its ``upper`` is then at most that, or its loss.
        """

    def longest(self) -> FloatArray:
        """Return the largest gain of each row, infinite where nothing stops it."""
        if np.count_nonzero(self.slopes) == self.slopes.size:
            return np.asarray(self.caps @ self.slopes)
        pushed = self.slopes > 0.0
        return np.asarray(self.caps[:, pushed] @ self.slopes[pushed])


class WalledPath(Path):
    """A path whose limits are put in order, for the rows that a move may pay for.

    Subclasses give ``length``, the dual norm of the slopes; `_order`, which makes the sums for the rows chosen; and
    `_search`, which finds the best places of some of those.
    """

    length: float

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        if np.count_nonzero(slopes) < slopes.size:
            caps, slopes = caps[:, slopes > 0.0], slopes[slopes > 0.0]
        super().__init__(slopes, caps)
        self._far: FloatArray | None = None
        # Of every row its place among those with sums, or -1.
        self._place: Places | None = None

    @abstractmethod
    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        """Make the sums for rows with this capacity."""

    @abstractmethod
    def _search(self, loss: Loss, at: Places, start: FloatArray, side: Side, multiplier: float) -> Best:
        """Return the best places of the rows whose sums stand at ``at``."""

    def best(
        self, loss: Loss, start: FloatArray, side: Side, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        here, zero = loss.value(start), np.zeros(start.size)
        stay = Best(here, here, zero, zero, zero)
        if multiplier >= loss.lipschitz * self.length:  # the first step already costs more than it can earn
            return stay
        far = self._longest()
        is_finite = isfinite(far.sum())
        with nullcontext() if is_finite else np.errstate(invalid="ignore"):
            bound = loss.value(start + side * far) - multiplier / self.length * far
        known = here if enough is None else np.maximum(here, enough)
        rows = (~(bound <= known) & (far > 0.0)).nonzero()[0]
        if rows.size == 0:
            return stay
        every = rows.size == start.size
        t, side = (start, side) if every else (start[rows], of_rows(side, rows))
        found = self._search(loss, self._ordered(rows), t, side, multiplier)
        if every:
            return found
        return _put(stay, rows, found)

    def _longest(self) -> FloatArray:
        if self._far is None:
            self._far = self.longest()
        return self._far

    def _ordered(self, rows: Places) -> Places:
        """Return where the sums of these rows stand; make them if they are not there."""
        if self._place is None or (self._place[rows] < 0).any():
            n = self.caps.shape[0]
            # The first question is of few rows or of all that will be asked about; a second one is of any.
            chosen = rows if self._place is None else np.arange(n)
            self._place = np.full(n, -1, dtype=np.intp)
            self._place[chosen] = np.arange(chosen.size)
            caps = self.caps if chosen.size == n else self.caps[chosen]
            self._order(caps, self.slopes)
        return self._place[rows]


def _put(whole: Best, rows: Places, part: Best) -> Best:
    """Return what is best, that of some rows given anew."""
    out = Best(*(each.copy() for each in whole))
    for each, new in zip(out, part, strict=True):
        each[rows] = new
    return out


def of_rows(side: Side, rows: Places | None) -> Side:
    """Return the numbers of some rows; one number is that of all of them."""
    return side if rows is None or isinstance(side, float) else side[rows]


def running_sums(table: FloatArray) -> FloatArray:
    """Return the sums of the first 0, 1, 2, ... columns, one column more than ``table`` has."""
    out = np.zeros((table.shape[0], table.shape[1] + 1))
    np.cumsum(table, axis=1, out=out[:, 1:])
    return out


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
