"""Losses for classification, functions of the margin ``z = y (theta . x + b)``."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses.base import MarginLoss


class Logistic(MarginLoss):
    """``L(z) = log(1 + exp(-z))``; ``L*(-a) = a log a + (1 - a) log(1 - a)`` on [0, 1].

    Examples
    --------
    >>> float(Logistic().value(np.array([-1e8]))[0])
    100000000.0
    """

    name = "logistic"
    lipschitz = 1.0

    def value(self, t: FloatArray) -> FloatArray:
        out = np.abs(t)
        np.negative(out, out=out)
        np.exp(out, out=out)
        np.log1p(out, out=out)
        out -= np.minimum(t, 0.0)
        return out

    def slope(self, t: FloatArray) -> FloatArray:
        """Return ``-1 / (1 + exp(z))``."""
        with np.errstate(over="ignore"):  # one over infinity is zero, as it should be
            out = np.asarray(np.exp(np.asarray(t, dtype=np.float64)))
        out += 1.0
        return np.asarray(np.divide(-1.0, out, out=out))

    def value_and_slope(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return value and slope from one exponential."""
        decay = np.abs(t)
        np.negative(decay, out=decay)
        np.exp(decay, out=decay)
        value = np.log1p(decay)
        value -= np.minimum(t, 0.0)
        share = decay + 1.0
        np.divide(-1.0, share, out=share)
        decay *= share
        np.copyto(share, decay, where=t > 0.0)
        return value, share

    def curvature(self, t: FloatArray) -> FloatArray:
        decay = np.exp(-np.abs(t))
        return decay / (1.0 + decay) ** 2

    def conjugate(self, s: FloatArray) -> FloatArray:
        a = -np.asarray(s, dtype=np.float64)
        out: FloatArray = -(entr(a) + entr(1.0 - a))
        return out

    def flip_gain(self, z: FloatArray) -> FloatArray:
        """Return ``z``: for the logistic loss ``L(-z) - L(z)`` is the margin itself."""
        return z


class Hinge(MarginLoss):
    """``L(z) = max(0, 1 - z)``; ``L*(-a) = -a`` on [0, 1]."""

    name = "hinge"
    lipschitz = 1.0
    kinks = (1.0,)
    pieces = ((0.0, 0.0), (-1.0, 1.0))

    def value(self, t: FloatArray) -> FloatArray:
        return np.maximum(1.0 - t, 0.0)

    def slope(self, t: FloatArray) -> FloatArray:
        return np.where(t < 1.0, -1.0, 0.0)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where((s >= -1.0) & (s <= 0.0), s, np.inf)


class SmoothHinge(MarginLoss):
    """0 for ``z >= 1``, ``(1 - z)^2 / 2`` on [0, 1], ``1/2 - z`` below; ``L*(-a) = a^2/2 - a`` on [0, 1]."""

    name = "smooth_hinge"
    lipschitz = 1.0
    curvature_jumps = (0.0, 1.0)
    envelope_of = ((0.0, 0.0), (-1.0, 1.0))

    def value(self, t: FloatArray) -> FloatArray:
        short = np.maximum(1.0 - t, 0.0)
        capped = np.minimum(short, 1.0)
        return capped * (short - 0.5 * capped)

    def slope(self, t: FloatArray) -> FloatArray:
        return -np.clip(1.0 - t, 0.0, 1.0)

    def curvature(self, t: FloatArray) -> FloatArray:
        return ((t >= 0.0) & (t <= 1.0)).astype(np.float64)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where((s >= -1.0) & (s <= 0.0), s + 0.5 * s * s, np.inf)


class SquaredHinge(MarginLoss):
    """``L(z) = max(0, 1 - z)^2``, for transport order 2; ``L*(-a) = a^2/4 - a`` for ``a >= 0``."""

    name = "squared_hinge"
    order = 2
    lipschitz = np.inf
    curvature_jumps = (1.0,)

    def value(self, t: FloatArray) -> FloatArray:
        return np.maximum(1.0 - t, 0.0) ** 2

    def slope(self, t: FloatArray) -> FloatArray:
        return -2.0 * np.maximum(1.0 - t, 0.0)

    def curvature(self, t: FloatArray) -> FloatArray:
        return np.where(t < 1.0, 2.0, 0.0)

    def conjugate(self, s: FloatArray) -> FloatArray:
        s = np.asarray(s, dtype=np.float64)
        return np.where(s <= 0.0, s + 0.25 * s * s, np.inf)
