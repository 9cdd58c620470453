"""Products with centred and scaled columns, a block of rows at a time, in the precision of the data.

Columns are centred and scaled without a copy of the data: products get a rank-one correction. Where the mean of a
column is many times its spread, this correction would lose the digits of single precision; then each dense block is
centred before its products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows, SparseRows
from dualcore.solvers.descent.oracle import ColumnScaling
from dualcore.solvers.descent.rowsums import Point

# Numbers in a block: a few MiB, so that it stays in the cache for both products of an evaluation.
BLOCK_NUMBERS = 786432
# Blocks are centred explicitly where the mean of a column is more than this many times its spread.
_FAR = 16.0


class Operator:
    """Products with the centred and scaled columns, a block at a time."""

    def __init__(self, columns: ColumnScaling, blocks: Blocks, *, wide: bool) -> None:
        self.columns, self.sparse, self.wide = columns, blocks.sparse, wide
        far = np.abs(columns.centre) > _FAR * columns.scale
        self.explicit = not blocks.sparse and bool(far.any())
        self.dtype = np.dtype(np.float64) if wide else np.dtype(np.float32)
        self.offset = columns.centre.astype(self.dtype) if self.explicit else None

    def narrow(self, point: Point) -> tuple[Any, float]:
        """Return the coefficients (m,) for products with raw columns, and the constant to subtract from each score."""
        coef = point.coef / self.columns.scale
        used = coef.astype(self.dtype)
        return used, 0.0 if self.explicit else float(self.columns.centre @ used.astype(np.float64))

    def centred(self, block: Any) -> Any:
        """Return the block in the precision of the products, centred where its offsets are large."""
        if not self.sparse and block.dtype != self.dtype:
            block = block.astype(self.dtype)
        return block if self.offset is None else block - self.offset

    def dot(self, block: Any, coef: tuple[Any, float]) -> FloatArray:
        """Return the scores of a block, the intercept left out."""
        return np.asarray(block @ coef[0], dtype=np.float64) - coef[1]

    def transpose_dot(self, block: Any, slope: FloatArray) -> FloatArray:
        """Return the moment ``sum_i slope_i x_i`` (m,) of the slopes (n,) in raw columns."""
        vector = slope.astype(self.dtype)
        return np.asarray(block.T @ vector if self.sparse else vector @ block, dtype=np.float64)

    def finish(self, moment: FloatArray, total: float) -> FloatArray:
        """Return a moment in centred and scaled columns, from one in raw columns and the sum of the slopes."""
        if not self.explicit:
            moment = moment - total * self.columns.centre
        return moment / self.columns.scale


class Blocks(ABC):
    """Blocks of rows in the precision of the data."""

    sparse = False
    single = False
    spans: list[slice]

    @abstractmethod
    def take(self, number: int, part: slice) -> Any:
        """Return a block, without a copy where possible."""

    @abstractmethod
    def rows(self, rows: np.ndarray) -> Any:
        """Return chosen rows."""

    def moments(self, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weighted means of the columns and of their squares."""
        raise NotImplementedError("only sparse blocks know their moments")

    def round(self, centre: FloatArray) -> FloatArray:
        """Return the centre rounded to the precision of the data."""
        return centre.astype(np.float32).astype(np.float64) if self.single else centre


class _DenseBlocks(Blocks):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        X = rows.X if isinstance(rows, DenseRows) else None
        self.single = X is not None and X.dtype == np.float32
        self._X = np.asarray(X) if X is not None and X.dtype in (np.float32, np.float64) else None
        step = max(64, BLOCK_NUMBERS // rows.m)
        self.spans = [slice(first, min(first + step, rows.n)) for first in range(0, rows.n, step)]

    def take(self, number: int, part: slice) -> Any:
        return self._rows.block(part) if self._X is None else self._X[part]

    def rows(self, rows: np.ndarray) -> Any:
        return self._rows.take(rows) if self._X is None else self._X[rows]


class _SparseBlocks(Blocks):
    """A CSR matrix in as many parts as there are threads; a CSC matrix whole."""

    sparse = True

    def __init__(self, rows: SparseRows, threads: int) -> None:
        self._rows, X = rows, rows.X
        self.single = X.dtype == np.float32
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        self._X = X
        parts = min(threads, rows.n) if X.format == "csr" else 1
        edges = [rows.n * k // parts for k in range(parts + 1)]
        self.spans = [slice(*pair) for pair in pairwise(edges)]
        self._parts = [X] if parts == 1 else [_csr_part(X, part) for part in self.spans]

    def take(self, number: int, part: slice) -> Any:
        return self._parts[number]

    def rows(self, rows: np.ndarray) -> Any:
        return self._rows.by_row[rows]

    def moments(self, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        X, m = self._X, self._X.shape[1]
        if X.format == "csr":
            spread = np.repeat(masses, np.diff(X.indptr))
            columns = X.indices
        else:
            spread, columns = masses[X.indices], np.repeat(np.arange(m), np.diff(X.indptr))
        spread *= X.data
        mean = np.asarray(np.bincount(columns, weights=spread, minlength=m), dtype=np.float64)
        spread *= X.data
        return mean, np.asarray(np.bincount(columns, weights=spread, minlength=m), dtype=np.float64)


def _csr_part(X: Any, part: slice) -> Any:
    """Return consecutive rows of a CSR matrix that share its arrays."""
    first, last = X.indptr[part.start], X.indptr[part.stop]
    pointers = X.indptr[part.start : part.stop + 1] - first
    shape = (part.stop - part.start, X.shape[1])
    return sp.csr_matrix((X.data[first:last], X.indices[first:last], pointers), shape=shape, copy=False)


def blocks_of(rows: Rows, threads: int) -> Blocks:
    """Return the blocks of a container."""
    return _SparseBlocks(rows, threads) if isinstance(rows, SparseRows) else _DenseBlocks(rows)
