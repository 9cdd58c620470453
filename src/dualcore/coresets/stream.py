"""`CoresetStream`: a coreset of data that are seen only once.

An anchor is trained on the first rows. From then on a sample of the rows and the sums over all rows at the anchor are
kept; both can be merged in any order. `coreset` corrects the weights of the sample to these sums, trains a model on it,
and returns a few of its rows that reproduce this model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualcore.coresets.anchors import anchor_at, check_size, check_whole
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.exact import CoresetBuilder, Optima
from dualcore.coresets.matched import MatchedModel
from dualcore.coresets.packing import read_packed, write_packed
from dualcore.coresets.sample import MOST_NUMBERS
from dualcore.coresets.streamread import Kept, Seen, StreamRead, has_all_classes, learn, learning_rows
from dualcore.data.keys import seed_from
from dualcore.data.rows import SparseRows, as_row_weights, as_rows, as_target, check_weight_range
from dualcore.data.sources import ArraySource, Chunk
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.leaves import LeafPart
from dualcore.reading.summary import Pass, Summary
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.pilot import Pilot, draw_pilot, take_pilot

_FORMAT = 9


class DriftWarning(UserWarning):
    """The distribution of a stream's rows has changed so much that its anchor is far from the optimum."""


class CoresetStream:
    """A coreset of all rows of a stream, in bounded memory.

    Parameters
    ----------
    problem : Problem
    size : int, default=5000
        Rows of the coreset. Four times as many are kept as a uniform sample, and at least 4,096.
    anchor : Anchor, Solution or None
        The model at which ``h`` is summed. None trains one on the first ``size`` rows, at least 4,096, which are kept
        until then; if they are of one class only, the anchor is the zero model. On a box, with categories, and for the
        squared hinge with flips training is slow: there the minimum of 4,096 rows does not apply.
    random_state : int, Generator or None
    first_row : int, default=0
        Number of the first row. Streams to be merged must have different row numbers: ``2**40 * worker``, for example.

    Attributes
    ----------
    next_row : int
        Number of the next row to arrive: after `load`, where to continue.
    notes : dict
        Values saved with the state, JSON only: names of features and labels, for example.

    Notes
    -----
    *Guarantee.* At the anchor the kept rows have the mass, the masses of the classes, the mean ``h``, its mean gradient
    and the transport of all rows seen, up to rounding. So the error of their objective is of second order in the
    distance from the anchor. This does not hold for a column so rare that it is zero in all kept rows. `coreset`
    returns ``size`` rows that train the same model as all kept rows. If ``size`` is at least about two rows per
    feature, they nearly have the sums at the anchor too.
    A sample of more than 32 million numbers is not corrected. The result does not depend on how the rows are split into
    updates, to the last bit.

    *Drift.* If the anchor learned from the first rows is farther from the model of the kept rows than chance explains,
    a `DriftWarning` is issued, and that model is the anchor of the coreset. It is trained on a uniform sample larger
    than the coreset; the sums over all rows are known at the old anchor only. ``details["drift"]`` is the relative
    excess risk of the old anchor. An anchor passed by the caller is not tested.

    *Merging.* Streams with the same anchor (by `sibling`, or loaded from one file) merge exactly: in any order and
    grouping the result is that of one stream of all rows. It is equal to the last bit as long as at most 64 leaves are
    incomplete; with first rows at multiples of a large power of two there is at most one per stream. From a stream with
    another anchor the kept rows are added with their weights, and the risk of the anchor on all rows is then unknown.

    *State.* A sample of ``4 size`` rows, at least 4,096, the rows of an incomplete leaf, up to twice as many, and some
    sums. The sample is uniform; rows of larger weight are more likely to be in it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> stream = CoresetStream(Problem("logistic", radius=0.1), size=100, random_state=0)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(500, 2))
    ...     stream.update(X, np.where(X[:, 0] + rng.normal(size=500) > 0, 1.0, -1.0))
    >>> stream.coreset()
    <Coreset of 99 rows for 10000, by CoresetStream>
    """

    def __init__(
        self, problem: Problem, size: int = 5000, *, anchor: Any = None, random_state: Any = 0, first_row: int = 0
    ) -> None:
        check_whole("size", size, 2)
        check_size(problem, size)
        check_whole("first_row", first_row, 0)
        if isinstance(anchor, Solution):
            anchor = Anchor(anchor.coef, anchor.intercept, anchor.dual_variable)
        self.problem, self.size, self.anchor = problem, int(size), anchor
        self.seed = seed_from(random_state)
        self.next_row = int(first_row)
        self.spans: list[tuple[int, int]] = []
        self.read: StreamRead | None = None  # None until the anchor is trained; the first rows are kept as edges
        self.state = LeafPart[Seen]([], [])
        self.is_exact = True  # whether all rows were summed at one anchor
        self.shape: tuple[int, bool, bool] | None = None  # features, sparse, weighted
        self.notes: dict[str, Any] = {}

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return sum(stop - start for start, stop in self.spans)

    def __repr__(self) -> str:
        return f"<CoresetStream of size {self.size}: {self.n_rows} rows seen, {self.state_rows} kept>"

    @property
    def state_rows(self) -> int:
        """Number of rows kept."""
        found, edges = self.state
        return sum(seen.sample.y.size for seen in found) + sum(chunk.y.size for chunk in edges)

    # Rows in

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        """Add a part of the data, which may be empty or have one class only. If an error is raised, nothing is added.

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
        self.spans, self.next_row = _unite([*self.spans, (chunk.start, chunk.stop)]), chunk.stop
        self._take([chunk])

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Chunk:
        rows = as_rows(X)
        rows.check_finite()
        # Checked at once: rows are seen only once, so an invalid part cannot be removed later.
        self.problem.check_width(rows.m)
        self.problem.family.check_rows(rows, first=self.next_row)
        target = as_target(y, rows.n)
        wrong = self.problem.family.first_wrong_label(target)
        if wrong is not None:
            raise ValueError(f"{self.problem.family.label_fault(float(target[wrong]))} in y.")
        weights = None if sample_weight is None else as_row_weights(sample_weight, rows.n)
        if weights is not None:
            check_weight_range("sample_weight", weights)
        self._share_shape((rows.m, isinstance(rows, SparseRows), weights is not None))
        chunk = ArraySource(rows, target, weights, checked=True).chunk(slice(0, rows.n), features=True)
        return chunk._replace(start=self.next_row)

    def _share_shape(self, shape: tuple[int, bool, bool] | None) -> None:
        """Raise ValueError if rows differ in features, sparsity or weights from the previous ones."""
        if shape is not None and self.shape not in (None, shape):
            raise ValueError(f"Rows have (features, sparse, weighted) = {shape}, those before had {self.shape}.")
        self.shape = shape or self.shape

    def _take(self, chunks: list[Chunk], found: Sequence[Seen] = ()) -> None:
        """Add rows, after training the anchor if there are enough, and the state ``found`` of other streams."""
        if self.read is None:
            # Copied: the caller may use the array again.
            chunks = sorted([*self.state.edges, *(chunk.copy() for chunk in chunks)], key=lambda chunk: chunk.start)
            if sum(chunk.y.size for chunk in chunks) < self._n_learning:
                self.state = LeafPart([], chunks)
                return
            self.read, self.state = self._learned(chunks), LeafPart([], [])
        self.state = self.read.add(self.state, chunks, found)

    @property
    def _n_learning(self) -> int:
        """Number of rows on which the anchor is trained."""
        return learning_rows(self.problem, self.size, self.shape[0] if self.shape else 1)

    def _learned(self, chunks: list[Chunk]) -> StreamRead:
        """Return the read at the anchor trained on the first rows."""
        first = stack_chunks(chunks)
        first = first.part(first.start, first.start + self._n_learning)
        return learn(self.problem, first, self.size, self.seed, self.anchor)

    # Streams together

    def sibling(self, first_row: int) -> CoresetStream:
        """Return an empty stream with the same anchor, to be filled elsewhere and merged back exactly.

        Raises
        ------
        ValueError
            If too few rows have arrived to train the anchor and to compute the scale and centre of rows, which are
            needed with a given anchor too.
        """
        if self.read is None:
            come = f"{self.n_rows} rows have arrived of the first {self._n_learning} that teach them"
            raise ValueError(f"The anchor and the scale of the rows are not known yet: {come}.")
        twin = CoresetStream(self.problem, self.size, anchor=self.anchor, first_row=first_row)
        twin.seed, twin.shape, twin.read = self.seed, self.shape, self.read
        return twin

    def merge(self, other: CoresetStream) -> CoresetStream:
        """Add everything the other stream has seen, and return this one; the other is not changed.

        Raises
        ------
        ValueError
            If the two have different problems or sizes, or common row numbers.
        """
        if not isinstance(other, CoresetStream):
            raise TypeError(f"Only a CoresetStream can be merged, got {type(other).__name__}.")
        if (self.problem, self.size) != (other.problem, other.size):
            both = " and ".join(f"{each.problem!r} of size {each.size}" for each in (self, other))
            raise ValueError(f"Streams of different problems or sizes cannot be merged: {both}.")
        spans = _unite([*self.spans, *other.spans])
        self._share_shape(other.shape)
        self.spans = spans
        self.is_exact = self.is_exact and other.is_exact
        found, chunks = other.state
        if self.read is None and other.read is not None:
            chunks, self.state = [*self.state.edges, *chunks], LeafPart([], [])
            self.read, self.seed = other.read, other.seed
        elif self.read is not None and other.read is not None and found and not self.read.same_as(other.read):
            rows, self.is_exact = other.read.kept(found[0]), False
            found = [self.read.stand_in(rows)] if rows.y.size else []  # empty if all rows have weight zero
        self._take(chunks, found)
        return self

    # The coreset out

    def coreset(self) -> Coreset:
        """Return a coreset of all rows seen so far; further rows may be added afterwards.

        If all rows were summed at one anchor, ``details["anchor_risk"]`` is the worst-case risk of the anchor on all
        rows seen, and ``details["anchor_lower"]`` a lower bound on the risk of every model on them. If more than 65,536
        rows may flip, the first is an upper bound, a fraction of a per mille above the risk, and
        ``details["anchor_risk_is_exact"]`` is False. After a drift the risk of the new anchor on all rows is not known
        and not in ``details``; the lower bound remains.

        Warns
        -----
        DriftWarning
            If the anchor learned from the first rows is far from the optimum of all; see the notes of the class.
        """
        if self.n_rows == 0:
            raise ValueError("No row has arrived yet.")
        read, state = self.read, self.state
        if read is None and self.n_rows <= self.size:
            return self._all_of(Kept.join(Kept.of(chunk, 1.0) for chunk in state.edges))
        if read is None:
            read = self._learned(state.edges)
            state = read.add(LeafPart([], []), state.edges)
        seen = read.seen(state)
        kept = read.kept(seen)
        if kept.y.size <= self.size:
            return self._all_of(kept)
        found = self._hand_out(read, seen, kept)
        if "drift" in found.details:
            warnings.warn(drift_text(found.details["drift"]), DriftWarning, stacklevel=2)
        return found

    def _all_of(self, kept: Kept) -> Coreset:
        if not kept.weights.any():
            raise ValueError("All rows so far have weight zero.")
        rows = kept._replace(weights=normalised(kept.weights))
        details = {"message": "fewer rows than the coreset may have: all of them"}
        return Coreset(*rows, self.n_rows, None, "CoresetStream", details)

    def _hand_out(self, read: StreamRead, seen: Seen, kept: Kept) -> Coreset:
        """Return the best coreset of the kept rows, with risk and bound of its anchor on all rows in the details."""
        problem, size, anchor, details = self.problem, self.size, read.task.anchor, dict[str, Any](seed=self.seed)
        rows = Pilot(np.arange(kept.y.size), kept.X, kept.y, normalised(kept.weights))
        source, also = ArraySource(rows.X, rows.y, rows.weights, checked=True), [MatchedModel(problem, anchor)]
        if has_all_classes(problem, rows.y):
            # Families without a closed form take long to solve to a smaller gap.
            best = solve_quietly(problem, rows, tol=1e-8 if problem.family.is_closed else 1e-6)
            drift = find_drift(problem, anchor, rows, best, read.n_learned) if self.anchor is None else None
            if drift is not None:
                anchor, also, details["drift"] = anchor_at(problem, best), [], drift
            if size * source.n_features * problem.family.n_outputs <= MOST_NUMBERS:
                few = CoresetBuilder(source, Optima([(problem, best)], rows, self.seed, size), also=also).best()
            else:
                few = Coreset(*draw_pilot(problem, source, size, self.seed), self.n_rows)
        else:
            few = Coreset(*take_pilot(source, (None,), [source.smallest(self.seed, size)], [size]), self.n_rows)
        if self.is_exact:
            reading = read.reading(seen)
            details["anchor_lower"] = min(reading.lower_bound(reading.risk), reading.risk)
            if "drift" not in details:
                details |= {"anchor_risk": reading.risk, "anchor_risk_is_exact": reading.is_exact}
        few = replace(few, indices=kept.rows[few.indices], n_rows=self.n_rows, excess=None, n_reads=0)
        return replace(few, anchor=anchor, method="CoresetStream", details=few.details | details)

    # Rest

    def save(self, path: str | Path) -> None:
        """Write the state to one file: arrays and a JSON header, atomically, without pickle."""
        state = {name: value for name, value in vars(self).items() if name != "problem"}
        write_packed(path, _FORMAT, state | {"about": repr(self.problem)})

    @classmethod
    def load(cls, path: str | Path, problem: Problem) -> CoresetStream:
        """Read a file written by `save`; `update` continues the stream.

        Parameters
        ----------
        path : str or Path
        problem : Problem
            The problem of the saved stream; another one raises ValueError.
        """
        state = _read_state(path, problem)
        about = state.pop("about")
        if about != repr(problem):
            raise ValueError(f"{Path(path).name} is about {about}, not about {problem!r}.")
        stream = cls.__new__(cls)
        vars(stream).update(state, problem=problem)
        return stream


def read_notes(path: Path) -> Any:
    """Return only the notes of a stream, which may describe the problem that `CoresetStream.load` needs."""
    return _read_state(path, None)["notes"]


def _read_state(path: str | Path, problem: Problem | None) -> Any:
    """Return the attributes of a stream."""
    classes = Anchor, Chunk, FlipTail, Kept, LeafPart, Pass, Seen, StreamRead, Summary, TreeSum
    return read_packed(path, _FORMAT, "file written by CoresetStream.save", classes, problem)


def _unite(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of rows, ascending, with adjacent spans joined; raise ValueError if spans overlap."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        last = united[-1][1] if united else start - 1
        if start < last:
            both = f"Rows {start} to {min(stop, last) - 1} are in both"
            raise ValueError(f"{both}: streams that are merged must number their rows apart. Give each a first_row.")
        united.append((united.pop()[0] if start == last else start, stop))
    return united


def drift_text(excess: float) -> str:
    """Return the message of a `DriftWarning`; ``excess`` is the relative excess risk of the anchor on the kept rows."""
    return (
        "The first rows do not stand for all: on the rows kept, the anchor learned from them has a risk "
        f"{excess:.1%} above the least. The coreset was drawn from them around a new anchor, at which the sums over "
        "all rows are not known. For a better one shuffle the rows."
    )


def find_drift(problem: Problem, anchor: Anchor, rows: Pilot, best: Solution, size: float) -> float | None:
    r"""Return the relative excess risk of an anchor on ``rows``, or None if chance explains it.

    The risk of an anchor trained on ``size`` rows of the same distribution exceeds the minimum by about
    ``tr(H^-1 G) / (2 size)``, with ``H`` the Hessian of the risk and ``G`` the covariance of the gradients of rows. Let
    ``d_i`` be the difference of ``h_i`` between both models. Where ``G`` is proportional to ``H``,

    .. math:: 4 \, \text{size} \, \frac{(R(\text{anchor}) - R(\text{best}))^2}{\text{Var}(d)}

    is close to the number of parameters, in any unit of the loss. It grows with the square of the distance between the
    models.

    ``rows`` are all kept rows, weighted to represent all rows seen, and ``best`` is their optimum.
    """
    found = problem.minimum(anchor.coef, anchor.intercept, rows.data)
    excess = found.value - best.value
    if not excess > 1e-3 * abs(best.value):  # close enough, whether or not chance explains it
        return None
    there = anchor_at(problem, best)
    lam = problem.family.feasible_multiplier(anchor.coef, found.multiplier)
    differences = problem.h(anchor.coef, anchor.intercept, lam, rows.X, rows.y) - problem.h(
        there.coef, there.intercept, there.multiplier, rows.X, rows.y
    )
    variance = float(rows.weights @ (differences - rows.weights @ differences) ** 2)
    n_parameters = problem.family.n_outputs * (rows.X.shape[1] + 1)
    likely = n_parameters + 4.0 * np.sqrt(2.0 * n_parameters)
    if 4.0 * size * excess**2 <= 4.0 * likely * variance:  # up to twice the distance that chance explains
        return None
    return float(excess / max(abs(best.value), np.finfo(float).tiny))
