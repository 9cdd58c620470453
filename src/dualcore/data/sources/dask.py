"""Rows in Dask arrays and dataframes: every partition is summarised where it is, and only summaries travel.

With a ``distributed.Client`` running the partitions are read by its workers; without one by Dask's own threads. A
worker that dies is replaced by the scheduler: its partitions are read again, by others, with the same result.
"""

from __future__ import annotations

import bisect
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import plain_array
from dualcore.data.sources.base import Source, default_chunk_rows, touched
from dualcore.data.sources.chunk import Chunk, SourceError, as_targets, check_labels, encode

T = TypeVar("T")

# Partitions computed at a time where there is no client to keep them in flight.
_BATCH = 64


def is_dask(data: Any) -> bool:
    """Whether ``data`` is a Dask collection; does not import Dask."""
    return type(data).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(data, "to_delayed")


@dataclass(frozen=True)
class _Work:
    """What a worker does with a partition; it travels to the workers, so it is small."""

    function: Callable[[Chunk], Any]
    merge: Callable[[list[Any]], Any] | None
    chunk_rows: int
    features: bool
    names: tuple[list[str], str | None, str | None] | None  # columns of a dataframe: features, target, weight
    packed: bool
    labels: tuple[Any, ...] | None = None

    def __call__(self, number: int, start: int, X: Any, y: Any, weights: Any) -> Any:
        chunks = self._chunks(*self._arrays(number, start, X, y, weights), start)
        results = [self.function(chunk) for chunk in chunks]
        if self.merge is not None and len(results) > 1:
            results = [self.merge(results)]
        # Packed here, so that what is counted is what crosses the network.
        return pickle.dumps(results, protocol=5) if self.packed else results

    def _arrays(self, number: int, start: int, X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
        if self.names is not None:
            features, target, weight = self.names
            frame = X
            X = frame[features] if self.features else None
            y = y if target is None else frame[target]
            weights = weights if weight is None else frame[weight]
        y = _vector(y) if self.labels is not None else np.asarray(plain_array("y", y), dtype=np.float64)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if self.labels is not None:
            y = as_targets(encode(y, self.labels, start), len(self.labels))
        if self.features:
            X = plain_array("X", X)  # widened chunk by chunk: a partition of single precision would double
            if len(X) != len(y):
                raise SourceError(f"Partition {number} has {len(X)} rows but {len(y)} targets.")
        else:
            X = None
        if weights is not None:
            weights = np.asarray(plain_array("sample_weight", weights), dtype=np.float64)
        return X, y, weights

    def _chunks(self, X: Any, y: Any, weights: Any, start: int) -> Iterator[Chunk]:
        for chunk in Chunk(start, X, y, weights).cut(self.chunk_rows):
            yield chunk if X is None else chunk._replace(X=np.ascontiguousarray(chunk.X, dtype=np.float64))


def _vector(y: Any) -> npt.NDArray[Any]:
    """Return targets of any kind as an array of plain values."""
    return np.asarray(y, dtype=object)


def _values(part: Any, name: str | None) -> set[Any]:
    """Return the different targets of a partition; what is missing is none."""
    found = np.ravel(_vector(part if name is None else part[name]))
    missing = [value is None or value != value or type(value).__name__ in ("NAType", "NaTType") for value in found]
    return set(found[~np.array(missing, dtype=bool)].tolist())


class DaskSource(Source):
    """A Dask array and its targets, or a Dask dataframe.

    Parameters
    ----------
    X : dask array of shape (n_rows, n_features), or dask dataframe
    y : dask array, dask series, or str
        A name: that column of the dataframe.
    sample_weight : dask array, dask series, str or None
    features : sequence of str, optional
        Columns of the dataframe; all but target and weight by default.
    labels : sequence or "find", optional
        The values of a classifier's target: two become -1 and +1, more their places 0, 1, 2 and so on. "find" reads
        them off a target of texts or truth values.
    chunk_rows : int, optional
        Rows computed with at a time, within a partition.

    Notes
    -----
    Partitions are read, not kept: persist the collection first if it fits the workers' memory. ``bytes_moved`` counts
    what crossed the network between the client and the workers: tasks on the way out, summaries on the way back. Of
    rows only the pilot's and the coreset's travel, and less than a leaf of rows (see `sums.leaf_rows`) at either end
    of a partition.

    Features that are categories or text are refused: encode them first.

    Examples
    --------
    >>> import dask.array as da
    >>> X, y = da.ones((6, 2), chunks=(4, 2)), da.ones(6, chunks=3)
    >>> DaskSource(X, y).n_rows
    6
    """

    _text_target = False

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        features: Sequence[str] | None = None,
        labels: Sequence[Any] | str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        self._any_target = labels is not None
        try:
            import dask
        except ImportError:
            raise ImportError("This source needs Dask. Install it with: pip install 'dualcore[dask]'") from None
        self._dask: Any = dask
        if y is None:
            raise TypeError("A Dask source needs y: a Dask array or series, or the name of a column.")
        self.is_weighted = sample_weight is not None
        self._names: tuple[list[str], str | None, str | None] | None = None
        if hasattr(X, "columns"):
            self._from_frame(X, y, sample_weight, features)
        else:
            self._from_array(X, y, sample_weight)
        self.chunk_rows, self._n_pieces = chunk_rows or default_chunk_rows(self.n_features), len(self._whole)
        self._offsets: list[int] | None = None
        if all(length == length for length in self._lengths):  # NaN: not known yet
            self._number([int(length) for length in self._lengths])
        if isinstance(labels, str):
            self.labels = self._find_labels() if self._text_target else None
        elif labels is not None:
            self.labels = tuple(labels)

    def _find_labels(self) -> tuple[Any, ...]:
        """Return the values of a target of text; every worker looks at its own partitions."""
        self.partial_reads += self._label_share()
        name = None if self._names is None else self._names[1]
        find = self._dask.delayed(_values, pure=False)
        tasks = [find(block if y is None else y, name if y is None else None) for block, y, _ in self._labels]
        return check_labels(set().union(*self._results(tasks)), "The target")

    def _from_frame(self, X: Any, y: Any, weights: Any, features: Sequence[str] | None) -> None:
        target, weight = y if isinstance(y, str) else None, weights if isinstance(weights, str) else None
        chosen = list(features) if features else [c for c in X.columns if c not in (target, weight)]
        for name in [*chosen, *([target] if target else []), *([weight] if weight else [])]:
            if name not in list(X.columns):
                raise SourceError(f"The dataframe has no column {name!r}; it has {list(X.columns)[:20]}.")
            if getattr(X.dtypes[name], "kind", "O") not in "fiub":
                if name == target and self._any_target:
                    self._text_target = True
                    continue
                raise SourceError(f"Column {name!r} is {X.dtypes[name]}, not a number: encode it first.")
        if self._any_target and target is None:
            self._text_target = _is_text(y)
        self._names, self.n_features = (chosen, target, weight), len(chosen)
        self.feature_names = tuple(chosen) if all(isinstance(name, str) for name in chosen) else None
        aside = [name for name in (target, weight) if name]
        n = X.npartitions
        whole = X[list(dict.fromkeys(chosen + aside))].to_delayed()
        labels = X[aside].to_delayed() if aside else [None] * n
        others = [
            _blocks(part, n) if part is not None and not isinstance(part, str) else [None] * n for part in (y, weights)
        ]
        self._whole = list(zip(whole, *others, strict=True))
        self._labels = list(zip(labels, *others, strict=True))
        self._lengths: list[Any] = [float("nan")] * n

    def _from_array(self, X: Any, y: Any, weights: Any) -> None:
        if getattr(X, "ndim", 0) != 2:
            raise SourceError(f"X must have shape (n_rows, n_features), got {getattr(X, 'ndim', 0)} dimension(s).")
        if isinstance(y, str) or isinstance(weights, str):
            raise TypeError("A Dask array has no columns: give y and sample_weight as Dask arrays.")
        if X.dtype.kind not in "fiub":
            raise SourceError(f"The features are {X.dtype}, not numbers: encode them first.")
        self._text_target = _is_text(y)
        if self._text_target and not self._any_target:
            raise SourceError(
                f"The targets are {y.dtype}, not numbers: give labels=(negative, positive) to map two values to -1 and "
                "+1."
            )
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        self.n_features, self._lengths = int(X.shape[1]), list(X.chunks[0])
        known = all(length == length for length in self._lengths)
        others = []
        for part in (y, weights):
            if part is None:
                others.append([None] * len(self._lengths))
                continue
            if known and hasattr(part, "chunks") and part.chunks[0] != X.chunks[0]:
                part = part.rechunk((X.chunks[0],))
            others.append(_blocks(part, len(self._lengths)))
        blocks = X.to_delayed().ravel().tolist()
        self._whole = list(zip(blocks, *others, strict=True))
        self._labels = [(None, *rest) for _, *rest in self._whole]

    def _number(self, lengths: list[int]) -> None:
        self._counts = lengths
        self._offsets = [0, *accumulate(lengths)]
        self._n_rows = self._offsets[-1]
        if self._n_rows == 0:
            raise SourceError("The Dask collection has no rows.")

    def _starts(self) -> list[int]:
        """Return the global number of each partition's first row; counts the rows if nobody knows them."""
        if self._offsets is None:
            self.partial_reads += self._label_share()
            tasks = [self._dask.delayed(len)(block if y is None else y) for block, y, _ in self._labels]
            self._number(list(self._results(tasks)))
        return self._offsets or []

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self._starts()[-1]

    def describe(self, row: int) -> str:
        starts = self._starts()
        place = bisect.bisect_right(starts, row, hi=len(starts) - 1) - 1
        return f"partition {place}, row {row - starts[place]} of it"

    def _label_share(self) -> float:
        return 1.0 / (self.n_features + 1)

    def _take_share(self, rows: npt.NDArray[np.int64]) -> float:
        return len(self._touched(rows)) / sum(count > 0 for count in self._counts)

    def _touched(self, rows: npt.NDArray[np.int64]) -> list[int]:
        return touched(self._starts()[:-1], rows)

    def _run(
        self,
        function: Callable[[Chunk], T],
        merge: Callable[[list[T]], T] | None = None,
        *,
        features: bool = True,
        wanted: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[T]:
        starts = self._starts()
        places: Iterable[int] = range(len(self._whole)) if wanted is None else self._touched(wanted)
        packed = _client() is not None
        work = _Work(function, merge, self.chunk_rows, features, self._names, packed, self.labels)
        if packed:
            from distributed.protocol import pickle as wire

            self.bytes_moved += len(wire.dumps(work)) * len(list(places))  # type: ignore[no-untyped-call]
        token, run = uuid.uuid4().hex, self._dask.delayed(work, pure=False, traverse=False)
        blocks = self._whole if features else self._labels
        tasks = [
            run(place, starts[place], *blocks[place], dask_key_name=f"dualcore-read-{token}-{place}")
            for place in places
            if self._counts[place]
        ]
        for results in self._results(tasks):
            if isinstance(results, bytes):
                self.bytes_moved += len(results)
                results = pickle.loads(results)
            yield from results

    def _results(self, tasks: list[Any]) -> Iterator[Any]:
        """Yield the results of tasks in order."""
        client = _client()
        if client is None:
            for first in range(0, len(tasks), _BATCH):
                yield from self._dask.compute(*tasks[first : first + _BATCH])
            return
        address = getattr(getattr(client, "scheduler", None), "address", "its address")
        futures: list[Any] = []
        try:
            futures = client.compute(tasks)
            for place in range(len(futures)):
                future, futures[place] = futures[place], None
                yield future.result()
        except (CancelledError, OSError, TimeoutError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ConnectionError(
                f"The Dask scheduler at {address} went away during a read, so the read gave nothing. "
                "Start a cluster, make a new Client and run again."
            ) from error
        finally:
            waiting = [future for future in futures if future is not None]
            if waiting and getattr(client, "status", "") == "running":
                client.cancel(waiting)


def _is_text(y: Any) -> bool:
    return getattr(getattr(y, "dtype", None), "kind", "f") not in "fiub"


def _blocks(part: Any, n: int) -> list[Any]:
    """Return the partitions of a Dask array or series."""
    if not hasattr(part, "to_delayed"):
        raise TypeError(f"y and sample_weight must be Dask collections like X, got {type(part).__name__}.")
    blocks: list[Any] = np.ravel(part.to_delayed()).tolist()
    if len(blocks) != n:
        raise SourceError(f"X has {n} partitions but y or sample_weight has {len(blocks)}: repartition them alike.")
    return blocks


def _client() -> Any:
    """Return the running ``distributed.Client``, or None."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None
