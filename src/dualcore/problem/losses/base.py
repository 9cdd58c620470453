"""The interface of losses: convex functions of one scalar, the margin or the residual."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from dualcore.data.arrays import FloatArray


def check_number(name: str, value: Any) -> None:
    """Raise TypeError where a parameter of a loss is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")


class Loss(ABC):
    """A convex, non-negative loss ``L(t)`` of one scalar.

    A subclass defines `value`, `slope` and `lipschitz`; everything else has a default that follows from them.

    Attributes
    ----------
    name : str
        How the loss is called in `Problem` and on the command line.
    has_labels : bool
        Whether rows carry labels rather than a real target.
    order : float
        Smallest order of transport distance for which the worst-case risk is finite.
    lipschitz : float
        Largest absolute slope; ``inf`` for losses of an order above 1.
    kinks : tuple of float
        Where the slope jumps.
    curvature_jumps : tuple of float
        Where the curvature jumps.
    pieces : tuple of (slope, offset) or None
        ``L(t) = max_k slope_k t + offset_k`` where the loss is polyhedral, else None.
    envelope_of : tuple of (slope, offset) or None
        The polyhedral function whose Moreau envelope ``min_v f(t - v) + v^2 / 2`` the loss is, where it is one.
    """

    name: ClassVar[str] = ""
    has_labels: ClassVar[bool] = False
    order: float = 1
    lipschitz: float
    kinks: tuple[float, ...] = ()
    curvature_jumps: tuple[float, ...] = ()
    pieces: tuple[tuple[float, float], ...] | None = None
    envelope_of: tuple[tuple[float, float], ...] | None = None

    @abstractmethod
    def value(self, t: FloatArray) -> FloatArray:
        """Return ``L(t)``, elementwise."""

    @abstractmethod
    def slope(self, t: FloatArray) -> FloatArray:
        """Return ``L'(t)``, elementwise; any subgradient at a kink."""

    def curvature(self, t: FloatArray) -> FloatArray:
        """Return ``L''(t)``, elementwise; zero on linear pieces.

        The default, of a loss that is not linear by pieces, is a central difference of `slope`.
        """
        if self.pieces is not None:
            return np.zeros_like(t, dtype=np.float64)
        step = 1e-5 * (1.0 + np.abs(t))
        return np.maximum(self.slope(t + step) - self.slope(t - step), 0.0) / (2.0 * step)

    def value_and_slope(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``L(t)`` and ``L'(t)``; override where they share work."""
        return self.value(t), self.slope(t)

    @property
    def is_lipschitz(self) -> bool:
        """Whether slopes are bounded; if not, the loss is a power of a loss with bounded slopes."""
        return bool(np.isfinite(self.lipschitz))

    @property
    def root_lipschitz(self) -> float:
        """The largest slope of ``L ** (1 / order)``: `lipschitz` for order 1, 1 for powers of ``|t|`` and the hinge."""
        return self.lipschitz if self.is_lipschitz else 1.0

    def largest_rise(self, mean: float, change: float) -> float:
        """Return how much a mean loss can rise where arguments change by ``change`` in the mean of the loss's order."""
        if self.is_lipschitz:
            return self.lipschitz * change
        # (r + c)^p - r^p <= p c (r + c)^(p - 1) with r^p the mean: the difference would lose a small change.
        root = mean ** (1.0 / self.order)
        return float(self.order * change * (root + change) ** (self.order - 1.0))

    def largest_size(self, mean: float) -> float:
        """Return an upper bound on the mean of ``|t|`` for a given mean loss; ``inf`` for margins."""
        return np.inf

    @property
    def slope_range(self) -> tuple[float, float]:
        """Interval that holds every slope, hence the domain of the conjugate."""
        return -self.lipschitz, self.lipschitz

    def conjugate(self, s: FloatArray) -> FloatArray:
        """Return ``L*(s) = sup_t s t - L(t)``, elementwise; ``inf`` outside `slope_range`.

        The default finds the ``t`` whose slope is ``s`` by bisection, so it needs a slope that is continuous.
        """
        # Bisection for all slopes at once; scipy's root finders take one function.
        s = np.asarray(s, dtype=np.float64)
        low, high = np.full(s.shape, -1.0), np.full(s.shape, 1.0)
        for _ in range(60):  # grow the bracket until L'(low) <= s <= L'(high), or give up at 2**60
            short_low, short_high = self.slope(low) > s, self.slope(high) < s
            if not (short_low.any() or short_high.any()):
                break
            low, high = np.where(short_low, 2.0 * low, low), np.where(short_high, 2.0 * high, high)
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = self.slope(middle) < s
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        t = 0.5 * (low + high)
        least, most = self.slope_range
        return np.where((s >= least) & (s <= most), s * t - self.value(t), np.inf)

    def scaled(self, unit: float) -> tuple[Loss, float] | None:
        """Return a loss ``L'`` and a factor ``f`` with ``L(unit * t) = f L'(t)``; None if no such pair is known."""
        return None

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name))
        return f"{type(self).__name__}({shown})"


class MarginLoss(Loss):
    """A loss of the margin ``z = y (theta . x + b)``: convex and non-increasing."""

    has_labels = True

    @property
    def slope_range(self) -> tuple[float, float]:
        """Interval that holds every slope: a margin loss never rises."""
        return -self.lipschitz, 0.0

    def flip_gain(self, z: FloatArray) -> FloatArray:
        """Return ``L(-z) - L(z)``, the gain of a label flip, non-decreasing in ``z``."""
        return self.value(-z) - self.value(z)


class ResidualLoss(Loss):
    """A loss of the residual ``r = theta . x + b - y``: convex, zero where the prediction is right."""

    def largest_size(self, mean: float) -> float:
        """Return an upper bound on the mean of ``|r|`` for a given mean loss."""
        if not self.is_lipschitz:  # a power of |r|
            return float(mean ** (1.0 / self.order))
        # c |r| <= L(r) + max L*(+-c) for every slope c within the domain of the conjugate.
        slope = 0.5 * min(abs(end) for end in self.slope_range)
        extra = float(np.max(self.conjugate(np.array([-slope, slope]))))
        return (mean + max(extra, 0.0)) / slope
