"""`Certificate`: what is known about a model on the full data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dualcore.data.arrays import FloatArray


@dataclass(frozen=True)
class Certificate:
    """What is known about a model on the full data.

    Attributes
    ----------
    upper : float
        Exact worst-case risk of the model, ridge included.
    lower : float
        No model has a smaller one.
    n_reads : int
        How many times the data were read to find the model and this certificate.
    rounding : float
        Allowance for rounding errors: what is subtracted in ``lower`` already, plus the error of ``upper``.

    Examples
    --------
    >>> print(Certificate(upper=0.5, lower=0.499))
    The worst-case risk of this model on the full data is 0.5; no model can have less than 0.499, so it is within
    0.2 % of the best possible.
    """

    upper: float
    lower: float
    n_reads: int = 1
    rounding: float = 0.0

    def __post_init__(self) -> None:
        for name in ("upper", "lower", "rounding"):  # Python floats, not NumPy scalars
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def gap(self) -> float:
        """``upper - lower``: how far the model can possibly be from the optimum."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        """``gap / upper``."""
        return self.gap / max(abs(self.upper), np.finfo(float).tiny)

    @property
    def is_weak(self) -> bool:
        """Whether it leaves open how good the model is: the best possible risk may be half of this one, or less."""
        return self.relative_gap > 0.5

    def __str__(self) -> str:
        risks = (
            f"The worst-case risk of this model on the full data is {self.upper:.6g}; no model can have less than "
            f"{self.lower:.6g}, "
        )
        if self.is_weak:
            return risks + "which leaves open how near to the best possible it is."
        return risks + f"so it is within {100 * self.relative_gap:.3g} % of the best possible."


class LinearModel(Protocol):
    """Anything with coefficients and an intercept: a Solution, an anchor."""

    @property
    def coef(self) -> FloatArray:
        """Coefficients, shape (n_features,) or (n_classes, n_features)."""

    @property
    def intercept(self) -> Any:
        """The intercept, or one for each of many classes."""
