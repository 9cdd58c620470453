"""Losses as users write them: the obligatory methods, the rest left to the defaults."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from dualcore.problem.losses import MarginLoss, ResidualLoss


class LogCosh(ResidualLoss):
    """``log cosh r``."""

    name = "log_cosh"
    lipschitz = 1.0

    def value(self, t):
        return np.abs(t) + np.log1p(np.exp(-2.0 * np.abs(t))) - np.log(2.0)

    def slope(self, t):
        return np.tanh(t)


class Probit(MarginLoss):
    """``E max(0, N - z)`` with ``N`` standard normal: a hinge, smoothed."""

    name = "probit"
    lipschitz = 1.0

    def value(self, t):
        return np.exp(-0.5 * np.minimum(t * t, 1400.0)) / np.sqrt(2.0 * np.pi) - t * ndtr(-t)

    def slope(self, t):
        return -ndtr(-t)


class CappedExponential(MarginLoss):
    """``exp(-z)`` for ``z >= 0`` and its tangent ``1 - z`` below: smooth, with a curvature that jumps at 0."""

    name = "capped_exponential"
    lipschitz = 1.0
    curvature_jumps = (0.0,)

    def value(self, t):
        return np.exp(-np.maximum(t, 0.0)) - np.minimum(t, 0.0)

    def slope(self, t):
        return -np.exp(-np.maximum(t, 0.0))


class RootHinge(MarginLoss):
    """``((1 - z) + sqrt((1 - z)^2 + 1)) / 2``: a hinge without its corner, and never flat."""

    name = "root_hinge"
    lipschitz = 1.0

    def value(self, t):
        short = 1.0 - t
        root = np.hypot(short, 1.0)
        return np.where(short > 0.0, 0.5 * (short + root), 0.5 / (root + np.abs(short)))

    def slope(self, t):
        short = 1.0 - t
        return -self.value(t) / np.hypot(short, 1.0)
