"""Reads of a source: leaf by leaf, so that the result is the same however rows are cut into chunks, or as a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Product, Rows
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, complete_edges, stack_chunks
from dualcore.data.sums import leaf_rows
from dualcore.data.threads import one_blas_thread

T = TypeVar("T")


class _Part(NamedTuple, Generic[T]):
    """What is known of a part of the rows, and the rows of leaves that are not complete yet."""

    found: list[T]
    edges: list[Chunk]


@dataclass(frozen=True)
class LeafRead(ABC, Generic[T]):
    """Sums over leaves; rows of leaves that are not complete travel as they are until the others arrive."""

    n_rows: int | None  # of the source; None where they are not known, and the rows of the last leaf are left over
    total: float  # weight of all rows

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the rows of a leaf: they depend on the number of features and their storage alone."""
        return leaf_rows(int(chunk.X.shape[1]), sparse=sp.issparse(chunk.X))

    @abstractmethod
    def sums_of(self, chunk: Chunk) -> T:
        """Return the result of whole leaves."""

    @abstractmethod
    def join(self, found: list[T]) -> T:
        """Return the result of all parts together, whatever their order."""

    def __call__(self, chunk: Chunk) -> _Part[T]:
        """Return the result of the complete leaves of a chunk, and its other rows."""
        whole, edges = chunk.leaves(self.leaf_of(chunk), self.n_rows)
        return _Part([] if whole is None else [self.sums_of(whole)], edges)

    def merge(self, parts: list[_Part[T]]) -> _Part[T]:
        """Return the parts as one."""
        edges, found = [edge for part in parts for edge in part.edges], [each for part in parts for each in part.found]
        if edges:
            whole, edges = complete_edges(edges, self.leaf_of(edges[0]), self.n_rows)
            with one_blas_thread():  # as inside a read
                found += [self.sums_of(run) for run in whole]
        return _Part([self.join(found)] if found else [], edges)

    def over(self, source: Source) -> T:
        """Return the result over all rows of a source."""
        [found] = source.fold(self, self.merge).found
        return found


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
        """Do nothing: the first read of a source refuses such values, and says where they are."""


def target_and_masses(source: Source) -> tuple[FloatArray, FloatArray | None]:
    """Return targets and masses of all rows, from one pass over the targets; None for equal masses."""
    whole = stack_chunks(list(source.map_targets(whole_chunk)))
    return whole.y, whole.masses(source.total_weight) if source.is_weighted else None


# What travels to the workers of a cluster: small objects, never the source.


def whole_chunk(chunk: Chunk) -> Chunk:
    """Return a chunk as it is: for those who need the rows themselves, in row order."""
    return chunk


def _dot(chunk: Chunk, coef: FloatArray) -> FloatArray:
    return np.asarray(chunk.X @ coef, dtype=np.float64)


def _product(chunk: Chunk, product: Product, vector: FloatArray) -> FloatArray:
    return product(chunk.X, vector[chunk.start : chunk.stop])
