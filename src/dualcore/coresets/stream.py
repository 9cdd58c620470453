"""`CoresetStream`: a coreset of data that arrive once and are gone.

The first rows teach an anchor and the cells around it. From then on every row is summarised as it passes, exactly as
in a read of stored data: sums of ``h`` and of its gradient at the anchor over all rows, the mass of every cell, and in
every cell the rows of smallest keys. `coreset` draws from the cells and calibrates, as a sampler would.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.drift import Drifted, DriftWarning, drift_text, look_for_drift
from dualcore.coresets.samplers.anchors import check_size
from dualcore.coresets.streamfile import read_stream, write_stream
from dualcore.coresets.streamgroup import (
    NO_WEIGHT,
    Group,
    draw_again,
    draw_group,
    has_all_classes,
    kept_rows,
    plan_group,
    unite_coresets,
)
from dualcore.data.arrays import plain_array
from dualcore.data.keys import seed_from
from dualcore.data.rows import SparseRows, as_rows, as_target, check_weight_range
from dualcore.data.sources import Chunk
from dualcore.data.sources.base import default_chunk_rows
from dualcore.data.sources.chunk import stack_chunks
from dualcore.problem import Problem

# Streams of different anchors that are kept apart; beyond, the smallest are reduced to a coreset.
_MOST_GROUPS = 4
# Small updates wait until they make this many rows.
_FEWEST_ROWS = 4096


class CoresetStream:
    """A coreset of everything that passed by, in bounded memory.

    Parameters
    ----------
    problem : Problem
    size : int, default=5000
        Rows of the coreset. Three to four times as many are kept.
    anchor : Anchor, Solution or None
        Where ``h`` is summarised. None trains one on the first ``size`` rows, which are kept until then; if they are of
        one class only, on the first ``2 size`` or ``4 size``; if these are too, the anchor is the zero model.
    random_state : int, Generator or None
    first_row : int, default=0
        Number of the first row. Streams that are to be merged must number their rows apart: ``10**12 * worker``, say.

    Attributes
    ----------
    notes : dict
        What travels with the state, JSON values only: names of features and labels, for example.

    Notes
    -----
    *What is promised.* Sums (mass, mean ``h`` and mean gradient at the anchor, masses of the cells) are exact over all
    rows seen; rows of a cell are a uniform sample of it; the weights are calibrated at the anchor. So ``H~`` and its
    gradient equal ``H`` and its gradient there, and the error elsewhere is of second order in the distance, as for a
    `DualCoreset` of one round with that anchor. How the rows were cut into updates changes nothing, to the last bit.

    *Drift.* Among the rows kept is a uniform sample of ``size`` rows. `coreset` trains on all rows kept and compares:
    where the anchor learned from the first rows is farther from that model than chance explains, a `DriftWarning` says
    so, and the coreset is drawn from the rows kept and calibrated at that model. The rows kept hold at least as many
    of every cell as a uniform sample of ``size`` rows would, so they are no worse than one; the coreset agrees with
    them to first order at that model. The sums over all rows are known at the old anchor only.
    ``details["drift"]`` holds by how much the risk of the old anchor exceeds the least, relatively. An anchor that was
    given is not questioned.

    *Merging.* Streams with one plan (`sibling`, or loaded from one file) merge exactly: in any order and grouping the
    result is that of one stream that saw all rows. Streams that learned different anchors are kept apart, each with the
    promise above for its own rows and anchor, and the error of the union is at most the mean of theirs, weighted by
    mass. More than four such groups are too many: the two smallest are then reduced to a coreset of ``size`` rows,
    whose error adds to theirs.

    *State.* Less than ``4 size`` rows before the anchor is known; then per anchor at most ``4 size`` rows and 32 more
    for each of up to 48 cells, and some sums. It does not grow with the stream.

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
        self.notes: dict[str, Any] = {}

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
        """Take in a part of the data; it may be empty, or hold one class only. One that is refused leaves no trace.

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
        # Now, not when a coreset is asked for: of rows that come once a bad part can only be refused as it comes.
        self.problem.check_width(rows.m)
        self.problem.family.check_rows(rows, first=self._next)
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
            first = self.waiting[0].X
            step = default_chunk_rows(first.shape[1], sparse=sp.issparse(first))
            pieces = [piece for chunk in self.waiting for piece in chunk.cut(step)]
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
            pilot = stack_chunks(self.waiting)
            pilot = pilot.part(pilot.start, pilot.start + times * self.size)
            if has_all_classes(self.problem, pilot.y):
                break
        self.groups = [plan_group(self.problem, pilot, self.size, self.seed, self.anchor)]

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
        twin.groups = [Group(task, own.capacity, own.extent, own.reserve)]
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
                self.reduced.append(draw_group(smallest, self.size))
        if len(self.reduced) > 1:
            union, weight = unite_coresets(self.reduced), sum(mass for _, mass in self.reduced)
            self.reduced = [(self._fewer(union, self.size), weight)]

    def _fewer(self, coreset: Coreset, size: int) -> Coreset:
        """Return a coreset of a coreset, around the anchor of this stream; it may be of one class only."""
        if len(coreset) <= size:
            return coreset
        task = self.groups[0].task
        task = task._replace(keep=np.ones(task.cells.n_cells), certified=False, width=0.0)
        return draw_again(coreset, task, size)

    # The coreset out

    def coreset(self) -> Coreset:
        """Return a coreset of all rows seen so far; the stream goes on.

        ``details["anchor_risk"]`` and ``details["anchor_lower"]``, where all rows were summarised at one anchor, are
        the worst-case risk of the anchor on all rows seen and a bound that no model can beat on them. Where more than
        65,536 rows may flip the first is an upper bound, a fraction of a per mille above the risk, and
        ``details["anchor_risk_is_exact"]`` is False. After a drift the risk of the new anchor on all rows is not
        known, and ``details`` does not have it; the bound stays.

        Warns
        -----
        DriftWarning
            If the anchor learned from the first rows does not serve the others; see the notes of the class.
        """
        if self.n_rows == 0:
            raise ValueError("No row has arrived yet.")
        self._settle()
        if not self.groups:
            rows = stack_chunks(sorted(self.waiting, key=lambda chunk: chunk.start))
            indices = np.concatenate([np.arange(*span) for span in self.spans])
            weights = np.ones(rows.y.size) if rows.weights is None else rows.weights
            if not weights.any():
                raise ValueError(NO_WEIGHT)
            details = {"message": "fewer rows than the coreset may have: all of them"}
            return Coreset(indices, rows.X, rows.y, normalised(weights), self.n_rows, None, "CoresetStream", details)
        groups = [group for group in self.groups if group.has_weight]
        if not groups and not self.reduced:
            raise ValueError(NO_WEIGHT)
        total = sum(group.n_rows for group in groups) + sum(part.n_rows for part, _ in self.reduced)
        least = max(2, len(self.problem.family.strata))
        shares = [max(least, self.size * group.n_rows // total) for group in groups]
        parts = [draw_group(group, share) for group, share in zip(groups, shares, strict=True)]
        for part, weight in self.reduced:
            parts.append((self._fewer(part, max(least, self.size * part.n_rows // total)), weight))
        found = unite_coresets(parts)
        drifted = self._drifted(groups, found)
        if drifted is not None:
            advice = "For a better one shuffle the rows, or give anchor= a model trained on rows of all parts."
            warnings.warn(f"{drift_text(drifted.excess)} {advice}", DriftWarning, stacklevel=2)
            kept = {name: value for name, value in found.details.items() if not name.startswith("anchor_risk")}
            found = replace(drifted.coreset, details=kept | drifted.coreset.details | {"drift": drifted.excess})
        return replace(found, n_rows=self.n_rows, method="CoresetStream")

    def _drifted(self, groups: list[Group], found: Coreset) -> Drifted | None:
        """Return a coreset around a new anchor where the old one, not a given one, does not serve the rows kept."""
        if found.anchor is None or self.anchor is not None:
            return None
        kept = [kept_rows(group) for group in groups]
        return look_for_drift(self.problem, found.anchor, unite_coresets([*kept, *self.reduced]), self.size, self.seed)

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


def _unite(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of rows, ascending, neighbours put together."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if united and united[-1][1] == start:
            united[-1] = (united[-1][0], stop)
        else:
            united.append((start, stop))
    return united
