"""Allocation of draws to cells: at least one and at most all rows of each, so that no mass is lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray


def allocate(size: int, counts: npt.NDArray[np.integer], scores: FloatArray) -> npt.NDArray[np.int64]:
    """Share ``size`` draws among cells in proportion to ``scores``.

    Every non-empty cell gets at least one draw and at most as many as it has rows; the rest is distributed among the
    others. Fractions are rounded by largest remainder, so that exactly ``min(size, sum(counts))`` draws are made.

    Parameters
    ----------
    size : int
        At least the number of non-empty cells; see `merge_cells` where it is not.
    counts : ndarray of shape (n_cells,)
    scores : ndarray of shape (n_cells,)
        Non-negative, of any magnitude; cells of infinite score are filled first.

    Examples
    --------
    >>> allocate(5, np.array([100, 2, 0, 10]), np.array([1.0, 8.0, 3.0, 1.0]))
    array([2, 2, 0, 1])
    """
    counts = np.asarray(counts, dtype=np.int64)
    draws = (counts > 0).astype(np.int64)
    if np.isnan(scores).any():
        raise ValueError("A score is NaN: the losses or the masses of the rows are beyond what a float64 holds.")
    if size < draws.sum():
        raise ValueError(f"{size} draws cannot cover {int(draws.sum())} non-empty cells: merge cells first.")
    left = min(size, int(counts.sum())) - int(draws.sum())
    while left > 0:
        spare = counts - draws
        share = np.where(spare > 0, scores, 0.0)
        if not share.any():
            share = spare.astype(np.float64)
        top = share.max()
        # Divided by the largest, so that their sum does not overflow or underflow.
        share = share / top if np.isfinite(top) else np.isinf(share).astype(np.float64)
        ideal = left * (share / share.sum())
        whole = np.minimum(np.floor(ideal).astype(np.int64), spare)
        draws += whole
        left -= int(whole.sum())
        if (ideal > spare).any() and whole.any():
            continue  # distribute the rest of a full cell again
        open_cells = np.flatnonzero(counts > draws)  # largest remainders first, ties by position
        order = open_cells[np.argsort(-(ideal - whole)[open_cells], kind="stable")][:left]
        draws[order] += 1
        left -= int(order.size)
    return draws


def merge_cells(
    cells: npt.NDArray[np.intp], size: int, groups: npt.NDArray[np.intp] | None = None
) -> npt.NDArray[np.intp]:
    """Merge neighbouring cells, smallest first, until there are at most ``size``; return new cell numbers.

    Parameters
    ----------
    cells : ndarray of shape (n,)
        Cell of each row, numbered from 0 without gaps; cells of consecutive numbers are similar.
    size : int
    groups : ndarray of shape (n_cells,), optional
        Group of each cell, a class for example; cells of different groups are merged only if ``size`` requires it.

    Examples
    --------
    >>> cells = np.array([0, 1, 1, 2, 2, 2, 3])
    >>> merge_cells(cells, 2), merge_cells(cells, 2, np.array([0, 0, 0, 1]))
    (array([0, 0, 0, 1, 1, 1, 1]), array([0, 0, 0, 0, 0, 0, 1]))
    """
    counts = np.bincount(cells).tolist()
    merged, sides = [[k] for k in range(len(counts))], [0] * len(counts)
    if groups is not None and np.unique(groups).size <= size:
        sides = groups.tolist()
    while len(merged) > max(size, 1):
        for k in np.argsort(counts, kind="stable").tolist():
            beside = [j for j in (k - 1, k + 1) if 0 <= j < len(merged) and sides[j] == sides[k]]
            if beside:
                break
        j = min(beside, key=lambda index: counts[index])
        low, high = min(j, k), max(j, k)
        merged[low] += merged.pop(high)
        counts[low] += counts.pop(high)
        sides.pop(high)
    lookup = np.repeat(np.arange(len(merged)), [len(group) for group in merged])
    return lookup[cells]
