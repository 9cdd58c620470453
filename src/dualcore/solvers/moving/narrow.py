"""Problems on a box without the features that no model needs.

A feature that is the same in every row says nothing about the target, while the adversary can move it. A model without
its coefficient, and with what it added to the scores in the intercept, has the same scores and no larger worst case.
So the optimum of the problem without such features is the optimum of the problem with them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import choose_columns, constant_columns
from dualcore.problem import Data, Problem

__all__ = ["Narrow"]


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
