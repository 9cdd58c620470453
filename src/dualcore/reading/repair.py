r"""A lower bound with a second-order error by a few reads: a dual point is changed slightly until it is feasible.

The dual point of a row is its slope ``s``, its flip probability ``q`` and the slope ``f`` of its flipped loss. Any
choice in their ranges gives a bound. It is tight if the moment of the slopes makes the model optimal,

    sum_i w_i y_i u_i (x_i, 1) = -(ridge theta + B g, 0),    u = (1 - q) s - q f,    B = Lip (sigma - gamma sum w q),

where ``g`` is a subgradient of the dual norm at ``theta``; if the multiplier exceeds its least value, flips have to
spend the whole budget, ``B = 0``. With the slopes at a model near the optimum the error is of first order. A read
computes it, and the matrix of its change when row i moves by the slack of each of its numbers, ``(s - low) (high - s)``
and so on, times a direction ``(d, e)`` in the space of model and multiplier,

    s + slack a,    f - slack a,    q + slack (j a - gamma e),    a = y (x, 1) . d,    j = -f - s.

The slack vanishes at the ends of a range, so small changes stay within it and are linear in the direction. The matrix
is the Gram matrix of the rows' slack. The direction solves the conditions above; where flips do not spend the budget,
``e = Lip g . d``. The next read clips what leaves its range, and computes the bound on all rows, and the same sums for
another change, because clipping leaves a part of the error. Memory does not grow with the rows.
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
# Number of reads: one more than there are changes of a dual point.
_READS = 3
# Number of sums of a candidate besides matrix and vectors: two values, two balances, flipped mass, absolute terms, and
# the entries of the matrix that belong to intercept and multiplier.
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


class _Ranged(NamedTuple):
    """One number for every row (n,), and the range that it may not leave."""

    value: FloatArray
    low: FloatArray | float
    high: FloatArray | float

    @property
    def slack(self) -> FloatArray:
        """How far the number may move; zero at both ends of its range."""
        return np.asarray((self.value - self.low) * (self.high - self.value))

    def moved(self, along: FloatArray) -> _Ranged:
        """Return the number after a change of ``along`` times its slack, clipped to the range."""
        return self._replace(value=np.clip(self.value + self.slack * along, self.low, self.high))


class _Dual(NamedTuple):
    """For every row its slope, its flip probability, and the slope of its flipped loss."""

    slope: _Ranged
    share: _Ranged
    flipped: _Ranged

    @property
    def jump(self) -> FloatArray:
        """Change of the slope in the margin by a flip; at least 0."""
        return -self.flipped.value - self.slope.value

    def moved(self, along: FloatArray, price: float) -> _Dual:
        """Return the point after a change of margins by ``along`` (n,) and of the price of a flip by ``price``."""
        share = self.share.moved(self.jump * along - price)
        return _Dual(self.slope.moved(along), share, self.flipped.moved(-along))


@dataclass(frozen=True)
class _Candidate:
    """The dual point of a model, averaged over a width near kinks, flips and narrow curved parts, then changed.

    Each of ``directions`` (m + 2,), for coefficients, intercept and multiplier, is one change, in this order.
    """

    problem: Problem
    anchor: Anchor
    width: float
    directions: tuple[FloatArray, ...] = ()

    def of(self, leaves: Leaves, t: FloatArray, signs: FloatArray) -> _Dual:
        """Return the changed dual point of rows, given their margins or residuals ``t`` (n,)."""
        problem, share, flipped = self.problem, np.zeros(t.size), np.zeros((3, t.size))
        gains, cost = problem.form.flip_gains(t) if problem.radius > 0.0 else None, 0.0
        if gains is not None:
            cost, ahead = problem.geometry.label_cost, 2.0 * self.width * problem.loss.lipschitz
            gain = gains - self.anchor.multiplier * cost
            rows = np.flatnonzero(gain > -ahead)
            share[rows] = np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
            for each, found in zip(flipped, self._slopes(-t[rows]), strict=True):
                each[rows] = found
        dual = _Dual(self._slopes(t), _Ranged(share, 0.0, 1.0), _Ranged(*flipped))
        for direction in self.directions:
            dual = dual.moved(signs * (leaves.dot(direction[:-2]) + direction[-2]), cost * direction[-1])
        return dual

    def _slopes(self, t: FloatArray) -> _Ranged:
        """Return the slopes at ``t``; averaged slopes stay between those at both ends of the width."""
        loss, width = self.problem.loss, self.width
        if not _is_averaged(loss, width):
            return _Ranged(mean_slope(loss, t, 0.0), *loss.slope_range)
        below, above = loss.slope(t - width), loss.slope(t + width)
        return _Ranged(np.clip(mean_slope(loss, t, width), below, above), below, above)

    def next(self, sums: _RepairSums) -> _Candidate:
        """Return the candidate with one more change: the smallest that would make the model optimal."""
        problem, coef, m = self.problem, self.anchor.coef, self.anchor.coef.size
        left = problem.radius - (problem.geometry.label_cost * sums.flipped if sums.flipped else 0.0)
        spent = problem.family.flips and (left <= 0.0 or self.anchor.multiplier > problem.kappa(coef) * (1.0 + 1e-9))
        balance = sums.balance[1] - sums.balance[0]
        errors = np.concatenate([sums.moment.sum(axis=0) + problem.ridge * coef, [balance, left]])
        changes = np.diag([1.0] * (m + 1) + [float(spent)])  # the columns are the directions that are allowed
        floor = 0.0 if problem.is_classification else problem.geometry.target_slope
        if not spent and left > 0.0 and problem.size(coef) >= floor * (1.0 - 1e-9):  # below it the norm is not active
            budget = problem.loss.lipschitz * left * (1.0 - 1e-13)
            changes[-1, :m] = problem.geometry.norm.face(coef, -errors[:m], budget) / left
        changes = changes[:, [*range(m + problem.fit_intercept), m + 1]]
        direction = -changes @ solve_psd(changes.T @ sums.matrix @ changes, changes.T @ errors)
        return replace(self, directions=(*self.directions, direction))


class _RepairSums(NamedTuple):
    """The sums of a read for one candidate.

    For the bound, by the sign of the slopes: ``value`` (2,), ``balance`` (2,), ``moment`` (2, m), ``flipped``,
    ``terms``. For the next change: ``matrix`` (m + 2, m + 2) of coefficients, intercept and multiplier.
    """

    value: FloatArray
    balance: FloatArray
    moment: FloatArray
    flipped: float
    terms: float
    matrix: FloatArray

    @classmethod
    def of(cls, total: FloatArray, m: int) -> _RepairSums:
        """Return the sums from a row of the table of `_Read`."""
        few, square, rows = np.split(total, [_FEW_SUMS, _FEW_SUMS + m * m])
        rows, corner = rows.reshape(4, m), few[[6, 7, 7, 8]].reshape(2, 2)
        matrix = np.block([[square.reshape(m, m), rows[2:].T], [rows[2:], corner]])
        return cls(few[:2], few[2:4], rows[:2], float(few[4]), float(few[5]), matrix)


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
        """Return for every leaf a row of sums, matrix and vectors, in the layout of `_RepairSums.of`."""
        problem, loss, jump = self.candidates[0].problem, self.candidates[0].problem.loss, dual.jump
        share, stays, value = dual.share.value, 1.0 - dual.share.value, -loss.conjugate(dual.slope.value)
        flips = np.flatnonzero(share)  # few rows
        value[flips] = stays[flips] * value[flips] - share[flips] * loss.conjugate(dual.flipped.value[flips])
        slope, size = dual.slope.value + share * jump, np.abs(value)
        if not problem.is_classification:
            value, size = value - slope * y, size + np.abs(slope * y)
        weighted, value = masses * signs * slope, masses * value
        down, up, is_up = np.minimum(weighted, 0.0), np.maximum(weighted, 0.0), weighted > 0.0
        # The slack of a row is that of its slopes along (x, 1) and that of its flip along (j y (x, 1), -gamma).
        cost = problem.geometry.label_cost if problem.family.flips else 0.0
        rate = masses * dual.share.slack
        slack = masses * (stays * dual.slope.slack + share * dual.flipped.slack) + rate * jump**2
        mixed = -cost * signs * rate * jump
        few = [value * ~is_up, value * is_up, -down, up, masses * share, masses * size, slack, mixed, cost**2 * rate]
        grams, vectors = leaves.grams(slack, np.array([down, up, slack, mixed]))
        sums = np.stack([leaves.sums(each) for each in few], axis=1)
        return np.concatenate([sums, grams.reshape(len(sums), -1), vectors.reshape(len(sums), -1)], axis=1)


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
    if problem.is_classification:  # the margins at a model of zero are equal, and kinks of the loss about 1 apart
        spread = max(spread, 0.01)
    widths: tuple[float, ...] = _WIDTHS
    if not (problem.loss.kinks or problem.family.flips):
        widths = (0.0, *(width for width in widths if _is_averaged(problem.loss, width * spread)))
    candidates = tuple(_Candidate(problem, anchor, width * spread) for width in widths)
    best = np.ones(len(candidates), dtype=bool)
    if len(candidates) > 1:
        *_, last = _bounds(ArraySource(rows.X, rows.y, rows.weights, checked=True), candidates, level_set)
        best = np.array(last) >= np.sort(last)[-2]  # the second best on the sample may be better on all rows
    for first in (True, False):  # the other widths only if the caller continues
        some = tuple(each for each, is_best in zip(candidates, best, strict=True) if is_best == first)
        for bounds in _bounds(source, some, level_set) if some else ():
            yield max(bounds)


def _bounds(source: Source, candidates: tuple[_Candidate, ...], level_set: LevelSet) -> Iterator[list[float]]:
    """Yield the bounds of candidates after one change, and after two."""
    for number in range(_READS):
        trees = _Read(source.n_rows, source.total_weight, candidates).over(source)
        found = [_RepairSums.of(tree.total(), source.n_features) for tree in trees]
        if number > 0:
            yield [_bound(level_set, sums, source.n_rows) for sums in found]
        candidates = tuple(each.next(sums) for each, sums in zip(candidates, found, strict=True))


def _bound(level_set: LevelSet, sums: _RepairSums, n_rows: int) -> float:
    sides = SideSums(sums.value, sums.balance, np.zeros(2), sums.moment, sums.flipped)
    return side_bound(level_set, sides, sums.terms, n_rows)
