"""What sums cannot tell: a model on the full data, row by row, with the features read where they are.

Label flips of order 2 enter the minimum over the multiplier with a curve of their own each, and on a support a lower
bound takes planes from many models. One number a row is kept in memory, never the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.certificates import Certificate, certify
from dualcore.data.rows import DenseRows, FrameRows, Rows, SparseRows
from dualcore.data.sources import ArraySource, PreparedSource, Source
from dualcore.data.sources.rows import SourceRows, source_target
from dualcore.problem import Data, Problem


def source_data(source: Source) -> Data:
    """Return the rows of a source: those in memory as they are, others through reads."""
    weights = source.row_masses() if source.is_weighted else None
    rows = rows_at_hand(source)
    return Data(SourceRows(source) if rows is None else rows, source_target(source), weights)


def rows_at_hand(source: Source) -> Rows | None:
    """Return the rows of a source that can look them up for nothing, mapped files among them; None of others."""
    while isinstance(source, PreparedSource) and source.scale is None:
        source = source.inner
    return source.rows if isinstance(source, ArraySource) else None


def rows_in_memory(source: Source) -> Rows | None:
    """Return the rows of a source where they are in memory, not in files; None of others."""
    rows = rows_at_hand(source)
    if isinstance(rows, (SparseRows, FrameRows)):
        return rows
    return rows if isinstance(rows, DenseRows) and not isinstance(_origin(rows.X), np.memmap) else None


def _origin(array: Any) -> Any:
    """Return the array that a view shows a part of."""
    while not isinstance(array, np.memmap) and isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array


def certify_rows(problem: Problem, source: Source, model: Any) -> tuple[Certificate, float]:
    """Return what is known about a model on the full data, and the multiplier of its exact risk."""
    before = source.n_reads
    data = source_data(source)
    known = certify(problem, model, data.rows, data.y, data.weights)
    multiplier = problem.evaluate(model.coef, model.intercept, data).multiplier
    return Certificate(known.upper, known.lower, source.n_reads - before, known.rounding), multiplier
