"""Calibration: move the weights as little as possible so that the coreset reproduces what is known of the full data."""

from __future__ import annotations

import numpy as np

from dualcore.coresets.coreset import normalised
from dualcore.coresets.recombine import Basis
from dualcore.data.arrays import FloatArray

# Softness of a calibration that meets its targets but for rounding.
EXACT = 1e-14


def calibrate(weights: FloatArray, moments: FloatArray, targets: FloatArray, *, softness: float = 1e-5) -> FloatArray:
    r"""Return ``u >= 0`` with ``sum u = 1`` nearest to ``weights`` whose moments match.

    .. math:: \min_{u \ge 0} \sum_i \frac{(u_i - w_i)^2}{2 w_i} \quad \text{subject to} \quad M^T u = \mu

    The dual has one variable per moment and ``u_i = w_i \max(0, 1 + (M \nu)_i)``; a semismooth Newton method solves it.
    ``softness`` bounds the multipliers, so that moments which no weights can match are approached instead (fewer rows
    than moments, targets outside the hull).

    Parameters
    ----------
    weights : ndarray of shape (size,)
        Positive, sum to one.
    moments : ndarray of shape (size, k)
    targets : ndarray of shape (k,)
        The same moments on the full data.

    Examples
    --------
    >>> u = calibrate(np.full(4, 0.25), np.arange(4.0)[:, None], np.array([2.0]))
    >>> round(float(u @ np.arange(4.0)), 9), round(float(u.sum()), 12)
    (2.0, 1.0)
    """
    if moments.shape[1] > weights.size:  # no more of them vary than there are rows
        rows = np.sqrt(weights)[:, None] * (moments - weights @ moments)
        spread = np.sqrt((rows**2).sum(axis=0))
        spread[spread <= 1e-7 * np.abs(moments).max(axis=0)] = np.inf  # of a constant rounding is left
        directions = np.linalg.svd(rows / spread, full_matrices=False)[2].T / spread[:, None]
        moments, targets = moments @ directions, targets @ directions
    # Models of close radii have nearly the same moments: weights are soon found in a basis of uncorrelated ones.
    basis = Basis.of(moments, weights)
    design, asked = basis.apply(np.ascontiguousarray(moments)), basis.apply(targets[None])[0]
    # A moment far beyond that of any row comes from rows that were not drawn: to approach it, all weight would go to a
    # row or two.
    near = np.abs(asked) <= 1000.0 * np.abs(design).max(axis=0)
    design, asked = np.ascontiguousarray(design[:, near]), asked[near]
    nu, lift, _ = _minimise_dual(weights, design, asked, np.zeros(asked.size), softness)
    if asked.size < weights.size and softness > EXACT:
        exact_nu, exact_lift, off = _minimise_dual(weights, design, asked, nu, EXACT)
        # With large multipliers the exact match depends on a few rows: the soft one is then the better estimate.
        if off <= 1e-10 and np.linalg.norm(exact_nu[1:]) <= 1.1 * np.linalg.norm(nu[1:]) + 1e-6:
            lift = exact_lift
    new = weights * lift
    return normalised(new) if new.sum() > 0.0 and np.isfinite(new).all() else weights


def _minimise_dual(
    weights: FloatArray, basis: FloatArray, goal: FloatArray, nu: FloatArray, softness: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimise the dual by semismooth Newton from ``nu``; return it, the factors of the weights, what is missed.

    The total mass, whose moment comes first, is met more closely than the others.
    """
    soft = np.full(goal.size, softness)
    soft[0] = EXACT if goal.size < weights.size else 1e-3 * softness

    def dual(nu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        lift = np.maximum(1.0 + basis @ nu, 0.0)
        value = 0.5 * float(weights @ (lift * lift)) - float(goal @ nu) + 0.5 * float(soft @ (nu * nu))
        return value, lift, basis.T @ (weights * lift) - goal + soft * nu

    (value, lift, gradient), same, off = dual(nu), 0, np.inf
    for _ in range(50):
        active = lift > 0.0
        step = -_solve(basis, np.where(active, weights, 0.0), soft + EXACT, gradient)
        slope, share = float(gradient @ step), 1.0
        trial = dual(nu + step)
        while trial[0] > value + 1e-4 * share * slope + 1e-15 and share > 1e-6:
            share *= 0.5
            trial = dual(nu + share * step)
        if share <= 1e-6:  # rounding is all that is left
            break
        nu = nu + share * step
        value, lift, gradient = trial
        # The dual is quadratic as long as the same rows have weight: a second step there refines the first.
        same, off = same + 1 if np.array_equal(active, lift > 0.0) else 0, float(np.abs(gradient).max())
        if off <= 1e-13 or (same > 1 and off <= 1e-9):
            break
    return nu, lift, off


def _solve(basis: FloatArray, weights: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """Solve ``(basis' W basis + diag(diagonal)) x = right``."""
    active = np.flatnonzero(weights)
    rows = basis[active] * np.sqrt(weights[active])[:, None]
    gram = rows.T @ rows
    gram.flat[:: right.size + 1] += diagonal
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
