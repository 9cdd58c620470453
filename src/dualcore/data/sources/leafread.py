"""Reads whose result is made leaf by leaf, so that it is the same however rows are cut into chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import scipy.sparse as sp

from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, complete_edges
from dualcore.data.sums import leaf_rows
from dualcore.data.threads import one_blas_thread

T = TypeVar("T")


class LeafPart(NamedTuple, Generic[T]):
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

    def __call__(self, chunk: Chunk) -> LeafPart[T]:
        """Return the result of the complete leaves of a chunk, and its other rows."""
        whole, edges = chunk.leaves(self.leaf_of(chunk), self.n_rows)
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
