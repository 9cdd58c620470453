"""What travels between a source and the functions that run on it: chunks of rows, and complaints about a row."""

from __future__ import annotations

from typing import Any, NamedTuple

from dualcore.geometry import FloatArray

__all__ = ["Chunk", "RowError", "SourceError"]


class SourceError(ValueError):
    """A source that cannot be read as it should: the message names the place and says what to do."""


class RowError(ValueError):
    """A row that cannot be used; whoever knows where the row came from turns it into a `SourceError`."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem

    def __str__(self) -> str:
        return f"{self.problem} (row {self.row})."


class Chunk(NamedTuple):
    """Consecutive rows: global number of the first, features (array or CSR), targets, weights (None: equal).

    ``X`` is None where only targets and weights were asked for.
    """

    start: int
    X: Any
    y: FloatArray
    weights: FloatArray | None
