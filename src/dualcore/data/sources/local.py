"""Sources read by threads of this process: pieces side by side, results in order, reading while computing."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, SourceError
from dualcore.data.storage import FileState
from dualcore.data.sums import leaf_rows
from dualcore.data.threads import allowed_threads, one_blas_thread

T = TypeVar("T")
# Pieces in row order; each is called by a thread and gives its chunks.
Pieces = Iterator[Callable[[], Iterable[Chunk]]]

# Rows of a chunk, times features: about 4 MiB of float64, so that a chunk's products share the cache and what Python
# does once a chunk stays small beside them.
_CHUNK_NUMBERS = 524288


def default_chunk_rows(n_features: int, *, sparse: bool = False) -> int:
    """Return the rows of a chunk that fits the cache: a power of two, and whole leaves.

    Examples
    --------
    >>> default_chunk_rows(20), default_chunk_rows(5000)
    (32768, 1024)
    """
    wanted = 1 << max(10, round(math.log2(_CHUNK_NUMBERS / n_features)))
    return max(wanted, leaf_rows(n_features, sparse=sparse))


class LocalSource(Source):
    """A source whose pieces are read in this process, by as many threads as BLAS is allowed.

    A read fails if a file changes before it is over: ``files`` are as they were when the source was opened.
    """

    chunk_rows: int  # handed to a function at a time; the result of a read does not depend on it
    files: Sequence[FileState] = ()
    # One thread more than compute, for pieces that have to be waited for.
    extra_threads: int = 0

    @abstractmethod
    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        """Yield the pieces in row order, without features unless asked for, or only those that hold wanted rows."""

    def check_files(self) -> None:
        """Raise SourceError if a file has gone or changed since the source was opened."""
        for file in self.files:
            difference = file.difference()
            if difference is not None:
                raise SourceError(difference)

    def _run(
        self,
        function: Callable[[Chunk], T],
        merge: Callable[[list[T]], T] | None = None,
        *,
        features: bool = True,
        wanted: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[T]:
        def work(piece: Callable[[], Iterable[Chunk]]) -> list[T]:
            results = list(map(function, piece()))
            return [merge(results)] if merge is not None and len(results) > 1 else results

        self.check_files()
        threads = allowed_threads() + self.extra_threads
        pieces = self._pieces(features=features, wanted=wanted)
        with one_blas_thread():  # our threads already fill the cores
            if threads <= 1:
                for piece in pieces:
                    yield from work(piece)
            else:
                waiting: deque[Future[list[T]]] = deque()
                with ThreadPoolExecutor(threads) as pool:
                    try:
                        for piece in pieces:  # pieces that come one by one are read here, while the pool computes
                            waiting.append(pool.submit(work, piece))
                            if len(waiting) > threads:
                                yield from waiting.popleft().result()
                        while waiting:
                            yield from waiting.popleft().result()
                    finally:
                        for future in waiting:
                            future.cancel()
        self.check_files()  # what was rewritten meanwhile is noticed too
