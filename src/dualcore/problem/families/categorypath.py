"""What changing categories earns a row: the path of its changes and moves, best ratio first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.box import MoveDirection
from dualcore.problem.families.boxmoves import Best, Path, best_corner
from dualcore.problem.families.boxpath import Side, of_rows, running_sums
from dualcore.problem.losses import Loss

# Share by which a slope may be wrong where items that do not pay are left out, and how often it is looked for.
_ROUNDING, _REACHES = 1e-9, 3


class Reach(NamedTuple):
    """How steep the loss of every row can be on its path, and is between its ends; each of shape (n_rows,)."""

    steepest: FloatArray
    chord: FloatArray


def reach_of(loss: Loss, way: MoveDirection, gains: FloatArray, costs: FloatArray, least: float) -> Reach:
    """Return the reach of rows at multipliers from ``least`` on.

    No slope on a path is steeper than the one behind all that is on it, and what the steepest does not pay for is not
    on it. Because the loss is convex, sets of these moves earn no more, per gain, than all of them together.
    """
    start, unmoved = way.start, loss.value(way.start)
    total = gains.sum(axis=1)
    for count in range(_REACHES):
        there, slope = loss.value_and_slope(start + way.side * total)
        steepest = (1.0 + _ROUNDING) * np.abs(slope)
        if count < _REACHES - 1:
            total = np.where(steepest[:, None] * gains > least * costs, gains, 0.0).sum(axis=1)
    rise = there - unmoved + 1e-3 * _ROUNDING * (np.abs(there) + np.abs(unmoved))
    return Reach(steepest, np.divide(rise, total, out=np.zeros(total.size), where=total > 0.0))


class CategoryPath(Path):
    """Changes of groups and moves of numbers, those that earn most per cost first; ``key`` counts them.

    ``gains``, ``costs`` of shape (n_rows, n_items): a group each, then a number each. What never pays has neither. Of
    the others only those are listed that may pay at the multiplier ``least``.
    """

    def __init__(self, gains: FloatArray, costs: FloatArray, least: float, reach: Reach) -> None:
        super().__init__(np.zeros(gains.shape[1]), costs)
        self.gains, self.costs = gains, costs
        self._unmoved: tuple[FloatArray, FloatArray] | None = None
        self.rows = np.flatnonzero((reach.chord[:, None] * gains > least * costs).any(axis=1))
        gains, costs, steepest = gains[self.rows], costs[self.rows], reach.steepest[self.rows][:, None]
        self.items = np.flatnonzero((steepest * gains > least * costs).any(axis=0))
        gains, costs = gains[:, self.items], costs[:, self.items]
        ratio = np.divide(gains, costs, out=np.zeros_like(gains), where=costs > 0.0)
        self.order = np.argsort(-ratio, axis=1, kind="stable")
        ratio = np.take_along_axis(ratio, self.order, axis=1)
        self.paid = ratio * steepest
        #: multiplier from which on a row stays
        self.last = reach.chord[self.rows] * ratio.max(axis=1, initial=0.0)
        self.gain, self.cost = (running_sums(np.take_along_axis(part, self.order, axis=1)) for part in (gains, costs))

    def best(
        self, loss: Loss, start: FloatArray, side: Side, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        if self._unmoved is None or self._unmoved[0] is not start:  # asked for again at every multiplier
            self._unmoved = start, loss.value(start)
        value = self._unmoved[1]
        out = Best(value.copy(), value.copy(), *np.zeros((3, start.size)))
        some = np.flatnonzero(self.last > multiplier)
        if not some.size:
            return out
        # What the steepest slope of the loss does not pay for is in no best move, nor is what is behind it.
        end = 1 + int((self.paid[some] > multiplier).any(axis=0).sum())
        rows = self.rows[some]
        moved = best_corner(
            loss, start[rows], of_rows(side, rows), multiplier, self.gain[some, :end], self.cost[some, :end]
        )
        for each, new in zip(out, moved, strict=True):
            each[rows] = new
        return out

    def displacement(self, key: FloatArray) -> FloatArray:
        """Return 1 for every item that is taken, 0 for the others."""
        rank = np.empty(self.order.shape)
        np.put_along_axis(rank, self.order, np.arange(self.order.shape[1], dtype=np.float64)[None, :], axis=1)
        out, listed = np.zeros(self.gains.shape), np.ix_(self.rows, self.items)
        out[listed] = (rank < key[self.rows][:, None]) & (self.gains[listed] > 0.0)
        return out
