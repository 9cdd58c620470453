r"""What the adversary earns where the slope of the loss is fixed: moves that decouple.

At a slope of size ``a`` that pushes the score along ``d`` (+1 or -1) a row ``x`` is moved one feature or group at a
time, and all its moves together earn

    (x, 1) . R_d (a B z - lam c)_+ ,

where ``z`` holds the coefficients and, of every group of categories, the largest and the least of them, its *ends*. A
number between its limits has two moves, up and down, which earn ``a theta_j`` and ``-a theta_j`` a unit, and ``R_d``
says how far the row can go. A category has two as well, to either end of its group: they earn ``a (high - theta_k)``
and ``a (theta_k - low)``, and ``R_d`` says whether the row has that category. Neither ``B`` nor ``R_d`` depend on the
model, so that with variables above the positive parts a row's worst case is linear. The multipliers of their limits
say which share of the way the rows go: a distribution of moved rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily

__all__ = ["DecoupledMoves", "Entries"]


class Entries:
    """Entries of a sparse matrix, collected."""

    def __init__(self) -> None:
        self.row: list[npt.NDArray[np.intp]] = []
        self.column: list[npt.NDArray[np.intp]] = []
        self.value: list[FloatArray] = []

    def add(self, row: npt.ArrayLike, column: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add entries; the three are broadcast."""
        each = np.broadcast_arrays(np.asarray(row, dtype=np.intp), np.asarray(column, dtype=np.intp), value)
        self.row.append(each[0].ravel())
        self.column.append(each[1].ravel())
        self.value.append(np.asarray(each[2], dtype=np.float64).ravel())

    def matrix(self, shape: tuple[int, int]) -> sp.csr_array:
        """Return them as a matrix."""
        if not self.row:
            return sp.csr_array(shape)
        place = np.concatenate(self.row), np.concatenate(self.column)
        return sp.csr_array((np.concatenate(self.value), place), shape=shape)


class DecoupledMoves:
    """The moves of a family: numbers between limits with l1, and groups of categories.

    Parameters
    ----------
    family : BoxFamily
    n_features : int

    Attributes
    ----------
    gains : csr_array of shape (n_moves, n_features + n_ends)
        ``B``.
    costs : ndarray of shape (n_moves,)
        ``c``: of a unit of a number, of a change of a group.
    reach : dict of int to csr_array of shape (n_features + 1, n_moves)
        ``R_d``; its products with rows are not negative.
    longest : ndarray of shape (n_moves,)
        No such product is larger.
    costs_of_groups : ndarray of shape (n_groups,)
    column, end : ndarray of shape (n_categories,)
        Of every category that groups may be changed to the feature, -1 where it has none, and the largest end of its
        group; the least one follows ``n_groups`` later.
    """

    def __init__(self, family: BoxFamily, n_features: int) -> None:
        self.m = n_features
        low, high = family.support.spread(n_features)
        prices = family.prices(n_features)
        walled = np.isfinite(prices) & np.isfinite(high - low) & (high > low)
        columns: list[npt.NDArray[np.intp]] = []
        costs = np.zeros(0)
        if isinstance(family, CategoriesFamily):
            walled[family.one_hot] = False
            for own, dropped, cost in zip(family.columns, family.is_dropped, family.costs.tolist(), strict=True):
                if np.isfinite(cost):
                    columns.append(np.append(own, -1) if dropped else own)
            costs = family.costs[np.isfinite(family.costs)]
        self.n_groups = len(columns)
        self.column = np.concatenate([np.zeros(0, dtype=np.intp), *columns]).astype(np.intp)
        self.end = n_features + np.repeat(np.arange(self.n_groups), [own.size for own in columns]).astype(np.intp)
        self.costs_of_groups = costs
        at = np.flatnonzero(walled)
        self.n_items = at.size + self.n_groups
        k, count = at.size, self.column.size
        number, category, real = np.arange(k), 2 * k + np.arange(count), self.column >= 0
        gains, reach = Entries(), {1: Entries(), -1: Entries()}
        for turn, side in enumerate((1, -1)):
            gains.add(turn * k + number, at, side)
            gains.add(turn * count + category, self.end + turn * self.n_groups, side)
            gains.add(turn * count + category[real], self.column[real], -side)
            # Along its own side a number goes up, to the other side down.
            reach[side].add(at, turn * k + number, -1.0)
            reach[side].add(n_features, turn * k + number, high[at])
            reach[-side].add(at, turn * k + number, 1.0)
            reach[-side].add(n_features, turn * k + number, -low[at])
            reach[side].add(self.column[real], turn * count + category[real], 1.0)
            # A row has the category without a column unless it has one of the others.
            for missing in np.flatnonzero(~real).tolist():
                same = real & (self.end == self.end[missing])
                reach[side].add(self.column[same], turn * count + category[missing], -1.0)
                reach[side].add(n_features, turn * count + category[missing], 1.0)
        n_moves = 2 * (k + count)
        self.gains = gains.matrix((n_moves, n_features + 2 * self.n_groups))
        self.reach = {side: each.matrix((n_features + 1, n_moves)) for side, each in reach.items()}
        of_category = costs[self.end - n_features]
        self.costs = np.concatenate([prices[at], prices[at], of_category, of_category])
        self.longest = np.concatenate([np.tile(high[at] - low[at], 2), np.ones(2 * count)])

    def ends(self, coef: FloatArray) -> FloatArray:
        """Return the largest, then the least coefficients of the groups."""
        own = np.where(self.column >= 0, coef[np.maximum(self.column, 0)], 0.0)
        high, low = np.full(self.n_groups, -np.inf), np.full(self.n_groups, np.inf)
        np.maximum.at(high, self.end - self.m, own)
        np.minimum.at(low, self.end - self.m, own)
        return np.append(high, low)

    def fold(self, moment: FloatArray, shares: FloatArray) -> FloatArray:
        """Return a moment of coefficients and ends, shape (n_features + n_ends,), as one of coefficients alone.

        ``shares``, shape (2, n_categories), says in which proportions an end has its categories; where it is zero for
        all of a group, the end is the last one.
        """
        out, real, groups = moment[: self.m].copy(), self.column >= 0, self.end - self.m
        last = np.append(groups[1:] != groups[:-1], True)[: groups.size].astype(np.float64)
        for turn, own in enumerate(shares):
            total = np.bincount(groups, own, self.n_groups)[groups]
            part = np.divide(own, total, out=last.copy(), where=total > 0.0) * moment[self.end + turn * self.n_groups]
            out[self.column[real]] += part[real]
        return out
