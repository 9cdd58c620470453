"""One read of the data at a model."""

from __future__ import annotations

from functools import partial

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source, SourceError
from dualcore.reading import closed, rowwise  # noqa: F401  (they register themselves)
from dualcore.reading.base import READINGS, Reading
from dualcore.reading.summary import Extent, Pass, Summary, merge, summarise

__all__ = ["Reading", "as_reading", "read"]


def read(source: Source, task: Pass, column_sizes: FloatArray | None = None) -> Reading:
    """Run ``task`` on every chunk of ``source``: one read.

    ``column_sizes`` are the root mean squares of the columns, where an earlier read has summed them. A lower bound
    needs them.
    """
    extent = Extent(source.n_rows, source.total_weight)
    with source.naming_rows():
        summary = source.fold(partial(summarise, task=task, extent=extent), partial(merge, task=task, extent=extent))
    if summary.n_rows != source.n_rows or summary.edges:
        raise SourceError(f"The source promised {source.n_rows} rows but gave {summary.n_rows}: did the data change?")
    return as_reading(task, summary, column_sizes)


def as_reading(task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> Reading:
    """Return the answers of a finished summary, as the family of the problem gives them."""
    return READINGS[task.problem.family.kernel](task, summary, column_sizes)
