"""The pilot: a uniform sample of a source's rows, drawn by keys. Coresets and training over reads start from it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source
from dualcore.data.sources.base import Smallest
from dualcore.problem import Data, Problem


class Pilot(NamedTuple):
    """Uniformly drawn rows and their weights, which sum to one."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    weights: FloatArray

    @property
    def data(self) -> Data:
        """The rows as a problem takes them."""
        return Data(as_rows(self.X), self.y, self.weights)

    def pick(self, chosen: npt.NDArray[Any], weights: FloatArray | None = None) -> Self:
        """Return some of the rows, with new weights if there are any."""
        weights = self.weights[chosen] if weights is None else weights
        return self._replace(rows=self.rows[chosen], X=self.X[chosen], y=self.y[chosen], weights=weights)


def pilot_size(
    n_rows: int,
    n_features: int,
    *,
    per_feature: int = 5,
    fewest: int = 2000,
    enough: int = 20_000,
    numbers: int = 8_000_000,
    most_numbers: int = 32_000_000,
    share: float = 0.25,
) -> int:
    """Return the number of rows of the pilot.

    At least ``per_feature`` for each feature and ``fewest`` in all, for a useful Hessian. Up to ``enough`` rows, as
    long as these are at most ``numbers`` (64 MB), because they improve the start at little cost. At most a ``share`` of
    all rows, and ``most_numbers`` (256 MB).

    Examples
    --------
    >>> pilot_size(10**6, 20), pilot_size(500_000, 768), pilot_size(20_000, 300), pilot_size(10**6, 20_000)
    (20000, 10416, 5000, 1600)
    """
    wanted = max(per_feature * n_features, fewest, min(enough, numbers // n_features))
    most = max(most_numbers // n_features, 64)
    return max(1, min(wanted, most, max(int(share * n_rows), min(fewest, n_rows // 2))))


def draw_pilot(problem: Problem, source: Source, size: int, seed: int = 0) -> Pilot:
    """Return the rows of smallest keys; in classification in proportion to the classes, at least one row of each."""
    labels = problem.family.strata
    if not labels:
        return take_pilot(source, (None,), [source.smallest(seed, size)], [size])
    survey = source.class_survey(labels)
    counts, masses = (np.array([each(label) for label in labels]) for each in (survey.count, survey.mass))
    size = max(size, len(labels))
    beyond = np.maximum(size * (masses / masses.sum()) - 1.0, 0.0)  # in addition to one row of every class
    ends = np.rint(np.cumsum(beyond) * ((size - len(labels)) / max(beyond.sum(), 1e-300)))
    shares = np.minimum(1 + np.diff(ends, prepend=0.0).astype(np.int64), counts)
    # If a class has too few rows, the others get the rest.
    for k in range(len(labels)):
        shares[k] += min(size - shares.sum(), counts[k] - shares[k])
    return take_pilot(source, labels, source.smallest_of_each(seed, tuple(shares.tolist()), labels), shares.tolist())


def take_pilot(source: Source, labels: tuple[Any, ...], groups: list[Smallest], counts: list[int]) -> Pilot:
    """Return the first ``counts`` rows of each class's candidates, weighted to represent all rows."""
    for label, group in zip(labels, groups, strict=True):
        if label is not None and not group.mass > 0.0:
            raise ValueError(
                f"No row of class {label:g} has a weight that counts beside those of other rows. A classifier needs "
                "rows of both classes, or of every class where there are more."
            )
    rows, weights = _weigh(groups, counts)
    order = np.argsort(rows)
    X, y = source.take(rows[order])
    return Pilot(rows[order], X, y, weights[order] / math.fsum(weights))


def _weigh(groups: list[Smallest], counts: list[int]) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Return the first ``counts`` rows of every group, with masses that sum to the group's share of the total mass.

    Groups follow each other; the masses sum to one up to rounding.
    """
    total = sum(group.mass for group in groups)
    weights = []
    for group, count in zip(groups, counts, strict=True):
        masses = group.masses[:count]
        if not masses.sum() > 0.0:  # only rows whose masses are too small for a float64 were drawn
            masses = np.ones(masses.size)
        weights.append(group.mass / total * (masses / masses.sum()))
    rows = [group.rows[:count] for group, count in zip(groups, counts, strict=True)]
    return np.concatenate(rows), np.concatenate(weights)
