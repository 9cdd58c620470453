"""A lower bound with a second-order error by a few reads: slopes are changed slightly until their moment is feasible.

With the slopes at a model near the optimum the error of the bound is of first order: their moment is infeasible by the
norm of the gradient. A read computes that moment and the Gram matrix of the rows' slack,

    G = sum_i w_i D_i z_i z_i',   z = (x, 1),   D_i how far the slope of row i may move,

from which follows the smallest change, ``s_i + D_i y_i z_i . d`` with ``G d = goal - moment``. The next read clips
these slopes to the range that the loss allows, and computes the bound on all rows, and the same sums for another
change, because clipping leaves a part of the moment. Memory does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dualcore.certificates import LevelSet, SideSums, side_bound
from dualcore.certificates.psd import solve_psd
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import ArraySource, Chunk, Source
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.forms import mean_slope
from dualcore.problem.losses import Loss
from dualcore.reading.closed import spread_of
from dualcore.reading.leaves import LeafRead, Leaves
from dualcore.reading.summary import WeightedRows

# With more features the Gram matrices cost more than further reads.
REPAIRED_FEATURES = 300
# Widths over which slopes are averaged near kinks, flips and narrow curved parts, relative to the standard deviation of
# the scores.
_WIDTHS = (0.005, 0.01, 0.02, 0.04, 0.1)
# Number of reads: one more than there are changes of slopes.
_READS = 3
# If flips spend the whole budget, the multiplier is lowered by this share of their width, and then the flip
# probabilities are scaled down to the budget.
_LOWERED = 0.2
# Number of sums of a candidate besides Gram matrix and moments: two values, two balances, flipped mass, absolute terms,
# and the sums of the three vectors whose moments the next change needs.
_FEW_SUMS = 9


def can_repair(problem: Problem, n_features: int) -> bool:
    """Whether slopes can be repaired from sums: order 1, a closed form, one score per row, not too many features."""
    closed = problem.family.is_closed and problem.family.n_outputs == 1 and problem.family.linear_in_multiplier
    return closed and n_features <= REPAIRED_FEATURES


def _is_averaged(loss: Loss, width: float) -> bool:
    """Whether slopes are averaged over a width: if they jump, or if the curved part of the loss is narrower."""
    if loss.kinks:
        return True
    return len(loss.curvature_jumps) > 1 and 2.0 * width > max(loss.curvature_jumps) - min(loss.curvature_jumps)


class _Dual(NamedTuple):
    """For every row (n,): slope without flip and its range, flip probability, slope of the flipped loss."""

    slope: FloatArray
    low: FloatArray | float
    high: FloatArray | float
    share: FloatArray
    flipped_slope: FloatArray

    @property
    def slack(self) -> FloatArray:
        """Weight of a change of the slope, zero at both ends of its range, times the probability of no flip."""
        return np.asarray((1.0 - self.share) * (self.slope - self.low) * (self.high - self.slope))

    def moved(self, along: FloatArray) -> _Dual:
        """Return the point after a change along ``along`` (n,), clipped to the range."""
        step = (self.slope - self.low) * (self.high - self.slope) * along
        return self._replace(slope=np.clip(self.slope + step, self.low, self.high))


@dataclass(frozen=True)
class _Candidate:
    """A dual point: slopes at a model, averaged over a width near kinks, flips and narrow curved parts, then changed.

    ``scale`` multiplies the flip probabilities; each of ``directions`` (m + 1,) is one change, in this order.
    """

    problem: Problem
    anchor: Anchor
    width: float
    scale: float = 1.0
    directions: tuple[FloatArray, ...] = ()

    def of(self, leaves: Leaves, t: FloatArray, signs: FloatArray) -> _Dual:
        """Return the changed slopes of rows, given their margins or residuals ``t`` (n,)."""
        problem, loss, width = self.problem, self.problem.loss, self.width
        low, high = loss.slope_range
        averaged = _is_averaged(loss, width)
        smoothed = width if averaged else 0.0
        slope = mean_slope(loss, t, smoothed)
        dual = _Dual(slope, low, high, np.zeros(t.size), np.zeros(t.size))
        if averaged:  # between the slopes at both ends of the width
            below, above = loss.slope(t - width), loss.slope(t + width)
            dual = dual._replace(slope=np.clip(slope, below, above), low=below, high=above)
        gains = problem.form.flip_gains(t)
        if gains is not None:
            cost, ahead = problem.geometry.label_cost, 2.0 * width * loss.lipschitz
            spent = self.anchor.multiplier > problem.kappa(self.anchor.coef) * (1.0 + 1e-9)
            gain = gains - self.anchor.multiplier * cost + (_LOWERED * ahead if spent else 0.0)
            rows = np.flatnonzero(gain > -ahead)
            dual.share[rows] = self.scale * np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
            dual.flipped_slope[rows] = mean_slope(loss, -t[rows], smoothed)
        for direction in self.directions:
            dual = dual.moved(signs * (leaves.dot(direction[:-1]) + direction[-1]))
        return dual

    def next(self, gram: FloatArray, moments: FloatArray, flipped: float) -> _Candidate:
        """Return the candidate with one more change: the smallest whose moment would make the model optimal."""
        problem, coef, scale, spent = self.problem, self.anchor.coef, 1.0, 0.0
        if flipped > 0.0:
            cost = problem.geometry.label_cost
            scale = min(1.0, problem.radius / (cost * flipped) * (1.0 - 1e-12))
            spent = cost * scale * flipped
        moment = moments[0] + scale * moments[1]
        budget = problem.loss.lipschitz * max(problem.radius - spent, 0.0) * (1.0 - 1e-13)
        floor = 0.0 if problem.is_classification else problem.geometry.target_slope
        penalty = problem.ridge * coef
        if problem.size(coef) >= floor * (1.0 - 1e-9):  # below the floor the norm is not active
            penalty = penalty + problem.geometry.norm.face(coef, -moment[:-1] - penalty, budget)
        right = np.append(-penalty - moment[:-1], -moment[-1])
        if problem.fit_intercept:
            direction = solve_psd(gram, right)
        else:
            direction = np.append(solve_psd(gram[:-1, :-1], right[:-1]), 0.0)
        return replace(self, scale=self.scale * scale, directions=(*self.directions, direction))


class _RepairSums(NamedTuple):
    """The sums of a read for one candidate.

    For the bound, by the sign of the slopes: ``value`` (2,), ``balance`` (2,), ``moment`` (2, m), ``flipped``,
    ``terms``. For the next change: ``gram`` (m + 1, m + 1), and ``moments`` (2, m + 1) of the slopes without flips and
    of their changes by flips.
    """

    value: FloatArray
    balance: FloatArray
    moment: FloatArray
    flipped: float
    terms: float
    gram: FloatArray
    moments: FloatArray

    @classmethod
    def of(cls, total: FloatArray, m: int) -> _RepairSums:
        """Return the sums from a row of the table of `_Read`."""
        few, square, rows = np.split(total, [_FEW_SUMS, _FEW_SUMS + m * m])
        rows, levels = rows.reshape(5, m), few[6:]
        gram = np.empty((m + 1, m + 1))
        gram[:m, :m], gram[:m, m], gram[m, :m], gram[m, m] = square.reshape(m, m), rows[4], rows[4], levels[2]
        moments = np.column_stack([rows[2:4], levels[:2]])
        return cls(few[:2], few[2:4], rows[:2], float(few[4]), float(few[5]), gram, moments)


@dataclass(frozen=True)
class _Read(LeafRead[list[TreeSum]]):
    """Computes the sums of candidates for bounds and next changes, with one tree of sums per candidate."""

    candidates: tuple[_Candidate, ...]

    def leaf_of(self, chunk: Chunk) -> int:
        """Return at least twice the number of features, so that adding Gram matrices costs less than computing them."""
        return max(super().leaf_of(chunk), 1 << (2 * int(chunk.X.shape[1]) - 1).bit_length())

    def join(self, found: list[list[TreeSum]]) -> list[TreeSum]:
        """Return the trees of all parts together."""
        return [TreeSum.join(trees) for trees in zip(*found, strict=True)]

    def sums_of(self, chunk: Chunk) -> list[TreeSum]:
        """Return the sums over whole leaves."""
        problem, anchor = self.candidates[0].problem, self.candidates[0].anchor
        leaves = Leaves(chunk.X, self.leaf_of(chunk))
        signs = chunk.y if problem.is_classification else np.ones(chunk.y.size)
        masses = chunk.masses(self.total)
        score = leaves.dot(anchor.coef) + anchor.intercept
        t = score * signs if problem.is_classification else score - chunk.y
        tables = (self._table(leaves, chunk.y, masses, signs, each.of(leaves, t, signs)) for each in self.candidates)
        return [TreeSum.of_leaves(chunk.start // leaves.rows, table) for table in tables]

    def _table(self, leaves: Leaves, y: FloatArray, masses: FloatArray, signs: FloatArray, dual: _Dual) -> FloatArray:
        """Return for every leaf a row of sums, Gram matrix and moments, in the layout of `_RepairSums.of`."""
        problem = self.candidates[0].problem
        stays = 1.0 - dual.share
        value = -stays * problem.loss.conjugate(dual.slope) - dual.share * problem.loss.conjugate(dual.flipped_slope)
        size = np.abs(value)
        if not problem.is_classification:
            value = value - dual.slope * y
            size = size + np.abs(dual.slope * y)
        weighted = masses * signs * (stays * dual.slope - dual.share * dual.flipped_slope)
        down, up = np.minimum(weighted, 0.0), np.maximum(weighted, 0.0)
        kept, changes = masses * signs * dual.slope, masses * signs * dual.share * (-dual.flipped_slope - dual.slope)
        slack, value, is_up = masses * dual.slack, masses * value, weighted > 0.0
        few = [value * ~is_up, value * is_up, -down, up, masses * dual.share, masses * size, kept, changes, slack]
        grams, moments = leaves.grams(slack, np.array([down, up, kept, changes, slack]))
        sums = np.stack([leaves.sums(each) for each in few], axis=1)
        return np.concatenate([sums, grams.reshape(len(sums), -1), moments.reshape(len(sums), -1)], axis=1)


def repaired_bounds(
    source: Source, problem: Problem, anchor: Anchor, rows: WeightedRows, level_set: LevelSet
) -> Iterator[float]:
    """Yield lower bounds on the optimal risk of the full data, one per read from the second read on.

    It takes three reads for the widths that are best on the sample, and three more for the others.

    ``anchor`` is a model near the optimum with the multiplier of its risk on the full data, for a problem that
    `can_repair` accepts; ``level_set`` is that of the risk of the best model known. ``rows`` is a weighted sample of
    all rows, on which widths are chosen.
    """
    spread = spread_of(problem.family.signal_at(anchor, rows.X, rows.y), rows.weights)
    widths: tuple[float, ...] = _WIDTHS
    if not (problem.loss.kinks or problem.family.flips):
        widths = (0.0, *(width for width in widths if _is_averaged(problem.loss, width * spread)))
    candidates = tuple(_Candidate(problem, anchor, width * spread) for width in widths)
    best = np.ones(len(candidates), dtype=bool)
    if len(candidates) > 1:
        *_, last = _bounds(ArraySource(rows.X, rows.y, rows.weights, checked=True), candidates, level_set)
        worse = max(last) - np.array(last)  # widths that are nearly as good may be better on all rows
        best = worse <= 0.5 * abs(level_set.upper - max(last))
    for first in (True, False):  # the other widths only if the caller continues
        some = tuple(each for each, is_best in zip(candidates, best, strict=True) if is_best == first)
        for bounds in _bounds(source, some, level_set) if some else ():
            yield max(bounds)


def _bounds(source: Source, candidates: tuple[_Candidate, ...], level_set: LevelSet) -> Iterator[list[float]]:
    """Yield the bounds of candidates after one change of slopes, and after two."""
    for number in range(_READS):
        trees = _Read(source.n_rows, source.total_weight, candidates).over(source)
        found = [_RepairSums.of(tree.total(), source.n_features) for tree in trees]
        if number > 0:
            yield [_bound(level_set, sums, source.n_rows) for sums in found]
        after = zip(candidates, found, strict=True)
        candidates = tuple(each.next(sums.gram, sums.moments, sums.flipped) for each, sums in after)


def _bound(level_set: LevelSet, sums: _RepairSums, n_rows: int) -> float:
    sides = SideSums(sums.value, sums.balance, np.zeros(2), sums.moment, sums.flipped)
    return side_bound(level_set, sides, sums.terms, n_rows)
