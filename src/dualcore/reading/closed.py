"""Reading closed forms: margins and residuals, with all that a lower bound and a line search need, as sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates import LevelSet, SideSums, side_bound, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk
from dualcore.data.sums import Leaves
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.forms import mean_slope
from dualcore.problem.losses import Logistic
from dualcore.reading.cells import CellPlan, Levels, binary_level, cell_rule, spread_of
from dualcore.reading.reading import READINGS, Reading
from dualcore.reading.summary import KERNELS, BlockRead, Extent, Pass, Summary, WeightedRows

# How often the mean of dual candidates is improved towards each of them.
_SWEEPS = 2
# How far beside a bend rows still count as curved, in the distance that scores may still move.
_BEND_WIDTH = 0.5


# Where the totals of a pass are.
_MASS, _LOSS, _H, _SLOPE, _FLIPPED = range(5)
_TOTALS = 5


class DualColumns:
    """Where the sums of a dual candidate are: first of the rows of negative slope in the score, then of the others.

    ``value`` (2), ``balance`` (2): sums of values and of the sizes of slopes. ``extra`` (2): sums of the powers of the
    slopes (orders above 1), or the flipped mass in the first of them. ``down``, ``up`` (m each): moments.
    """

    value, balance, extra = slice(0, 2), slice(2, 4), slice(4, 6)
    downward, upward, flipped = 2, 3, 4

    def __init__(self, n_features: int) -> None:
        first = self.extra.stop
        self.down = slice(first, first + n_features)
        self.up = slice(self.down.stop, self.down.stop + n_features)
        self.width: int = self.up.stop


class Layout:
    """Where the sums of a pass are in a vector: totals, the line search, dual candidates, squares; then cell masses."""

    def __init__(self, task: Pass, n_features: int) -> None:
        self.m, self.n_line = n_features, len(task.steps) if task.origin is not None else 0
        self.n_duals = 2 if task.width > 0.0 else 1
        self.n_squares = n_features if task.sized else 0

    @property
    def width(self) -> int:
        """Length of a vector."""
        return _TOTALS + self.n_line + self.n_duals * DualColumns(self.m).width + self.n_squares

    def split(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray], FloatArray, FloatArray]:
        """Return views of totals, line, duals (see `DualColumns`), squares of columns, masses of cells; last axis."""
        lengths = [_TOTALS, self.n_line, *[DualColumns(self.m).width] * self.n_duals, self.n_squares]
        totals, line, *duals, squares, masses = np.split(vectors, np.cumsum(lengths), axis=-1)
        return totals, line, duals, squares, masses


def kink_distance(problem: Problem, multiplier: float, t: FloatArray) -> FloatArray | None:
    """Return how far every row is from the nearest kink of ``h`` in its margin or residual; None where it has none."""
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


def curvature_level(problem: Problem, multiplier: float, t: FloatArray, slope: FloatArray, width: float) -> Levels:
    """Return the level of curvature of ``h`` at every row, 0 the largest: near a kink its distance counts instead.

    The same holds beside a bend: a step longer than the curved part of a loss is wide moves rows into it and out of it,
    so that the rows that lie there now say little of the curvature along the step.
    """
    loss, distance = problem.loss, kink_distance(problem, multiplier, t)
    level: Levels | None = None
    if not loss.kinks:
        if isinstance(loss, Logistic):
            size = np.abs(slope)  # a flipped row has slope 1 + L'(z), and the same curvature
            curvature = 4.0 * size * (1.0 - size)
        else:
            curvature = loss.curvature(t)
        level = -binary_level(curvature)
        for bend in loss.bends:
            level = np.minimum(level, binary_level(np.abs(t - bend) / (_BEND_WIDTH * width)))
    if distance is not None:
        near = binary_level(distance / width)
        level = near if level is None else np.minimum(level, near)
    return np.full(t.size, np.iinfo(np.int32).max, dtype=np.intp) if level is None else level


class ClosedKernel:
    """Sums for closed forms. This is the hot path: one product with X, two with its transpose, O(rows) besides."""

    def width(self, task: Pass, n_features: int) -> int:
        """Return how many sums there are."""
        return Layout(task, n_features).width

    def block(self, chunk: Chunk, task: Pass, extent: Extent, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves, and what is known of every row."""
        problem, anchor, form = task.problem, task.anchor, task.problem.form
        size, y, weights = problem.size(anchor.coef), chunk.y, chunk.weights
        is_margin = problem.is_classification
        score = leaves.dot(anchor.coef)
        score += anchor.intercept
        t = score * y if is_margin else score - y
        found = form.evaluate(t, anchor.multiplier, size)
        value, h, slope, flipped = found
        tail = form.tail(t, size, weights, extent.total_weight)
        score_slope = slope * y if is_margin else slope
        layout = Layout(task, leaves.m)
        table = np.zeros((leaves.n_leaves, layout.width))
        totals, line, duals, squares, _ = layout.split(table)
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
        tails = [tail, *_along(line, task, leaves, chunk, t, extent)]
        if task.width > 0.0:
            _smooth_dual(duals[1], task, leaves, chunk, t)

        stratum = (y > 0.0).astype(np.intp) if task.cells.n_strata > 1 else None
        levels = None
        if task.cells.n_curvatures > 1:
            levels = curvature_level(problem, anchor.multiplier, t, slope, task.cells.width)
        flips = np.zeros(y.size) if flipped is None else flipped.astype(np.float64)
        return BlockRead(table, tails, task.cells.assign(h, stratum, levels), h, score_slope, flips)

    def plan(
        self, problem: Problem, anchor: Anchor, rows: WeightedRows, size: int, reach: float, *, focused: bool
    ) -> CellPlan:
        """Return cells by class, by the curvature of ``h``, and by its size."""
        t = problem.family.signal_at(anchor, rows.X, rows.y)
        h = problem.form.h(t, anchor.multiplier, problem.size(anchor.coef))
        width = reach * spread_of(t, rows.weights)
        n_strata = max(1, len(problem.family.strata))
        rule = cell_rule(n_strata, float(rows.weights @ h), size, width, focused=focused)
        levels = None
        if rule.n_curvatures > 1:
            levels = curvature_level(problem, anchor.multiplier, t, problem.loss.slope(t), width)
        cells = rule.assign(h, problem.family.stratum(rows.y), levels)
        mass = np.bincount(cells, rows.weights, rule.n_cells).astype(np.float64)
        return CellPlan(rule, mass, 0.3 * width if problem.loss.kinks else 0.0)


def _weigh(values: npt.NDArray[Any], weights: FloatArray | None) -> npt.NDArray[Any]:
    return values if weights is None else values * weights


def _by_side(out: FloatArray, leaves: Leaves, values: FloatArray, is_up: npt.NDArray[np.bool_]) -> None:
    """Write the sums of ``values`` over the rows of negative and of positive slope in the score, shape (n_leaves, 2).

    Each sign is summed by itself: its mass may be so small that a difference of sums would lose it.
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
    """Write the dual sums for slopes averaged over ``[t - width, t + width]`` if they jump; flips set in gradually."""
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


def _along(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray, extent: Extent) -> list[FlipTail]:
    """Write the sums of the loss at each step of the line search to ``anchor``; return the flip tails."""
    problem, origin = task.problem, task.origin
    if origin is None:
        return []
    start = leaves.dot(origin.coef)
    start += origin.intercept
    start = start * chunk.y if problem.is_classification else start - chunk.y
    tails = []
    for place, step in enumerate(task.steps):
        at = start + step * (t - start)
        out[:, place] = leaves.sums(_weigh(problem.loss.value(at), chunk.weights))
        size = problem.size(origin.coef + step * (task.anchor.coef - origin.coef))
        tails.append(problem.form.tail(at, size, chunk.weights, extent.total_weight))
    return tails


class SmoothedSums(NamedTuple):
    """Gradient of a smoothed mean ``h`` in the coefficients, shape (m,), and in the intercept; the mass that flips."""

    coef: FloatArray
    intercept: float
    flipped: float


class ClosedReading(Reading):
    """A finished read of a closed form."""

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        super().__init__(task, summary)
        m = self.anchor.coef.size
        totals, self._line, self._duals, squares, _ = Layout(task, m).split(self._vector)
        self.column_sizes = np.sqrt(squares) if task.sized else column_sizes
        self.mass, self.mean_loss, self.mean_h, self.slope, self.flipped = (float(total) for total in totals)
        dual = DualColumns(m)
        self.gradient = self._duals[0][dual.down] + self._duals[0][dual.up]
        self.spent = self.problem.geometry.label_cost * self.flipped if self.flipped else 0.0
        self.risk, self.multiplier = self._risk(self.anchor.coef, float(self.mean_loss), summary.tails[0])
        # With so many rows that may flip that they became a histogram the risk is bounded from above.
        self.is_exact = not summary.tails[0].bins.size

    def _risk(self, coef: FloatArray, mean_loss: float, tail: FlipTail) -> tuple[float, float]:
        """Return the risk, ridge included, and the multiplier, from the mean loss and the flip tail.

        Exact up to 65,536 rows in the tail, an upper bound beyond; see `FlipTail`.
        """
        problem = self.problem
        value, multiplier = problem.form.minimise_tail(mean_loss, self.mass, tail, problem.size(coef))
        return float(value + problem.penalty(coef)), float(multiplier)

    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, risk)`` along the line search, exact on the full data."""
        return [(step, risk) for step, risk, _ in self.line_minima()]

    def line_minima(self) -> list[tuple[float, float, float]]:
        """Return step, risk and multiplier along the line search, exact on the full data."""
        origin = self.task.origin
        if origin is None:
            return []
        coefs = [origin.coef + step * (self.anchor.coef - origin.coef) for step in self.task.steps]
        found = zip(self.task.steps, coefs, self._line, self.summary.tails[1:], strict=True)
        return [(step, *self._risk(coef, float(loss), tail)) for step, coef, loss, tail in found]

    def smoothed_sums(self) -> SmoothedSums:
        """Return the gradient of the mean ``h`` at the anchor, smoothed with the width of the read."""
        dual, sums = DualColumns(self.anchor.coef.size), self._duals[-1]
        slope = float(sums[dual.upward] - sums[dual.downward])
        return SmoothedSums(sums[dual.down] + sums[dual.up], slope, float(sums[dual.flipped]))

    def columns(self) -> tuple[FloatArray, FloatArray]:
        """Return a centre and a spread of every column: the mean by the sizes of slopes, and the distance from it."""
        dual, sums = DualColumns(self.anchor.coef.size), self._duals[0]
        total = float(sums[dual.balance].sum())
        centre = (sums[dual.up] - sums[dual.down]) / total if total > 0.0 else np.zeros(self.anchor.coef.size)
        return centre, np.sqrt(np.maximum(self._sizes() ** 2 - centre**2, 0.0))

    @property
    def duals(self) -> list[FloatArray]:
        """The sums of the dual candidates; a mean of such sums, over reads too, is one of a candidate again."""
        return list(self._duals) if self.problem.form.sums_mix and self.task.certified else []

    def lower_bound(self, upper: float, earlier: Sequence[FloatArray] = ()) -> float:
        """Return a lower bound on the optimal risk of the full data, from sums alone.

        Parameters
        ----------
        upper : float
            The risk of any model; it bounds the optimal multiplier, and so prices what is infeasible.
        earlier : sequence of ndarray
            `duals` of earlier reads. A mean of dual points is one, its conjugate sum at least the mean of theirs, and
            what makes them infeasible cancels in part: the best mean is looked for, one candidate after the other.
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
            if reached == before:  # another sweep would look at the same means
                break
        return float(max(best, *bounds, self._bound(mean, at)))

    @property
    def needs_rows(self) -> bool:
        """Flips of order 2 have a curve of their own each."""
        return self.problem.family.flips and not self.problem.form.sums_decide

    @property
    def sampled_spent(self) -> float:
        """A sample says of every row whether its label flips."""
        return self.flipped

    @property
    def rounding(self) -> float:
        """The error of the risk: that of the scores, and that of their sum."""
        return self.level_set(self.risk).risk_error(self.anchor.coef, self.anchor.intercept)

    def _score_size(self) -> float:
        """Return at least the root mean square of the scores at the anchor."""
        return float(np.abs(self.anchor.coef) @ self._sizes()) + abs(float(self.anchor.intercept))

    def _sizes(self) -> FloatArray:
        if self.column_sizes is None:
            raise RuntimeError("a lower bound needs the sizes of the columns: read them first")
        return self.column_sizes

    def level_set(self, upper: float) -> LevelSet:
        """Return the models of risk at most ``upper``, as far as sums tell."""
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
