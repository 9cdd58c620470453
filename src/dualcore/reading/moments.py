"""Mean and deviation of every column by one read; the moments of leaves are merged in a fixed tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.sparsefuncs import mean_variance_axis

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, Source
from dualcore.data.sums import TreeSum
from dualcore.reading.leaves import LeafRead


@dataclass(frozen=True)
class ColumnMoments:
    """Total weight, and for every column (m,) the mean and the sum of squared distances from it."""

    weight: float
    mean: FloatArray
    squares: FloatArray
    sparse: bool

    @classmethod
    def read(cls, source: Source) -> ColumnMoments:
        """Return the moments of all rows by one read; they do not depend on the chunks."""
        leaves = _LeafMoments(None, 1.0)
        trees, last = source.fold(leaves, leaves.merge)
        parts: list[Any] = [*(tree.total() for tree in trees), *(cls.of(edge.X, edge.weights) for edge in last)]
        found: ColumnMoments = reduce(add, parts)
        return found

    @classmethod
    def of(cls, X: Any, weights: FloatArray | None) -> ColumnMoments:
        """Return the moments of some rows."""
        n = X.shape[0]
        w = np.ones(n) if weights is None else weights
        weight = float(w.sum())
        if not weight > 0.0:
            zero = np.zeros(X.shape[1])
            return cls(0.0, zero, zero, sp.issparse(X))
        if sp.issparse(X):
            mean, variance, _ = mean_variance_axis(X.tocsc().astype(np.float64), 0, weights=w, return_sum_weights=True)
            return cls(weight, mean, weight * variance, True)
        mean = (w[:, None] * X).sum(axis=0) / weight
        mean = mean + (w[:, None] * (X - mean)).sum(axis=0) / weight  # corrects the rounding of the first sum
        return cls(weight, mean, (w[:, None] * (X - mean) ** 2).sum(axis=0), False)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        weight = self.weight + other.weight
        if not weight > 0.0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.weight / weight)
        between = step**2 * (self.weight * other.weight / weight)
        return ColumnMoments(weight, mean, self.squares + other.squares + between, self.sparse)

    def copy(self) -> ColumnMoments:
        """Return itself, since it is never changed."""
        return self


@dataclass(frozen=True)
class _LeafMoments(LeafRead[TreeSum]):
    """Moments of complete leaves."""

    def sums_of(self, chunk: Chunk) -> TreeSum:
        leaf = self.leaf_of(chunk)
        parts = [ColumnMoments.of(part.X, part.weights) for part in chunk.cut(leaf)]
        leaves = np.empty(len(parts), dtype=object)  # `TreeSum` uses ``+`` of the entries only
        leaves[:] = parts
        return TreeSum.of_leaves(chunk.start // leaf, leaves)

    def join(self, found: list[TreeSum]) -> TreeSum:
        return TreeSum.join(found)
