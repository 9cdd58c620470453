"""Cross-validation over reads: rows are dealt to folds by their keys, and every read is about all folds.

One sample of all rows is cut into folds, one read sums what is matched at the models of a few radii fold by fold, and
one scores the models of all folds. What remains of the sample without a fold has the sums of all rows without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualcore.coresets.fit import as_sampler
from dualcore.coresets.matched import Matched, read_sums
from dualcore.coresets.path.run import path_models
from dualcore.coresets.radii import evenly
from dualcore.coresets.sample import WorkingSample, corrected, stack
from dualcore.coresets.samplers import DualCoreset
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source
from dualcore.data.sources.chunk import Chunk
from dualcore.data.sources.transform import Folds, TransformedSource
from dualcore.data.sums import exact_sum, rounded
from dualcore.problem import Problem
from dualcore.solvers import Solution


def train_folds(
    problem: Problem, source: Source, radii: Sequence[float], folds: Folds, seed: int, settings: dict[str, Any]
) -> list[list[Solution]] | None:
    """Return a model for each radius and fold left out: a read for a sample, one for sums; None if too wide."""
    sample = WorkingSample.of(problem, source, seed, settings)
    if sample is None:
        return None
    rows, some = sample.rows, [radii[k] for k in evenly(radii)]
    if not sample.is_whole:
        matched = Matched(stack(problem, some, sample.train(some)), sample.centre)
        sums = read_sums(source, matched, folds)
    own = (row_keys(folds.seed, rows.rows) * folds.count).astype(np.intp)
    found = []
    for fold in range(folds.count):
        kept = np.flatnonzero(own != fold)
        part = rows.pick(kept, rows.weights[kept] / rows.weights[kept].sum())
        if not sample.is_whole:
            left = sums.sum(axis=0) - sums[fold]
            part = corrected(problem, part, matched.values(part.X, part.y), left[1:] / left[0])
        found.append(sample.train(radii, part))
    return found


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
    radii: Sequence[float],
    n_folds: int,
    coreset: Any,
    measure: str,
    random_state: Any,
    settings: dict[str, Any],
) -> FloatArray:
    """Return the held-out means of a measure for ascending radii, shape (n_radii, n_folds).

    A row belongs to a fold by its key, so the folds of every source of the same rows are the same.
    """
    folds, found = Folds(n_folds, seed_from(random_state, 3)), None
    sampler = None if coreset is None else as_sampler(coreset, random_state)
    if isinstance(sampler, DualCoreset):
        found = train_folds(problem, source, radii, folds, seed_from(sampler.random_state), settings)
    if found is None:
        parts = [TransformedSource(source, folds=folds, left_out=fold) for fold in range(n_folds)]
        known: dict[str, Any] = {"random_state": random_state, **settings}
        found = [path_models(problem, part, None, None, radii, coreset, **known) for part in parts]
    models = [[(model.coef, model.intercept) for model in fold] for fold in found]
    held = source.fold(_HeldOut(problem, measure, folds, models), _HeldOut.join)
    totals = np.array([[rounded(each) for each in fold] for fold in held])
    if not (totals[:, -1] > 0.0).all():
        raise ValueError("A fold holds only rows of zero weight; use fewer folds or drop such rows.")
    return np.asarray((totals[:, :-1] / totals[:, -1:]).T, dtype=np.float64)
