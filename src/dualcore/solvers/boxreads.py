"""What training on a support over reads asks of the rows beforehand, in one read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk
from dualcore.problem import Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.remembered import RememberedRows

__all__ = ["prepare_box"]


class _Sizes(NamedTuple):
    """Means of the rows of either class, or of all, times their masses, and the mean squares of the columns."""

    moments: FloatArray
    squares: FloatArray


@dataclass(frozen=True)
class _SizesTask:
    """Sees that rows lie in the support and sums what the planes need of them; small, for it travels."""

    problem: Problem
    total_weight: float

    def __call__(self, chunk: Chunk) -> _Sizes:
        self.problem.family.check_rows(as_rows(chunk.X), first=chunk.start)
        masses = (np.ones(chunk.y.size) if chunk.weights is None else chunk.weights) / self.total_weight
        X = np.asarray(chunk.X.toarray() if hasattr(chunk.X, "toarray") else chunk.X, dtype=np.float64)
        return _Sizes(_by_class(self.problem, chunk.y, masses) @ X, masses @ (X * X))


def _by_class(problem: Problem, y: FloatArray, masses: FloatArray) -> FloatArray:
    """Return the masses of the rows of either class, shape (2, n); of all where there are none, shape (1, n)."""
    if not problem.is_classification:
        return masses[None, :]
    return np.stack([np.where(y < 0.0, masses, 0.0), np.where(y > 0.0, masses, 0.0)])


def prepare_box(normal: Normal, total_weight: float) -> None:
    """Check that all rows lie in the support, and leave with them the sums that a level set is made from."""
    problem, data, rows = normal.problem, normal.data, normal.data.rows
    if not isinstance(rows, RememberedRows):
        raise TypeError("training over reads needs the rows of a source")
    parts = list(rows.source.map(_SizesTask(problem, total_weight)))
    rows.remember_moments(_by_class(problem, data.y, data.masses), np.sum([part.moments for part in parts], axis=0))
    rows.remember_squares(data.masses, np.sum([part.squares for part in parts], axis=0))
