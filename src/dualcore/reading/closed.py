"""Reading closed forms: margins and residuals, with all that a lower bound and a line search need, as sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates import (
    LevelSet,
    SideSums,
    mean_slope,
    residual_size,
    side_bound,
    slope_power,
    trivial_bound,
)
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk
from dualcore.data.sums import FlipTail, Leaves
from dualcore.problem import Anchor, Problem
from dualcore.problem.forms import MarginForm, SquaredForm, SquaredHingeForm
from dualcore.problem.losses import Logistic
from dualcore.reading.base import READINGS, Reading
from dualcore.reading.cells import CellPlan, Levels, binary_level, cell_rule, spread_of
from dualcore.reading.summary import KERNELS, BlockRead, Extent, Pass, Sample, Summary, WeightedRows

__all__ = ["ClosedKernel", "ClosedReading", "Layout", "bend_level"]

# How often the mean of dual candidates is improved towards each of them.
_SWEEPS = 2
# What is left of a mass of one by rounding; more than that is a mass.
_NO_MASS = 2.0**-60


class Layout:
    """Where the sums of a pass are in a vector: totals, the line search, dual candidates, squares; then cell masses."""

    def __init__(self, task: Pass, n_features: int) -> None:
        self.m, self.n_line = n_features, len(task.steps) if task.origin is not None else 0
        self.n_duals = 2 if task.width > 0.0 else 1
        self.n_squares = n_features if task.sized else 0

    @property
    def width(self) -> int:
        """Length of a vector."""
        return 5 + self.n_line + self.n_duals * (6 + 2 * self.m) + self.n_squares

    def split(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray], FloatArray, FloatArray]:
        """Return views of totals, line, duals (each 6 + 2 m), column squares, masses of cells, on the last axis."""
        lengths = [5, self.n_line, *[6 + 2 * self.m] * self.n_duals, self.n_squares]
        totals, line, *duals, squares, masses = np.split(vectors, np.cumsum(lengths), axis=-1)
        return totals, line, duals, squares, masses


def bend_level(problem: Problem, multiplier: float, t: FloatArray, slope: FloatArray, width: float) -> Levels:
    """Return how sharply ``h`` bends at every row, 0 the sharpest: by curvature, and by the distance to a kink."""
    loss, gamma = problem.loss, problem.geometry.label_cost
    distance: FloatArray | None = None
    for kink in loss.kinks:
        here = np.abs(t - kink)
        distance = here if distance is None else np.minimum(distance, here)
    if isinstance(problem.form, MarginForm) and np.isfinite(gamma):
        here = np.abs(problem.form.loss.flip_gain(t) - multiplier * gamma) / loss.lipschitz
        distance = here if distance is None else np.minimum(distance, here)
    level: Levels | None = None
    if not loss.kinks:
        if isinstance(loss, Logistic):
            size = np.abs(slope)  # a flipped row has slope 1 + L'(z), and the same curvature
            curvature = 4.0 * size * (1.0 - size)
        else:
            curvature = loss.curvature(t)
        level = -binary_level(curvature)
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
        return _closed_block(chunk, task, extent, leaves)

    def plan(
        self, problem: Problem, anchor: Anchor, rows: WeightedRows, size: int, reach: float, *, focused: bool
    ) -> CellPlan:
        """Return cells by class, by how sharply ``h`` bends, and by its size."""
        score = np.asarray(rows.X @ anchor.coef + anchor.intercept)
        t = score * rows.y if problem.is_classification else score - rows.y
        h = problem.form.h(t, anchor.multiplier, problem.size(anchor.coef))
        width = reach * spread_of(t, rows.weights)
        n_strata = max(1, len(problem.family.strata))
        rule = cell_rule(n_strata, float(rows.weights @ h), size, width, focused=focused)
        bend = bend_level(problem, anchor.multiplier, t, problem.loss.slope(t), width) if rule.n_bends > 1 else None
        cells = rule.assign(h, problem.family.stratum(rows.y), bend)
        mass = np.bincount(cells, rows.weights, rule.n_cells).astype(np.float64)
        return CellPlan(rule, mass, 0.3 * width if problem.loss.kinks else 0.0)


def _closed_block(chunk: Chunk, task: Pass, extent: Extent, leaves: Leaves) -> BlockRead:
    problem, anchor, form = task.problem, task.anchor, task.problem.form
    size, y, weights = problem.size(anchor.coef), chunk.y, chunk.weights
    is_margin = problem.is_classification
    score = leaves.dot(anchor.coef)
    score += anchor.intercept
    t = score * y if is_margin else score - y
    gamma = problem.geometry.label_cost

    flipped: npt.NDArray[np.bool_] | None = None
    tail = FlipTail.empty()
    if isinstance(form, SquaredForm):
        value = problem.loss.value(t)
        # Without a radius nothing moves, whatever multiplier a model of another problem brings along.
        multiplier = anchor.multiplier if problem.radius > 0.0 else np.inf
        h, slope = form.h(t, multiplier, size), form.partials(t, multiplier, size).t
        flipped = slope > 0.0 if is_margin else None
        tail = _squared_tail(problem, t, size, weights, extent)
    else:
        value, slope = problem.loss.value_and_slope(t)
        h = value
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            gain = form.loss.flip_gain(t)
            flipped = gain > anchor.multiplier * gamma
            if flipped.any():
                h = value + np.maximum(gain - anchor.multiplier * gamma, 0.0)
                slope = slope.copy()
                slope[flipped] = -problem.loss.slope(-t[flipped])
            tail = _tail(gain, form.kappa(size), gamma, weights, extent)
    if flipped is not None and not flipped.any():
        flipped = None

    pull = slope * y if is_margin else slope
    layout = Layout(task, leaves.m)
    table = np.zeros((leaves.n_leaves, layout.width))
    totals, line, duals, squares, _ = layout.split(table)
    if task.sized:
        squares[:] = leaves.squares(weights)
    if task.certified:
        # Fenchel equality at an exact slope: -L*(s) = h - s t + q gamma lam, less s y for a residual.
        dual_value = h - slope * (t if is_margin else score)
        if flipped is not None and problem.geometry.order == 1:
            dual_value += np.where(flipped, anchor.multiplier * gamma, 0.0)
        if problem.geometry.order > 1:  # the squared losses need lin and quad apart, see `squared_bound`
            dual_value = -slope if is_margin else -slope * y
        _dual_sums(duals[0], leaves, weights, pull, dual_value)
    else:
        given = _weigh(pull, weights)
        duals[0][:, 3], duals[0][:, 6 : 6 + leaves.m] = leaves.sums(given), leaves.moments(given)
    totals[:, 0] = leaves.counts() if weights is None else leaves.sums(weights)
    totals[:, 1] = leaves.sums(_weigh(value, weights))
    totals[:, 2] = totals[:, 1] if h is value else leaves.sums(_weigh(h, weights))
    totals[:, 3] = duals[0][:, 3] - duals[0][:, 2]
    if flipped is not None:
        totals[:, 4] = duals[0][:, 4] = leaves.sums(_weigh(flipped, weights))
    if problem.geometry.order > 1 and task.certified:
        _by_side(duals[0][:, 4:6], leaves, _weigh(slope_power(problem, slope), weights), pull > 0.0)
    tails = [tail, *_along(line, task, leaves, chunk, t, extent)]
    if task.width > 0.0:
        _smooth_dual(duals[1], task, leaves, chunk, t)

    stratum = (y > 0.0).astype(np.intp) if task.cells.n_strata > 1 else None
    bend = bend_level(problem, anchor.multiplier, t, slope, task.cells.width) if task.cells.n_bends > 1 else None
    turned = np.zeros(y.size) if flipped is None else flipped.astype(np.float64)
    return BlockRead(table, tails, task.cells.assign(h, stratum, bend), h, pull, turned)


def _weigh(values: npt.NDArray[Any], weights: FloatArray | None) -> npt.NDArray[Any]:
    return values if weights is None else values * weights


def _tail(gain: FloatArray, kappa: float, gamma: float, weights: FloatArray | None, extent: Extent) -> FlipTail:
    """Return the rows whose flip gain per unit of label cost exceeds ``kappa``."""
    beyond = np.flatnonzero(gain > kappa * gamma)
    equal = np.full(beyond.size, 1.0 / extent.total_weight)
    return FlipTail(gain[beyond] / gamma, equal if weights is None else weights[beyond] / extent.total_weight)


def _squared_tail(problem: Problem, t: FloatArray, size: float, weights: FloatArray | None, extent: Extent) -> FlipTail:
    """Return ``1 + z`` of the rows of a squared hinge that gain by a flip at some multiplier.

    A row that stays at one multiplier stays at all larger ones, and close to ``K^2`` it flips if
    ``1 + z - K gamma > [1 - z]_+``.
    """
    form, gamma = problem.form, problem.geometry.label_cost
    if not isinstance(form, SquaredHingeForm) or np.isinf(gamma) or problem.radius == 0.0:
        return FlipTail.empty()
    may = 1.0 + t - size * gamma > form.shortfall(t)
    beyond = np.flatnonzero(may if weights is None else may & (weights > 0.0))
    equal = np.full(beyond.size, 1.0 / extent.total_weight)
    return FlipTail(1.0 + t[beyond], equal if weights is None else weights[beyond] / extent.total_weight)


def _by_side(out: FloatArray, leaves: Leaves, values: FloatArray, is_up: npt.NDArray[np.bool_]) -> None:
    """Write the sums of ``values`` over the rows that pull down and over those that pull up, shape (n_leaves, 2).

    Each is summed by itself: a side may be so light that it would be lost in a difference of sums.
    """
    out[:, 0], out[:, 1] = leaves.sums(values * ~is_up), leaves.sums(values * is_up)


def _dual_sums(
    out: FloatArray, leaves: Leaves, weights: FloatArray | None, pull: FloatArray, value: FloatArray
) -> None:
    """Write value (2), balance (2), room for two more, and moment (2 m) of a dual candidate over every leaf.

    Each is apart by the side a row pulls to.
    """
    _by_side(out[:, :2], leaves, _weigh(value, weights), pull > 0.0)
    pull = _weigh(pull, weights)
    up = np.maximum(pull, 0.0)
    down = pull - up
    out[:, 2], out[:, 3] = -leaves.sums(down), leaves.sums(up)
    out[:, 6 : 6 + leaves.m], out[:, 6 + leaves.m :] = leaves.moments(down), leaves.moments(up)


def _smooth_dual(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray) -> None:
    """Write the dual sums for slopes averaged over ``[t - width, t + width]``; flips set in as gradually."""
    problem, width = task.problem, task.width
    slope = mean_slope(problem.loss, t, width)
    value = -problem.loss.conjugate(slope)
    gamma, form = problem.geometry.label_cost, problem.form
    if isinstance(form, MarginForm) and np.isfinite(gamma):
        ahead = 2.0 * width * problem.loss.lipschitz
        gain = form.loss.flip_gain(t) - task.anchor.multiplier * gamma
        rows = np.flatnonzero(gain > -ahead)
        share = np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
        turned = mean_slope(problem.loss, -t[rows], width)
        slope[rows] = (1.0 - share) * slope[rows] - share * turned
        value[rows] = (1.0 - share) * value[rows] - share * problem.loss.conjugate(turned)
        everywhere = np.zeros(t.size)
        everywhere[rows] = share
        out[:, 4] = leaves.sums(_weigh(everywhere, chunk.weights))
    if not problem.is_classification:
        value = value - slope * chunk.y
    pull = slope * chunk.y if problem.is_classification else slope
    _dual_sums(out, leaves, chunk.weights, pull, value)


def _along(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray, extent: Extent) -> list[FlipTail]:
    """Write the sums of the loss at each step of the line search to ``anchor``; return the flip tails."""
    problem, origin = task.problem, task.origin
    if origin is None:
        return []
    start = leaves.dot(origin.coef)
    start += origin.intercept
    start = start * chunk.y if problem.is_classification else start - chunk.y
    gamma, form = problem.geometry.label_cost, problem.form
    tails = []
    for place, step in enumerate(task.steps):
        at = start + step * (t - start)
        out[:, place] = leaves.sums(_weigh(problem.loss.value(at), chunk.weights))
        size = problem.size(origin.coef + step * (task.anchor.coef - origin.coef))
        tail = _squared_tail(problem, at, size, chunk.weights, extent)
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            tail = _tail(form.loss.flip_gain(at), form.kappa(size), gamma, chunk.weights, extent)
        tails.append(tail)
    return tails


class ClosedReading(Reading):
    """A finished read of a closed form."""

    def __init__(self, task: Pass, summary: Summary, column_sizes: FloatArray | None = None) -> None:
        super().__init__(task, summary)
        m = self.anchor.coef.size
        totals, self._line, self._duals, squares, _ = Layout(task, m).split(self._vector)
        self.column_sizes = np.sqrt(squares) if task.sized else column_sizes
        self.mass, self.mean_loss, self.mean_h, self.slope, self.flipped = (float(total) for total in totals)
        self.gradient = self._duals[0][6 : 6 + m] + self._duals[0][6 + m :]
        self.spent = self.problem.geometry.label_cost * self.flipped if self.flipped else 0.0
        self.risk, self.multiplier = self._risk(self.anchor.coef, float(self.mean_loss), summary.tails[0])
        # With so many rows that may flip that they became a histogram the risk is bounded from above.
        self.is_exact = not summary.tails[0].bins.size

    def _risk(self, coef: FloatArray, mean_loss: float, tail: FlipTail) -> tuple[float, float]:
        """Return the risk, ridge included, and the multiplier, from the mean loss and the flip tail.

        Exact up to 65,536 rows in the tail, an upper bound beyond; see `FlipTail`.
        """
        problem, form, size = self.problem, self.problem.form, self.problem.size(coef)
        if isinstance(form, MarginForm):
            if tail.bins.size:
                at, gain = tail.candidates(form.kappa(size))
                values = problem.radius * at + mean_loss + problem.geometry.label_cost * gain
                best = int(np.argmin(values))
                value, multiplier = float(values[best]), float(at[best])
            else:
                value, multiplier = form.minimise_sums(mean_loss, *tail.sorted(), size)
        elif isinstance(form, SquaredHingeForm) and (tail.delta.size or tail.bins.size):
            value, multiplier = form.minimise(*_stand_ins(form, mean_loss, float(self.mass), tail), size)
        elif isinstance(form, SquaredForm):
            value, multiplier = form.minimise_mean(mean_loss, size)
        else:
            multiplier = form.kappa(size)
            value = problem.radius * multiplier + mean_loss
        return float(value + problem.penalty(coef)), float(multiplier)

    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, risk)`` along the line search, exact on the full data."""
        origin = self.task.origin
        if origin is None:
            return []
        return [
            (step, self._risk(origin.coef + step * (self.anchor.coef - origin.coef), float(loss), tail)[0])
            for step, loss, tail in zip(self.task.steps, self._line, self.summary.tails[1:], strict=True)
        ]

    @property
    def duals(self) -> list[FloatArray]:
        """The sums of the dual candidates; a mean of such sums, over reads too, is one of a candidate again."""
        return [] if self.problem.geometry.order > 1 or not self.task.certified else list(self._duals)

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
        at = self._level_set(upper)
        if self.problem.geometry.order > 1:
            return max(best, *(self._bound(dual, at) for dual in self._duals))
        candidates = [*earlier, *self._duals]
        bounds = [self._bound(dual, at) for dual in candidates]
        order = np.argsort(bounds)[::-1]
        mean = candidates[order[0]]
        reached = self._bound(mean, at, closely=False)
        for _ in range(_SWEEPS if len(candidates) > 1 else 0):
            for other in order:
                toward = candidates[other] - mean
                shares = np.concatenate([np.geomspace(1e-3, 0.5, 10), np.linspace(0.55, 1.0, 4)])
                values = [self._bound(mean + share * toward, at, closely=False) for share in shares]
                top = int(np.argmax(values))
                if values[top] > reached:
                    mean, reached = mean + shares[top] * toward, values[top]
        return float(max(best, *bounds, self._bound(mean, at)))

    @property
    def needs_rows(self) -> bool:
        """Flips of order 2 have a curve of their own each."""
        return self.problem.family.flips and isinstance(self.problem.form, SquaredHingeForm)

    def moments(self, sample: Sample) -> tuple[FloatArray, FloatArray]:
        """Return class, ``h``, its slope in the intercept and in the coefficients, and whether a row flips."""
        X = sample.X.toarray() if sp.issparse(sample.X) else sample.X
        columns = [sample.h[:, None], sample.slope[:, None], X * sample.slope[:, None]]
        targets = [np.array([self.mean_h, self.slope]), self.gradient]
        if self.task.cells.n_strata > 1:
            columns.insert(0, (sample.y > 0.0)[:, None].astype(np.float64))
            targets.insert(0, self.cell_mass.reshape(2, -1)[1].sum(keepdims=True))
        if sample.spent.any():
            columns.append(sample.spent[:, None])
            targets.append(np.array([self.flipped]))
        return np.hstack(columns), np.concatenate(targets)

    @property
    def rounding(self) -> float:
        """The error of the risk: that of the scores, and that of their sum."""
        return self._level_set(self.risk).risk_error(self.anchor.coef, self.anchor.intercept)

    def _score_size(self) -> float:
        """Return at least the root mean square of the scores at the anchor."""
        return float(np.abs(self.anchor.coef) @ self._sizes()) + abs(float(self.anchor.intercept))

    def _sizes(self) -> FloatArray:
        if self.column_sizes is None:
            raise RuntimeError("a lower bound needs the sizes of the columns: read them first")
        return self.column_sizes

    def _level_set(self, upper: float) -> LevelSet:
        targets = 0.0
        if not self.problem.is_classification:  # |y| <= |score| + |r|
            targets = self._score_size() + residual_size(self.problem, float(self.mean_loss))
        return LevelSet(self.problem, upper, self._sizes(), self.summary.n_rows, target_size=targets)

    def _bound(self, sums: FloatArray, at: LevelSet, *, closely: bool = True) -> float:
        problem, m = self.problem, self.anchor.coef.size
        order = problem.geometry.order
        if order > 1 and self.flipped:  # sums do not bound the transport of flipped rows of order 2
            return 0.0
        value, balance, extra = sums[:2], sums[2:4], sums[4:6]
        moment = np.stack([sums[6 : 6 + m], sums[6 + m :]])
        slopes = problem.loss.lipschitz if order == 1 else 2.0 * float(balance.sum())
        terms = float(self.mean_h) + slopes * self._score_size() + problem.price * self.multiplier
        flipped = float(extra[0]) if order == 1 else 0.0
        return side_bound(
            at, SideSums(value, balance, extra, moment, flipped), terms, self.summary.n_rows, closely=closely
        )


def _stand_ins(form: SquaredHingeForm, mean_loss: float, mass: float, tail: FlipTail) -> tuple[FloatArray, FloatArray]:
    """Return margins and masses whose risk is that of all rows: the tail's, and one for the rows that never flip.

    Rows that stay enter the risk through their mean loss alone. The one row that has it stays too: its margin is at
    most the largest of theirs.
    """
    value, masses, least = tail.brackets()
    margin = value - 1.0
    loss = max(mean_loss - float(least @ form.loss.value(margin)), 0.0)
    rest = max(mass - float(masses.sum()), _NO_MASS)
    return np.append(margin, 1.0 - np.sqrt(loss / rest)), np.append(masses, rest)


KERNELS["closed"] = ClosedKernel()
READINGS["closed"] = ClosedReading
