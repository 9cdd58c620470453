"""`Anchor`: a linear model with the multiplier of its worst case, the point at which the data are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dualcore.data.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Anchor:
    """The model around which a coreset is built: coefficients, intercept and multiplier.

    Attributes
    ----------
    coef : ndarray of shape (n_features,), or (n_classes, n_features) for a softmax problem
    intercept : float, or ndarray of shape (n_classes,)
    multiplier : float
        The dual variable; at least ``problem.kappa(coef)``.

    Examples
    --------
    >>> import numpy as np
    >>> Anchor(np.array([0.5, 0.0]), 0.1, multiplier=0.5).coef.size
    2
    """

    coef: FloatArray
    intercept: Any
    multiplier: float
