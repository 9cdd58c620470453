"""Losses that grow as a power: the squared loss and its relatives, and the squared hinge, whose labels may flip."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.forms.base import (
    DualForm,
    Evaluated,
    Minimum,
    Partials,
    Subgradient,
    blocked_sum,
    weighted_sum,
)
from dualcore.problem.losses import MarginLoss


class SquaredForm(DualForm):
    r"""Squared loss, order 2: ``h = lam r^2 / (lam - K^2)``, ``R = (rms(r) + sigma K)^2``.

    The multiplier is ``lam* = K^2 + K rms / sigma``. The same holds for ``|r|^p`` of order ``p`` (`Power`), with
    ``A = lam^{1/(p-1)}``, ``B = K^{p/(p-1)}`` and ``N`` the mean of order ``p`` of the residuals:

    .. math:: h = |r|^p \Bigl(\frac{A}{A - B}\Bigr)^{p-1}, \quad R = (N + \sigma K)^p, \quad
              \lambda^* = K \Bigl(\frac{N + \sigma K}{\sigma}\Bigr)^{p-1}
    """

    sums_mix = False
    linear_in_multiplier = False
    finite_at_kappa = False
    has_kinks = False

    @property
    def power(self) -> float:
        """``p``."""
        return self.loss.order

    def slope_size(self, size: float) -> float:
        """Return ``K``."""
        return max(size, self.geometry.target_slope)

    def shortfall(self, t: FloatArray) -> FloatArray:
        """Return the quantity whose square, or power, is the loss."""
        return t

    def kappa(self, size: float) -> float:
        return float(self.slope_size(size) ** self.power)

    def _growth(self, multiplier: float, size: float) -> tuple[float, float]:
        """Return ``1 - B / A`` and ``(A / (A - B))^(p - 1)``.

        With ``p`` near 1 both ``A`` and ``B`` leave the range of numbers; their ratio does not.
        """
        p, bar = self.power, self.kappa(size)
        if not bar > 0.0:
            return 1.0, 1.0
        if not multiplier > bar:
            return 0.0, np.inf
        near = 2.0 * bar > multiplier  # where the difference of the two is exact
        ratio = np.log1p((bar - multiplier) / multiplier) if near else np.log(bar) - np.log(multiplier)
        slack = float(-np.expm1(ratio / (p - 1.0)))
        return slack, slack ** (1.0 - p)

    def h(self, t: FloatArray, multiplier: float, size: float) -> FloatArray:
        bar, value = self.kappa(size), self.loss.value(t)
        if np.isinf(multiplier):  # nothing moves at any price
            return value
        if multiplier < bar * (1.0 - 1e-12):
            return np.full(t.shape, np.inf)
        if multiplier <= bar:
            return np.where(value > 0.0, np.inf, 0.0) if bar > 0.0 else value
        return value * self._growth(multiplier, size)[1]

    def partials(self, t: FloatArray, multiplier: float, size: float) -> Partials:
        p, slope_size = self.power, self.slope_size(size)
        if np.isinf(multiplier) or not slope_size > 0.0:  # nothing moves, or moves do not change the loss
            return Partials(self.loss.slope(t), np.zeros_like(t), np.zeros_like(t))
        slack, growth = self._growth(multiplier, size)
        if slack <= 0.0:  # lam = kappa is the minimiser only where every residual vanishes
            return Partials(np.zeros_like(t), np.zeros_like(t), np.zeros_like(t))
        # d growth / d lam and / d K, by the chain rule through B / A
        rate = growth / slack * (1.0 - slack)
        value = self.loss.value(t)
        in_size = p * rate / slope_size * value if size >= slope_size else np.zeros_like(t)
        return Partials(self.loss.slope(t) * growth, -rate / multiplier * value, in_size)

    def minimise(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        return self.minimise_mean(self.mean_loss(t, weights), size)

    def minimise_mean(self, mean_loss: float, size: float) -> Minimum:
        """Minimise from the mean loss alone; exact without label flips."""
        slope_size, p = self.slope_size(size), self.power
        if self.radius == 0.0:  # the multiplier costs nothing, and rows that are not seen here may need any
            return Minimum(float(mean_loss), np.inf)
        mean = float(mean_loss ** (1.0 / p))
        root = mean + self.radius * slope_size
        with np.errstate(over="ignore"):  # of a tiny radius and a high power: as good as no radius
            multiplier = slope_size * float(np.float_power(root / self.radius, p - 1.0)) if slope_size > 0.0 else 0.0
        return Minimum(root**p, multiplier)

    def subgradient(self, t: FloatArray, weights: FloatArray | None, size: float) -> Subgradient:
        slope_size, p = self.slope_size(size), self.power
        mean = self.mean_loss(t, weights) ** (1.0 / p)
        root = mean + self.radius * slope_size
        in_size = p * root ** (p - 1.0) * self.radius if size >= slope_size else 0.0
        slope = self.loss.slope(t) * (root / mean) ** (p - 1.0) if mean > 0.0 else np.zeros_like(t)
        return Subgradient(slope, in_size)

    def evaluate(self, t: FloatArray, multiplier: float, size: float) -> Evaluated:
        value = self.loss.value(t)
        # At radius 0 no row moves, at any multiplier, which may come from a model of another problem.
        at = multiplier if self.radius > 0.0 else np.inf
        return Evaluated(value, self.h(t, at, size), self.partials(t, at, size).t, None)

    def dual_values(
        self, found: Evaluated, t: FloatArray, score: FloatArray, y: FloatArray, multiplier: float
    ) -> FloatArray:
        # Only the linear part; the power of the slopes is summed separately, see `slope_powers`.
        return -found.slope if isinstance(self.loss, MarginLoss) else -found.slope * y

    def slope_powers(self, slope: FloatArray) -> FloatArray | None:
        """Return ``(|g| / p)^q``; ``g^2 / 4`` for order 2."""
        p = self.power
        return np.asarray(0.25 * slope * slope if p == 2 else (np.abs(slope) / p) ** (p / (p - 1.0)))

    def steepest(self, balance: FloatArray) -> float:
        return 2.0 * float(balance.sum())

    def dual_slopes(
        self, t: FloatArray, weights: FloatArray | None, size: float, width: float = 0.0
    ) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        return self.subgradient(t, weights, size).t, None, None

    def minimise_tail(self, mean_loss: float, mass: float, tail: FlipTail, size: float) -> Minimum:
        return self.minimise_mean(mean_loss, size)

    def feasible_multiplier(self, size: float, multiplier: float) -> float:
        if self.radius == 0.0 or not np.isfinite(multiplier):
            return np.inf if self.radius == 0.0 else multiplier
        # With an exact fit the minimiser is lam = kappa, at which h of any other row is infinite.
        return max(multiplier, 1.01 * self.kappa(size) + 1e-9)

    def largest_multiplier(self, t: FloatArray, size: float) -> float:
        if self.radius == 0.0:
            return np.inf
        slope_size = self.slope_size(size)
        longest = float(np.abs(self.shortfall(t)).max(initial=0.0))
        return float(slope_size * (longest / self.radius + slope_size) ** (self.power - 1.0))


class SquaredHingeForm(SquaredForm):
    """Squared hinge, order 2: the squared form on ``[1 - z]_+`` with ``K = ||theta||_*``, and flips.

    A flip costs ``(||dx|| + gamma)^2``. With ``v = 1 + z`` its value is ``lam (v - K gamma)^2 / (lam - K^2)``
    if ``v >= lam gamma / K``, else ``[v]_+^2 - lam gamma^2``.
    """

    sums_decide = False

    def slope_size(self, size: float) -> float:
        return size

    def shortfall(self, t: FloatArray) -> FloatArray:
        return np.maximum(1.0 - t, 0.0)

    def _flip(self, t: FloatArray, multiplier: float, size: float) -> tuple[FloatArray, np.ndarray]:
        """Return the value of the flip branch and whether the flipped row also moves."""
        gamma, slack = self.geometry.label_cost, multiplier - size**2
        v = np.maximum(1.0 + t, 0.0)
        moves = (v * size >= multiplier * gamma) if slack > 0.0 else np.zeros(t.shape, dtype=bool)
        value = v * v - (multiplier**0.5 * gamma) * (multiplier**0.5 * gamma)
        if slack <= 0.0 and size > 0.0:  # at lam = K^2 a flipped row that gains by moving gains without end
            value = np.where(v > size * gamma, np.inf, value)
        if moves.any():
            value = np.where(moves, (v - size * gamma) ** 2 * (multiplier / slack), value)
        return value, moves

    def h(self, t: FloatArray, multiplier: float, size: float) -> FloatArray:
        stay = super().h(t, multiplier, size)
        if np.isinf(self.geometry.label_cost) or not np.isfinite(multiplier):
            return stay
        return np.maximum(stay, self._flip(t, multiplier, size)[0])

    def partials(self, t: FloatArray, multiplier: float, size: float) -> Partials:
        stay = super().partials(t, multiplier, size)
        gamma, slack = self.geometry.label_cost, multiplier - size**2
        if np.isinf(gamma) or not np.isfinite(multiplier):
            return stay
        flip, moves = self._flip(t, multiplier, size)
        flipped = flip > super().h(t, multiplier, size)
        if not flipped.any():
            return stay
        v, growth = np.maximum(1.0 + t, 0.0), multiplier / slack if slack > 0.0 else 1.0
        short = v - size * gamma
        slope = np.where(moves, 2.0 * short * growth, 2.0 * v)
        in_multiplier = np.where(moves, -((size * short / slack) ** 2) if slack > 0.0 else 0.0, -gamma * gamma)
        in_size = np.where(moves, 2.0 * short * growth * (size * short / slack - gamma) if slack > 0.0 else 0.0, 0.0)
        return Partials(
            np.where(flipped, slope, stay.t),
            np.where(flipped, in_multiplier, stay.multiplier),
            np.where(flipped, in_size, stay.size),
        )

    def evaluate(self, t: FloatArray, multiplier: float, size: float) -> Evaluated:
        found = super().evaluate(t, multiplier, size)
        flipped = found.slope > 0.0
        return found._replace(flipped=flipped if flipped.any() else None)

    def dual_slopes(
        self, t: FloatArray, weights: FloatArray | None, size: float, width: float = 0.0
    ) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        if np.isinf(self.geometry.label_cost) or self.radius == 0.0:
            return super().dual_slopes(t, weights, size, width)
        above, below, mix = self._sides(t, weights, size, self.minimise(t, weights, size).multiplier, 1e-9)
        stay = (1.0 - mix) * np.minimum(above.t, 0.0) + mix * np.minimum(below.t, 0.0)
        flip = (1.0 - mix) * np.maximum(above.t, 0.0) + mix * np.maximum(below.t, 0.0)
        share = (1.0 - mix) * (above.t > 0.0) + mix * (below.t > 0.0)
        return stay, flip, share

    def _sides(
        self, t: FloatArray, weights: FloatArray | None, size: float, multiplier: float, apart: float
    ) -> tuple[Partials, Partials, float]:
        """Return the derivatives just above and below the best multiplier, and the share of the latter.

        Rows tied between staying and flipping share so that the derivative in the multiplier vanishes.
        """
        above, below = (self.partials(t, multiplier * (1.0 + sign * apart), size) for sign in (1.0, -1.0))
        up, down = (self.radius**2 + weighted_sum(side.multiplier, weights) for side in (above, below))
        return above, below, float(np.clip(up / (up - down), 0.0, 1.0)) if up > down else 0.0

    def tail(self, t: FloatArray, size: float, weights: FloatArray | None, total_weight: float) -> FlipTail:
        """Return ``1 + z`` of the rows that gain by a flip at some multiplier."""
        if np.isinf(self.geometry.label_cost) or self.radius == 0.0:
            return FlipTail.empty()
        beyond = self._candidates(t, size)
        beyond = beyond if weights is None else beyond[weights[beyond] > 0.0]
        equal = np.full(beyond.size, 1.0 / total_weight)
        return FlipTail(1.0 + t[beyond], equal if weights is None else weights[beyond] / total_weight)

    def _candidates(self, t: FloatArray, size: float) -> npt.NDArray[np.intp]:
        """Return the rows that flip at some multiplier.

        A row that stays at one multiplier stays at all larger ones, and close to ``K^2`` it flips if
        ``1 + z - K gamma > [1 - z]_+``.
        """
        return np.flatnonzero(1.0 + t - size * self.geometry.label_cost > self.shortfall(t))

    def minimise_tail(self, mean_loss: float, mass: float, tail: FlipTail, size: float) -> Minimum:
        if not (tail.delta.size or tail.bins.size):
            return self.minimise_mean(mean_loss, size)
        return self.minimise(*self._stand_ins(mean_loss, mass, tail), size)

    def _stand_ins(self, mean_loss: float, mass: float, tail: FlipTail) -> tuple[FloatArray, FloatArray]:
        """Return margins and masses whose risk is that of all rows: the tail's, and one for the rows that never flip.

        Rows that stay enter the risk through their mean loss alone. The one row that has it stays too: its margin is
        at most the largest of theirs.
        """
        value, masses, least = tail.brackets()
        margin = value - 1.0
        loss = max(mean_loss - float(least @ self.loss.value(margin)), 0.0)
        # The remaining mass, at least the rounding error of a total of one.
        rest = max(mass - float(masses.sum()), 2.0**-60)
        return np.append(margin, 1.0 - np.sqrt(loss / rest)), np.append(masses, rest)

    def minimise(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        closed = super().minimise(t, weights, size)
        if self.radius == 0.0 or np.isinf(self.geometry.label_cost):
            return closed
        # With the margin the gain of a flip grows and the loss without flip falls: the largest margin flips first.
        last = t.max(keepdims=True)
        if not (self._flip(last, closed.multiplier, size)[0] > super().h(last, closed.multiplier, size)).any():
            return closed
        return self._search(t, weights, size)

    def _search(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        """Minimise the convex objective in the multiplier by bisection; with flips no closed form exists.

        Rows that never flip enter its derivative through their mean loss alone.
        """
        flipping = self._candidates(t, size)
        z, masses = t[flipping], np.full(flipping.size, 1.0 / t.size) if weights is None else weights[flipping]
        staying = max(self.mean_loss(t, weights) - blocked_sum(self.loss.value, z, masses), 0.0)

        def slope(multiplier: float) -> float:
            falls = blocked_sum(lambda v: self.partials(v, multiplier, size).multiplier, z, masses)
            return self.radius**2 + falls - (staying * (size / (multiplier - size**2)) ** 2 if staying > 0.0 else 0.0)

        low, high = self.kappa(size), self.largest_multiplier(t, size)
        for _ in range(200):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
        values = [
            self.radius**2 * lam + blocked_sum(partial(self.h, multiplier=lam, size=size), t, weights)
            for lam in (low, high)
        ]
        best = int(np.argmin(values))
        return Minimum(values[best], (low, high)[best])

    def subgradient(self, t: FloatArray, weights: FloatArray | None, size: float) -> Subgradient:
        multiplier = self.minimise(t, weights, size).multiplier
        if np.isinf(self.geometry.label_cost) or self.radius == 0.0 or (size > 0.0 and multiplier <= self.kappa(size)):
            return super().subgradient(t, weights, size)
        above, below, mix = self._sides(t, weights, size, multiplier, 1e-12)
        in_t = (1.0 - mix) * above.t + mix * below.t
        in_size = weighted_sum((1.0 - mix) * above.size + mix * below.size, weights)
        return Subgradient(in_t, in_size)

    def largest_multiplier(self, t: FloatArray, size: float) -> float:
        ends = np.array([t.min(), t.max()]) if t.size else t  # the loss is largest at one end, a flip's at the other
        bound = super().largest_multiplier(ends, size)
        if np.isinf(self.geometry.label_cost) or not np.isfinite(bound):
            return bound
        v = float(np.maximum(1.0 + ends, 0.0).max(initial=0.0))
        return max(bound, (v / self.geometry.label_cost) ** 2, size**2 + size * v / self.radius)
