"""Algorithm 1: grid sampling from lower and upper bounds on the per-row dual loss.

Every cell gets at least one draw and at most all of its rows, so that no mass is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.coresets.coreset import normalised
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.rows import as_weights


def layers(values: FloatArray, mean: float) -> npt.NDArray[np.intp]:
    """Return 0 where ``value <= mean`` and j where ``2^{j-1} mean < value <= 2^j mean``.

    The number of layers is ``1 + ceil(log2(max / mean))``. Where the mean is 0 every value is, and there is one layer.

    Examples
    --------
    >>> layers(np.array([0.0, 1.0, 1.5, 2.0, 9.0]), 1.0)
    array([0, 0, 1, 1, 4])
    """
    if not mean > 0.0:
        return np.zeros(values.shape, dtype=np.intp)
    mantissa, exponent = np.frexp(values / mean)  # value / mean = mantissa * 2**exponent, mantissa in [1/2, 1)
    return np.where(values <= mean, 0, np.maximum(exponent - (mantissa == 0.5), 0)).astype(np.intp)


@dataclass(frozen=True)
class Grid:
    """The partition of the rows of positive mass into cells, with bounds of every row and of every cell.

    ``mu_i 2^{i-1} A <= h <= 2^j B`` in cell (i, j), with ``mu_0 = 0`` and ``mu_i = 1`` for ``i > 0``. If rows are in
    groups, classes for example, every cell belongs to one group. No cell is empty.
    """

    rows: npt.NDArray[np.intp]
    row_masses: FloatArray
    lower: FloatArray
    upper: FloatArray
    cell: npt.NDArray[np.intp]
    lower_mean: float
    upper_mean: float
    # Of every cell
    group: npt.NDArray[np.intp]
    lower_layer: npt.NDArray[np.intp]
    upper_layer: npt.NDArray[np.intp]
    counts: npt.NDArray[np.int64]
    masses: FloatArray
    ranges: FloatArray


def build_grid(
    lower: FloatArray, upper: FloatArray, masses: FloatArray | None = None, groups: npt.NDArray[np.intp] | None = None
) -> Grid:
    """Partition rows by lower and by upper bound, and by group if there are any, and intersect the partitions."""
    masses = np.full(lower.size, 1.0 / lower.size) if masses is None else masses
    rows = np.flatnonzero(masses)  # rows without mass are left out
    lower, upper, masses = lower[rows], upper[rows], masses[rows]
    A, B = float(masses @ lower), float(masses @ upper)
    group = np.zeros(rows.size, dtype=np.intp) if groups is None else groups[rows]
    i, j = layers(lower, A), layers(upper, B)
    name = (group * (int(i.max()) + 1) + i) * (int(j.max()) + 1) + j
    _, first, cell, counts = np.unique(name, return_index=True, return_inverse=True, return_counts=True)
    low, high = np.full(counts.size, np.inf), np.full(counts.size, -np.inf)
    np.minimum.at(low, cell, lower)
    np.maximum.at(high, cell, upper)
    mass = np.bincount(cell, masses).astype(np.float64)
    of_cells = group[first], i[first], j[first], counts.astype(np.int64), mass, high - low
    return Grid(rows, masses, lower, upper, cell, A, B, *of_cells)


def octaves(masses: FloatArray) -> npt.NDArray[np.intp]:
    """Return groups of rows whose masses differ by less than a factor of two."""
    least = float(masses[masses > 0.0].min())
    return np.asarray(np.maximum(np.frexp(masses / least)[1] - 1, 0), dtype=np.intp)  # [2^k, 2^{k+1}) times the least


@dataclass(frozen=True)
class GridDraw:
    """Rows drawn from a grid.

    Attributes
    ----------
    indices : ndarray of shape (size,)
        Row numbers, ascending.
    weights : ndarray of shape (size,)
        ``|C| / (n |Q|)`` in each cell; they sum to one.
    grid : Grid
    draws : ndarray of shape (n_cells,)
        Rows drawn from each cell (of the merged cells, where cells had to be merged).
    merged : bool
        Whether there were more cells than draws.
    """

    indices: npt.NDArray[np.int64]
    weights: FloatArray
    grid: Grid
    draws: npt.NDArray[np.int64]
    merged: bool


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


def draw_grid(grid: Grid, size: int | npt.NDArray[np.int64], seed: int, *, slack: float = 0.0) -> GridDraw:
    """Draw uniformly without replacement from every cell.

    Parameters
    ----------
    size : int or ndarray of shape (n_cells,)
        Number of draws, allocated in proportion to ``|C| (range_C + slack)``; or the draws of each cell.
    slack : float
        ``2 (L l_p + R l_d)``, a bound on the change of ``h`` over the region of the guarantee.
    """
    cell, counts, mass, merged = grid.cell, grid.counts, grid.masses, False
    if isinstance(size, np.ndarray):
        draws = np.minimum(size, counts)
    elif counts.size <= size:
        draws = allocate(size, counts, mass * (grid.ranges + slack))
    else:
        cell, merged = merge_cells(cell, size, grid.group), True
        counts, mass = np.bincount(cell), np.bincount(cell, grid.row_masses).astype(np.float64)
        draws = allocate(size, counts, mass)
    order = np.lexsort((row_keys(seed, grid.rows), cell))
    rank = np.arange(cell.size) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.sort(order[rank < np.repeat(draws, counts)])
    masses = grid.row_masses[chosen]
    drawn = np.bincount(cell[chosen], masses, counts.size)
    weights = masses * (mass / np.where(drawn > 0.0, drawn, 1.0))[cell[chosen]]
    return GridDraw(grid.rows[chosen].astype(np.int64), normalised(weights), grid, draws, merged)


def resolve_size(size: float | int, n_rows: int) -> int:
    """Return a number of rows from a count or a fraction.

    Examples
    --------
    >>> resolve_size(0.05, 1000), resolve_size(7, 1000), resolve_size(5000, 1000)
    (50, 7, 1000)
    """
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise TypeError(f"size must be a number of rows or a fraction of them, got {type(size).__name__}.")
    if isinstance(size, (int, np.integer)):
        if size < 1:
            raise ValueError(f"size must be at least one row, got {size!r}.")
        return min(int(size), n_rows)
    if not 0.0 < size <= 1.0:
        raise ValueError(f"size as a fraction must be in (0, 1], got {size!r}; a whole number counts rows.")
    return max(1, min(n_rows, round(float(size) * n_rows)))


def grid_coreset(
    lower: npt.ArrayLike,
    upper: npt.ArrayLike,
    *,
    size: float | int,
    slack: float = 0.0,
    sample_weight: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> GridDraw:
    r"""Algorithm 1 for any model that can bound its own ``h_i``.

    Rows are partitioned by lower bound (``A_0 = {a <= A}``, ``A_i = {2^{i-1} A < a <= 2^i A}``) and by upper
    bound; uniform draws from every cell of the intersection get the weight ``|C| / (n |Q|)``.

    Parameters
    ----------
    lower, upper : array-like of shape (n,)
        ``0 <= a_i <= h_i <= b_i`` at the anchor; both are ``h_i`` if it is known exactly.
    size : int or float
        Number of rows, or fraction of them. At least one row is drawn from every cell.
    slack : float, default=0.0
        ``2 (L l_p + R l_d)``; raises the share of cells whose bounds are tight.
    sample_weight : array-like of shape (n,), optional
    random_state : int, Generator or None

    Returns
    -------
    GridDraw

    Examples
    --------
    >>> draw = grid_coreset(np.ones(100), np.linspace(1, 8, 100), size=10, random_state=0)
    >>> len(draw.indices), round(float(draw.weights.sum()), 12)
    (10, 1.0)
    """
    a, b = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise ValueError(f"lower and upper must be vectors of one length, got shapes {a.shape} and {b.shape}.")
    is_pair = np.isfinite(a) & np.isfinite(b) & (a >= 0.0) & (a <= b * (1.0 + 1e-9) + 1e-12)
    if not is_pair.all():
        row = int(np.argmin(is_pair))
        given = f"Row {row} has the bounds {float(a[row])!r} and {float(b[row])!r}"
        raise ValueError(f"{given}: they must be finite, with 0 <= lower <= upper.")
    if not slack >= 0.0:
        raise ValueError(f"slack must not be negative, got {slack!r}.")
    grid = build_grid(a, np.maximum(a, b), as_weights(sample_weight, a.size))
    return draw_grid(grid, resolve_size(size, a.size), seed_from(random_state), slack=slack)
