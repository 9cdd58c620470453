"""What passes between a source and the functions that run on it: chunks of rows, and errors about a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray


class SourceError(ValueError):
    """A source cannot be read; the message names the row or file and what to do."""


class ClassError(SourceError):
    """A target that does not hold classes."""


class RowError(ValueError):
    """A row cannot be used; the source turns it into a `SourceError` with the file and the row."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem

    def __str__(self) -> str:
        return f"{self.problem} (row {self.row})."


def refuse_rows(wrong: npt.NDArray[np.bool_], start: int, problem: str) -> None:
    """Raise RowError for the first row that is marked; ``start`` is the number of the first row of all."""
    if wrong.any():
        raise RowError(start + int(np.argmax(wrong)), problem)


# A target with more different values is no class.
MOST_CLASSES = 1000


def encode(y: npt.NDArray[Any], labels: Sequence[Any], start: int) -> npt.NDArray[np.intp]:
    """Return the position of every target in ``labels``; another one is a `RowError`, ``start`` being the first row."""
    code = np.full(y.shape, -1, dtype=np.intp)
    if y.dtype == object:
        known = {label: position for position, label in enumerate(labels)}
        code[:] = [known.get(value, -1) for value in y.tolist()]
    else:
        for position, label in enumerate(labels):
            code[y == label] = position
    if (code < 0).any():
        row = int(np.argmax(code < 0))
        shown = [f"{v:g}" if isinstance(v, float) else repr(v) for v in (*y[row : row + 1].tolist(), *labels[:5])]
        classes = (" and " if len(labels) == 2 else ", ").join(shown[1:]) + (", ..." if len(labels) > 5 else "")
        raise RowError(start + row, f"The target is {shown[0]}, but the classes are {classes}")
    return code


def type_of(dtype: Any) -> type:
    """Return what targets of a type are: `float` for numbers, `bool`, or `str` for texts and other labels."""
    kind = getattr(dtype, "kind", "O")
    return bool if kind == "b" else float if kind in "fiu" else str


def as_type(y: npt.NDArray[Any], target_type: type) -> npt.NDArray[Any]:
    """Return targets as numbers; texts unchanged."""
    return y if target_type is str else np.asarray(y, dtype=np.float64)


def chunk_spans(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield ``(first, last)`` for the chunks of rows ``[start, stop)``; they end at multiples of ``step``."""
    while start < stop:
        last = min((start // step + 1) * step, stop)
        yield start, last
        start = last


class Chunk(NamedTuple):
    """Consecutive rows: global number of the first, features (array or CSR), targets, weights (None: equal).

    ``X`` is None where only targets and weights were asked for. ``y`` is not of float64 where targets are texts.
    """

    start: int
    X: Any
    y: FloatArray
    weights: FloatArray | None

    @property
    def stop(self) -> int:
        """The global number of the row after the last."""
        return self.start + self.y.size

    def masses(self, total: float) -> FloatArray:
        """Return the weights of the rows, one each where they have none, divided by the ``total`` of all rows."""
        return np.full(self.y.size, 1.0 / total) if self.weights is None else self.weights / total

    def part(self, first: int, last: int) -> Chunk:
        """Return the rows of the global numbers ``[first, last)``."""
        span = slice(first - self.start, last - self.start)
        X = None if self.X is None else self.X[span]
        return Chunk(first, X, self.y[span], None if self.weights is None else self.weights[span])

    def copy(self) -> Chunk:
        """Return a copy of the rows: a view would keep the memory of all rows of the chunk."""
        return Chunk(self.start, self.X.copy(), self.y.copy(), None if self.weights is None else self.weights.copy())

    def cut(self, step: int) -> Iterator[Chunk]:
        """Yield the rows in chunks of up to ``step``, which end at multiples of it."""
        for first, last in chunk_spans(self.start, self.stop, step):
            yield self.part(first, last)


def stack_rows(parts: Sequence[Any]) -> Any:
    """Stack arrays or CSR matrices."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if any(sp.issparse(part) for part in parts) else np.concatenate(parts)


def stack_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Return consecutive chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    X = None if chunks[0].X is None else stack_rows([chunk.X for chunk in chunks])
    weights = None if chunks[0].weights is None else stack_rows([chunk.weights for chunk in chunks])
    return Chunk(chunks[0].start, X, np.concatenate([chunk.y for chunk in chunks]), weights)
