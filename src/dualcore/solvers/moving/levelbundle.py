"""A level bundle method: training, and a bound, where rows are moved one by one and no Newton method closes the gap.

The objective ``radius lam + sum_i w_i h_i(theta, b, lam) + ridge`` is jointly convex. One pass over the rows at a point
gives a plane below the share of every group of rows: the best moves at that point are moves at every other. The planes
are minimised near the best point; their multipliers combine one plane that bounds the optimum from below
(`dualcore.certificates.plane`). The next point is the one nearest to the best point at which the planes are at
most half way between their minimum and the best value. Both are small cone programmes.

A feature without a limit asks ``lam >= Lip ||theta_J||_*`` of the multiplier, ``J`` the coefficients whose sign leads
to the open side. The multipliers of this constraint are rows sent to infinity with no mass.

With linf a feature moves along with the others at no extra cost, whatever the sign of its coefficient. The objective
then has an edge wherever a coefficient is zero, and there would have to be planes for every pattern of signs. There the
coefficients are split, ``theta = theta+ - theta-``, and a plane takes the best move of either part. It stays below: at
a model one part of each feature is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates.plane import Plane, PlaneBound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily, Moves
from dualcore.problem.geometry import L1Norm, L2Norm, Norm
from dualcore.solvers.coneprogram import Affine, ConeProgram, ConeSolution, Rows
from dualcore.solvers.constant import best_constant
from dualcore.solvers.moving.opensides import OpenSide, open_sides
from dualcore.solvers.moving.result import NewtonResult

__all__ = ["LevelBundle"]

# Planes of one pass: more rows than that share planes. The cone programmes have a variable for each.
_MOST_GROUPS = 500
# Passes after which a plane that carries nothing is removed, and passes without progress after which the method stops,
# beside two for every variable.
_IDLE, _PATIENCE = 4, 25
# Accuracy of the minimum of the planes, relative to the best risk, and of the nearest point.
_TIGHT, _ROUGH = 1e-11, 1e-7
# Steps that reduce the gradient of the combined plane.
_REPAIRS = 8


class _Planes(NamedTuple):
    """Planes ``rows @ x + offsets`` below the shares of groups of rows."""

    rows: FloatArray  # (k, d): coefficients or their parts, centred intercept, multiplier
    offsets: FloatArray  # (k,)
    sizes: FloatArray  # (k, d): sums of absolute terms: of the rows and, in the last column, of the offsets
    owner: npt.NDArray[np.intp]  # (k,): the group
    idle: npt.NDArray[np.intp]  # (k,): passes since it carried something

    def where(self, which: npt.NDArray[np.bool_]) -> _Planes:
        """Return some of them."""
        parts: list[Any] = [part[which] for part in self]
        return _Planes(*parts)


class _Minimum(NamedTuple):
    """A minimum of the planes near the best point, with the multipliers of planes and open sides.

    ``is_at_trust_radius``: whether only the limit on the distance to the best point is active.
    """

    x: FloatArray
    value: float
    is_at_trust_radius: bool
    mix: FloatArray
    rises: list[FloatArray]
    falls: list[FloatArray]


class LevelBundle:
    """Planes, the best point seen, and the two bounds on the optimum.

    Parameters
    ----------
    problem : Problem
        With a support or categories, and a positive radius.
    data : Data
    coef, intercept
        Where to begin; a good start saves passes.
    lower : float, default=0.0
        A lower bound that is known.
    report : callable, optional
        Called with the two bounds after every pass.
    """

    def __init__(
        self,
        problem: Problem,
        data: Data,
        coef: FloatArray,
        intercept: float,
        *,
        lower: float = 0.0,
        report: Callable[[float, float], None] | None = None,
    ) -> None:
        self.problem, self.family, self.data = problem, BoxFamily.of(problem.family), data
        self.report, m = report, data.rows.m
        if problem.ridge == 0.0:
            coef, intercept = self.family.canonical(coef, intercept, fit_intercept=problem.fit_intercept)
        self.bounds = PlaneBound(problem, self.family, data)
        self.parts = 2 if self.family.has_edges(m) else 1
        self.scale, self.open_sides = self._scale(), open_sides(problem, m)
        t, size = problem.signal(coef, intercept, data), self.scale.size
        self._group(t)
        none = np.empty(0, dtype=np.intp)
        self.planes = _Planes(np.empty((0, size)), np.empty(0), np.empty((0, size)), none, none)
        self.lower, self.upper, self.rounding = lower, np.inf, 0.0
        first, _ = self.family.search(data.rows, data.y, data.weights, coef, intercept, sharpness=1e-3)
        self.evaluate(self._to_point(coef, intercept, first.multiplier))
        # The best constant model may have risk zero.
        constant = best_constant(problem.loss, data.y, data.masses) if problem.fit_intercept else 0.0
        self.evaluate(self._to_point(np.zeros(m), constant, self.family.floor()))
        unit = 1.0 if problem.is_classification else float(data.masses @ np.abs(t))
        self.trust_radius = max(float(np.abs(self.point * self.scale)[:-1].max()), unit, 1e-300)

    # Points

    def _scale(self) -> FloatArray:
        """Return factors of the variables after which unit steps change the scores alike.

        A feature that hardly varies still matters: the adversary moves it as far as others.
        """
        m, spread = self.data.rows.m, self.bounds.spread
        low, high = self.family.support.spread(m)
        prices = self.family.prices(m)
        priced = np.isfinite(prices)
        width = np.where(np.isfinite(high - low), high - low, self.problem.radius / prices)
        usual = float((spread[priced] * prices[priced]).mean()) if priced.any() else 0.0
        scale = np.maximum(spread, 0.1 * np.where(priced, np.minimum(usual / prices, width), 0.0))
        scale[scale == 0.0] = float(spread.mean()) or 1.0
        ease = float((1.0 / (scale * prices)).mean())
        return np.append(np.tile(scale, self.parts), [1.0, 1.0 / ease if ease > 0.0 else 1.0])

    def _model(self, x: FloatArray) -> tuple[FloatArray, float, float]:
        """Return coefficients, intercept and multiplier of a point."""
        coef = self.coefficients() @ x
        intercept = x[-2] - self.bounds.centre @ coef + self.bounds.middle if self.problem.fit_intercept else 0.0
        return coef, float(intercept), float(x[-1])

    def coefficients(self) -> sp.csr_array:
        """Return the matrix that makes coefficients of a point."""
        m, size = self.data.rows.m, self.scale.size
        first = sp.eye_array(m, size, format="csr")
        return first if self.parts == 1 else first - sp.eye_array(m, size, k=m, format="csr")

    def _to_point(self, coef: FloatArray, intercept: float, multiplier: float) -> FloatArray:
        """Return the point of a model; of split coefficients one part is zero."""
        parts = coef if self.parts == 1 else np.concatenate([np.maximum(coef, 0.0), np.maximum(-coef, 0.0)])
        centred = intercept + self.bounds.centre @ coef - self.bounds.middle
        return np.append(parts, [centred if self.problem.fit_intercept else 0.0, multiplier])

    def _group(self, t: FloatArray) -> None:
        """Give every row of positive mass a group: of rows with similar margins, whose best moves change together."""
        kept = np.flatnonzero(self.data.masses > 0.0)
        self.n_groups = min(kept.size, _MOST_GROUPS)
        self.group = np.full(self.data.rows.n, -1, dtype=np.intp)
        self.group[kept[np.argsort(t[kept], kind="stable")]] = np.arange(kept.size) * self.n_groups // kept.size
        self.largest_group = -(-kept.size // self.n_groups)

    # Planes

    def evaluate(self, x: FloatArray) -> bool:
        """Evaluate the objective at a point; return whether it is the best one or gives a new plane."""
        coef, intercept, multiplier = self._model(x)
        multiplier = max(multiplier, self.family.kappa(coef) * (1.0 + 1e-12))
        x, n_groups, total = self._to_point(coef, intercept, multiplier), self.n_groups, 0.0
        sums = np.zeros((n_groups, x.size)), np.zeros(n_groups), np.zeros((n_groups, x.size))
        for part, block in self.data.rows.dense_blocks():
            kept = np.flatnonzero(self.group[part] >= 0)
            X, y, mass = block[kept], self.data.y[part][kept], self.data.masses[part][kept]
            found = self.family.moves(X, y, coef, intercept, multiplier, points=True, sides=self.parts == 2)
            places = self.group[part][kept], np.arange(kept.size)
            gather = sp.csr_array((mass, places), shape=(n_groups, kept.size))
            for sum_, each in zip(sums, self._tangents(X, y, found), strict=True):
                sum_ += gather @ each
            total += float(mass @ found.upper)
        old, new = self.planes, _Planes(*sums, np.arange(n_groups), np.zeros(n_groups, dtype=np.intp))
        top = np.full(n_groups, -np.inf)
        np.maximum.at(top, old.owner, old.rows @ x + old.offsets)
        height = new.rows @ x + new.offsets
        is_new = height > top + 1e-12 * np.abs(height)
        self.planes = _Planes(*(np.concatenate(pair) for pair in zip(old, new.where(is_new), strict=True)))
        value = self.problem.radius * multiplier + total + self.problem.penalty(coef)
        is_best = value < self.upper
        if is_best:
            self.upper, self.point = value, x
        if self.report is not None:
            self.report(self.lower, self.upper)
        return is_best or bool(is_new.any())

    def _tangents(self, X: FloatArray, y: FloatArray, found: Moves) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return planes below the losses of rows after their moves, less what these cost, and sizes of their terms."""
        centre, loss = self.bounds.centre, self.problem.loss
        if self.parts == 1:
            moved, far = found.X - centre, found.X - X
        else:
            moved = np.hstack([found.rising - centre, centre - found.falling])
            # A model may have some features rise and others fall, so each counts as far as it goes on either side.
            far = np.maximum(np.abs(found.rising - X), np.abs(found.falling - X))
        slope = np.clip(loss.slope(found.signal), *loss.slope_range)
        conjugate = loss.conjugate(slope)
        goal = np.zeros(y.size) if self.problem.is_classification else slope * (self.bounds.middle - y)
        steep = slope * found.label if self.problem.is_classification else slope
        cost = found.cost - found.travel + self.family.lengths(far)
        rows = np.column_stack([moved * steep[:, None], steep, -cost])
        return rows, goal - conjugate, np.column_stack([np.abs(rows[:, :-1]), np.abs(conjugate) + np.abs(goal)])

    # The loop

    def run(self, tol: float, max_iter: int, *, enough: float = np.inf) -> NewtonResult:
        """Close the gap to ``tol`` (relative), or raise the lower bound to ``enough``."""
        best, since, history = np.inf, 0, list[tuple[float, float]]()
        while len(history) < max_iter:
            low = self._bound(tol) if self.upper > self.lower else None
            history.append((self.lower, self.upper))
            gap = self.upper - self.lower
            since, best = (0, gap) if gap < 0.9 * best else (since + 1, best)
            is_stalled = since > _PATIENCE + 2 * self.scale.size
            if low is None or is_stalled or gap <= tol * abs(self.upper) or self.lower >= enough:
                break
            least = max(min(low.value, self.upper), self.lower)
            nearest = self._nearest(0.5 * (least + self.upper))
            if not self.evaluate(nearest) and not self.evaluate(low.x) and not low.is_at_trust_radius:
                break
        return NewtonResult(*self._model(self.point), self.upper, self.lower, self.rounding, history)

    def _bound(self, tol: float) -> _Minimum:
        """Improve the lower bound from the minimum of the planes, remove idle ones, and return the minimum."""
        found = self._minimum()
        mix, off = self._raise(found), self.rounding
        if off > 0.1 * tol * self.upper and self._localise(mix, found):
            self._raise(found)
        if found.is_at_trust_radius:
            self.trust_radius *= 4.0
        idle = np.where(found.mix > 1e-3, 0, self.planes.idle + 1)
        self.planes = self.planes._replace(idle=idle).where(idle <= _IDLE)
        return found

    def _raise(self, found: _Minimum) -> FloatArray:
        """Improve the lower bound by the combined plane; return multipliers for which its gradient is smaller."""
        mix, coef = self._shares(found.mix), self._model(found.x)[0]
        for _ in range(_REPAIRS + 1):
            plane, left = self._mixed(mix, found, -self.problem.ridge * coef)
            known, off = self.bounds.least(plane, coef, self.upper)
            if known - off > self.lower:
                self.lower, self.rounding = known - off, off
            if found.value - known <= 0.05 * (self.upper - found.value):
                break
            for k, side in enumerate(self.open_sides):
                for sign, rates, each in ((1.0, side.up, found.rises), (-1.0, side.down, found.falls)):
                    change = _quotient(sign * left[:-2], rates, -each[k])
                    left[:-2] -= sign * rates * change
                    each[k] = each[k] + change
            mix = self._shares(mix + self._change(mix, left[:, None], left != 0.0)[:, 0])
        return mix

    def _mixed(self, mix: FloatArray, found: _Minimum, wanted: FloatArray) -> tuple[Plane, FloatArray]:
        """Return the plane of multipliers, its moment as near as it can be to one that is wanted, and what is missing.

        Moments are (m,), what is missing of all slopes is (m + 2,).
        """
        planes, m, centre = self.planes, self.data.rows.m, self.bounds.centre
        slope, size = _pairwise(planes.rows, mix), _pairwise(planes.sizes, mix)
        open_moment, spent = np.zeros(m), float(-slope[-1])
        for side, rise, fall in zip(self.open_sides, found.rises, found.falls, strict=True):
            open_moment += side.up * rise - side.down * fall
            spent += type(self.problem.geometry.norm)().value(rise + fall)
        moment = slope[:m] + open_moment
        if self.parts == 2:  # every moment between those of the parts costs as much
            moment = np.clip(wanted, open_moment - slope[m:-2], moment)
        widest = size[:-2].reshape(self.parts, m).max(axis=0) / max(float(size[-2]), 1e-300)
        value, whole = float((mix * planes.offsets).sum()), np.append(moment + centre * slope[-2], slope[-2])
        plane = Plane(value, float(size[-1]), whole, float(size[-2]), spent, widest, self.largest_group)
        return plane, np.append(wanted - moment, [-slope[-2], max(spent - self.problem.radius, 0.0)])

    def _localise(self, mix: FloatArray, found: _Minimum) -> bool:
        """Shrink the region that holds the optimum to where the planes are below the best value; say if that helped.

        Multipliers changed so that their plane rises along one variable bound this variable wherever the objective is
        at most ``upper``: by the least value of the plane without this slope, over the slope.
        """
        m, region, coef = self.data.rows.m, self.bounds.region(self.upper), self._model(found.x)[0]
        scale = np.append(self.scale[:m], self.scale[-2:])
        most = np.append(region.coef, [region.intercept, region.high])
        limits = np.zeros(m + 2)
        for sign in (1.0, -1.0):
            changes = self._change(mix, sign * np.diag(scale), np.ones(m + 2, dtype=bool))
            for j in range(m + 2):
                wanted = -self.problem.ridge * coef
                wanted[j : j + 1] = sign * np.inf if j < m else 0.0
                plane, _ = self._mixed(self._shares(mix + changes[:, j]), found, wanted[:m])
                slopes = np.append(plane.moment, self.problem.radius - plane.spent)
                slopes[:m] -= self.bounds.centre * slopes[m]
                slope, limit = sign * float(slopes[j]), most[j]
                if slope > 0.0:
                    slopes[j] = 0.0
                    slopes[:m] += self.bounds.centre * slopes[m]
                    plane = plane._replace(moment=slopes[:-1], spent=self.problem.radius - float(slopes[-1]))
                    known, off = self.bounds.least(plane, coef, self.upper)
                    limit = max((self.upper * (1.0 + 1e-9) - known + off) / slope, 0.0)
                limits[j] = max(limits[j], min(limit, most[j]))
        return self.bounds.narrow(limits)

    def _shares(self, mix: FloatArray) -> FloatArray:
        """Return multipliers that are not negative and sum to one in each group."""
        mix = np.maximum(mix, 0.0)
        total = np.bincount(self.planes.owner, mix, self.n_groups)
        return mix / np.maximum(total, 1e-300)[self.planes.owner]

    def _change(self, mix: FloatArray, left: FloatArray, asked: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the least changes of the multipliers, relative to their sizes, that add columns of ``left`` to slopes.

        Only the slopes that are ``asked`` for count. Changes are shortened to where a multiplier would be negative.
        """
        m, owner = self.data.rows.m, self.planes.owner
        rows = self.planes.rows / self.scale
        if self.parts == 2:
            rises = left[:m].max(axis=1) > 0.0
            rows = np.hstack([np.where(rises, rows[:, :m], -rows[:, m:-2]), rows[:, -2:]])
        rows, left = rows[:, asked], (left / np.append(self.scale[:m], self.scale[-2:])[:, None])[asked]
        mean = sp.csr_array((mix, (owner, np.arange(owner.size))), shape=(self.n_groups, owner.size)) @ rows
        root = np.sqrt(mix)[:, None] * (rows - mean[owner])
        change = np.sqrt(mix)[:, None] * np.linalg.lstsq(root.T, left, rcond=1e-12)[0]
        shares = np.divide(-mix[:, None], change, out=np.ones_like(change), where=change < 0.0)
        return np.asarray(np.minimum(shares.min(axis=0, initial=1.0), 1.0) * change)

    # Cone programmes

    def _minimum(self) -> _Minimum:
        """Minimise the planes near the best point."""
        master = _Master(self)
        master.program.minimise(master.value)
        found = master.solve(_TIGHT)
        mult = np.maximum(found.multipliers, 0.0)
        # A multiplier of an open side is measured in units of the multiplier of the radius.
        rises, falls = (
            [self.upper * self.scale[-1] * mult[part] for part in parts] for parts in (master.rises, master.falls)
        )
        x, value = master.point(found), self.upper * float(found.value(master.value)[0])
        return _Minimum(x, value, master.is_at_trust_radius(x), mult[master.cuts], rises, falls)

    def _nearest(self, level: float) -> FloatArray:
        """Return the point nearest to the best one where the planes are at most ``level``."""
        master = _Master(self)
        master.program.nonnegative(level / self.upper - master.value)
        master.program.minimise_squares(np.ones(len(master.step)), master.step)
        return master.point(master.solve(_ROUGH))


class _Master:
    """The value of the planes as a cone programme, in units of the best risk and of scaled steps from the best point.

    Its variables: the step, a share of the value for every group, for either open side a number for every coefficient
    that its norm is about, and what the ridge adds.
    """

    def __init__(self, bundle: LevelBundle) -> None:
        problem, planes, unit, here = bundle.problem, bundle.planes, bundle.upper, bundle.point
        self.program, self.here = ConeProgram(), here
        region = bundle.bounds.region(unit)
        far = np.append(np.tile(region.coef, bundle.parts), region.intercept if problem.fit_intercept else 0.0)
        low = np.concatenate([-far[:-1] if bundle.parts == 1 else np.zeros(far.size - 1), -far[-1:], [region.low]])
        self.outer = low, np.append(far, region.high * (1.0 + 1e-9))
        # Over all of the region the programme may be badly scaled.
        near = bundle.trust_radius / bundle.scale
        near[-1] = max(10.0 * near[-1], 0.5 * here[-1])
        self.least, self.most = np.maximum(self.outer[0], here - near), np.minimum(self.outer[1], here + near)
        self.free = np.flatnonzero(self.most - self.least > 1e-14 * (np.abs(self.least) + np.abs(self.most)))
        self.scale = bundle.scale[self.free]
        step = self.step = self.program.variables(self.free.size)
        shares = self.program.variables(bundle.n_groups)
        count = planes.owner.size
        picks = sp.csr_array((np.ones(count), (np.arange(count), planes.owner)), shape=(count, bundle.n_groups))
        heights = step.mapped(planes.rows[:, self.free] / self.scale / unit)
        self.cuts = self.program.nonnegative(
            shares.mapped(picks) - heights - (planes.rows @ here + planes.offsets) / unit
        )
        self.program.nonnegative(step - self.scale * (self.least - here)[self.free])
        self.program.nonnegative(self.scale * (self.most - here)[self.free] - step)
        change = step.mapped(sp.diags_array(1.0 / self.scale))
        to_coef, rate = bundle.coefficients(), np.zeros((1, here.size))
        coef = change.mapped(to_coef[:, self.free]) + to_coef @ here
        rate[0, -1] = 1.0
        lam = change.mapped(rate[:, self.free]) + here[-1:]
        self.value = problem.radius / unit * lam + shares.mapped(np.ones((1, bundle.n_groups)))
        if problem.ridge > 0.0:  # v'v <= 2 q is |(v, q - 1/2)| <= q + 1/2
            square, m = self.program.variables(1), len(coef)
            last = np.eye(m + 1)[:, -1:]
            root = (problem.ridge / unit) ** 0.5 * coef
            self.program.second_order(square + 0.5, root.mapped(np.eye(m + 1, m)) + (square - 0.5).mapped(last))
            self.value = self.value + square
        self.rises, self.falls = list[Rows](), list[Rows]()
        for side in bundle.open_sides:
            self._bound_multiplier(problem.geometry.norm, side, bundle.scale[-1] * coef, bundle.scale[-1] * lam)

    def _bound_multiplier(self, norm: Norm, side: OpenSide, coef: Affine, lam: Affine) -> None:
        """Constrain the multiplier to be at least the norm of the coefficients that lead to an open side."""
        part = self.program.variables(len(coef))
        self.rises.append(self.program.nonnegative(part - side.up * coef))
        self.falls.append(self.program.nonnegative(part + side.down * coef))
        if isinstance(norm, L2Norm):
            self.program.second_order(lam, part)
        elif isinstance(norm, L1Norm):
            self.program.nonnegative(lam.spread(len(part)) - part)
        else:
            self.program.nonnegative(lam - part.mapped(np.ones((1, len(part)))))

    def solve(self, tol: float) -> ConeSolution:
        """Solve the programme; an inaccurate solution is useful too, as the validity of no bound depends on it."""
        return self.program.solve(tol=tol, loose_tol=_ROUGH, max_iter=200)

    def point(self, found: ConeSolution) -> FloatArray:
        """Return the point of a solution, between its limits."""
        x = self.here.copy()
        x[self.free] += np.nan_to_num(found.value(self.step)) / self.scale
        return np.clip(x, self.least, self.most)

    def is_at_trust_radius(self, x: FloatArray) -> bool:
        """Whether a point is as far from the best one as it may be."""
        edge = 1e-3 * (self.most - self.least)
        below = (x - self.least < edge) & (self.least > self.outer[0])
        above = (self.most - x < edge) & (self.most < self.outer[1])
        return bool((below | above)[self.free].any())


def _pairwise(rows: FloatArray, mix: FloatArray) -> FloatArray:
    """Return ``mix @ rows`` with the error of a pairwise sum."""
    return np.asarray((np.ascontiguousarray(rows.T) * mix).sum(axis=1))


def _quotient(a: FloatArray, b: FloatArray, least: FloatArray) -> FloatArray:
    """Return ``a / b``, not below ``least``; 0 where ``b`` is."""
    return np.where(b > 0.0, np.maximum(np.divide(a, b, out=np.zeros_like(a), where=b > 0.0), least), 0.0)
