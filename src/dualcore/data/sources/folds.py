"""Folds of a source for cross-validation: by the keys of the rows, so the same however the rows were cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dualcore.data.keys import row_keys
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk
from dualcore.data.sources.prepared import PreparedSource


@dataclass(frozen=True)
class Folds:
    """Which fold a row belongs to: a hash of a seed and its number, so folds have about as many rows each.

    Examples
    --------
    >>> np.bincount(Folds(5, 0).of(0, 1000)).tolist()
    [196, 226, 195, 198, 185]
    """

    count: int
    seed: int

    def of(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        """Return the fold of every row from ``start`` on, shape (stop - start,)."""
        return (row_keys(self.seed, np.arange(start, stop)) * self.count).astype(np.intp)


@dataclass(frozen=True)
class _WithoutFold:
    """What happens to a chunk; it travels to the workers of a cluster, so it is small."""

    folds: Folds
    left_out: int

    def __call__(self, chunk: Chunk) -> Chunk:
        kept = self.folds.of(chunk.start, chunk.start + chunk.y.size) != self.left_out
        weights = kept.astype(np.float64) if chunk.weights is None else chunk.weights * kept
        return Chunk(chunk.start, chunk.X, chunk.y, weights)


class TrainingPart(PreparedSource):
    """The rows of another source, those of one fold with weight zero; nothing is copied.

    Examples
    --------
    >>> from dualcore.data.sources import ArraySource
    >>> rows = ArraySource(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]))
    >>> TrainingPart(rows, Folds(2, 0), 0).total_weight + TrainingPart(rows, Folds(2, 0), 1).total_weight
    4.0
    """

    def __init__(self, inner: Source, folds: Folds, left_out: int) -> None:
        super().__init__(inner)
        self._prepare = _WithoutFold(folds, left_out)
        self._reweighted = self.is_weighted = True
