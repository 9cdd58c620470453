"""Losses of several scores at once: one for every class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses.base import Loss


class Softmax(Loss):
    """``L(t) = log sum_k exp(t_k)`` of the scores less that of the row's own class, ``t_k = s_k - s_y``.

    Where other losses take one number a row this one takes K, along the last axis. Its slopes are the probabilities of
    the classes. In the features it is as steep as the widest difference of two classes' coefficients, hence
    ``lipschitz`` 1.

    Parameters
    ----------
    n_classes : int
        ``K >= 2``.

    Examples
    --------
    >>> float(Softmax(n_classes=4).value(np.zeros((1, 4)))[0]) == float(np.log(4.0))
    True
    """

    name = "softmax"
    has_labels = True
    lipschitz = 1.0

    def __init__(self, n_classes: int) -> None:
        given: Any = n_classes
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)):
            raise TypeError(f"n_classes must be a whole number, got {n_classes!r}.")
        if given < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes!r}.")
        self.n_classes = int(given)

    def value(self, t: FloatArray) -> FloatArray:
        """Return ``log sum_k exp(t_k)``, one axis less than ``t``."""
        return np.asarray(logsumexp(t, axis=-1))

    def slope(self, t: FloatArray) -> FloatArray:
        """Return the probabilities of the classes, of the shape of ``t``."""
        return np.asarray(softmax(t, axis=-1))

    def curvature(self, t: FloatArray) -> FloatArray:
        """Return the diagonal ``p (1 - p)`` of the second derivative."""
        chance = self.slope(t)
        return chance * (1.0 - chance)

    @property
    def slope_range(self) -> tuple[float, float]:
        """Every slope is a probability."""
        return 0.0, 1.0

    def conjugate(self, s: FloatArray) -> FloatArray:
        """Return minus the entropy of probabilities, over the last axis; ``inf`` if they are no probabilities."""
        inside = (s >= 0.0).all(axis=-1) & (np.abs(s.sum(axis=-1) - 1.0) <= 1e-12)
        return np.asarray(np.where(inside, xlogy(np.maximum(s, 0.0), np.maximum(s, 0.0)).sum(axis=-1), np.inf))
