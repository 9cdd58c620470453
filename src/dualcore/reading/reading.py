"""One read of the data at a model, with risk and bounds from its sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualcore.certificates import Certificate
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source, SourceError
from dualcore.reading.summary import Pass, Summary, SummaryRead


class Reading(ABC):
    """The result of a read: risk, gradient and lower bound at a model, computed from sums over rows."""

    risk: float  # worst-case risk of the anchor, ridge included: exact, or an upper bound
    multiplier: float  # at which the risk is attained
    is_exact: bool
    mean_h: float  # mean dual loss at the anchor's own multiplier
    slope: Any  # mean derivative of h in the score, or in each of the scores
    gradient: FloatArray  # the same in the coefficients
    spent: float  # mean transport cost in h at the anchor
    column_sizes: FloatArray | None

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        self.task = task
        self.problem, self.anchor = task.problem, task.anchor
        self._vector = summary.sums.total()
        self.summary = summary
        self.known_bound, self.known_rounding = -np.inf, 0.0
        self.column_sizes = column_sizes

    @property
    def duals(self) -> list[FloatArray]:
        """Sums of dual candidates that later reads may use in `lower_bound`."""
        return []

    @abstractmethod
    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return a lower bound on the optimal risk of the full data, where the risk of some model is ``upper``."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Bound on the rounding error of the risk."""

    @property
    @abstractmethod
    def needs_rows(self) -> bool:
        """Whether sums do not determine the risk or the bound, so that both take further reads (`replace_risk`)."""

    def replace_risk(self, known: Certificate, multiplier: float) -> None:
        """Replace risk and bound by those of further reads."""
        self.risk, self.multiplier, self.is_exact = known.upper, multiplier, True
        self.known_bound, self.known_rounding = known.lower, known.rounding

    def bound_risk(self) -> None:
        """Replace the risk by its upper bound at the anchor's own multiplier, which the sums determine."""
        self.multiplier = self.anchor.multiplier
        paid = self.problem.price * self.multiplier if self.problem.radius > 0.0 else 0.0
        self.risk, self.is_exact = paid + float(self.mean_h) + self.problem.penalty(self.anchor.coef), False


# By the name of the kernel; filled by the modules `closed` and `rowwise`.
READINGS: dict[str, type[Reading]] = {}


def read(source: Source, task: Pass, column_sizes: FloatArray | None = None) -> Reading:
    """Run ``task`` on every chunk of ``source``: one read.

    ``column_sizes`` (m,) are the root mean squares of the columns, if an earlier read has computed them. A lower bound
    needs them.
    """
    run = SummaryRead(source.n_rows, source.total_weight, task)
    with source.naming_rows():
        found, left_over = source.fold(run, run.merge)
    n_rows = sum(summary.n_rows for summary in found)
    if n_rows != source.n_rows or left_over:
        raise SourceError(f"The source promised {source.n_rows} rows but gave {n_rows}: did the data change?")
    return as_reading(task, found[0], column_sizes)


def as_reading(task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> Reading:
    """Return the reading of a summary, in the class for the family of the problem."""
    return READINGS[task.problem.family.kernel](task, summary, column_sizes)
