"""What travels between a source and the functions that run on it: chunks of rows, and complaints about a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dualcore.data.arrays import FloatArray


class SourceError(ValueError):
    """A source that cannot be read as it should: the message names the place and says what to do."""


class ClassError(SourceError):
    """A target that does not hold two classes."""


class RowError(ValueError):
    """A row that cannot be used; whoever knows where the row came from turns it into a `SourceError`."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem

    def __str__(self) -> str:
        return f"{self.problem} (row {self.row})."


def two_labels(found: Iterable[Any], where: str) -> tuple[Any, Any]:
    """Return the two labels of a target in their order, or say that there are not two."""
    labels = sorted(found)
    if len(labels) == 1:
        raise ClassError(f"{where} holds one class only ({labels[0]!r}); a classifier needs rows of two classes.")
    if len(labels) != 2:
        raise ClassError(
            f"{where} holds more than two different values ({', '.join(repr(label) for label in labels[:3])}, ...): a "
            "classifier is trained from a source for two classes. Load the rows into memory for more."
        )
    return labels[0], labels[1]


class Chunk(NamedTuple):
    """Consecutive rows: global number of the first, features (array or CSR), targets, weights (None: equal).

    ``X`` is None where only targets and weights were asked for.
    """

    start: int
    X: Any
    y: FloatArray
    weights: FloatArray | None
