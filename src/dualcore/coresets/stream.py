"""`CoresetStream`: a coreset of data that arrive once and are gone.

The first rows teach an anchor. From then on a uniform sample is kept, and the sums over all rows of a read at the
anchor: both merge in any order. `coreset` moves the weights of the sample to these sums, trains a model on it, and
hands out a few of its rows that train the same.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualcore.coresets.anchors import anchor_at, check_size, pilot_sample
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.drift import DriftWarning, drift_text, find_drift
from dualcore.coresets.exact import CoresetBuilder
from dualcore.coresets.matched import MatchedModel
from dualcore.coresets.sample import MOST_NUMBERS
from dualcore.coresets.samplers.base import as_anchor
from dualcore.coresets.streamfile import read_stream, write_stream
from dualcore.coresets.streamgroup import Kept, Seen, StreamPlan, has_all_classes, learning_rows, make_plan
from dualcore.data.arrays import plain_array
from dualcore.data.keys import seed_from
from dualcore.data.rows import SparseRows, as_rows, as_target, check_weight_range
from dualcore.data.sources import ArraySource, Chunk
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Anchor, Problem
from dualcore.reading.leaves import complete_edges, cut_leaves
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.pilot import take_pilot

# Leaves whose other rows have not come that are kept as they are.
_WAITING_LEAVES = 64


class CoresetStream:
    """A coreset of everything that passed by, in bounded memory.

    Parameters
    ----------
    problem : Problem
    size : int, default=5000
        Rows of the coreset. Four times as many are kept as a uniform sample, and at least 4,096.
    anchor : Anchor, Solution or None
        Where ``h`` is summarised. None trains one on the first ``size`` rows, at least 4,096, which are kept until
        then; if they are of one class only, the anchor is the zero model. Where rows move within limits or between
        categories, or a squared hinge flips, training takes long: there neither is more than ``size`` asks for.
    random_state : int, Generator or None
    first_row : int, default=0
        Number of the first row. Streams that are to be merged must number their rows apart: ``2**40 * worker``, say.

    Attributes
    ----------
    notes : dict
        What travels with the state, JSON values only: names of features and labels, for example.

    Notes
    -----
    *What is promised.* The rows kept have the mass, the masses of the classes, the mean ``h``, its mean gradient and
    the transport of all rows seen at the anchor, up to rounding, whatever columns came late: the error of their ``H~``
    is of second order in the distance from the anchor. A column must not be so rare that none of the rows kept has it.
    `coreset` gives ``size`` of them that train the same model as all that are kept. Where they are enough for both,
    about two for each feature, they nearly have these sums.
    A sample of more than 32 million numbers is left as it is. How the rows were cut into updates changes nothing, to
    the last bit.

    *Drift.* Where the anchor learned from the first rows is farther from the model of the rows kept than chance
    explains, a `DriftWarning` says so, and that model is the anchor of the coreset. It comes from a uniform sample that
    is larger than the coreset; the sums over all rows are known at the old anchor only. ``details["drift"]`` holds by
    how much the risk of the old anchor exceeds the least, relatively. An anchor that was given is not questioned.

    *Merging.* Streams with one plan (`sibling`, or loaded from one file) merge exactly: in any order and grouping the
    result is that of one stream that saw all rows. Of a stream that learned another anchor the rows kept are taken in;
    where there are too many of these they are reduced at the anchor of this one, and the risk of the anchor on all rows
    is not known any more. The same happens to rows of leaves that are still not complete when more than 64
    are waiting: number rows apart by a large power of two, and there is one to a stream at most.

    *State.* A uniform sample of ``4 size`` rows or 4,096, the rows of a leaf that is not complete, up to twice as many,
    and some sums.

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
        if isinstance(anchor, Solution):
            anchor = Anchor(anchor.coef, anchor.intercept, anchor.dual_variable)
        self.problem, self.size, self.anchor = problem, int(size), anchor
        self.seed = seed_from(random_state)
        self._next = int(first_row)
        self.spans: list[tuple[int, int]] = []
        self.waiting: list[Chunk] = []
        self.plan: StreamPlan | None = None
        self.seen: Seen | None = None
        self.reduced: Kept | None = None  # rows of streams with other anchors
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
        held = sum(chunk.y.size for chunk in self.waiting)
        held += 0 if self.seen is None else self.seen.sample.y.size
        return held + (0 if self.reduced is None else self.reduced.y.size)

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
        self.spans, self._next = _unite([*self.spans, (chunk.start, stop)]), stop
        self._take([chunk])

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
        shape = (rows.m, isinstance(rows, SparseRows), weights is not None)
        if self.shape is not None and shape != self.shape:
            raise ValueError(
                f"This part has (features, sparse, weighted) = {shape}, the parts before it had {self.shape}."
            )
        self.shape = shape
        block = rows.block(slice(0, rows.n))
        return Chunk(
            self._next, block if isinstance(rows, SparseRows) else np.ascontiguousarray(block), target, weights
        )

    def _take(self, chunks: list[Chunk]) -> None:
        """Take in the leaves that are complete, after learning the anchor if there are rows enough for that."""
        if self.plan is None:
            # Copied: the caller may use the array again.
            self.waiting += [chunk.copy() for chunk in chunks]
            self.plan = self._learned()
            if self.plan is None:
                return
            chunks, self.waiting = self.waiting, []
        if not chunks:
            return
        leaf, whole = self.plan.leaf_of(chunks[0].X), []
        for chunk in chunks:
            middle, edges = cut_leaves(chunk, leaf, None)
            whole += [] if middle is None else [middle]
            self.waiting = self.waiting + edges
        if sum(chunk.y.size for chunk in self.waiting) >= leaf:
            complete, self.waiting = complete_edges(self.waiting, leaf, None)
            whole += complete
        if whole:
            self.seen = self._with(self.plan, whole)
        # Parts of many streams whose rows are numbered far apart do not wait for ever.
        if len({chunk.start // leaf for chunk in self.waiting}) > _WAITING_LEAVES:
            self.waiting.sort(key=lambda chunk: chunk.start)
            early, self.waiting = self.waiting[:-1], self.waiting[-1:]
            self._reduce(self.plan, self.plan.join(self.plan.see(early)))

    def _with(self, plan: StreamPlan, chunks: list[Chunk]) -> Seen | None:
        """Return what was seen with these rows, after which there will be no more of their leaves."""
        with one_blas_thread():
            return plan.join([*([] if self.seen is None else [self.seen]), *plan.see(chunks)])

    def _learned(self) -> StreamPlan | None:
        """Return what the first rows teach, once there are enough of them."""
        wanted = learning_rows(self.problem, self.size, self.shape[0]) if self.shape else 0
        if sum(chunk.y.size for chunk in self.waiting) < max(wanted, 1):
            return None
        first = stack_chunks(sorted(self.waiting, key=lambda chunk: chunk.start))
        return make_plan(self.problem, first.part(first.start, first.start + wanted), self.size, self.seed, self.anchor)

    # Streams together

    def sibling(self, first_row: int) -> CoresetStream:
        """Return an empty stream with the same plan, to be filled elsewhere and merged back without any loss.

        Raises
        ------
        ValueError
            If this stream has not learned from its first rows yet: its anchor, and the scale and centre of rows, which
            it learns from them where an anchor is given too.
        """
        if self.plan is None:
            lacks = "anchor" if self.anchor is None else "scale of the rows"
            raise ValueError(
                f"The {lacks} is not known yet: {self.n_rows} rows have arrived of the first "
                f"{learning_rows(self.problem, self.size, self.shape[0] if self.shape else 1)} that teach it."
            )
        twin = CoresetStream(self.problem, self.size, anchor=self.anchor, first_row=first_row)
        twin.seed, twin.shape, twin.plan = self.seed, self.shape, self.plan
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
        self.spans = _unite([*self.spans, *other.spans])
        self.shape = self.shape or other.shape
        waiting = other.waiting
        if self.plan is None and other.plan is not None:
            self.plan, self.seen, self.seed = other.plan, other.seen, other.seed
            waiting, self.waiting = [*self.waiting, *waiting], []
        elif self.plan is not None and other.plan is not None and self.plan.same_as(other.plan):
            seen = [each for each in (self.seen, other.seen) if each is not None]
            with one_blas_thread():
                self.seen = self.plan.join(seen)
        elif other.plan is not None:
            self._reduce(other.plan, other.seen)
        self._take(waiting)
        if other.reduced is not None:
            self._keep(other.reduced)
        return self

    def _reduce(self, plan: StreamPlan, seen: Seen | None) -> None:
        """Take in the rows kept of another stream, or of leaves that did not come to their end."""
        if seen is not None and seen.mass:  # rows of no weight stand for nothing
            self._keep(plan.kept(seen))

    def _keep(self, rows: Kept) -> None:
        """Keep rows that stand for others, fewer where they are too many."""
        rows = rows if self.reduced is None else Kept.join([self.reduced, rows])
        with one_blas_thread():
            self.reduced = rows if self.plan is None else self.plan.fewer(rows)

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
        waiting = sorted(self.waiting, key=lambda chunk: chunk.start)
        seen = None if self.plan is None else self._with(self.plan, waiting)
        rows = [] if self.reduced is None else [self.reduced]
        if self.plan is None:
            rows += [Kept.of(waiting, 1.0)]
        elif seen is not None and seen.mass:
            rows += [self.plan.kept(seen)]
        if not any(part.masses.any() for part in rows):
            raise ValueError("All rows so far have weight zero.")
        kept = Kept.join(rows)
        if self.plan is None and kept.y.size <= self.size:
            details = {"message": "fewer rows than the coreset may have: all of them"}
            return Coreset(kept.rows, *kept.pilot[1:], self.n_rows, None, "CoresetStream", details)
        found = self._hand_out(kept, None if self.reduced is not None else seen)
        if "drift" in found.details:
            advice = "For a better one shuffle the rows, or give anchor= a model trained on rows of all parts."
            warnings.warn(f"{drift_text(found.details['drift'])} {advice}", DriftWarning, stacklevel=2)
        return found

    def _hand_out(self, kept: Kept, seen: Seen | None) -> Coreset:
        """Return the best coreset of the rows kept, with what is known of its anchor on all rows."""
        problem, rows, plan, m = self.problem, kept.pilot, self.plan, kept.X.shape[1]
        anchor = None if plan is None else plan.task.anchor
        few, also = Coreset(*rows, self.n_rows), list[MatchedModel]()
        details: dict[str, Any] = {"seed": self.seed}
        if plan is not None and seen is not None:
            reading, also = plan.reading(seen), [MatchedModel(problem, plan.task.anchor)]
            details |= _known(reading.risk, reading.lower_bound(reading.risk), reading.is_exact)
        if has_all_classes(problem, rows.y):
            # The last digits of families that move rows take long.
            best = solve_quietly(problem, rows, tol=1e-8 if problem.family.is_closed else 1e-6)
            n_learned = learning_rows(problem, self.size, m)
            if anchor is None:  # all rows are there
                anchor = anchor_at(problem, best) if self.anchor is None else as_anchor(self.anchor, problem, m)
                risk = problem.risk(anchor.coef, anchor.intercept, rows.X, rows.y, rows.weights)
                details |= _known(risk, best.lower_bound, True)
            elif self.anchor is None and (drift := find_drift(problem, anchor, rows, best, n_learned)) is not None:
                anchor, also = anchor_at(problem, best), []
                details = {name: value for name, value in details.items() if not name.startswith("anchor_risk")}
                details["drift"] = drift
            if len(few) > self.size and self.size * m * problem.family.n_outputs <= MOST_NUMBERS:
                source = ArraySource(rows.X, rows.y, rows.weights)
                few = CoresetBuilder(source, [(problem, best)], rows, self.seed, also=also).best(self.size)
        if len(few) > self.size:
            source = ArraySource(rows.X, rows.y, rows.weights, checked=True)
            if has_all_classes(problem, rows.y):
                drawn = pilot_sample(problem, source, self.size, self.seed)
            else:
                drawn = take_pilot(source, (None,), [source.smallest(self.seed, self.size)], [self.size])
            few = Coreset(*drawn, self.n_rows)
        return replace(
            few,
            indices=kept.rows[few.indices],
            n_rows=self.n_rows,
            anchor=anchor,
            method="CoresetStream",
            details=few.details | details,
            excess=None,
            n_reads=0,
        )

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
        read_stream(stream, Path(path), problem)
        return stream


def _known(risk: float, lower: float, is_exact: bool) -> dict[str, Any]:
    """Return what is said of the anchor on all rows."""
    return {"anchor_risk": risk, "anchor_risk_is_exact": is_exact, "anchor_lower": min(lower, risk)}


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def _unite(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of rows, ascending, neighbours put together; rows that are in two of them are refused."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        first, last = united[-1] if united else (start, -1)
        if start < last:
            raise ValueError(
                f"Rows {start} to {min(stop, last) - 1} are in both: streams that are merged must number their rows "
                "apart. Give each its own first_row."
            )
        united[-1:] = [(first, stop)] if start == last else [*united[-1:], (start, stop)]
    return united
