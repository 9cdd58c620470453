"""Softmax: the exact risk in long doubles, and CVXPY's model.

``R = min over lam >= kappa of sigma lam + sum_i w_i [l_i + (s_y - min_k s_k - lam gamma)_+]`` with
``kappa`` the largest dual norm of a difference of two classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .cones import dual_norm_in_cvxpy, in_coordinates
from .exact import Long, LongArray, exact_constant, product, to_long
from .referees import Point, Referee
from .risks import dual_norm, flip_risk


class SoftmaxReferee(Referee):
    """Points have a column of coefficients, a constant and a column of scores for every class."""

    def point(self, coef: Any, intercept: Any) -> Point:
        theta = np.asarray(coef, dtype=np.float64)
        constants = [exact_constant(row, self.centre, float(b), 0.0) for row, b in zip(theta, intercept, strict=True)]
        # Only differences between classes count; taken before rounding.
        shift = np.array([to_long(each - constants[0]) for each in constants], dtype=Long)
        return self.centred(theta.T.astype(Long), shift)

    def centred(self, theta: LongArray, shift: Any) -> Point:
        shift = np.asarray(shift, dtype=Long)
        scores = [product(self.rows, theta[:, k], shift[k]) for k in range(shift.size)]
        return Point(theta, shift, np.column_stack(scores))

    def zero(self) -> Point:
        classes = self.case.n_classes
        return self.centred(np.zeros((self.rows.shape[1], classes), dtype=Long), np.zeros(classes, dtype=Long))

    def risk(self, point: Point, radius: float | None = None) -> Any:
        case = self.case
        sigma = Long(case.radius if radius is None else radius)
        each = np.arange(self.w.size)
        with np.errstate(all="ignore"):
            own = point.score[each, self.y]
            ahead = point.score - own[:, None]
            top = ahead.max(axis=1)
            others = ahead.copy()
            others[each, self.y] = -np.inf
            # log1p of the other classes' share keeps losses near zero exact
            loss = np.where(
                top > 0, top + np.log(np.exp(ahead - top[:, None]).sum(axis=1)), np.log1p(np.exp(others).sum(axis=1))
            )
            theta = point.theta
            kappa = max(
                dual_norm(case.norm, case.prices, theta[:, j] - theta[:, k])
                for j in range(case.n_classes)
                for k in range(j)
            )
            gain = own - point.score.min(axis=1)
            return flip_risk(loss, loss + gain, self.w, sigma, case.label_cost, kappa) + self.ridge(theta)


def solve_softmax_cones(referee: SoftmaxReferee, most_numbers: int) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model in each of the coordinates, where the case is small."""
    import cvxpy as cp

    case, classes = referee.case, referee.case.n_classes
    if referee.rows.size * classes > min(most_numbers, 1500):
        return
    w, chosen = referee.w.astype(np.float64), np.eye(classes)[referee.y]

    def state(score: Any, theta: Any) -> tuple[Any, list[Any]]:
        lam, own = cp.Variable(), cp.sum(cp.multiply(chosen, score), axis=1)
        cost = w @ (cp.log_sum_exp(score, axis=1) - own) + case.radius * lam
        pairs = [(j, k) for j in range(classes) for k in range(j)]
        limits = [dual_norm_in_cvxpy(case, theta[:, j] - theta[:, k]) <= lam for j, k in pairs]
        if np.isfinite(case.label_cost) and case.radius > 0.0:
            extra = cp.Variable(w.size, nonneg=True)
            limits += [extra >= own - score[:, k] - case.label_cost * lam for k in range(classes)]
            cost = cost + w @ extra
        if case.ridge:
            cost = cost + case.ridge / 2 * cp.sum_squares(theta)
        return cost, limits

    yield from in_coordinates(referee, (classes,), state)
