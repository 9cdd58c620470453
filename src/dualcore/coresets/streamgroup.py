"""Rows of a stream that were summarised at one anchor, and coresets drawn from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.samplers.base import as_anchor
from dualcore.coresets.samplers.strata import cell_scores, draw_cells
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import ArraySource, Chunk
from dualcore.data.sources.chunk import stack_rows
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import first_reach
from dualcore.reading.reading import Reading, as_reading, read
from dualcore.reading.summary import Extent, Pass, Sample, Summary, close, merge, plan_cells, summarise
from dualcore.solvers import solve_quietly

# Beyond this mass, in units of 2**40 weights of the first rows, the counts of a histogram of flips may overflow.
_MOST_MASS = 4.0
NO_WEIGHT = "All rows so far have weight zero."


@dataclass
class Group:
    """Rows summarised at one anchor."""

    task: Pass  # its ``keep`` holds, for each cell, the key below which a row is among the smallest so far
    capacity: npt.NDArray[np.int64]  # rows kept of each cell, shape (n_cells,)
    extent: Extent  # its weight is a power of two that makes all masses of a stream sum to less than one
    reserve: int  # so many rows of smallest keys are kept whatever their cells: a uniform sample of all rows
    summary: Summary | None = None

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Summarise rows."""
        self.join([summarise(chunk, self.task, self.extent) for chunk in chunks])

    def join(self, parts: list[Summary]) -> None:
        """Merge summaries made with the same task, and forget rows beyond the capacity of their cell."""
        if self.summary is not None:
            parts = [self.summary, *parts]
        summary = merge(parts, self.task, self.extent)
        sample = summary.sample
        if sample is not None:
            own, level = self._own_levels(sample), self._reserve_level(sample.keys)
            keep = np.minimum(self.task.keep, np.where(own < 1.0, np.maximum(own, level), 1.0))
            self.task = self.task._replace(keep=keep)
            kept = sample.keys < np.maximum(own, level)[sample.cells]
            summary.sample = sample.pick(np.flatnonzero(kept)).in_row_order()
        self.summary = summary

    def _own_levels(self, sample: Sample) -> FloatArray:
        """Return the key in each cell below which a row is among as many as the cell may have; 1 if it has fewer."""
        order = np.lexsort((sample.rows, sample.keys, sample.cells))
        cells = sample.cells[order]
        rank = np.arange(order.size) - np.searchsorted(cells, cells)
        last = order[rank == self.capacity[cells] - 1]
        levels = np.ones(self.capacity.size)
        levels[sample.cells[last]] = np.nextafter(sample.keys[last], 2.0)
        return levels

    def _reserve_level(self, keys: FloatArray) -> float:
        """Return the key below which a row belongs to the reserve."""
        if not 0 < self.reserve < keys.size:
            return 0.0 if self.reserve == 0 else 1.0
        return float(np.nextafter(np.partition(keys, self.reserve - 1)[self.reserve - 1], 2.0))

    def same_plan(self, other: Group) -> bool:
        """Whether both were summarised at the same anchor with the same cells and keys."""
        mine, theirs = self.task, other.task
        return (
            np.array_equal(mine.anchor.coef, theirs.anchor.coef)
            and np.array_equal(mine.anchor.intercept, theirs.anchor.intercept)
            and mine.anchor.multiplier == theirs.anchor.multiplier
            and (mine.cells, mine.seed, mine.width) == (theirs.cells, theirs.seed, theirs.width)
            and (self.extent, self.reserve) == (other.extent, other.reserve)
            and np.array_equal(self.capacity, other.capacity)
        )

    @property
    def n_rows(self) -> int:
        """Rows summarised so far, those of incomplete leaves included."""
        summary = self.summary
        return 0 if summary is None else summary.n_rows + sum(edge.y.size for edge in summary.edges)

    @property
    def has_weight(self) -> bool:
        """Whether any row so far has a weight."""
        summary = self.summary
        if summary is None:
            return False
        some = any(edge.weights is None or bool(edge.weights.any()) for edge in summary.edges)
        return some or bool(summary.cell_count.any())

    def reading(self, *, reserve: bool = False) -> tuple[Reading, float]:
        """Return the reading of all rows so far, and their weight; its sample is with the reserve or without."""
        if self.summary is None:
            raise ValueError("No row has arrived yet.")
        closed = close(self.summary, self.task, self.extent)
        if not reserve and self.summary.sample is not None and closed.sample is not None:
            own = np.minimum(self._own_levels(self.summary.sample), self.task.keep)
            first = np.full(own.size, np.inf)
            np.minimum.at(first, closed.sample.cells, closed.sample.keys)
            level = np.maximum(own, np.nextafter(first, 2.0))[closed.sample.cells]
            closed.sample = closed.sample.pick(np.flatnonzero(closed.sample.keys < level))
        share = float(closed.sums.total()[0])
        if not share > 0.0:
            raise ValueError(NO_WEIGHT)
        reading = as_reading(self.task, closed.scaled(1.0 / share))
        if share > _MOST_MASS and not reading.is_exact:
            reading.bound_risk()
        return reading, share * self.extent.total_weight


def plan_group(problem: Problem, pilot: Chunk, size: int, seed: int, given: Any) -> Group:
    """Return an empty group: the anchor from the pilot's rows unless it is given, and cells around it."""
    m = pilot.X.shape[1]
    weights = np.ones(pilot.y.size) if pilot.weights is None else pilot.weights
    masses = normalised(weights) if weights.any() else np.full(pilot.y.size, 1.0 / pilot.y.size)
    rows = Coreset(np.arange(pilot.y.size), pilot.X, pilot.y, masses, pilot.y.size)
    complete = has_all_classes(problem, pilot.y[masses > 0.0])
    if given is not None:
        anchor = as_anchor(given, problem, m)
    elif complete:
        anchor = anchor_at(problem, solve_quietly(problem, rows, tol=1e-5))
    else:
        coef, intercept = problem.family.zero_model(m)
        anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, 0.0))
    reach = first_reach(problem.family.n_outputs * (m + 1), size)
    plan = plan_cells(problem, anchor, rows, size, reach, focused=True)
    rule, seen = plan.rule, np.maximum(plan.mass, 0.3 / size)
    scores = cell_scores(rule, seen)
    capacity = np.ceil(2.0 * size * scores / scores.sum()).astype(np.int64) + max(32, size // rule.n_cells)
    extent = Extent(None, float(np.ldexp(1.0, min(40 + _typical_exponent(weights), 1000))))
    task = Pass(problem, anchor, rule, seed, np.ones(rule.n_cells), plan.smoothing, sized=True)
    return Group(task, capacity, extent, size)


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)


def _typical_exponent(weights: FloatArray) -> int:
    """Return the power of two nearest to the mean of the positive weights, of any magnitude."""
    if not weights.any():
        return 0
    top = int(np.frexp(weights.max())[1])
    scaled = np.ldexp(weights, -top)
    return top + round(float(np.log2(scaled[scaled > 0.0].mean())))


def draw_group(group: Group, size: int) -> tuple[Coreset, float]:
    """Return a coreset of a group's rows, and their weight."""
    reading, weight = group.reading()
    coreset = draw_cells(reading, min(size, group.n_rows))
    lower = min(reading.lower_bound(reading.risk), reading.risk)
    known = {"anchor_risk": reading.risk, "anchor_risk_is_exact": reading.is_exact, "anchor_lower": lower}
    details = coreset.details | known
    return replace(coreset, details=details), weight


def kept_rows(group: Group) -> tuple[Coreset, float]:
    """Return all rows that a group keeps, weighted to stand for all it has seen, and their weight."""
    reading, weight = group.reading(reserve=True)
    return draw_cells(reading, reading.sample.rows.size), weight


def draw_again(rows: Coreset, task: Pass, size: int) -> Coreset:
    """Return a coreset of a coreset, drawn and calibrated at the anchor of ``task``."""
    few = draw_cells(read(ArraySource(rows.X, rows.y, rows.weights), task), size)
    return replace(few, indices=rows.indices[few.indices], n_rows=rows.n_rows)


def unite_coresets(parts: list[tuple[Coreset, float]]) -> Coreset:
    """Return coresets of different rows as one, each by its weight."""
    if len(parts) == 1:
        return parts[0][0]
    indices = np.concatenate([coreset.indices for coreset, _ in parts])
    weights = np.concatenate([weight * coreset.weights for coreset, weight in parts])
    order = np.argsort(indices, kind="stable")
    largest = max(parts, key=lambda part: part[1])[0]
    return Coreset(
        indices[order],
        stack_rows([coreset.X for coreset, _ in parts])[order],
        np.concatenate([coreset.y for coreset, _ in parts])[order],
        normalised(weights[order]),
        sum(coreset.n_rows for coreset, _ in parts),
        largest.anchor,
        largest.method,
        {"anchors": len(parts)},
    )
