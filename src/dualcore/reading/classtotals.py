"""Class by class, the mass and the sums of the features: one read, before any model is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.softmax.sums import ClassTotals
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, Source


def class_totals(source: Source, n_classes: int) -> ClassTotals:
    """Return the totals of a source whose targets are class numbers."""
    parts = list(source.map(_Totals(n_classes, source.total_weight)))
    masses, moments, squares = (sum(part[k] for part in parts) for k in range(3))
    return ClassTotals(source.n_rows, np.asarray(masses), np.asarray(moments), np.sqrt(squares))


class _Part(NamedTuple):
    masses: FloatArray
    moments: FloatArray
    squares: FloatArray


@dataclass(frozen=True)
class _Totals:
    n_classes: int
    total_weight: float

    def __call__(self, chunk: Chunk) -> _Part:
        weights = np.ones(chunk.y.size) if chunk.weights is None else chunk.weights
        shares = weights / self.total_weight
        spread = sp.csr_array(
            (shares, (chunk.y.astype(np.intp), np.arange(chunk.y.size))), shape=(self.n_classes, chunk.y.size)
        )
        X = chunk.X
        moments = spread @ X
        squares = (X.multiply(X) if sp.issparse(X) else np.square(X, dtype=np.float64)).T @ shares
        return _Part(
            np.asarray(spread.sum(axis=1), dtype=np.float64),
            np.asarray(moments.toarray() if sp.issparse(moments) else moments, dtype=np.float64),
            np.asarray(squares, dtype=np.float64),
        )
