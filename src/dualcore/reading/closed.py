"""Reads of problems with a closed form of ``h``: the sums over rows for risk, gradient and lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import LevelSet, SideSums, side_bound, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk
from dualcore.problem import Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.forms import mean_slope
from dualcore.reading.leaves import Leaves
from dualcore.reading.reading import READINGS, Reading
from dualcore.reading.summary import KERNELS, BlockRead, Pass, Summary

# Sweeps of coordinate ascent over the mixture of dual candidates.
_SWEEPS = 2


# Positions of the totals of a pass.
_MASS, _LOSS, _H, _SLOPE, _FLIPPED = range(5)
_TOTALS = 5


class DualColumns:
    """Positions of the sums of a dual candidate; pairs are for rows of negative and of positive slope in the score.

    ``value`` (2) and ``balance`` (2): sums of dual values and of absolute slopes. ``extra`` (2): sums of powers of the
    slopes for orders above 1, or the flipped mass in the first entry. ``down`` and ``up`` (m each): moments.
    """

    value, balance, extra = slice(0, 2), slice(2, 4), slice(4, 6)
    downward, upward, flipped = 2, 3, 4

    def __init__(self, n_features: int) -> None:
        first = self.extra.stop
        self.down = slice(first, first + n_features)
        self.up = slice(self.down.stop, self.down.stop + n_features)
        self.width: int = self.up.stop


class Layout:
    """Positions of the sums of a pass in a vector: totals, dual candidates, squares of the columns."""

    def __init__(self, task: Pass, n_features: int) -> None:
        self.m = n_features
        self.n_duals = 2 if task.width > 0.0 else 1
        self.n_squares = n_features if task.sized else 0

    @property
    def width(self) -> int:
        """Length of a vector."""
        return _TOTALS + self.n_duals * DualColumns(self.m).width + self.n_squares

    def split(self, vectors: FloatArray) -> tuple[FloatArray, list[FloatArray], FloatArray]:
        """Return views of totals, duals (see `DualColumns`) and squares of columns; last axis."""
        lengths = [_TOTALS, *[DualColumns(self.m).width] * self.n_duals]
        totals, *duals, squares = np.split(vectors, np.cumsum(lengths), axis=-1)
        return totals, duals, squares


def kink_distance(problem: Problem, multiplier: float, t: FloatArray) -> FloatArray | None:
    """Return the distances (n,) of margins or residuals from the nearest kink of ``h``; None if it has none."""
    loss = problem.loss
    distance: FloatArray | None = None
    for kink in loss.kinks:
        here = np.abs(t - kink)
        distance = here if distance is None else np.minimum(distance, here)
    gains = problem.form.flip_gains(t)
    if gains is not None:
        here = np.abs(gains - multiplier * problem.geometry.label_cost) / loss.lipschitz
        distance = here if distance is None else np.minimum(distance, here)
    return distance


def spread_of(t: FloatArray, weights: FloatArray) -> float:
    """Return the standard deviation of ``t``, at least a tiny positive number."""
    mean = float(weights @ t)
    return max(float(np.sqrt(weights @ (t - mean) ** 2)), 1e-12)


def smoothing_width(problem: Problem, model: Any, rows: Any) -> float:
    """Return the width over which slopes are averaged for a second dual point, from sample rows; 0 without kinks."""
    if not problem.family.is_closed or not problem.loss.kinks:
        return 0.0
    return 0.05 * spread_of(problem.family.signal_at(model, rows.X, rows.y), rows.weights)


class ClosedKernel:
    """Sums for closed forms. It costs one product with X, two with its transpose, and O(n) besides; speed matters."""

    def block(self, chunk: Chunk, task: Pass, total: float, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves."""
        problem, anchor, form = task.problem, task.anchor, task.problem.form
        size, y, weights = problem.size(anchor.coef), chunk.y, chunk.weights
        is_margin = problem.is_classification
        score = leaves.dot(anchor.coef)
        score += anchor.intercept
        t = score * y if is_margin else score - y
        found = form.evaluate(t, anchor.multiplier, size)
        value, h, slope, flipped = found
        tail = form.tail(t, size, weights, total)
        score_slope = slope * y if is_margin else slope
        layout = Layout(task, leaves.m)
        table = np.zeros((leaves.n_leaves, layout.width))
        totals, duals, squares = layout.split(table)
        if task.sized:
            squares[:] = leaves.squares(weights)
        dual = DualColumns(leaves.m)
        if task.certified:
            _dual_sums(duals[0], leaves, weights, score_slope, form.dual_values(found, t, score, y, anchor.multiplier))
        else:
            given = _weigh(score_slope, weights)
            duals[0][:, dual.upward], duals[0][:, dual.down] = leaves.sums(given), leaves.moments(given)
        totals[:, _MASS] = leaves.counts() if weights is None else leaves.sums(weights)
        totals[:, _LOSS] = leaves.sums(_weigh(value, weights))
        totals[:, _H] = totals[:, _LOSS] if h is value else leaves.sums(_weigh(h, weights))
        totals[:, _SLOPE] = duals[0][:, dual.upward] - duals[0][:, dual.downward]
        if flipped is not None:
            totals[:, _FLIPPED] = duals[0][:, dual.flipped] = leaves.sums(_weigh(flipped, weights))
        powers = form.slope_powers(slope) if task.certified else None
        if powers is not None:
            _by_side(duals[0][:, dual.extra], leaves, _weigh(powers, weights), score_slope > 0.0)
        if task.width > 0.0:
            _smooth_dual(duals[1], task, leaves, chunk, t)
        return BlockRead(table, tail)


def _weigh(values: npt.NDArray[Any], weights: FloatArray | None) -> npt.NDArray[Any]:
    return values if weights is None else values * weights


def _by_side(out: FloatArray, leaves: Leaves, values: FloatArray, is_up: npt.NDArray[np.bool_]) -> None:
    """Write the sums of ``values`` over the rows of negative and of positive slope in the score, shape (n_leaves, 2).

    Each sign is summed separately: one may have so little mass that a difference of sums would lose its digits.
    """
    out[:, 0], out[:, 1] = leaves.sums(values * ~is_up), leaves.sums(values * is_up)


def _dual_sums(
    out: FloatArray, leaves: Leaves, weights: FloatArray | None, score_slope: FloatArray, value: FloatArray
) -> None:
    """Write value, balance and moment of a dual candidate over every leaf, each by the sign of the slope."""
    dual = DualColumns(leaves.m)
    _by_side(out[:, dual.value], leaves, _weigh(value, weights), score_slope > 0.0)
    score_slope = _weigh(score_slope, weights)
    up = np.maximum(score_slope, 0.0)
    down = score_slope - up
    out[:, dual.downward], out[:, dual.upward] = -leaves.sums(down), leaves.sums(up)
    out[:, dual.down], out[:, dual.up] = leaves.moments(down), leaves.moments(up)


def _smooth_dual(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray) -> None:
    """Write the dual sums for slopes averaged over ``[t - width, t + width]``, and with gradual label flips."""
    problem, width = task.problem, task.width
    averaged = width if problem.loss.kinks else 0.0
    slope = mean_slope(problem.loss, t, averaged)
    value = -problem.loss.conjugate(slope)
    gains = problem.form.flip_gains(t)
    if gains is not None:
        ahead = 2.0 * width * problem.loss.lipschitz
        gain = gains - task.anchor.multiplier * problem.geometry.label_cost
        rows = np.flatnonzero(gain > -ahead)
        share = np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
        flipped_slope = mean_slope(problem.loss, -t[rows], averaged)
        slope[rows] = (1.0 - share) * slope[rows] - share * flipped_slope
        value[rows] = (1.0 - share) * value[rows] - share * problem.loss.conjugate(flipped_slope)
        everywhere = np.zeros(t.size)
        everywhere[rows] = share
        out[:, DualColumns(leaves.m).flipped] = leaves.sums(_weigh(everywhere, chunk.weights))
    if not problem.is_classification:
        value = value - slope * chunk.y
    score_slope = slope * chunk.y if problem.is_classification else slope
    _dual_sums(out, leaves, chunk.weights, score_slope, value)


class ClosedReading(Reading):
    """A finished read of a closed form."""

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        super().__init__(task, summary)
        m = self.anchor.coef.size
        totals, self._duals, squares = Layout(task, m).split(self._vector)
        self.column_sizes = np.sqrt(squares) if task.sized else column_sizes
        self.mass, self.mean_loss, self.mean_h, self.slope, self.flipped = (float(total) for total in totals)
        dual = DualColumns(m)
        self.gradient = self._duals[0][dual.down] + self._duals[0][dual.up]
        self.spent = self.problem.geometry.label_cost * self.flipped if self.flipped else 0.0
        self.risk, self.multiplier = self._risk(self.anchor.coef, float(self.mean_loss), summary.tail)
        # If so many rows may flip that the tail became a histogram, the risk is an upper bound.
        self.is_exact = not summary.tail.bins.size

    def _risk(self, coef: FloatArray, mean_loss: float, tail: FlipTail) -> tuple[float, float]:
        """Return the risk, ridge included, and the multiplier, from the mean loss and the flip tail.

        Exact for up to 65,536 rows in the tail, an upper bound for more; see `FlipTail`.
        """
        problem = self.problem
        value, multiplier = problem.form.minimise_tail(mean_loss, self.mass, tail, problem.size(coef))
        return float(value + problem.penalty(coef)), float(multiplier)

    @property
    def duals(self) -> list[FloatArray]:
        """The sums of the dual candidates; means of such sums, also from several reads, are sums of dual candidates."""
        return list(self._duals) if self.problem.form.sums_mix and self.task.certified else []

    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return a lower bound on the optimal risk of the full data, from sums alone.

        Parameters
        ----------
        upper : float
            The risk of any model; it bounds the optimal multiplier, which is the price of infeasibility.
        earlier : sequence of ndarray
            `duals` of earlier reads. A mean of dual points is a dual point, its dual value is at least the mean of
            theirs, and their infeasibilities cancel in part. The best mean is found by coordinate ascent.
        """
        best = max(trivial_bound(self.problem), self.known_bound)
        if not self.task.certified:
            return best
        at = self.level_set(upper)
        if not self.problem.form.sums_mix:
            return max(best, *(self._bound(dual, at) for dual in self._duals))
        candidates = [*earlier, *self._duals]
        bounds = [self._bound(dual, at) for dual in candidates]
        order = np.argsort(bounds)[::-1]
        mean = candidates[order[0]]
        reached = self._bound(mean, at, closely=False)
        shares = np.concatenate([np.geomspace(1e-3, 0.5, 10), np.linspace(0.55, 1.0, 4)])
        for _ in range(_SWEEPS):
            before = reached
            for other in order:
                toward = candidates[other] - mean
                if not toward.any():
                    continue
                values = [self._bound(mean + share * toward, at, closely=False) for share in shares]
                top = int(np.argmax(values))
                if values[top] > reached:
                    mean, reached = mean + shares[top] * toward, values[top]
            if reached == before:  # another sweep would try the same means
                break
        return float(max(best, *bounds, self._bound(mean, at)))

    @property
    def needs_rows(self) -> bool:
        """True for label flips of order 2, where every row has its own nonlinear function of the multiplier."""
        return self.problem.family.flips and not self.problem.form.sums_decide

    @property
    def rounding(self) -> float:
        """Bound on the rounding error of the risk, from the scores and their sum."""
        return self.level_set(self.risk).risk_error(self.anchor.coef, self.anchor.intercept)

    def _score_size(self) -> float:
        """Return an upper bound on the root mean square of the scores at the anchor."""
        return float(np.abs(self.anchor.coef) @ self._sizes()) + abs(float(self.anchor.intercept))

    def _sizes(self) -> FloatArray:
        if self.column_sizes is None:
            raise RuntimeError("a lower bound needs the sizes of the columns: read them first")
        return self.column_sizes

    def level_set(self, upper: float) -> LevelSet:
        """Return a region, computed from sums, that contains all models of risk at most ``upper``."""
        targets = 0.0
        if not self.problem.is_classification:  # |y| <= |score| + |r|
            targets = self._score_size() + self.problem.loss.largest_size(float(self.mean_loss))
        return LevelSet(self.problem, upper, self._sizes(), self.summary.n_rows, target_size=targets)

    def _bound(self, sums: FloatArray, at: LevelSet, *, closely: bool = True) -> float:
        problem, dual = self.problem, DualColumns(self.anchor.coef.size)
        if self.flipped and not problem.form.sums_decide:  # sums do not bound the transport of flipped rows
            return 0.0
        value, balance, extra = sums[dual.value], sums[dual.balance], sums[dual.extra]
        moment = sums[dual.down.start : dual.up.stop].reshape(2, -1)
        terms = 0.0
        if closely:
            slopes = problem.form.steepest(balance)
            terms = float(self.mean_h) + slopes * self._score_size() + problem.price * self.multiplier
        flipped = float(sums[dual.flipped]) if problem.form.sums_mix else 0.0
        return side_bound(
            at, SideSums(value, balance, extra, moment, flipped), terms, self.summary.n_rows, closely=closely
        )


KERNELS["closed"] = ClosedKernel()
READINGS["closed"] = ClosedReading
