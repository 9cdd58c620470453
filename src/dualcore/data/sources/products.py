"""The rows of a source with the interface of `Rows`, so that solvers can use them; every pass is a read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Product, Rows
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, stack_chunks


class SourceRows(Rows):
    """The rows of a source. They are never all loaded: products are summed chunk by chunk.

    Examples
    --------
    >>> from dualcore import open_source
    >>> source = open_source(np.eye(3), np.ones(3))
    >>> SourceRows(source).dot(np.array([1.0, 2.0, 3.0])), source.n_reads
    (array([1., 2., 3.]), 1)
    """

    in_memory = False

    def __init__(self, source: Source) -> None:
        self.source, self.n, self.m = source, source.n_rows, source.n_features

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        for chunk in self.source.map(whole_chunk):
            yield slice(chunk.start, chunk.start + chunk.y.size), chunk.X

    def dot(self, coef: FloatArray) -> FloatArray:
        return np.concatenate(list(self.source.map(partial(_dot, coef=coef))))

    def products(self, product: Product, vector: FloatArray) -> Iterator[FloatArray]:
        return self.source.map(partial(_product, product=product, vector=vector))

    def block(self, part: slice) -> Any:
        return self.take(np.arange(part.start, part.stop))

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        order = np.unique(indices)
        X = self.source.take(order)[0]
        return X if np.array_equal(order, indices) else X[np.searchsorted(order, indices)]

    def check_finite(self) -> None:
        """Do nothing: the first read of a source raises an error for such values that names their row."""


def target_and_masses(source: Source) -> tuple[FloatArray, FloatArray | None]:
    """Return targets and masses of all rows, from one pass over the targets; None for equal masses."""
    whole = stack_chunks(list(source.map_targets(whole_chunk)))
    return whole.y, whole.masses(source.total_weight) if source.is_weighted else None


# Sent to the workers of a cluster: small objects, never the source.


def whole_chunk(chunk: Chunk) -> Chunk:
    """Return a chunk as it is, where the rows themselves are needed, in row order."""
    return chunk


def _dot(chunk: Chunk, coef: FloatArray) -> FloatArray:
    return np.asarray(chunk.X @ coef, dtype=np.float64)


def _product(chunk: Chunk, product: Product, vector: FloatArray) -> FloatArray:
    return product(chunk.X, vector[chunk.start : chunk.stop])
