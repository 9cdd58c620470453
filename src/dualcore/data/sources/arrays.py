"""Rows in memory, or mapped into it: arrays, sparse matrices, data frames."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import LARGEST_WEIGHT, SMALLEST_WEIGHT, DenseRows, Rows, SparseRows, as_rows
from dualcore.data.sources.chunk import Chunk, SourceError, as_signs, chunk_spans, two_labels
from dualcore.data.sources.local import LocalSource, Pieces, default_chunk_rows

# Rows of a mapped file that are looked up before their pages are given back.
_MAPPED_ROWS = 512


class ArraySource(LocalSource):
    """Rows that can be looked up in memory, read by as many threads as BLAS is allowed.

    Parameters
    ----------
    X : array, memory map, sparse matrix or data frame, or Rows
    y : array of shape (n_rows,)
        Numbers, or labels of any kind where ``labels`` says what they mean; a memory map stays one.
    weights : ndarray of shape (n_rows,) or None
        Non-negative; the masses are the weights divided by their sum.
    chunk_rows : int, optional
        Rows read at a time; by default a chunk fits the cache. The result of a read does not depend on it.
    checked : bool, default=False
        Whether ``X`` is known to be finite; else the first read checks it.
    labels : (negative, positive) or "find", optional
        The two values of a classifier's target; they become -1 and +1. "find" looks for them where targets are text.

    Examples
    --------
    >>> source = ArraySource(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), chunk_rows=3)
    >>> [chunk_sum for chunk_sum in source.map(lambda chunk: float(chunk.X.sum()))]
    [3.0, 1.0]
    """

    random_access = True

    def __init__(
        self,
        X: Any,
        y: npt.NDArray[Any],
        weights: FloatArray | None = None,
        *,
        chunk_rows: int | None = None,
        checked: bool = False,
        labels: tuple[Any, Any] | str | None = None,
    ) -> None:
        super().__init__()
        self.rows: Rows = as_rows(X)
        self.y = y = plain_array("y", y)
        text = y.dtype.kind not in "fiub"
        if labels == "find":
            labels = two_labels(np.unique(y).tolist(), "y") if text else None
        if text and labels is None:
            raise SourceError(
                "The targets are not numbers; give labels=(negative, positive) to map two values to -1 and +1."
            )
        self.labels = None if labels is None else (labels[0], labels[1])
        self._n_rows, self.n_features = self.rows.n, self.rows.m
        if len(y) != self.rows.n:
            raise SourceError(f"X has {self.rows.n} rows but y has {len(y)}: give one target per row.")
        self.is_weighted = weights is not None
        self.weights = None if weights is None else as_row_weights(weights, self.rows.n)
        self.sparse = isinstance(self.rows, SparseRows)
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features, sparse=self.sparse)
        self._checked = checked

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        step = self.chunk_rows if features else max(self.chunk_rows, 65536)
        for start, stop in chunk_spans(0, self.n_rows, step):
            yield lambda start=start, stop=stop: self._piece(start, stop, features)  # type: ignore[misc]

    def _piece(self, start: int, stop: int, features: bool) -> Iterator[Chunk]:
        yield self._chunk(start, stop, features)
        if features and isinstance(self.rows, DenseRows):
            release_pages(self.rows.X[start:stop])

    def _chunk(self, start: int, stop: int, features: bool) -> Chunk:
        self.check_files()  # a mapped file that was cut short since must not be touched
        part = slice(start, stop)
        X = None
        if features:
            # One memory layout for all: products of other layouts round differently.
            X = self.rows.block(part)
            X = X.astype(np.float64) if sp.issparse(X) else np.ascontiguousarray(X)
        weights = None if self.weights is None else self.weights[part]
        return Chunk(start, X, self._targets(part, start), weights)

    def _targets(self, part: Any, start: int = 0) -> FloatArray:
        if self.labels is None:
            return np.asarray(self.y[part], dtype=np.float64)
        return as_signs(np.asarray(self.y[part]), self.labels, start)

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows; reads nothing else."""
        self.check_files()
        taken = self._features(rows), self._targets(rows)
        self.check_files()
        return taken

    def _features(self, rows: npt.NDArray[np.int64]) -> Any:
        """Return the features of a few rows; of a mapped file a few at a time: each brings its neighbours along."""
        if not isinstance(self.rows, DenseRows) or not is_mapped(self.rows.X):
            return self.rows.take(rows)
        out = np.empty((len(rows), self.n_features))
        for start in range(0, len(rows), _MAPPED_ROWS):
            batch = rows[start : start + _MAPPED_ROWS]
            out[start : start + _MAPPED_ROWS] = self.rows.take(batch)
            release_pages(self.rows.X[int(np.min(batch)) : int(np.max(batch)) + 1])
        return out


def as_row_weights(weights: Any, n: int) -> FloatArray:
    """Return weights as one number per row, in a range that sums can take."""
    array = np.asarray(plain_array("sample_weight", weights), dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.shape != (n,):
        raise SourceError(f"The weights must hold one number per row ({n}), got shape {array.shape}.")
    if isinstance(weights, np.memmap):  # not read before it is used
        return array
    largest = float(array.max(initial=0.0))
    out_of_range = np.isfinite(largest) and largest > 0.0 and not SMALLEST_WEIGHT <= largest <= LARGEST_WEIGHT
    return array / largest if out_of_range else array


def release_pages(array: Any) -> None:
    """Give back the pages that hold an array, where it shows a file mapped for reading only.

    Only the process lets go: the system may keep the file in its cache, and what is asked for again is there again.
    Maps that can be written to are left alone, and so is everything else.

    Examples
    --------
    >>> release_pages(np.ones(3))
    """
    root = _map_of(array)
    if root is None or not array.size:
        return
    beginning = root.ctypes.data - root.offset % mmap.ALLOCATIONGRANULARITY
    first, last = np.lib.array_utils.byte_bounds(array)
    start = (first - beginning) // mmap.PAGESIZE * mmap.PAGESIZE
    root._mmap.madvise(mmap.MADV_DONTNEED, start, min(last - beginning, len(root._mmap)) - start)


def is_mapped(array: Any) -> bool:
    """Whether an array shows a file mapped for reading only, whose pages can be given back."""
    return _map_of(array) is not None


def _map_of(array: Any) -> Any:
    """Return the map that an array is a view of; None where it is none, or one that can be written to."""
    root = array
    while isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base
    known = isinstance(root, np.memmap) and root.mode == "r" and isinstance(getattr(root, "_mmap", None), mmap.mmap)
    return root if known and hasattr(mmap, "MADV_DONTNEED") else None
