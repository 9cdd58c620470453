"""The least and the largest coefficient of a group of categories, as columns of their own.

An adversary who changes a group sends the row to the category with the least coefficient, or the largest. Near the
optimum many categories share both, so that which one it is changes from one model to the next. With variables
``low_j <= theta_j[k] <= high_j`` for all ``k`` a moved row names the group that changed and the side, not the category:
far fewer moved rows describe the problem, and the multipliers of the limits say in which proportions the categories are
used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily

# How far an extreme begins beyond the coefficients: as a share of their spread, and at least.
_BEYOND, _LEAST = 0.01, 1e-3


class Extremes:
    """Two columns for each group that can change, behind the features: its least coefficient, then its largest.

    Attributes
    ----------
    width : int
        Number of features and extremes.
    order : csr_array of shape (n_limits, width)
        Times coefficients and extremes: what must not be negative.
    of : ndarray of shape (n_limits,)
        Column of the extreme in each limit.
    price : float
        Of changing all these groups.
    """

    def __init__(self, family: BoxFamily, n_features: int) -> None:
        groups, self.price = list[tuple[npt.NDArray[np.intp], bool]](), 0.0
        if isinstance(family, CategoriesFamily):
            self.price = float(family.costs[np.isfinite(family.costs)].sum())
            every = zip(family.columns, family.is_dropped, np.isfinite(family.costs).tolist(), strict=True)
            groups = [(columns, dropped) for columns, dropped, movable in every if movable]
        self.groups, self.m, self.width = groups, n_features, n_features + 2 * len(groups)
        of, category, sides = [], [], []
        for number, (columns, dropped) in enumerate(groups):
            for upper, side in ((False, 1.0), (True, -1.0)):
                for column in [*columns.tolist(), *([-1] if dropped else [])]:
                    of.append(n_features + 2 * number + upper)
                    category.append(column)
                    sides.append(side)
        self.of, self.category = np.array(of, dtype=np.intp), np.array(category, dtype=np.intp)
        self.sides = np.array(sides)
        limits, real = np.arange(self.of.size), self.category >= 0
        entries = np.concatenate([-self.sides, self.sides[real]])
        place = np.concatenate([limits, limits[real]]), np.concatenate([self.of, self.category[real]])
        self.order = sp.csr_array((entries, place), shape=(self.of.size, self.width))

    def lifted(self, coef: FloatArray) -> FloatArray:
        """Return coefficients, and extremes a little beyond them."""
        out = np.append(coef, np.zeros(self.width - self.m))
        for number, (columns, dropped) in enumerate(self.groups):
            values = np.append(coef[columns], [0.0] if dropped else [])
            low, high = float(values.min()), float(values.max())
            beyond = _BEYOND * (high - low) + _LEAST
            out[self.m + 2 * number :][:2] = low - beyond, high + beyond
        return out

    def settle(self, lifted: FloatArray, used: npt.NDArray[np.bool_]) -> FloatArray:
        """Return a point with extremes as in `lifted` where they are not used or not on their side."""
        fresh = self.lifted(lifted[: self.m])
        wrong = self.order @ lifted <= 0.0
        again = np.append(np.zeros(self.m, dtype=bool), ~used)
        again[self.of[wrong]] = True
        return np.where(again, fresh, lifted)

    def lift(self, X: FloatArray, moved: FloatArray, coef: FloatArray) -> FloatArray:
        """Return moved rows, with the extreme instead of the category where a group changed."""
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

    def targets(self, pulls: FloatArray) -> FloatArray:
        """Return for every extreme how it is shared among the features, in proportion to the pull of its limits.

        Rows sum to 1, or to less where a category has no column.
        """
        total = np.bincount(self.of - self.m, pulls, self.width - self.m)
        share = np.divide(pulls, total[self.of - self.m], out=np.zeros(pulls.size), where=total[self.of - self.m] > 0.0)
        out, real = np.zeros((self.width - self.m, self.m)), self.category >= 0
        np.add.at(out, (self.of[real] - self.m, self.category[real]), share[real])
        return out
