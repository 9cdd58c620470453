"""What a source finds out about its rows before any model exists: how many there are, and a keyed sample of them.

Every task here is called with a chunk and gives something small that merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.rows import LARGEST_WEIGHT
from dualcore.data.sources.chunk import Chunk, RowError, stack_rows, stack_weights
from dualcore.data.sums import RowSum

# The labels of two classes.
BOTH = (-1.0, 1.0)


@dataclass(frozen=True)
class Survey:
    """How many rows there are, in all and of every class, and their weights.

    Counts of the classes are of rows with positive weight; ``other`` is the first row (and its target) that is of
    none of them. ``tally`` holds the different targets with how many rows have each, where there are two at most.
    """

    n_rows: int
    counts: tuple[int, ...]  # with positive weight: all, then of each label
    sums: tuple[RowSum, ...] | None
    other: tuple[int, float] | None
    tally: tuple[tuple[float, int], ...] | None = None
    labels: tuple[float, ...] = BOTH

    @classmethod
    def of_equal(cls, n_rows: int) -> Survey:
        """Return the survey of rows without weights, of which the classes are not needed."""
        return cls(n_rows, (n_rows, 0, 0), None, None)

    @classmethod
    def join(cls, parts: list[Survey]) -> Survey:
        """Return the survey of all parts together, in any order."""
        if not parts:
            return cls.of_equal(0)
        weighted = [part.sums for part in parts if part.sums is not None]
        groups = range(1 + len(parts[0].labels))
        sums = tuple(RowSum.join([part[k] for part in weighted]) for k in groups) if weighted else None
        return cls(
            sum(part.n_rows for part in parts),
            tuple(sum(part.counts[k] for part in parts) for k in groups),
            sums,
            min((part.other for part in parts if part.other is not None), default=None),
            _join_tallies([part.tally for part in parts]),
            parts[0].labels,
        )

    @property
    def weight(self) -> float:
        """Sum of all weights."""
        return float(self.n_rows) if self.sums is None else self.sums[0].total()

    def count(self, label: float | None) -> int:
        """How many rows of positive weight are of this class; of any, for None."""
        return self.counts[self._group(label)]

    def mass(self, label: float | None) -> float:
        """Sum of the weights of this class."""
        return float(self.count(label)) if self.sums is None else self.sums[self._group(label)].total()

    def _group(self, label: float | None) -> int:
        return 0 if label is None else 1 + self.labels.index(label)


def _tally(y: FloatArray) -> tuple[tuple[float, int], ...] | None:
    """Return the different values with their counts; None where there are more than two."""
    if y.size == 0:
        return ()
    first = y == y[0]
    count = int(np.count_nonzero(first))
    if count == y.size:
        return ((float(y[0]), count),)
    second = y[int(np.argmin(first))]
    if count + int(np.count_nonzero(y == second)) < y.size:
        return None
    return tuple(sorted([(float(y[0]), count), (float(second), y.size - count)]))


def _join_tallies(tallies: list[tuple[tuple[float, int], ...] | None]) -> tuple[tuple[float, int], ...] | None:
    counts: dict[float, int] = {}
    for tally in tallies:
        if tally is None:
            return None
        for value, count in tally:
            counts[value] = counts.get(value, 0) + count
    return tuple(sorted(counts.items())) if len(counts) <= 2 else None


@dataclass(frozen=True)
class SurveyTask:
    """Count the rows of each label in a chunk, check its targets and weights."""

    labels: tuple[float, ...] = BOTH

    def __call__(self, chunk: Chunk) -> Survey:
        y, weights = chunk.y, chunk.weights
        _check_finite(y, chunk.start, "The target")
        groups = [y == label for label in self.labels]
        known = np.logical_or.reduce(groups)
        other = None
        if not known.all():
            first = int(np.argmin(known))
            other = (int(chunk.start) + first, float(y[first]))
        if weights is None:
            counted = (y.size, *(int(np.count_nonzero(group)) for group in groups))
            return Survey(y.size, counted, None, other, _tally(y), self.labels)
        _check_finite(weights, chunk.start, "The weight")
        if (weights < 0.0).any():
            row = chunk.start + int(np.flatnonzero(weights < 0.0)[0])
            raise RowError(row, "The weight is negative; weights are masses and must be non-negative")
        if weights.max() > LARGEST_WEIGHT:
            row = chunk.start + int(np.argmax(weights))
            raise RowError(row, f"The weight is beyond {LARGEST_WEIGHT:g}; multiply all weights by one number")
        has = weights > 0.0
        counts = (int(np.count_nonzero(has)), *(int(np.count_nonzero(group & has)) for group in groups))
        by_class = (RowSum.of(chunk.start, np.where(group, weights, 0.0)) for group in groups)
        sums = (RowSum.of(chunk.start, weights), *by_class)
        return Survey(y.size, counts, sums, other, _tally(y), self.labels)


def _check_finite(values: FloatArray, start: int, what: str) -> None:
    if not np.isfinite(values).all():
        row = start + int(np.flatnonzero(~np.isfinite(values))[0])
        raise RowError(row, f"{what} is missing, NaN or infinite; drop such rows first")


class Candidates(NamedTuple):
    """Rows that may be among those of smallest keys, with their features where those were at hand."""

    keys: FloatArray
    rows: npt.NDArray[np.int64]
    y: FloatArray
    weights: FloatArray | None
    X: Any

    def first(self, size: int) -> Candidates:
        """Return the rows of the ``size`` smallest keys, ascending by key; ties by row number."""
        order = np.lexsort((self.rows, self.keys))[:size]
        return Candidates._make(None if part is None else part[order] for part in self)


@dataclass(frozen=True)
class SmallestTask:
    """Find the rows of a chunk whose keys are below a limit, in each group: a label, or None for all rows."""

    seed: int
    limits: tuple[float, ...]
    groups: tuple[float | None, ...]
    with_features: bool

    def __call__(self, chunk: Chunk) -> list[Candidates]:
        rows = np.arange(chunk.start, chunk.start + chunk.y.size)
        keys = row_keys(self.seed, rows)
        found = []
        for limit, label in zip(self.limits, self.groups, strict=True):
            allowed = keys < limit
            if label is not None:
                allowed &= chunk.y == label
            if chunk.weights is not None:
                allowed &= chunk.weights > 0.0
            chosen = np.flatnonzero(allowed)
            found.append(
                Candidates(
                    keys[chosen],
                    rows[chosen],
                    chunk.y[chosen],
                    None if chunk.weights is None else chunk.weights[chosen],
                    chunk.X[chosen] if self.with_features else None,
                )
            )
        return found

    @staticmethod
    def join(parts: list[list[Candidates]]) -> list[Candidates]:
        """Return the candidates of all parts together."""
        return [
            Candidates(
                np.concatenate([group.keys for group in groups]),
                np.concatenate([group.rows for group in groups]),
                np.concatenate([group.y for group in groups]),
                stack_weights(group.weights for group in groups),
                None if groups[0].X is None else stack_rows([group.X for group in groups]),
            )
            for groups in zip(*parts, strict=True)
        ]


class Taken(NamedTuple):
    """Rows that were looked up."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray

    @staticmethod
    def join(parts: list[Taken]) -> Taken:
        """Return the rows of all parts, ascending."""
        some = [part for part in parts if part.rows.size] or parts[:1]
        rows = np.concatenate([part.rows for part in some])
        order = np.argsort(rows, kind="stable")
        return Taken(
            rows[order], stack_rows([part.X for part in some])[order], np.concatenate([p.y for p in some])[order]
        )


@dataclass(frozen=True)
class TakeTask:
    """Pick the wanted rows (ascending) out of a chunk."""

    rows: npt.NDArray[np.int64]

    def __call__(self, chunk: Chunk) -> Taken:
        first, last = np.searchsorted(self.rows, [chunk.start, chunk.start + chunk.y.size])
        place = self.rows[first:last] - chunk.start
        return Taken(self.rows[first:last], chunk.X[place], chunk.y[place])
