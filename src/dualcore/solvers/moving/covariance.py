"""The curvature of a maximum over a few functions of every row, as rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray

__all__ = ["covariance_rows"]


def covariance_rows(gradients: Any, owner: npt.NDArray[np.intp], weights: FloatArray) -> Any:
    """Return rows ``T`` with ``T'T = sum_a w_a (g_a - mean)(g_a - mean)'``, the mean that of the owner's gradients.

    Two gradients of an owner make one row, their difference, without cancellation; a single one makes none.

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
