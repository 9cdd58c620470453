"""Categories: groups of one-hot columns that the adversary may change at a cost, and numeric features that may move.

Changing group ``j`` of a row to any other category costs ``c_j``; costs add. For a row with label ``y`` and category
``z_j`` it reduces the margin by up to ``delta_j = y theta_j[z_j] - min_k y theta_j[k] >= 0``. Because the loss is
convex the best sets of groups are nested: sort them by ``delta_j / c_j``, descending; with prefix sums ``D_k`` and
``C_k``

    h_y = max over k of  L(t - D_k) - lam C_k,      h = max { h_y, h_{-y} - lam gamma } .

This is exact for every convex loss and any prices, and takes O(g log g) per row. For residuals it is computed twice,
with the largest increases and the largest decreases. Numeric features without limits do not move in a best move, for
any norm, because ``lam`` is at least ``Lip ||theta_num||_*``. On a box with l1 they are items of the same list: feature
``j`` has the ratio ``|theta_j|``, and its cost is the distance to its limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import Rows
from dualcore.problem.families.base import Family
from dualcore.problem.families.box import BoxFamily
from dualcore.problem.families.boxpath import CornerPath, Path, corners_by_ratio, gain_per_cost, order_by_ratio
from dualcore.problem.geometry import Box, Geometry, L1Norm, check_range
from dualcore.problem.losses import Loss, Softmax


@dataclass(frozen=True)
class Categories:
    """Groups of one-hot columns, and the price of changing each.

    Parameters
    ----------
    groups : tuple of tuples of int
        Columns of every group. ``None`` in a group is a category without a column, such as the first one dropped by an
        encoder: a row of zeros is then a category too.
    costs : tuple of float
        Price of a change for each group; ``inf`` makes a group immovable.

    Examples
    --------
    >>> Categories.of([[0, 1, 2], [None, 3]], 2.0)
    Categories(groups=((0, 1, 2), (None, 3)), costs=(2.0, 2.0))
    """

    groups: tuple[tuple[int | None, ...], ...]
    costs: tuple[float, ...]

    @classmethod
    def of(cls, categories: Any, cost: Any = 1.0) -> Categories | None:
        """Return the groups, checked; None where there are none."""
        if categories is None:
            return None
        if isinstance(categories, (str, bytes)) or not isinstance(categories, (Sequence, np.ndarray)):
            raise TypeError(
                f"categories must be a list of groups of column numbers, got {type(categories).__name__}. "
                "Example: categories=[[3, 4, 5], [None, 6]]; None stands for a dropped category."
            )
        groups = tuple(_group(number, group) for number, group in enumerate(categories))
        if not groups:
            return None
        seen: dict[int, int] = {}
        for number, group in enumerate(groups):
            for column in group:
                if column is None:
                    continue
                if column in seen:
                    raise ValueError(
                        f"categories: column {column} is in the groups {seen[column]} and {number}. A column belongs "
                        "to one group, once."
                    )
                seen[column] = number
        return cls(groups, _costs(cost, len(groups)))

    @property
    def columns(self) -> list[npt.NDArray[np.intp]]:
        """Columns of every group."""
        return [np.array([c for c in group if c is not None], dtype=np.intp) for group in self.groups]

    @property
    def is_dropped(self) -> list[bool]:
        """Whether a row of zeros is a category, for every group."""
        return [None in group for group in self.groups]


def _group(number: int, group: Any) -> tuple[int | None, ...]:
    if isinstance(group, (str, bytes)) or not isinstance(group, (Sequence, np.ndarray)):
        raise TypeError(f"categories: group {number} must be a list of column numbers, got {type(group).__name__}.")
    out: list[int | None] = []
    for column in group:
        if column is None:
            out.append(None)
            continue
        if isinstance(column, (bool, np.bool_)) or not isinstance(column, (int, np.integer)):
            raise TypeError(
                f"categories: group {number} must hold column numbers (None for a dropped category), got {column!r}."
            )
        if column < 0:
            raise ValueError(f"categories: group {number} names column {column}; columns are counted from 0.")
        out.append(int(column))
    if not any(column is not None for column in out) or out.count(None) > 1:
        raise ValueError(f"categories: group {number} needs at least one column, and None at most once, got {out}.")
    return tuple(out)


def _costs(cost: Any, n_groups: int) -> tuple[float, ...]:
    values = plain_array("category_cost", cost).astype(np.float64)
    if values.ndim > 1 or (values.ndim == 1 and values.size != n_groups):
        raise ValueError(
            f"category_cost must be a number, or one for each of the {n_groups} groups, got shape {values.shape}."
        )
    values = np.broadcast_to(values, n_groups)
    if not (values > 0.0).all():
        raise ValueError(
            f"category_cost must be positive (inf forbids changes), got {cost!r}. A category that can be changed for "
            "nothing carries no information: leave its columns out."
        )
    for value in values.tolist():
        check_range("category_cost", value)
    return tuple(values.tolist())


@dataclass(frozen=True, eq=False)
class _Corners(Box):
    """The user's limits, and those of one-hot columns: 0 and 1."""

    columns: Any = None

    def spread(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        low, high = super().spread(n_features)
        low[self.columns], high[self.columns] = 0.0, 1.0
        return low, high


class CategoriesFamily(BoxFamily):
    """``h`` and the minimum over the multiplier where groups of one-hot columns change at a price.

    One-hot columns are features of a box, [0, 1], of which only the corners are used. Their entries in
    ``feature_weights`` and in the support have no meaning.

    Parameters
    ----------
    loss : Loss
        Of order 1, with one score a row.
    geometry : Geometry
        With categories; a support needs l1.
    radius : float
    """

    name = "categories"
    start_changes: ClassVar[dict[str, Any]] = {"norm": "l1", "feature_weights": None}
    start_tolerance = 1e-2

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        if geometry.categories is None:
            raise ValueError("CategoriesFamily needs a geometry with categories.")
        if isinstance(loss, Softmax):
            raise ValueError(
                "categories need a loss with one score a row, and 'softmax' has one for each class. Use one model a "
                "class ('logistic'), or numeric one-hot columns (categories=None)."
            )
        if geometry.order != 1:
            raise ValueError(
                f"categories need a loss of order 1: of order {geometry.order:g} the cost of a change does not add to "
                "those of others. Use 'hinge', 'logistic', 'huber', ..., or categories=None."
            )
        support = geometry.support
        if support is not None and not isinstance(geometry.norm, L1Norm):
            raise ValueError(
                f"categories with a support need norm='l1', found {geometry.norm.name!r}: only there do numbers and "
                "categories share one list of moves. Use norm='l1', or support=None."
            )
        Family.__init__(self, loss, geometry, radius)
        self.categories: Categories = geometry.categories
        self.columns, self.is_dropped = self.categories.columns, self.categories.is_dropped
        self.costs = np.array(self.categories.costs)
        self.has_limits, self.moves_together, self.has_curved_cost = support is not None, False, False
        either = Box(np.array(-np.inf), np.array(np.inf)) if support is None else support
        self.one_hot = np.concatenate(self.columns)
        sizes = [columns.size for columns in self.columns]
        # The same columns, as a slice where they are next to each other: that needs no copy.
        start, stop = int(self.one_hot[0]), int(self.one_hot[0]) + self.one_hot.size
        is_run = np.array_equal(self.one_hot, np.arange(start, stop))
        self.place: Any = slice(start, stop) if is_run else self.one_hot
        self.group_of, self.first = np.repeat(np.arange(len(sizes)), sizes), np.cumsum([0, *sizes[:-1]])
        self.support = _Corners(either.low, either.high, self.one_hot)
        # Columns of the groups in which every row has a one: together they act as an intercept.
        self.complete = [columns for columns, dropped in zip(self.columns, self.is_dropped, strict=True) if not dropped]
        self.holds_intercept = bool(self.complete)

    # Rows

    def check_rows(self, rows: Rows, first: int = 0) -> None:
        """Raise ValueError where a row is not one-hot in a group, or lies outside the box."""
        self.check_width(rows.m)
        for part, X in rows.dense_blocks():
            values = X[:, self.place]
            total = np.add.reduceat(values, self.first, axis=1)
            wrong = (total > 1.0) | ((total != 1.0) & ~np.array(self.is_dropped))
            wrong |= np.logical_or.reduceat((values != 0.0) & (values != 1.0), self.first, axis=1)
            if wrong.any():
                number, row = (int(place[0]) for place in np.nonzero(wrong.T))
                columns, dropped = self.columns[number], self.is_dropped[number]
                rule = "at most one column" if dropped else "exactly one column"
                more = "" if dropped else " If zeros are a category, put None in the group."
                raise ValueError(
                    f"Row {first + part.start + row} is not one-hot in group {number} of categories, columns "
                    f"{columns[:8].tolist()}: it holds {X[row, columns[:8]].tolist()}. There {rule} must be 1 and the "
                    f"others 0.{more}"
                )
        if self.has_limits:
            super().check_rows(rows, first)

    def check_width(self, n_features: int) -> None:
        """Raise ValueError where a group names a column that is not there."""
        highest = int(self.one_hot.max())
        if highest >= n_features:
            raise ValueError(f"categories name column {highest}, but X has {n_features} features.")

    def paths(
        self, X: FloatArray, y: FloatArray, coef: FloatArray, intercept: float, *, least: float = 0.0
    ) -> Iterator[Path]:
        for direction in self._directions(X @ coef + intercept, y):
            gains, costs = self._items(X, coef, direction.push)
            pays = self.loss.lipschitz * gains > (1.0 - 1e-12) * least * costs  # else it never moves
            gains, costs = np.where(pays, gains, 0.0), np.where(pays, costs, 0.0)
            rate = gain_per_cost(gains, costs).max(axis=1, initial=0.0)
            yield CornerPath(self.loss, direction, gains.sum(axis=1), rate, least, corners_by_ratio, gains, costs)

    def _items(self, X: FloatArray, coef: FloatArray, push: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gains and costs of the changes and moves of every row along ``push``, shape (n_rows, n_items)."""
        self.check_width(coef.size)
        movable = np.isfinite(self.costs)
        low, high = self._ends(coef)
        # Of a group one coefficient, exactly: the others are multiplied by zero.
        here = np.add.reduceat(X[:, self.place] * coef[self.one_hot], self.first, axis=1)
        gains = np.where(push[:, None] > 0.0, high - here, here - low)
        np.maximum(gains, 0.0, out=gains)
        gains[:, ~movable] = 0.0
        costs = np.where(gains > 0.0, np.where(movable, self.costs, 0.0), 0.0)
        if not self.has_limits:
            return gains, costs
        numbers = self._numbers(coef.size)
        caps = self._capacities(X, coef, push, numbers)
        caps = np.where(np.isfinite(caps), caps, 0.0)
        return np.hstack([gains, caps * self._slopes(coef)[numbers]]), np.hstack([costs, caps])

    def _ends(self, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest coefficient of every group; a dropped category has 0."""
        values = coef[self.one_hot]
        low, high = np.minimum.reduceat(values, self.first), np.maximum.reduceat(values, self.first)
        low[self.is_dropped] = np.minimum(low[self.is_dropped], 0.0)
        high[self.is_dropped] = np.maximum(high[self.is_dropped], 0.0)
        return low, high

    def _numbers(self, n_features: int) -> npt.NDArray[np.intp]:
        """Return the columns that are in no group."""
        return np.setdiff1d(np.arange(n_features), self.one_hot)

    def n_items(self, n_features: int) -> int:
        return self.costs.size + (n_features - self.one_hot.size if self.has_limits else 0)

    def displaced(self, X: FloatArray, coef: FloatArray, push: FloatArray, position: FloatArray) -> FloatArray:
        gains, costs = self._items(X, coef, push)
        rank = np.argsort(order_by_ratio(gains, costs), axis=1)
        taken, out = (rank < position[:, None]) & (gains > 0.0), np.array(X, dtype=np.float64)
        low, high = self._ends(coef)
        for j, columns in enumerate(self.columns):
            for up, wanted in ((True, high[j]), (False, low[j])):
                rows = np.flatnonzero(taken[:, j] & ((push > 0.0) == up))
                if rows.size == 0:
                    continue
                out[np.ix_(rows, columns)] = 0.0
                there = np.flatnonzero(coef[columns] == wanted)
                if there.size:  # else it is the category without a column
                    out[rows, columns[there[0]]] = 1.0
        if self.has_limits:
            numbers = self._numbers(X.shape[1])
            low_limit, high_limit = (side[:, numbers] for side in self.limits(X))
            limit = np.where(np.multiply.outer(push, coef[numbers]) > 0.0, high_limit, low_limit)
            out[:, numbers] = np.where(taken[:, len(self.columns) :], limit, out[:, numbers])
        return out

    # Costs and constants

    def prices(self, n_features: int) -> FloatArray:
        prices = super().prices(n_features)
        for columns, cost in zip(self.columns, self.costs, strict=True):
            prices[columns] = cost
        return prices

    def lengths(self, moves: FloatArray) -> FloatArray:
        numeric = moves.copy()
        numeric[:, self.one_hot] = 0.0
        out = super().lengths(numeric)
        for columns, cost in zip(self.columns, self.costs, strict=True):
            changed = moves[:, columns].any(axis=1)
            if changed.any():
                out[changed] += cost
        return out

    def span(self, width: FloatArray) -> float:
        numeric = width.copy()
        numeric[self.one_hot] = 0.0
        return super().span(numeric) + float(self.costs[np.isfinite(self.costs)].sum())

    def size(self, coef: FloatArray) -> float:
        numeric = coef.copy()
        numeric[self.one_hot] = 0.0
        return super().size(numeric)

    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> float:
        low, high = self._ends(coef)
        steepest = float(((high - low) / self.costs).max())
        return max(super().largest_multiplier(rows, y, coef, intercept), float(self.loss.lipschitz * steepest))

    def paper_bounds(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        raise ValueError("The paper has no bounds for categories. Use rule='exact'.")

    def extremes(self, n_features: int, longest: float, *, fit_intercept: bool) -> tuple[float, float]:
        """As `Family.extremes`, for rows that may change every group; numeric features without limits do not move."""
        label = Family.extremes(self, n_features, longest, fit_intercept=fit_intercept)[1]
        low, high = self.support.spread(n_features)
        width = np.where(np.isfinite(high - low), high - low, 0.0)
        numbers = self._numbers(n_features)
        farther = float(np.linalg.norm(width[numbers])) + float(np.sqrt(self.costs.size))
        return longest + farther, label + self.span(width)

    # Coefficients with the same scores

    @property
    def coupled(self) -> int:
        return max(columns.size for columns in self.columns)

    def pinned(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        out = np.zeros(n_features, dtype=bool)
        for columns in self.complete if fit_intercept else ():
            out[columns[-1]] = True
        return out

    def canonical(self, coef: FloatArray, intercept: float, *, fit_intercept: bool) -> tuple[FloatArray, float]:
        coef = coef.copy()
        for columns in self.complete if fit_intercept else ():
            shift = float(coef[columns[-1]])
            coef[columns] -= shift
            intercept += shift
        return coef, intercept

    def folded(self, coef: FloatArray, intercept: float) -> FloatArray:
        """Add the intercept to the coefficients of a complete group, of which every row has one column."""
        coef = coef.copy()
        coef[self.complete[0]] += intercept
        return coef

    def intercept_columns(self, n_features: int) -> npt.NDArray[np.bool_]:
        out = np.zeros(n_features, dtype=bool)
        for columns in self.complete:
            out[columns] = True
        return out
