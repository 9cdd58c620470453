"""Calibration: move the weights as little as possible so that the coreset reproduces what is known of the full data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.coreset import normalised
from dualcore.geometry import FloatArray

__all__ = ["Calibrated", "calibrate"]


class Calibrated(NamedTuple):
    """New weights, and by how much the moments are still off, relative to their spread over the coreset."""

    weights: FloatArray
    residual: float


def calibrate(weights: FloatArray, moments: FloatArray, targets: FloatArray, *, softness: float = 1e-11) -> Calibrated:
    r"""Return ``u >= 0`` with ``sum u = 1`` nearest to ``weights`` whose moments match.

    .. math:: \min_{u \ge 0} \sum_i \frac{(u_i - w_i)^2}{2 w_i} \quad \text{subject to} \quad M^T u = \mu

    The dual has one variable per moment and ``u_i = w_i \max(0, 1 + (M \nu)_i)``; a semismooth Newton method
    solves it. ``softness`` bounds the multipliers, so that moments which no weights can match are approached
    instead (fewer rows than moments, targets outside the hull).

    Parameters
    ----------
    weights : ndarray of shape (size,)
        Positive, sum to one.
    moments : ndarray of shape (size, k)
    targets : ndarray of shape (k,)
        The same moments on the full data.

    Examples
    --------
    >>> u = calibrate(np.full(4, 0.25), np.arange(4.0)[:, None], np.array([2.0])).weights
    >>> round(float(u @ np.arange(4.0)), 9), round(float(u.sum()), 12)
    (2.0, 1.0)
    """
    spread = np.sqrt(np.maximum(weights @ moments**2 - (weights @ moments) ** 2, 0.0))
    varied = spread > 1e-12 * np.abs(moments).max(axis=0, initial=1e-300)
    centre = weights @ moments[:, varied]
    basis = np.column_stack([np.ones(weights.size), (moments[:, varied] - centre) / spread[varied]])
    goal = np.concatenate([[1.0], (targets[varied] - centre) / spread[varied]])
    # The mass is exact always; the others may give way.
    soft = np.full(goal.size, softness)
    soft[0] = 1e-14
    nu = np.zeros(goal.size)

    def dual(nu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        lift = np.maximum(1.0 + basis @ nu, 0.0)
        value = 0.5 * float(weights @ (lift * lift)) - float(goal @ nu) + 0.5 * float(soft @ (nu * nu))
        return value, lift, basis.T @ (weights * lift) - goal + soft * nu

    value, lift, gradient = dual(nu)
    for _ in range(50):
        if np.abs(gradient).max() <= 1e-13:
            break
        active = weights * (lift > 0.0)
        hessian = (basis * active[:, None]).T @ basis
        hessian.flat[:: goal.size + 1] += soft + 1e-14
        try:
            step = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        slope, share = float(gradient @ step), 1.0
        while share > 1e-6:
            trial = dual(nu + share * step)
            if trial[0] <= value + 1e-4 * share * slope + 1e-15:
                break
            share *= 0.5
        nu = nu + share * step
        value, lift, gradient = trial
    new = weights * lift
    if not new.sum() > 0.0 or not np.isfinite(new).all():
        return Calibrated(weights, float(np.abs(goal[1:]).max(initial=0.0)))
    new = normalised(new)
    return Calibrated(new, float(np.abs(basis[:, 1:].T @ new - goal[1:]).max(initial=0.0)))
