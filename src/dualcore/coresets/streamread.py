"""What a stream keeps of its rows at one anchor: the sums of a read, and a sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.coreset import normalised
from dualcore.coresets.matched import Matched, MatchedModel, centre_of, sums_of
from dualcore.coresets.sample import MOST_NUMBERS, corrected
from dualcore.coresets.samplers.base import as_anchor
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sums import TreeSum
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Anchor, Problem
from dualcore.reading.closed import smoothing_width
from dualcore.reading.leaves import LeafPart, LeafRead
from dualcore.reading.reading import Reading, as_reading
from dualcore.reading.summary import Pass, Summary, SummaryRead
from dualcore.solvers import solve_quietly
from dualcore.solvers.pilot import Pilot

# Least rows that teach an anchor, and that are kept.
_LEAST = 4096


class Kept(Pilot):
    """Rows by their global numbers; their weights are the masses that they stand for, and sum to any number."""

    @classmethod
    def of(cls, chunk: Chunk, total: float) -> Kept:
        """Return the rows of a chunk."""
        return cls(np.arange(chunk.start, chunk.stop), chunk.X, chunk.y, chunk.masses(total))

    @classmethod
    def join(cls, parts: Iterable[Kept]) -> Kept:
        """Return the rows of all parts, one part after the other."""
        rows, X, y, weights = zip(*parts, strict=True)
        return cls(np.concatenate(rows), stack_rows(X), np.concatenate(y), np.concatenate(weights))


class Seen(NamedTuple):
    """What is kept of some rows: a sample of them, and the sums of a read."""

    sample: Kept
    summary: Summary
    masses: TreeSum  # of the classes


def learning_rows(problem: Problem, size: int, n_features: int) -> int:
    """Return how many rows teach the anchor of a stream: more than its size where training on them takes no time."""
    family = problem.family
    is_slow = family.moves_rows or (family.is_closed and family.flips and not problem.form.sums_decide)
    return size if is_slow else max(size, min(_LEAST, MOST_NUMBERS // n_features))


@dataclass(frozen=True)
class StreamRead(LeafRead[Seen]):
    """How a stream sees its rows at one anchor.

    The sums that the risk, the gradient and the bound of the anchor need are made in leaves of fixed row numbers. Of
    all rows a sample is kept by priority (Duffield, Lund and Thorup 2007): the smallest quotients of key and mass. It
    is a uniform one where masses are equal. What was seen of two sets of rows adds up, in any order, to what is seen of
    all of them.

    ``total`` is a power of two that makes all masses of a stream sum to less than one.
    """

    task: Pass
    size: int
    centre: FloatArray
    n_learned: float  # rows of equal weight that would teach an anchor as well as those that taught it

    @property
    def most(self) -> int:
        """Rows of the sample, four for each row of the coreset: the excess falls as they grow."""
        return max(4 * self.size, learning_rows(self.problem, self.size, self.centre.size))

    @property
    def problem(self) -> Problem:
        """The problem of the stream."""
        return self.task.problem

    @property
    def n_kinds(self) -> int:
        """Classes; 1 in regression."""
        return max(len(self.problem.family.strata), 1)

    def same_as(self, other: StreamRead) -> bool:
        """Whether both see rows in the same way: all else follows from what is compared."""
        mine, theirs = (
            (each.task.seed, each.total, each.centre, *vars(each.task.anchor).values()) for each in (self, other)
        )
        return all(map(np.array_equal, mine, theirs))

    # Rows in

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the rows of a leaf: up to twice those that are kept, so that few of these are looked at often."""
        return max(super().leaf_of(chunk), 1 << self.most.bit_length())

    def sums_of(self, chunk: Chunk) -> Seen:
        """Return what is kept of a leaf, or of rows that do not make a whole one."""
        leaf = self.leaf_of(chunk)
        # Rows that are no leaf have a place in the sums that no other rows have.
        place = chunk.start // leaf if chunk.y.size == leaf else -chunk.stop
        return self._seen(Kept.of(chunk, self.total), chunk.weights, place)

    def stand_in(self, rows: Kept) -> Seen:
        """Return what is kept of rows that stand for others."""
        weights = rows.weights
        return self._seen(rows._replace(weights=weights / self.total), weights, -(int(rows.rows.max()) + 1 << 64))

    def _seen(self, rows: Kept, weights: FloatArray | None, place: int) -> Seen:
        # The first row of a leaf of the stream that begins there, or that of a leaf of the sums.
        chunk = Chunk(0, rows.X, rows.y, weights)
        start = place * (self.leaf_of(chunk) if place >= 0 else super().leaf_of(chunk))
        summary = SummaryRead(None, self.total, self.task).sums_of(chunk._replace(start=start))
        masses = np.bincount(self.problem.family.stratum(rows.y), rows.weights, self.n_kinds).astype(np.float64)
        if not rows.weights.all():  # rows of no mass stand for nothing
            rows = rows.pick(np.flatnonzero(rows.weights))
        return Seen(rows, summary, TreeSum({(0, place): masses}))

    def join(self, found: list[Seen]) -> Seen:
        """Return what was seen of different rows as one."""
        samples, summaries, masses = zip(*found, strict=True)
        summary = SummaryRead(None, self.total, self.task).join(list(summaries))
        return Seen(self._sampled(samples), summary, TreeSum.join(masses))

    def _sampled(self, parts: Sequence[Kept]) -> Kept:
        """Return the rows of smallest priorities, of all and some of each class, in any order."""
        known = [(self._priorities(part), self.problem.family.stratum(part.y)) for part in parts]
        limits = self._limits(*(np.concatenate(values) for values in zip(*known, strict=True)))
        chosen = (np.flatnonzero(priorities <= limits[kinds]) for priorities, kinds in known)
        return Kept.join(part.pick(own) for part, own in zip(parts, chosen, strict=True))

    def _priorities(self, rows: Kept) -> FloatArray:
        with np.errstate(over="ignore"):  # of a row of next to no mass it is infinite
            return row_keys(self.task.seed, rows.rows) / rows.weights

    def _limits(self, priorities: FloatArray, kinds: npt.NDArray[np.intp]) -> FloatArray:
        """Return the largest priority in the sample, class by class; infinite where all rows are in it."""
        share = -(-self.size // self.n_kinds)
        own = [_smallest_of(priorities[kinds == k], share) for k in range(self.n_kinds)]
        return np.maximum(own, _smallest_of(priorities, self.most))

    def add(self, state: LeafPart[Seen], chunks: Iterable[Chunk], found: Iterable[Seen] = ()) -> LeafPart[Seen]:
        """Return what is known of a stream after further rows, and after what was seen of others."""
        new, edges = list(found), list(state.edges)
        with one_blas_thread():
            for piece in (piece for chunk in chunks for piece in chunk.cut(self.leaf_of(chunk))):
                whole, left = self(piece)
                new, edges = new + whole, edges + left
            # Not with every part: rows that wait would be copied again and again.
            if edges and sum(edge.y.size for edge in edges) >= self.leaf_of(edges[0]):
                new, edges = self.merge([LeafPart(new, edges)])
                if len(edges) > 64:  # parts of streams whose rows are numbered far apart: memory is bounded
                    new, edges = [*new, *map(self.sums_of, edges)], []
            return LeafPart([self.join([*state.found, *new])] if new else state.found, edges)

    # What is known of all rows

    def seen(self, state: LeafPart[Seen]) -> Seen:
        """Return what was seen of all rows, those of leaves that are not complete among them."""
        with one_blas_thread():
            return self.join([*state.found, *map(self.sums_of, self.merge([state]).edges)])

    def reading(self, seen: Seen) -> Reading:
        """Return the reading of all rows."""
        mass = float(seen.masses.total().sum())
        reading = as_reading(self.task, seen.summary.scaled(1.0 / mass))
        if mass > 4.0 and not reading.is_exact:  # beyond this the counts of a histogram of flips may overflow
            reading.bound_risk()
        return reading

    def kept(self, seen: Seen) -> Kept:
        """Return the sample, with masses that have the sums of all rows at the anchor and stand for their weight."""
        rows, masses = seen.sample.pick(np.argsort(seen.sample.rows)), seen.masses.total()
        kinds = self.problem.family.stratum(rows.y)
        # The probability of a row was its mass times the limit, at most 1; the classes have the masses of all rows.
        weights = np.maximum(rows.weights, 1.0 / self._limits(self._priorities(rows), kinds)[kinds])
        own = np.bincount(kinds, weights, masses.size)
        factors = np.divide(masses, own, out=np.zeros(masses.size), where=own > 0.0)
        rows = rows._replace(weights=normalised(weights * factors[kinds]))
        matched = Matched((MatchedModel(self.problem, self.task.anchor),), self.centre)
        if rows.y.size >= self.most and rows.y.size * matched.n_columns <= MOST_NUMBERS:  # else all rows are there
            values = matched.values(rows.X, rows.y)
            strata = rows.weights @ values[:, : matched.n_strata]
            means = np.concatenate([strata, sums_of(self.reading(seen), self.centre)])
            rows = Kept(*corrected(self.problem, rows, values, means))
        return rows._replace(weights=rows.weights * (float(masses.sum()) * self.total))


def _smallest_of(keys: FloatArray, count: int) -> float:
    """Return the largest of the ``count`` smallest keys."""
    return float(np.partition(keys, count - 1)[count - 1]) if keys.size >= count else np.inf


def learn(problem: Problem, first: Chunk, size: int, seed: int, given: Any) -> StreamRead:
    """Return how a stream sees its rows: at the anchor learned from the first ones unless it is given."""
    n, m = first.X.shape
    weights = first.masses(1.0)
    masses = normalised(weights) if weights.any() else np.full(n, 1.0 / n)
    rows = Pilot(np.arange(n), first.X, first.y, masses)
    if given is not None:
        anchor = as_anchor(given, problem, m)
    elif has_all_classes(problem, first.y[masses > 0.0]):
        anchor = anchor_at(problem, solve_quietly(problem, rows, tol=1e-5))
    else:
        coef, intercept = problem.family.zero_model(m)
        anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, 0.0))
    total = float(np.ldexp(1.0, 40 + int(np.frexp(weights.mean())[1])))  # a trillion rows like these
    task = Pass(problem, anchor, smoothing_width(problem, anchor, rows), seed, sized=True)
    return StreamRead(None, total, task, size, centre_of(problem, rows.X, masses), 1.0 / float(masses @ masses))


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)
