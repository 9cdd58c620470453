"""The interface of the descent solver to the data: evaluate models, certify one, sample rows.

One call of `Oracle.evaluate` costs one pass over the data for any number of models, so the same loop runs over rows in
memory and over reads of a source. Models are in the coordinates of centred and scaled columns (`ColumnScaling`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.forms import Minimum
from dualcore.solvers.descent.rowsums import Point, RowSums


class ColumnScaling(NamedTuple):
    """The columns of the solver: ``(x - centre) / scale``, both of shape (m,)."""

    centre: FloatArray
    scale: FloatArray

    def model(self, point: Point) -> tuple[FloatArray, float]:
        """Return coefficients and intercept in the units of the data."""
        coef = point.coef / self.scale
        return coef, float(point.intercept - self.centre @ coef)

    def point(self, coef: FloatArray, intercept: float) -> Point:
        """Return a model in the coordinates of centred and scaled columns, with ``size`` zero."""
        return Point(coef * self.scale, float(intercept + self.centre @ coef), 0.0)


class Certified(NamedTuple):
    """The exact risk of a model, a lower bound on the best, and the dual point behind it.

    ``point`` is the model certified, ``rounding`` the allowance that is subtracted in ``lower``. ``risk`` is ``upper``
    with its multiplier, where it was computed in double precision.
    """

    upper: float
    lower: float
    dual: DualPoint
    point: Point
    rounding: float = 0.0
    risk: Minimum | None = None

    @property
    def relative_gap(self) -> float:
        """Gap over risk."""
        return (self.upper - self.lower) / max(abs(self.upper), 1e-300)


class RowSample(NamedTuple):
    """Rows for the Hessian ``sum_k weights_k v_k v_k^T`` in (coef, intercept, lam), with ``v = (x, 1, level)``.

    ``rows`` (k, m) are centred and scaled; ``level`` (k,) is the derivative in the multiplier over that in the score.
    """

    rows: FloatArray
    weights: FloatArray
    level: FloatArray


class Oracle(ABC):
    """Evaluates and certifies models on data in memory or in a source."""

    problem: Problem
    n_rows: int
    n_features: int
    columns: ColumnScaling
    n_evaluations: int = 0  # passes so far
    certifies_freely: bool = False  # whether the certificate of a point that was just evaluated costs no pass
    # Whether a sample is in memory, so that second derivatives cost little compared with a pass.
    has_pilot: bool = False

    @abstractmethod
    def evaluate(self, points: Sequence[Point], width: float) -> list[RowSums]:
        """Return the sums at each model, all from one pass."""

    @abstractmethod
    def certify(self, point: Point, width: float) -> Certified:
        """Return risk and lower bound at the slopes of the smoothed loss there."""

    @abstractmethod
    def refine(self) -> bool:
        """Evaluate more precisely from now on; False where that is not possible."""

    @abstractmethod
    def mean_curvature(self, point: Point, width: float) -> tuple[float, float]:
        """Return the mean second derivative in the score and in the multiplier."""

    @abstractmethod
    def sample(self, point: Point, width: float, size: int, rng: np.random.Generator) -> RowSample:
        """Return about ``size`` rows with curvature at the model, weighted to estimate the Hessian of all rows."""

    @abstractmethod
    def typical_signal(self) -> float:
        """Return a typical margin or residual, the unit of the first width."""

    @abstractmethod
    def constant(self) -> float:
        """Return the best intercept of a model with zero coefficients, without label flips."""

    def close(self) -> None:  # noqa: B027  most oracles have nothing to close
        """Shut down threads."""


def sides(problem: Problem, dual: DualPoint, masses: FloatArray, y: FloatArray) -> FloatArray:
    """Return the positive and the negative parts of ``w_i s_i sign_i``, shape (2, n).

    A dual point is balanced (its slopes add up to zero) by scaling one of the two, so the moment of the balanced point
    follows from the moments of both.
    """
    signs = y if problem.is_classification else 1.0
    out = np.zeros((2, masses.size))
    for slope in (dual.stay, dual.flip):
        if slope is not None:
            signed = masses * slope * signs
            out[0] += np.maximum(signed, 0.0)
            out[1] += np.minimum(signed, 0.0)
    return out
