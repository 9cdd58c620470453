"""The state of a stream at one anchor: the sums of a read, and a sample of rows."""

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

# Smallest number of rows on which an anchor is trained, and of rows kept.
_LEAST = 4096


class Kept(Pilot):
    """Rows with their global numbers; the weights are masses, which need not sum to one."""

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
    """The state of some rows: a sample of them, the sums of a read, and the masses of the classes."""

    sample: Kept
    summary: Summary
    masses: TreeSum  # of the classes


def learning_rows(problem: Problem, size: int, n_features: int) -> int:
    """Return the number of rows on which an anchor is trained: ``size``, or more where training is fast."""
    family = problem.family
    is_slow = family.moves_rows or (family.is_closed and family.flips and not problem.form.sums_decide)
    return size if is_slow else max(size, min(_LEAST, MOST_NUMBERS // n_features))


@dataclass(frozen=True)
class StreamRead(LeafRead[Seen]):
    """Sums and sample of the rows of a stream at one anchor.

    The sums for risk, gradient and bound of the anchor are computed in leaves of fixed row numbers. A priority sample
    of the rows is kept (Duffield, Lund and Thorup 2007): those of the smallest quotients of key and mass. It is uniform
    if masses are equal. The states of two sets of rows can be joined, in any order, to the state of their union.

    ``total`` is a power of two that makes all masses of a stream sum to less than one.
    """

    task: Pass
    size: int
    centre: FloatArray
    n_learned: float  # effective number of rows on which the anchor was trained

    @property
    def most(self) -> int:
        """Number of rows of the sample: four for each row of the coreset, since more rows lower the excess."""
        return max(4 * self.size, learning_rows(self.problem, self.size, self.centre.size))

    @property
    def problem(self) -> Problem:
        """The problem of the stream."""
        return self.task.problem

    @property
    def n_kinds(self) -> int:
        """Number of classes; 1 in regression."""
        return max(len(self.problem.family.strata), 1)

    def same_as(self, other: StreamRead) -> bool:
        """Whether both have the same seed, unit of mass, centre and anchor, so that their states can be joined."""
        mine, theirs = (
            (each.task.seed, each.total, each.centre, *vars(each.task.anchor).values()) for each in (self, other)
        )
        return all(map(np.array_equal, mine, theirs))

    # Rows in

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the number of rows of a leaf, up to twice the rows kept, so that the sample is updated rarely."""
        return max(super().leaf_of(chunk), 1 << self.most.bit_length())

    def sums_of(self, chunk: Chunk) -> Seen:
        """Return the state of a leaf, or of rows of an incomplete leaf."""
        leaf = self.leaf_of(chunk)
        # Rows of an incomplete leaf get a unique negative key in the tree of sums.
        place = chunk.start // leaf if chunk.y.size == leaf else -chunk.stop
        return self._seen(Kept.of(chunk, self.total), chunk.weights, place)

    def stand_in(self, rows: Kept) -> Seen:
        """Return the state of weighted rows that represent the rows of another stream."""
        weights = rows.weights
        return self._seen(rows._replace(weights=weights / self.total), weights, -(int(rows.rows.max()) + 1 << 64))

    def _seen(self, rows: Kept, weights: FloatArray | None, place: int) -> Seen:
        # `place` counts leaves of the stream, or if negative leaves of the sums.
        chunk = Chunk(0, rows.X, rows.y, weights)
        start = place * (self.leaf_of(chunk) if place >= 0 else super().leaf_of(chunk))
        summary = SummaryRead(None, self.total, self.task).sums_of(chunk._replace(start=start))
        masses = np.bincount(self.problem.family.stratum(rows.y), rows.weights, self.n_kinds).astype(np.float64)
        if not rows.weights.all():  # rows without mass are not sampled
            rows = rows.pick(np.flatnonzero(rows.weights))
        return Seen(rows, summary, TreeSum({(0, place): masses}))

    def join(self, found: list[Seen]) -> Seen:
        """Return the states of different rows as one."""
        samples, summaries, masses = zip(*found, strict=True)
        summary = SummaryRead(None, self.total, self.task).join(list(summaries))
        return Seen(self._sampled(samples), summary, TreeSum.join(masses))

    def _sampled(self, parts: Sequence[Kept]) -> Kept:
        """Return the rows of smallest priorities, overall and some of each class, in any order."""
        known = [(self._priorities(part), self.problem.family.stratum(part.y)) for part in parts]
        limits = self._limits(*(np.concatenate(values) for values in zip(*known, strict=True)))
        chosen = (np.flatnonzero(priorities <= limits[kinds]) for priorities, kinds in known)
        return Kept.join(part.pick(own) for part, own in zip(parts, chosen, strict=True))

    def _priorities(self, rows: Kept) -> FloatArray:
        with np.errstate(over="ignore"):  # infinite for rows of tiny mass
            return row_keys(self.task.seed, rows.rows) / rows.weights

    def _limits(self, priorities: FloatArray, kinds: npt.NDArray[np.intp]) -> FloatArray:
        """Return the largest priority in the sample for each class (n_kinds,); infinite if all its rows are in it."""
        share = -(-self.size // self.n_kinds)
        own = [_smallest_of(priorities[kinds == k], share) for k in range(self.n_kinds)]
        return np.maximum(own, _smallest_of(priorities, self.most))

    def add(self, state: LeafPart[Seen], chunks: Iterable[Chunk], found: Iterable[Seen] = ()) -> LeafPart[Seen]:
        """Return the state of a stream after further rows, and after the states ``found`` of others."""
        new, edges = list(found), list(state.edges)
        with one_blas_thread():
            for piece in (piece for chunk in chunks for piece in chunk.cut(self.leaf_of(chunk))):
                whole, left = self(piece)
                new, edges = new + whole, edges + left
            # Only once a leaf is full: otherwise the waiting rows would be copied with every part.
            if edges and sum(edge.y.size for edge in edges) >= self.leaf_of(edges[0]):
                new, edges = self.merge([LeafPart(new, edges)])
                if len(edges) > 64:  # incomplete leaves of many streams: sum them, to bound memory
                    new, edges = [*new, *map(self.sums_of, edges)], []
            return LeafPart([self.join([*state.found, *new])] if new else state.found, edges)

    # The state of all rows

    def seen(self, state: LeafPart[Seen]) -> Seen:
        """Return the state of all rows, including those of incomplete leaves."""
        with one_blas_thread():
            return self.join([*state.found, *map(self.sums_of, self.merge([state]).edges)])

    def reading(self, seen: Seen) -> Reading:
        """Return the reading of all rows."""
        mass = float(seen.masses.total().sum())
        reading = as_reading(self.task, seen.summary.scaled(1.0 / mass))
        if mass > 4.0 and not reading.is_exact:  # the counts of the histogram of flips may overflow
            reading.bound_risk()
        return reading

    def kept(self, seen: Seen) -> Kept:
        """Return the sample with masses that match the sums of all rows at the anchor, and their total weight."""
        rows, masses = seen.sample.pick(np.argsort(seen.sample.rows)), seen.masses.total()
        kinds = self.problem.family.stratum(rows.y)
        # A row was kept with probability min(1, mass * limit), so its weight is mass / probability. Then the classes
        # are scaled to their masses over all rows.
        weights = np.maximum(rows.weights, 1.0 / self._limits(self._priorities(rows), kinds)[kinds])
        own = np.bincount(kinds, weights, masses.size)
        factors = np.divide(masses, own, out=np.zeros(masses.size), where=own > 0.0)
        rows = rows._replace(weights=normalised(weights * factors[kinds]))
        matched = Matched((MatchedModel(self.problem, self.task.anchor),), self.centre)
        if rows.y.size >= self.most and rows.y.size * matched.n_columns <= MOST_NUMBERS:  # with fewer, all are kept
            values = matched.values(rows.X, rows.y)
            strata = rows.weights @ values[:, : matched.n_strata]
            means = np.concatenate([strata, sums_of(self.reading(seen), self.centre)])
            rows = Kept(*corrected(self.problem, rows, values, means))
        return rows._replace(weights=rows.weights * (float(masses.sum()) * self.total))


def _smallest_of(keys: FloatArray, count: int) -> float:
    """Return the largest of the ``count`` smallest keys."""
    return float(np.partition(keys, count - 1)[count - 1]) if keys.size >= count else np.inf


def learn(problem: Problem, first: Chunk, size: int, seed: int, given: Any) -> StreamRead:
    """Return the read of a stream, at the anchor trained on its first rows unless one is given."""
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
    total = float(np.ldexp(1.0, 40 + int(np.frexp(weights.mean())[1])))  # the weight of 10^12 such rows
    task = Pass(problem, anchor, smoothing_width(problem, anchor, rows), seed, sized=True)
    return StreamRead(None, total, task, size, centre_of(problem, rows.X, masses), 1.0 / float(masses @ masses))


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; True in regression."""
    return np.unique(y).size >= len(problem.family.strata)
