"""Cross-validation over reads: rows are left out by weight, and one read scores the models of all folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualcore.coresets.path.run import radius_path
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source
from dualcore.data.sources.chunk import Chunk
from dualcore.data.sources.transform import Folds, TransformedSource
from dualcore.data.sums import exact_sum, rounded
from dualcore.problem import Problem


@dataclass(frozen=True)
class _HeldOut:
    """What every fold's models make of its rows: a number for each radius, then the weight; order-free sums."""

    problem: Problem
    measure: str  # a method of the family: one number a row
    folds: Folds
    models: list[list[tuple[FloatArray, Any]]]  # of every fold, one for each radius

    def __call__(self, chunk: Chunk) -> list[list[int]]:
        fold = self.folds.of(chunk.start, chunk.start + chunk.y.size)
        weights = np.ones(chunk.y.size) if chunk.weights is None else chunk.weights
        found, measure = [], getattr(self.problem.family, self.measure)
        for number, models in enumerate(self.models):
            held = np.flatnonzero(fold == number)
            if not held.size:  # a short chunk may have no row of a fold
                found.append([0] * (len(models) + 1))
                continue
            rows, y = as_rows(chunk.X[held]), chunk.y[held]
            values = [weights[held] * measure(rows, y, *model) for model in models]
            found.append([exact_sum(value) for value in (*values, weights[held])])
        return found

    @staticmethod
    def join(parts: list[list[list[int]]]) -> list[list[int]]:
        return [[sum(sums) for sums in zip(*fold, strict=True)] for fold in zip(*parts, strict=True)]


def score_folds(
    problem: Problem,
    source: Source,
    radii: Any,
    n_folds: int,
    coreset: Any,
    measure: str,
    random_state: Any,
    settings: dict[str, Any],
) -> tuple[FloatArray, FloatArray]:
    """Return the radii, ascending, and the held-out means of a measure, shape (n_radii, n_folds).

    A row belongs to a fold by its key, so the folds of every source of the same rows are the same.
    """
    folds = Folds(n_folds, seed_from(random_state, 3))
    paths = [
        radius_path(
            problem,
            TransformedSource(source, folds=folds, left_out=fold),
            None,
            radii,
            coreset,
            random_state=random_state,
            build=False,
            **settings,
        )
        for fold in range(n_folds)
    ]
    models = [[(point.solution.coef, point.solution.intercept) for point in path.points] for path in paths]
    held = source.fold(_HeldOut(problem, measure, folds, models), _HeldOut.join)
    totals = np.array([[rounded(each) for each in fold] for fold in held])
    if not (totals[:, -1] > 0.0).all():
        raise ValueError("A fold holds only rows of zero weight; use fewer folds or drop such rows.")
    return paths[0].radii, (totals[:, :-1] / totals[:, -1:]).T
