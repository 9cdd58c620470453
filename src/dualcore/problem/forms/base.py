"""What every closed form of the dual offers, and sums over rows in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss, MarginLoss

__all__ = ["BLOCK", "DualForm", "Minimum", "Partials", "Subgradient", "blocked_sum", "weighted_sum"]

# Rows that are worked on at a time.
BLOCK = 32768


class Minimum(NamedTuple):
    """Worst-case risk (without ridge) and the multiplier that attains it."""

    value: float
    multiplier: float


class Partials(NamedTuple):
    """Partial derivatives of ``h_i`` in ``t``, in ``lam`` and in ``size``, each of shape (n,)."""

    t: FloatArray
    multiplier: FloatArray
    size: FloatArray


class Subgradient(NamedTuple):
    """Subgradient of the worst-case risk: per row in ``t`` (not yet times the masses) and in ``size``."""

    t: FloatArray
    size: float


def weighted_sum(values: FloatArray, weights: FloatArray | None) -> float:
    """Return ``sum w_i v_i``, with equal masses where ``weights`` is None; rows of no mass do not count."""
    if weights is None:
        return float(values.mean())
    if np.isinf(values).any():
        values = np.where(weights > 0.0, values, 0.0)
    return float(weights @ values)


def blocked_sum(function: Callable[[FloatArray], FloatArray], t: FloatArray, weights: FloatArray | None) -> float:
    """Return ``sum w_i function(t_i)`` without a temporary of length n."""
    total = 0.0
    for start in range(0, t.size, BLOCK):
        values = function(t[start : start + BLOCK])
        part = None if weights is None else weights[start : start + BLOCK]
        total += float(values.sum()) if part is None else weighted_sum(values, part)
    return total / t.size if weights is None else total


class DualForm(ABC):
    """Closed form of ``h``, ``kappa`` and the minimum over ``lam`` for one family of problems.

    Parameters
    ----------
    loss : Loss
    geometry : Geometry
    radius : float
    """

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        self.loss = loss
        self.geometry = geometry
        self.radius = radius

    @abstractmethod
    def kappa(self, size: float) -> float:
        """Return the smallest multiplier for which every ``h_i`` is finite."""

    @abstractmethod
    def h(self, t: FloatArray, multiplier: float, size: float) -> FloatArray:
        """Return ``h_i``, shape (n,); ``inf`` for a multiplier below `kappa`."""

    @abstractmethod
    def partials(self, t: FloatArray, multiplier: float, size: float) -> Partials:
        """Return the partial derivatives of ``h_i`` for a multiplier at or above `kappa`."""

    @abstractmethod
    def minimise(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        """Return the exact minimum over the multiplier."""

    @abstractmethod
    def subgradient(self, t: FloatArray, weights: FloatArray | None, size: float) -> Subgradient:
        """Return a subgradient of the minimum in ``t`` and ``size``."""

    @abstractmethod
    def largest_multiplier(self, t: FloatArray, size: float) -> float:
        """Return a multiplier that no minimiser exceeds, whatever the masses."""

    def feasible_multiplier(self, size: float, multiplier: float) -> float:
        """Return the multiplier, raised to where ``h`` of every row is finite at coefficients of this size."""
        if self.radius == 0.0 and isinstance(self.loss, MarginLoss) and np.isfinite(self.geometry.label_cost):
            return np.inf  # nothing moves and nothing flips: any finite multiplier would let a row that was not seen
        return max(multiplier, self.kappa(size))

    def mean_loss(self, t: FloatArray, weights: FloatArray | None) -> float:
        """Return ``sum w_i L(t_i)`` without a temporary of length n."""
        return blocked_sum(self.loss.value, t, weights)
