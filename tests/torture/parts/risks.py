"""Worst-case risks in long doubles, straight from the formulas; no code of the package is called.

``R = min over lam >= kappa of sigma^p lam + sum_i w_i h_i(lam)`` plus the ridge. The minimum over ``lam`` is found
here by the slope of the objective, between its corners (order 1) or by halving (squared hinge).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .exact import Long, LongArray


def positive(t: Any) -> Any:
    return np.maximum(t, 0)


def _huber(r: Any, delta: float) -> Any:
    size = np.abs(r)
    inside = np.minimum(size, Long(delta))
    return np.where(size <= delta, inside * inside / 2, Long(delta) * (size - Long(delta) / 2))


def _smooth_hinge(z: Any) -> Any:
    short = np.clip(1 - z, 0, 1)
    return np.where(z < 0, Long(0.5) - z, short * short / 2)


LOSSES: dict[str, Callable[..., Any]] = {
    "logistic": lambda z: np.log1p(np.exp(-np.abs(z))) + positive(-z),
    "hinge": lambda z: positive(1 - z),
    "smooth_hinge": _smooth_hinge,
    "squared_hinge": lambda z: positive(1 - z) ** 2,
    "huber": _huber,
    "pinball": lambda r, quantile: Long(quantile) * positive(-r) + (1 - Long(quantile)) * positive(r),
    "epsilon_insensitive": lambda r, epsilon: positive(np.abs(r) - Long(epsilon)),
    "absolute": lambda r: np.abs(r),
    "squared": lambda r: r * r,
    "power": lambda r, power: np.abs(r) ** Long(power),
}


# Losses that are the largest of their lines; the other losses of order 1 approach theirs.
POLYHEDRAL = ("hinge", "pinball", "epsilon_insensitive", "absolute")


def lines(loss: str, parameters: dict[str, float]) -> list[tuple[Any, Any]]:
    """Return slopes and constants of the lines that a loss of order 1 consists of, or approaches far out."""
    q, delta, epsilon = (Long(parameters.get(name, 0.0)) for name in ("quantile", "delta", "epsilon"))
    return {
        "logistic": [(0, 0), (-1, 0)],
        "hinge": [(0, 0), (-1, 1)],
        "smooth_hinge": [(0, 0), (-1, Long(0.5))],
        "huber": [(delta, -delta * delta / 2), (-delta, -delta * delta / 2)],
        "pinball": [(-q, 0), (1 - q, 0)],
        "epsilon_insensitive": [(0, 0), (1, -epsilon), (-1, -epsilon)],
        "absolute": [(1, 0), (-1, 0)],
    }[loss]


def lipschitz(loss: str, parameters: dict[str, float]) -> float:
    """Return the largest slope of a loss of order 1."""
    return float(max(abs(slope) for slope, _ in lines(loss, parameters)))


def order_of(loss: str, parameters: dict[str, float]) -> float:
    """Return the order of the transport distance that a loss needs."""
    return parameters["power"] if loss == "power" else 2.0 if loss in ("squared", "squared_hinge") else 1.0


def dual_norm(norm: str, prices: Any, theta: LongArray) -> Any:
    """Return ``||theta / prices||_*``: the largest, the root of the squares or the sum."""
    scaled = np.abs(theta) if prices is None else np.abs(theta) / prices.astype(Long)
    if norm == "l1":
        return scaled.max(initial=Long(0))
    if norm == "linf":
        return scaled.sum()
    largest = scaled.max(initial=Long(0))
    return largest * np.sqrt(((scaled / largest) ** 2).sum()) if largest > 0 else Long(0)


def flip_risk(stay: LongArray, flip: LongArray, w: LongArray, radius: Any, gamma: float, kappa: Any) -> Any:
    """Return ``min over lam >= kappa of sigma lam + sum w max(stay, flip - lam gamma)``.

    The objective is convex with corners where ``flip - stay = lam gamma``; its slope to the right of ``lam`` is
    ``sigma - gamma mass{corner > lam}``. The least corner with a slope of at least zero is looked for, and the
    objective is evaluated there and at both neighbours.
    """
    if np.isinf(gamma) or radius == 0:  # no flip can be paid for
        return radius * kappa + (w * stay).sum()
    gamma = Long(gamma)
    corners = np.unique(np.append((flip - stay) / gamma, kappa))
    corners = corners[corners >= kappa]
    gain = (flip - stay) / gamma
    low, high = 0, corners.size - 1
    while low < high:
        middle = (low + high) // 2
        if radius - gamma * w[gain > corners[middle]].sum() >= 0:
            high = middle
        else:
            low = middle + 1
    near = corners[max(low - 1, 0) : low + 2]
    return min(radius * lam + (w * np.maximum(stay, flip - lam * gamma)).sum() for lam in near)


def squared_hinge_risk(z: LongArray, w: LongArray, radius: Any, gamma: float, size: Any) -> Any:
    """Return the risk of the squared hinge with flips at cost ``(||dx|| + gamma)^2``."""
    short, v = positive(1 - z), positive(1 + z)
    plain = (np.sqrt((w * short * short).sum()) + radius * size) ** 2
    if np.isinf(gamma) or radius == 0:
        return plain
    gamma = Long(gamma)

    def branches(room: Any) -> tuple[Any, Any]:
        """At ``lam = K^2 + room > K^2`` the better of staying and flipping, and how fast it falls with ``lam``."""
        lam = size * size + room
        growth, fall = lam / room, (size / room) ** 2
        stay = short * short
        moved = v * size >= lam * gamma
        ahead = positive(v - size * gamma) ** 2
        flip = np.where(moved, ahead * growth, v * v - lam * gamma * gamma)
        flips = flip > stay * growth
        cost = np.where(flips, np.where(moved, ahead * fall, gamma * gamma), stay * fall)
        return np.where(flips, flip, stay * growth), cost

    def objective(room: Any) -> Any:
        return radius * radius * (size * size + room) + (w * branches(room)[0]).sum()

    # Beyond this multiplier nothing flips and the closed form without flips is past its own minimum.
    worst = np.maximum(v, short).max()
    top = 4 * ((worst / gamma) ** 2 + size * worst / radius + size * worst / gamma + size * size + 1)
    low, high = np.log(top) - 160, np.log(top)
    for _ in range(100):
        middle = (low + high) / 2
        if radius * radius - (w * branches(np.exp(middle))[1]).sum() < 0:
            low = middle
        else:
            high = middle
    found = min(objective(np.exp(low)), objective(np.exp(high)))
    if not (short > 0).any() and not (v > size * gamma).any():  # then lam = K^2 is allowed too
        found = min(found, radius * radius * size * size + (w * positive(v * v - (size * gamma) ** 2)).sum())
    return found
