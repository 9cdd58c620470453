"""The method of multipliers for piecewise linear losses, with a smoothing width that need not go to zero.

A loss with kinks is ``L(t) = max_s s t - L*(s)``. With a centre ``c_i`` for every row,

    L_mu(t) = max_s  s t - L*(s) - mu (s - c)^2

is smooth, and the slope that attains it is a dual point. Minimise the risk with it, take the slopes found as the next
centres, and repeat: the gap goes to zero although ``mu`` need not. A large width keeps Newton's equations well
conditioned, and most rows near a kink keep their curvature after a step. Smoothing without centres needs widths of the
order of the tolerance. On separable rows with many features thousands of rows end at a kink, and after each decrease of
the width most of them have no curvature.

Only rows on a ramp, where the smoothed slope changes from one piece to the next, have curvature, so Newton's equations
are solved by conjugate gradients on copies of those rows. Along a step the signals of all rows are linear, so the line
search needs no product with the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, cg

from dualcore.certificates import DualPoint
from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.geometry import L2Norm
from dualcore.problem.losses import Loss
from dualcore.solvers.base import Iterate
from dualcore.solvers.descent.continuation import Continuation
from dualcore.solvers.descent.memory import MemoryOracle
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.rowsums import Point, RowSums, kinks_of


class Ramps:
    """``L_mu(t) = max_s s t - L*(s) - mu (s - c)^2``, whose slope is piecewise constant with linear ramps at kinks.

    Parameters
    ----------
    loss : Loss
        Piecewise linear.
    width : float
        ``mu``.
    centres : ndarray of shape (n,)

    Examples
    --------
    >>> from dualcore.problem.losses import Hinge
    >>> ramps = Ramps(Hinge(), 0.5, np.array([-0.5, -0.5, -0.5]))
    >>> ramps.slopes(np.array([0.0, 1.0, 1.25]))
    (array([-1.  , -0.5 , -0.25]), array([1, 2]))
    """

    def __init__(self, loss: Loss, width: float, centres: FloatArray) -> None:
        self.loss, self.width, self.centres = loss, width, centres
        self.kinks = kinks_of(loss)

    def slopes(self, t: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Return the slopes, and the rows on a ramp."""
        height = self.centres + t / (2.0 * self.width)
        slope = np.full(t.shape, self.kinks[0][1])
        on_ramp = np.zeros(t.shape, dtype=bool)
        for kink, left, jump in self.kinks:
            rise = height - (kink / (2.0 * self.width) + left)
            on_ramp |= (rise > 0.0) & (rise < jump)
            slope += np.clip(rise, 0.0, jump)
        return slope, np.flatnonzero(on_ramp)

    def values(self, t: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smoothed loss, and the dual value ``-L*(s)`` of the slopes."""
        off = slope - self.centres
        place = t - 2.0 * self.width * off  # the argument at which the loss itself has this slope
        dual = self.loss.value(place) - slope * place
        return dual + slope * t - self.width * off * off, dual


class _Here(NamedTuple):
    """A point, the signals and slopes (n,) of the rows there, and the gap of a certificate with these slopes.

    ``valued`` is the smoothed risk with its gradient, ``risk`` the risk itself. The estimated gap is ``lost + off``:
    ``lost`` vanishes as the centres converge, ``off`` as the gradient of the smoothed risk does.
    """

    valued: Valued
    t: FloatArray
    slope: FloatArray
    ramp: npt.NDArray[np.int64]
    risk: float
    lost: float
    off: float


def can_multiply(problem: Problem, n_features: int) -> bool:
    """Whether the loss is piecewise linear without flips, and the norm is l2 and penalises every coefficient."""
    return (
        isinstance(problem.geometry.norm, L2Norm)
        and problem.loss.pieces is not None
        and not problem.family.flips
        and (problem.is_classification or problem.geometry.target_slope == 0.0)
        and problem.radius > 0.0
        and not free_features(problem, n_features).any()
    )


class Multipliers:
    """Newton's method between changes of centres, for a problem that `can_multiply`.

    Parameters
    ----------
    oracle : MemoryOracle
    loop : Continuation
        It holds the tolerance, and keeps the best certified model and bound.
    inner : float, default=0.15
        The centres change when ``off`` is at most this share of ``lost``; see `_Here`.
    narrower : float, default=0.7
        Factor on the width when the centres change. A step also counts as progress if it reduces ``off`` by this
        factor.
    least : float, default=1e-3
        Smallest width, relative to the first.
    failures : int, default=3
        Consecutive steps without progress after which the centres change, or the method ends.
    most_dense : float, default=0.34
        At most this share of all rows is copied for Newton's equations; of more dense rows on ramps a sample is taken.
    """

    def __init__(
        self,
        oracle: MemoryOracle,
        loop: Continuation,
        *,
        inner: float = 0.15,
        narrower: float = 0.7,
        least: float = 1e-3,
        failures: int = 3,
        most_dense: float = 0.34,
    ) -> None:
        self.inner, self.narrower, self.least = inner, narrower, least
        self.failures, self.most_dense = failures, most_dense
        self.oracle, self.loop, self.problem = oracle, loop, oracle.problem
        self.objective, self.loss = Objective(oracle, 0.0), oracle.problem.loss
        self.m, self.intercept = oracle.n_features, self.problem.fit_intercept
        self.signs = oracle.data.y if self.problem.is_classification else np.ones(oracle.n_rows)
        self.rng = np.random.default_rng(0)

    def run(self, start: Point, width: float) -> Point:
        """Minimise from a point off the origin; return the last one, certified."""
        oracle, loop = self.oracle, self.loop
        low, high = self.loss.slope_range
        ramps = Ramps(self.loss, width, np.full(oracle.n_rows, 0.5 * (low + high)))
        here, failures = self._at(ramps, start, oracle.signal(start)), 0
        moved = False  # whether a step has made progress since the centres changed
        least = loop.left // 2  # the other half of the evaluations is for smoothing, if this method fails
        while loop.left > least:
            loop.record(Iterate(oracle.n_evaluations, here.risk, here.lost + here.off))
            goal = loop.goal(here.valued._replace(value=here.risk))  # the smoothed risk may be near zero
            if here.lost + here.off <= goal:
                self._certify(here)
                if loop.is_done():
                    return here.valued.point
            stuck = failures >= self.failures
            if stuck and oracle.refine():
                here, failures = self._at(ramps, here.valued.point, oracle.signal(here.valued.point)), 0
            elif stuck and not moved:
                break
            elif stuck or here.off <= max(self.inner * here.lost, 2.0 * self.inner * goal):
                ramps = Ramps(self.loss, max(self.narrower * ramps.width, self.least * width), here.slope)
                here, failures, moved = self._at(ramps, here.valued.point, here.t), 0, False
            there = self._along(here, ramps, self._newton_step(here, ramps))
            if not there.valued.point.coef.any():
                break  # the norm is not differentiable at the origin
            # Where rounding hides the decrease of the value, the gradient still shows progress.
            gained = there.valued.value < here.valued.value or there.off < self.narrower * here.off
            failures, moved = (0, True) if gained else (failures + 1, moved)
            here = there
        self._certify(here)
        return here.valued.point

    def _certify(self, here: _Here) -> None:
        self.loop.keep(self.oracle.certify_dual(here.valued.point, DualPoint(here.slope)))

    def _at(self, ramps: Ramps, point: Point, t: FloatArray) -> _Here:
        """Evaluate a point whose signals are known."""
        masses = self.oracle.masses
        slope, ramp = ramps.slopes(t)
        value, dual = ramps.values(t, slope)
        weighted = masses * slope * self.signs
        smooth, exact = float(masses @ value), float(masses @ self.loss.value(t))
        sums = RowSums(smooth, self.oracle.moment(weighted), float(weighted.sum()), 0.0, 0.0)
        point = point._replace(size=self.objective.size(point.coef))
        valued = self.objective.compose(point, sums)
        risk, tangent = valued.value - smooth + exact, float(masses @ (dual + slope * t))
        # The conjugate of a loss with minimum zero is convex and zero at slope zero. So scaling all slopes by a factor
        # below 1 keeps at least that share of the dual value.
        scaled = tangent - float(sums.coef @ point.coef) - sums.intercept * point.intercept
        gap = self.objective.estimated_gap(valued._replace(value=risk, sums=sums._replace(value=tangent)), scaled)
        return _Here(valued, t, slope, ramp, risk, exact - tangent, max(gap - (exact - tangent), 0.0))

    def _newton_step(self, here: _Here, ramps: Ramps) -> FloatArray:
        """Return a step (m,) or (m + 1,): Newton's equations, solved by conjugate gradients with a diagonal metric."""
        objective, oracle, at = self.objective, self.oracle, here.valued
        diagonal, vector = norm_curvature(objective, at)
        # The norm has no curvature along the coefficients. Where rows have none either, a tenth of its curvature in
        # other directions bounds the step.
        diagonal, vector = diagonal + objective.ridge, np.sqrt(0.9) * vector
        rows = here.ramp
        curvature = oracle.masses[rows] / (2.0 * ramps.width)
        spread = max(float(curvature.sum()), 1e-6 / ramps.width)
        # Where no row is on a ramp the curvature in the intercept is zero, and Newton's equations have no solution.
        held = spread - float(curvature.sum())
        most = max(int(self.most_dense * oracle.n_rows), 1)
        if rows.size > most and not oracle.is_sparse:
            kept = np.sort(self.rng.choice(rows.size, most, replace=False))
            rows, curvature = rows[kept], curvature[kept] * (rows.size / most)
        coef = at.coef + at.size * objective.norm.steepest(at.point.coef)
        gradient = np.append(coef, at.intercept) if self.intercept else coef
        metric = np.append(diagonal - vector**2 + spread, [spread] * self.intercept)
        operator, X = oracle.operator(), oracle.copy_rows(rows)

        def product(step: FloatArray) -> FloatArray:
            coef = step[: self.m]
            scores = operator.dot(X, operator.narrow(Point(coef, 0.0, 0.0)))
            scores += step[self.m] if self.intercept else 0.0
            scores *= curvature
            total = float(scores.sum())
            moment = operator.finish(operator.transpose_dot(X, scores), total)
            moment += diagonal * coef - vector * float(vector @ coef)
            return np.append(moment, total + held * step[self.m]) if self.intercept else moment

        step, count = conjugate_gradient(product, -gradient, metric)
        oracle.n_evaluations += 1 + int(count * rows.size / oracle.n_rows)
        return step

    def _along(self, here: _Here, ramps: Ramps, step: FloatArray, *, flat: float = 0.3, longest: float = 64.0) -> _Here:
        """Return the minimiser along a step, by the sign of the derivative.

        The full step is taken if the derivative at its end is at most ``flat`` times that at its start. The step is
        lengthened at most ``longest`` times.
        """
        objective, masses, at = self.objective, self.oracle.masses, here.valued
        coef_step, shift = step[: self.m], float(step[self.m]) if self.intercept else 0.0
        change = (self.oracle.scores(coef_step) + shift) * self.signs

        def slope(length: float) -> float:
            coef = at.point.coef + length * coef_step
            steep = at.size * objective.norm.steepest(coef) + objective.ridge * coef
            found, _ = ramps.slopes(here.t + length * change)
            return float((masses * found) @ change) + float(steep @ coef_step)

        whole = Point(at.point.coef + coef_step, at.point.intercept + shift, 0.0)
        there = self._at(ramps, whole, here.t + change)
        first, last, length = slope(0.0), slope(1.0), 1.0
        if not first < 0.0 or (there.valued.value < at.value and abs(last) <= flat * abs(first)):
            return there
        while last < 0.0 and length < longest:
            length, last = 2.0 * length, slope(2.0 * length)
        if last > 0.0:
            length = float(brentq(slope, 0.0, length, rtol=1e-2, xtol=1e-15))
        point = Point(at.point.coef + length * coef_step, at.point.intercept + length * shift, 0.0)
        return self._at(ramps, point, here.t + length * change)


def norm_curvature(objective: Objective, at: Valued) -> tuple[FloatArray, FloatArray]:
    """Return ``d`` and ``v`` (m,) of ``diag(d) - v v^T``, the Hessian of the norm term away from the origin."""
    coef, prices = at.point.coef, objective.prices
    size = float(np.linalg.norm(coef / prices))
    return at.size / (size * prices**2), np.sqrt(at.size / size) * (coef / prices**2) / size


def conjugate_gradient(
    product: Callable[[FloatArray], FloatArray],
    right: FloatArray,
    metric: FloatArray,
    *,
    residual: float = 0.1,
    most: int = 200,
) -> tuple[FloatArray, int]:
    """Solve ``product(x) = right`` approximately; return the solution (d,) and the number of products.

    It stops when the residual has fallen by the factor ``residual``, or after ``most`` steps. The residual is measured
    in the diagonal ``metric`` (d,), because coefficients and intercept have different units.
    """
    count, roots = 0, np.sqrt(metric)

    def scaled(z: FloatArray) -> FloatArray:
        nonlocal count
        count += 1
        return product(z / roots) / roots

    operator = LinearOperator((right.size, right.size), matvec=scaled, dtype=np.float64)
    found = cg(operator, right / roots, rtol=residual, maxiter=most)[0]
    return found / roots, count
