"""Proximal steps of the dual norms, with a weight for every coefficient.

Each function works on ``min_x sum_j d_j (x_j - a_j)^2 / 2`` plus a multiple of ``||x / p||_*``. The dual of the feature
norm linf is a sum, of l1 a maximum, of l2 Euclidean.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dualcore.geometry import FloatArray, L1Norm, L2Norm, Norm

__all__ = ["prox", "prox_with_size"]


def prox(norm: Norm, prices: FloatArray, target: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    """Return the minimiser of ``sum d (x - a)^2 / 2 + level ||x / p||_*``.

    Examples
    --------
    >>> from dualcore.geometry import LinfNorm
    >>> prox(LinfNorm(), np.ones(3), np.array([3.0, -1.0, 0.5]), np.ones(3), 1.0)
    array([2., 0., 0.])
    """
    if level <= 0.0:
        return target.copy()
    rate = 1.0 / (weights * prices)  # how far a unit of force moves x_j; zero where the price is infinite
    if isinstance(norm, L2Norm):
        return _euclidean(prices, target, weights, level)
    if isinstance(norm, L1Norm):
        return _clip(prices, target, weights, level)
    return np.asarray(np.sign(target) * np.maximum(np.abs(target) - level * rate, 0.0))


def _clip(prices: FloatArray, target: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    """Clip to ``|x_j| <= p_j k`` with the ``k`` at which the forces add up to the level."""
    held = np.isfinite(prices)
    size, pull = np.abs(target[held]) / prices[held], weights[held] * prices[held] ** 2
    order = np.argsort(-size)
    size, pull = size[order], pull[order]
    total = np.cumsum(pull)
    force = np.cumsum(pull * size) - total * np.append(size[1:], 0.0)  # of all down to the next size
    if not size.size or force[-1] <= level:
        out = target.copy()
        out[held] = 0.0
        return out
    k = int(np.searchsorted(force, level))
    bound = (float((pull[: k + 1] * size[: k + 1]).sum()) - level) / float(total[k])
    out = target.copy()
    out[held] = np.clip(target[held], -bound * prices[held], bound * prices[held])
    return out


def _euclidean(prices: FloatArray, target: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    """Shrink by ``1 / (1 + s / (d p^2))`` with the ``s`` that is the level over the norm of the result."""
    stiff = weights * prices**2
    held = np.isfinite(prices)
    start = np.where(held, target, 0.0) / prices
    if not np.linalg.norm((stiff * start)[held]) > level:  # the pull at zero is not longer than the level
        return np.where(held, 0.0, target)

    def excess(s: float) -> float:
        return s * float(np.linalg.norm(start / (1.0 + s / stiff))) - level

    high = level / float(np.linalg.norm(start))
    while excess(high) < 0.0:
        high *= 4.0
    s = brentq(excess, 0.0, high, rtol=1e-14, xtol=1e-300)
    return np.asarray(target / (1.0 + s / stiff))


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

    The cone is ``k >= max(||x / p||_*, floor)``. With stiffness 0, ``size`` is minus the price of a unit of ``k``.
    """

    def wanted(level: float) -> float:
        return size + level / stiffness if stiffness > 0.0 else (floor if level < -size else np.inf)

    def length(level: float) -> float:
        x = prox(norm, prices, target, weights, level)
        return _dual(norm, x / prices)

    if stiffness == 0.0:
        x = prox(norm, prices, target, weights, -size)
        k = _dual(norm, x / prices)
        if k >= floor:
            return x, k
        level = _root(lambda level: length(level) - floor, -size)
        return prox(norm, prices, target, weights, level), floor
    if length(0.0) <= max(size, floor):
        return target.copy(), max(size, floor)
    level = _root(lambda level: length(level) - max(wanted(level), floor), stiffness * max(-size, 0.0) + 1.0)
    x = prox(norm, prices, target, weights, level)
    return x, max(_dual(norm, x / prices), wanted(level), floor)


def _dual(norm: Norm, x: FloatArray) -> float:
    return norm._dual(x)


def _root(function, high: float) -> float:  # type: ignore[no-untyped-def]
    """Return where a falling function crosses zero; 0 where it starts below."""
    if function(0.0) <= 0.0:
        return 0.0
    while function(high) > 0.0 and high < 1e300:
        high *= 4.0
    return float(brentq(function, 0.0, high, rtol=1e-13, xtol=1e-300))
