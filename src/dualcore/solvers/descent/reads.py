"""The oracle of the rows of a source: an evaluation of models is one read.

A few numbers per row (targets, masses, scores, a dual point) and the rows of a pilot sample are kept in memory. Second
derivatives are estimated from the pilot; values, gradients and bounds are computed from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import RowBounds
from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import weighted_squares
from dualcore.data.sources import Chunk
from dualcore.problem import Data, Problem
from dualcore.solvers.descent.memory import MemoryOracle
from dualcore.solvers.descent.oracle import Certified, Oracle, RowSample, sides
from dualcore.solvers.descent.rowsums import Point, RowFunction, RowSums
from dualcore.solvers.remembered import RememberedRows


class UnscaledPoint(NamedTuple):
    """A point in the units of the data."""

    coef: FloatArray
    intercept: float
    size: float


class _ChunkSums(NamedTuple):
    """Sums over a chunk at one model; ``totals`` (2,) and ``moments`` (2, m) of positive and of negative slopes."""

    value: float
    flipped: float
    roughness: float
    totals: FloatArray
    moments: FloatArray


class _ChunkResult(NamedTuple):
    """Result of a chunk: its first row, sums and scores (n, k) at each of k models, and squares (m,) of its columns."""

    start: int
    sums: list[_ChunkSums]
    scores: FloatArray
    squares: FloatArray | None


@dataclass(frozen=True)
class _ChunkEvaluation:
    """Evaluates models on a chunk. It is pickled for workers, so it holds the problem and a few models, but no rows."""

    problem: Problem
    models: tuple[UnscaledPoint, ...]
    width: float
    total_weight: float
    level: float
    unit: float
    squares: bool

    def __call__(self, chunk: Chunk) -> _ChunkResult:
        function = RowFunction(self.problem, self.width)
        X, n = chunk.X, chunk.y.size
        y = chunk.y if self.problem.is_classification else (chunk.y - self.level) / self.unit
        masses = chunk.masses(self.total_weight)
        scores = np.asarray(X @ np.array([model.coef for model in self.models]).T, dtype=np.float64)
        vectors, sums = np.empty((2 * len(self.models), n)), []
        for k, model in enumerate(self.models):
            t = function.signal(scores[:, k] + model.intercept, y)
            vectors[2 * k : 2 * k + 2] = sides(self.problem, function.dual(t, model.size), masses, y)
            parts = function.parts(t, masses, model.size)
            sums.append((parts.value, parts.flipped, parts.roughness))
        moments = np.asarray(X.T @ vectors.T, dtype=np.float64).T
        found = [
            _ChunkSums(*known, vectors[2 * k : 2 * k + 2].sum(axis=1), moments[2 * k : 2 * k + 2])
            for k, known in enumerate(sums)
        ]
        return _ChunkResult(chunk.start, found, scores, weighted_squares(X, masses) if self.squares else None)


class _Seen(NamedTuple):
    """A point evaluated by the last read: its sums, and its scores (n,) without the intercept."""

    point: Point
    width: float
    model: UnscaledPoint
    sums: RowSums
    moments: FloatArray
    scores: FloatArray


class ReadsOracle(Oracle):
    """Evaluates models by reads of a source; ``pilot`` is a weighted sample of its rows in memory.

    The source's weights are divided by ``total_weight``, its targets shifted by ``level`` and divided by ``unit`` as in
    `Normal`.
    """

    has_pilot = True

    def __init__(
        self,
        problem: Problem,
        data: Data,
        pilot: Data,
        *,
        total_weight: float,
        level: float = 0.0,
        unit: float = 1.0,
    ) -> None:
        if not isinstance(data.rows, RememberedRows):
            raise TypeError("an oracle over reads needs the rows of a source")
        self.problem, self.data, self.rows, self.pilot = problem, data, data.rows, pilot
        self.total_weight, self.level, self.unit = total_weight, level, unit
        self.n_rows, self.n_features = data.rows.n, data.rows.m
        self.masses = data.masses
        self.sampled = MemoryOracle(problem, pilot)
        self.columns = self.sampled.columns
        self.certifies_freely = not free_features(problem, self.n_features).any()
        self._lower, self._upper = -np.inf, np.inf
        self._kept: tuple[FloatArray, FloatArray] | None = None
        self._seen: list[_Seen] = []
        self._sized = False

    def close(self) -> None:
        self.sampled.close()

    def evaluate(self, points: Sequence[Point], width: float) -> list[RowSums]:
        known = [self._find(point, width) for point in points]
        if any(each is None for each in known):
            self._read(points, width)
            known = [self._find(point, width) for point in points]
        return [each.sums for each in known if each is not None]

    def _find(self, point: Point, width: float) -> _Seen | None:
        for each in self._seen:
            same = each.point.intercept == point.intercept and each.point.size == point.size and each.width == width
            if same and np.array_equal(each.point.coef, point.coef):
                return each
        return None

    def _read(self, points: Sequence[Point], width: float) -> None:
        """Evaluate points on every row: one read."""
        self.n_evaluations += 1
        models = tuple(UnscaledPoint(*self.columns.model(point), point.size) for point in points)
        task = _ChunkEvaluation(
            self.problem, models, width, self.total_weight, self.level, self.unit, squares=not self._sized
        )
        scores = np.empty((len(points), self.n_rows))
        squares = np.zeros(self.n_features)
        totals: list[_ChunkSums] | None = None
        for part in self.rows.source.map(task):
            scores[:, part.start : part.start + part.scores.shape[0]] = part.scores.T
            totals = part.sums if totals is None else [_added(*pair) for pair in zip(totals, part.sums, strict=True)]
            if part.squares is not None:
                squares += part.squares
        if totals is None:
            raise ValueError("the source has no rows")
        if not self._sized:
            self.rows.remember_squares(self.masses, squares)
            self._sized = True
        self._seen = [
            _Seen(point, width, model, self._row_sums(sums), sums.moments, scores[k])
            for k, (point, model, sums) in enumerate(zip(points, models, totals, strict=True))
        ]

    def _row_sums(self, sums: _ChunkSums) -> RowSums:
        total = float(sums.totals.sum())
        coef = (sums.moments.sum(axis=0) - total * self.columns.centre) / self.columns.scale
        return RowSums(sums.value, coef, total, sums.flipped, sums.roughness)

    def certify(self, point: Point, width: float) -> Certified:
        found = self._find(point, width)
        if found is None:
            self._read([point], width)
            found = self._seen[0]
        model, function = found.model, RowFunction(self.problem, width)
        t = function.signal(found.scores + model.intercept, self.data.y)
        value, _ = self.problem.form.minimise(t, self.data.weights, self.problem.size(model.coef))
        upper = float(value + self.problem.penalty(model.coef))
        dual = function.dual(t, point.size)
        known = (sides(self.problem, dual, self.masses, self.data.y), found.moments)
        self.rows.remember_moments(*known)
        lower = RowBounds(self.problem, self.data, upper).bound(dual, repair=False).value
        # Kept are the moments of the best bound and the scores of the best model, which the final `score` needs.
        if lower > self._lower or self._kept is None:
            self._lower, self._kept = lower, known
        self.rows.remember_moments(*self._kept)
        if upper < self._upper:
            self._upper = upper
            self.rows.remember_scores(model.coef, found.scores)
        return Certified(upper, lower, dual, point)

    def refine(self) -> bool:
        return False

    # Second derivatives and samples: from the pilot

    def mean_curvature(self, point: Point, width: float) -> tuple[float, float]:
        return self.sampled.mean_curvature(point, width)

    def sample(self, point: Point, width: float, size: int, rng: np.random.Generator) -> RowSample:
        return self.sampled.sample(point, width, self.pilot.rows.n, rng)

    def typical_signal(self) -> float:
        return self.sampled.typical_signal()

    def constant(self) -> float:
        return self.sampled.constant()


def _added(one: _ChunkSums, other: _ChunkSums) -> _ChunkSums:
    pairs: Any = zip(one, other, strict=True)
    return _ChunkSums(*(mine + theirs for mine, theirs in pairs))
