"""Rows put in order, and the sums up to every place: several times faster than numpy's own for many short rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray

__all__ = ["Places", "Side", "add_up", "count_before", "of_rows", "order_rows", "sums_table"]

Places = npt.NDArray[np.intp]
# Whether the signal rises or falls along the move, +1 or -1: of all rows, or of each.
Side = float | FloatArray

# Columns whose numbers fit into the last bits of what is sorted: twelve of the 52 of a fraction.
_MOST_PACKED = 4096
# Sums up to every wall are made in groups of so many.
_GROUP = 8
_UPPER = np.triu(np.ones((_GROUP, _GROUP)))


def of_rows(side: Side, rows: Places | None) -> Side:
    """Return the numbers of some rows; one number is that of all of them."""
    return side if rows is None or isinstance(side, float) else side[rows]


def order_rows(table: FloatArray) -> Places:
    """Return the columns of each row in the order of its entries, which are not negative.

    Entries that agree to 2^-40, relatively, may come in any order.

    Notes
    -----
    The bits of numbers that are not negative are integers in the same order. With the column's number in the last bits
    a plain sort, several times faster than `numpy.argsort`, carries the columns along.

    Examples
    --------
    >>> order_rows(np.array([[0.5, 0.0, np.inf, 0.25]]))
    array([[1, 3, 0, 2]])
    """
    m = table.shape[1]
    if not 0 < m <= _MOST_PACKED:
        return np.argsort(table, axis=1)
    mask = (1 << max(m - 1, 1).bit_length()) - 1
    packed = np.ascontiguousarray(table, dtype=np.float64).view(np.int64) & ~mask
    packed |= np.arange(m)
    packed.sort(axis=1)
    packed &= mask
    return np.asarray(packed, dtype=np.intp)


def sums_table(n: int, k: int) -> FloatArray:
    """Return a table for `add_up`, of which columns 1 to k are to be filled; 0 and those beyond are zero."""
    table = np.empty((n, -(-(k + 1) // _GROUP) * _GROUP))
    table[:, 0] = 0.0
    table[:, k + 1 :] = 0.0
    return table


def add_up(table: FloatArray) -> FloatArray:
    """Return the sums of the first columns, ``out[:, k] = sum of table[:, : k + 1]``."""
    n, width = table.shape
    # A product with a small triangle of ones is several times faster than numpy's cumulative sum.
    inner = (table.reshape(-1, _GROUP) @ _UPPER).reshape(n, width // _GROUP, _GROUP)
    before = np.cumsum(inner[:, :-1, -1], axis=1)
    inner[:, 1:] += before[:, :, None]
    return inner.reshape(n, width)


def count_before(
    table: FloatArray, first: int, width: int, at: Places, bound: float | FloatArray, *, falls: bool
) -> Places:
    """Return how many of the entries ``first``, ``first + 1``, ... of each row come before ``bound``, by bisection.

    Of rows that rise: those ``<= bound``. Of rows that fall: those ``> bound``.
    """
    flat, begin = table.reshape(-1), at * table.shape[1] + first
    if width == 0:
        return np.zeros(at.size, dtype=np.intp)
    place = begin.copy()
    while width > 1:
        half = width // 2
        seen = flat.take(place + (half - 1))
        place += half * (seen > bound if falls else seen <= bound)
        width -= half
    seen = flat.take(place)
    place += seen > bound if falls else seen <= bound
    return np.asarray(place - begin)
