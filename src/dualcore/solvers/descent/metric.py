"""Coordinates in which the risk curves alike in all directions.

A metric maps ``z`` to the variables ``x = (coef, intercept, slack)`` of the quasi-Newton method, ``z = R x`` with
``R^T R`` the Hessian of the risk on a sample of rows. ``R`` is upper triangular, so the last variable, the slack
``k - ||theta||_* >= 0``, is the last coordinate but for a factor and keeps its bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import brentq

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.factor import DampedFactor

# Beyond this many features no matrix of features x features is made.
MOST_FEATURES = 3000
# Rows of the sample for each feature.
_ROWS_PER_FEATURE = 4
# What is added to the diagonal of the sample's Hessian, relatively.
_DAMPING = 1e-7
# Share of the mean curvature that the multiplier has at least, in units of the label cost.
_LEAST_LEVEL = 0.1


def sample_size(n_features: int) -> int:
    """Return how many rows a metric is made from."""
    return max(_ROWS_PER_FEATURE * n_features, 256)


class Metric(ABC):
    """A linear change of coordinates, ``z = R x``."""

    @abstractmethod
    def inward(self, x: FloatArray) -> FloatArray:
        """Return ``R x``."""

    @abstractmethod
    def outward(self, z: FloatArray) -> FloatArray:
        """Return ``R^-1 z``."""

    @abstractmethod
    def gradient(self, g: FloatArray) -> FloatArray:
        """Return ``R^-T g``."""


class DiagonalMetric(Metric):
    """``R`` diagonal."""

    def __init__(self, squares: FloatArray) -> None:
        self.roots = np.sqrt(squares)

    def inward(self, x: FloatArray) -> FloatArray:
        return x * self.roots

    def outward(self, z: FloatArray) -> FloatArray:
        return z / self.roots

    def gradient(self, g: FloatArray) -> FloatArray:
        return g / self.roots


class DenseMetric(Metric):
    """``R`` the Cholesky factor of a Hessian."""

    def __init__(self, hessian: FloatArray) -> None:
        found = DampedFactor(hessian, shift=_DAMPING)
        if found.factor is None:
            raise ValueError("the Hessian of the sample holds numbers that are not finite")
        self.scale, self.lower = found.scale, found.factor

    def inward(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.lower.T @ (x * self.scale))

    def outward(self, z: FloatArray) -> FloatArray:
        return np.asarray(dtrtrs(self.lower, z, lower=1, trans=1)[0] / self.scale)

    def gradient(self, g: FloatArray) -> FloatArray:
        return np.asarray(dtrtrs(self.lower, g / self.scale, lower=1)[0])


class Hessian(ABC):
    """Second derivatives of the data's part of the risk at a point; the norm's part is added where it is known.

    Attributes
    ----------
    knows_size : bool
        Whether it tells how the size curves together with the coefficients. The slack is a variable then; else it is
        better fitted in every evaluation, where the oracle can.
    """

    knows_size = False

    @abstractmethod
    def metric(self, objective: Objective, at: Valued) -> Metric:
        """Return the metric of the whole risk, with the norm as it curves at a point off the origin."""


def find_hessian(objective: Objective, at: Valued, width: float, rng: np.random.Generator) -> Hessian:
    """Return the Hessian at a point: of a sample of rows where features are few enough, else its diagonal.

    ``width`` may be larger than that of the objective: more rows curve then, each less.
    """
    if objective.oracle.n_features <= MOST_FEATURES:
        return SampleHessian(objective, at, width, rng)
    return DiagonalHessian(objective, at, width)


def norm_curvature(objective: Objective, at: Valued) -> tuple[FloatArray, FloatArray]:
    """Return diagonal and vector of ``diag - v v^T``, the Hessian of the norm's part: zero at the origin."""
    coef, prices = at.point.coef, objective.prices
    size = float(np.linalg.norm(coef / prices))
    if not (size > 0.0 and at.size > 0.0):
        return np.zeros_like(coef), np.zeros_like(coef)
    return at.size / (size * prices**2), np.sqrt(at.size / size) * (coef / prices**2) / size


class SampleHessian(Hessian):
    """The Hessian on a sample of the rows that curve, in (coef, intercept, size), those that there are.

    Attributes
    ----------
    matrix : ndarray of shape (m + intercept + sized, m + intercept + sized)
        Its last row and column are the size's where the rows curve in it.
    """

    knows_size = True

    def __init__(self, objective: Objective, at: Valued, width: float, rng: np.random.Generator) -> None:
        oracle, m = objective.oracle, objective.oracle.n_features
        drawn = oracle.sample(at.point, width, sample_size(m), rng)
        rows = drawn.rows
        root = np.sqrt(drawn.weights * objective.growth(at.point, at.sums))
        rows *= root.astype(rows.dtype)[:, None]
        border = [root] if objective.problem.fit_intercept else []
        border += [objective.lipschitz * drawn.level * root] if objective.problem.family.flips else []
        edge = np.array(border).T if border else np.zeros((root.size, 0))
        self.matrix = np.empty((m + edge.shape[1], m + edge.shape[1]))
        self.matrix[:m, :m] = rows.T @ rows
        self.matrix[:m, m:] = rows.T @ edge.astype(rows.dtype)
        self.matrix[m:, :m] = self.matrix[:m, m:].T
        self.matrix[m:, m:] = edge.T @ edge

    def metric(self, objective: Objective, at: Valued) -> DenseMetric:
        whole, m = self.matrix.copy(), at.point.coef.size
        if objective.problem.family.flips:  # the size is the norm plus the slack, so its row adds to that of the norm
            outward = objective.norm.steepest(at.point.coef)
            whole[:m, :] += np.outer(outward, whole[-1, :])
            whole[:, :m] += np.outer(whole[:, -1], outward)
        diagonal, vector = norm_curvature(objective, at)
        whole[:m, :m] -= np.outer(vector, vector)
        whole[np.arange(m), np.arange(m)] += diagonal + objective.ridge
        return DenseMetric(whole)


class DiagonalHessian(Hessian):
    """The mean curvature for every coefficient: columns have unit spread.

    Attributes
    ----------
    curvature, in_size : float
        In every coefficient and in the size.
    """

    def __init__(self, objective: Objective, at: Valued, width: float) -> None:
        along, level = objective.oracle.mean_curvature(at.point, width)
        self.curvature = max(along * objective.growth(at.point, at.sums), 1e-6)
        # Where no row is about to flip now, some will be after a step.
        least = _LEAST_LEVEL * objective.problem.geometry.label_cost**2 if objective.problem.family.flips else 1e-6
        self.in_size = max(level * objective.lipschitz**2, least * self.curvature)
        self.n_other = int(objective.problem.fit_intercept)

    def metric(self, objective: Objective, at: Valued) -> DiagonalMetric:
        diagonal, vector = norm_curvature(objective, at)
        squares = self.curvature + diagonal - vector**2 + objective.ridge
        slack = [self.in_size] if objective.problem.family.flips and not objective.fits_size else []
        return DiagonalMetric(np.concatenate([squares, np.full(self.n_other, self.curvature), slack]))

    def first_step(self, objective: Objective, at: Valued) -> FloatArray:
        """Return the coefficients that minimise the quadratic model at the origin plus the norm."""
        prices = _finite(objective.prices)
        if not np.linalg.norm(prices * at.coef) > at.size:
            return np.zeros_like(prices)
        return prices * _with_norm((self.curvature + objective.ridge) * prices**2, -prices * at.coef, at.size)


def _finite(prices: FloatArray) -> FloatArray:
    """Return prices with those of immovable features large instead of infinite."""
    held = np.isfinite(prices)
    return np.where(held, prices, 1e3 * prices[held].max(initial=1.0))


def _with_norm(curvature: FloatArray, pull: FloatArray, weight: float) -> FloatArray:
    """Return the minimiser of ``sum curvature d^2 / 2 - pull d + weight ||d||``, not zero."""
    floor = 1e-12 * float(curvature.max(initial=0.0)) + 1e-300
    if not weight > 0.0:
        return np.asarray(pull / (curvature + floor))

    def excess(level: float) -> float:
        return level * float(np.linalg.norm(pull / (curvature + level))) - weight

    high = max(float(curvature.max(initial=0.0)), floor)
    while excess(high) < 0.0 and high < 1e300:
        high *= 4.0
    level = brentq(excess, floor, high, rtol=1e-3) if excess(floor) < 0.0 else floor
    return np.asarray(pull / (curvature + level))
