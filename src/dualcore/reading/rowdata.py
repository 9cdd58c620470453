"""The rows of a source as `Data`: rows in memory without a copy, others read on demand, never all loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.rows import DenseRows, Rows, SparseRows, entries
from dualcore.data.sources import Source, TransformedSource
from dualcore.data.sources.products import SourceRows, target_and_masses
from dualcore.problem import Data


def source_data(source: Source) -> Data:
    """Return the rows of a source: rows in memory without a copy, others read on demand."""
    rows = rows_at_hand(source)
    return Data(SourceRows(source) if rows is None else rows, *target_and_masses(source))


def rows_at_hand(source: Source) -> Rows | None:
    """Return the rows of a source in memory or in memory-mapped files; None for other sources."""
    while isinstance(source, TransformedSource) and source.transform.scale is None:
        source = source.inner
    return getattr(source, "rows", None)


def rows_in_memory(source: Source) -> Rows | None:
    """Return the rows of a source in memory; None for other sources, memory-mapped files included."""
    rows = rows_at_hand(source)
    if not isinstance(rows, (DenseRows, SparseRows)):
        return None
    return None if isinstance(_origin(entries(rows.X)), np.memmap) else rows


def _origin(array: Any) -> Any:
    """Return the array that owns the memory of a view."""
    while not isinstance(array, np.memmap) and isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array
