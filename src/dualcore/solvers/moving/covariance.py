"""Linear algebra for sums over rows of smoothed maxima: covariances of gradients, Gram matrices, largest entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows

__all__ = ["covariance_rows", "rough_gram", "widest"]


def covariance_rows(gradients: Any, owner: npt.NDArray[np.intp], weights: FloatArray) -> Any:
    """Return ``T`` with ``T'T = sum_a w_a (g_a - mean)(g_a - mean)'``, where the mean is that of the owner of ``a``.

    For an owner of two gradients ``T`` has one row, their scaled difference, which avoids cancellation; for an owner of
    one gradient it has none.

    Parameters
    ----------
    gradients : ndarray of shape (k, d)
    owner : ndarray of shape (k,)
    weights : ndarray of shape (k,)
        Positive.

    Examples
    --------
    >>> covariance_rows(np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 1]), np.array([2.0, 2.0, 1.0]))
    array([[-2.]])
    """
    order = np.argsort(owner, kind="stable")
    owner, dtype = owner[order], gradients.dtype
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: owner.size])
    count = np.diff(np.append(first, owner.size))
    two, more = first[count == 2], count > 2
    one, other = order[two], order[two + 1]
    pairs = gradients[one] - gradients[other]
    pairs *= np.sqrt(weights[one] * (weights[other] / (weights[one] + weights[other]))).astype(dtype)[:, None]
    if not more.any():
        return pairs
    segment = np.repeat(np.where(more, np.cumsum(more) - 1, -1), count)
    at, segment = order[segment >= 0], segment[segment >= 0]
    begin = np.append(0, np.cumsum(count[more]))
    portion = weights[at] / np.bincount(segment, weights[at])[segment]
    table = gradients[at]
    mean = sp.csr_array((portion.astype(dtype), np.arange(at.size), begin), shape=(begin.size - 1, at.size))
    table -= (mean @ table)[segment]
    table *= np.sqrt(weights[at]).astype(dtype)[:, None]
    return np.concatenate([pairs, table])


def rough_gram(rows: Rows, weights: FloatArray) -> FloatArray:
    """Return ``X.T @ diag(weights) @ X`` (m, m) with products in single precision, which suffices for a Hessian."""
    out = np.zeros((rows.m, rows.m))
    for part, X in rows.dense_blocks():
        scaled = (X * np.sqrt(weights[part])[:, None]).astype(np.float32)
        out += scaled.T @ scaled
    return out


def widest(rows: Rows) -> FloatArray:
    """Return the largest absolute entry of every column; shape (m,)."""
    out = np.zeros(rows.m)
    for _, X in rows.dense_blocks():
        out = np.maximum(out, np.abs(X).max(axis=0, initial=0.0))
    return out
