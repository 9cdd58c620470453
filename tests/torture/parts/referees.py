"""Referees: the exact risk of any model on a case, and models found without the package.

A model is a `Point`: coefficients, constants in centred coordinates, and the scores of all rows of positive mass.
Scaling a point or mixing two of them is exact enough to search along; the winner is computed again from its
coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .cases import Case
from .exact import Long, LongArray, exact_constant, product, reference_row, to_long
from .risks import LOSSES, dual_norm, flip_risk, lipschitz, order_of, squared_hinge_risk


@dataclass(frozen=True)
class Point:
    """A model in centred coordinates: ``score = theta . (x - centre) + shift``, one column for each class."""

    theta: LongArray
    shift: LongArray
    score: LongArray


def masses(case: Case) -> tuple[Any, LongArray]:
    """Return which rows have mass, and their masses, which sum to one."""
    n = case.X.shape[0]
    weights = np.ones(n) if case.weights is None else case.weights
    rows = weights > 0.0
    w = weights[rows].astype(Long)
    return rows, np.asarray(w / w.sum())


class Referee:
    """Common to all families: centred rows, points, mixtures."""

    def __init__(self, case: Case) -> None:
        self.case = case
        rows, self.w = masses(case)
        X = case.dense[rows]
        self.centre = reference_row(X, self.w) if case.fit_intercept else np.zeros(X.shape[1])
        self.rows = X.astype(Long) - self.centre.astype(Long)
        self.y = np.asarray(case.y)[rows]
        self.y_centre = 0.0
        if not case.is_classification:
            if case.fit_intercept:
                self.y_centre = float(reference_row(self.y[:, None].astype(np.float64), self.w)[0])
            self.target = self.y.astype(Long) - Long(self.y_centre)

    def point(self, coef: Any, intercept: Any) -> Point:
        """Return the point of a model in the package's coordinates, with an exact constant."""
        theta = np.asarray(coef, dtype=np.float64)
        shift = to_long(exact_constant(theta, self.centre, float(intercept), self.y_centre))
        return self.centred(theta.astype(Long), shift)

    def centred(self, theta: LongArray, shift: Any) -> Point:
        """Return the point of a model in centred coordinates."""
        shift = Long(shift)
        return Point(theta, np.asarray(shift), product(self.rows, theta, shift))

    def at(self, space: Any, beta: Any) -> Point:
        """Return the point with these numbers in the coordinates of a search."""
        long = beta.astype(Long)
        return self.centred(space.map @ long, space.shift @ long)

    def again(self, point: Point) -> Point:
        """Return the point with its scores computed from the coefficients."""
        return self.centred(point.theta, point.shift)

    def mix(self, first: Point, second: Point, share: Any) -> Point:
        """Return the point a share of the way from the first to the second."""
        a, b = 1 - Long(share), Long(share)
        return Point(
            a * first.theta + b * second.theta,
            np.asarray(a * first.shift + b * second.shift),
            a * first.score + b * second.score,
        )

    def zero(self) -> Point:
        """Return the empty model."""
        return self.centred(np.zeros(self.rows.shape[1], dtype=Long), 0.0)

    def ridge(self, theta: LongArray) -> Any:
        return Long(self.case.ridge) / 2 * (theta * theta).sum() if self.case.ridge else Long(0)

    def risk(self, point: Point, radius: float | None = None) -> Any:
        """Return the worst-case risk, ridge included, in long doubles."""
        raise NotImplementedError("a referee of a family defines risk")


class PlainReferee(Referee):
    """No limits: the rows enter through their margins or residuals alone."""

    def risk(self, point: Point, radius: float | None = None) -> Any:
        case, w = self.case, self.w
        sigma = Long(case.radius if radius is None else radius)
        size = dual_norm(case.norm, case.prices, point.theta)
        loss, order = LOSSES[case.loss], order_of(case.loss, case.parameters)
        with np.errstate(all="ignore"):
            if case.is_classification:
                z = self.y.astype(Long) * point.score
                if case.loss == "squared_hinge":
                    risk = squared_hinge_risk(z, w, sigma, case.label_cost, size)
                else:
                    risk = flip_risk(loss(z), loss(-z), w, sigma, case.label_cost, size)
                return risk + self.ridge(point.theta)
            rate = max(size, 2 / Long(case.label_cost))
            mean = (w * loss(point.score - self.target, **case.parameters)).sum()
            if order == 1.0:
                slope = Long(lipschitz(case.loss, case.parameters))
                return mean + sigma * slope * rate + self.ridge(point.theta)
            if sigma == 0:
                return mean + self.ridge(point.theta)
            return (mean ** (1 / Long(order)) + sigma * rate) ** Long(order) + self.ridge(point.theta)
