"""Reads that compute their result leaf by leaf, so that it does not depend on how rows are split into chunks.

A leaf is a block of fixed row numbers; see `dualcore.data.sums`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import weighted_squares
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.sums import leaf_rows
from dualcore.data.threads import one_blas_thread

T = TypeVar("T")


class LeafPart(NamedTuple, Generic[T]):
    """The results of complete leaves, and the rows of incomplete ones."""

    found: list[T]
    edges: list[Chunk]


@dataclass(frozen=True)
class LeafRead(ABC, Generic[T]):
    """Sums over leaves; the rows of incomplete leaves are kept until the rest of the leaf arrives."""

    n_rows: int | None  # of the source; if None, not known, and the rows of the last leaf remain as edges
    total: float  # weight of all rows

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the number of rows of a leaf, which depends only on the number of features and their storage."""
        return leaf_rows(int(chunk.X.shape[1]), sparse=sp.issparse(chunk.X))

    @abstractmethod
    def sums_of(self, chunk: Chunk) -> T:
        """Return the result of whole leaves."""

    @abstractmethod
    def join(self, found: list[T]) -> T:
        """Return the joint result of all parts, in any order."""

    def __call__(self, chunk: Chunk) -> LeafPart[T]:
        """Return the result of the complete leaves of a chunk, and its other rows."""
        whole, edges = cut_leaves(chunk, self.leaf_of(chunk), self.n_rows)
        return LeafPart([] if whole is None else [self.sums_of(whole)], edges)

    def merge(self, parts: list[LeafPart[T]]) -> LeafPart[T]:
        """Return the parts as one."""
        edges, found = [edge for part in parts for edge in part.edges], [each for part in parts for each in part.found]
        if edges:
            whole, edges = complete_edges(edges, self.leaf_of(edges[0]), self.n_rows)
            with one_blas_thread():  # as inside a read
                found += [self.sums_of(run) for run in whole]
        return LeafPart([self.join(found)] if found else [], edges)

    def over(self, source: Source) -> T:
        """Return the result over all rows of a source."""
        [found] = source.fold(self, self.merge).found
        return found


def cut_leaves(chunk: Chunk, leaf: int, n_rows: int | None) -> tuple[Chunk | None, list[Chunk]]:
    """Return the rows of complete leaves, or None, and copies of the other rows, one chunk for each leaf.

    The last leaf is complete when it reaches ``n_rows``, the number of all rows.

    Examples
    --------
    >>> chunk = Chunk(3, np.zeros((27, 1)), np.zeros(27), None)
    >>> whole, edges = cut_leaves(chunk, 8, None)
    >>> (whole.start, whole.stop), [(edge.start, edge.stop) for edge in edges]
    ((8, 24), [(3, 8), (24, 30)])
    """
    first = min(-(-chunk.start // leaf) * leaf, chunk.stop)
    last = chunk.stop if chunk.stop == n_rows else max(chunk.stop // leaf * leaf, first)
    spans = [span for span in ((chunk.start, first), (last, chunk.stop)) if span[0] < span[1]]
    if not spans:
        return chunk, []
    return chunk.part(first, last) if first < last else None, [chunk.part(*span).copy() for span in spans]


def complete_edges(edges: Iterable[Chunk], leaf: int, n_rows: int | None) -> tuple[list[Chunk], list[Chunk]]:
    """Return the leaves that ``edges`` complete, and the rows of incomplete leaves, with adjacent chunks joined.

    The last leaf is complete when it reaches ``n_rows``, the number of all rows.
    """
    runs: list[list[Chunk]] = []
    for edge in sorted(edges, key=lambda edge: edge.start):
        if runs and runs[-1][-1].stop == edge.start and edge.start % leaf:
            runs[-1].append(edge)
        else:
            runs.append([edge])
    whole, left = list[Chunk](), list[Chunk]()
    for run in map(stack_chunks, runs):
        complete = run.start % leaf == 0 and (run.stop % leaf == 0 or run.stop == n_rows)
        (whole if complete else left).append(run)
    return whole, left


class Leaves:
    """Products and sums of consecutive rows, leaf by leaf, each leaf by operations of one fixed shape.

    The rounding of a row's product in BLAS depends on the height of the matrix. Here every call has the height of a
    leaf, so a row's product depends only on the row and its position in its leaf.

    ``X`` is an array in C order or a CSR matrix. Its rows begin at a leaf, and only the last leaf may be short. A leaf
    has ``rows`` rows, by default `leaf_rows`.
    """

    def __init__(self, X: Any, rows: int | None = None) -> None:
        self.X = X
        self.n, self.m = int(X.shape[0]), int(X.shape[1])
        self.is_sparse = sp.issparse(X)
        self.rows = leaf_rows(self.m, sparse=self.is_sparse) if rows is None else rows
        self.whole = self.n // self.rows * self.rows

    def _stacked(self, array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return an array with one entry per row as stacks of leaves: the full ones, and the short one if any."""
        stacks = [array[: self.whole].reshape(-1, self.rows, *array.shape[1:])]
        return stacks if self.whole == self.n else [*stacks, array[None, self.whole :]]

    def _spans(self) -> list[slice]:
        return [slice(start, start + self.rows) for start in range(0, self.n, self.rows)]

    def dot(self, coef: FloatArray) -> FloatArray:
        """Return ``X @ coef``, shape (n,)."""
        if self.is_sparse:
            return np.asarray(self.X @ coef, dtype=np.float64)
        return np.concatenate([(leaves @ coef).ravel() for leaves in self._stacked(self.X)])

    @property
    def n_leaves(self) -> int:
        """Number of leaves, including a short one."""
        return -(-self.n // self.rows)

    def sums(self, values: npt.NDArray[Any]) -> FloatArray:
        """Return the sum of one number per row over every leaf, shape (n_leaves,)."""
        return np.concatenate([np.add.reduce(part, axis=1, dtype=np.float64) for part in self._stacked(values)])

    def counts(self) -> FloatArray:
        """Return the number of rows of every leaf."""
        return self.sums(np.ones(self.n))

    def moments(self, values: FloatArray) -> FloatArray:
        """Return ``X.T @ values`` over every leaf, shape (n_leaves, m)."""
        if self.is_sparse:
            return np.stack([np.asarray(self.X[s].T @ values[s], dtype=np.float64) for s in self._spans()])
        pairs = zip(self._stacked(values), self._stacked(self.X), strict=True)
        return np.concatenate([(given[:, None] @ leaves)[:, 0] for given, leaves in pairs])

    def grams(self, weights: FloatArray, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``X.T @ diag(weights) @ X`` and ``vectors @ X`` over every leaf.

        Shapes (n_leaves, m, m) and (n_leaves, k, m), where ``vectors`` has shape (k, n).
        """
        if self.is_sparse:
            weighted, spans = self.X.multiply(weights[:, None]).tocsr(), self._spans()
            grams = np.stack([(self.X[span].T @ weighted[span]).toarray() for span in spans])
            return grams, np.stack([np.asarray(self.X[span].T @ vectors[:, span].T).T for span in spans])
        # One product for both, so that X is read once.
        left = np.concatenate([self.X * weights[:, None], vectors.T], axis=1)
        pairs = zip(self._stacked(left), self._stacked(self.X), strict=True)
        both = np.concatenate([given.transpose(0, 2, 1) @ leaves for given, leaves in pairs])
        return both[:, : self.m], both[:, self.m :]

    def squares(self, weights: FloatArray | None) -> FloatArray:
        """Return the sum of the squares of every column over every leaf, shape (n_leaves, m)."""
        given = np.ones(self.n) if weights is None else weights
        return np.stack([weighted_squares(self.X[span], given[span]) for span in self._spans()])
