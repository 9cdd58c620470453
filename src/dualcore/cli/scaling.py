"""Scaling that the command line learns and keeps: means and deviations of the features of a source from one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk
from dualcore.data.sources.leafread import LeafRead
from dualcore.data.sources.transform import TransformedSource
from dualcore.data.sums import TreeSum


def standardised(source: Source, keep: Sequence[int] = ()) -> TransformedSource:
    r"""Return the rows of a source with features of mean 0 and standard deviation 1, by one read.

    .. math:: \mu_j = \sum_i p_i x_{ij}, \qquad \sigma_j^2 = \sum_i p_i (x_{ij} - \mu_j)^2

    with the masses :math:`p_i` of the rows (their weights divided by the sum). A feature that does not vary is only
    centred. Sparse features are divided by their deviations but not centred, which would fill them with numbers;
    ``centre`` is then None. The result does not depend on how the source cuts its rows.

    Parameters
    ----------
    source : Source
    keep : sequence of int
        Features that stay as they are, as one-hot features must.

    Returns
    -------
    TransformedSource
        Its ``transform`` has ``centre`` and ``scale``, shape (n_features,): features are ``(x - centre) / scale``.
        New rows have to be scaled by the same numbers before a model predicts them.

    Examples
    --------
    >>> from dualcore import open_source
    >>> source = standardised(open_source(np.array([[0.0, 5.0], [2.0, 5.0]]), np.ones(2)))
    >>> source.transform.centre, source.transform.scale, source.take(np.arange(2))[0]
    (array([1., 5.]), array([1., 1.]), array([[-1.,  0.],
           [ 1.,  0.]]))
    """
    read = _ColumnMoments(None, 1.0)
    trees, last = source.fold(read, read.merge)
    parts: list[Any] = [*(tree.total() for tree in trees), *(_Moments.of(edge.X, edge.weights) for edge in last)]
    found: _Moments = reduce(add, parts)
    deviation = np.sqrt(found.squares / found.weight)
    # Below this a deviation is what rounding left of equal values.
    noise = 32.0 * np.finfo(np.float64).eps * np.abs(found.mean)
    scale = np.where(deviation > noise, deviation, 1.0)
    centre = found.mean.copy()
    centre[list(keep)], scale[list(keep)] = 0.0, 1.0
    return TransformedSource(source, centre=None if found.sparse else centre, scale=scale)


@dataclass(frozen=True)
class _Moments:
    """Weight, mean and sum of squared distances from it, of every column over some rows."""

    weight: float
    mean: FloatArray
    squares: FloatArray
    sparse: bool

    @classmethod
    def of(cls, X: Any, weights: FloatArray | None) -> _Moments:
        n = X.shape[0]
        w = np.ones(n) if weights is None else weights
        weight = float(w.sum())
        if not weight > 0.0:
            zero = np.zeros(X.shape[1])
            return cls(0.0, zero, zero, sp.issparse(X))
        if sp.issparse(X):
            X = X.tocsc()
            mean = np.asarray(X.T @ w).ravel() / weight
            place = np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
            w_entry = w[X.indices]
            stored = np.bincount(place, w_entry, X.shape[1])
            rest = np.maximum(weight - stored, 0.0)  # of entries that are zero
            error = np.bincount(place, w_entry * (X.data - mean[place]), X.shape[1]) - rest * mean
            mean = mean + error / weight
            around = np.bincount(place, w_entry * (X.data - mean[place]) ** 2, X.shape[1])
            return cls(weight, mean, around + rest * mean**2, True)
        mean = (w[:, None] * X).sum(axis=0) / weight
        mean = mean + (w[:, None] * (X - mean)).sum(axis=0) / weight  # what rounding took away in the first sum
        return cls(weight, mean, (w[:, None] * (X - mean) ** 2).sum(axis=0), False)

    def __add__(self, other: _Moments) -> _Moments:
        weight = self.weight + other.weight
        if not weight > 0.0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.weight / weight)
        between = step**2 * (self.weight * other.weight / weight)
        return _Moments(weight, mean, self.squares + other.squares + between, self.sparse)

    def copy(self) -> _Moments:
        return self


@dataclass(frozen=True)
class _ColumnMoments(LeafRead[TreeSum]):
    """Moments of complete leaves."""

    def sums_of(self, chunk: Chunk) -> TreeSum:
        leaf = self.leaf_of(chunk)
        parts = [_Moments.of(part.X, part.weights) for part in chunk.cut(leaf)]
        leaves = np.empty(len(parts), dtype=object)  # the tree adds whatever knows how to be added
        leaves[:] = parts
        return TreeSum.of_leaves(chunk.start // leaf, leaves)

    def join(self, found: list[TreeSum]) -> TreeSum:
        return TreeSum.join(found)
