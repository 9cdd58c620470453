"""The minimum over the multiplier from sums: the mean loss, and the rows that may change their label."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sums import FlipTail
from dualcore.problem.forms import MarginForm, Minimum

__all__ = ["flip_tail", "least_over_multiplier"]


def flip_tail(
    gain: FloatArray, kappa: float, label_cost: float, weights: FloatArray | None, total_weight: float
) -> FlipTail:
    """Return the rows whose gain by a change of label, per unit of its cost, exceeds ``kappa``."""
    beyond = np.flatnonzero(gain > kappa * label_cost)
    equal = np.full(beyond.size, 1.0 / total_weight)
    return FlipTail(gain[beyond] / label_cost, equal if weights is None else weights[beyond] / total_weight)


def least_over_multiplier(form: MarginForm, mean_loss: float, tail: FlipTail, size: float) -> Minimum:
    """Return the least ``sigma lam + mean_loss + gamma sum_i w_i (Delta_i - lam)_+`` over ``lam >= kappa``.

    Exact up to 65,536 rows in the tail, an upper bound beyond; see `FlipTail`.
    """
    if tail.bins.size:
        at, gain = tail.candidates(form.kappa(size))
        values = form.radius * at + mean_loss + form.geometry.label_cost * gain
        best = int(np.argmin(values))
        return Minimum(float(values[best]), float(at[best]))
    return form.minimise_sums(mean_loss, *tail.sorted(), size)
