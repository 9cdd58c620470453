"""Problems on a box without the features that no model needs.

A feature that is the same in every row says nothing about the target, while the adversary can move it. A model without
its coefficient, and with what it added to the scores in the intercept, has the same scores and no larger worst case.
So the optimum of the problem without such features is the optimum of the problem with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows
from dualcore.problem import Data, Problem

__all__ = ["Narrow", "choose_columns"]

# Chosen columns of at most this many numbers are copied: to choose them again in every pass would take longer.
_FEW_COPIED = 2_000_000


class Narrow(NamedTuple):
    """A problem and its data without features that are constant; the same ones where there are none.

    ``columns``: the features that stay. ``constants``: shape (n_features,), those of the others, zero where they stay.
    """

    problem: Problem
    data: Data
    columns: npt.NDArray[np.intp]
    constants: FloatArray

    @classmethod
    def of(cls, problem: Problem, data: Data) -> Self:
        """Leave out what can be left out; rows of a source are not looked at, which would be a read."""
        m = data.rows.m
        every = cls(problem, data, np.arange(m), np.zeros(m))
        if not data.rows.in_memory or not problem.family.may_narrow:
            return every
        same, first = constant_columns(data.rows)
        if not problem.fit_intercept:  # a column of ones is one
            same &= first == 0.0
        columns = np.flatnonzero(~same)
        if columns.size in (0, m):
            return every
        rows = choose_columns(data.rows, columns)
        return cls(problem.narrowed(columns, m), data._replace(rows=rows), columns, np.where(same, first, 0.0))

    def inside(self, coef: FloatArray, intercept: float) -> tuple[FloatArray, float]:
        """Return a model without the other features whose scores are the same."""
        return coef[self.columns], intercept + float(self.constants @ coef)

    def outside(self, coef: FloatArray) -> FloatArray:
        """Return coefficients of all features."""
        out = np.zeros(self.constants.size)
        out[self.columns] = coef
        return out


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
