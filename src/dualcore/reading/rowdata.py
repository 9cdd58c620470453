"""What sums cannot tell: a model on the full data, row by row, with the features read where they are.

Label flips of order 2 enter the minimum over the multiplier with a curve of their own each, and on a support a lower
bound takes planes from many models. One number a row is kept in memory, never the rows.
"""

from __future__ import annotations

from typing import Any

from dualcore.certificates import Certificate, certify
from dualcore.data.sources import ArraySource, Source
from dualcore.data.sources.rows import SourceRows, source_target
from dualcore.problem import Data, Problem

__all__ = ["certify_rows", "source_data"]


def source_data(source: Source) -> Data:
    """Return the rows of a source: those in memory as they are, others through reads."""
    weights = source.row_masses() if source.is_weighted else None
    rows = source.rows if isinstance(source, ArraySource) else SourceRows(source)
    return Data(rows, source_target(source), weights)


def certify_rows(problem: Problem, source: Source, model: Any) -> tuple[Certificate, float]:
    """Return what is known about a model on the full data, and the multiplier of its exact risk."""
    before = source.n_reads
    data = source_data(source)
    known = certify(problem, model, data.rows, data.y, data.weights)
    multiplier = problem.evaluate(model.coef, model.intercept, data).multiplier
    return Certificate(known.upper, known.lower, source.n_reads - before, known.rounding), multiplier
