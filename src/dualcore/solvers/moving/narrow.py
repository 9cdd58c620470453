"""Removal of features that no optimal model needs, on a box or with categories.

A feature that is constant over the rows does not help prediction, while the adversary can move it. Setting its
coefficient to zero and adding its contribution to the intercept leaves the scores as they are and does not increase the
risk. So the problems with and without such features have the same optimum.

A category that no row has is removed if there is no ridge. Given the coefficient of another category, changes to it add
nothing to the adversary's choices; and without it the adversary has fewer choices. So the optimum is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows
from dualcore.problem import Data, Problem
from dualcore.problem.families.categories import CategoriesFamily

__all__ = ["Narrow", "choose_columns"]

# Chosen columns of at most this many numbers are copied, which is faster than indexing them in every pass.
_FEW_COPIED = 2_000_000


class Narrow(NamedTuple):
    """A problem and its data without the features that can be removed.

    ``columns`` are the features that remain. ``constants`` (n_features,) are the values of removed features, zero for
    others. ``origin`` (n_features,) is the position among ``columns`` from which a coefficient is taken; -1 for zero.
    """

    problem: Problem
    data: Data
    columns: npt.NDArray[np.intp]
    constants: FloatArray
    origin: npt.NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem, data: Data) -> Self:
        """Remove the features that can be removed; none for a source, where finding them would be a read."""
        m, family = data.rows.m, problem.family
        every = cls(problem, data, np.arange(m), np.zeros(m), np.arange(m))
        if not data.rows.in_memory:
            return every
        same, first = constant_columns(data.rows)
        same &= (first == 0.0) | problem.fit_intercept  # a column of ones is an intercept
        if isinstance(family, CategoriesFamily):
            same[family.one_hot] &= (first[family.one_hot] == 0.0) & (problem.ridge == 0.0)
            for columns, cost in zip(family.columns, family.costs.tolist(), strict=True):
                same[columns] &= cost < np.inf
                same[columns[0]] &= not same[columns].all()  # a group keeps at least one column
        columns = np.flatnonzero(~same)
        if columns.size in (0, m):
            return every
        origin = np.where(same, -1, np.cumsum(~same) - 1)
        inner = problem.narrowed(columns, m)
        if isinstance(family, CategoriesFamily):
            seen = [each[~same[each]] for each in family.columns]
            groups = [[None] * gone + origin[each].tolist() for gone, each in zip(family.is_dropped, seen, strict=True)]
            inner = inner.replace(categories=groups, category_cost=family.costs)
            for each, kept, gone in zip(family.columns, seen, family.is_dropped, strict=True):
                origin[each[same[each]]] = -1 if gone else origin[kept[0]]
        rows = choose_columns(data.rows, columns)
        return cls(inner, data._replace(rows=rows), columns, np.where(same, first, 0.0), origin)

    def inside(self, coef: FloatArray, intercept: float) -> tuple[FloatArray, float]:
        """Return the model of the remaining features with the same scores."""
        return coef[self.columns], intercept + float(self.constants @ coef)

    def outside(self, coef: FloatArray) -> FloatArray:
        """Return coefficients of all features."""
        return np.append(coef, 0.0)[self.origin]


class ChosenColumns(Rows):
    """Some columns of other rows, chosen a block at a time, without a copy of X."""

    def __init__(self, rows: Rows, columns: npt.NDArray[np.intp]) -> None:
        self.rows, self.columns = rows, columns
        self.n, self.m, self.in_memory = rows.n, columns.size, rows.in_memory

    @property
    def block_rows(self) -> int:
        """Rows in a block: as in the original rows."""
        return self.rows.block_rows

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        for part, block in self.rows.blocks():  # one read of a source
            yield part, block[:, self.columns]

    def block(self, part: slice) -> Any:
        return self.rows.block(part)[:, self.columns]

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        return self.rows.take(indices)[:, self.columns]


def choose_columns(rows: Rows, columns: npt.NDArray[np.intp]) -> Rows:
    """Return rows of some columns, copied if they are few numbers.

    Examples
    --------
    >>> choose_columns(DenseRows(np.arange(6.0).reshape(2, 3)), np.array([0, 2])).block(slice(0, 2))
    array([[0., 2.],
           [3., 5.]])
    """
    chosen = ChosenColumns(rows, columns)
    if not rows.in_memory or chosen.n * chosen.m > _FEW_COPIED:
        return chosen
    out = np.empty((chosen.n, chosen.m))
    for part, block in chosen.dense_blocks():
        out[part] = block
    return DenseRows(out)


def constant_columns(rows: Rows) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Return which columns (m,) are constant, and the first row (m,).

    Examples
    --------
    >>> constant_columns(DenseRows(np.array([[1.0, 2.0], [1.0, 3.0]])))[0]
    array([ True, False])
    """
    first: FloatArray | None = None
    same = np.ones(rows.m, dtype=bool)
    for _, block in rows.dense_blocks():
        first = block[0].copy() if first is None else first
        at = np.flatnonzero(same)
        if not at.size:
            break
        same[at] = (block[:, at] == first[at]).all(axis=0)
    return same, np.zeros(rows.m) if first is None else first
