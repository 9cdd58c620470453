"""Sums over rows that are mostly one-hot: of a group of columns a row holds one number, its category.

The weighted Gram matrix of two groups is a table: ``sum_i w_i [row i has category a of one, b of the other]``. Groups
are taken in pairs, a large one with a small one. The table of two pairs holds those of all groups in them as sums, and
is one pass over a number a row, whatever the number of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows

# Columns a group from which tables cost less than products of columns.
_COLUMNS = 5
# Entries that a table of several groups may have, as a share of the rows.
_SHARE = 1.0


class OneHotRows:
    """Rows with groups of one-hot columns, and columns of numbers beside them.

    Parameters
    ----------
    rows : Rows
        In every group at most one column is 1, the others are 0.
    groups : sequence of ndarray of int
        Columns of every group, apart from each other.

    Examples
    --------
    >>> import numpy as np
    >>> from dualcore.data.rows import DenseRows
    >>> X = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 2.0], [1.0, 0.0, 0.0]])
    >>> OneHotRows(DenseRows(X), [np.array([0, 1])]).gram(np.array([1.0, 1.0, 2.0]))
    array([[3.  , 0.  , 0.5 ],
           [0.  , 1.  , 2.  ],
           [0.5 , 2.  , 4.25]])
    """

    def __init__(self, rows: Rows, groups: Sequence[npt.NDArray[np.intp]]) -> None:
        self.n, self.m, self.groups = rows.n, rows.m, groups
        self.numbers = np.setdiff1d(np.arange(self.m), np.concatenate(groups))
        self.N = np.empty((self.n, self.numbers.size))
        # Category of every row in every group; one without a column is the last.
        self.codes = [np.empty(self.n, dtype=np.intp) for _ in groups]
        for part, X in rows.dense_blocks():
            self.N[part] = X[:, self.numbers]
            for codes, columns in zip(self.codes, groups, strict=True):
                own = X[:, columns]
                codes[part] = np.where(own.any(axis=1), own.argmax(axis=1), columns.size)
        #: no entry of a column is larger
        self.widest = np.ones(self.m)
        self.widest[self.numbers] = np.abs(self.N).max(axis=0, initial=0.0)
        place = [np.append(columns, -1)[codes] for codes, columns in zip(self.codes, groups, strict=True)]
        column = np.stack(place, axis=1)
        real = column >= 0
        ends = np.append(0, np.cumsum(real.sum(axis=1)))
        self.S = sp.csr_array((np.ones(int(ends[-1])), column[real], ends), shape=(self.n, self.m))
        self.T = sp.csr_array(self.S.T)

    @staticmethod
    def pays(groups: Sequence[npt.NDArray[np.intp]]) -> bool:
        """Whether groups have enough columns."""
        return bool(groups) and sum(columns.size for columns in groups) >= _COLUMNS * len(groups)

    def dot(self, coef: FloatArray) -> FloatArray:
        """Return ``X @ coef``, shape (n,)."""
        return np.asarray(self.S @ coef + self.N @ coef[self.numbers])

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        """Return ``X.T @ vector``, shape (m,)."""
        out = np.asarray(self.T @ vector)
        out[self.numbers] = vector @ self.N
        return out

    def _pairs(self) -> list[tuple[int, ...]]:
        """Return the groups in pairs, the largest with the smallest; alone where two pairs make too large a table."""
        order = sorted(range(len(self.groups)), key=lambda j: self.groups[j].size)
        pairs = [(order[-1 - k], order[k]) for k in range(len(order) // 2)]
        alone = [(order[len(order) // 2],)] if len(order) % 2 else []
        largest = max((int(np.prod(self._shape(pair))) for pair in pairs), default=0)
        return [*pairs, *alone] if largest**2 <= _SHARE * self.n else [(j,) for j in order]

    def _shape(self, pair: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.groups[j].size + 1 for j in pair)

    @cached_property
    def _tables(self) -> list[tuple[tuple[int, ...], npt.NDArray[np.intp], int]]:
        """Of every table: its groups, the number of the entry of every row, how many groups are of the first pair."""
        pairs = self._pairs()
        codes = [np.ravel_multi_index([self.codes[j] for j in pair], self._shape(pair)) for pair in pairs]
        out = [(pair, code, len(pair)) for pair, code in zip(pairs, codes, strict=True)]
        for k, (one, code) in enumerate(zip(pairs, codes, strict=True)):
            for two, other in zip(pairs[:k], codes[:k], strict=True):
                out.append((one + two, code * int(np.prod(self._shape(two))) + other, len(one)))
        return out

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return ``X.T @ diag(weights) @ X``, shape (m, m)."""
        out = np.zeros((self.m, self.m))
        for groups, codes, first in self._tables:
            shape = self._shape(groups)
            table = np.bincount(codes, weights, int(np.prod(shape))).reshape(shape)
            every = range(len(groups))
            if first == len(groups):
                for k in every:
                    columns = self.groups[groups[k]]
                    out[columns, columns] = table.sum(axis=tuple(j for j in every if j != k))[:-1]
            ends = [(k, j) for k in every[:first] for j in every[first:]] or [(k, j) for k in every for j in every[:k]]
            for k, j in ends:
                part = table.sum(axis=tuple(i for i in every if i not in (k, j)))
                part = (part if k < j else part.T)[:-1, :-1]
                one, two = self.groups[groups[k]], self.groups[groups[j]]
                out[np.ix_(one, two)], out[np.ix_(two, one)] = part, part.T
        if self.numbers.size:
            weighted = self.N * weights[:, None]
            cross = self.T @ weighted
            cross[self.numbers] = weighted.T @ self.N
            out[:, self.numbers] = cross
            out[self.numbers] = cross.T
        return out
