"""The best constant score: the optimum among models whose coefficients are zero."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss, MarginLoss

# Loss and slope at a larger margin are zero up to rounding.
_FAR_MARGIN = 40.0


def best_constant(loss: Loss, y: FloatArray, masses: FloatArray) -> float:
    """Return ``b`` with the least mean loss of the margins ``y b`` or the residuals ``b - y``.

    Examples
    --------
    >>> from dualcore.problem.losses import get_loss
    >>> round(best_constant(get_loss("squared"), np.array([1.0, 2.0, 6.0]), np.full(3, 1 / 3)), 9)
    3.0
    """
    if isinstance(loss, MarginLoss):
        signs = np.array([-1.0, 1.0])
        shares = np.array([masses[y < 0.0].sum(), masses[y > 0.0].sum()])
        low, high = -_FAR_MARGIN, _FAR_MARGIN

        def slope(b: float) -> float:
            return float((shares * signs) @ loss.slope(signs * b))
    else:
        low, high = float(y.min()), float(y.max())

        def slope(b: float) -> float:
            return float(masses @ loss.slope(b - y))

    at_low, at_high = slope(low), slope(high)
    if at_low >= 0.0 or at_high <= 0.0:  # monotone on the interval, or constant
        return low if at_low > 0.0 else high if at_high < 0.0 else 0.5 * (low + high)
    return float(brentq(slope, low, high, xtol=1e-14 * max(high - low, 1e-300), rtol=1e-14))
