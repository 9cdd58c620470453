"""Reads of families without a closed form, from the worst-case move of each row: values and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk
from dualcore.problem import Anchor
from dualcore.problem.families import Family, RowDual
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.leaves import Leaves
from dualcore.reading.reading import READINGS, Reading
from dualcore.reading.summary import KERNELS, BlockRead, Pass, Summary


class _RowSums(NamedTuple):
    """Positions of the sums in a vector."""

    mass: slice
    lower: slice
    upper: slice
    spent: slice
    loss: slice
    slope: slice
    gradient: slice

    @classmethod
    def of(cls, task: Pass, n_features: int) -> _RowSums:
        family = task.problem.family
        k = family.n_outputs
        lengths = [1, 1, 1, 1, int(family.flips_only), k, k * n_features]
        ends = np.cumsum(lengths).tolist()
        return cls(*(slice(end - length, end) for length, end in zip(lengths, ends, strict=True)))


class RowwiseKernel:
    """Sums of value, transport and gradient.

    If only labels can change (softmax), the rows that may change are collected in a `FlipTail`, which with the mean
    loss determines the exact risk.
    """

    def block(self, chunk: Chunk, task: Pass, total: float, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves."""
        family, weights = task.problem.family, chunk.weights
        family.check_rows(as_rows(chunk.X), first=chunk.start)
        at = _RowSums.of(task, leaves.m)
        table = np.zeros((leaves.n_leaves, at.gradient.stop))
        found = _by_leaf(family, task.anchor, chunk, leaves)
        slope = found.slope if found.slope.ndim == 2 else found.slope[:, None]
        given = slope if weights is None else slope * weights[:, None]
        table[:, at.mass] = (leaves.counts() if weights is None else leaves.sums(weights))[:, None]
        for where, values in ((at.lower, found.lower), (at.upper, found.upper), (at.spent, found.spent)):
            table[:, where] = leaves.sums(values if weights is None else values * weights)[:, None]
        for k in range(slope.shape[1]):
            table[:, at.slope.start + k] = leaves.sums(np.ascontiguousarray(given[:, k]))
        table[:, at.gradient] = _moments(found.moved, given, leaves)
        if found.loss is not None:
            table[:, at.loss] = leaves.sums(found.loss if weights is None else found.loss * weights)[:, None]
        return BlockRead(table, _tail(task, task.anchor, found, chunk, total))


def _tail(task: Pass, model: Anchor, found: RowDual, chunk: Chunk, total: float) -> FlipTail:
    """Return the rows whose loss increases by a change of label at some feasible multiplier, if labels can change."""
    family = task.problem.family
    if found.gain is None or not family.flips:
        return FlipTail.empty()
    # For the logistic loss the gain of a flip is the margin, so the gain takes the place of the margin here.
    return family.flip_form.tail(found.gain, family.size(model.coef), chunk.weights, total)


def _moments(moved: Any, values: FloatArray, leaves: Leaves) -> FloatArray:
    """Return ``values.T @ moved`` over every leaf, output by output, shape (n_leaves, n_outputs * m)."""
    spans = [slice(start, start + leaves.rows) for start in range(0, leaves.n, leaves.rows)]
    if values.shape[1] == 1:
        return np.stack([np.asarray(moved[span].T @ values[span, 0], dtype=np.float64) for span in spans])
    return np.stack([np.asarray(moved[span].T @ values[span], dtype=np.float64).T.ravel() for span in spans])


def _by_leaf(family: Family, model: Anchor, chunk: Chunk, leaves: Leaves) -> RowDual:
    """Return the rows evaluated leaf by leaf, so that the result does not depend on the chunks."""
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
    """The result of a read of a family without a closed form.

    If only labels can change, the risk is exact (an upper bound if more than 65,536 rows may change, see `FlipTail`).
    Otherwise it is bounded by the objective at the anchor's own multiplier.
    """

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        super().__init__(task, summary, column_sizes)
        at = _RowSums.of(task, self.anchor.coef.shape[-1])
        vector = self._vector
        self.mass, self.mean_h = float(vector[at.mass][0]), float(vector[at.upper][0])
        self.mean_lower, self.spent = float(vector[at.lower][0]), float(vector[at.spent][0])
        single = self.anchor.coef.ndim == 1
        self.slope = float(vector[at.slope][0]) if single else vector[at.slope]
        self.gradient = vector[at.gradient].reshape(self.anchor.coef.shape)
        self.risk, self.multiplier = self._objective(self.anchor, self.mean_h), self.anchor.multiplier
        self.is_exact = False
        if self.problem.family.flips_only:
            tail = summary.tail
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

    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return the trivial bound, or the bound of `replace_risk`: sums of one model's moves prove no other bound."""
        return max(trivial_bound(self.problem), self.known_bound)

    @property
    def needs_rows(self) -> bool:
        """True: the moves of one model prove no lower bound for others."""
        return True

    @property
    def rounding(self) -> float:
        """Difference of the two bounds of ``h``, or the rounding of the certificate that replaced them."""
        return max(self.mean_h - self.mean_lower, 0.0, self.known_rounding)


KERNELS["rowwise"] = RowwiseKernel()
READINGS["rowwise"] = RowwiseReading
