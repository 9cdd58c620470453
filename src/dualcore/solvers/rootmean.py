"""Descent on ``(N + sigma K)^p + rho / 2 ||theta||^2`` with ``N`` the mean of order p of residuals or shortfalls.

At a model with mean ``N`` and slopes ``g`` of it the mean of a model ``d`` away is, to second order,

    ||(N + g . d, F d)|| ,    F'F = N times the second derivatives of N .

For ``p = 2`` this is exact, and for every ``p`` it is never negative: a quadratic model would send the next step to the
far side of an exact fit, and beyond. So each step is one second-order cone and the description of the dual norm, in as
many variables as the model has, and costs one triangular factor of the rows.

With ``p < 2`` the curvature has a pole where a residual vanishes. There ``|r|`` is replaced by ``(r^2 + w^2)^(1/2)``,
and the width ``w`` falls from stage to stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from dualcore.certificates import DualPoint, lower_bound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import LinfNorm
from dualcore.problem.losses import Squared
from dualcore.solvers.base import Iterate, RawSolution
from dualcore.solvers.coneprogram import SOLVED, ConeProgram
from dualcore.solvers.cones import DUAL_BOUNDS, MOST_INEXACT, ScaledRows, bound_step, solve_step

# Widths of the smoothing, as shares of the mean, for p < 2.
_WIDTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
_SAME = 1.0 + 1e-15
# The descent ends where the local model predicts a smaller relative decrease: the rest is rounding.
_EXHAUSTED = 1e-15
# A mean of the residuals below this share of the root of the risk counts as an exact fit.
_FITTED = 1e-6
# The same, as a share of the mean with zero coefficients; and the least curvature of a row.
_NOISE, _LEAST_CURVATURE = 1e-10, 1e-10
# Steps are measured in units of at least this share of the mean with zero coefficients.
_LEAST_REACH = 1e-4
# Below this share of the mean with zero coefficients, an exact fit (or a margin on every row) is tried.
_NEARLY = 1e-3
# How many dual points of a descent are compared, and how many of the last.
_CANDIDATES, _LAST = 8, 3
# Rounds in which rows join those that a separating model is held to.
_CUTS = 20


class RootMeanPoint(NamedTuple):
    """A scaled model: coefficients, then the level where there is one, and what is minimised there."""

    x: FloatArray
    signal: FloatArray
    mean: float
    steepness: float
    cost: float


class RootMeanStep(NamedTuple):
    """Where a local model has its minimum (if ``exact``; near it, if not), the relative decrease, the rows' slopes."""

    change: FloatArray
    promised: float
    slopes: FloatArray | None
    exact: bool = True


class _Expansion(NamedTuple):
    """The mean near a place: ``||(N + g . d, F d)||``, and what turns multipliers of that cone into slopes."""

    mean: float
    power: float
    gradient: FloatArray
    factor: FloatArray
    triangle: FloatArray
    along: FloatArray
    shrink: float
    curvature: FloatArray
    slopes: FloatArray


@dataclass(frozen=True)
class Outcome:
    """The best model found, slopes of the mean that may bound it (one a row of positive mass), and the history."""

    x: FloatArray
    slopes: tuple[FloatArray, ...]
    history: tuple[tuple[float, float], ...]
    finished: bool


class RootMeanDescent:
    """A problem of a power of the residual, or of the squared hinge without flips, in the units of ``design``."""

    def __init__(self, problem: Problem, design: ScaledRows) -> None:
        self.problem, self.design, self.p = problem, design, float(problem.geometry.order)
        self.m, self.one_sided = design.scale.size, problem.is_classification
        self.ridge = problem.ridge * design.unit ** (2.0 - self.p) / design.scale**2
        self.prices = design.prices(problem.geometry.norm)
        self.floor = 0.0 if self.one_sided else problem.geometry.target_slope / design.unit
        self.masses, self.offset, self.rows = design.masses, -design.target, design.table(problem)
        if self.one_sided:  # the shortfall 1 - y (theta . x + b)
            self.rows, self.offset = -self.rows, np.ones_like(design.target)
        self.scale = self._mean(self.offset, 0.0)  # what an empty model leaves
        self.whole: tuple[FloatArray, FloatArray] | None = None
        if isinstance(problem.loss, Squared) or (self.p == 2.0 and not self.one_sided):
            self._compress()

    def _compress(self) -> None:
        """Keep the triangular factor of the rows alone: sums of squares need no more."""
        n, width = self.rows.shape
        if n <= width + 1 or sp.issparse(self.rows):
            return
        table = np.sqrt(self.masses)[:, None] * np.column_stack([self.rows, self.offset])
        factor = np.asarray(np.linalg.qr(table, mode="r"))
        self.whole = np.column_stack([self.rows, self.offset]), factor
        self.rows, self.offset, self.masses = factor[:, :width], factor[:, width], np.ones(factor.shape[0])

    # What is minimised

    def at(self, x: FloatArray, width: float = 0.0) -> RootMeanPoint:
        """Evaluate a model; ``width`` smooths the residuals."""
        return self._evaluate(x, np.asarray(self.rows @ x) + self.offset, width)

    def _evaluate(self, x: FloatArray, signal: FloatArray, width: float) -> RootMeanPoint:
        mean, steepness = self._mean(signal, width), self._steepness(x)
        root = mean + self.problem.radius * steepness
        cost = root if self.problem.ridge == 0.0 else root**self.p + 0.5 * float(self.ridge @ x[: self.m] ** 2)
        return RootMeanPoint(x, signal, mean, steepness, float(cost))

    def _steepness(self, x: FloatArray) -> float:
        coef = self.design.unit * x[: self.m] / self.design.scale
        return max(self.problem.geometry.norm.dual(coef) / self.design.unit, self.floor)

    def _size(self, signal: FloatArray, width: float) -> FloatArray:
        if self.one_sided:
            return np.maximum(signal, 0.0)
        return np.hypot(signal, width) if width > 0.0 else np.abs(signal)

    def _mean(self, signal: FloatArray, width: float) -> float:
        size = self._size(signal, width)
        top = float(size.max(initial=0.0))
        # Divided by the largest, or high powers would overflow.
        return top * float(self.masses @ (size / top) ** self.p) ** (1.0 / self.p) if top > 0.0 else 0.0

    def risk(self, place: RootMeanPoint) -> float:
        """Return the worst-case risk, without its ridge, in scaled units."""
        return float((place.mean + self.problem.radius * place.steepness) ** self.p)

    def _line(self, place: RootMeanPoint, promised: float) -> tuple[float, float]:
        """Return the risk, ridge included, in the units of the data, and how much less the local model promises."""
        total = self.design.unit**self.p * (place.cost if self.problem.ridge > 0.0 else place.cost**self.p)
        return total, total * max(promised, 0.0) * (1.0 if self.problem.ridge > 0.0 else self.p)

    # Descent

    def run(self, x: FloatArray, *, max_iter: int) -> Outcome:
        """Descend from ``x`` until the local model promises nothing more."""
        history: list[tuple[float, float]] = []
        slopes: list[FloatArray] = []
        best, finished = self.at(x), False
        if best.mean <= _FITTED * self.scale:  # an exact fit: residuals are rounding errors, and so are their slopes
            best = self.at(np.zeros_like(x))
        for share in _WIDTHS if self.p < 2.0 else (0.0,):
            here = self.at(best.x, share * best.mean)
            width, last = share * best.mean, share in (0.0, _WIDTHS[-1])
            enough = _EXHAUSTED if last else 1e-3 * share
            finished, inexact = False, 0
            while len(history) < max_iter and not finished and inexact < MOST_INEXACT:
                if not here.mean > 1e-30 * self.scale:
                    finished = True
                    break
                step = self.step(here, width)
                inexact = 0 if step.exact else inexact + 1
                there = self._cleaned(self._search(here, step.change, width), width)
                gain = (here.cost - there.cost) / here.cost
                slopes += [] if step.slopes is None else [step.slopes]
                # Near an exact fit the mean is a small part of the cost, but the bound depends on its slopes.
                part = min(1.0, max(here.mean / here.cost, 1e-3)) if self.problem.ridge == 0.0 else 1.0
                finished = 0.0 <= step.promised <= part * enough
                # A predicted decrease below zero is Clarabel's rounding, or a local model valid on too small a region.
                finished |= not gain > (1e-3 * part * enough if step.promised > 0.0 else max(enough, 1e-13))
                # The last step may gain less than rounding hides, and still bring digits of the model.
                here = there if there.cost <= here.cost * _SAME else here
                history.append(self._line(here, step.promised))
            exact = self.at(here.x)
            best = exact if exact.cost <= best.cost * _SAME else best
            if not finished:
                break
        if best.mean <= _NEARLY * self.scale:
            best = self._separated(best, slopes) if self.one_sided else self._fitted(best)
        return Outcome(best.x, tuple(slopes[::-1]), tuple(history), finished)

    def step(self, place: RootMeanPoint, width: float = 0.0) -> RootMeanStep:
        """Minimise the local model of the mean with the exact description of everything else."""
        near = self._expand(place, width)
        if self.problem.radius == 0.0 and self.problem.ridge == 0.0:
            reach = -near.along / (1.0 - (near.power - 2.0) * float(near.along @ near.along))
            change = np.asarray(np.linalg.lstsq(near.triangle, reach, rcond=1e-14)[0], dtype=np.float64)
            promised = 1.0 - self._ahead(near, near.mean * change) / near.mean
            return RootMeanStep(near.mean * change, promised, self._of_rows(near.slopes))
        return self._conic_step(place, near)

    @staticmethod
    def _ahead(near: _Expansion, change: FloatArray) -> float:
        """Return the value of the local model of the mean after a change."""
        return float(np.hypot(near.mean + near.gradient @ change, np.linalg.norm(near.factor @ change)))

    def _conic_step(self, place: RootMeanPoint, near: _Expansion) -> RootMeanStep:
        problem, p, m = self.problem, self.p, self.m
        program = ConeProgram()
        # Steps are measured in units of the mean, but near an exact fit, where it vanishes, of the data's scale.
        phi, reach = place.x[:m], max(near.mean, _LEAST_REACH * self.scale)
        root = place.mean + problem.radius * place.steepness
        penalty = 0.5 * float(self.ridge @ phi**2)
        ridge = reach * self.ridge / (root**p + penalty) if problem.ridge > 0.0 else np.zeros(m)
        # Columns of size one, or Clarabel loses those that a ridge, or the others, outweigh by far.
        sizes = near.gradient**2 + (near.factor**2).sum(axis=0)
        sizes[:m] += reach * ridge
        # A column of zeros has no size: given a small one it would set the unit of the steepness below.
        sizes[sizes == 0.0] = sizes.max(initial=0.0) or 1.0
        sizes = np.sqrt(np.maximum(sizes, 1e-16 * sizes.max(initial=0.0)))
        slide, length = program.variables(sizes.size), program.variables(1)
        ahead = slide.mapped(np.vstack([near.gradient, near.factor]) / sizes)
        price, others = program.second_order(length, ahead + near.mean / reach * np.eye(1, len(ahead))[0])
        cost = (reach / root) * length
        if problem.radius > 0.0:
            unit = max(place.steepness, reach * float(np.linalg.norm(1.0 / (self.prices * sizes[:m]))), self.floor)
            unit = unit if unit > 0.0 else 1.0
            steepness = program.variables(1)
            rates = 1.0 / (unit * self.prices)
            bound_step(problem.geometry.norm, program, steepness, slide, reach * rates / sizes[:m], rates * phi)
            program.nonnegative(steepness - self.floor / unit)
            cost = cost + (problem.radius * unit / root) * steepness
        if problem.ridge > 0.0:
            # The power itself to second order in the root; the penalty is quadratic as it is.
            share = root**p / (root**p + penalty)
            above = program.variables(1)
            program.nonnegative(above + 1.0 - cost)
            program.minimise((share * p) * above)
            program.minimise_squares(np.array([share * p * (p - 1.0)]), above)
            ridge = np.append(ridge, np.zeros(sizes.size - m))
            program.minimise_squares(reach * ridge / sizes**2, slide)
            program.minimise(slide.mapped((ridge * place.x / sizes)[None, :]))
        else:
            program.minimise(cost)
        found, exact = solve_step(program)
        change = reach * found.value(slide) / sizes
        if not np.isfinite(change).all():
            return RootMeanStep(np.zeros(place.x.size), 0.0, None, exact=False)
        promised = self._promised(place, near, change, root, penalty)
        duals = -found.multipliers[others] / max(float(found.multipliers[price][0]), np.finfo(np.float64).tiny)
        return RootMeanStep(change, promised, self._slopes(near, duals), exact)

    def _promised(
        self, place: RootMeanPoint, near: _Expansion, change: FloatArray, root: float, penalty: float
    ) -> float:
        """Return how much less the local model is, relatively."""
        x = place.x + change
        ahead = self._ahead(near, change) + self.problem.radius * self._steepness(x)
        if self.problem.ridge == 0.0:
            return float(1.0 - ahead / root)
        after = ahead**self.p + 0.5 * float(self.ridge @ x[: self.m] ** 2)
        return float(1.0 - after / (root**self.p + penalty))

    def _slopes(self, near: _Expansion, duals: FloatArray) -> FloatArray | None:
        """Return slopes of the mean whose moment the norm can hold: those of the place, moved along the rows."""
        if not np.isfinite(duals).all():
            return None
        along = near.along * duals[0] + duals[1:] - near.shrink * near.along * float(near.along @ duals[1:])
        moved = np.linalg.lstsq(near.triangle, along - duals[0] * near.along, rcond=1e-14)[0]
        slopes = duals[0] * near.slopes + near.curvature * np.asarray(self.rows @ moved)
        if self.problem.fit_intercept:  # balanced to the last digit, or nothing is bounded
            level = np.zeros(self.rows.shape[1])
            level[self.m] = -float((self.rows.T @ (self.masses * slopes))[self.m])
            multipliers = np.linalg.lstsq(near.triangle.T, level, rcond=1e-14)[0]
            moved = np.linalg.lstsq(near.triangle, multipliers, rcond=1e-14)[0]
            slopes = slopes + near.curvature * np.asarray(self.rows @ moved)
        return self._of_rows(slopes)

    def _of_rows(self, slopes: FloatArray) -> FloatArray:
        """Return the slopes of the rows themselves: they lie in the span of the columns, where the factor has them."""
        if self.whole is None:
            return slopes
        table, factor = self.whole
        return np.asarray(table @ np.linalg.lstsq(factor, slopes, rcond=1e-14)[0])

    def _expand(self, place: RootMeanPoint, width: float) -> _Expansion:
        p, w, u, mean = self.p, self.masses, place.signal, place.mean
        size = self._size(u, width)
        if mean <= _NOISE * self.scale:  # residuals of rounding: their shares mean nothing, their squares will do
            p, mean = 2.0, float(np.sqrt(w @ size**2))
        share, side = size / mean, np.divide(u, size, out=np.zeros_like(u), where=size > 0.0)
        if self.one_sided:
            side = np.minimum(np.maximum(side, 0.0), 1.0)
        with np.errstate(under="ignore"):
            # Of a high power rows that fit have no curvature, and a step along them alone would have no end.
            lift = np.maximum(share ** (p - 2.0), _LEAST_CURVATURE) if p != 2.0 else np.ones_like(share)
            if self.one_sided:
                lift = np.where(u > 0.0, lift, 0.0)
            turn = 1.0 + (p - 2.0) * side**2  # p - 1 without smoothing
            slopes = share ** (p - 1.0) * side
            weights = w * lift * turn
            roots = np.sqrt(weights)
            target = np.divide(w * slopes, roots, out=np.zeros_like(roots), where=roots > 0.0)
        gradient = np.asarray(self.rows.T @ (w * slopes))
        if sp.issparse(self.rows):
            gram = (self.rows.T @ (sp.diags_array(weights) @ self.rows)).toarray()
            values, vectors = np.linalg.eigh(gram)
            keep = values > 1e-14 * values.max(initial=0.0)
            triangle = np.sqrt(values[keep])[:, None] * vectors[:, keep].T
            along = (vectors[:, keep].T @ gradient) / np.sqrt(values[keep])
        else:
            table = np.column_stack([roots[:, None] * self.rows, target])
            whole = np.asarray(np.linalg.qr(table, mode="r"))
            rank = min(whole.shape[0], self.rows.shape[1])
            triangle, along = whole[:rank, :-1], whole[:rank, -1]
        inside = float(along @ along)
        left = np.sqrt(max(1.0 - (p - 1.0) * inside, 0.0))
        shrink = (1.0 - left) / inside if inside > 0.0 else 0.0
        factor = triangle - shrink * np.outer(along, along @ triangle)
        return _Expansion(mean, p, gradient, factor, triangle, along, shrink, lift * turn, slopes)

    def _search(self, here: RootMeanPoint, change: FloatArray, width: float) -> RootMeanPoint:
        """Return the place of least cost along a step; the full one where that is good enough."""
        moved = np.asarray(self.rows @ change)

        def ahead(length: float) -> RootMeanPoint:
            x = here.x + length * change
            signal = here.signal + length * moved if length != 1.0 else np.asarray(self.rows @ x) + self.offset
            return self._evaluate(x, signal, width)

        full = ahead(1.0)
        if here.cost / _SAME <= full.cost <= here.cost * _SAME:  # no search sees more than rounding
            return full
        longest = 1.0
        if full.cost < here.cost:
            further = ahead(2.0)
            while further.cost < full.cost and longest < 64.0:
                full, longest = further, 2.0 * longest
                further = ahead(2.0 * longest)
            if longest == 1.0 and ahead(0.75).cost >= full.cost:
                return full
        bounds, options = (0.0, 2.0 * longest), {"xatol": 1e-6 * longest, "maxiter": 40}
        found = minimize_scalar(lambda part: ahead(float(part)).cost, bounds=bounds, method="bounded", options=options)
        shorter = self.at(here.x + float(found.x) * change, width)
        if shorter.cost >= here.cost and full.cost >= here.cost:
            for halving in range(10, 60, 5):
                shorter = self.at(here.x + 0.5**halving * change, width)
                if shorter.cost < here.cost:
                    break
        return min(full, shorter, key=lambda place: place.cost)

    def _cleaned(self, place: RootMeanPoint, width: float) -> RootMeanPoint:
        """Return a place without the coefficients that are rounding beside the others, where that is better.

        Where the dual norm is a sum most coefficients vanish, but for what Clarabel leaves of them.
        """
        if not isinstance(self.problem.geometry.norm, LinfNorm) or self.problem.radius == 0.0:
            return place
        share = np.abs(place.x[: self.m]) / self.prices
        small = (share <= 1e-7 * share.max(initial=0.0)) & np.isfinite(self.prices)
        clean = self.at(np.append(np.where(small, 0.0, place.x[: self.m]), place.x[self.m :]), width)
        return clean if clean.cost < place.cost else place

    def _fitted(self, place: RootMeanPoint) -> RootMeanPoint:
        """Return the exact fit nearest to a place, where there is one and it is better."""
        if sp.issparse(self.rows):
            return place
        fit = self.at(place.x - np.linalg.lstsq(self.rows, place.signal, rcond=1e-14)[0])
        return fit if fit.cost < place.cost else place

    def _separated(self, place: RootMeanPoint, slopes: list[FloatArray]) -> RootMeanPoint:
        """Return the model of least norm among those of margin 1 on every row, where that is better.

        Only the rows of least margin bind: more are added until the others keep theirs. What a bound needs joins
        ``slopes``.
        """
        candidates = [place]
        if self.problem.radius > 0.0 and self.problem.ridge == 0.0 and not sp.issparse(self.rows):
            order = np.argsort(-place.signal)
            chosen = np.zeros(order.size, dtype=bool)
            chosen[order[: 4 * self.rows.shape[1]]] = True
            for _ in range(_CUTS):
                x, weights = self._least_norm(np.flatnonzero(chosen))
                if x is None:
                    break
                candidates.append(self.at(x))
                beyond = (candidates[-1].signal > 1e-9) & ~chosen
                if not beyond.any():
                    held = np.zeros(order.size)
                    held[chosen] = self.problem.radius * weights / self.masses[chosen]
                    slopes.append(held)
                    break
                worst = np.argsort(-np.where(beyond, candidates[-1].signal, -np.inf))[: 4 * self.rows.shape[1]]
                chosen[worst[beyond[worst]]] = True
        for each in candidates[:]:
            least = 1.0 - float(each.signal.max())
            if least > 0.0:  # a longer model costs nothing without a radius and a ridge
                free = self.problem.radius == 0.0 and self.problem.ridge == 0.0
                candidates.append(self.at(each.x * ((2.0 if free else 1.0 + 1e-15) / least)))
        return min(candidates, key=lambda each: each.cost)

    def _least_norm(self, rows: npt.NDArray[np.int64]) -> tuple[FloatArray | None, FloatArray]:
        """Return the model of least norm that has margin 1 on some rows, and the multipliers of those rows."""
        program, m = ConeProgram(), self.m
        movable = np.isfinite(self.prices)
        coef, steepness = program.variables(m), program.variables(1)
        held = coef.mapped(self.rows[rows][:, :m])
        if self.problem.fit_intercept:
            held = held + program.variables(1).mapped(self.rows[rows][:, m:])
        margins = program.nonnegative(-self.offset[rows] - held)
        if movable.any():
            norm = type(self.problem.geometry.norm)
            DUAL_BOUNDS[norm](program, steepness, (1.0 / self.prices[movable]) * coef[movable])
        program.nonnegative(steepness)
        program.minimise(steepness)
        found = program.solve(tol=1e-11, loose_tol=1e-8, max_iter=200)
        if found.status not in SOLVED:
            return None, np.zeros(rows.size)
        x = found.x[np.r_[:m, m + 1 : self.rows.shape[1] + 1]]
        return x, found.multipliers[margins]


def descend(
    problem: Problem, data: Data, design: ScaledRows, start: tuple[FloatArray, float] | None, max_iter: int
) -> RawSolution:
    """Descend from a model, or from none, and return the best one found with the slopes that bound it best."""
    descent = RootMeanDescent(problem, design)
    model = (np.zeros(data.rows.m), design.centre) if start is None else start
    found = descent.run(design.scaled(*model, fit_intercept=problem.fit_intercept), max_iter=max_iter)
    coef, intercept = design.model(found.x)
    p, place = problem.geometry.order, descent.at(found.x)
    root = descent.risk(place) ** (1.0 / p)
    factor = p * (design.unit * root) ** (p - 1.0) * (-1.0 if descent.one_sided else 1.0)

    def point(slopes: FloatArray) -> DualPoint:
        stay = np.zeros(data.rows.n)
        stay[design.kept] = factor * (np.maximum(slopes, 0.0) if descent.one_sided else slopes)
        return DualPoint(stay)

    duals = [point(slopes) for slopes in found.slopes]
    dual = duals[0] if duals else None
    # The last slopes are the best, but for exact fits, whose last residuals are rounding. Near p = 1 slopes hang on
    # residuals so small that chance has a part in them, and of a high power on the last digits of Clarabel's.
    tried = duals[:_LAST] if p > 2.0 else duals[:1]
    if p < 2.0 or place.mean <= _NEARLY * root:
        tried = duals[:: max(1, -(-len(duals) // _CANDIDATES))]
    if len(tried) > 1:
        upper, most = problem.evaluate(coef, intercept, data).value, -np.inf
        for each in tried:
            bound = lower_bound(problem, data, each, upper, repair=False)
            dual, most = (each, bound) if bound > most else (dual, most)
            if upper - most <= 1e-8 * upper:
                break
    history = tuple(Iterate(k + 1, *line) for k, line in enumerate(found.history))
    return RawSolution(coef, intercept, dual, len(history), history, stopped_early=not found.finished)
