"""The parts common to the cone programs of all losses, built with `dualcore.solvers.coneprogram`.

A `Scene` is a cone program that holds the model: coefficients and intercept of the scaled rows, the bound on the dual
norm, radius and ridge. Each loss adds the constraints of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.solvers.base import RawSolution
from dualcore.solvers.coneprogram import Affine, ConeProgram, ConeSolution

# A column is constant up to rounding if its spread is at most this share of its mean.
_CONSTANT = 1e-13


Reader = Callable[[ConeSolution], FloatArray]
"""Reads a vector off the solution of a programme."""


def bound_largest(program: ConeProgram, bound: Affine, vector: Affine) -> Reader:
    """``max |v_j| <= bound``, dual to the l1 norm."""
    return _bound_each(program, bound.spread(len(vector)), vector)


def bound_length(program: ConeProgram, bound: Affine, vector: Affine) -> Reader:
    """``||v||_2 <= bound``, dual to the l2 norm."""
    _, inside = program.second_order(bound, vector)
    return lambda solution: solution.multipliers[inside]


def bound_sum(program: ConeProgram, bound: Affine, vector: Affine) -> Reader:
    """``sum |v_j| <= bound``, dual to the linf norm."""
    size = program.variables(len(vector))
    program.nonnegative(bound - size.mapped(np.ones(len(vector))))
    return _bound_each(program, size, vector)


def _bound_each(program: ConeProgram, bounds: Affine, vector: Affine) -> Reader:
    over, under = program.nonnegative(bounds - vector), program.nonnegative(bounds + vector)
    return lambda solution: solution.multipliers[under] - solution.multipliers[over]


DUAL_BOUNDS: dict[type[Norm], Callable[[ConeProgram, Affine, Affine], Reader]] = {
    L1Norm: bound_largest,
    L2Norm: bound_length,
    LinfNorm: bound_sum,
}
"""By feature norm: the constraint that bounds ``||theta||_*``. The reader returns the multiplier of ``theta``."""


@dataclass(frozen=True)
class ScaledRows:
    """The rows of positive mass with columns and target scaled to one, and centred where that is possible.

    With ``x' = (x - shift) / scale`` and ``y' = (y - centre) / unit`` a model ``(phi, c)`` of the scaled rows stands
    for ``theta = unit phi / scale`` and ``b = unit c + centre - shift . theta``. Labels are not changed (unit 1,
    centre 0). Columns are centred if they are dense and an intercept is fitted.
    """

    matrix: Any
    target: FloatArray
    masses: FloatArray
    kept: npt.NDArray[np.int64]
    shift: FloatArray
    scale: FloatArray
    centre: float
    unit: float

    @classmethod
    def of(cls, problem: Problem, data: Data) -> ScaledRows:
        """Scale the rows of positive mass."""
        kept = np.flatnonzero(data.masses)  # rows without mass do not change the optimum
        matrix, y, w = data.rows.take(kept), data.y[kept], data.masses[kept]
        shift = np.zeros(data.rows.m)
        if sp.issparse(matrix):
            spread = np.sqrt(matrix.power(2).T @ w)  # centring would fill the matrix
        else:
            if problem.fit_intercept:
                shift = w @ matrix
                matrix = matrix - shift
            spread = np.sqrt(w @ matrix**2)
        constant = spread <= _CONSTANT * np.abs(shift)
        scale = np.where(constant, 1.0, spread)
        if sp.issparse(matrix):
            matrix = (matrix @ sp.diags_array(1.0 / scale)).tocsr()
        else:
            matrix /= scale
            matrix[:, constant] = 0.0
        centre, unit = 0.0, 1.0
        if not problem.is_classification:
            centre = float(w @ y) if problem.fit_intercept else 0.0
            size = float(w @ np.abs(y - centre))
            unit = size if size > _CONSTANT * abs(centre) else 1.0
            y = (y - centre) / unit
        return cls(matrix, y, w, kept, shift, scale, centre, unit)

    def model(self, x: FloatArray) -> tuple[FloatArray, float]:
        """Return coefficients and intercept in the units of the data; ``x`` has shape (m + 1,), or (m,) without one."""
        coef, level = self.unit * x[: self.scale.size] / self.scale, x[self.scale.size :].sum()
        return coef, float(self.unit * level + self.centre - self.shift @ coef)

    def prices(self, norm: Norm) -> FloatArray:
        """Return ``p`` (m,) such that the dual norm of the model is that of ``phi / p`` for scaled coefficients."""
        return self.scale if norm.weights is None else self.scale * norm.weights


class Sizes(NamedTuple):
    """Expected magnitudes of the risk, of the multiplier and of ``||theta||_*``.

    A rotated cone ``left * right >= middle^2`` is stated with ``left + right``, so digits are lost unless both have the
    same magnitude. Clarabel cannot rescale entries within one cone.
    """

    risk: float = 1.0
    multiplier: float = 1.0
    slope_bound: float = 1.0

    @classmethod
    def at(cls, problem: Problem, solution: RawSolution, data: Data, design: ScaledRows) -> Sizes:
        """Return the magnitudes at an approximate solution; 1 for those that are zero or infinite."""
        risk, multiplier = problem.evaluate(solution.coef, solution.intercept, data)
        sizes = cls(risk / design.unit**problem.geometry.order, multiplier, problem.size(solution.coef))
        return cls(*(size if size > 1e-100 and np.isfinite(size) else 1.0 for size in sizes))


@dataclass(frozen=True)
class Scene:
    """A cone program with the variables of the model, to which a loss adds the constraints of its rows."""

    program: ConeProgram
    problem: Problem
    design: ScaledRows
    coef: Affine  # coefficients of the scaled data, shape (m,)
    level: Affine | None  # their intercept, where one is fitted
    # A variable that is at least ``Lip max(||theta||_*, 2 / gamma)``, for order 2 without ``Lip``, in scaled units. For
    # order 1 it is the multiplier itself. None at radius 0, where the multiplier is not in the objective.
    slope_bound: Affine | None
    sizes: Sizes  # expected magnitudes of risk, multiplier and slope bound

    @classmethod
    def of(cls, problem: Problem, design: ScaledRows, sizes: Sizes) -> Scene:
        """Add the coefficients, the bound on their dual norm, and the terms of the objective that depend on no row."""
        program = ConeProgram()
        coef = program.variables(design.scale.size)
        level = program.variables(1) if problem.fit_intercept else None
        first = problem.family.linear_in_multiplier
        if problem.ridge > 0.0:
            # In scaled units the objective is divided by unit^order, and the ridge term by unit^2 already.
            left = design.unit ** (2.0 - problem.geometry.order)
            program.minimise_squares(problem.ridge * left / design.scale**2, coef)
        if problem.radius == 0.0:
            return cls(program, problem, design, coef, level, None, sizes)
        slope_bound = program.variables(1)
        rate = problem.loss.root_lipschitz
        norm = problem.geometry.norm
        prices = design.prices(norm)
        movable = np.isfinite(prices)
        if movable.any():
            DUAL_BOUNDS[type(norm)](program, slope_bound, (rate / prices[movable]) * coef[movable])
        floor = 0.0 if problem.is_classification else rate * problem.geometry.target_slope / design.unit
        program.nonnegative(slope_bound - floor)
        if first:
            program.minimise(problem.radius * slope_bound)
        return cls(program, problem, design, coef, level, slope_bound, sizes)

    @property
    def n(self) -> int:
        """Number of rows with positive mass."""
        return self.design.masses.size

    @property
    def order(self) -> float:
        """Order of the loss."""
        return float(self.problem.geometry.order)

    @property
    def minimises_root(self) -> bool:
        """Whether the objective is the root of the risk: the minimiser is the same if there is no ridge and no flip."""
        return not (self.problem.family.linear_in_multiplier or self.flips) and self.problem.ridge == 0.0

    @property
    def flips(self) -> bool:
        """Whether labels may flip at a finite cost."""
        return self.problem.family.flips

    def predictor(self, matrix: Any, ones: FloatArray) -> Affine:
        """Return ``matrix @ coef + ones * level``."""
        linear = self.coef.mapped(matrix)
        return linear if self.level is None else linear + self.level.mapped(ones[:, None])

    def residual(self) -> Affine:
        """Return prediction minus target, shape (n,)."""
        return self.predictor(self.design.matrix, np.ones(self.n)) - self.design.target

    def signal(self) -> Affine:
        """Return margins or residuals as new variables (n,), so that the data occur in the program once."""
        signal = self.program.variables(self.n)
        if self.problem.is_classification:
            self.program.zero(self.design.target * self.predictor(self.design.matrix, np.ones(self.n)) - signal)
        else:
            self.program.zero(self.residual() - signal)
        return signal

    def epigraph(self) -> Affine:
        """Return ``t`` (n,) with ``sum_i w_i t_i`` in the objective."""
        t = self.program.variables(self.n)
        self.program.minimise(t.mapped(self.design.masses))
        return t

    def flip_price(self) -> Affine:
        """Return ``gamma lam``, one entry per row."""
        if self.slope_bound is None:
            raise ValueError("at radius 0 no row flips, so a flip has no price")
        return self.problem.geometry.label_cost * self.slope_bound.spread(self.n)


def spread_dual(problem: Problem, data: Data, design: ScaledRows, point: DualPoint) -> DualPoint:
    """Clip the slopes into the domain of the conjugate, and set slopes of rows without mass to zero."""
    low, high = problem.loss.slope_range
    low = max(low, -np.finfo(np.float64).max)  # an infinite slope times a flip probability of zero would be nan

    def spread(values: FloatArray) -> FloatArray:
        out = np.zeros(data.rows.n)
        out[design.kept] = values
        return out

    if point.flip is None or point.share is None:
        return DualPoint(spread(np.clip(point.stay, low, high)))
    share = np.clip(point.share, 0.0, 1.0)
    spent = problem.geometry.label_cost**problem.geometry.order * float(design.masses @ share)
    # Flips that exceed the budget by a rounding error would leave a negative budget for moving features.
    afforded = min(1.0, problem.price / spent * (1.0 - 1e-12)) if spent > 0.0 else 1.0
    share = afforded * share
    stay, flip = np.clip(point.stay, (1.0 - share) * low, 0.0), np.clip(afforded * point.flip, 0.0, -low * share)
    return DualPoint(spread(stay), spread(flip), spread(share))
