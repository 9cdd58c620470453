"""Newton's method for the squared hinge whose labels may flip.

With ``k = ||theta||_*`` and ``lam > k^2`` a row adds the larger of two convex functions of ``(t, k, lam)``,

    stay   g [1 - t]_+^2 ,                                        g = lam / (lam - k^2) ,
    flip   g (1 + t - k gamma)^2   where  (1 + t) k >= lam gamma,   else  (1 + t)^2 - lam gamma^2 .

The maximum is rounded within a width of the kink, as for losses of order 1, and the share that flips there is the dual
point. A step minimises the second-order model in (coefficients, intercept, k, lam) with the exact description of the
dual norm: a cone program of the size of a model, whatever the number of rows. The width falls from stage to stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

from dualcore.certificates import Bound, DualPoint, RowBounds
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.solvers.base import Iterate, RawSolution
from dualcore.solvers.coneprogram import ConeProgram
from dualcore.solvers.cones import MOST_INEXACT, ScaledRows, bound_step, solve_step, spread_dual
from dualcore.solvers.rootmean import descend

# The first width as a share of the risk, and how much narrower the next.
_FIRST_WIDTH, _NARROWER = 0.1, 0.1
# The widths end, as a share of the risk, where rounding decides which rows are tied.
_LEAST_WIDTH = 1e-13
# The first and the last width as shares of the numbers whose difference is what a flip gains.
_CLEAR, _ROUNDING = 1e-6, 1e-10
# A stage ends when a step promises less than this share of what smoothing costs: the more there is to certify the less.
_STAGE, _LAST = 0.1, 1e-6
# A point is certified where smoothing costs less than this, in units of the tolerance.
_SMOOTHING_SHARE = 2.0
# A step that promises less, relatively, is rounding.
_EXHAUSTED = 1e-15
# Certificates in a row that may bring nothing.
_PATIENCE = 3
# A line search accepts this share of the promised decrease, after so many halvings at most; the first length that it
# tries is so many times the last one accepted.
_ENOUGH, _HALVINGS, _LONGER = 1e-4, 40, 16.0
# How near to ``k^2`` a multiplier may be, relatively, and the factors by which the best one is bracketed.
_LEAST_DISTANCE = 1e-12
_REACHES = (1.0 + 1e-4, 1.01, 1.5, 4.0, *(64.0,) * 60)


class _Branch(NamedTuple):
    """A function ``h`` of ``(t, lam, k)``, row by row, with its first and second derivatives."""

    value: FloatArray
    first: FloatArray  # (3, n): in t, lam, k
    second: FloatArray  # (6, n): tt, t lam, t k, lam lam, lam k, k k


class FlipPoint(NamedTuple):
    """A scaled model with its dual norm and multiplier, and the smoothed risk there."""

    x: FloatArray
    steepness: float
    multiplier: float
    t: FloatArray
    cost: float


class _QuadraticModel(NamedTuple):
    """The second-order model at a place, in (coefficients, intercept, lam, k), and what smoothing costs there."""

    gradient: FloatArray
    hessian: FloatArray
    roughness: float


class _Step(NamedTuple):
    """A change of all variables, how much less the local model is there, and whether its minimum was found."""

    change: FloatArray
    promised: float
    exact: bool


# Where the six second derivatives stand in a symmetric matrix of three.
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


class FlipDescent:
    """A problem of the squared hinge with flips, and a radius above 0, in the scaled units of ``design``."""

    def __init__(self, problem: Problem, design: ScaledRows) -> None:
        self.problem, self.design = problem, design
        self.m, self.masses = design.scale.size, design.masses
        self.gamma, self.price = problem.geometry.label_cost, problem.price
        self.ridge = problem.ridge / design.scale**2
        self.prices, self.rows = design.prices(problem.geometry.norm), design.table(problem)

    def start(self, coef: FloatArray, intercept: float) -> FlipPoint:
        """Return a model of the data with its best multiplier, not evaluated yet."""
        x = self.design.scaled(coef, intercept, fit_intercept=self.problem.fit_intercept)
        t = np.asarray(self.rows @ x)
        size = self._steepness(x)
        multiplier = self.problem.form.minimise(t, self.masses, size).multiplier
        return FlipPoint(x, size, multiplier, t, np.inf)

    def _steepness(self, x: FloatArray) -> float:
        return float(self.problem.geometry.norm.dual(x[: self.m] / self.design.scale))

    # What is minimised

    def at(self, x: FloatArray, near: float, width: float, t: FloatArray | None = None) -> FlipPoint:
        """Evaluate a model at its best multiplier, which is looked for from ``near`` on.

        Where a few rows are all but decided the best multiplier is a curved function of their margins: a step that held
        it to a straight line would have to be short.
        """
        t = np.asarray(self.rows @ x) if t is None else t
        size = self._steepness(x)
        multiplier = self._best_multiplier(t, size, near, width)
        stay, flip = self._values(t, multiplier, size)
        gain = flip - stay
        share = self._share(gain, width)
        rows = stay + (width * share * share + np.maximum(gain - width, 0.0))
        cost = float(self.masses @ rows) + self.price * multiplier + 0.5 * float(self.ridge @ x[: self.m] ** 2)
        return FlipPoint(x, size, multiplier, t, cost)

    def _best_multiplier(self, t: FloatArray, size: float, near: float, width: float) -> float:
        """Return where the derivative in the multiplier, which never falls, is zero."""
        w, gamma, bar = self.masses, self.gamma, size * size
        short, far = np.maximum(1.0 - t, 0.0), np.maximum(1.0 + t, 0.0) - size * gamma
        short, far = short * short, far * far

        def slope(lam: float) -> float:
            stay, flip = self._values(t, lam, size)
            share = self._share(flip - stay, width)
            rate = (size / (lam - bar)) ** 2
            flips = np.where((1.0 + t) * size >= lam * gamma, rate * far, gamma * gamma)
            return self.price - float(w @ (rate * (1.0 - share) * short + share * flips))

        least = bar * (1.0 + _LEAST_DISTANCE) + np.finfo(np.float64).tiny
        low = high = max(near, least)
        if not slope(high) < 0.0:
            for reach in _REACHES:
                high, low = low, max(bar + (low - bar) / reach, least)
                if slope(low) <= 0.0:
                    break
                if low == least:
                    return least
        else:
            for reach in _REACHES:
                low, high = high, bar + (high - bar) * reach
                if slope(high) >= 0.0:
                    break
        return float(brentq(slope, low, high, xtol=1e-15 * high, rtol=1e-14)) if slope(low) < 0.0 < slope(high) else low

    @staticmethod
    def _share(gain: FloatArray, width: float) -> FloatArray:
        """Return which share of a row flips, from what the flip gains."""
        if width == 0.0:
            return np.where(gain > 0.0, 1.0, 0.0)
        return np.clip(0.5 + gain / (2.0 * width), 0.0, 1.0)

    def _values(self, t: FloatArray, lam: float, k: float) -> tuple[FloatArray, FloatArray]:
        growth = lam / (lam - k * k)
        short, v = np.maximum(1.0 - t, 0.0), np.maximum(1.0 + t, 0.0)
        moved = growth * (v - k * self.gamma) ** 2
        flip = np.where(v * k >= lam * self.gamma, moved, v * v - lam * self.gamma**2)
        return growth * short * short, flip

    def _branches(self, t: FloatArray, lam: float, k: float) -> tuple[_Branch, _Branch]:
        """Return both branches: rows that stay, and rows that flip, moved or not."""
        v = np.maximum(1.0 + t, 0.0)
        stay = self._moved(np.maximum(1.0 - t, 0.0), -1.0, 0.0, lam, k)
        moved = self._moved(v - k * self.gamma, 1.0, -self.gamma, lam, k)
        zero, one = np.zeros_like(t), np.ones_like(t)
        held = _Branch(
            v * v - lam * self.gamma**2,
            np.array([2.0 * v, -(self.gamma**2) * one, zero]),
            np.array([2.0 * (v > 0.0), zero, zero, zero, zero, zero]),
        )
        moves = v * k >= lam * self.gamma
        flip = _Branch(*(np.where(moves, there, here) for there, here in zip(moved, held, strict=True)))
        return stay, flip

    @staticmethod
    def _moved(reach: FloatArray, in_t: float, in_k: float, lam: float, k: float) -> _Branch:
        """Return ``g e^2``, ``g = lam / (lam - k^2)``, where ``e`` has these derivatives in ``t`` and in ``k``."""
        left = lam - k * k
        g, g_lam, g_k = lam / left, -((k / left) ** 2), 2.0 * lam * k / left**2
        g_lam_lam, g_lam_k = 2.0 * k * k / left**3, -2.0 * k * (lam + k * k) / left**3
        g_k_k = 2.0 * lam * (lam + 3.0 * k * k) / left**3
        square, curved = reach * reach, 2.0 * g * (reach > 0.0)
        return _Branch(
            g * square,
            np.array([2.0 * g * in_t * reach, g_lam * square, g_k * square + 2.0 * g * in_k * reach]),
            np.array(
                [
                    curved,
                    2.0 * in_t * g_lam * reach,
                    2.0 * in_t * g_k * reach + in_t * in_k * curved,
                    g_lam_lam * square,
                    g_lam_k * square + 2.0 * in_k * g_lam * reach,
                    g_k_k * square + 4.0 * in_k * g_k * reach + in_k**2 * curved,
                ]
            ),
        )

    def expand(self, place: FlipPoint, width: float) -> _QuadraticModel:
        """Return the second-order model at a place."""
        w, lam, k = self.masses, place.multiplier, place.steepness
        stay, flip = self._branches(place.t, lam, k)
        gain = flip.value - stay.value
        share = self._share(gain, width)
        first = (1.0 - share) * stay.first + share * flip.first
        second = (1.0 - share) * stay.second + share * flip.second
        tied = np.flatnonzero(np.abs(gain) < width)
        apart = flip.first[:, tied] - stay.first[:, tied]
        for entry, (i, j) in enumerate(_PAIRS):
            second[entry, tied] += apart[i] * apart[j] / (2.0 * width)
        width_x = place.x.size
        gradient = np.empty(width_x + 2)
        gradient[:width_x] = self.rows.T @ (w * first[0])
        gradient[: self.m] += self.ridge * place.x[: self.m]
        gradient[width_x:] = first[1:] @ w
        gradient[width_x] += self.price
        hessian = np.empty((width_x + 2, width_x + 2))
        curvature = w * second[0]
        if sp.issparse(self.rows):
            hessian[:width_x, :width_x] = (self.rows.T @ sp.diags_array(curvature) @ self.rows).toarray()
        else:
            half = np.sqrt(curvature)[:, None] * self.rows
            hessian[:width_x, :width_x] = half.T @ half
        hessian[np.arange(self.m), np.arange(self.m)] += self.ridge
        cross = np.asarray(self.rows.T @ (w * second[1:3]).T)
        hessian[:width_x, width_x:], hessian[width_x:, :width_x] = cross, cross.T
        ll, lk, kk = second[3:] @ w
        hessian[width_x:, width_x:] = [[ll, lk], [lk, kk]]
        return _QuadraticModel(gradient, hessian, width * float(w @ (share * (1.0 - share))))

    def dual(self, place: FlipPoint, width: float) -> DualPoint:
        """Return the slopes of the smoothed risk as a dual point of the rows that carry mass.

        The shares are multiplied by what makes them spend the budget to the last digit. Of a row far out the gain is a
        small difference of large numbers, and of its share only the budget knows all digits.
        """
        stay, flip = self._branches(place.t, place.multiplier, place.steepness)
        share = self._share(flip.value - stay.value, width)
        spent = -float(self.masses @ (share * flip.first[1]))
        if spent > 0.0:
            left = self.price + float(self.masses @ ((1.0 - share) * stay.first[1]))
            share = np.minimum(share * max(left / spent, 0.0), 1.0)
        return DualPoint((1.0 - share) * stay.first[0], share * flip.first[0], share)

    # Steps

    def step(self, place: FlipPoint, near: _QuadraticModel) -> _Step:
        """Minimise the local model with the exact description of the dual norm."""
        width = place.x.size
        diagonal = np.diag(near.hessian)
        # Where every margin is kept and the multiplier is at its least, nothing curves: another solver's problem.
        if not (np.isfinite(near.hessian).all() and diagonal.max() > 0.0):
            return _Step(np.zeros(width + 2), 0.0, exact=False)
        sizes = np.sqrt(np.maximum(diagonal, 1e-16 * diagonal.max()) / place.cost)
        values, vectors = np.linalg.eigh(near.hessian / np.outer(sizes, sizes) / place.cost)
        factor = np.sqrt(np.maximum(values, 1e-15 * values.max()))[:, None] * vectors.T
        program = ConeProgram()
        slide, curved = program.variables(width + 2), program.variables(width + 2)
        program.zero(curved - slide.mapped(factor))
        program.minimise_squares(np.ones(width + 2), curved)
        program.minimise(slide.mapped((near.gradient / (sizes * place.cost))[None, :]))
        # The bound on the dual norm, in units of what it is or of what a step changes it by.
        rates = 1.0 / self.prices
        unit = max(place.steepness, 1.0 / sizes[-1])
        picked = sp.csr_array(((1.0 / (unit * sizes[-1]),), ((0,), (width + 1,))), (1, width + 2))
        bound = slide.mapped(picked) + place.steepness / unit
        program.nonnegative(bound)
        norm, speeds = self.problem.geometry.norm, rates / (unit * sizes[: self.m])
        bound_step(norm, program, bound, slide, speeds, rates * place.x[: self.m] / unit)
        found, exact = solve_step(program)
        change = found.value(slide) / sizes
        if not np.isfinite(change).all():
            return _Step(np.zeros(width + 2), 0.0, exact=False)
        return _Step(change, -float(near.gradient @ change + 0.5 * change @ near.hessian @ change), exact)

    def search(self, here: FlipPoint, step: _Step, width: float, first: float = 1.0) -> tuple[FlipPoint, float]:
        """Return a place of less cost along a step, or the same place; and the length, ``first`` being the longest."""
        size, change = here.x.size, step.change
        moved = np.asarray(self.rows @ change[:size])
        length = first
        for _ in range(_HALVINGS):
            x, multiplier = here.x + length * change[:size], here.multiplier + length * change[size]
            there = self.at(x, multiplier, width, here.t + length * moved)
            if there.cost <= here.cost - _ENOUGH * length * step.promised:
                return there._replace(t=np.asarray(self.rows @ x)), length
            length *= 0.5
        return here, length

    def minimise(
        self, here: FlipPoint, width: float, tol: float, max_iter: int, history: list[Iterate]
    ) -> tuple[FlipPoint, float]:
        """Descend with one width, and return what the smoothing costs as well; every step joins the history."""
        here, roughness = self.at(here.x, here.multiplier, width, here.t), 0.0
        inexact, length = 0, 1.0
        while len(history) < max_iter and inexact < MOST_INEXACT:
            near = self.expand(here, width)
            step = self.step(here, near)
            # Where a step had to be short the next one will have to be: every trial looks for a multiplier.
            there, length = self.search(here, step, width, min(_LONGER * length, 1.0))
            roughness = near.roughness
            history.append(Iterate(len(history) + 1, there.cost, max(step.promised, 0.0) + roughness))
            stuck, here = there is here, there
            inexact = 0 if step.exact else inexact + 1
            share = _LAST if roughness <= _SMOOTHING_SHARE * tol * here.cost else _STAGE
            if stuck or step.promised <= max(share * roughness, _EXHAUSTED * here.cost):
                break
        return here, roughness


def descend_flips(
    problem: Problem,
    data: Data,
    design: ScaledRows,
    start: tuple[FloatArray, float] | None,
    tol: float,
    max_iter: int,
) -> RawSolution:
    """Descend to a certified relative gap of ``tol``, from the optimum of labels that stay.

    Where no flip pays at that optimum it is the one where labels may flip.
    """
    fixed = descend(problem.replace(label_cost=np.inf), data, design, start, max_iter)
    risk = problem.evaluate(fixed.coef, fixed.intercept, data).value
    if risk <= problem.replace(label_cost=np.inf).evaluate(fixed.coef, fixed.intercept, data).value * (1.0 + 1e-12):
        return fixed
    descent = FlipDescent(problem, design)
    here = descent.start(fixed.coef, fixed.intercept)
    gains = problem.geometry.label_cost**2 * here.multiplier  # how large the numbers are whose difference is a gain
    width, least = max(_FIRST_WIDTH * risk, _CLEAR * gains), max(_LEAST_WIDTH * risk, _ROUNDING * gains)
    best, bound, dual = (fixed.coef, fixed.intercept), Bound(-np.inf, 0.0), None
    history: list[Iterate] = []
    idle = 0
    while len(history) < max_iter and idle < _PATIENCE and width > least:
        here, roughness = descent.minimise(here, width, tol, max_iter, history)
        if roughness <= _SMOOTHING_SHARE * tol * here.cost:
            coef, intercept = descent.design.model(here.x)
            value = problem.evaluate(coef, intercept, data).value
            if value < risk:
                risk, best = value, (coef, intercept)
            bounds = RowBounds(problem, data, risk)
            point = spread_dual(problem, data, design, descent.dual(here, width))
            idle += 1
            for repair in (False, True):
                found = bounds.bound(point, repair=repair, coef=coef)
                if found > bound:
                    bound, dual, idle = found, point, 0
                if risk - bound.value <= tol * risk:
                    break
            if risk - bound.value <= tol * risk:
                break
        width *= _NARROWER
    return RawSolution(
        *best,
        dual,
        fixed.iterations + len(history),
        tuple(history),
        stopped_early=risk - bound.value > tol * risk,
        lower=bound.value,
        rounding=bound.rounding,
    )
