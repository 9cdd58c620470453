"""Losses of linear growth, order 1: margins, whose labels may flip, and residuals, whose targets may move."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.forms.base import (
    BLOCK,
    DualForm,
    Evaluated,
    Minimum,
    Partials,
    Subgradient,
    masses_of,
    mean_slope,
    weighted_sum,
)
from dualcore.problem.losses import MarginLoss, ResidualLoss


class MarginForm(DualForm):
    """Classification, order 1: ``h = max{L(z), L(-z) - lam gamma}`` for ``lam >= kappa = Lip ||theta||_*``."""

    loss: MarginLoss

    def kappa(self, size: float) -> float:
        return self.loss.lipschitz * size

    def h(self, t: FloatArray, multiplier: float, size: float) -> FloatArray:
        if multiplier < self.kappa(size) * (1.0 - 1e-12):
            return np.full(t.shape, np.inf)
        stay = self.loss.value(t)
        if np.isinf(self.geometry.label_cost):
            return stay
        return stay + np.maximum(self.loss.flip_gain(t) - multiplier * self.geometry.label_cost, 0.0)

    def partials(self, t: FloatArray, multiplier: float, size: float) -> Partials:
        found = self.evaluate(t, multiplier, size)
        in_multiplier = np.zeros_like(t)
        if found.flipped is not None:
            in_multiplier[found.flipped] = -self.geometry.label_cost
        return Partials(found.slope, in_multiplier, np.zeros_like(t))

    def flip_gains(self, t: FloatArray) -> FloatArray | None:
        return self.loss.flip_gain(t) if np.isfinite(self.geometry.label_cost) else None

    def evaluate(self, t: FloatArray, multiplier: float, size: float) -> Evaluated:
        value, slope = self.loss.value_and_slope(t)
        gain, price = self.flip_gains(t), multiplier * self.geometry.label_cost
        if gain is None:
            return Evaluated(value, value, slope, None)
        flipped = gain > price
        if not flipped.any():
            return Evaluated(value, value, slope, None)
        slope = slope.copy()
        slope[flipped] = -self.loss.slope(-t[flipped])
        return Evaluated(value, value + np.maximum(gain - price, 0.0), slope, flipped)

    def dual_values(
        self, found: Evaluated, t: FloatArray, score: FloatArray, y: FloatArray, multiplier: float
    ) -> FloatArray:
        value = found.h - found.slope * t
        if found.flipped is not None:
            value += np.where(found.flipped, multiplier * self.geometry.label_cost, 0.0)
        return value

    def dual_slopes(
        self, t: FloatArray, weights: FloatArray | None, size: float, width: float = 0.0
    ) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        stay = mean_slope(self.loss, t, width)
        share = self._shares(t, weights, size, width)
        if share is None:
            return stay, None, None
        return (1.0 - share) * stay, -share * mean_slope(self.loss, -t, width), share

    def _shares(self, t: FloatArray, weights: FloatArray | None, size: float, width: float) -> FloatArray | None:
        """Return the flipped share of every row, spread over a width; None where no row flips."""
        rows, exact = self.flip_shares(t, weights, size)
        if not rows.size:
            return None
        share = np.zeros(t.size)
        share[rows] = exact
        if width > 0.0:
            gamma, lam = self.geometry.label_cost, self.minimise(t, weights, size).multiplier
            gain = self.loss.flip_gain(t) - lam * gamma
            share = np.clip(0.5 + gain / (4.0 * width * self.loss.lipschitz), 0.0, 1.0)
            spent = gamma * weighted_sum(share, weights)
            if spent > self.radius:
                share *= self.radius / spent
        return share

    def tail(self, t: FloatArray, size: float, weights: FloatArray | None, total_weight: float) -> FlipTail:
        rows, delta = self.flip_candidates(t, size)
        masses = np.ones(rows.size) if weights is None else weights[rows]
        return FlipTail(delta, masses / total_weight)

    def minimise_tail(self, mean_loss: float, mass: float, tail: FlipTail, size: float) -> Minimum:
        delta, masses, _ = tail.brackets()
        beyond = delta > self.kappa(size)  # a bin may begin below
        return self.minimise_sums(mean_loss, delta[beyond], masses[beyond], size)

    def flip_candidates(self, t: FloatArray, size: float) -> tuple[np.ndarray, FloatArray]:
        """Return the rows with ``Delta_i = (L(-z_i) - L(z_i)) / gamma > kappa`` and their ``Delta_i``."""
        gamma = self.geometry.label_cost
        if np.isinf(gamma):
            return np.empty(0, dtype=np.int64), np.empty(0)
        kappa = self.kappa(size)
        # A gain is at most 2 Lip z, so only rows beyond this margin can gain more than gamma * kappa.
        least = 0.5 * gamma * kappa / self.loss.lipschitz
        rows, deltas = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for start in range(0, t.size, BLOCK):
            part = t[start : start + BLOCK]
            near = np.flatnonzero(part > least)
            delta = self.loss.flip_gain(part[near]) / gamma
            keep = delta > kappa
            rows.append(near[keep] + start)
            deltas.append(delta[keep])
        return np.concatenate(rows), np.concatenate(deltas)

    def minimise(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        rows, delta = self.flip_candidates(t, size)
        masses = masses_of(rows, t.size, weights)
        return self.minimise_sums(self.mean_loss(t, weights), delta, masses, size)

    def minimise_sums(self, mean_loss: float, delta: FloatArray, masses: FloatArray, size: float) -> Minimum:
        """Minimise from the mean loss and the few rows whose ``Delta_i`` exceeds `kappa`.

        The objective is piecewise linear in the multiplier with breakpoints ``Delta_i`` and slope
        ``sigma - gamma * mass{Delta_i > lam}``, so the minimiser is where that mass first fits the budget.
        """
        gamma, kappa = self.geometry.label_cost, self.kappa(size)
        if masses.size == 0:
            return Minimum(self.radius * kappa + mean_loss, kappa)
        share = self._affordable(delta, masses)
        multiplier = max(kappa, float(delta[share < 1.0].max(initial=0.0)))
        gain = gamma * float((share * masses) @ (delta - multiplier))
        return Minimum(self.radius * multiplier + mean_loss + gain, multiplier)

    def _affordable(self, delta: FloatArray, masses: FloatArray) -> FloatArray:
        """Return the flip probability of each of these rows: the radius is spent on the largest ``Delta_i`` first."""
        price = self.geometry.label_cost * masses
        if float(price.sum()) <= self.radius:
            return np.ones(delta.size)
        order = np.argsort(-delta, kind="stable")  # of equal ones the order must not depend on how many follow
        left = self.radius - (np.cumsum(price[order]) - price[order])
        share = np.empty(delta.size)
        share[order] = np.clip(np.divide(left, price[order], out=np.sign(left), where=price[order] > 0.0), 0.0, 1.0)
        return share

    def flip_shares(self, t: FloatArray, weights: FloatArray | None, size: float) -> tuple[np.ndarray, FloatArray]:
        """Return the flipped rows and the share of each that flips in the worst case; shares respect the budget."""
        rows, delta = self.flip_candidates(t, size)
        share = self._affordable(delta, masses_of(rows, t.size, weights)) if rows.size else np.ones(0)
        return rows[share > 0.0], share[share > 0.0]

    def subgradient(self, t: FloatArray, weights: FloatArray | None, size: float) -> Subgradient:
        slope = self.loss.slope(t)
        rows, share = self.flip_shares(t, weights, size)
        spent = 0.0
        if rows.size:
            slope[rows] = (1.0 - share) * slope[rows] - share * self.loss.slope(-t[rows])
            masses = masses_of(rows, t.size, weights)
            spent = self.geometry.label_cost * float(masses @ share)
        return Subgradient(slope, max(self.radius - spent, 0.0) * self.loss.lipschitz)

    def largest_multiplier(self, t: FloatArray, size: float) -> float:
        _, delta = self.flip_candidates(t, size)
        return max(self.kappa(size), float(delta.max(initial=0.0)))


class ResidualForm(DualForm):
    """Regression, order 1: ``h = L(r)`` for ``lam >= kappa = Lip K``, ``K = max(||theta||_*, 2 / gamma)``."""

    loss: ResidualLoss

    def kappa(self, size: float) -> float:
        return self.loss.lipschitz * max(size, self.geometry.target_slope)

    def h(self, t: FloatArray, multiplier: float, size: float) -> FloatArray:
        if multiplier < self.kappa(size) * (1.0 - 1e-12):
            return np.full(t.shape, np.inf)
        return self.loss.value(t)

    def partials(self, t: FloatArray, multiplier: float, size: float) -> Partials:
        return Partials(self.loss.slope(t), np.zeros_like(t), np.zeros_like(t))

    def minimise(self, t: FloatArray, weights: FloatArray | None, size: float) -> Minimum:
        kappa = self.kappa(size)
        return Minimum(self.radius * kappa + self.mean_loss(t, weights), kappa)

    def subgradient(self, t: FloatArray, weights: FloatArray | None, size: float) -> Subgradient:
        in_size = self.radius * self.loss.lipschitz if size >= self.geometry.target_slope else 0.0
        return Subgradient(self.loss.slope(t), in_size)

    def largest_multiplier(self, t: FloatArray, size: float) -> float:
        return self.kappa(size)
