"""What a stream keeps of its rows at one anchor: the sums of a read, and the rows of smallest keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.coreset import normalised
from dualcore.coresets.matched import Matched, MatchedModel, centre_of, sums_of
from dualcore.coresets.sample import MOST_NUMBERS, corrected
from dualcore.coresets.samplers.base import as_anchor
from dualcore.coresets.weights import Basis, recombine
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_chunks, stack_rows
from dualcore.data.sums import TreeSum, leaf_rows
from dualcore.problem import Anchor, Problem
from dualcore.reading.closed import spread_of
from dualcore.reading.reading import Reading, as_reading
from dualcore.reading.summary import Pass, Summary, SummaryRead
from dualcore.solvers import solve_quietly
from dualcore.solvers.pilot import Pilot

# Rows of smallest keys that are kept, for each row of the coreset. The excess falls as they grow.
_KEPT = 4
# Least rows that teach an anchor, and that are kept.
_LEAST = 4096
# Rows that match more numbers than this are not recombined: an elimination takes O(d^3).
_MOST_MATCHED = 256


class Kept(NamedTuple):
    """Rows and their masses; ``rows`` are global numbers."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    masses: FloatArray

    @classmethod
    def of(cls, chunks: Sequence[Chunk], total: float) -> Kept:
        """Return the rows of chunks."""
        rows = np.concatenate([np.arange(chunk.start, chunk.stop) for chunk in chunks])
        chunk = stack_chunks(chunks)
        return cls(rows, chunk.X, chunk.y, chunk.masses(total))

    def pick(self, chosen: npt.NDArray[Any]) -> Kept:
        """Return some of the rows."""
        return Kept(self.rows[chosen], self.X[chosen], self.y[chosen], self.masses[chosen])

    @staticmethod
    def stack(parts: Sequence[Kept]) -> Kept:
        """Return the rows of all parts, one part after the other."""
        rows, X, y, masses = zip(*parts, strict=True)
        return Kept(np.concatenate(rows), stack_rows(X), np.concatenate(y), np.concatenate(masses))

    @staticmethod
    def join(parts: Sequence[Kept]) -> Kept:
        """Return the rows of all parts, ascending; a row that is in several of them has their masses together."""
        found = Kept.stack(parts)
        _, first, place = np.unique(found.rows, return_index=True, return_inverse=True)
        return found.pick(first)._replace(masses=np.bincount(place, found.masses).astype(np.float64))

    @property
    def pilot(self) -> Pilot:
        """The rows by their places, with weights that sum to one."""
        return Pilot(np.arange(self.y.size), self.X, self.y, normalised(self.masses))


class Seen(NamedTuple):
    """What is kept of some rows: those of smallest keys, and the sums of a read."""

    sample: Kept
    summary: Summary
    masses: TreeSum  # of the classes

    @property
    def mass(self) -> float:
        """Of all rows, in units of the plan's total."""
        return float(self.masses.total().sum())


def learning_rows(problem: Problem, size: int, n_features: int) -> int:
    """Return how many rows teach the anchor of a stream: more than its size where training on them takes no time."""
    family = problem.family
    is_slow = family.moves_rows or (family.is_closed and family.flips and not problem.form.sums_decide)
    return size if is_slow else max(size, min(_LEAST, MOST_NUMBERS // n_features))


@dataclass(frozen=True)
class StreamPlan:
    """How a stream sees its rows at one anchor.

    The sums that the risk, the gradient and the bound of the anchor need are made in leaves of fixed row numbers. Of
    all rows those of smallest keys are kept. What was seen of two sets of rows adds up, in any order, to what is seen
    of all of them.
    """

    task: Pass
    total: float  # a power of two that makes all masses of a stream sum to less than one
    size: int
    centre: FloatArray

    @cached_property
    def matched(self) -> Matched:
        """What is matched at the anchor."""
        return Matched((MatchedModel(self.task.problem, self.task.anchor),), self.centre)

    @property
    def most(self) -> int:
        """Rows of smallest keys that are kept."""
        return max(_KEPT * self.size, learning_rows(self.task.problem, self.size, self.centre.size))

    def same_as(self, other: StreamPlan) -> bool:
        """Whether both see rows in the same way: all else follows from what is compared."""
        mine, theirs = (
            (each.task.seed, each.total, each.centre, *vars(each.task.anchor).values()) for each in (self, other)
        )
        return all(map(np.array_equal, mine, theirs))

    # Rows in

    def leaf_of(self, X: Any) -> int:
        """Return the rows of a leaf: up to twice those that are kept, so that few of these are looked at often."""
        return max(leaf_rows(X.shape[1], sparse=sp.issparse(X)), 1 << self.most.bit_length())

    def see(self, chunks: Iterable[Chunk]) -> list[Seen]:
        """Return what is kept of each leaf; rows ascend, and there will be no more of their leaves."""
        chunks = list(chunks)
        if not chunks:
            return []
        leaf = self.leaf_of(chunks[0].X)
        pieces = [piece for chunk in chunks for piece in chunk.cut(leaf)]
        return [
            self._see_leaf(number, leaf, list(own)) for number, own in groupby(pieces, lambda each: each.start // leaf)
        ]

    def _see_leaf(self, number: int, leaf: int, pieces: list[Chunk]) -> Seen:
        problem, rows = self.task.problem, Kept.of(pieces, self.total)
        # Where rows of a leaf are missing the others are summed as if they followed each other.
        summary = SummaryRead(None, self.total, self.task).sums_of(stack_chunks(pieces)._replace(start=number * leaf))
        masses = np.bincount(_kinds(problem, rows.y), rows.masses, _n_kinds(problem)).astype(np.float64)
        if not rows.masses.all():  # rows of no mass stand for nothing
            rows = rows.pick(np.flatnonzero(rows.masses))
        return Seen(rows, summary, TreeSum({(0, number): masses}))

    def join(self, parts: Sequence[Seen]) -> Seen | None:
        """Return what was seen of different rows as one; None of no rows."""
        if not parts:
            return None
        samples, summaries, masses = zip(*parts, strict=True)
        summary = SummaryRead(None, self.total, self.task).join(list(summaries))
        return Seen(self._smallest(samples), summary, TreeSum.join(masses))

    def _smallest(self, parts: Sequence[Kept]) -> Kept:
        """Return the rows of smallest keys, of all and some of each class, in any order."""
        problem, keys = self.task.problem, [row_keys(self.task.seed, part.rows) for part in parts]
        kinds, every, n_kinds = [_kinds(problem, part.y) for part in parts], np.concatenate(keys), _n_kinds(problem)
        kind, share = np.concatenate(kinds), -(-self.size // n_kinds)
        limits = np.array([_smallest_of(every[kind == k], share) for k in range(n_kinds)])
        limits = np.maximum(limits, _smallest_of(every, self.most))
        chosen = (np.flatnonzero(key <= limits[own]) for key, own in zip(keys, kinds, strict=True))
        return Kept.stack([part.pick(own) for part, own in zip(parts, chosen, strict=True)])

    # What is known of all rows

    def reading(self, seen: Seen) -> Reading:
        """Return the reading of all rows."""
        mass = seen.mass
        reading = as_reading(self.task, seen.summary.scaled(1.0 / mass))
        if mass > 4.0 and not reading.is_exact:  # beyond this the counts of a histogram of flips may overflow
            reading.bound_risk()
        return reading

    def kept(self, seen: Seen) -> Kept:
        """Return the rows kept, with masses that have the sums of all rows at the anchor and stand for their weight."""
        problem, rows = self.task.problem, seen.sample.pick(np.argsort(seen.sample.rows))
        # The masses of the sample are scaled to those of the classes.
        kinds, masses = _kinds(problem, rows.y), seen.masses.total()
        own = np.bincount(kinds, rows.masses, masses.size)
        factors = np.divide(masses, own, out=np.zeros(masses.size), where=own > 0.0)
        rows = rows._replace(masses=normalised(rows.masses * factors[kinds]))
        if rows.y.size >= self.most and rows.y.size * self.matched.n_columns <= MOST_NUMBERS:  # else all rows are there
            values = self.matched.values(rows.X, rows.y)
            strata = rows.masses @ values[:, : self.matched.n_strata]
            means = np.concatenate([strata, sums_of(self.reading(seen), self.centre)])
            rows = Kept(*corrected(problem, Pilot(*rows), values, means))
        return rows._replace(masses=rows.masses * (float(masses.sum()) * self.total))

    def fewer(self, rows: Kept) -> Kept:
        """Return rows that stand for others, or fewer with their sums at the anchor where they are more than most."""
        if rows.y.size <= self.most or self.matched.n_columns > _MOST_MATCHED:
            return rows
        rows = rows.pick(np.argsort(row_keys(self.task.seed, rows.rows)))
        values, weights = self.matched.values(rows.X, rows.y), normalised(rows.masses)
        kept, weights = recombine(Basis.of(values, weights).apply(values), weights, self.most)
        return Kept.join([rows.pick(kept)._replace(masses=weights * float(rows.masses.sum()))])


def _smallest_of(keys: FloatArray, count: int) -> float:
    """Return the largest of the ``count`` smallest keys."""
    return float(np.partition(keys, count - 1)[count - 1]) if keys.size > count else np.inf


def make_plan(problem: Problem, first: Chunk, size: int, seed: int, given: Any) -> StreamPlan:
    """Return the plan of a stream: the anchor from the first rows unless it is given, and the scale of its matches."""
    n, m = first.X.shape
    weights = np.ones(n) if first.weights is None else first.weights
    masses = normalised(weights) if weights.any() else np.full(n, 1.0 / n)
    rows = Pilot(np.arange(n), first.X, first.y, masses)
    if given is not None:
        anchor = as_anchor(given, problem, m)
    elif has_all_classes(problem, first.y[masses > 0.0]):
        anchor = anchor_at(problem, solve_quietly(problem, rows, tol=1e-5))
    else:
        coef, intercept = problem.family.zero_model(m)
        anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, 0.0))
    width = 0.0
    if problem.family.is_closed and problem.loss.kinks:  # kinks are smoothed over it for a second dual candidate
        spread = spread_of(problem.family.signal_at(anchor, rows.X, rows.y), masses)
        width = 0.3 * min(1.0, 2.0 * float(np.sqrt((m + 1) / n))) * spread
    # A trillion rows of the mean weight of these, whatever its magnitude.
    largest = int(np.frexp(weights.max())[1])
    exponent = largest + int(np.frexp(np.ldexp(weights, -largest).mean())[1])
    total = float(np.ldexp(1.0, min(40 + exponent, 1000)))
    return StreamPlan(Pass(problem, anchor, width, seed, sized=True), total, size, centre_of(problem, rows.X, masses))


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)


def _n_kinds(problem: Problem) -> int:
    return max(len(problem.family.strata), 1)


def _kinds(problem: Problem, y: FloatArray) -> npt.NDArray[np.intp]:
    """Return the class of every row, 0 in regression."""
    return problem.family.stratum(y) if problem.family.strata else np.zeros(y.size, dtype=np.intp)
