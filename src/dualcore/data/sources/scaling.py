"""Standardisation of the features of a source: means and deviations from one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, stack_rows, stack_weights
from dualcore.data.sources.prepared import PreparedSource
from dualcore.data.sums import TreeSum, complete_leaves, edge_spans, leaf_rows, split_rows


def standardised(source: Source, keep: Sequence[int] = ()) -> PreparedSource:
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
    PreparedSource
        With ``centre`` and ``scale``, ndarrays of shape (n_features,): the features are ``(x - centre) / scale``.
        New rows have to be scaled by the same numbers before a model predicts them.

    Examples
    --------
    >>> from dualcore import open_source
    >>> source = standardised(open_source(np.array([[0.0, 5.0], [2.0, 5.0]]), np.ones(2)))
    >>> source.centre, source.scale, source.take(np.arange(2))[0]
    (array([1., 5.]), array([1., 1.]), array([[-1.,  0.],
           [ 1.,  0.]]))
    """
    found = source.fold(_column_moments, _Gathered.join).total()
    deviation = np.sqrt(found.squares / found.weight)
    # Below this a deviation is what rounding left of equal values.
    noise = 32.0 * np.finfo(np.float64).eps * np.abs(found.mean)
    scale = np.where(deviation > noise, deviation, 1.0)
    centre = found.mean.copy()
    centre[list(keep)], scale[list(keep)] = 0.0, 1.0
    return PreparedSource(source, centre=None if found.sparse else centre, scale=scale)


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


@dataclass
class _Gathered:
    """Moments of complete leaves, and the rows of leaves that are not complete yet."""

    tree: TreeSum
    edges: list[tuple[int, Any, FloatArray | None]]
    leaf: int

    @staticmethod
    def join(parts: list[_Gathered]) -> _Gathered:
        leaf = parts[0].leaf
        edges = [edge for part in parts for edge in part.edges]
        complete, left = complete_leaves([(start, start + X.shape[0]) for start, X, _ in edges], leaf)
        trees = [part.tree for part in parts]
        for group in complete:
            trees.append(_tree(edges[group[0]][0] // leaf, [_glued([edges[place] for place in group])]))
        return _Gathered(TreeSum.join(trees), [edges[place] for place in left], leaf)

    def total(self) -> _Moments:
        """Return the moments of all rows; what is left over is the last leaf, which may be short."""
        left = sorted(self.edges, key=lambda edge: edge[0])
        whole: Any = self.tree.total() if self.tree.nodes else None
        if not left:
            return whole  # type: ignore[no-any-return]
        last = _glued(left)
        return last if whole is None else whole + last


def _column_moments(chunk: Chunk) -> _Gathered:
    X, weights, start = chunk.X, chunk.weights, int(chunk.start)
    leaf = leaf_rows(X.shape[1], sparse=sp.issparse(X))
    stop = start + X.shape[0]

    def part(a: int, b: int) -> tuple[Any, FloatArray | None]:
        return X[a - start : b - start], None if weights is None else weights[a - start : b - start]

    first, last = split_rows(start, stop, leaf)
    leaves = [_Moments.of(*part(a, a + leaf)) for a in range(first, last, leaf)]
    edges = [(a, *part(a, b)) for a, b in edge_spans(start, stop, leaf)]
    return _Gathered(_tree(first // leaf, leaves), edges, leaf)


def _tree(first: int, leaves: list[_Moments]) -> TreeSum:
    array = np.empty(len(leaves), dtype=object)  # the tree adds whatever knows how to be added
    array[:] = leaves
    return TreeSum.of_leaves(first, array)


def _glued(edges: list[tuple[int, Any, FloatArray | None]]) -> _Moments:
    return _Moments.of(stack_rows([X for _, X, _ in edges]), stack_weights(weights for _, _, weights in edges))
