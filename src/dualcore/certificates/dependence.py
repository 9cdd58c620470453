"""Columns that are exact combinations of others, which can be left out where nothing penalises the coefficients."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows

BoolArray = npt.NDArray[np.bool_]


class Massed(Protocol):
    """Rows with masses: the data of a problem of one score, or of many."""

    @property
    def rows(self) -> Rows:
        """Access to the rows."""

    @property
    def masses(self) -> FloatArray:
        """Masses that sum to one."""


def drop_dependent(data: Massed, columns: npt.NDArray[np.intp], *, with_intercept: bool) -> BoolArray:
    """Return a mask over the columns (then the intercept): False for *exact* linear combinations of others.

    Candidates come from the eigenvectors of the correlations, which cannot tell an exact dependence from one up to
    rounding. Where a candidate has small whole numbers as coefficients (a repeated column, a full set of indicators)
    it is tried on all rows in extended precision, in which such sums are exact.
    """
    width = columns.size + int(with_intercept)
    keep = np.ones(width, dtype=bool)
    held = data.masses > 0.0
    gram = np.zeros((width, width))
    for part, block in data.rows.dense_blocks():
        x = with_ones(block[:, columns], with_intercept)[held[part]]
        gram += x.T @ x
    sizes = np.sqrt(np.diag(gram))
    keep &= sizes > 0.0
    if with_intercept:  # a constant column is a multiple of the intercept's
        keep[:-1] &= ~_constant(data, columns, held)
    for _ in range(width):
        left = np.flatnonzero(keep)
        scaled = gram[np.ix_(left, left)] / np.outer(sizes[left], sizes[left])
        values, vectors = np.linalg.eigh(scaled)
        if not left.size or values[0] > 1e-10:
            break
        null = vectors[:, values <= 1e-10] / sizes[left][:, None]
        # One column of the null space that is zero in all but few entries: eliminate by the largest ones.
        coefficients = _echelon(null)
        dropped = False
        for vector, pivot in coefficients:
            whole = _whole_multiple(vector)
            if whole is None:
                continue
            if _vanishes(data, columns, left, whole, held, with_intercept=with_intercept):
                keep[left[pivot]], dropped = False, True
        if not dropped:
            break
    return keep


def _constant(data: Massed, columns: npt.NDArray[np.intp], held: BoolArray) -> BoolArray:
    """Return which columns hold one number only, on the rows that count."""
    least, most = np.full(columns.size, np.inf), np.full(columns.size, -np.inf)
    for part, block in data.rows.dense_blocks():
        x = block[held[part]][:, columns]
        if x.size:
            least, most = np.minimum(least, x.min(axis=0)), np.maximum(most, x.max(axis=0))
    return np.asarray(least == most)


def with_ones(x: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the columns, and one of ones where there is an intercept."""
    return np.column_stack([x, np.ones(len(x))]) if with_intercept else x


def _echelon(null: FloatArray) -> list[tuple[FloatArray, int]]:
    """Return combinations of the columns of ``null``, each with its pivot: one there, zero at the others' pivots."""
    basis = null.T.copy()
    pivots: list[int] = []
    for k in range(basis.shape[0]):
        pivot = int(np.abs(basis[k]).argmax())
        if basis[k, pivot] == 0.0:
            continue
        basis[k] /= basis[k, pivot]
        for other in range(basis.shape[0]):
            if other != k:
                basis[other] -= basis[other, pivot] * basis[k]
        pivots.append(pivot)
    return list(zip(basis, pivots, strict=False))


def _whole_multiple(vector: FloatArray) -> FloatArray | None:
    """Return a small multiple of a vector that has small whole entries, where there is one."""
    for factor in range(1, 13):
        whole = np.round(factor * vector)
        if np.abs(factor * vector - whole).max() <= 1e-4 and np.abs(whole).max() <= 64:
            return np.asarray(whole)
    return None


def _vanishes(
    data: Massed,
    columns: npt.NDArray[np.intp],
    left: npt.NDArray[np.intp],
    whole: FloatArray,
    held: BoolArray,
    *,
    with_intercept: bool,
) -> bool:
    """Whether a combination with whole coefficients is exactly zero on every row that counts."""
    used = np.flatnonzero(whole)
    ratio = 2.0 ** np.finfo(np.longdouble).nmant / float(np.abs(whole).sum())
    for part, block in data.rows.dense_blocks():
        x = with_ones(block[:, columns], with_intercept)[:, left[used]][held[part]]
        total = (x.astype(np.longdouble) * whole[used].astype(np.longdouble)).sum(axis=1)
        if total.any():
            return False
        # All terms of a row are multiples of the spacing of the smallest: their sum is exact if it fits the mantissa.
        sizes = np.abs(x)
        least = np.spacing(np.where(sizes > 0.0, sizes, np.inf).min(axis=1, initial=1e300))
        if not (sizes.max(axis=1, initial=0.0) < least * ratio).all():
            return False
    return True
