"""The rows of a source: those in memory as they are, others read where they are, and never all loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.rows import DenseRows, Rows, SparseRows, entries
from dualcore.data.sources import Source, TransformedSource
from dualcore.data.sources.products import SourceRows, target_and_masses
from dualcore.problem import Data


def source_data(source: Source) -> Data:
    """Return the rows of a source: those in memory as they are, others through reads."""
    rows = rows_at_hand(source)
    return Data(SourceRows(source) if rows is None else rows, *target_and_masses(source))


def rows_at_hand(source: Source) -> Rows | None:
    """Return the rows of a source that can look them up for nothing, mapped files among them; None of others."""
    while isinstance(source, TransformedSource) and source.transform.scale is None:
        source = source.inner
    return getattr(source, "rows", None)


def rows_in_memory(source: Source) -> Rows | None:
    """Return the rows of a source where they are in memory, not in files; None of others."""
    rows = rows_at_hand(source)
    if not isinstance(rows, (DenseRows, SparseRows)):
        return None
    return None if isinstance(_origin(entries(rows.X)), np.memmap) else rows


def _origin(array: Any) -> Any:
    """Return the array that a view shows a part of."""
    while not isinstance(array, np.memmap) and isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array
