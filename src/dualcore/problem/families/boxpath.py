"""The cost of changing the score of a row: paths of the cheapest moves, sorted once for all multipliers.

Write ``u_j = |theta_j|`` and let ``cap_j`` be the capacity of feature ``j``, its distance to the limit towards which it
changes the score in the wanted direction. The smallest cost of changing the score by ``s`` is

    phi(s) = min { ||v|| : u . v = s, 0 <= v <= cap } ,

convex, and the moves that attain it form a path: with l1 the features move to their limits one after another, the
largest ``u_j`` first; with linf all move together until each meets its limit; with l2 feature ``j`` moves by
``min(cap_j, mu u_j)``; categories change one after another, those with the largest gain per cost first. On such a path

    sup_s L(t + d s) - lam phi(s)

is a maximum over the corners of ``phi`` where it is piecewise linear (`CornerPath`), a closed form for each linear
piece of ``L``, and otherwise enclosed by branch and bound (`dualcore.problem.families.boxl2`). Everything works on a
block of rows at a time.

The order of a row's limits and the sums up to each of them do not depend on the multiplier. They are computed once, for
the rows for which a move may pay at the smallest multiplier. A chord lies above the convex ``L``, and
``phi(s) >= s / rate``, so the value of a row with the largest gain ``S`` is at most

    max { L(t), L(t + d S) - lam S / rate } :

if that is at most the value already known, the row is not searched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss

Positions = npt.NDArray[np.intp]


class MoveDirection(NamedTuple):
    """A direction for the rows of a block: from ``start`` the signal moves to ``side``, the score along ``push``."""

    start: FloatArray
    side: float  # +1 or -1
    push: FloatArray
    label: FloatArray
    price: float


class Best(NamedTuple):
    """The best point of every row's path: ``lower`` is attained there, and ``upper`` is a bound for the whole path.

    ``position`` is its position on the path.
    """

    lower: FloatArray
    upper: FloatArray
    gain: FloatArray
    cost: FloatArray
    position: FloatArray


class Moves(NamedTuple):
    """The best move of each row of a block, shape (n_rows,); features have the shape (n_rows, n_features).

    Features are of no rows where they were not asked for.
    """

    lower: FloatArray  # value of the move
    upper: FloatArray  # what none exceeds; the two coincide but for l2 with a curved loss
    cost: FloatArray  # transport cost, the label included
    travel: FloatArray  # of it, what moving the features costs
    signal: FloatArray  # margin or residual after the move
    label: FloatArray  # label or target after the move
    X: FloatArray  # features after the move


class Path(ABC):
    """The cheapest moves of a block of rows in one direction, for all multipliers from ``least`` on.

    Subclasses sort what belongs to `rows` and find the best positions in `_search`.

    Parameters
    ----------
    loss : Loss
    direction : MoveDirection
    longest : ndarray of shape (n_rows,)
        The largest gain of each row; infinite if a feature has no limit.
    rate : float or ndarray of shape (n_rows,)
        The largest gain per unit of cost.
    least : float

    Notes
    -----
    With features ``J`` without a limit ``h`` is finite only for ``lam >= Lip ||u_J||_*``. Moving them further than the
    last corner then never pays, so the path may end there.
    """

    def __init__(
        self, loss: Loss, direction: MoveDirection, longest: FloatArray, rate: float | FloatArray, least: float
    ) -> None:
        self.loss, self.direction, self.longest, self.rate = loss, direction, longest, rate
        # The positive slopes of the loss's pieces along the move, flattest first.
        slopes = [direction.side * slope for slope, _ in loss.pieces or ()]
        self.slopes_met = sorted(slope for slope in slopes if slope > 0.0)
        self._unmoved = loss.value(direction.start)
        with np.errstate(invalid="ignore"):
            # More than the loss there by its rounding errors: the same rows move, whichever features are left out.
            self._farthest = (1.0 + 1e-12) * loss.value(direction.start + direction.side * longest)
        self.rows = self._candidates(least, self._unmoved)
        self._place = np.full(longest.size, -1, dtype=np.intp)
        self._place[self.rows] = np.arange(self.rows.size)

    def _candidates(self, multiplier: float, known: FloatArray) -> Positions:
        """Return the rows that may gain more than the known value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = self._farthest - multiplier * (self.longest / self.rate)
        may_move = (self.longest > 0.0) & (self.loss.lipschitz * self.rate > multiplier)
        return np.flatnonzero(may_move & ~(bound <= known))

    def best(self, multiplier: float, enough: FloatArray | None = None) -> Best:
        """Return where ``L(start + side * s) - lam phi(s)`` is largest.

        A row whose value is at most ``enough`` (n_rows,) may stay; its ``upper`` is then at most that, or its loss.
        """
        value = self._unmoved
        out = Best(value.copy(), value.copy(), *np.zeros((3, value.size)))
        rows = self._candidates(multiplier, value if enough is None else np.maximum(value, enough))
        if rows.size:
            found = self._search(self._place[rows], self.direction.start[rows], multiplier)
            for whole, part in zip(out, found, strict=True):
                whole[rows] = part
        return out

    @abstractmethod
    def _search(self, at: Positions, start: FloatArray, multiplier: float) -> Best:
        """Return the best points of the rows that were sorted at ``at``."""


class Corners(NamedTuple):
    """Gain and cost at the corners of rows, shape (n_rows, n_corners), and gain per cost up to the next one."""

    gain: FloatArray
    cost: FloatArray
    ratio: FloatArray  # (n_rows, n_corners - 1), not rising along a row


class CornerPath(Path):
    """A path whose cost is linear between corners; positions count them.

    ``corners`` computes them from tables (n_rows, n_items), for the rows for which a move may pay.
    """

    def __init__(
        self,
        loss: Loss,
        direction: MoveDirection,
        longest: FloatArray,
        rate: float | FloatArray,
        least: float,
        corners: Callable[..., Corners],
        *tables: FloatArray,
    ) -> None:
        super().__init__(loss, direction, longest, rate, least)
        self.corners = corners(*(table[self.rows] for table in tables))

    def _search(self, at: Positions, start: FloatArray, multiplier: float) -> Best:
        every = at.size == self.rows.size
        gain, cost, ratio = self.corners if every else (table[at] for table in self.corners)
        if self.loss.pieces is None:
            # A corner that does not pay at the largest slope of the loss is never the best.
            most = 1 + int((self.loss.lipschitz * ratio > multiplier).any(axis=0).sum())
            gain, cost, count = gain[:, :most], cost[:, :most], np.broadcast_to(np.arange(most), (at.size, most))
        else:  # on each linear piece the gain is concave: it ends where the next corner does not pay
            ends = [(slope * ratio > multiplier).sum(axis=1) for slope in self.slopes_met]
            count = np.stack([np.zeros(at.size, dtype=np.intp), *ends], axis=1)
            gain, cost = np.take_along_axis(gain, count, axis=1), np.take_along_axis(cost, count, axis=1)
        value = self.loss.value(start[:, None] + self.direction.side * gain)
        value -= multiplier * cost
        upper = value.max(axis=1)
        # Of corners that are equal up to rounding take the first, which has the smallest cost.
        first = (value >= (upper - 1e-15 * np.abs(upper))[:, None]).argmax(axis=1)
        chosen = np.arange(at.size), first
        return Best(value[chosen], upper, gain[chosen], cost[chosen], count[chosen].astype(np.float64))


def corners_of_l1(slopes: FloatArray, caps: FloatArray) -> Corners:
    """Return the corners at which features, moving one after another, meet their limits; others do not move."""
    caps = np.where(np.isfinite(caps), caps, 0.0)
    return Corners(running_sums(caps * slopes), running_sums(caps), np.broadcast_to(slopes, caps.shape))


def corners_of_linf(slopes: FloatArray, caps: FloatArray) -> Corners:
    """Return the corners at which features that move together meet their limits; moving beyond the last never pays."""
    caps = np.minimum(caps, np.where(np.isfinite(caps), caps, 0.0).max(axis=1, initial=0.0)[:, None])
    order = np.argsort(caps, axis=1)
    cost = np.zeros((caps.shape[0], caps.shape[1] + 1))
    cost[:, 1:] = np.take_along_axis(caps, order, axis=1)
    left = running_sums(slopes[order][:, ::-1])[:, :0:-1]
    return Corners(running_sums(np.diff(cost, axis=1) * left), cost, left)


def corners_by_ratio(gains: FloatArray, costs: FloatArray) -> Corners:
    """Return the sums over items, those that gain most per cost first."""
    order = order_by_ratio(gains, costs)
    gains, costs = (np.take_along_axis(table, order, axis=1) for table in (gains, costs))
    return Corners(running_sums(gains), running_sums(costs), gain_per_cost(gains, costs))


def order_by_ratio(gains: FloatArray, costs: FloatArray) -> Positions:
    """Return the items of each row, those that gain most per cost first."""
    return np.argsort(-gain_per_cost(gains, costs), axis=1, kind="stable")


def gain_per_cost(gains: FloatArray, costs: FloatArray) -> FloatArray:
    """Return gain per cost of items; 0 for items without gain or cost, which are never used."""
    return np.divide(gains, costs, out=np.zeros_like(gains), where=costs > 0.0)


def running_sums(table: FloatArray) -> FloatArray:
    """Return the sums of the first 0, 1, 2, ... columns, one column more than ``table`` has."""
    out = np.zeros((table.shape[0], table.shape[1] + 1))
    np.cumsum(table, axis=1, out=out[:, 1:])
    return out
