"""Rows of another source, transformed as they are read: classes, class weights, folds, centred and scaled features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.rows import Rows, as_rows
from dualcore.data.sources.base import Source, Survey
from dualcore.data.sources.chunk import Chunk, RowError, SourceError, encode

T = TypeVar("T")


@dataclass(frozen=True)
class Folds:
    """Which fold a row belongs to: a hash of a seed and its number, so folds have about as many rows each.

    Examples
    --------
    >>> np.bincount(Folds(5, 0).of(0, 1000)).tolist()
    [196, 226, 195, 198, 185]
    """

    count: int
    seed: int

    def of(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        """Return the fold of every row from ``start`` on, shape (stop - start,)."""
        return (row_keys(self.seed, np.arange(start, stop)) * self.count).astype(np.intp)


@dataclass(frozen=True)
class Transform:
    """The transformation of a chunk, small because it is sent to the workers of a cluster. See `TransformedSource`."""

    classes: Sequence[Any] | None = None
    positive: int | None = None
    factors: Sequence[float] | None = None
    folds: Folds | None = None
    left_out: int = 0
    centre: FloatArray | None = None
    scale: FloatArray | None = None
    check: Callable[[Rows, int], None] | None = None

    def __call__(self, chunk: Chunk) -> Chunk:
        X, y, weights = chunk.X, chunk.y, chunk.weights
        if X is not None and self.check is not None:
            self.check(as_rows(X), chunk.start)
        if X is not None and self.scale is not None:
            X = scale_rows(X, self.centre, self.scale)
        if self.classes is not None:
            code = encode(y, self.classes, chunk.start)
            y = self.targets(code)
            if self.factors is not None:
                factors = np.asarray(self.factors, dtype=np.float64)[code]
                weights = factors if weights is None else weights * factors
        if self.folds is not None:
            kept = self.folds.of(chunk.start, chunk.start + y.size) != self.left_out
            weights = kept.astype(np.float64) if weights is None else weights * kept
        return Chunk(chunk.start, X, y, weights)

    def targets(self, code: npt.NDArray[np.intp]) -> FloatArray:
        """Return class numbers as targets: -1 and +1 for two classes, the number itself for more."""
        if self.positive is None and len(self.classes or ()) != 2:
            return code.astype(np.float64)
        return np.where(code == (1 if self.positive is None else self.positive), 1.0, -1.0)

    @property
    def reweights(self) -> bool:
        """Whether the rows have other weights afterwards."""
        return self.factors is not None or self.folds is not None


def scale_rows(X: Any, centre: FloatArray | None, scale: FloatArray) -> Any:
    """Return ``(X - centre) / scale``; sparse features stay sparse, so they are not centred."""
    if sp.issparse(X):
        rows = X.tocsr()
        return sp.csr_matrix((rows.data / scale[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
    return (X if centre is None else X - centre) / scale


def _changed(chunk: Chunk, function: Callable[[Chunk], T], transform: Transform) -> T:
    return function(transform(chunk))


def _counted(name: str) -> Any:
    """Return a counter that the source within keeps."""
    return property(lambda self: getattr(self.inner, name), lambda self, value: setattr(self.inner, name, value))


class TransformedSource(Source):
    """The rows of another source, changed as they are read; nothing is copied or kept. The inner source counts reads.

    Parameters
    ----------
    inner : Source
    classes : sequence, optional
        All different targets of ``inner``. They become -1 and +1 where there are two, else their positions 0, 1, 2, ...
    positive : int, optional
        The position of one class: it becomes +1, and all others -1.
    factors : sequence of float, optional
        The weights of the rows of each class are multiplied by its factor.
    folds : Folds, optional
        The rows of the fold ``left_out`` get the weight zero.
    left_out : int
    centre, scale : ndarray of shape (n_features,), optional
        Features become ``(x - centre) / scale``; sparse ones are divided only.
    check : callable, optional
        Called with the rows of every chunk, as they are within, and the number of the first.

    Examples
    --------
    >>> from dualcore.data.sources import ArraySource
    >>> rows = ArraySource(np.eye(3), np.array([7.0, 5.0, 0.0]))
    >>> [TransformedSource(rows, classes=(0, 5, 7), positive=k).take(np.arange(3))[1].tolist() for k in (None, 1)]
    [[2.0, 1.0, 0.0], [-1.0, 1.0, -1.0]]
    >>> parts = [TransformedSource(rows, folds=Folds(2, 0), left_out=k) for k in (0, 1)]
    >>> sum(part.total_weight for part in parts)
    3.0
    """

    n_reads = _counted("n_reads")
    bytes_read = _counted("bytes_read")
    bytes_moved = _counted("bytes_moved")
    n_dropped = _counted("n_dropped")

    def __init__(self, inner: Source, **changes: Any) -> None:
        # Not the base class's: it would begin to count reads anew.
        self.inner, self.transform = inner, Transform(**changes)
        self._survey = None
        self._n_rows, self.n_features = inner.n_rows, inner.n_features
        self._checked, self._piece_starts, self.feature_names = inner._checked, inner._piece_starts, inner.feature_names
        named = self.transform.classes is not None and self.transform.positive is None and inner.labels is None
        self.labels = tuple(self.transform.classes or ()) if named else inner.labels
        self.is_weighted = inner.is_weighted or self.transform.reweights
        self.labels_alone, self.random_access = inner.labels_alone, inner.random_access and self.transform.check is None

    def _run(self, function: Callable[[Chunk], T], merge: Any = None, **settings: Any) -> Iterator[T]:
        return self.inner._run(partial(_changed, function=function, transform=self.transform), merge, **settings)

    def survey(self) -> Survey:
        """Return the number and the mass of all rows and of every class; known already where only classes change."""
        if self._survey is None and not self.transform.reweights:
            found, classes = self.inner.survey(), self.transform.classes
            if classes is None:
                self._survey = found
            elif found.tallies is not None and set(found.tallies) <= set(classes):
                code = encode(np.array(list(found.tallies)), classes, 0)
                moved = zip(self.transform.targets(code).tolist(), found.tallies.values(), strict=True)
                parts = [replace(found, n_rows=0, n_positive=0, total=None, tallies=dict([pair])) for pair in moved]
                self._survey = Survey.join([replace(found, tallies={}), *parts])
        return super().survey()

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        if not self.random_access:
            return super().take(rows)
        try:
            changed = self.transform(Chunk(0, *self.inner.take(rows), None))
        except RowError as error:
            raise SourceError(f"{error.problem} ({self.describe(int(rows[error.row]))}).") from None
        return changed.X, changed.y

    def describe(self, row: int) -> str:
        return self.inner.describe(row)
