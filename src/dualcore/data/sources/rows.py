"""The rows of a source seen as a matrix: whatever works on `Rows` works on a source, and every pass is a read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk

__all__ = ["SourceRows", "source_target"]


class SourceRows(Rows):
    """The rows of a source. They are never all loaded: products are summed chunk by chunk.

    Parameters
    ----------
    source : Source

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
        for chunk in self.source.map(_as_it_is):
            yield slice(chunk.start, chunk.start + chunk.y.size), chunk.X

    def dot(self, coef: FloatArray) -> FloatArray:
        return np.concatenate(list(self.source.map(_Dot(coef))))

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        out = np.zeros((self.m, *vector.shape[1:]))
        for part in self.source.map(_TransposeDot(vector)):
            out += part
        return out

    def gram(self, weights: FloatArray) -> FloatArray:
        out = np.zeros((self.m, self.m))
        for part in self.source.map(_Gram(weights)):
            out += part
        return out

    def column_squares(self, weights: FloatArray) -> FloatArray:
        out = np.zeros(self.m)
        for part in self.source.map(_Squares(weights)):
            out += part
        return out

    def block(self, part: slice) -> Any:
        return self.take(np.arange(part.start, part.stop))

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        order = np.unique(indices)
        X = self.source.take(order)[0]
        return (
            X if order.size == len(indices) and np.array_equal(order, indices) else X[np.searchsorted(order, indices)]
        )

    def check_finite(self) -> None:
        """Do nothing: the first read of a source refuses such values, and says where they are."""


def source_target(source: Source) -> FloatArray:
    """Return the targets of all rows, one number a row."""
    return np.concatenate(list(source.map_targets(_target)))


# What travels to the workers of a cluster: small objects, never the source.


def _as_it_is(chunk: Chunk) -> Chunk:
    return chunk


def _target(chunk: Chunk) -> FloatArray:
    return np.asarray(chunk.y, dtype=np.float64)


@dataclass(frozen=True)
class _Dot:
    coef: FloatArray

    def __call__(self, chunk: Chunk) -> FloatArray:
        return np.asarray(chunk.X @ self.coef, dtype=np.float64)


@dataclass(frozen=True)
class _OfRows:
    """A vector with one entry (or row) for every row of the data; a chunk uses its own part."""

    vector: FloatArray

    def part(self, chunk: Chunk) -> FloatArray:
        """Return the entries of a chunk's rows."""
        return self.vector[chunk.start : chunk.start + chunk.y.size]


@dataclass(frozen=True)
class _TransposeDot(_OfRows):
    def __call__(self, chunk: Chunk) -> FloatArray:
        return np.asarray(chunk.X.T @ self.part(chunk), dtype=np.float64)


@dataclass(frozen=True)
class _Gram(_OfRows):
    def __call__(self, chunk: Chunk) -> FloatArray:
        w = self.part(chunk)[:, None]
        square = chunk.X.T @ (chunk.X.multiply(w) if hasattr(chunk.X, "multiply") else chunk.X * w)
        return np.asarray(square.toarray() if hasattr(square, "toarray") else square, dtype=np.float64)


@dataclass(frozen=True)
class _Squares(_OfRows):
    def __call__(self, chunk: Chunk) -> FloatArray:
        square = chunk.X.multiply(chunk.X) if hasattr(chunk.X, "multiply") else chunk.X * chunk.X
        return np.asarray(square.T @ self.part(chunk), dtype=np.float64).ravel()
