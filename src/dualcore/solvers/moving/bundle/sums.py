"""Sums that a bundle makes again and again."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data

__all__ = ["mean_squares", "pairwise"]


def pairwise(rows: FloatArray, mix: FloatArray) -> FloatArray:
    """Return ``mix @ rows`` with the error of a pairwise sum."""
    return np.asarray((np.ascontiguousarray(rows.T) * mix).sum(axis=1))


def mean_squares(data: Data, centre: FloatArray) -> FloatArray:
    """Return the weighted mean square of every centred column."""
    out = np.zeros(data.rows.m)
    for part, X in data.rows.dense_blocks():
        out += data.masses[part] @ (X - centre) ** 2
    return out
