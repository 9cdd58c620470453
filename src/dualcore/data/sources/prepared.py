"""Rows of another source, prepared on their way: labels to -1 and +1, weights by class, features scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, RowError, SourceError, as_signs
from dualcore.data.sources.survey import Survey

T = TypeVar("T")


@dataclass(frozen=True)
class _Preparation:
    """What happens to a chunk; it travels to the workers of a cluster, so it is small."""

    labels: tuple[float, float] | None
    factors: tuple[float, float] | None
    centre: FloatArray | None
    scale: FloatArray | None

    def __call__(self, chunk: Chunk) -> Chunk:
        X, y, weights = chunk.X, chunk.y, chunk.weights
        if X is not None and self.scale is not None:
            X = scale_rows(X, self.centre, self.scale)
        if self.labels is not None:
            y = as_signs(y, self.labels, chunk.start)
        if self.factors is not None:
            factors = np.where(y > 0.0, self.factors[1], self.factors[0])
            weights = factors if weights is None else weights * factors
        return Chunk(chunk.start, X, y, weights)


def scale_rows(X: Any, centre: FloatArray | None, scale: FloatArray) -> Any:
    """Return ``(X - centre) / scale``; sparse features stay sparse, so they are not centred."""
    if sp.issparse(X):
        return sp.csr_matrix(X.multiply(1.0 / scale))
    return (X if centre is None else X - centre) / scale


@dataclass(frozen=True)
class _Prepared:
    """A function that sees prepared chunks."""

    function: Callable[[Chunk], Any]
    preparation: Callable[[Chunk], Chunk]

    def __call__(self, chunk: Chunk) -> Any:
        return self.function(self.preparation(chunk))


def _counted(name: str) -> Any:
    """Return a counter that the source within keeps."""
    return property(lambda self: getattr(self.inner, name), lambda self, value: setattr(self.inner, name, value))


class PreparedSource(Source):
    """The rows of another source, changed as they are read; nothing is copied or kept.

    Reads are counted by the source within. The two numbers ``labels`` that are its targets become -1 and +1; weights of
    rows with these are multiplied by ``factors``. Features become ``(x - centre) / scale``; sparse ones are divided
    only, so leave ``centre`` out.

    Examples
    --------
    >>> from dualcore.data.sources import ArraySource
    >>> source = PreparedSource(ArraySource(np.eye(3), np.array([0.0, 1.0, 1.0])), labels=(0.0, 1.0))
    >>> source.take(np.arange(3))[1]
    array([-1.,  1.,  1.])
    """

    n_reads = _counted("n_reads")
    partial_reads = _counted("partial_reads")
    bytes_read = _counted("bytes_read")
    bytes_moved = _counted("bytes_moved")

    def __init__(
        self,
        inner: Source,
        *,
        labels: tuple[float, float] | None = None,
        factors: tuple[float, float] | None = None,
        centre: FloatArray | None = None,
        scale: FloatArray | None = None,
    ) -> None:
        # Not the base class's: it would begin to count reads anew.
        self.inner = inner
        self.centre, self.scale = centre, scale
        self._prepare: Callable[[Chunk], Chunk] = _Preparation(labels, factors, centre, scale)
        self._translated, self._reweighted = labels, factors is not None
        self._survey = self._by_class = self._pilot = None
        self._n_rows, self.n_features = inner.n_rows, inner.n_features
        self._checked = inner._checked
        self.feature_names = inner.feature_names
        self.labels = inner.labels if labels is None else labels
        self.is_weighted = inner.is_weighted or self._reweighted
        self.labels_alone, self.random_access = inner.labels_alone, inner.random_access

    def __repr__(self) -> str:
        return f"<{self.inner!r}, prepared>"

    def _run(self, function: Callable[[Chunk], T], merge: Any = None, **settings: Any) -> Iterator[T]:
        return self.inner._run(_Prepared(function, self._prepare), merge, **settings)

    def survey(self) -> Survey:
        """Return the number and the mass of all rows and of either class; known already where only labels change."""
        if self._survey is None and not self._reweighted:
            found = self.inner.survey()
            if self._translated is None:
                self._survey = found
            elif found.tally is not None and found.sums is None:
                counts = dict(found.tally)
                low, high = (counts.get(label, 0) for label in self._translated)
                if low + high == found.n_rows:
                    tally = ((-1.0, low), (1.0, high))
                    self._survey = Survey(found.n_rows, (found.counts[0], low, high), None, None, tally)
        return super().survey()

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        if not self.random_access:
            return super().take(rows)
        try:
            prepared = self._prepare(Chunk(0, *self.inner.take(rows), None))
        except RowError as error:
            raise SourceError(f"{error.problem} ({self.describe(int(rows[error.row]))}).") from None
        return prepared.X, prepared.y

    def describe(self, row: int) -> str:
        return self.inner.describe(row)

    def _label_share(self) -> float:
        return self.inner._label_share()

    def _take_share(self, rows: npt.NDArray[np.int64]) -> float:
        return self.inner._take_share(rows)

    def _expected_take_share(self, size: int) -> float:
        return self.inner._expected_take_share(size)

    @property
    def weights(self) -> FloatArray | None:
        """The weights of all rows, where they are at hand and unchanged."""
        return None if self._reweighted else getattr(self.inner, "weights", None)
