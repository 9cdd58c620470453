"""Reading families that are known by what the adversary does to each row: values and gradients, at several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk
from dualcore.data.sums import Leaves
from dualcore.problem import Anchor, Problem
from dualcore.problem.families import Family, RowDual
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.cells import CellPlan, cell_rule
from dualcore.reading.reading import READINGS, Reading
from dualcore.reading.summary import KERNELS, BlockRead, Extent, Pass, Sample, Summary, WeightedRows


def along(family: Family, start: Anchor, end: Anchor, step: float) -> Anchor:
    """Return the model a ``step`` of the way, with a multiplier that is feasible there."""
    coef = start.coef + step * (end.coef - start.coef)
    intercept = start.intercept + step * (end.intercept - start.intercept)
    multiplier = end.multiplier
    if np.isfinite(start.multiplier) and np.isfinite(end.multiplier):  # it is infinite where nothing moves
        multiplier = start.multiplier + step * (end.multiplier - start.multiplier)
    return Anchor(coef, intercept, family.feasible_multiplier(coef, multiplier))


def _trials(task: Pass) -> list[Anchor]:
    """Return the models of the line search."""
    if task.origin is None:
        return []
    return [along(task.problem.family, task.origin, task.anchor, step) for step in task.steps]


class _Sums(NamedTuple):
    """Where each sum is in a vector."""

    mass: slice
    lower: slice
    upper: slice
    spent: slice
    loss: slice
    slope: slice
    gradient: slice
    line: slice

    @classmethod
    def of(cls, task: Pass, n_features: int) -> _Sums:
        family = task.problem.family
        k, n_steps = family.n_outputs, len(task.steps) if task.origin is not None else 0
        lengths = [1, 1, 1, 1, int(family.flips_only), k, k * n_features, n_steps]
        ends = np.cumsum(lengths).tolist()
        return cls(*(slice(end - length, end) for length, end in zip(lengths, ends, strict=True)))


class RowwiseKernel:
    """Sums of value, transport and gradient; the line search adds one value a model.

    Where the multiplier enters through changes of label alone the value of a line search is the mean loss without them,
    and the rows that may change are kept apart, as `FlipTail`: together they give the exact risk.
    """

    def width(self, task: Pass, n_features: int) -> int:
        """Return how many sums there are."""
        return int(_Sums.of(task, n_features).line.stop)

    def block(self, chunk: Chunk, task: Pass, extent: Extent, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves, and what is known of every row."""
        family, weights = task.problem.family, chunk.weights
        family.check_rows(as_rows(chunk.X), first=chunk.start)
        at = _Sums.of(task, leaves.m)
        table = np.zeros((leaves.n_leaves, at.line.stop))
        found = _by_leaf(family, task.anchor, chunk, leaves)
        slope = found.slope if found.slope.ndim == 2 else found.slope[:, None]
        given = slope if weights is None else slope * weights[:, None]
        table[:, at.mass] = (leaves.counts() if weights is None else leaves.sums(weights))[:, None]
        for where, values in ((at.lower, found.lower), (at.upper, found.upper), (at.spent, found.spent)):
            table[:, where] = leaves.sums(values if weights is None else values * weights)[:, None]
        for k in range(slope.shape[1]):
            table[:, at.slope.start + k] = leaves.sums(np.ascontiguousarray(given[:, k]))
        table[:, at.gradient] = _moments(found.moved, given, leaves)
        tails = [_tail(task, task.anchor, found, chunk, extent)]
        if found.loss is not None:
            table[:, at.loss] = leaves.sums(found.loss if weights is None else found.loss * weights)[:, None]
        for place, trial in enumerate(_trials(task)):
            there = _by_leaf(family, trial, chunk, leaves)
            value = there.upper if there.loss is None else there.loss
            table[:, at.line.start + place] = leaves.sums(value if weights is None else value * weights)
            tails.append(_tail(task, trial, there, chunk, extent))
        cells = task.cells.assign(found.upper, family.stratum(chunk.y) if task.cells.n_strata > 1 else None)
        stays = found.moved is chunk.X
        return BlockRead(table, tails, cells, found.upper, found.slope, found.spent, None if stays else found.moved)

    def plan(
        self, problem: Problem, anchor: Anchor, rows: WeightedRows, size: int, reach: float, *, focused: bool
    ) -> CellPlan:
        """Return cells by stratum and by the size of ``h``; a rule without a width has no levels of curvature."""
        family = problem.family
        h = family.rows(anchor, rows.X, rows.y).upper
        n_strata = max(1, len(family.strata))
        rule = cell_rule(n_strata, float(rows.weights @ h), max(size // n_strata, 1), 0.0, focused=False)
        cells = rule.assign(h, family.stratum(rows.y))
        return CellPlan(rule, np.bincount(cells, rows.weights, rule.n_cells).astype(np.float64), 0.0)


def _tail(task: Pass, model: Anchor, found: RowDual, chunk: Chunk, extent: Extent) -> FlipTail:
    """Return the rows that gain by a change of label at some feasible multiplier, where the family tells."""
    family = task.problem.family
    if found.gain is None or not family.flips:
        return FlipTail.empty()
    return family.flip_form.tail_of(found.gain, family.size(model.coef), chunk.weights, extent.total_weight)


def _moments(moved: Any, values: FloatArray, leaves: Leaves) -> FloatArray:
    """Return ``values.T @ moved`` over every leaf, output by output, shape (n_leaves, n_outputs * m)."""
    spans = [slice(start, start + leaves.rows) for start in range(0, leaves.n, leaves.rows)]
    if values.shape[1] == 1:
        return np.stack([np.asarray(moved[span].T @ values[span, 0], dtype=np.float64) for span in spans])
    return np.stack([np.asarray(moved[span].T @ values[span], dtype=np.float64).T.ravel() for span in spans])


def _by_leaf(family: Family, model: Anchor, chunk: Chunk, leaves: Leaves) -> RowDual:
    """Evaluate leaf by leaf: what is known of a row then does not depend on how the rows were cut."""
    starts = range(0, leaves.n, leaves.rows)
    parts = [
        family.rows(model, chunk.X[start : start + leaves.rows], chunk.y[start : start + leaves.rows])
        for start in starts
    ]
    if not family.moves_rows:
        moved: Any = chunk.X
    else:
        moved = parts[0].moved if len(parts) == 1 else np.concatenate([part.moved for part in parts])
    first: Any = parts[0]
    columns = [None if first[k] is None else np.concatenate([part[k] for part in parts]) for k in (0, 1, 2, 3, 5, 6)]
    lower, upper, slope, spent, loss, gain = columns
    return RowDual(lower, upper, slope, spent, moved, loss, gain)  # type: ignore[arg-type]


class RowwiseReading(Reading):
    """A finished read of such a family.

    Where the multiplier enters through changes of label alone the risk is exact (an upper bound where more than 65,536
    rows may change, see `FlipTail`). Elsewhere it is bounded by the objective at the anchor's own multiplier.
    """

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        super().__init__(task, summary, column_sizes)
        at = _Sums.of(task, self.anchor.coef.shape[-1])
        vector = self._vector
        self.mass, self.mean_h = float(vector[at.mass][0]), float(vector[at.upper][0])
        self.mean_lower, self.spent = float(vector[at.lower][0]), float(vector[at.spent][0])
        single = self.anchor.coef.ndim == 1
        self.slope = float(vector[at.slope][0]) if single else vector[at.slope]
        self.gradient = vector[at.gradient].reshape(self.anchor.coef.shape)
        self._line = vector[at.line]
        self.risk, self.multiplier = self._objective(self.anchor, self.mean_h), self.anchor.multiplier
        self.is_exact = False
        if self.problem.family.flips_only:
            tail = summary.tails[0]
            self.risk, self.multiplier = self._least(self.anchor, float(vector[at.loss][0]), tail)
            self.is_exact = not tail.bins.size

    def _objective(self, model: Anchor, mean_h: float) -> float:
        paid = self.problem.price * model.multiplier if self.problem.radius > 0.0 else 0.0
        return paid + mean_h + self.problem.penalty(model.coef)

    def _least(self, model: Anchor, mean_loss: float, tail: FlipTail) -> tuple[float, float]:
        """Return risk and multiplier from the mean loss and the rows that may change label."""
        family = self.problem.family
        found = family.flip_form.minimise_tail(mean_loss, self.mass, tail, family.size(model.coef))
        return found.value + self.problem.penalty(model.coef), found.multiplier

    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, objective)`` along the line search."""
        models, values = _trials(self.task), self._line.tolist()
        if self.problem.family.flips_only:
            parts = zip(models, values, self.summary.tails[1:], strict=True)
            risks = [self._least(model, loss, tail)[0] for model, loss, tail in parts]
        else:
            risks = [self._objective(model, value) for model, value in zip(models, values, strict=True)]
        return list(zip(self.task.steps, risks, strict=False))

    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return what holds for every model: sums of one model's moves bound no other's."""
        return max(trivial_bound(self.problem), self.known_bound)

    @property
    def needs_rows(self) -> bool:
        """One model's moves bound no other's risk."""
        return True

    @property
    def rounding(self) -> float:
        """How far the two bounds of ``h`` are apart, or the rounding of the certificate that replaced them."""
        return max(self.mean_h - self.mean_lower, 0.0, self.known_rounding)

    def balanced(self, sample: Sample, weights: FloatArray) -> FloatArray:
        """Give every stratum its mass: with fewer rows than moments calibration only approaches it."""
        n_strata = self.task.cells.n_strata
        if n_strata == 1:
            return weights
        stratum = self.problem.family.stratum(sample.y)
        wanted = self.cell_mass.reshape(n_strata, -1).sum(axis=1)
        found = np.bincount(stratum, weights, n_strata)
        factors: FloatArray = np.divide(wanted, found, out=np.zeros(n_strata), where=found > 0.0)
        return weights * factors[stratum]


KERNELS["rowwise"] = RowwiseKernel()
READINGS["rowwise"] = RowwiseReading
