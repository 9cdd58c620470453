"""Proximal operators of the dual norms, with a weight for every coefficient.

All solve ``min sum_j d_j (x_j - a_j)^2 / 2`` plus a multiple ``level`` of ``||x / p||_*``, or the same on the cone
``k >= ||x / p||_*``. The dual of the feature norm linf is a sum, that of l1 a maximum, that of l2 Euclidean. The norm
of the solution decreases in the level; for sums and maxima it is piecewise linear, and `_root` solves for it exactly.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, L2Norm, Norm


def prox(norm: Norm, prices: FloatArray, target: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    """Return the minimiser (m,) of ``sum d (x - a)^2 / 2 + level ||x / p||_*``; ``p`` may be infinite.

    Examples
    --------
    >>> from dualcore.problem.geometry import LinfNorm
    >>> prox(LinfNorm(), np.ones(3), np.array([3.0, 1.0, 0.5]), np.ones(3), 1.0)
    array([2., 0., 0.])
    """
    if level <= 0.0:
        return target.copy()
    if isinstance(norm, L2Norm):
        return _shrink(prices, target, weights, _euclidean_rate(prices, target, weights, level))
    if isinstance(norm, L1Norm):
        return np.clip(target, *_limits(prices, max(_root(*_lengths(prices, target, weights), 0.0, -level), 0.0)))
    moved = np.maximum(np.abs(target) - level / (weights * prices), 0.0)
    return np.asarray(np.copysign(moved, target))


def prox_with_size(
    norm: Norm,
    prices: FloatArray,
    target: FloatArray,
    weights: FloatArray,
    size: float,
    stiffness: float,
    floor: float,
) -> tuple[FloatArray, float]:
    """Return the minimiser ``(x, k)`` of ``sum d (x - a)^2 / 2 + stiffness (k - size)^2 / 2`` on the norm's cone.

    The cone is ``k >= max(||x / p||_*, floor)``. With stiffness 0 the term in ``k`` is linear, ``-size k``.

    Examples
    --------
    >>> from dualcore.problem.geometry import L1Norm
    >>> prox_with_size(L1Norm(), np.ones(2), np.array([3.0, 0.5]), np.ones(2), 1.0, 1.0, 0.0)
    (array([2. , 0.5]), 2.0)
    """
    if stiffness == 0.0:
        x = prox(norm, prices, target, weights, -size)
        length = norm.__class__().dual(x / prices)
        if length >= floor:
            return x, length
        return _on_cone(norm, prices, target, weights, floor, 0.0)
    x, k = _on_cone(norm, prices, target, weights, size, 1.0 / stiffness)
    return (x, k) if k >= floor else _on_cone(norm, prices, target, weights, floor, 0.0)


def _on_cone(
    norm: Norm, prices: FloatArray, target: FloatArray, weights: FloatArray, size: float, compliance: float
) -> tuple[FloatArray, float]:
    """Return ``x`` and ``k = size + compliance * level`` with ``||x / p||_* <= k`` for the smallest ``level >= 0``."""
    plain = norm.__class__()
    if plain.dual(target / prices) <= size:
        return target.copy(), size
    if isinstance(norm, L2Norm):
        return _euclidean_cone(prices, target, weights, size, compliance)
    if not np.isfinite(prices).any():  # no feature has a price: the norm is zero, and so is the least size
        return target.copy(), 0.0
    length, force = _lengths(prices, target, weights)
    if isinstance(norm, L1Norm):
        k = size if compliance == 0.0 else max(_root(length, force, 1.0 / compliance, size / compliance), 0.0)
        return np.clip(target, *_limits(prices, k)), k
    level = _root(length * force, 1.0 / force, compliance, -size)  # a coefficient is zero from length * force on
    x = prox(norm, prices, target, weights, level)
    return x, max(plain.dual(x / prices), size + compliance * level)


def _lengths(prices: FloatArray, target: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``|a| / p`` and ``d p^2`` of the coefficients with a finite price."""
    held = np.isfinite(prices)
    return np.abs(target[held]) / prices[held], weights[held] * prices[held] ** 2


def _limits(prices: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Return the limits of the box ``|x_j| <= p_j bound``; infinite for an infinite price, even if the bound is 0."""
    limit = np.where(np.isfinite(prices), np.where(np.isfinite(prices), prices, 1.0) * bound, np.inf)
    return -limit, limit


def _root(ends: FloatArray, rates: FloatArray, slope: float, offset: float) -> float:
    """Return the ``x`` with ``sum_j rates_j (ends_j - x)_+ + offset = slope x``, by Newton's method from the left.

    The left side minus the right is convex and decreasing, so no step overshoots, and it is linear beyond the last
    breakpoint passed, so the method ends at the root. It needs no sorting.
    """
    x = -np.inf
    while ends.size or slope > 0.0:
        moved = (float(rates @ ends) + offset) / (float(rates.sum()) + slope)
        if moved <= x:
            break
        x = moved
        ahead = ends > x
        if ahead.all():
            break
        ends, rates = ends[ahead], rates[ahead]
    return x


def _shrink(prices: FloatArray, target: FloatArray, weights: FloatArray, rate: float) -> FloatArray:
    if np.isinf(rate):
        return np.where(np.isfinite(prices), 0.0, target)
    return np.asarray(target / (1.0 + rate / (weights * prices**2)))


def _euclidean_rate(prices: FloatArray, target: FloatArray, weights: FloatArray, level: float) -> float:
    """Return the ``s`` with ``s ||x / p|| = level`` for ``x = a / (1 + s / (d p^2))``; inf where ``x`` is zero."""
    held = np.isfinite(prices)
    start, stiff = target[held] / prices[held], weights[held] * prices[held] ** 2
    if not np.linalg.norm(stiff * start) > level:
        return np.inf
    # In units of the largest coefficient, because squares of tiny ones underflow. A power of two is exact.
    unit = float(np.ldexp(1.0, int(np.frexp(np.abs(start).max())[1])))
    start, stiff = start / unit, stiff * unit
    high = level / float(np.linalg.norm(start))

    def excess(s: float) -> float:
        return s * float(np.linalg.norm(start / (1.0 + s / stiff))) - level

    while excess(high) < 0.0:
        high *= 4.0
    # scipy wraps its function in a cycle, which would hold the arrays of `excess` until the next garbage collection.
    return float(brentq(lambda s, f: f(s), 0.0, high, (excess,), rtol=1e-14, xtol=1e-300, maxiter=2000)) / unit


def _euclidean_cone(
    prices: FloatArray, target: FloatArray, weights: FloatArray, size: float, compliance: float
) -> tuple[FloatArray, float]:
    held = np.isfinite(prices)
    start, stiff = target[held] / prices[held], weights[held] * prices[held] ** 2

    def length(s: float) -> float:
        return float(np.linalg.norm(start / (1.0 + s / stiff)))

    def excess(s: float) -> float:
        return length(s) * (1.0 - compliance * s) - size

    if size <= 0.0 and compliance * float(np.linalg.norm(stiff * start)) + size <= 0.0:  # the tip of the cone
        return _shrink(prices, target, weights, np.inf), 0.0
    high = 1.0
    while excess(high) > 0.0 and high < 1e300:
        high *= 4.0
    s = float(brentq(lambda s, f: f(s), 0.0, high, (excess,), 1e-300, 1e-14, 2000)) if high < 1e300 else np.inf
    return _shrink(prices, target, weights, s), length(s) if np.isfinite(s) else 0.0
