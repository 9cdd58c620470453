"""Losses for regression, functions of the residual ``r = theta . x + b - y``."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses.base import ResidualLoss, check_number


class Huber(ResidualLoss):
    """``r^2 / 2`` for ``|r| <= delta``, ``delta (|r| - delta / 2)`` beyond; ``L*(a) = a^2 / 2`` on [-delta, delta].

    Parameters
    ----------
    delta : float, default=1.35
        Where the loss turns from quadratic to linear; positive.
    """

    name = "huber"

    def __init__(self, delta: float = 1.35) -> None:
        check_number("delta", delta)
        if not (delta > 0.0 and np.isfinite(delta)):
            raise ValueError(f"Huber delta must be positive and finite, got {delta!r}.")
        self.delta = float(delta)
        self.lipschitz = self.delta
        self.curvature_jumps = (-self.delta, self.delta)
        self.envelope_of = ((self.delta, 0.0), (-self.delta, 0.0))

    def value(self, t: FloatArray) -> FloatArray:
        size = np.abs(t)
        capped = np.minimum(size, self.delta)
        return capped * (size - 0.5 * capped)

    def slope(self, t: FloatArray) -> FloatArray:
        return np.clip(t, -self.delta, self.delta)

    def value_and_slope(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``s (r - s / 2)`` and ``s``, the residual clipped to [-delta, delta]."""
        slope = self.slope(t)
        return slope * (t - 0.5 * slope), slope

    def curvature(self, t: FloatArray) -> FloatArray:
        return (np.abs(t) <= self.delta).astype(np.float64)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where(np.abs(s) <= self.delta, 0.5 * s * s, np.inf)

    def scaled(self, unit: float) -> tuple[Huber, float]:
        """Return the loss with ``delta / unit``, and ``unit^2``."""
        return Huber(self.delta / unit), unit * unit


class Pinball(ResidualLoss):
    """``max(-q r, (1 - q) r)`` with ``r`` = prediction - target; zero conjugate on [-q, 1 - q].

    Parameters
    ----------
    quantile : float, default=0.5
        Which conditional quantile to estimate; in (0, 1).
    """

    name = "pinball"
    kinks = (0.0,)

    def __init__(self, quantile: float = 0.5) -> None:
        check_number("quantile", quantile)
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"quantile must lie strictly between 0 and 1, got {quantile!r}.")
        self.quantile = float(quantile)
        self.lipschitz = max(self.quantile, 1.0 - self.quantile)
        self.pieces = ((-self.quantile, 0.0), (1.0 - self.quantile, 0.0))

    @property
    def slope_range(self) -> tuple[float, float]:
        return -self.quantile, 1.0 - self.quantile

    def value(self, t: FloatArray) -> FloatArray:
        return np.maximum(-self.quantile * t, (1.0 - self.quantile) * t)

    def slope(self, t: FloatArray) -> FloatArray:
        return np.where(t < 0.0, -self.quantile, 1.0 - self.quantile)

    def conjugate(self, s: FloatArray) -> FloatArray:
        least, most = self.slope_range
        s = np.asarray(s, dtype=np.float64)
        return np.where((s >= least) & (s <= most), 0.0, np.inf)

    def scaled(self, unit: float) -> tuple[Pinball, float]:
        return self, unit


class EpsilonInsensitive(ResidualLoss):
    """``max(0, |r| - epsilon)``; ``L*(a) = epsilon |a|`` on [-1, 1].

    Parameters
    ----------
    epsilon : float, default=0.1
        Half-width of the tube in which errors cost nothing; not negative.
    """

    name = "epsilon_insensitive"
    lipschitz = 1.0

    def __init__(self, epsilon: float = 0.1) -> None:
        check_number("epsilon", epsilon)
        if not (epsilon >= 0.0 and np.isfinite(epsilon)):
            raise ValueError(f"epsilon must be non-negative and finite, got {epsilon!r}.")
        self.epsilon = float(epsilon)
        self.kinks = (-self.epsilon, self.epsilon) if epsilon else (0.0,)
        self.pieces = ((0.0, 0.0), (1.0, -self.epsilon), (-1.0, -self.epsilon))

    def value(self, t: FloatArray) -> FloatArray:
        return np.maximum(np.abs(t) - self.epsilon, 0.0)

    def slope(self, t: FloatArray) -> FloatArray:
        return np.sign(t) * (np.abs(t) > self.epsilon)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where(np.abs(s) <= 1.0, self.epsilon * np.abs(s), np.inf)

    def scaled(self, unit: float) -> tuple[EpsilonInsensitive, float]:
        """Return the loss with ``epsilon / unit``, and ``unit``."""
        return EpsilonInsensitive(self.epsilon / unit), unit


class Absolute(ResidualLoss):
    """``|r|``; zero conjugate on [-1, 1]."""

    name = "absolute"
    lipschitz = 1.0
    kinks = (0.0,)
    pieces = ((1.0, 0.0), (-1.0, 0.0))

    def value(self, t: FloatArray) -> FloatArray:
        return np.abs(t)

    def slope(self, t: FloatArray) -> FloatArray:
        return np.sign(t)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where(np.abs(s) <= 1.0, 0.0, np.inf)

    def scaled(self, unit: float) -> tuple[Absolute, float]:
        return self, unit


class Squared(ResidualLoss):
    """``r^2``, for transport order 2; ``L*(a) = a^2 / 4``."""

    name = "squared"
    order = 2
    lipschitz = np.inf

    def value(self, t: FloatArray) -> FloatArray:
        return t * t

    def slope(self, t: FloatArray) -> FloatArray:
        return 2.0 * t

    def curvature(self, t: FloatArray) -> FloatArray:
        return np.full_like(t, 2.0, dtype=np.float64)

    def conjugate(self, s: FloatArray) -> FloatArray:
        return 0.25 * np.asarray(s, dtype=np.float64) ** 2

    def scaled(self, unit: float) -> tuple[Squared, float]:
        return self, unit * unit


class Power(ResidualLoss):
    """``|r|^p`` with ``p > 1``, for transport order ``p``; ``L*(a) = (p - 1) (|a| / p)^q``, ``1/p + 1/q = 1``.

    Parameters
    ----------
    power : float, default=3.0
        ``p``; with 2 this is `Squared`.
    """

    name = "power"
    lipschitz = np.inf

    def __init__(self, power: float = 3.0) -> None:
        check_number("power", power)
        if not (power > 1.0 and np.isfinite(power)):
            raise ValueError(f"power must be greater than 1 and finite, got {power!r}; with 1 use loss='absolute'.")
        self.power = self.order = float(power)

    def value(self, t: FloatArray) -> FloatArray:
        return np.abs(t) ** self.power

    def slope(self, t: FloatArray) -> FloatArray:
        return self.power * np.sign(t) * np.abs(t) ** (self.power - 1.0)

    def curvature(self, t: FloatArray) -> FloatArray:
        """Return ``p (p - 1) |r|^(p - 2)``; below ``p = 2`` it has a pole at zero, which is cut off."""
        size = np.abs(t) if self.power >= 2.0 else np.maximum(np.abs(t), 1e-8)
        return self.power * (self.power - 1.0) * size ** (self.power - 2.0)

    def conjugate(self, s: FloatArray) -> FloatArray:
        return (self.power - 1.0) * (np.abs(s) / self.power) ** (self.power / (self.power - 1.0))

    def scaled(self, unit: float) -> tuple[Power, float]:
        return self, unit**self.power
