"""The best intercept, size and unpriced coefficients for a model whose other coefficients stay as they are.

A dual point is feasible only if its slopes balance (an intercept), if the flips spend no more than the budget, and if
the moment vanishes in every feature that neither price nor ridge holds. All three are first-order conditions in
variables that need no product with the data but with those few columns, so they can be met exactly, by Newton's method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.solvers.descent.rowsums import Point, RowCurvatures, RowFunction

if TYPE_CHECKING:
    from dualcore.solvers.descent.memory import MemoryOracle

# Unpriced features beyond this many are left alone: their columns would be written out.
MOST_FREE = 64
_STEPS = 60
# What counts as zero, relative to the slopes: the certificate balances an intercept itself, but not a column.
_BALANCED, _EXACT = 1e-10, 1e-12
# What a sum may lose by rounding.
_ROUNDING = 4e-15


def polished_features(problem: Problem, n_features: int) -> np.ndarray:
    """Return the features that neither radius nor ridge holds, where they are few."""
    found = np.flatnonzero(free_features(problem, n_features))
    return found if found.size <= MOST_FREE else found[:0]


def polish(oracle: MemoryOracle, function: RowFunction, point: Point) -> tuple[Point, FloatArray]:
    """Return the polished point and the signal of all rows there.

    Minimises the smoothed risk in the intercept, the unpriced coefficients and, where rows may flip, the size.
    """
    problem, y, masses = oracle.problem, oracle.data.y, oracle.masses
    t = oracle.signal(point)
    columns = oracle.free_columns()
    if problem.fit_intercept:
        columns = np.concatenate([columns, np.ones((t.size, 1))], axis=1)
    signed = columns * y[:, None] if problem.is_classification else columns
    sized = function.flips
    if not signed.shape[1] and not sized:
        return point, t
    coef, _ = oracle.columns.model(point)
    least = problem.size(coef)  # unpriced coefficients do not enter the norm
    rate = function.lipschitz * (function.label_cost if sized else 0.0)
    size, shift = max(point.size, least), np.zeros(signed.shape[1])
    here = function.parts(t, masses, size)
    value = here.value + problem.radius * function.lipschitz * size if sized else here.value
    precision = _EXACT if oracle.free.size else _BALANCED
    for _ in range(_STEPS):
        weighted = masses * here.slope
        gradient = signed.T @ weighted
        in_size = function.lipschitz * problem.radius - rate * here.flipped
        resized = sized and (size > least or in_size < 0.0)
        if resized:
            gradient = np.append(gradient, in_size)
        if float(np.abs(gradient).max(initial=0.0)) <= precision * float(np.abs(weighted).sum()):
            break
        system = _second_derivatives(function.curvature(t, masses, size), signed, rate if resized else None)
        scale = np.sqrt(np.maximum(np.diag(system), 1e-12 * (1.0 + np.diag(system).max(initial=0.0))))
        unit = system / np.outer(scale, scale) + 1e-12 * np.eye(scale.size)
        step = -np.linalg.lstsq(unit, gradient / scale, rcond=None)[0] / scale
        length = 1.0
        while length > 1e-6:
            new_shift = shift + length * step[: shift.size]
            new_size = max(size + length * float(step[-1]), least) if resized else size
            new_t = t + signed @ (length * step[: shift.size])
            there = function.parts(new_t, masses, new_size)
            new_value = there.value + problem.radius * function.lipschitz * new_size if sized else there.value
            if new_value < value or (length == 1.0 and new_value <= value * (1.0 + _ROUNDING)):
                break
            length *= 0.5
        else:
            break
        shift, size, t, here, value = new_shift, new_size, new_t, there, new_value
    moved = point.coef.copy()
    moved[oracle.free] += shift[: oracle.free.size]
    intercept = point.intercept + (float(shift[-1]) if problem.fit_intercept else 0.0)
    return Point(moved, intercept, size), t


def _second_derivatives(curved: RowCurvatures, signed: FloatArray, rate: float | None) -> FloatArray:
    """Return the Hessian in the columns and, where a rate is given, in the size."""
    bend = curved.along.copy()
    bend[curved.rows] += curved.flip * curved.steepness**2
    system: FloatArray = signed.T @ (bend[:, None] * signed)
    if rate is None:
        return system
    cross = -rate * (signed[curved.rows].T @ (curved.flip * curved.steepness))
    corner = np.array([[rate**2 * float(curved.flip.sum())]])
    return np.block([[system, cross[:, None]], [cross[None, :], corner]])
