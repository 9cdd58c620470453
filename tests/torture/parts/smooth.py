"""Smoothed risks in float64 with their gradients, for descent only.

What descent finds is judged by its exact risk, so nothing here needs to be exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax

from .cases import Case
from .data import Array
from .risks import lines, lipschitz, order_of


def smooth_loss(case: Case, t: Array, width: float) -> tuple[Array, Array]:
    """Return values and slopes of the loss in the margin or residual."""
    name, parameters = case.loss, case.parameters
    if name == "logistic":
        return np.logaddexp(0.0, -t), -expit(-t)
    if name == "smooth_hinge":
        short = np.clip(1.0 - t, 0.0, 1.0)
        return short * (1.0 - t - 0.5 * short), -short
    if name == "squared_hinge":
        short = np.maximum(1.0 - t, 0.0)
        return short * short, -2.0 * short
    if name == "huber":
        slope = np.clip(t, -parameters["delta"], parameters["delta"])
        return slope * (t - 0.5 * slope), slope
    if name in ("squared", "power"):
        p = order_of(name, parameters)
        size = np.sqrt(t * t + (width * 1e-3) ** 2) if p < 2.0 else np.abs(t)
        return size**p, p * size ** (p - 1.0) * np.sign(t)
    pieces = np.array(lines(name, parameters), dtype=np.float64)
    values = (pieces[:, :1] * t + pieces[:, 1:]) / width
    return width * logsumexp(values, axis=0), pieces[:, 0] @ softmax(values, axis=0)


def smooth_norm(case: Case, theta: Array, width: float) -> tuple[float, Array]:
    """Return the dual norm with rounded corners, and its gradient."""
    prices = np.ones(theta.size) if case.prices is None else case.prices
    u = theta / prices
    size = float(np.abs(u).max(initial=0.0))
    soft = max(width * size, 1e-12 * size, 1e-150)
    if case.norm == "l2":
        value = float(np.sqrt(u @ u + soft * soft))
        return value, u / value / prices
    if case.norm == "linf":
        roots = np.sqrt(u * u + soft * soft)
        return float(roots.sum()), u / roots / prices
    both = np.concatenate([u, -u]) / soft
    share = softmax(both)
    return float(soft * logsumexp(both)), (share[: u.size] - share[u.size :]) / prices


def flipped(case: Case, w: Array, loss: Array, gain: Array, size: float) -> tuple[float, float, Any]:
    """Return the risk at the best multiplier, its slope in the norm (by Danskin), and which rows flip."""
    gamma = case.label_cost
    if np.isinf(gamma) or case.radius == 0.0:
        return float(w @ loss) + case.radius * size, case.radius, np.zeros(loss.size, dtype=bool)
    order = np.argsort(-gain)
    place = int(np.searchsorted(np.cumsum(w[order]) * gamma, case.radius))
    lam = max(size, float(gain[order[place]]) / gamma) if place < gain.size else size
    flips = gain > lam * gamma
    total = case.radius * lam + float(w @ (loss + np.maximum(gain - lam * gamma, 0.0)))
    return total, max(case.radius - gamma * float(w @ flips), 0.0) if lam <= size else 0.0, flips


class PlainObjective:
    """Risk without limits and its gradient in the scores and the coefficients."""

    def __init__(self, case: Case, w: Array, y: Array) -> None:
        self.case, self.w, self.y = case, w, y
        self.order = order_of(case.loss, case.parameters)

    def typical(self, score: Array) -> float:
        """Return the unit in which smoothing widths are meant."""
        if self.case.is_classification:
            return 1.0
        return float(np.median(np.abs(score - self.y))) + 1e-3 * float(np.abs(score - self.y).mean()) + 1e-300

    def __call__(self, score: Array, theta: Array, width: float) -> tuple[float, Array, Array]:
        case, w = self.case, self.w
        sign: Any = self.y if case.is_classification else 1.0
        t = score * self.y if case.is_classification else score - self.y
        value, slope = smooth_loss(case, t, width)
        size, in_size = smooth_norm(case, theta, min(width, 0.1))
        if self.order == 1.0:
            lip = lipschitz(case.loss, case.parameters)
            if not case.is_classification:
                floor = 2.0 / case.label_cost
                total = float(w @ value) + case.radius * lip * max(size, floor)
                pull = case.radius * lip * in_size if size > floor else 0.0 * theta
            else:
                other, other_slope = smooth_loss(case, -t, width)
                total, rest, flips = flipped(case, w, value, other - value, size)
                slope, pull = np.where(flips, -other_slope, slope), rest * in_size
            total_slope = w * slope * sign
        else:
            total, total_slope, pull = self._power(t, value, slope, size, in_size)
            total_slope = total_slope * sign
        return total + 0.5 * case.ridge * float(theta @ theta), total_slope, pull + case.ridge * theta

    def _power(self, t: Array, value: Array, slope: Array, size: float, in_size: Array) -> tuple[float, Array, Array]:
        """``(N + sigma K)^p``; flips of the squared hinge are left out, which only makes descent less good."""
        case, w, p = self.case, self.w, self.order
        steep = size if case.is_classification else max(size, 2.0 / case.label_cost)
        mean = float(w @ value)
        if mean <= 0.0 or case.radius == 0.0:
            pull = p * (case.radius * steep) ** (p - 1.0) * case.radius * in_size
            return mean + (case.radius * steep) ** p, w * slope, pull
        root = mean ** (1.0 / p)
        whole = root + case.radius * steep
        pull = p * whole ** (p - 1.0) * case.radius * (in_size if steep <= size else 0.0 * in_size)
        return whole**p, w * slope * (whole / root) ** (p - 1.0), pull


class SoftmaxObjective:
    """Risk of a softmax model; the largest difference of two classes stands for all of them."""

    def __init__(self, case: Case, w: Array, y: Any) -> None:
        self.case, self.w, self.code = case, w, y

    def typical(self, score: Array) -> float:
        """Return the unit in which smoothing widths are meant."""
        return 1.0

    def __call__(self, score: Array, theta: Array, width: float) -> tuple[float, Array, Array]:
        case, w, code = self.case, self.w, self.code
        each = np.arange(len(code))
        loss = logsumexp(score, axis=1) - score[each, code]
        slope = softmax(score, axis=1)
        slope[each, code] -= 1.0
        # theta has one column for every class
        pairs = [(j, k) for j in range(case.n_classes) for k in range(j)]
        sizes = [smooth_norm(case, theta[:, j] - theta[:, k], min(width, 0.1)) for j, k in pairs]
        values = np.array([size for size, _ in sizes])
        soft = max(min(width, 0.1) * float(values.max()), 1e-150)
        size, shares = float(soft * logsumexp(values / soft)), softmax(values / soft)
        in_theta = np.zeros_like(theta)
        for share, (j, k), (_, in_size) in zip(shares, pairs, sizes, strict=True):
            in_theta[:, j] += share * in_size
            in_theta[:, k] -= share * in_size
        other = score.argmin(axis=1)
        total, rest, flips = flipped(case, w, loss, score[each, code] - score[each, other], size)
        slope[each[flips], code[flips]] += 1.0
        slope[each[flips], other[flips]] -= 1.0
        penalty = 0.5 * case.ridge * float((theta * theta).sum())
        return total + penalty, w[:, None] * slope, rest * in_theta + case.ridge * theta
