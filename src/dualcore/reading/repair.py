"""A lower bound of second order over a few reads: slopes moved, as little as they need, until their moment fits.

The slopes of a model near the optimum bound the optimum to first order only: their moment is infeasible by the size of
the gradient. A read sums that moment and the Gram matrix of the rows' room to move,

    G = sum_i w_i D_i z_i z_i',   z = (x, 1),   D_i how far the slope of row i may move,

from which follows the least move, ``s_i + D_i y_i z_i . d`` with ``G d = goal - moment``. The next read clips these
slopes to what the loss allows there, sums the bound of what comes out, on every row, and the same sums for another
move: clipping leaves a part of the moment. Nothing grows with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import LevelSet, SideSums, side_bound
from dualcore.certificates.psd import solve_psd
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, Source
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.forms import mean_slope

__all__ = ["REPAIRED_FEATURES", "can_repair", "repaired_bounds"]

# Beyond this many features the Gram matrix of a chunk costs more than the reads.
REPAIRED_FEATURES = 300
# Widths over which slopes are averaged near kinks and flips, as shares of the spread of the scores; few where features
# are many.
_WIDTHS, _FEW_WIDTHS, _MANY_FEATURES = (0.005, 0.01, 0.02, 0.04, 0.1), (0.01, 0.04), 60
# Reads at most: one more than there are moves.
_READS = 3
# Where flips spend the budget, by how much of their width the multiplier is lowered: shares are then scaled down to it.
_LOWERED = 0.2


def can_repair(problem: Problem, n_features: int) -> bool:
    """Whether the slopes of a problem can be repaired from sums: order 1, one score a row, not too many features."""
    closed = problem.family.is_closed and problem.family.n_outputs == 1 and problem.geometry.order == 1
    return closed and n_features <= REPAIRED_FEATURES


class _Dual(NamedTuple):
    """Of every row: slope that stays and its range, share that flips, slope of the flipped loss."""

    slope: FloatArray
    low: FloatArray | float
    high: FloatArray | float
    share: FloatArray
    turned: FloatArray

    @property
    def room(self) -> FloatArray:
        """How far the slope may move, the share that stays being what moves: zero at both ends of the range."""
        return np.asarray((1.0 - self.share) * (self.slope - self.low) * (self.high - self.slope))

    def moved(self, along: FloatArray) -> _Dual:
        """Return the point after a move, clipped to the range."""
        step = (self.slope - self.low) * (self.high - self.slope) * along
        return self._replace(slope=np.clip(self.slope + step, self.low, self.high))


@dataclass(frozen=True)
class _Candidate:
    """The slopes of a model, averaged over a width where the loss or the flips have kinks, and how they are moved.

    ``scale`` multiplies the shares of flipped rows; ``directions`` (m + 1,) are the moves, one after the other.
    """

    problem: Problem
    anchor: Anchor
    width: float
    scale: float = 1.0
    directions: tuple[FloatArray, ...] = ()

    def of(self, X: Any, t: FloatArray, signs: FloatArray | float) -> _Dual:
        """Return the slopes of rows at their margins or residuals, moved."""
        problem, loss, width = self.problem, self.problem.loss, self.width
        low, high = loss.slope_range
        smoothed = width if loss.kinks else 0.0
        slope = mean_slope(loss, t, smoothed)
        dual = _Dual(slope, low, high, np.zeros(t.size), np.zeros(t.size))
        if loss.kinks:  # between the slopes at both ends of the width
            below, above = loss.slope(t - width), loss.slope(t + width)
            dual = dual._replace(slope=np.clip(slope, below, above), low=below, high=above)
        gains = problem.form.flip_gains(t)
        if gains is not None:
            cost, ahead = problem.geometry.label_cost, 2.0 * width * loss.lipschitz
            spent = self.anchor.multiplier > problem.kappa(self.anchor.coef) * (1.0 + 1e-9)
            gain = gains - self.anchor.multiplier * cost + (_LOWERED * ahead if spent else 0.0)
            rows = np.flatnonzero(gain > -ahead)
            dual.share[rows] = self.scale * np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
            dual.turned[rows] = mean_slope(loss, -t[rows], smoothed)
        for direction in self.directions:
            dual = dual.moved(signs * (np.asarray(X @ direction[:-1], dtype=np.float64) + direction[-1]))
        return dual

    def next(self, gram: FloatArray, moments: FloatArray, flipped: float) -> _Candidate:
        """Return the candidate with one more move: the least after which the moment makes the model optimal."""
        problem, coef, scale, spent = self.problem, self.anchor.coef, 1.0, 0.0
        if flipped > 0.0:
            cost = problem.geometry.label_cost
            scale = min(1.0, problem.radius / (cost * flipped) * (1.0 - 1e-12))
            spent = cost * scale * flipped
        moment = moments[0] + scale * moments[1]
        budget = problem.loss.lipschitz * max(problem.radius - spent, 0.0) * (1.0 - 1e-13)
        floor = 0.0 if problem.is_classification else problem.geometry.target_slope
        pulled = problem.ridge * coef
        if problem.size(coef) >= floor * (1.0 - 1e-9):  # below the price of the target the norm is not felt
            pulled = pulled + problem.geometry.norm.face(coef, -moment[:-1] - pulled, budget)
        right = np.append(-pulled - moment[:-1], -moment[-1])
        if problem.fit_intercept:
            direction = solve_psd(gram, right)
        else:
            direction = np.append(solve_psd(gram[:-1, :-1], right[:-1]), 0.0)
        return replace(self, scale=self.scale * scale, directions=(*self.directions, direction))


@dataclass(frozen=True)
class _Sums:
    """What a read adds up; the first axis is the candidate.

    Of the bound, by the side that rows pull to: ``value`` (k, 2), ``balance`` (k, 2), ``moment`` (k, 2, m),
    ``flipped`` (k,), ``terms`` (k,). Of the next move: ``gram`` (k, m + 1, m + 1), and ``moments`` (k, 2, m + 1) of the
    slopes that stay and of what flips change in them.
    """

    value: FloatArray
    balance: FloatArray
    moment: FloatArray
    flipped: FloatArray
    terms: FloatArray
    gram: FloatArray
    moments: FloatArray

    @classmethod
    def merge(cls, parts: list[_Sums]) -> _Sums:
        """Return the sums over all parts."""
        return cls(**{each.name: np.sum([getattr(part, each.name) for part in parts], axis=0) for each in fields(cls)})


@dataclass(frozen=True)
class _Read:
    """Sums the bounds of candidates on a chunk, and what their next moves need."""

    candidates: tuple[_Candidate, ...]
    total: float

    def __call__(self, chunk: Chunk) -> _Sums:
        problem, anchor, X = self.candidates[0].problem, self.candidates[0].anchor, chunk.X
        signs = chunk.y if problem.is_classification else np.ones(chunk.y.size)
        masses = np.full(chunk.y.size, 1.0 / self.total) if chunk.weights is None else chunk.weights / self.total
        score = np.asarray(X @ anchor.coef, dtype=np.float64) + anchor.intercept
        t = score * signs if problem.is_classification else score - chunk.y
        found = [self._sums(chunk, masses, signs, each.of(X, t, signs)) for each in self.candidates]
        return _Sums(*(np.array(column) for column in zip(*found, strict=True)))

    def _sums(self, chunk: Chunk, masses: FloatArray, signs: FloatArray, dual: _Dual) -> tuple[Any, ...]:
        problem, X = self.candidates[0].problem, chunk.X
        stays = 1.0 - dual.share
        value = -stays * problem.loss.conjugate(dual.slope) - dual.share * problem.loss.conjugate(dual.turned)
        size = np.abs(value)
        if not problem.is_classification:
            value = value - dual.slope * chunk.y
            size = size + np.abs(dual.slope * chunk.y)
        weighted = masses * signs * (stays * dual.slope - dual.share * dual.turned)
        up = weighted > 0.0
        sides = np.array([np.where(up, 0.0, weighted), np.where(up, weighted, 0.0)])
        values = np.array([float(masses[~up] @ value[~up]), float(masses[up] @ value[up])])
        changes = masses * signs * dual.share * (-dual.turned - dual.slope)
        vectors = np.array([*sides, masses * signs * dual.slope, changes])
        moments = np.asarray(X.T @ vectors.T, dtype=np.float64).T
        with_level = np.column_stack([moments[2:], vectors[2:].sum(axis=1)])
        gram = _gram(X, masses * dual.room)
        flipped, terms = float(masses @ dual.share), float(masses @ size)
        return values, np.abs(sides).sum(axis=1), moments[:2], flipped, terms, gram, with_level


def _gram(X: Any, weights: FloatArray) -> FloatArray:
    """Return ``sum_i weights_i z_i z_i'`` with ``z = (x, 1)``."""
    m = X.shape[1]
    weighted = X.multiply(weights[:, None]) if sp.issparse(X) else X * weights[:, None]
    square = X.T @ weighted
    out = np.empty((m + 1, m + 1))
    out[:m, :m] = square.toarray() if sp.issparse(square) else square
    out[:m, m] = out[m, :m] = np.asarray(X.T @ weights).ravel()
    out[m, m] = weights.sum()
    return out


def repaired_bounds(
    source: Source, problem: Problem, anchor: Anchor, spread: float, level_set: LevelSet
) -> Iterator[float]:
    """Yield lower bounds on the optimal risk of the full data, one a read from the second on, three reads in all.

    Parameters
    ----------
    source : Source
    problem : Problem
        One that `can_repair` accepts.
    anchor : Anchor
        A model near the optimum, its multiplier that of its risk on the full data.
    spread : float
        Of margins or residuals, for the widths near kinks.
    level_set : LevelSet
        With the risk of the best model known.
    """
    widths: tuple[float, ...] = (0.0,)
    if problem.loss.kinks or problem.family.flips:
        widths = _WIDTHS if anchor.coef.size <= _MANY_FEATURES else _FEW_WIDTHS
    candidates = tuple(_Candidate(problem, anchor, width * spread) for width in widths)
    for number in range(_READS):
        found = source.fold(_Read(candidates, source.total_weight), _Sums.merge)
        if number > 0:
            sums = zip(found.value, found.balance, found.moment, found.flipped, strict=True)
            yield max(
                side_bound(level_set, SideSums(value, balance, np.zeros(2), moment, mass), float(terms), source.n_rows)
                for (value, balance, moment, mass), terms in zip(sums, found.terms, strict=True)
            )
        after = zip(candidates, found.gram, found.moments, found.flipped, strict=True)
        candidates = tuple(each.next(gram, moments, float(flipped)) for each, gram, moments, flipped in after)
