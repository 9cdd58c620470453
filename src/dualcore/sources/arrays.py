"""Rows in memory, or mapped into it: arrays, sparse matrices, data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from dualcore.geometry import FloatArray
from dualcore.keys import row_keys
from dualcore.rows import Rows, as_rows
from dualcore.sources.base import Chunk, Smallest, Source

__all__ = ["ArraySource", "thread_count"]

T = TypeVar("T")

# Rows of a chunk, times features: 2 MiB of float64, so that a chunk's two products and its O(rows) work share
# the cache.
_CHUNK_NUMBERS = 262144


def thread_count(controller: ThreadpoolController) -> int:
    """Return how many threads BLAS may use now: the user's limits, by environment or threadpoolctl, are ours."""
    return max((int(lib["num_threads"]) for lib in controller.info() if lib["user_api"] == "blas"), default=1)


class ArraySource(Source):
    """In-memory rows, read by as many threads as BLAS is allowed.

    Parameters
    ----------
    X : array, memory map, sparse matrix or data frame, or Rows
    y : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,) or None
        Masses that sum to one.
    chunk_rows : int, optional
        Rows read at a time; by default a chunk fits the cache. The result of a read does not depend on it.
    """

    def __init__(
        self, X: Any, y: FloatArray, weights: FloatArray | None = None, *, chunk_rows: int | None = None
    ) -> None:
        self.rows: Rows = as_rows(X)
        self.y, self.weights = y, weights
        self.n_rows, self.n_features = self.rows.n, self.rows.m
        self.total_weight = 1.0
        self.n_reads = 0
        self.chunk_rows = chunk_rows or max(1024, _CHUNK_NUMBERS // self.n_features)

    def map(self, function: Callable[[Chunk], T]) -> Iterator[T]:
        """Apply ``function`` to every chunk and yield the results in row order."""
        self.n_reads += 1
        starts = range(0, self.n_rows, self.chunk_rows)

        def run(start: int) -> T:
            part = slice(start, min(start + self.chunk_rows, self.n_rows))
            weights = None if self.weights is None else self.weights[part]
            return function(Chunk(start, self.rows.block(part), self.y[part], weights))

        controller = ThreadpoolController()
        threads = min(thread_count(controller), len(starts))
        with controller.limit(limits=1, user_api="blas"):  # our threads already fill the cores
            if threads <= 1:
                yield from map(run, starts)
            else:
                with ThreadPoolExecutor(threads) as pool:
                    yield from pool.map(run, starts)

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows."""
        return self.rows.take(rows), self.y[rows]

    def smallest(self, seed: int, size: int, label: float | None = None) -> Smallest:
        """Return the rows of smallest keys; reads no features."""
        keys = row_keys(seed, np.arange(self.n_rows))
        allowed = np.ones(self.n_rows, dtype=bool) if label is None else self.y == label
        if self.weights is not None:
            allowed &= self.weights > 0.0
        count = int(np.count_nonzero(allowed))
        mass = count / self.n_rows if self.weights is None else float(self.weights[allowed].sum())
        if count > 8 * size:  # almost surely enough, and far fewer to sort
            few = np.flatnonzero(allowed & (keys < 4.0 * size / count))
        else:
            few = np.flatnonzero(allowed)
        if few.size < min(size, count):
            few = np.flatnonzero(allowed)
        rows = few[np.argsort(keys[few], kind="stable")[:size]]
        masses = np.full(rows.size, 1.0 / self.n_rows) if self.weights is None else self.weights[rows]
        return Smallest(rows, masses, mass)
