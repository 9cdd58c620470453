"""Tasks that a source runs on its rows before training: counts and weights by class, and a sample by row keys.

Every task is called with a chunk and returns a small result that can be merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.rows import LARGEST_WEIGHT
from dualcore.data.sources.chunk import MOST_CLASSES, Chunk, encode, refuse_rows, stack_rows
from dualcore.data.sums import exact_sum, rounded

# The labels of two classes.
BOTH = (-1.0, 1.0)


class Tally(NamedTuple):
    """The first row with a target, how many such rows of positive weight there are, and their weights, `exact_sum`."""

    first: int
    n_rows: int
    weight: int = 0


@dataclass(frozen=True)
class Survey:
    """How many rows there are and what they weigh, in all and for every different target.

    ``tallies`` is None where targets differ too much to be classes.
    """

    n_rows: int
    n_positive: int  # rows of positive weight
    total: int | None  # exact sum of the weights; None where rows have none
    tallies: dict[Any, Tally] | None

    @classmethod
    def join(cls, parts: list[Survey]) -> Survey:
        """Return the survey of all parts together, in any order."""
        groups: dict[Any, list[Tally]] = {}
        for part in parts:
            for value, tally in (part.tallies or {}).items():
                groups.setdefault(value, []).append(tally)
        weighted = [part.total for part in parts if part.total is not None]
        n_rows, n_positive = sum(part.n_rows for part in parts), sum(part.n_positive for part in parts)
        tallies = {}
        for value, found in groups.items():
            first, counts, weights = zip(*found, strict=True)
            tallies[value] = Tally(min(first), sum(counts), sum(weights))
        few = len(groups) <= MOST_CLASSES and all(part.tallies is not None for part in parts)
        return cls(n_rows, n_positive, sum(weighted) if weighted else None, tallies if few else None)

    @property
    def weight(self) -> float:
        """Sum of all weights."""
        return float(self.n_rows) if self.total is None else rounded(self.total)

    def count(self, label: float | None) -> int:
        """How many rows of positive weight are of this class; of any, for None."""
        if label is None:
            return self.n_positive
        return self.tallies[label].n_rows if self.tallies and label in self.tallies else 0

    def mass(self, label: float | None) -> float:
        """Sum of the weights of this class."""
        if self.total is None or label is None or not self.tallies or not self.count(label):
            return self.weight if label is None else float(self.count(label))
        return rounded(self.tallies[label].weight)


def survey_chunk(chunk: Chunk) -> Survey:
    """Count the rows of each target in a chunk, and check its targets and weights."""
    y, weights = chunk.y, chunk.weights
    known = np.isfinite(y) if y.dtype.kind in "fiub" else np.ones(y.size, dtype=bool)
    if y.dtype == object:
        known[:] = [isinstance(value, (str, int, float)) and value == value for value in y.tolist()]
    refuse_rows(~known, chunk.start, "The target is missing, NaN or infinite; drop such rows first")
    if weights is not None:
        for wrong, what in (
            (~np.isfinite(weights), "missing, NaN or infinite; drop such rows first"),
            (weights < 0.0, "negative; weights are masses and must be non-negative"),
            (weights > LARGEST_WEIGHT, f"beyond {LARGEST_WEIGHT:g}; multiply all weights by one number"),
        ):
            refuse_rows(wrong, chunk.start, f"The weight is {what}")
    values, tallies = _distinct(y), {}
    positive, total = (np.ones(y.size, dtype=bool), None) if weights is None else (weights > 0.0, exact_sum(weights))
    code = encode(y, values or (), chunk.start) if values else y
    for position, value in enumerate(values or ()):
        group = code == position
        mass = 0 if weights is None else exact_sum(weights[group])
        tallies[value] = Tally(chunk.start + int(np.argmax(group)), int(np.count_nonzero(group & positive)), mass)
    return Survey(y.size, int(np.count_nonzero(positive)), total, None if values is None else tallies)


def _distinct(y: npt.NDArray[Any]) -> list[Any] | None:
    """Return the different values; None where they are more than classes can be."""
    if y.dtype == object:
        texts = list(dict.fromkeys(y.tolist()))
        return texts if len(texts) <= MOST_CLASSES else None
    found = np.unique(y[:4096])
    if len(found) <= MOST_CLASSES:  # a comparison with each of a few values is faster than to sort
        found = np.union1d(found, y[~np.isin(y, found)])
    return list(found.tolist()) if len(found) <= MOST_CLASSES else None


class Drawn(NamedTuple):
    """Rows of small keys: their keys, their numbers, and their weights, one each where rows have none."""

    keys: FloatArray
    rows: npt.NDArray[np.int64]
    weights: FloatArray

    @staticmethod
    def join(parts: Iterable[Drawn]) -> Drawn:
        """Return the rows of all parts together."""
        return Drawn(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True)
class SmallestTask:
    """Find the rows of a chunk whose keys are below a limit, in each group: a label, or None for all rows."""

    seed: int
    limits: tuple[float, ...]
    groups: tuple[float | None, ...]

    def __call__(self, chunk: Chunk) -> list[Drawn]:
        rows = np.arange(chunk.start, chunk.stop)
        keys = row_keys(self.seed, rows)
        found = []
        for limit, label in zip(self.limits, self.groups, strict=True):
            allowed = keys < limit
            if label is not None:
                allowed &= chunk.y == label
            if chunk.weights is not None:
                allowed &= chunk.weights > 0.0
            at = np.flatnonzero(allowed)
            weights = np.ones(at.size) if chunk.weights is None else chunk.weights[at]
            found.append(Drawn(keys[at], rows[at], weights))
        return found

    @staticmethod
    def join(parts: list[list[Drawn]]) -> list[Drawn]:
        """Return the rows of all parts together, group by group."""
        return [Drawn.join(groups) for groups in zip(*parts, strict=True)]


def take_rows(chunk: Chunk, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
    """Return features and targets of those of the given rows (ascending) that are in a chunk."""
    first, last = np.searchsorted(rows, [chunk.start, chunk.stop])
    at = rows[first:last] - chunk.start
    return chunk.X[at], chunk.y[at]


def join_rows(parts: list[tuple[Any, FloatArray]]) -> tuple[Any, FloatArray]:
    """Return what `take_rows` found in consecutive chunks together."""
    X, y = zip(*([part for part in parts if part[1].size] or parts[:1]), strict=True)
    return stack_rows(X), np.concatenate(y)
