"""The interface of closed forms of the dual, and sums over rows in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss, MarginLoss

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


class Evaluated(NamedTuple):
    """Values of every row for a read, shape (n,) each: loss, ``h``, its slope in ``t``, and whether the label flips.

    ``h`` is the very array of the losses where no row flips; ``flipped`` is None there.
    """

    value: FloatArray
    h: FloatArray
    slope: FloatArray
    flipped: npt.NDArray[np.bool_] | None


class Subgradient(NamedTuple):
    """Subgradient of the worst-case risk: per row in ``t`` (not yet times the masses) and in ``size``."""

    t: FloatArray
    size: float


def mean_slope(loss: Loss, t: FloatArray, width: float) -> FloatArray:
    """Return the mean slope of the loss over ``[t - width, t + width]``, its slope at ``t`` where the width is 0."""
    if width == 0.0:
        return np.asarray(loss.slope(t), dtype=np.float64)
    low, high = loss.slope_range
    slope = np.clip((loss.value(t + width) - loss.value(t - width)) / (2.0 * width), low, high)
    return np.asarray(slope, dtype=np.float64)


def weighted_sum(values: FloatArray, weights: FloatArray | None) -> float:
    """Return ``sum w_i v_i``, with equal masses where ``weights`` is None; rows of no mass do not count."""
    if weights is None:
        return float(values.mean())
    if np.isinf(values).any():
        values = np.where(weights > 0.0, values, 0.0)
    return float(weights @ values)


def masses_of(rows: npt.NDArray[np.intp], n_rows: int, weights: FloatArray | None) -> FloatArray:
    """Return the masses of some of all rows."""
    return np.full(rows.size, 1.0 / n_rows) if weights is None else weights[rows]


def blocked_sum(function: Callable[[FloatArray], FloatArray], t: FloatArray, weights: FloatArray | None) -> float:
    """Return ``sum w_i function(t_i)`` without a temporary of length n."""
    total = 0.0
    for start in range(0, t.size, BLOCK):
        values = function(t[start : start + BLOCK])
        part = None if weights is None else weights[start : start + BLOCK]
        total += float(values.sum()) if part is None else weighted_sum(values, part)
    return total / t.size if weights is None else total


class DualForm(ABC):
    """Closed form of ``h``, ``kappa`` and the minimum over ``lam`` for one family of problems."""

    # Whether the risk of a model whose labels may flip follows from sums and the rows that flip.
    sums_decide: ClassVar[bool] = True
    # Whether a mean of dual points is a dual point whose value is at least the mean of theirs, sum by sum.
    sums_mix: ClassVar[bool] = True
    # Whether ``h`` is piecewise linear in the multiplier, so that the risk is a mean loss plus a multiple of ``size``.
    linear_in_multiplier: ClassVar[bool] = True
    # Whether ``h`` is finite at the smallest multiplier itself, and not only above it.
    finite_at_kappa: ClassVar[bool] = True

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
        """Return an upper bound on the minimising multiplier for any masses."""

    def feasible_multiplier(self, size: float, multiplier: float) -> float:
        """Return the multiplier, raised to where ``h`` of every row is finite at coefficients of this size."""
        if self.radius == 0.0 and isinstance(self.loss, MarginLoss) and np.isfinite(self.geometry.label_cost):
            return np.inf  # nothing moves or flips; at a finite multiplier a row that was not seen might flip
        return max(multiplier, self.kappa(size))

    @property
    def has_kinks(self) -> bool:
        """Whether `dual_slopes` makes use of a width: ``h`` has kinks, of the loss or where labels begin to flip."""
        return bool(self.loss.kinks) or (self.loss.has_labels and bool(np.isfinite(self.geometry.label_cost)))

    def flip_candidates(self, t: FloatArray, size: float) -> tuple[np.ndarray, FloatArray]:
        """Return the rows that flip at some multiplier from `kappa` on, and the multiplier at which each stops to."""
        return np.zeros(0, dtype=np.intp), np.zeros(0)

    def flip_shares(self, t: FloatArray, weights: FloatArray | None, size: float) -> tuple[np.ndarray, FloatArray]:
        """Return the flipped rows and the share of each that flips in the worst case; none where labels stay."""
        return np.zeros(0, dtype=np.intp), np.zeros(0)

    def flip_gains(self, t: FloatArray) -> FloatArray | None:
        """Return the gain of a flip before its cost, shape (n,); None if it depends on more than the margin."""
        return None

    def evaluate(self, t: FloatArray, multiplier: float, size: float) -> Evaluated:
        """Return loss, ``h``, slope and flips of every row at a multiplier at or above `kappa`."""
        value, slope = self.loss.value_and_slope(t)
        return Evaluated(value, value, slope, None)

    def dual_slopes(
        self, t: FloatArray, weights: FloatArray | None, size: float, width: float = 0.0
    ) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """Return the dual choice that a model suggests: slope that stays, slope that flips, flipped share of each row.

        The last two are None where no row flips. A positive ``width`` averages slopes over ``[t - width, t + width]``,
        where the loss has kinks or flips.
        """
        return mean_slope(self.loss, t, width), None, None

    def dual_values(
        self, found: Evaluated, t: FloatArray, score: FloatArray, y: FloatArray, multiplier: float
    ) -> FloatArray:
        """Return the contribution of each row to the value of the dual point with the slopes of ``found``, shape (n,).

        By Fenchel's equality ``-L*(s) = L(t) - s t``, less ``s y`` for a residual.
        """
        return found.h - found.slope * score

    def slope_powers(self, slope: FloatArray) -> FloatArray | None:
        """Return the powers of the slopes whose sum the bound needs; None for order 1, where slopes are bounded."""
        return None

    def steepest(self, balance: FloatArray) -> float:
        """Return a bound on the mean slope of a dual point, from the sums of its slopes on either side."""
        return self.loss.lipschitz

    def tail(self, t: FloatArray, size: float, weights: FloatArray | None, total_weight: float) -> FlipTail:
        """Return the rows that flip at some feasible multiplier, as a `FlipTail`."""
        return FlipTail.empty()

    def minimise_tail(self, mean_loss: float, mass: float, tail: FlipTail, size: float) -> Minimum:
        """Return the minimum over the multiplier from the mean loss, the mass of all rows, and the rows that flip.

        Exact up to 65,536 rows in the tail, an upper bound beyond; see `FlipTail`.
        """
        multiplier = self.kappa(size)
        return Minimum(self.radius * multiplier + mean_loss, multiplier)

    def mean_loss(self, t: FloatArray, weights: FloatArray | None) -> float:
        """Return ``sum w_i L(t_i)`` without a temporary of length n."""
        return blocked_sum(self.loss.value, t, weights)
