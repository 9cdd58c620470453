"""`CoresetStream`: a coreset of data that arrive once and are gone.

The first rows teach an anchor and the cells around it. From then on every row is summarised as it passes, exactly as
in a read of stored data: sums of ``h`` and of its gradient at the anchor over all rows, the mass of every cell, and in
every cell the rows of smallest keys. `coreset` draws from the cells and calibrates, as a sampler would.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.samplers.base import as_anchor
from dualcore.coresets.samplers.pilot import anchor_at, check_size
from dualcore.coresets.samplers.strata import bend_scores, draw_cells
from dualcore.coresets.streamfile import read_stream, write_stream
from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.keys import seed_from
from dualcore.data.rows import SparseRows, as_rows, as_target, check_weight_range
from dualcore.data.sources import ArraySource, Chunk
from dualcore.data.sources.local import chunk_spans, default_chunk_rows
from dualcore.data.sources.pilot import stack_rows
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.reading.reading import Reading, as_reading, read
from dualcore.reading.summary import Extent, Pass, Summary, close, merge, plan_cells, stack_chunks, summarise
from dualcore.solvers import solve

__all__ = ["CoresetStream"]

# Streams of different anchors that are kept apart; beyond, the smallest are reduced to a coreset.
_MOST_GROUPS = 4
# Beyond this mass, in units of 2**40 weights of the first rows, the counts of a histogram of flips may overflow.
_MOST_MASS = 4.0
_NO_WEIGHT = "All rows so far have weight zero."
# Small updates wait until they make this many rows.
_FEWEST_ROWS = 4096


@dataclass
class Group:
    """Rows summarised at one anchor.

    Attributes
    ----------
    task : Pass
        Its ``keep`` holds, for each cell, the key below which a row is among the smallest so far.
    capacity : ndarray of shape (n_cells,)
        Rows kept of each cell.
    extent : Extent
        Its weight is a power of two that makes all masses of a stream sum to less than one.
    summary : Summary
    """

    task: Pass
    capacity: npt.NDArray[np.int64]
    extent: Extent
    summary: Summary | None = None

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Summarise rows."""
        self.join([summarise(chunk, self.task, self.extent) for chunk in chunks])

    def join(self, parts: list[Summary]) -> None:
        """Merge summaries made with the same task, and forget rows beyond the capacity of their cell."""
        if self.summary is not None:
            parts = [self.summary, *parts]
        summary = merge(parts, self.task, self.extent)
        sample = summary.sample
        if sample is not None:
            order = np.lexsort((sample.rows, sample.keys, sample.cells))
            cells = sample.cells[order]
            rank = np.arange(order.size) - np.searchsorted(cells, cells)
            last = order[rank == self.capacity[cells] - 1]
            keep = self.task.keep.copy()
            keep[sample.cells[last]] = np.nextafter(sample.keys[last], 2.0)
            self.task = self.task._replace(keep=keep)
            summary.sample = sample.pick(np.sort(order[rank < self.capacity[cells]])).in_row_order()
        self.summary = summary

    def same_plan(self, other: Group) -> bool:
        """Whether both were summarised at the same anchor with the same cells and keys."""
        mine, theirs = self.task, other.task
        return (
            np.array_equal(mine.anchor.coef, theirs.anchor.coef)
            and np.array_equal(mine.anchor.intercept, theirs.anchor.intercept)
            and mine.anchor.multiplier == theirs.anchor.multiplier
            and (mine.cells, mine.seed, mine.width) == (theirs.cells, theirs.seed, theirs.width)
            and self.extent == other.extent
            and np.array_equal(self.capacity, other.capacity)
        )

    @property
    def n_rows(self) -> int:
        """Rows summarised so far, those of incomplete leaves included."""
        summary = self.summary
        return 0 if summary is None else summary.n_rows + sum(edge.y.size for edge in summary.edges)

    @property
    def has_weight(self) -> bool:
        """Whether any row so far has a weight."""
        summary = self.summary
        if summary is None:
            return False
        some = any(edge.weights is None or bool(edge.weights.any()) for edge in summary.edges)
        return some or bool(summary.cell_count.any())

    def reading(self) -> tuple[Reading, float]:
        """Return the reading of all rows so far, and their weight."""
        if self.summary is None:
            raise ValueError("No row has arrived yet.")
        closed = close(self.summary, self.task, self.extent)
        share = float(closed.sums.total()[0])
        if not share > 0.0:
            raise ValueError(_NO_WEIGHT)
        reading = as_reading(self.task, closed.scaled(1.0 / share))
        if share > _MOST_MASS and not reading.is_exact:
            reading.bound_risk()
        return reading, share * self.extent.total_weight


class CoresetStream:
    """A coreset of everything that passed by, in bounded memory.

    Parameters
    ----------
    problem : Problem
    size : int, default=5000
        Rows of the coreset. About three times as many are kept.
    anchor : Anchor, Solution or None
        Where ``h`` is summarised. None trains one on the first ``size`` rows, which are kept until then; if they are of
        one class only, on the first ``2 size`` or ``4 size``; if these are too, the anchor is the zero model.
    random_state : int, Generator or None
    first_row : int, default=0
        Number of the first row. Streams that are to be merged must number their rows apart: ``10**12 * worker``, say.

    Notes
    -----
    *What is promised.* Sums (mass, mean ``h`` and mean gradient at the anchor, masses of the cells) are exact over all
    rows seen; rows of a cell are a uniform sample of it; the weights are calibrated at the anchor. So ``H~`` and its
    gradient equal ``H`` and its gradient there, and the error elsewhere is of second order in the distance, as for a
    `DualCoreset` of one round with that anchor. How the rows were cut into updates changes nothing, to the last bit.

    *Merging.* Streams with one plan (`sibling`, or loaded from one file) merge exactly: in any order and grouping the
    result is that of one stream that saw all rows. Streams that learned different anchors are kept apart, each with the
    promise above for its own rows and anchor, and the error of the union is at most the mean of theirs, weighted by
    mass. More than four such groups are too many: the two smallest are then reduced to a coreset of ``size`` rows,
    whose error adds to theirs.

    *State.* Less than ``4 size`` rows before the anchor is known; then per anchor ``3 size`` rows and 32 more for each
    of up to 48 cells, and some sums. It does not grow with the stream.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> stream = CoresetStream(Problem("logistic", radius=0.1), size=100, random_state=0)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(500, 2))
    ...     stream.update(X, np.where(X[:, 0] + rng.normal(size=500) > 0, 1.0, -1.0))
    >>> stream.coreset()
    <Coreset of 100 rows for 10000, by CoresetStream>
    """

    def __init__(
        self,
        problem: Problem,
        size: int = 5000,
        *,
        anchor: Any = None,
        random_state: Any = 0,
        first_row: int = 0,
    ) -> None:
        _check_whole("size", size, 2)
        check_size(problem, size)
        _check_whole("first_row", first_row, 0)
        self.problem, self.size, self.anchor = problem, int(size), anchor
        self.seed = seed_from(random_state)
        self._next = int(first_row)
        self.spans: list[tuple[int, int]] = []
        self.waiting: list[Chunk] = []
        self.groups: list[Group] = []  # the first is the one that new rows join
        self.reduced: list[tuple[Coreset, float]] = []  # at most one, with its weight
        self.shape: tuple[int, bool, bool] | None = None  # features, sparse, weighted

    @property
    def n_rows(self) -> int:
        """How many rows have been seen."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def next_row(self) -> int:
        """Number of the next row to arrive: after `load`, where to continue."""
        return self._next

    def __repr__(self) -> str:
        return f"<CoresetStream of size {self.size}: {self.n_rows} rows seen, {self.state_rows} kept>"

    @property
    def state_rows(self) -> int:
        """How many rows are kept."""
        summaries = [group.summary for group in self.groups if group.summary is not None]
        held = sum(edge.y.size for summary in summaries for edge in summary.edges)
        held += sum(summary.sample.rows.size for summary in summaries if summary.sample is not None)
        return held + sum(chunk.y.size for chunk in self.waiting) + sum(len(coreset) for coreset, _ in self.reduced)

    # Rows in

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        """Take in a part of the data; it may be empty, or hold one class only.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, n_features)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
            Either all parts have weights or none.
        """
        if np.shape(y)[0] == 0:
            return
        chunk = self._checked(X, y, sample_weight)
        stop = chunk.start + chunk.y.size
        self.spans, self._next = self._covering([(chunk.start, stop)]), stop
        self.waiting.append(chunk)
        if self.groups and sum(part.y.size for part in self.waiting) < _FEWEST_ROWS:
            return
        self._settle()

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Chunk:
        rows = as_rows(X)
        rows.check_finite()
        target = as_target(y, rows.n)
        wrong = self.problem.family.first_wrong_label(target)
        if wrong is not None:
            raise ValueError(f"{self.problem.family.label_fault(float(target[wrong]))} in y.")
        weights = None
        if sample_weight is not None:
            weights = plain_array("sample_weight", sample_weight).astype(np.float64)
            if weights.shape != target.shape or not np.isfinite(weights).all() or (weights < 0.0).any():
                raise ValueError("sample_weight must hold one finite, non-negative number per row.")
            check_weight_range("sample_weight", weights)
        is_sparse = isinstance(rows, SparseRows)
        shape = (rows.m, is_sparse, weights is not None)
        if self.shape is not None and shape != self.shape:
            raise ValueError(
                f"This part has (features, sparse, weighted) = {shape}, the parts before it had {self.shape}."
            )
        self.shape = shape
        everything = slice(0, rows.n)
        # Copied: the caller may use the array again, and we may keep rows for a while.
        data = rows.by_row.astype(np.float64) if isinstance(rows, SparseRows) else np.array(rows.block(everything))
        return Chunk(self._next, data, target.copy(), weights)

    def _covering(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the rows seen and these, or say which are in both."""
        for low, high in self.spans:
            for start, stop in spans:
                if start < high and low < stop:
                    raise ValueError(
                        f"Rows {max(start, low)} to {min(stop, high) - 1} are in both: streams that are merged must "
                        "number their rows apart. Give each its own first_row."
                    )
        return _unite([*self.spans, *spans])

    def _settle(self) -> None:
        """Summarise what is waiting, after learning the anchor if it is not known and there are rows enough."""
        if not self.groups:
            self._learn()
        if self.groups and self.waiting:
            pieces = [piece for chunk in self.waiting for piece in _pieces(chunk)]
            self.waiting = []
            self.groups[0].add(pieces)

    def _learn(self) -> None:
        """Learn the anchor and the cells from the first rows."""
        self.waiting.sort(key=lambda chunk: chunk.start)
        n = sum(chunk.y.size for chunk in self.waiting)
        pilot = Chunk(0, None, np.empty(0), None)
        for times in (1, 2, 4):
            if n < times * self.size:
                return
            pilot = _first(self.waiting, times * self.size)
            if _has_all_classes(self.problem, pilot.y):
                break
        self.groups = [_plan(self.problem, pilot, self.size, self.seed, self.anchor)]

    # Streams together

    def sibling(self, first_row: int) -> CoresetStream:
        """Return an empty stream with the same plan, to be filled elsewhere and merged back without any loss.

        Raises
        ------
        ValueError
            If this stream has not learned its anchor yet.
        """
        self._settle()
        if not self.groups:
            raise ValueError(
                f"The anchor is not known yet: {self.n_rows} rows have arrived of the first {self.size} that teach it."
            )
        twin = CoresetStream(self.problem, self.size, anchor=self.anchor, first_row=first_row)
        twin.seed, twin.shape, own = self.seed, self.shape, self.groups[0]
        task = own.task._replace(keep=np.ones(own.task.cells.n_cells))
        twin.groups = [Group(task, own.capacity, own.extent)]
        return twin

    def merge(self, other: CoresetStream) -> CoresetStream:
        """Take in everything the other stream has seen, and return this one; the other is left as it is.

        Raises
        ------
        ValueError
            If the two are about different problems or sizes, or have rows of the same number.
        """
        if not isinstance(other, CoresetStream):
            raise TypeError(f"Only a CoresetStream can be merged, got {type(other).__name__}.")
        if (self.problem, self.size) != (other.problem, other.size):
            raise ValueError(
                f"Streams of different problems or sizes cannot be merged: {self.problem!r} of size {self.size}, and "
                f"{other.problem!r} of size {other.size}."
            )
        if other.shape is not None and self.shape not in (None, other.shape):
            raise ValueError(f"The streams have (features, sparse, weighted) = {self.shape} and {other.shape}.")
        self.spans = self._covering(other.spans)
        self.shape = self.shape or other.shape
        self.waiting = [*self.waiting, *other.waiting]
        for group in other.groups:
            mine = next((one for one in self.groups if one.same_plan(group)), None)
            if mine is None:
                self.groups.append(replace(group))
            elif group.summary is not None:
                mine.join([group.summary])
        self._settle()
        self.reduced += other.reduced
        while len(self.groups) > _MOST_GROUPS or len(self.reduced) > 1:
            self._reduce()
        return self

    def _reduce(self) -> None:
        """Make one coreset of the smallest groups, and of what was reduced before."""
        while len(self.groups) > _MOST_GROUPS:
            smallest = min(self.groups[1:], key=lambda group: group.n_rows)
            self.groups = [group for group in self.groups if group is not smallest]
            if smallest.has_weight:  # rows of no weight stand for nothing
                self.reduced.append(_drawn(smallest, self.size))
        if len(self.reduced) > 1:
            union, weight = _union(self.reduced), sum(mass for _, mass in self.reduced)
            self.reduced = [(self._fewer(union, self.size), weight)]

    def _fewer(self, coreset: Coreset, size: int) -> Coreset:
        """Return a coreset of a coreset, around the anchor of this stream; it may be of one class only."""
        if len(coreset) <= size:
            return coreset
        task = self.groups[0].task
        task = task._replace(keep=np.ones(task.cells.n_cells), certified=False, width=0.0)
        few = draw_cells(read(ArraySource(coreset.X, coreset.y, coreset.weights), task), size)
        return replace(few, indices=coreset.indices[few.indices], n_rows=coreset.n_rows)

    # The coreset out

    def coreset(self) -> Coreset:
        """Return a coreset of all rows seen so far; the stream goes on.

        ``details["anchor_risk"]`` and ``details["anchor_lower"]``, where all rows were summarised at one anchor, are
        the worst-case risk of the anchor on all rows seen and a bound that no model can beat on them. Where more than
        65,536 rows may flip the first is an upper bound, a fraction of a per mille above the risk, and
        ``details["anchor_risk_is_exact"]`` is False.
        """
        if self.n_rows == 0:
            raise ValueError("No row has arrived yet.")
        self._settle()
        if not self.groups:
            rows = stack_chunks(sorted(self.waiting, key=lambda chunk: chunk.start))
            indices = np.concatenate([np.arange(*span) for span in self.spans])
            weights = np.ones(rows.y.size) if rows.weights is None else rows.weights
            if not weights.any():
                raise ValueError(_NO_WEIGHT)
            details = {"message": "fewer rows than the coreset may have: all of them"}
            return Coreset(indices, rows.X, rows.y, normalised(weights), self.n_rows, None, "CoresetStream", details)
        groups = [group for group in self.groups if group.has_weight]
        if not groups and not self.reduced:
            raise ValueError(_NO_WEIGHT)
        total = sum(group.n_rows for group in groups) + sum(part.n_rows for part, _ in self.reduced)
        least = max(2, len(self.problem.family.strata))
        shares = [max(least, self.size * group.n_rows // total) for group in groups]
        parts = [_drawn(group, share) for group, share in zip(groups, shares, strict=True)]
        for part, weight in self.reduced:
            parts.append((self._fewer(part, max(least, self.size * part.n_rows // total)), weight))
        return replace(_union(parts), n_rows=self.n_rows, method="CoresetStream")

    # Rest

    def save(self, path: str | Path) -> None:
        """Write the state to one file: arrays and a JSON header, atomically, nothing that could be executed."""
        write_stream(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, problem: Problem) -> CoresetStream:
        """Read what `save` wrote; the next `update` continues as if nothing had happened.

        Parameters
        ----------
        path : str or Path
        problem : Problem
            The same as before; the file names it, and another one is refused.
        """
        stream = cls.__new__(cls)
        read_stream(stream, Path(path), problem, Group)
        return stream


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def _pieces(chunk: Chunk) -> Iterable[Chunk]:
    step = default_chunk_rows(chunk.X.shape[1], sparse=sp.issparse(chunk.X))
    for first, last in chunk_spans(chunk.start, chunk.start + chunk.y.size, step):
        part = slice(first - chunk.start, last - chunk.start)
        weights = None if chunk.weights is None else chunk.weights[part]
        yield Chunk(first, chunk.X[part], chunk.y[part], weights)


def _first(chunks: list[Chunk], size: int) -> Chunk:
    """Return the first ``size`` rows."""
    whole = stack_chunks(chunks)
    weights = None if whole.weights is None else whole.weights[:size]
    return Chunk(whole.start, whole.X[:size], whole.y[:size], weights)


def _plan(problem: Problem, pilot: Chunk, size: int, seed: int, given: Any) -> Group:
    """Return an empty group: the anchor from the pilot's rows unless it is given, and cells around it."""
    m = pilot.X.shape[1]
    weights = np.ones(pilot.y.size) if pilot.weights is None else pilot.weights
    masses = normalised(weights) if weights.any() else np.full(pilot.y.size, 1.0 / pilot.y.size)
    complete = _has_all_classes(problem, pilot.y[masses > 0.0])
    if given is not None:
        anchor = as_anchor(given, problem, m)
    elif complete:
        with warnings.catch_warnings():  # an anchor need not be optimal
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(problem, pilot.X, pilot.y, masses, tol=1e-5)
        anchor = anchor_at(problem, solution)
    else:
        coef, intercept = problem.family.zero_model(m)
        anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, 0.0))
    reach = min(1.0, 2.0 * float(np.sqrt(problem.family.n_outputs * (m + 1) / size)))
    rows = Coreset(np.arange(pilot.y.size), pilot.X, pilot.y, masses, pilot.y.size)
    plan = plan_cells(problem, anchor, rows, size, reach, focused=True)
    rule, seen = plan.rule, np.maximum(plan.mass, 0.3 / size)
    scores = bend_scores(rule, seen)
    capacity = np.ceil(2.0 * size * scores / scores.sum()).astype(np.int64) + max(32, size // rule.n_cells)
    extent = Extent(None, float(np.ldexp(1.0, min(40 + _typical_exponent(weights), 1000))))
    task = Pass(problem, anchor, rule, seed, np.ones(rule.n_cells), plan.smoothing, sized=True)
    return Group(task, capacity, extent)


def _has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)


def _typical_exponent(weights: FloatArray) -> int:
    """Return the power of two nearest to the mean of the positive weights, of any magnitude."""
    if not weights.any():
        return 0
    top = int(np.frexp(weights.max())[1])
    scaled = np.ldexp(weights, -top)
    return top + round(float(np.log2(scaled[scaled > 0.0].mean())))


def _drawn(group: Group, size: int) -> tuple[Coreset, float]:
    """Return a coreset of a group's rows, and their weight."""
    reading, weight = group.reading()
    coreset = draw_cells(reading, min(size, group.n_rows))
    lower = min(reading.lower_bound(reading.risk), reading.risk)
    known = {"anchor_risk": reading.risk, "anchor_risk_is_exact": reading.is_exact, "anchor_lower": lower}
    details = coreset.details | known
    return replace(coreset, details=details), weight


def _union(parts: list[tuple[Coreset, float]]) -> Coreset:
    """Return coresets of different rows as one, each by its weight."""
    if len(parts) == 1:
        return parts[0][0]
    indices = np.concatenate([coreset.indices for coreset, _ in parts])
    weights = np.concatenate([weight * coreset.weights for coreset, weight in parts])
    order = np.argsort(indices, kind="stable")
    largest = max(parts, key=lambda part: part[1])[0]
    return Coreset(
        indices[order],
        stack_rows([coreset.X for coreset, _ in parts])[order],
        np.concatenate([coreset.y for coreset, _ in parts])[order],
        normalised(weights[order]),
        sum(coreset.n_rows for coreset, _ in parts),
        largest.anchor,
        largest.method,
        {"anchors": len(parts)},
    )


def _unite(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of rows, ascending, neighbours put together."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if united and united[-1][1] == start:
            united[-1] = (united[-1][0], stop)
        else:
            united.append((start, stop))
    return united
