"""What a source of rows promises: to run a function on its chunks and hand back the results in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dualcore.geometry import FloatArray

__all__ = ["Chunk", "Smallest", "Source"]

T = TypeVar("T")


class Chunk(NamedTuple):
    """Consecutive rows: global number of the first, features (array or CSR), targets, masses (None: equal)."""

    start: int
    X: Any
    y: FloatArray
    weights: FloatArray | None


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
        Sum of the row weights; the masses are the weights divided by it.
    n_reads : int
        How often the features were read from end to end.
    """

    n_rows: int
    n_features: int
    total_weight: float
    n_reads: int

    @abstractmethod
    def map(self, function: Callable[[Chunk], T]) -> Iterator[T]:
        """Apply ``function`` to every chunk and yield the results in row order. One call is one read."""

    @abstractmethod
    def smallest(self, seed: int, size: int, label: float | None = None) -> Smallest:
        """Return the ``size`` rows of smallest keys among those of positive weight (and of one class)."""

    @abstractmethod
    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows, given by ascending global number."""
