"""The data as the engine sees them: evaluate models, certify one, look at a few rows.

An `Oracle` is all that the engine knows of the data. One call of `Oracle.evaluate` costs one pass, whatever the number
of models, so the same loop may run over rows in memory or over reads of a source.
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
    """How the engine's columns follow from the data's: ``(x - centre) / scale``."""

    centre: FloatArray
    scale: FloatArray

    def model(self, point: Point) -> tuple[FloatArray, float]:
        """Return coefficients and intercept in the units of the data."""
        coef = point.coef / self.scale
        return coef, float(point.intercept - self.centre @ coef)

    def point(self, coef: FloatArray, intercept: float) -> Point:
        """Return a model of the data in the engine's coordinates, its size left at zero."""
        return Point(coef * self.scale, float(intercept + self.centre @ coef), 0.0)


class Certified(NamedTuple):
    """The exact risk of a model, a lower bound on the best, and the dual point behind it.

    ``point`` is the model certified, ``rounding`` the allowance that is subtracted in ``lower``. ``risk`` is ``upper``
    with its multiplier, where all digits of it are known.
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
    """Rows with their curvature, for a metric: ``sum_k weights_k v_k v_k^T`` with ``v = (x, 1, level)``.

    ``rows`` (k, m) are centred and scaled; ``level`` (k,) is the derivative in the multiplier over that in the score.
    """

    rows: FloatArray
    weights: FloatArray
    level: FloatArray


class Oracle(ABC):
    """Evaluates models on data that it alone knows."""

    problem: Problem
    n_rows: int
    n_features: int
    columns: ColumnScaling
    n_evaluations: int = 0  # passes so far
    certifies_freely: bool = False  # whether the certificate of a point that was just evaluated costs no pass
    # Whether a sample is at hand for which second derivatives cost next to nothing beside a pass.
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
        """Return rows that curve at the model, about ``size`` of them, weighted to stand for all."""

    @abstractmethod
    def typical_signal(self) -> float:
        """Return how large a margin or a residual typically is, for the first width."""

    @abstractmethod
    def constant(self) -> float:
        """Return the best intercept of a model without coefficients, flips apart."""

    def close(self) -> None:  # noqa: B027  nothing to close is the usual case
        """Let threads go."""


def sides(problem: Problem, dual: DualPoint, masses: FloatArray, y: FloatArray) -> FloatArray:
    """Return ``w_i s_i sign_i`` of the slopes that are positive and of those that are negative, shape (2, n).

    To balance a dual point is to scale one of the two, so that the moments of both give that of the balanced point.
    """
    signs = y if problem.is_classification else 1.0
    out = np.zeros((2, masses.size))
    for slope in (dual.stay, dual.flip):
        if slope is not None:
            signed = masses * slope * signs
            out[0] += np.maximum(signed, 0.0)
            out[1] += np.minimum(signed, 0.0)
    return out
