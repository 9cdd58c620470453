"""Normalised data: offsets removed and the target in units of its spread, which avoids loss of digits.

With an intercept the problem on ``(X, y)`` and the one on ``(X - mu, y - c)`` are the same: only the intercept differs,
and the limits of a box are ``mu`` lower. The risk of a given model is the same on both, with or without an intercept.
For a residual loss with ``L(k r) = f L'(r)`` the problem on ``y / k`` with loss ``L'`` has ``1 / k`` times the
coefficients and ``1 / f`` times the risk. ``k`` is a power of two, so scaling is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.families import Data

if TYPE_CHECKING:  # a problem evaluates itself on normalised data
    from dualcore.problem.problem import Problem

# A column or a target is centred if its middle exceeds its spread by this factor, because sums would lose digits.
_FAR = 64.0
# The sample that decides: largest number of rows, of numbers, and smallest number of rows.
_MOST, _NUMBERS, _FEWEST = 1024, 1_000_000, 64
# If the score of a rounded model at the centre is off by more than this, in units of the target, closer models are
# searched: with one coefficient by this many ulps up and down, with two by this many ulps and multiples of them.
_NEAR, _TURNS, _STRIDES = 1e-12, 16384, 128


class CentredRows(Rows):
    """Rows less a centre, subtracted a block at a time: no copy of X is made."""

    def __init__(self, rows: Rows, centre: FloatArray) -> None:
        self.rows, self.centre = rows, centre
        self.n, self.m, self.in_memory = rows.n, rows.m, rows.in_memory

    @property
    def block_rows(self) -> int:
        """As many as of the rows themselves."""
        return self.rows.block_rows

    def block(self, part: slice) -> FloatArray:
        """Return consecutive rows, dense."""
        return dense(self.rows.block(part)) - self.centre

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return the chosen rows, dense."""
        return dense(self.rows.take(indices)) - self.centre

    def check_finite(self) -> None:
        """Raise ValueError if any entry is NaN or infinite."""
        self.rows.check_finite()


def dense(block: Any) -> FloatArray:
    """Return rows as a dense array."""
    return np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)


@dataclass(frozen=True)
class Normal:
    """A problem and its data in normalised units, to be trained, certified and evaluated, and back."""

    problem: Problem
    data: Data
    centre: FloatArray | None = None  # (n_features,): subtracted from the columns
    target_shift: float = 0.0  # subtracted from the target
    unit: float = 1.0  # a power of two by which the target was then divided
    factor: float = 1.0  # risk, and multiplier, in the units of the user for a unit of the normalised one

    @classmethod
    def of(cls, problem: Problem, data: Data, *, to_train: bool = True) -> Normal:
        """Return the data normalised as far as necessary; unchanged if that is not necessary.

        For training without an intercept nothing is subtracted. The target is rescaled for training only.
        """
        may_shift = problem.fit_intercept or not to_train
        centre = far_centre(data.rows, data.weights, problem.family.one_hot) if may_shift else None
        if centre is not None:
            problem = problem.shifted(centre)
            data = data._replace(rows=CentredRows(data.rows, centre))
        if problem.is_classification:
            return cls(problem, data, centre)
        target_shift, unit = _target_scale(data, may_shift=may_shift)
        scaled = problem.loss.scaled(unit) if to_train else None
        if scaled is None:
            unit, scaled = 1.0, (problem.loss, 1.0)
        if target_shift == 0.0 and unit == 1.0:
            return cls(problem, data, centre)
        loss, factor = scaled
        inside = problem.replace(
            loss=loss, label_cost=problem.geometry.label_cost * unit, ridge=problem.ridges * (unit * unit / factor)
        )
        return cls(inside, data._replace(y=(data.y - target_shift) / unit), centre, target_shift, unit, factor)

    @property
    def slope_unit(self) -> float:
        """Slope of the loss in the units of the user for a unit of normalised slope."""
        return self.factor / self.unit

    def inside(self, coef: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """Return a model of the user in normalised units; the intercept is exact up to its last digit."""
        if self.centre is None and self.target_shift == 0.0:
            return coef / self.unit, intercept / self.unit
        self.problem.family.check_model(coef, intercept, self.data.rows.m)
        if coef.ndim == 2:
            return coef, np.array([self._intercept_inside(*one) for one in zip(coef, intercept.tolist(), strict=True)])
        return coef / self.unit, self._intercept_inside(coef, intercept)

    def _intercept_inside(self, coef: FloatArray, intercept: float) -> float:
        shifted = Fraction(intercept) - Fraction(self.target_shift) + self._shift(coef)
        return float(shifted / Fraction(self.unit))

    def outside(self, coef: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """Return a normalised model in the units of the user.

        A large intercept has few digits after the point. The rounding error is compensated by changing coefficients of
        columns far from the origin by a few ulps, which has no other noticeable effect.
        """
        coef = coef * self.unit
        if self.centre is None and self.target_shift == 0.0:
            return coef, intercept * self.unit
        if coef.ndim == 2:
            models = [self.outside(*one) for one in zip(coef, intercept.tolist(), strict=True)]
            return np.array([one for one, _ in models]), np.array([offset for _, offset in models])
        goal = Fraction(intercept) * Fraction(self.unit)
        outer = float(goal + Fraction(self.target_shift) - self._shift(coef))
        if self.centre is not None:
            missing = float(goal + Fraction(self.target_shift) - self._shift(coef) - Fraction(outer))
            able = np.flatnonzero((self.centre != 0.0) & (coef != 0.0))
            steps = np.spacing(np.abs(coef[able])) * np.abs(self.centre[able])
            able = able[steps < 0.1 * abs(missing)]
            if able.size:
                farthest = able[np.abs(self.centre[able]).argmax()]
                coef[farthest] += missing / self.centre[farthest]
            return self._nearest(coef, goal + Fraction(self.target_shift))
        return coef, outer

    def _nearest(self, coef: FloatArray, goal: Fraction) -> tuple[FloatArray, float]:
        """Return coefficients changed by a few ulps, and the intercept, with a score at the centre nearest to ``goal``.

        One ulp of the intercept, or of a coefficient of a column far from the origin, changes that score by much, but
        by different amounts. Together they come much closer to the goal than the intercept alone.
        """
        outer = float(goal - self._shift(coef))
        missing = goal - self._shift(coef) - Fraction(outer)
        if self.centre is None or abs(missing) <= _NEAR * self.unit:
            return coef, outer
        grid = np.spacing(np.abs(coef))
        steps = grid * np.abs(self.centre)
        able = np.flatnonzero((self.centre != 0.0) & (coef != 0.0))
        able = able[np.argsort(steps[able], kind="stable")][:2]
        if not able.size:
            return coef, outer
        turns = [np.arange(-_TURNS, _TURNS + 1.0)]
        if able.size == 2:  # the second in multiples, as both may have steps of the same length
            stride = 2.0 * _STRIDES + 1.0
            turns = [np.arange(-_STRIDES, _STRIDES + 1.0), stride * np.arange(-_STRIDES, _STRIDES + 1.0)]
        turned = np.zeros(1)
        for column, counts in zip(able, turns, strict=True):
            turned = turned[..., None] + counts * grid[column] * self.centre[column]
        turned = turned[0]
        spacing = float(np.spacing(abs(outer)))
        left = float(missing) - turned
        left -= spacing * np.round(left / spacing)
        best = np.unravel_index(int(np.abs(left).argmin()), left.shape)
        moved = coef.copy()
        for column, count, index in zip(able, turns, best, strict=True):
            moved[column] += count[index] * grid[column]
        offset = float(goal - self._shift(moved))
        nearer = abs(goal - self._shift(moved) - Fraction(offset)) < abs(missing)
        return (moved, offset) if nearer else (coef, outer)

    def _shift(self, coef: FloatArray) -> Fraction:
        """Return ``centre . coef``, exactly."""
        return Fraction(0) if self.centre is None else exact_dot(self.centre, coef)


def exact_dot(left: FloatArray, right: FloatArray) -> Fraction:
    """Return the inner product of two vectors, exactly."""
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    return sum((Fraction(one) * Fraction(other) for one, other in pairs), Fraction(0))


def _some_rows(n_rows: int, weights: FloatArray | None, most: int = _MOST) -> npt.NDArray[np.int64]:
    """Return some rows that have mass, evenly spread."""
    held = np.arange(n_rows) if weights is None else np.flatnonzero(weights)
    return held[:: max(1, held.size // most)]


def far_centre(rows: Rows, weights: FloatArray | None, one_hot: npt.NDArray[np.intp]) -> FloatArray | None:
    """Return a centre (m,) for columns far from the origin, zero for the others; None if there is no such column.

    One-hot columns are not centred.
    """
    most = max(_FEWEST, min(_MOST, _NUMBERS // rows.m))
    sample = rows.take(_some_rows(rows.n, weights, most))
    columns = np.arange(rows.m)
    if sp.issparse(sample):  # a column with a zero in it is not far from the origin
        sample = sample.tocsc()
        columns = np.flatnonzero(np.diff(sample.indptr) == sample.shape[0])
        if not columns.size:
            return None
        sample = sample[:, columns]
    sample = dense(sample)
    # A column with zeros or both signs is not far from the origin; this avoids most medians.
    if not ((sample.min(axis=0) > 0.0) | (sample.max(axis=0) < 0.0)).any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        middle = np.median(sample, axis=0)
        spread = np.abs(sample - middle).max(axis=0)
        # A column of ones is not far from the origin; a constant 1e6 is, if other columns are of order one.
        typical = float(np.median(spread[spread > 0.0])) if (spread > 0.0).any() else float(np.abs(middle).max())
        far = np.isfinite(middle) & (np.abs(middle) > _FAR * np.maximum(spread, 0.1 * typical))
    if not far.any():
        return None
    centre = np.zeros(rows.m)
    centre[columns[far]] = middle[far]
    centre[one_hot] = 0.0
    return centre if centre.any() else None


def _target_scale(data: Data, *, may_shift: bool) -> tuple[float, float]:
    """Return the shift of the target and the power of two by which it is divided."""
    seen = _some_rows(data.rows.n, data.weights)
    sample, masses = data.y[seen], data.masses[seen]
    middle = _weighted_median(sample, masses) if may_shift else 0.0
    spread = _weighted_median(np.abs(sample - middle), masses)
    if spread == 0.0:
        spread = float(masses @ np.abs(sample - middle)) / float(masses.sum())
    if spread == 0.0 or not np.isfinite(spread):
        spread = 1.0
    target_shift = middle if abs(middle) > _FAR * spread else 0.0
    exponent = int(np.clip(np.round(np.log2(spread)), -300, 300))
    return target_shift, 2.0**exponent


def _weighted_median(values: FloatArray, masses: FloatArray) -> float:
    """Return the weighted median: the smallest value with at least half of the mass at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(masses[order])
    return float(values[order][np.searchsorted(reached, 0.5 * reached[-1] * (1.0 - 1e-9))])
