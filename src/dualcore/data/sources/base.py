"""The interface of sources of rows: run a function on chunks and return the results in row order.

A source is a sequence of *pieces* (array slices, row groups, partitions, parts), read one after another or in parallel,
each of which yields chunks. A new source implements `Source._run`; drawing the pilot, fetching rows, checks and the
counting of reads are implemented here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.rows import LARGEST_WEIGHT, SMALLEST_WEIGHT, bad_row
from dualcore.data.sources.chunk import MOST_CLASSES, Chunk, RowError, SourceError, encode, refuse_rows, stack_rows
from dualcore.data.storage import FileState
from dualcore.data.sums import exact_sum, leaf_rows, rounded
from dualcore.data.threads import allowed_threads, one_blas_thread

T = TypeVar("T")
# Functions of a chunk, and of the results of several chunks.
Task = Callable[[Chunk], T]
Merge = Callable[[list[T]], T] | None
# Ascending row numbers; None for all rows.
Wanted = npt.NDArray[np.int64] | None
# Pieces in row order; each is called by a thread and yields its chunks.
Pieces = Iterator[Callable[[], Iterable[Chunk]]]

# Number of results that are collected before they are merged, since merging has an overhead.
BATCH = 64
# Numbers in a chunk: about 4 MiB of float64, small enough for the cache and large enough to hide Python's overhead.
_CHUNK_NUMBERS = 524288


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
    """Return the different values; None if there are too many for classes."""
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
        return [Drawn(*map(np.concatenate, zip(*groups, strict=True))) for groups in zip(*parts, strict=True)]


def take_rows(chunk: Chunk, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
    """Return features and targets of those of the given rows (ascending) that are in a chunk."""
    first, last = np.searchsorted(rows, [chunk.start, chunk.stop])
    at = rows[first:last] - chunk.start
    return chunk.X[at], chunk.y[at]


def join_rows(parts: list[tuple[Any, FloatArray]]) -> tuple[Any, FloatArray]:
    """Return what `take_rows` found in consecutive chunks together."""
    X, y = zip(*([part for part in parts if part[1].size] or parts[:1]), strict=True)
    return stack_rows(X), np.concatenate(y)


class Smallest(NamedTuple):
    """The rows of smallest keys, ascending by key, their masses, and the mass of all rows they were chosen from."""

    rows: npt.NDArray[np.int64]
    masses: FloatArray
    mass: float


class Source(ABC):
    """Rows that can be read more than once.

    Attributes
    ----------
    n_rows : int
    n_features : int
    total_weight : float
        Sum of the row weights (their number, where rows have none); the masses are the weights divided by it.
    n_reads : int
        Number of complete reads of the features; reads of targets alone or of the pieces of a few rows do not count.
    bytes_read : int
        Bytes read from files, as stored there.
    bytes_moved : int
        Bytes transferred over the network, in both directions; 0 for local sources.
    feature_names : tuple of str or None
        Names of the features, where they have one each.
    labels : tuple or None
        The original values of translated targets: two became -1 and +1, more became 0, 1, 2 and so on.
    n_dropped : int
        Rows of the last read that were left out because something is missing.
    target_type : type
        Type of the targets: `float`, `bool`, which are read as 0 and 1, or `str` for texts and other labels.

    Examples
    --------
    >>> from dualcore import open_source
    >>> source = open_source(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> isinstance(source, Source), source.n_rows, source.n_reads
    (True, 3, 0)
    """

    n_features: int
    feature_names: tuple[str, ...] | None = None
    labels: tuple[Any, ...] | None = None
    target_type: type = float
    is_weighted: bool = False
    n_dropped: int = 0
    # Whether targets can be read without the features, and single rows fetched without a read.
    labels_alone: bool = True
    random_access: bool = False
    # The first rows of the pieces that can be read separately.
    _piece_starts: Sequence[int] = (0,)

    def __init__(self) -> None:
        self.n_reads = 0
        self.bytes_read = 0
        self.bytes_moved = 0
        self._n_rows: int | None = None
        self._survey: Survey | None = None
        self._checked = False

    # Implemented by subclasses

    @abstractmethod
    def _run(
        self, function: Task[T], merge: Merge[T] = None, *, features: bool = True, wanted: Wanted = None
    ) -> Iterator[T]:
        """Apply ``function`` to every chunk and yield the results in row order.

        With ``merge`` the results of a piece may be merged where it was read. Without ``features`` the chunks have no
        ``X``. With ``wanted`` pieces that hold none of these (ascending) rows may be left out.
        """

    def describe(self, row: int) -> str:
        """Return a description of where a row came from, for error messages."""
        [piece] = self._touched(np.array([row]))
        name = self._name_of(piece)
        return f"{name} {row - self._piece_starts[piece]} of it" if name else f"row {row}"

    def _name_of(self, piece: int) -> str:
        """Return the name of a piece and its rows; nothing if rows are identified by their numbers only."""
        return ""

    def __repr__(self) -> str:
        n_rows = "an unknown number of" if self._n_rows is None else self._n_rows
        return f"<{type(self).__name__} of {n_rows} rows, {self.n_features} features>"

    def _touched(self, rows: npt.NDArray[np.int64]) -> list[int]:
        """Return which pieces hold these rows."""
        found: list[int] = np.unique(np.searchsorted(self._piece_starts, rows, side="right") - 1).tolist()
        return found

    # What callers use

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        if self._n_rows is None:
            self._n_rows = self.survey().n_rows
        return self._n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the row weights; their number, where rows have none."""
        return self.survey().weight if self.is_weighted else float(self.n_rows)

    def map(self, function: Callable[[Chunk], T]) -> Iterator[T]:
        """Apply ``function`` to every chunk and yield the results in row order. One call is one read."""
        yield from self._read(function, None)

    def fold(self, function: Callable[[Chunk], T], merge: Callable[[list[T]], T]) -> T:
        """Apply ``function`` to every chunk and merge the results, where possible close to the data. One read.

        ``merge`` takes a list of results, of any parts of the data in any order, and returns one.
        """
        waiting: list[T] = []
        for part in self._read(function, merge):
            waiting.append(part)
            if len(waiting) == BATCH:
                waiting = [merge(waiting)]
        if not waiting:
            raise SourceError("The source has no rows.")
        return merge(waiting)

    def _read(self, function: Callable[[Chunk], T], merge: Callable[[list[T]], T] | None) -> Iterator[T]:
        self.check_numbers()
        self.n_reads += 1
        with self.naming_rows():
            yield from self._run(function if self._checked else _Checked(function), merge)
        self._checked = True

    def check_numbers(self) -> None:
        """Raise SourceError if targets are texts."""
        if self.target_type is str:
            how = "labels=(no, yes) of open_source codes them, as classifiers do"
            raise SourceError(f"The targets are not numbers; {how}.")

    @contextmanager
    def naming_rows(self) -> Iterator[None]:
        """Turn a `RowError` into a `SourceError` that states where the row came from."""
        try:
            yield
        except RowError as error:
            raise SourceError(f"{error.problem} ({self.describe(error.row)}).") from None

    def survey(self) -> Survey:
        """Return the number and the mass of all rows and of every class, from the targets alone."""
        if self._survey is None:
            found = Survey.join(list(self.map_targets(survey_chunk, Survey.join)))
            if found.n_rows == 0 or self._n_rows not in (None, found.n_rows):
                raise SourceError(f"The source promised {self._n_rows or 'some'} rows but gave {found.n_rows}.")
            if self.is_weighted and found.weight == 0.0:
                raise SourceError("The weights sum to zero: give at least one row a positive weight.")
            if self.is_weighted and not SMALLEST_WEIGHT <= found.weight <= LARGEST_WEIGHT:
                raise SourceError(f"The weights sum to {found.weight:g}: multiply all of them by one number.")
            self._survey = found
        return self._survey

    def class_survey(self, labels: tuple[float, ...]) -> Survey:
        """Return the number and the mass of the rows of each label, from the targets alone.

        Raises
        ------
        SourceError
            Where a row has none of the labels.
        """
        survey = self.survey()
        known = "the labels -1 and +1" if labels == BOTH else f"classes numbered {labels[0]:g} to {labels[-1]:g}"
        if survey.tallies is None:
            found = f"the target holds more than {MOST_CLASSES} different values"
            raise SourceError(f"A classifier needs {known}; {found}.")
        others = [(tally.first, value) for value, tally in survey.tallies.items() if value not in labels]
        if others:
            row, value = min(others)
            raise SourceError(f"A classifier needs {known}, found {value!r} ({self.describe(row)}).")
        return survey

    def map_targets(self, function: Task[T], merge: Merge[T] = None) -> Iterator[T]:
        """Apply ``function`` to chunks without features, in row order; a read only where targets do not stand alone."""
        self.n_reads += 0 if self.labels_alone else 1
        with self.naming_rows():
            yield from self._run(function, merge, features=False)

    def row_masses(self) -> FloatArray:
        """Return the masses (n_rows,) of all rows; its memory grows with the rows."""
        if not self.is_weighted:
            return np.full(self.n_rows, 1.0 / self.n_rows)
        return np.concatenate(list(self.map_targets(partial(Chunk.masses, total=self.total_weight))))

    def smallest(self, seed: int, size: int, label: float | None = None) -> Smallest:
        """Return the ``size`` rows of smallest keys among those of positive weight (and of one class).

        The keys depend only on the seed and the row number, so every source of the same rows yields the same sample.
        """
        return self.smallest_of_each(seed, (size,), (label,))[0]

    def smallest_of_each(self, seed: int, sizes: tuple[int, ...], labels: tuple[float | None, ...]) -> list[Smallest]:
        """Return the ``sizes`` rows of smallest keys of every label, as `smallest` does for one."""
        survey = self.survey()
        counts, margin, drawn = [survey.count(label) for label in labels], 1.0, list[Drawn]()
        while not drawn or any(part.rows.size < min(k, n) for part, k, n in zip(drawn, sizes, counts, strict=True)):
            # The k-th smallest of n uniform keys is below this with probability about 1 - 1e-9.
            limits = [margin * (k + 6.0 * k**0.5 + 16.0) / max(n, 1) for k, n in zip(sizes, counts, strict=True)]
            task = SmallestTask(seed, tuple(limits), labels)
            drawn, margin = SmallestTask.join(list(self.map_targets(task, SmallestTask.join))), 8.0 * margin
        total, out = self.total_weight, []
        for found, size, label in zip(drawn, sizes, labels, strict=True):
            order = np.lexsort((found.rows, found.keys))[:size]
            out.append(Smallest(found.rows[order], found.weights[order] / total, survey.mass(label) / total))
        return out

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows, given by ascending global number."""
        rows = np.asarray(rows, dtype=np.int64)
        if not rows.size:
            return np.empty((0, self.n_features)), np.empty(0)
        if not self.random_access and len(self._touched(rows)) == len(self._piece_starts):
            self.n_reads += 1  # every piece is read
        with self.naming_rows():
            parts = list(self._run(_Checked(partial(take_rows, rows=rows)), join_rows, wanted=rows))
        return join_rows(parts)


def default_chunk_rows(n_features: int, *, sparse: bool = False) -> int:
    """Return the number of rows of a chunk that fits into the cache: a power of two, and a multiple of a leaf.

    Examples
    --------
    >>> default_chunk_rows(20), default_chunk_rows(5000)
    (32768, 1024)
    """
    wanted = 1 << max(10, round(math.log2(_CHUNK_NUMBERS / n_features)))
    return max(wanted, leaf_rows(n_features, sparse=sparse))


class LocalSource(Source):
    """A source whose pieces are read in this process, by as many threads as BLAS may use.

    A read fails if a file has changed since the source was opened: ``files`` are their states then.
    """

    chunk_rows: int  # rows of a chunk; the result of a read does not depend on it
    files: Sequence[FileState] = ()
    # One thread more than compute, for pieces that have to be waited for.
    extra_threads: int = 0

    @abstractmethod
    def _pieces(self, *, features: bool, wanted: Wanted) -> Pieces:
        """Yield the pieces in row order, with or without features; with ``wanted`` only those that have such rows."""

    def check_files(self) -> None:
        """Raise SourceError if a file has gone or changed since the source was opened."""
        for file in self.files:
            if (difference := file.difference()) is not None:
                raise SourceError(difference)

    def _run(
        self, function: Task[T], merge: Merge[T] = None, *, features: bool = True, wanted: Wanted = None
    ) -> Iterator[T]:
        def work(piece: Callable[[], Iterable[Chunk]]) -> list[T]:
            results = list(map(function, piece()))
            return [merge(results)] if merge is not None and len(results) > 1 else results

        self.check_files()
        threads = allowed_threads() + self.extra_threads
        waiting: deque[Future[list[T]]] = deque()
        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:  # the pool already uses all cores
            try:
                for piece in self._pieces(features=features, wanted=wanted):
                    waiting.append(pool.submit(work, piece))  # the next piece is read while the pool works
                    if len(waiting) > threads:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
        self.check_files()  # again, for files changed during the read


@dataclass(frozen=True)
class _Checked:
    """Calls a function on chunks; raises RowError for values that are not finite or too large."""

    function: Callable[[Chunk], Any]

    def __call__(self, chunk: Chunk) -> Any:
        for block, name in ((chunk.X, "X"), (chunk.y[:, None], "The target")):
            found = None if block is None else bad_row(block)
            if found is not None:
                raise RowError(chunk.start + found[0], f"{name} has {found[1]}; drop, fill or scale such values first")
        return self.function(chunk)
