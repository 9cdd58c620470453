"""The classes of a source by their numbers, or one against the rest: labels change on the way, weights follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, RowError
from dualcore.data.sources.prepared import PreparedSource
from dualcore.data.sources.survey import Survey


@dataclass(frozen=True)
class _Coded:
    """What happens to a chunk; it travels to the workers of a cluster, so it is small."""

    classes: FloatArray
    factors: FloatArray | None
    positive: int | None

    def __call__(self, chunk: Chunk) -> Chunk:
        code = np.minimum(np.searchsorted(self.classes, chunk.y), self.classes.size - 1)
        known = self.classes[code] == chunk.y
        if not known.all():
            row = int(np.argmin(known))
            raise RowError(chunk.start + row, f"The target is {chunk.y[row]:g}, which is none of the classes")
        weights = chunk.weights
        if self.factors is not None:
            factors = self.factors[code]
            weights = factors if weights is None else weights * factors
        y = code.astype(np.float64) if self.positive is None else np.where(code == self.positive, 1.0, -1.0)
        return Chunk(chunk.start, chunk.X, y, weights)


class ClassSource(PreparedSource):
    """The rows of another source, every class by its number, or the class ``positive`` +1 and all others -1.

    ``classes`` are the different targets of ``inner``, ascending. The weights of the rows of each class are multiplied
    by its entry of ``factors``.

    Examples
    --------
    >>> from dualcore.data.sources import ArraySource
    >>> rows, classes = ArraySource(np.eye(3), np.array([7.0, 5.0, 0.0])), np.array([0.0, 5.0, 7.0])
    >>> ClassSource(rows, classes).take(np.arange(3))[1], ClassSource(rows, classes, 1).take(np.arange(3))[1]
    (array([2., 1., 0.]), array([-1.,  1., -1.]))
    """

    def __init__(
        self, inner: Source, classes: FloatArray, positive: int | None = None, factors: FloatArray | None = None
    ) -> None:
        super().__init__(inner)
        self._prepare, self._reweighted = _Coded(classes, factors, positive), factors is not None
        self.is_weighted = inner.is_weighted or self._reweighted

    def survey(self) -> Survey:
        """Return the number and the mass of all rows and of either side."""
        return Source.survey(self)


def class_masses(source: Source) -> dict[float, float]:
    """Return the different targets of a source and the weight of the rows of each, from the targets alone."""
    out: dict[float, float] = {}
    for part in source.map_targets(_class_masses):
        for label, mass in part.items():
            out[label] = out.get(label, 0.0) + mass
    return dict(sorted(out.items()))


def _class_masses(chunk: Chunk) -> dict[float, float]:
    labels, code = np.unique(chunk.y, return_inverse=True)
    masses = np.bincount(code, weights=chunk.weights, minlength=labels.size)
    return dict(zip(labels.tolist(), masses.astype(np.float64).tolist(), strict=True))
