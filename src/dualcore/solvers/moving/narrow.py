"""Problems on a box or with categories without the features that no model needs.

A feature that is the same in every row says nothing about the target, while the adversary can move it. A model without
its coefficient, and with what it added to the scores in the intercept, has the same scores and no larger worst case.
So the optimum of the problem without such features is the optimum of the problem with them.

A category that no row has is left out where there is no ridge. Its coefficient may equal that of another category, so
that a change to it gains nothing; and without it the adversary is weaker. So the optimum is the same.
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

# Chosen columns of at most this many numbers are copied: to choose them again in every pass would take longer.
_FEW_COPIED = 2_000_000


class Narrow(NamedTuple):
    """A problem and its data without features that are constant; the same ones where there are none.

    ``columns``: the features that stay. ``constants``: shape (n_features,), those of the others, zero where they stay.
    ``origin``: shape (n_features,), the place among ``columns`` that a coefficient is taken from; -1 for zero.
    """

    problem: Problem
    data: Data
    columns: npt.NDArray[np.intp]
    constants: FloatArray
    origin: npt.NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem, data: Data) -> Self:
        """Leave out what can be left out; rows of a source are not looked at, which would be a read."""
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
                same[columns[0]] &= not same[columns].all()  # a group has a column
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
        """Return a model without the other features whose scores are the same."""
        return coef[self.columns], intercept + float(self.constants @ coef)

    def outside(self, coef: FloatArray) -> FloatArray:
        """Return coefficients of all features."""
        return np.append(coef, 0.0)[self.origin]


class ChosenColumns(Rows):
    """Some columns of other rows, chosen a block at a time: no copy of X is made."""

    def __init__(self, rows: Rows, columns: npt.NDArray[np.intp]) -> None:
        self.rows, self.columns = rows, columns
        self.n, self.m, self.in_memory = rows.n, columns.size, rows.in_memory

    @property
    def block_rows(self) -> int:
        """As many as of the rows themselves."""
        return self.rows.block_rows

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        for part, block in self.rows.blocks():  # of a source one read
            yield part, block[:, self.columns]

    def block(self, part: slice) -> Any:
        return self.rows.block(part)[:, self.columns]

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        return self.rows.take(indices)[:, self.columns]


def choose_columns(rows: Rows, columns: npt.NDArray[np.intp]) -> Rows:
    """Return rows of some columns, written out where they are few numbers.

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
    """Return which columns hold one number only, and the first row.

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
