"""Rigorous lower bounds on the optimal worst-case risk from any dual point, evaluated on every row.

Fenchel duality row by row: for a share ``q`` of flipped mass and slopes ``s`` (staying) and ``s'`` (flipped),

    h_i(t, lam) >= ((1-q) s - q s') t - (1-q) L*(s) - q L*(s') - q gamma lam ,

so every choice bounds the optimum once the right-hand side is minimised over (theta, b, lam). That minimum is
finite only if the slopes balance (an intercept) and their moment ``v = sum_i w_i s_i y_i x_i`` is short in
the feature norm. A `DualPoint` holds a choice; `RowBounds` repairs it to feasibility, evaluates it on every row, and
subtracts what rounding can have done to it (`dualcore.certificates.rounding`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from dualcore.certificates.dependence import with_ones
from dualcore.certificates.points import DualPoint, feasible
from dualcore.certificates.psd import solve_psd
from dualcore.certificates.rounding import LevelSet, RowLevelSet
from dualcore.certificates.sums import first_order_bound, inner_minimum, squared_bound, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.forms import weighted_sum

# Above this many features the repair, which needs an m x m system, is left out.
_REPAIR_FEATURES = 2000
# Products up to which the repair factors the rows themselves, and the share of the largest singular value that counts.
_FACTOR_WORK, _RANK = 1e8, 1e-14


class Bound(NamedTuple):
    """A lower bound, and the allowance for rounding that is subtracted in it already."""

    value: float
    rounding: float


def lower_bound(problem: Problem, data: Data, point: DualPoint, upper: float, **settings: Any) -> float:
    """Return a lower bound on the optimal worst-case risk on ``data``, from any dual point; see `RowBounds.bound`."""
    return RowBounds(problem, data, upper).bound(point, **settings).value


class RowBounds:
    """Lower bounds on the optimum of one problem, on unbounded features, on one data set.

    ``upper`` is the worst-case risk of any model: it bounds the multiplier, ``lam* <= upper / sigma``, and so prices
    what infeasibility is left. ``whole`` is that of `RowLevelSet`.
    """

    def __init__(self, problem: Problem, data: Data, upper: float, whole: LevelSet | None = None) -> None:
        self.problem, self.data, self.upper = problem, data, float(upper)
        self.masses = data.masses
        self.signs: FloatArray | float = data.y if problem.is_classification else 1.0
        self.level_set = RowLevelSet(problem, data, upper, whole)

    def bound(
        self,
        point: DualPoint,
        *,
        repair: bool = True,
        width: float = 0.0,
        t: FloatArray | None = None,
        coef: FloatArray | None = None,
    ) -> Bound:
        """Return the best bound that a dual point gives.

        Parameters
        ----------
        point : DualPoint
            Need not be feasible. It is moved (where ``repair``), balanced, scaled, or paid for.
        repair : bool, default=True
            Whether to try the nearest feasible point as well, at the cost of one weighted Gram matrix.
        width, t
            The arguments with which `dual_point` made the point, if it did; the repair changes slopes near kinks only.
        coef : ndarray of shape (m,), optional
            The model the point was made at; the repair aims at the moment that would make this model optimal.
        """
        point = feasible(self.problem, point)
        best = max(Bound(trivial_bound(self.problem), 0.0), self.evaluate(self._balanced(point)))
        if repair and self.data.rows.m <= _REPAIR_FEATURES:
            # How often a point is repaired.
            for _ in range(2):
                # Relative gap below which no tighter bound is computed.
                close = self.upper - best.value <= 1e-10 * abs(self.upper)
                moved = None if close else self._repaired(point, width, t, coef)
                if moved is None:
                    break
                point = feasible(self.problem, moved)
                best = max(best, self.evaluate(self._balanced(point)))
        return best

    def evaluate(self, point: DualPoint) -> Bound:
        """Return the bound of a point as it is, less what rounding can have done to it."""
        bound = self._evaluate(point)
        if not self.level_set.is_small(bound.rounding) and self.level_set.refine():
            bound = self._evaluate(point)
        return bound

    def _evaluate(self, point: DualPoint) -> Bound:
        slope, level_set = point.slope, self.level_set
        found = level_set.moment(point, self.signs)
        rounding = level_set.price(point, found)
        if np.isinf(rounding):
            return Bound(-np.inf, np.inf)
        moment = np.where(level_set.free, 0.0, found.value)
        powers = self.problem.form.slope_powers(slope)
        if powers is None:
            return self._first_order(point, moment, rounding)
        if point.share is not None and not self.problem.form.sums_decide:
            return self._squared_flips(point, moment, rounding)
        return self._squared(slope, powers, moment, rounding)

    def _balanced(self, point: DualPoint) -> DualPoint:
        """Scale one side down so that the slopes sum to zero: with an intercept nothing else is bounded below."""
        if not self.problem.fit_intercept:
            return point
        w, sign = self.masses, self.signs
        stay, flip = w * point.stay * sign, None if point.flip is None else w * point.flip * sign
        parts = [stay] if flip is None else [stay, flip]
        plus = sum(float(np.maximum(part, 0.0).sum()) for part in parts)
        minus = sum(float(np.maximum(-part, 0.0).sum()) for part in parts)
        if plus == minus:
            return point
        ratio, side = (minus / plus, 1.0) if plus > minus else (plus / minus, -1.0)
        new_stay = np.where(stay * side > 0.0, ratio * point.stay, point.stay)
        if point.flip is None or flip is None:
            return DualPoint(new_stay)
        return DualPoint(new_stay, np.where(flip * side > 0.0, ratio * point.flip, point.flip), point.share)

    # The bound of each order. ``rounding`` is what the moment is allowed; the sums of the bound itself add to it.

    def _first_order(self, point: DualPoint, moment: FloatArray, rounding: float) -> Bound:
        flipped = 0.0 if point.share is None else float(self.masses @ point.share)
        terms = 0.0

        def conjugates(scale: float) -> float:
            nonlocal terms
            value, size = self._conjugate_sum(point.times(scale) if scale != 1.0 else point)
            terms = max(terms, size)
            return value

        value = first_order_bound(self.problem, conjugates, moment, flipped, self.upper)
        rounding += self.level_set.error * terms
        return Bound(value - rounding, rounding)

    def _conjugate_sum(self, point: DualPoint) -> tuple[float, float]:
        """Return ``-sum_i w_i [(1-q) L*(s) + q L*(s')]``, less ``s y`` for residuals, and the sum of the sizes."""
        loss, w = self.problem.loss, self.masses
        low, high = loss.slope_range
        if point.share is None or point.flip is None:
            terms = -loss.conjugate(point.stay)
        else:
            stays, flips = 1.0 - point.share, point.share
            # Clipped against the rounding of the division; the shares of the domain were respected before it.
            stay = np.divide(point.stay, stays, out=np.zeros_like(stays), where=stays > 0.0)
            flip = np.divide(-point.flip, flips, out=np.zeros_like(flips), where=flips > 0.0)
            terms = -stays * loss.conjugate(np.clip(stay, low, high)) - flips * loss.conjugate(np.clip(flip, low, high))
        if not self.problem.is_classification:
            products = point.stay * self.data.y
            return self.level_set.total(terms) - self.level_set.total(products), float(
                w @ (np.abs(terms) + np.abs(products))
            )
        return self.level_set.total(terms), float(w @ np.abs(terms))

    def _squared(self, slope: FloatArray, powers: FloatArray, moment: FloatArray, rounding: float) -> Bound:
        w, error = self.masses, self.level_set.error
        products = slope if self.problem.is_classification else slope * self.data.y
        power_sum = self.level_set.total(powers) * (1.0 + error)
        rounding += error * float(w @ np.abs(products))
        linear = -self.level_set.total(products)
        value = squared_bound(self.problem, linear, power_sum, moment, self.upper, rounding=rounding)
        return Bound(value, rounding)

    def _squared_flips(self, point: DualPoint, moment: FloatArray, rounding: float) -> Bound:
        """Squared hinge with flips: the moved mass cancels the moment, what it cannot reach is paid for."""
        problem, w, error = self.problem, self.masses, self.level_set.error
        q, stay, flip = _apart(point)
        if problem.geometry.label_cost**2 * float(w @ q) > problem.radius**2:
            return Bound(-np.inf, 0.0)
        inner = inner_minimum(problem, moment, self._longest_moment(point), 0.0, self.level_set.limit)
        slopes = float(w @ ((1.0 - q) * stay + q * flip))
        quadratic = 0.25 * float(w @ ((1.0 - q) * stay**2 + q * flip**2)) * (1.0 + error)
        rounding += error * slopes
        linear = slopes - rounding
        best = linear + inner - quadratic
        if problem.ridge == 0.0 and quadratic > 0.0:  # everything but the quadratic term is linear in a common scale
            best = max(best, 0.25 * max(linear + inner, 0.0) ** 2 / quadratic)
        return Bound(float(best), rounding)

    def _longest_moment(self, point: DualPoint) -> float:
        """Return how long a moment the radius holds: what rows gain, moved where that gains most for its price."""
        q, stay, flip = _apart(point)
        w, gamma, sigma = self.masses, self.problem.geometry.label_cost, self.problem.radius

        def cost_and_moment(tau: float) -> tuple[float, float]:
            near, far = tau * stay, np.maximum(tau * flip - gamma, 0.0)
            cost = float(w @ ((1.0 - q) * near**2 + q * (far + gamma) ** 2))
            return cost, float(w @ ((1.0 - q) * stay * near + q * flip * far))

        if cost_and_moment(0.0)[0] >= sigma**2:  # flips alone spend the budget
            return 0.0
        high = 1.0
        while cost_and_moment(high)[0] < sigma**2 and high < 1e12:
            high *= 2.0
        if cost_and_moment(high)[0] <= sigma**2:
            return cost_and_moment(high)[1]
        found = brentq(lambda tau: cost_and_moment(tau)[0] - sigma**2, 0.0, high, xtol=1e-15 * high, rtol=1e-14)
        # The cost grows at most with the square of tau: a little less than the root is within the budget. Where flips
        # spend nearly all of it rounding hides that, and more is taken off each time.
        less = 1e-13
        while cost_and_moment(found)[0] > sigma**2:
            found *= 1.0 - less
            less = min(2.0 * less, 1.0)
        return cost_and_moment(found)[1]

    # Repair

    def _repaired(
        self, point: DualPoint, width: float, t: FloatArray | None, coef: FloatArray | None
    ) -> DualPoint | None:
        """Move the slopes as little as possible (relative to how far each can move) so that the moment fits.

        Minimises ``sum_i w_i d_i^2 / (2 D_i)`` subject to ``sum_i w_i d_i y_i (x_i, 1) = target``.
        """
        problem, data, w, sign = self.problem, self.data, self.masses, self.signs
        capacity = self._capacity(point, width, t)
        if not capacity.any():
            return None
        moment, excess = self.level_set.moment(point, self.signs)[:2]
        excess = excess if problem.fit_intercept else 0.0
        goal = self._goal(moment, self._budget(point) * (1.0 - 1e-13), coef)
        if not np.any(goal != moment) and excess == 0.0:
            return None
        right = np.append(goal - moment, [-excess] * problem.fit_intercept)
        if data.rows.in_memory and float(data.rows.n) * data.rows.m**2 <= _FACTOR_WORK:
            change = self._least_change(capacity, right)
        else:
            change = capacity * self._along(w * capacity, right)
        return DualPoint(point.stay + sign * change, point.flip, point.share)

    def _along(self, weights: FloatArray, right: FloatArray) -> FloatArray:
        """Return ``A c`` where ``A' diag(weights) A c = right`` and the rows of ``A`` are ``(x_i, 1)``."""
        rows = self.data.rows
        system = rows.gram(weights)
        if self.problem.fit_intercept:
            first = rows.transpose_dot(weights)
            system = np.block([[system, first[:, None]], [first[None, :], np.array([[float(weights.sum())]])]])
        change = solve_psd(system, right)
        return rows.dot(change[: rows.m]) + (change[-1] if self.problem.fit_intercept else 0.0)

    def _least_change(self, capacity: FloatArray, right: FloatArray) -> FloatArray:
        """Return ``D A c`` where ``A' diag(w D) A c = right``, from the singular vectors of ``A``.

        The matrix of the equations squares the condition of the rows: columns far from the origin that differ in their
        ninth digit are one column to it.
        """
        # Rows of next to no mass cannot help, and would divide by it.
        weight = self.masses * capacity
        # Rows with less than this share of the largest weight are left as they are.
        held = weight > 1e-30 * weight.max(initial=0.0)
        blocks = [with_ones(block, self.problem.fit_intercept) for _, block in self.data.rows.dense_blocks()]
        w, D = self.masses[held], capacity[held]
        A = np.sqrt(weight[held])[:, None] * np.vstack(blocks)[held]
        sizes = np.linalg.norm(A, axis=0)
        sizes[sizes == 0.0] = 1.0
        left, values, axes = np.linalg.svd(A / sizes, full_matrices=False)
        keep = values > _RANK * values.max(initial=0.0)
        along = left[:, keep] @ ((axes[keep] @ (right / sizes)) / values[keep])
        change = np.zeros_like(capacity)
        change[held] = np.sqrt(D / w) * along
        return change

    def _capacity(self, point: DualPoint, width: float, t: FloatArray | None) -> FloatArray:
        """Return how far each slope may move, in the metric of the repair."""
        loss = self.problem.loss
        low, high = loss.slope_range
        stays = 1.0 if point.share is None else 1.0 - point.share
        if not np.isfinite(low):
            return np.ones_like(point.stay) * stays
        if width > 0.0 and t is not None:
            return np.maximum(loss.slope(t + width) - loss.slope(t - width), 0.0) / (2.0 * width)
        below, above = np.maximum(point.stay - low * stays, 0.0), np.maximum(high * stays - point.stay, 0.0)
        return np.asarray(below * above / (high - low) ** 2)

    def _budget(self, point: DualPoint) -> float:
        """Return how long a moment the radius holds."""
        problem, w, order = self.problem, self.masses, self.problem.geometry.order
        if problem.loss.is_lipschitz:
            spent = 0.0 if point.share is None else problem.geometry.label_cost * weighted_sum(point.share, w)
            return problem.loss.lipschitz * max(problem.radius - spent, 0.0)
        if point.share is not None:
            return self._longest_moment(point)
        dual = order / (order - 1.0)
        return float(problem.radius * (w @ np.abs(point.slope) ** dual) ** (1.0 / dual))

    def _goal(self, moment: FloatArray, budget: float, coef: FloatArray | None) -> FloatArray:
        """Return the moment to aim at: the one that makes ``coef`` optimal, or the nearest that the budget covers."""
        problem, norm = self.problem, self.problem.geometry.norm
        ridge = problem.ridge
        if coef is None:
            return moment if ridge > 0.0 else norm.project(moment, budget)
        floor = 0.0 if problem.is_classification else problem.geometry.target_slope
        if problem.size(coef) < floor * (1.0 - 1e-9):  # below the price of the target the norm has no slope
            return -ridge * coef
        return -(norm.face(coef, -moment - ridge * coef, budget) + ridge * coef)


def _apart(point: DualPoint) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the flipped share of every row and the sizes of its two slopes, free of the shares."""
    if point.flip is None or point.share is None:
        raise ValueError("a dual point with flips is needed here")
    q = point.share
    stay = np.divide(-point.stay, 1.0 - q, out=np.zeros_like(q), where=q < 1.0)
    return q, stay, np.divide(point.flip, q, out=np.zeros_like(q), where=q > 0.0)
