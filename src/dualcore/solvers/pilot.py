"""A keyed sample of a source's rows: where training over reads sets out from, and what it takes curvature from."""

from __future__ import annotations

import numpy as np

from dualcore.data.rows import as_rows
from dualcore.data.sources import Smallest, Source
from dualcore.problem import Data, Problem

__all__ = ["draw_pilot", "pilot_size"]

# Rows for each feature, and rows at least: fewer make a poor metric.
_ROWS_PER_FEATURE, _FEWEST = 5, 2000
# More rows make a better start for nothing, as long as they are few numbers (64 MB) beside the rows of the source.
_ROWS, _NUMBERS, _SHARE = 20_000, 8_000_000, 0.25
# No sample holds more numbers than this (256 MB), whatever the features.
_MOST_NUMBERS = 32_000_000


def pilot_size(n_rows: int, n_features: int) -> int:
    """Return how many rows to draw.

    Examples
    --------
    >>> pilot_size(10**6, 20), pilot_size(500_000, 768), pilot_size(20_000, 300), pilot_size(10**6, 20_000)
    (20000, 10416, 5000, 1600)
    """
    wanted = max(_ROWS_PER_FEATURE * n_features, _FEWEST, min(_ROWS, _NUMBERS // n_features))
    most = max(_MOST_NUMBERS // n_features, 64)
    return max(1, min(wanted, most, max(int(_SHARE * n_rows), min(_FEWEST, n_rows // 2))))


def draw_pilot(problem: Problem, source: Source, size: int, seed: int = 0) -> Data:
    """Return the rows of smallest keys with masses that stand for all; classes in proportion, so that none is lost."""
    labels = (-1.0, 1.0) if problem.is_classification else (None,)
    groups = [source.smallest(seed, size, label) for label in labels]
    total = sum(group.mass for group in groups)
    counts = [max(1, round(size * group.mass / total)) for group in groups]
    numbers, given = Smallest.join(groups, counts)
    order = np.argsort(numbers)
    X, y = source.take(numbers[order])
    return Data(as_rows(X), y, given[order] / given.sum())
