"""Rows that a Python iterable hands out, part by part, as often as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.rows import as_row_weights
from dualcore.data.sources.base import LocalSource, Pieces, Wanted, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError, stack_chunks, type_of
from dualcore.data.sources.memory import ArraySource


class PartsSource(LocalSource):
    """Parts ``(X, y)`` or ``(X, y, weights)`` from something that can be iterated again and again.

    Parameters
    ----------
    parts : callable or iterable
        A function that returns a new iterator each time it is called, or an object (a list, a data loader) that can be
        iterated more than once. It must give the same rows in the same order every time. A generator cannot: for data
        that come once, use `CoresetStream`.
    chunk_rows : int, optional
        Rows computed with at a time. Smaller parts are put together, larger ones are cut.

    Notes
    -----
    A part may be empty, or hold one class only. How many rows there are is not known before the end, so the first use
    counts them in one read; the pilot draw is another. Memory: a few parts at a time.

    Examples
    --------
    >>> def parts():
    ...     for k in range(3):
    ...         yield np.full((2, 1), float(k)), np.array([-1.0, 1.0])
    >>> source = PartsSource(parts)
    >>> source.n_rows, source.n_features
    (6, 1)
    """

    labels_alone = False

    def __init__(self, parts: Callable[[], Iterable[Any]] | Iterable[Any], *, chunk_rows: int | None = None) -> None:
        super().__init__()
        if not callable(parts) and iter(parts) is parts:
            raise TypeError(
                "The parts are an iterator, which can be read once only. Give a function that returns a new one, "
                "or feed the parts to CoresetStream, which reads them once."
            )
        self._parts: Any = parts
        first = next((part for part in self._all() if part.y.size), None)
        if first is None:
            raise SourceError("The parts hold no rows.")
        self.n_features, self._sparse = first.X.shape[1], sp.issparse(first.X)
        self.is_weighted, self.target_type = first.weights is not None, type_of(first.y.dtype)
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features, sparse=self._sparse)

    def describe(self, row: int) -> str:
        position = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"part {position}, row {row - self._starts[position]} of it"

    def _all(self) -> Iterator[Chunk]:
        """Yield all parts, checked, numbered and converted."""
        start, first, self._starts = 0, None, list[int]()
        for number, part in enumerate(self._parts() if callable(self._parts) else self._parts):
            self._starts.append(start)
            chunk = _as_chunk(part, start, f"Part {number}")
            if chunk.y.size:
                kind = chunk.X.shape[1], chunk.weights is not None, sp.issparse(chunk.X)
                first = first or kind
                if kind != first:
                    what = "({} features, weighted: {}, sparse: {})".format
                    raise SourceError(f"Part {number} {what(*kind)} is not like the first {what(*first)}.")
            yield chunk
            start += chunk.y.size

    def _pieces(self, *, features: bool, wanted: Wanted) -> Pieces:
        n_rows, small = 0, list[Chunk]()
        for part in (part for part in self._all() if part.y.size):
            n_rows += part.y.size
            small.append(part if features else part._replace(X=None))
            if sum(chunk.y.size for chunk in small) >= self.chunk_rows:
                yield partial(stack_chunks(small).cut, self.chunk_rows)
                small = []
        if small:
            yield partial(stack_chunks(small).cut, self.chunk_rows)
        if self._n_rows is not None and n_rows != self._n_rows:
            raise SourceError(f"The parts hold {n_rows} rows now but held {self._n_rows} before: they must not change.")


def _as_chunk(part: Any, start: int, name: str) -> Chunk:
    """Return a part ``(X, y)`` or ``(X, y, weights)`` as float64 rows."""
    if not isinstance(part, (tuple, list)) or len(part) not in (2, 3):
        raise SourceError(f"{name} must be (X, y) or (X, y, weights), got {type(part).__name__}.")
    if not len(part[1]):
        return Chunk(start, np.empty((0, 0)), np.empty(0), None)
    try:
        rows = ArraySource(part[0], part[1])
        weights = None if len(part) == 2 or part[2] is None else as_row_weights(part[2], rows.n_rows)
    except ValueError as error:
        raise SourceError(f"{name}: {error}") from None
    return rows.chunk(slice(0, rows.n_rows), features=True)._replace(start=start, weights=weights)
