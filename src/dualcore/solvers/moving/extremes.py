"""Extra variables, called *extremes*, that bound the gain of several moves at once, so that few atoms are needed.

The best change of a group is to the category with the smallest coefficient, or the largest. Near the optimum many
categories have nearly this coefficient, so the best one differs from model to model. With variables
``low_j <= theta_j[k] <= high_j`` for all ``k`` an atom holds the group that changes and the side, not the category, and
far fewer atoms are needed. The multipliers of these limits are the proportions in which the categories are used.

With l1 and a polyhedral loss the features decouple at a slope of absolute value ``a``: feature ``j`` gains
``(a theta_j - lam price_j)_+`` per unit that it moves up. With variables that are at least both terms of the maximum
there is one atom for each slope. The multipliers are the shares of the distance to its limit that a feature moves.

With linf all features move by a common step, each in the direction of its coefficient, and there would be an atom for
every pattern of signs. With variables that are at least ``theta_j``, ``-theta_j`` and 0 there is one for each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.problem.geometry import L1Norm

__all__ = ["Extremes", "can_lift_moves"]

# Initial distance of an extreme from its limit: as a share of the range of the limits, and at least.
_BEYOND, _LEAST = 0.01, 1e-3
# With more columns the Newton matrix would be too large, with more numbers the table of atoms.
_MOST_COLUMNS, _MOST_NUMBERS = 3000, 3e7


def _slope_sizes(problem: Problem) -> FloatArray:
    """Return the absolute values of the slopes of a polyhedral loss, without 0."""
    return np.unique(np.abs([slope for slope, _ in problem.loss.pieces or () if slope]))


def can_lift_moves(problem: Problem, data: Data) -> bool:
    """Whether the problem is a box with l1 and a polyhedral loss, and the table of atoms is not too large."""
    pieces = problem.loss.pieces
    is_box = isinstance(problem.family, BoxFamily) and not isinstance(problem.family, CategoriesFamily)
    if pieces is None or not is_box or not isinstance(problem.geometry.norm, L1Norm):
        return False
    columns = (2 * _slope_sizes(problem).size + 1) * data.rows.m
    return columns <= _MOST_COLUMNS and columns * data.rows.n * len(pieces) <= _MOST_NUMBERS


class _Limits(NamedTuple):
    """Limits ``side (v - rate theta_k + price lam) >= 0``; ``of`` is the column of the extreme v, ``category`` is k.

    ``category`` is -1 where ``theta_k`` is replaced by 0. All arrays have shape (n_limits,).
    """

    of: npt.NDArray[np.intp]
    category: npt.NDArray[np.intp]
    side: FloatArray
    rate: FloatArray
    price: FloatArray


class Extremes:
    """The extremes of a problem, as further columns after the features.

    A group that can change has two: its smallest coefficient, then its largest. With l1 and a polyhedral loss a feature
    has two for each absolute value of a slope: its gain per unit moved up, and per unit moved down. With linf a feature
    has two, for a move up and a move down.

    Attributes
    ----------
    width : int
        Number of features and extremes.
    order : csr_array of shape (n_limits, width + 2)
        ``order @ x`` are the slacks of the limits at a point ``x``.
    of : ndarray of shape (n_limits,)
        Column of the extreme in each limit.
    price : float
        Cost of changing all groups.
    """

    def __init__(self, n_features: int, limits: _Limits, least: FloatArray) -> None:
        self.limits, self.m, self.least = limits, n_features, least
        self.width, self.of = n_features + least.size, limits.of
        self.groups, self.price = list[tuple[npt.NDArray[np.intp], bool]](), 0.0
        #: with l1: absolute slopes; with l1 and linf: movable columns, limits of the box (2, c) and prices (c,)
        self.sizes, self.movable = np.zeros(0), np.zeros(0, dtype=np.intp)
        self.ends, self.prices = np.zeros((2, 0)), np.zeros(0)
        count, real = np.arange(self.of.size), limits.category >= 0
        entries = np.concatenate([limits.side, -(limits.side * limits.rate)[real], limits.side * limits.price])
        columns = np.concatenate([self.of, limits.category[real], np.full(count.size, self.width + 1)])
        place = np.concatenate([count, count[real], count]), columns
        self.order = sp.csr_array((entries, place), shape=(count.size, self.width + 2))

    @classmethod
    def of_problem(cls, problem: Problem, family: BoxFamily, data: Data) -> Self:
        """Return the extremes of a problem: of its groups, or of its moves with l1 or linf, or none."""
        m = data.rows.m
        if can_lift_moves(problem, data):
            return cls._of_moves(family, m, _slope_sizes(problem))
        if family.moves_together and not isinstance(family, CategoriesFamily) and 3 * m <= _MOST_COLUMNS:
            return cls._of_moves(family, m, np.zeros(0))
        return cls._of_groups(family, m)

    @classmethod
    def _of_groups(cls, family: BoxFamily, m: int) -> Self:
        groups, price = list[tuple[npt.NDArray[np.intp], bool]](), 0.0
        if isinstance(family, CategoriesFamily):
            price = float(family.costs[np.isfinite(family.costs)].sum())
            every = zip(family.columns, family.is_dropped, np.isfinite(family.costs).tolist(), strict=True)
            groups = [(columns, dropped) for columns, dropped, movable in every if movable]
        parts: list[tuple[int, npt.NDArray[np.intp], float]] = []
        for number, (columns, dropped) in enumerate(groups):
            each = np.append(columns, [-1] if dropped else []).astype(np.intp)
            parts += [(m + 2 * number, each, -1.0), (m + 2 * number + 1, each, 1.0)]
        counts = [each.size for _, each, _ in parts]
        of = np.repeat(np.array([column for column, _, _ in parts], dtype=np.intp), counts)
        category = np.concatenate([np.zeros(0, dtype=np.intp), *(each for _, each, _ in parts)])
        side = np.repeat([side for _, _, side in parts], counts).astype(np.float64)
        limits = _Limits(of, category, side, np.ones(of.size), np.zeros(of.size))
        out = cls(m, limits, np.full(2 * len(groups), _LEAST))
        out.groups, out.price = groups, price
        return out

    @classmethod
    def _of_moves(cls, family: BoxFamily, m: int, sizes: FloatArray) -> Self:
        """Return the extremes of moves with l1, for absolute slopes ``sizes``; with linf ``sizes`` is empty.

        With linf the cost of the common step is part of the atom, so the extremes have no price.
        """
        low, high = family.support.spread(m)
        at = np.flatnonzero(np.isfinite(family.prices(m)) & (low < high))
        signs, prices = np.array([[1.0], [-1.0]]), family.prices(m)[at]
        # Order of the columns: slopes, then up and down, then features. Each is at least the gain of the move, and 0.
        rate = np.multiply.outer(sizes if sizes.size else np.ones(1), signs * np.ones(at.size)).ravel()
        of, count = m + np.arange(rate.size), rate.size // max(at.size, 1)
        limits = _Limits(
            np.tile(of, 2),
            np.append(np.tile(at, count), np.full(of.size, -1)),
            np.ones(2 * of.size),
            np.append(rate, np.zeros(of.size)),
            np.append(np.tile(prices if sizes.size else 0.0 * prices, count), np.zeros(of.size)),
        )
        width = np.tile(np.where(np.isfinite(high - low), high - low, 1.0)[at], count)
        out = cls(m, limits, 0.3 / (width * max(at.size, 1)))
        out.sizes, out.movable, out.ends, out.prices = sizes, at, np.stack([low[at], high[at]]), prices
        return out

    def _distances(self, X: FloatArray, push: FloatArray) -> FloatArray:
        """Return the distances (n, 2 c) of features to their limits in the direction of ``push``, then against it."""
        (low, high), ahead = self.ends, push[:, None] > 0.0
        down, up = X[:, self.movable] - low, high - X[:, self.movable]
        return np.asarray(np.maximum(np.hstack([np.where(ahead, up, down), np.where(ahead, down, up)]), 0.0))

    def own(self, X: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return the atoms (n, width) of unmoved rows; with l1 they include all moves at given slopes of the score."""
        out, first = np.hstack([X, np.zeros((len(X), self.width - self.m))]), self.m
        for size in self.sizes.tolist():
            rows, last = np.flatnonzero(np.abs(slopes) == size), first + 2 * self.movable.size
            caps = self._distances(X[rows], slopes[rows])
            caps = np.where(np.isfinite(caps), caps, 0.0)  # open sides are constraints on the multiplier instead
            out[rows, first:last] = np.sign(slopes[rows])[:, None] / size * caps
            first = last
        return out

    def make_feasible(self, x: FloatArray, used: npt.NDArray[np.bool_], farthest: FloatArray) -> FloatArray:
        """Return a point whose extremes are strictly feasible; those not ``used`` or infeasible are set anew."""
        limits, count = self.limits, self.width - self.m
        if not count:
            return x.copy()
        at, column = np.where(limits.category >= 0, x[limits.category], 0.0), self.of - self.m
        bound = limits.side * (limits.rate * at - limits.price * x[-1])
        most, least = np.full(count, -np.inf), np.full(count, np.inf)
        np.maximum.at(most, column, bound)
        np.minimum.at(least, column, bound)
        side = np.zeros(count)
        side[column] = limits.side
        again = ~used
        again[column[self.order @ x <= 0.0]] = True
        out = x.copy()
        fresh = side * (most + np.minimum(_BEYOND * (most - least) + self.least, farthest))
        out[self.m : self.width] = np.where(again, fresh, x[self.m : self.width])
        return out

    def lift(self, X: FloatArray, moved: FloatArray, coef: FloatArray) -> FloatArray:
        """Return moved rows as atoms (n, width), with changed groups as extremes on the side of the score's change.

        With linf every feature moves by the step of the row or to its limit.
        """
        if self.prices.size:
            push = np.where((moved - X) @ coef > 0.0, 1.0, -1.0)
            step = (np.abs(moved - X)[:, self.movable] * self.prices).max(axis=1)
            most = np.tile(np.divide.outer(step, self.prices), 2)
            return np.hstack([X, push[:, None] * np.minimum(self._distances(X, push), most)])
        out = np.hstack([moved, np.zeros((len(X), self.width - self.m))])
        for number, (columns, _) in enumerate(self.groups):
            change = moved[:, columns] - X[:, columns]
            rows = np.flatnonzero(change.any(axis=1))
            out[np.ix_(rows, columns)] = 0.0
            out[rows, self.m + 2 * number + (change[rows] @ coef[columns] > 0.0)] = 1.0
        return out

    def all_changed(self, X: FloatArray, up: npt.NDArray[np.bool_]) -> FloatArray:
        """Return rows with every group changed, to its largest coefficient where ``up``, else to its least."""
        out = np.hstack([X, np.zeros((len(X), self.width - self.m))])
        for number, (columns, _) in enumerate(self.groups):
            out[:, columns] = 0.0
            out[np.arange(len(X)), self.m + 2 * number + up] = 1.0
        return out

    def targets(self, multipliers: FloatArray) -> tuple[Any, FloatArray]:
        """Return features and costs of the extremes, from the multipliers (n_limits,) of their limits.

        The features are a sparse matrix (n_extremes, n_features): a mixture of the categories or moves of the extreme.
        Its rows sum to 1 for a group, or to less where a category has no column. The costs (n_extremes,) are of moves.
        """
        limits, column, real = self.limits, self.of - self.m, self.limits.category >= 0
        total = np.bincount(column, multipliers, self.width - self.m)[column]
        share = np.divide(multipliers, total, out=np.zeros(multipliers.size), where=total > 0.0)
        place = column[real], limits.category[real]
        shape = self.width - self.m, self.m
        paid = np.bincount(column, share * np.abs(limits.rate) * limits.price, shape[0]).astype(np.float64)
        return sp.csr_array(((share * limits.rate)[real], place), shape=shape), paid
