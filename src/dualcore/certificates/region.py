"""A bounded region that contains every optimal model of a problem on a box.

The minimum of a plane over this region is finite where the gradient of the plane does not vanish.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily

__all__ = ["BoxLevelSet", "find_region", "unbounded_features"]


class BoxLevelSet(NamedTuple):
    """Bounds on all models whose risk is at most that of the best model known, for centred features.

    ``coef`` (m,): of the absolute value of each coefficient. ``units`` (m,) and ``capacity``: ``sum_j units_j |theta_j|
    <= capacity``, far stronger than the bounds on each. ``intercept``: of the absolute value of the centred intercept.
    ``low``, ``high``: of the multiplier.
    """

    coef: FloatArray
    units: FloatArray
    capacity: float
    intercept: float
    low: float
    high: float


Sides = tuple[FloatArray, FloatArray]


def side_means(problem: Problem, data: Data) -> Sides:
    """Return the masses of the classes, of all rows in regression, and the means of their rows, shape (k, m)."""
    w, signs = data.masses, (1.0, -1.0) if problem.is_classification else ()
    parts = [np.where(data.y * sign > 0.0, w, 0.0) for sign in signs] or [w]
    mass = np.array([part.sum() for part in parts])
    return mass, np.array([data.rows.transpose_dot(part) for part in parts]) / mass[:, None]


def find_region(
    problem: Problem, box: BoxFamily, data: Data, sides: Sides, middle: float, spread: FloatArray, upper: float
) -> BoxLevelSet:
    r"""Bound coefficients, centred intercept and multiplier of every model whose risk is at most ``upper``.

    Let ``L(t) >= alpha |t| - beta`` on the sides where the loss rises. An adversary that moves a share
    ``min(1, sigma / D)`` of the mass across the box, of diameter ``D``, makes the loss grow with
    ``sum_j |theta_j| width_j / 2``. The coefficient of a feature without a limit is bounded by the multiplier,
    ``lam >= Lip |theta_j|``, the intercept by the mean loss of a class, or of all rows. ``sides`` are
    `side_means`.
    """
    m, w, sigma, (mass, means) = data.rows.m, data.masses, problem.radius, sides
    alpha, beta = _growth(problem)
    low, high = box.support.spread(m)
    width = high - low
    prices = box.prices(m)
    movable = np.isfinite(prices)
    limited = movable & np.isfinite(width) & (width > 0.0)
    # A constant feature acts as an intercept.
    bound = np.where((width > 0.0) | (not problem.fit_intercept), np.inf, 0.0)
    rates = [rate for rate, _ in box.unlimited(np.zeros(m))]
    runs = movable & np.isinf(width)
    bound[runs] = upper / sigma * prices[runs] / min(rates)
    ridge_limit = np.sqrt(2.0 * upper / problem.ridge) if problem.ridge > 0.0 else np.inf
    bound = np.minimum(bound, ridge_limit)
    span = box.span(np.where(limited, width, 0.0))
    share = min(1.0, sigma / span) if span > 0.0 else 1.0
    if problem.is_classification:
        both = 2.0 * float(mass.min())
        apart = 0.5 * np.abs(means[0] - means[1])
        others = ~limited & (bound > 0.0)
        leverage = float(apart[others] @ bound[others])
        capacity = 2.0 * ((upper / (share * both) + beta) / alpha + leverage)
    else:
        capacity = 2.0 * (upper / share + beta) / alpha
    bound[limited] = np.minimum(capacity / width[limited], ridge_limit)
    constant = box.intercept_columns(m) & limited
    if not problem.fit_intercept and constant.any():
        # These coefficients act as an intercept: the mean loss of a class, or of all rows, bounds their sum.
        others = ~constant & (bound > 0.0)
        rise = float(np.max((upper / mass + beta) / alpha + np.abs(means[:, others]) @ bound[others]))
        if not problem.is_classification:
            rise += abs(float(w @ data.y))
        bound[constant] = np.minimum(2.0 * capacity + rise, ridge_limit)
    if problem.ridge == 0.0:
        bound[box.pinned(m, fit_intercept=problem.fit_intercept)] = 0.0
    units = np.where(limited, width, np.where(bound > 0.0, np.maximum(spread, 1e-300), 0.0))
    held = units * bound
    together = box.coupled * capacity if problem.fit_intercept or not constant.any() else np.inf
    size = min(together if limited.any() else 0.0, float(held[limited].sum())) + float(held[~limited].sum())
    size = min(size, float(np.linalg.norm(units)) * ridge_limit)
    intercept = 0.0
    if problem.fit_intercept:
        off = np.abs(means - mass @ means)
        shifts = np.array([float(row[row > 0.0] @ bound[row > 0.0]) for row in off])
        at_most = np.divide(off, units, out=np.zeros_like(off), where=units > 0.0).max(axis=1, initial=0.0) * size
        shifts = np.minimum(shifts, at_most)
        intercept = float(np.max((upper / mass + beta) / alpha + shifts))
        if not problem.is_classification:
            intercept += abs(float(w @ data.y) - middle)
    return BoxLevelSet(bound, units, size, intercept, box.floor(), upper / sigma)


def _growth(problem: Problem) -> tuple[float, float]:
    """Return ``alpha > 0`` and ``beta`` with ``L(t) >= alpha |t| - beta`` on the sides where the loss rises."""
    loss, far = problem.loss, 1.0
    sides = (-1.0,) if problem.is_classification else (-1.0, 1.0)
    while True:
        points = np.array([side * far for side in sides])
        value, slope = loss.value(points), loss.slope(points) * points / far
        if float(slope.min()) > 0.25 * min(abs(end) for end in loss.slope_range if end) or far > 1e12:
            return float(slope.min()), float(np.max(slope * far - value))
        far *= 2.0


def unbounded_features(problem: Problem, n_features: int) -> npt.NDArray[np.bool_]:
    """Return which coefficients nothing bounds: without ridge, those of features that no adversary can move."""
    if problem.ridge > 0.0:
        return np.zeros(n_features, dtype=bool)
    return problem.family.unbounded_features(n_features, fit_intercept=problem.fit_intercept)
