"""Rows in Dask arrays and dataframes: partitions are summarised on the workers, and only summaries are transferred.

With a ``distributed.Client`` running the partitions are read by its workers; without one by Dask's own threads. A
worker that dies is replaced by the scheduler: its partitions are read again, by others, with the same result.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from dualcore.data.arrays import plain_array
from dualcore.data.sources.base import BATCH, Merge, Source, Task, Wanted, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError, as_type, type_of

T = TypeVar("T")

# Results that one task merges.
_MERGED = 8


def is_dask(data: Any) -> bool:
    """Whether ``data`` is a Dask collection; does not import Dask."""
    return type(data).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(data, "to_delayed")


@dataclass(frozen=True)
class _Work:
    """The work on a partition, and on the results of several; it is sent once to every worker."""

    function: Callable[[Chunk], Any]
    merge: Callable[[list[Any]], Any] | None
    chunk_rows: int
    features: bool
    names: tuple[list[str], str | None, str | None]  # columns of a dataframe: features, target, weight
    target_type: type

    def read(self, number: int, start: int, X: Any, y: Any, weights: Any) -> list[Any]:
        """Return the results of a partition."""
        features, target, weight = self.names
        y, weights = (y if target is None else X[target]), (weights if weight is None else X[weight])
        X = plain_array("X", X[features] if features else X) if self.features else None
        y = as_type(plain_array("y", y), self.target_type)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if X is not None and len(X) != len(y):
            raise SourceError(f"Partition {number} has {len(X)} rows but {len(y)} targets.")
        if weights is not None:
            weights = np.asarray(plain_array("sample_weight", weights), dtype=np.float64)
        chunks = Chunk(start, X, y, weights).cut(self.chunk_rows)
        if X is not None:  # widened chunk by chunk: a partition of single precision would double
            chunks = (chunk._replace(X=np.ascontiguousarray(chunk.X, dtype=np.float64)) for chunk in chunks)
        return self.join([[self.function(chunk) for chunk in chunks]])

    def join(self, parts: list[list[Any]]) -> list[Any]:
        """Return the results of several partitions, merged if there is a merge function."""
        results = [result for part in parts for result in part]
        return [self.merge(results)] if self.merge is not None and len(results) > 1 else results


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
    chunk_rows : int, optional
        Rows of a chunk, within a partition.

    Notes
    -----
    Partitions are read, not kept: persist the collection first if it fits the workers' memory. Summaries are merged on
    the workers, eight at a time in a tree, so that the client gets one summary for any number of partitions.
    ``bytes_moved`` counts the bytes between the client and the workers: the work, once for every worker, and summaries.
    The only rows transferred are those of the pilot and the coreset, and less than a leaf of rows (see
    `sums.leaf_rows`) at each end of a partition.

    Features that are categories or text are refused: encode them first.

    Examples
    --------
    >>> import dask.array as da
    >>> X, y = da.ones((6, 2), chunks=(4, 2)), da.ones(6, chunks=3)
    >>> DaskSource(X, y).n_rows
    6
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        features: Sequence[str] | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        try:
            import dask
        except ImportError:
            raise ImportError("This source needs Dask. Install it with: pip install 'dualcore[dask]'") from None
        self._dask: Any = dask
        if y is None:
            raise TypeError("A Dask source needs y: a Dask array or series, or the name of a column.")
        self.is_weighted = sample_weight is not None
        opened = self._from_frame if hasattr(X, "columns") else self._from_array
        self.target_type = type_of(opened(X, y, sample_weight, list(features or ())))
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features)
        lengths = self._lengths
        if not all(length == length for length in lengths):  # NaN: Dask does not know it
            count = self._dask.delayed(len)
            lengths = list(self._results([count(block if y is None else y) for block, y, _ in self._labels]))
        *self._piece_starts, self._n_rows = accumulate(map(int, lengths), initial=0)
        if not self._n_rows:
            raise SourceError("The Dask collection has no rows.")

    def _from_frame(self, X: Any, y: Any, weights: Any, features: list[str]) -> Any:
        target, weight = (part if isinstance(part, str) else None for part in (y, weights))
        chosen = features or [name for name in X.columns if name not in (target, weight)]
        aside = [name for name in (target, weight) if name]
        for name in [*chosen, *aside]:
            if name not in list(X.columns):
                raise SourceError(f"The dataframe has no column {name!r}; it has {list(X.columns)[:20]}.")
            if type_of(X.dtypes[name]) is str and (name in chosen or name == weight):
                raise SourceError(f"Column {name!r} is {X.dtypes[name]}, not a number: encode it first.")
        self._names, self.n_features = (chosen, target, weight), len(chosen)
        self.feature_names = tuple(chosen) if all(isinstance(name, str) for name in chosen) else None
        n = X.npartitions
        others = [_blocks(None if isinstance(part, str) else part, n) for part in (y, weights)]
        labels = X[aside].to_delayed() if aside else [None] * n
        self._whole = list(zip(X[list(dict.fromkeys(chosen + aside))].to_delayed(), *others, strict=True))
        self._labels = list(zip(labels, *others, strict=True))
        self._lengths: list[Any] = [float("nan")] * n
        return X.dtypes[target] if target else getattr(y, "dtype", None)

    def _from_array(self, X: Any, y: Any, weights: Any, features: list[str]) -> Any:
        if getattr(X, "ndim", 0) != 2:
            raise SourceError(f"X must have shape (n_rows, n_features), got {getattr(X, 'ndim', 0)} dimension(s).")
        if isinstance(y, str) or isinstance(weights, str) or features:
            raise TypeError("A Dask array has no columns: give y and sample_weight as Dask arrays.")
        if type_of(X.dtype) is str:
            raise SourceError(f"The features are {X.dtype}, not numbers: encode them first.")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        self._names, self.n_features, self._lengths = ([], None, None), int(X.shape[1]), list(X.chunks[0])
        known, others = all(length == length for length in self._lengths), []
        for part in (y, weights):
            if known and hasattr(part, "chunks") and part.chunks[0] != X.chunks[0]:
                part = part.rechunk((X.chunks[0],))
            others.append(_blocks(part, len(self._lengths)))
        self._whole = list(zip(X.to_delayed().ravel().tolist(), *others, strict=True))
        self._labels = [(None, *rest) for _, *rest in self._whole]
        return getattr(y, "dtype", None)

    def _name_of(self, piece: int) -> str:
        return f"partition {piece}, row"

    def _run(
        self, function: Task[T], merge: Merge[T] = None, *, features: bool = True, wanted: Wanted = None
    ) -> Iterator[T]:
        blocks, client = self._whole if features else self._labels, _client()
        pieces = range(len(blocks)) if wanted is None else self._touched(wanted)
        work = _Work(function, merge, self.chunk_rows, features, self._names, self.target_type)
        # The work is an argument of a task, not a part of it, so that a task is small.
        # Results are packed where they are: what is counted is what crosses the network, and numpy places the arrays
        # that are unpacked, so that products with them round as they do everywhere.
        read, join, pack = (self._dask.delayed(call, pure=False) for call in (_Work.read, _Work.join, pickle.dumps))
        shared = self._dask.delayed(work, pure=False, traverse=False)
        tasks = [read(shared, piece, self._piece_starts[piece], *blocks[piece]) for piece in pieces]
        while merge is not None and len(tasks) > 1:
            tasks = [join(shared, tasks[first : first + _MERGED]) for first in range(0, len(tasks), _MERGED)]
        if client is not None:
            from distributed.protocol import pickle as wire

            self.bytes_moved += len(wire.dumps(work)) * len(client.scheduler_info()["workers"])  # type: ignore[no-untyped-call]
        for packed in self._results([pack(task, protocol=5) for task in tasks]):
            self.bytes_moved += 0 if client is None else len(packed)
            yield from pickle.loads(packed)

    def _results(self, tasks: list[Any]) -> Iterator[Any]:
        """Yield the results of tasks in order."""
        client = _client()
        address = getattr(getattr(client, "scheduler", None), "address", "its address")  # a lost client has none
        for first in range(0, len(tasks), BATCH):
            try:
                found = self._dask.compute(*tasks[first : first + BATCH])
            except (CancelledError, OSError, TimeoutError) as error:
                if client is None or isinstance(error, FileNotFoundError):
                    raise
                raise ConnectionError(
                    f"The Dask scheduler at {address} went away during a read, so the read gave nothing. "
                    "Start a cluster, make a new Client and run again."
                ) from error
            yield from found


def _blocks(part: Any, n: int) -> list[Any]:
    """Return the partitions of a Dask array or series; None for each where there is none."""
    if part is None:
        return [None] * n
    if not hasattr(part, "to_delayed"):
        raise TypeError(f"y and sample_weight must be Dask collections like X, got {type(part).__name__}.")
    blocks: list[Any] = np.ravel(part.to_delayed()).tolist()
    if len(blocks) != n:
        raise SourceError(f"X has {n} partitions but y or sample_weight has {len(blocks)}: repartition them alike.")
    return blocks


def _client() -> Any:
    """Return the running ``distributed.Client``, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None
