"""Sums over rows that are mostly one-hot: of a group of columns a row holds one number, its category.

The weighted Gram matrix of two groups is a table: ``sum_i w_i [row i has category a of one, b of the other]``. Of ``g``
groups there are ``g (g - 1) / 2`` tables, each a pass over two numbers a row, whatever the number of columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows

__all__ = ["OneHotRows"]

# Columns a group from which tables cost less than products of columns.
_COLUMNS = 5


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

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return ``X.T @ diag(weights) @ X``, shape (m, m)."""
        out = np.zeros((self.m, self.m))
        for k, (codes, columns) in enumerate(zip(self.codes, self.groups, strict=True)):
            out[columns, columns] = np.bincount(codes, weights, columns.size + 1)[:-1]
            for other, others in zip(self.codes[:k], self.groups[:k], strict=True):
                shape = columns.size + 1, others.size + 1
                table = np.bincount(codes * shape[1] + other, weights, shape[0] * shape[1]).reshape(shape)
                out[np.ix_(columns, others)] = table[:-1, :-1]
                out[np.ix_(others, columns)] = table[:-1, :-1].T
        if self.numbers.size:
            weighted = self.N * weights[:, None]
            cross = self.T @ weighted
            cross[self.numbers] = weighted.T @ self.N
            out[:, self.numbers] = cross
            out[self.numbers] = cross.T
        return out
