"""Two-sided bounds on the dual loss of any model, linear or not, from bounds on the derivatives of its loss.

Where the label stays, a row's dual loss is ``h = sup_{x'} l(x') - lam ||x' - x||^p``. A network or an ensemble has no
closed form of it, but a Lipschitz constant, or gradients and their Lipschitz constant, bound it on both sides;
`grid_coreset` needs no more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray


class Bounds(NamedTuple):
    """``lower <= h <= upper``, shape (n,) each."""

    lower: FloatArray
    upper: FloatArray


def lipschitz_bounds(
    loss: npt.ArrayLike,
    lipschitz: npt.ArrayLike,
    multiplier: float,
    *,
    diameter: float | None = None,
    order: int = 1,
) -> Bounds:
    """Bound ``h`` of a loss that is G-Lipschitz in the features: ``l <= h <= l + sup_{0 <= r <= D} G r - lam r^p``.

    For order 1 the supremum is ``max(0, G - lam) D``, so ``h = l`` for ``lam >= G``. For order 2 it is
    ``G^2 / (4 lam)``, or the value at ``r = D`` if ``D < G / (2 lam)``.

    Parameters
    ----------
    loss : array-like of shape (n,)
        ``l`` at the anchor.
    lipschitz : float or array-like of shape (n,)
        ``G``, with respect to the feature norm of the transport cost: the largest dual norm of a gradient anywhere the
        adversary can put the row.
    multiplier : float
        ``lam >= 0``.
    diameter : float, optional
        ``D``, the largest distance of a move. None is no limit; then ``lam >= G`` (order 1) or ``lam > 0``
        (order 2) is needed, as ``h`` may be infinite.
    order : {1, 2}, default=1

    Examples
    --------
    >>> lipschitz_bounds([1.0, 2.0], 3.0, 2.0, diameter=0.5).upper
    array([1.5, 2.5])
    >>> lipschitz_bounds([1.0], 4.0, 2.0, order=2).upper
    array([3.])
    """
    base, slope = _rows(loss, "lipschitz", lipschitz)
    lam, farthest = _check(multiplier, diameter, order)
    price, curvature = _cost(lam, order)
    if curvature == 0.0 and np.isinf(farthest):
        if (slope > price).any():
            raise ValueError(
                f"multiplier {lam!r} is below the Lipschitz constant {float(slope.max())!r}: without a diameter h may "
                "be infinite. Give diameter, or a multiplier of at least that constant (order 2: above 0)."
            )
        return Bounds(base, base.copy())
    gain = _best_gain(slope, price, -curvature, farthest)
    return Bounds(base, base + gain)


def smooth_bounds(
    loss: npt.ArrayLike,
    gradient_norm: npt.ArrayLike,
    smoothness: float,
    multiplier: float,
    *,
    diameter: float | None = None,
    order: int = 2,
    convex: bool = False,
) -> Bounds:
    """Bound ``h`` of a loss whose gradient in the features is beta-Lipschitz; g is the dual norm of the gradient.

    For order 2, ``lam > beta / 2`` and features that can move anywhere:

        l + g^2 / (4 lam + 2 beta)  <=  h  <=  l + g^2 / (4 lam - 2 beta) ,

    with ``l + g^2 / (4 lam)`` on the left for a convex loss. For order 1 it is
    ``h <= l + max(0, (g - lam) D + beta D^2 / 2)``.
    With a diameter the lower bound is ``l``, because the limits may prevent a move along the gradient.

    Parameters
    ----------
    loss, gradient_norm : array-like of shape (n,)
        ``l`` and ``g`` at the anchor.
    smoothness : float
        ``beta``: the Lipschitz constant of the gradient, anywhere the adversary can put the row.
    multiplier : float
        ``lam >= 0``.
    diameter : float, optional
        ``D``, the largest distance of a move; needed for order 1, and for order 2 if ``lam <= beta / 2``.
    order : {1, 2}, default=2
    convex : bool, default=False
        Whether the loss is convex in the features.

    Examples
    --------
    >>> lower, upper = smooth_bounds([1.0], [2.0], 1.0, 1.5)
    >>> lower, upper
    (array([1.5]), array([2.]))
    """
    base, slope = _rows(loss, "gradient_norm", gradient_norm)
    lam, farthest = _check(multiplier, diameter, order)
    beta = float(smoothness)
    if not (beta >= 0.0 and np.isfinite(beta)):
        raise ValueError(f"smoothness must be finite and non-negative, got {smoothness!r}.")
    price, curvature = _cost(lam, order)
    if np.isinf(farthest) and curvature <= 0.5 * beta:
        raise ValueError(
            f"Without a diameter the upper bound is infinite (order {order}, multiplier {lam!r}): order 1 needs it, "
            f"order 2 where the multiplier is not above smoothness / 2 = {0.5 * beta!r}. Give diameter, or a larger "
            "multiplier of order 2."
        )
    gain = _best_gain(slope, price, 0.5 * beta - curvature, farthest)
    lower = base.copy()
    if np.isinf(farthest):
        lower += slope**2 / (4.0 * lam + (0.0 if convex else 2.0 * beta))
    return Bounds(lower, base + gain)


def _best_gain(slope: FloatArray, price: float, curvature: float, farthest: float) -> FloatArray:
    """Return ``sup_{0 <= r <= farthest} (slope - price) r + curvature r^2``, which is finite."""
    rise = slope - price
    if curvature < 0.0:
        best = np.clip(rise / (-2.0 * curvature), 0.0, farthest)
        return np.asarray(rise * best + curvature * best**2)
    return np.asarray(np.maximum(rise * farthest + curvature * farthest**2, 0.0))


def _rows(loss: npt.ArrayLike, name: str, slope: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    base = np.array(loss, dtype=np.float64, ndmin=1)
    rise = np.asarray(slope, dtype=np.float64)
    if base.ndim != 1 or rise.shape not in ((), base.shape):
        raise ValueError(f"loss must be a vector and {name} one number or one per row, got {base.shape}, {rise.shape}.")
    if not (np.isfinite(base).all() and (base >= 0.0).all() and np.isfinite(rise).all() and (rise >= 0.0).all()):
        raise ValueError(f"loss and {name} must be finite and non-negative.")
    return base, np.broadcast_to(rise, base.shape)


def _check(multiplier: float, diameter: float | None, order: int) -> tuple[float, float]:
    lam, farthest = float(multiplier), np.inf if diameter is None else float(diameter)
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}.")
    if not (lam >= 0.0 and np.isfinite(lam)) or not farthest >= 0.0:
        raise ValueError(f"multiplier and diameter must be non-negative numbers, got {multiplier!r} and {diameter!r}.")
    return lam, farthest


def _cost(lam: float, order: int) -> tuple[float, float]:
    """Return the cost of a move over a distance ``r``, as the factors of ``r`` and of ``r^2``."""
    return (lam, 0.0) if order == 1 else (0.0, lam)
