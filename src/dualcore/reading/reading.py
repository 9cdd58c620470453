"""One read of the data at a model, and what every finished read answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import Certificate
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source, SourceError
from dualcore.reading.summary import Extent, Pass, Sample, Summary, merge, summarise


class Reading(ABC):
    """A finished read, with its answers; ``cell_count`` and ``cell_mass`` have the shape (n_cells,)."""

    risk: float  # worst-case risk of the anchor, ridge included: exact, or an upper bound
    multiplier: float  # where it is attained
    is_exact: bool
    mean_h: float  # mean dual loss at the anchor's own multiplier
    slope: Any  # mean derivative of h in the score, or in each of the scores
    gradient: FloatArray  # the same in the coefficients
    spent: float  # mean transport behind h at the anchor
    column_sizes: FloatArray | None

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        self.task = task
        self.problem, self.anchor = task.problem, task.anchor
        vector = summary.sums.total()
        n_cells = task.cells.n_cells
        self.cell_count = summary.cell_count
        self.cell_mass = vector[-n_cells:] if summary.weighted else summary.cell_count / summary.n_rows
        self._vector = vector[:-n_cells] if summary.weighted else vector
        self.sample: Any = None if summary.sample is None else summary.sample.in_row_order()
        self.summary = replace(summary, sample=self.sample)  # not a second copy of the rows
        self.known_bound, self.known_rounding = -np.inf, 0.0
        self.column_sizes = column_sizes

    @abstractmethod
    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, risk)`` along the line search, on the full data."""

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
        """The error of the risk."""

    def moments(self, sample: Sample) -> tuple[Any, FloatArray]:
        """Return moments of sampled rows, shape (n, k), and the same moments of the full data, shape (k,).

        They are: strata, ``h``, its slopes in scores and coefficients, and what the adversary spends. Of sparse rows
        that are fewer than the features they are sparse.
        """
        moved = sample.X if sample.moved is None else sample.moved
        slope = sample.slope if sample.slope.ndim == 2 else sample.slope[:, None]
        first: list[Any] = [sample.h[:, None], slope]
        targets = [np.array([self.mean_h]), np.atleast_1d(self.slope), self.gradient.ravel()]
        spends = bool(sample.spent.any())
        if spends:
            targets.append(np.array([self.sampled_spent]))
        n_strata = self.task.cells.n_strata
        if n_strata > 1:
            first.insert(0, self.problem.family.stratum(sample.y)[:, None] == np.arange(1, n_strata))
            targets.insert(0, self.cell_mass.reshape(n_strata, -1)[1:].sum(axis=1))
        if sp.issparse(moved) and moved.shape[0] < moved.shape[1]:
            parts = [sp.diags(of_score) @ moved for of_score in slope.T]
            last = [sample.spent[:, None]] if spends else []
            return sp.hstack([np.hstack(first), *parts, *last], format="csr"), np.concatenate(targets)
        moved = moved.toarray() if sp.issparse(moved) else np.asarray(moved)
        # The slopes in the coefficients are as large as the sample: they are written once.
        before, m = sum(part.shape[1] for part in first), moved.shape[1]
        after = before + slope.shape[1] * m
        moments = np.empty((len(slope), after + spends))
        np.concatenate(first, axis=1, out=moments[:, :before])
        for k, of_score in enumerate(slope.T):
            np.multiply(moved, of_score[:, None], out=moments[:, before + k * m : before + (k + 1) * m])
        if spends:
            moments[:, after] = sample.spent
        return moments, np.concatenate(targets)

    @property
    def sampled_spent(self) -> float:
        """The mean over all rows of what ``Sample.spent`` holds of some."""
        return self.spent

    def balanced(self, sample: Sample, weights: FloatArray) -> FloatArray:
        """Return weights of sampled rows, changed where calibration left the masses of the strata too far off."""
        return weights

    @property
    @abstractmethod
    def needs_rows(self) -> bool:
        """Whether sums do not determine the risk or the bound, so that both take further reads (`replace_risk`)."""

    def replace_risk(self, known: Certificate, multiplier: float) -> None:
        """Replace risk and bound by those that further reads have found."""
        self.risk, self.multiplier, self.is_exact = known.upper, multiplier, True
        self.known_bound, self.known_rounding = known.lower, known.rounding

    def bound_risk(self) -> None:
        """Put the bound that the anchor's own multiplier gives in the place of the risk: sums alone vouch for it."""
        self.multiplier = self.anchor.multiplier
        paid = self.problem.price * self.multiplier if self.problem.radius > 0.0 else 0.0
        self.risk, self.is_exact = paid + float(self.mean_h) + self.problem.penalty(self.anchor.coef), False


# Filled by the modules that hold them, by the name of the kernel.
READINGS: dict[str, type[Reading]] = {}


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
