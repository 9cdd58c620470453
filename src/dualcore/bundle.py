"""A bundle of planes below the worst-case risk on a box: its minimum is a rigorous lower bound.

The objective ``sigma lam + sum_i w_i h_i(theta, b, lam) + ridge`` is jointly convex. One pass over the rows at a point
gives, for each of a few groups of rows, a plane below the group's share of it: the best moves at that point are
moves at every other. The planes' minimum over a region that must hold the optimum bounds it from below, and the next
point to look at is the nearest to the best so far where the planes promise some share of the gap (a level method).

With linf a feature moves along with the others for nothing, whatever the sign of its coefficient: the objective has an
edge wherever a coefficient is zero, and planes would have to learn every pattern of signs. There the coefficients are
split, ``theta = theta+ - theta-``, and a plane lets either part earn its own move. It stays below: at a model one part
of each feature is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.boxform import BoxForm
from dualcore.geometry import FloatArray
from dualcore.problem import Data, Problem

__all__ = ["Bundle", "unbounded_features"]

# Measured: more groups need fewer passes but dearer programs; these are about even at 20,000 rows.
_MOST_GROUPS = 8
# Which share of the gap the next step asks for: at first, at least, at most. A step that yields enough of what it asked
# for lets the next ask for more: a level far below what can be had sends the model far away.
_ASK, _LEAST_ASK, _MOST_ASK = 0.4, 0.02, 0.9
_ENOUGH = 0.3
# Features that vary less than this share of the mean are scaled as if they varied so much.
_LEAST_SPREAD = 0.1
# Steps without a smaller gap after which rounding is to blame, and as many more as there are variables: before it has
# seen a slope for each a bundle knows next to nothing.
_STALLED = 40
# Planes that have not carried the bound for this many steps, or one for every other variable, are dropped.
_IDLE = 10


class _Region(NamedTuple):
    """A box that holds every model at least as good as the one known, in centred features."""

    coef: FloatArray
    level: float
    low: float
    high: float


def _region(problem: Problem, box: BoxForm, data: Data, centre: FloatArray, upper: float) -> _Region:
    r"""Bound coefficients, centred intercept and multiplier of every model whose risk is at most ``upper``.

    With ``L(t) >= alpha |t| - beta`` on the steep sides: an adversary who sends a share ``min(1, sigma / D)`` of the
    mass across the box (``D`` its size) makes the loss grow with ``sum_j |theta_j| width_j / 2``; a feature without a
    wall is held by ``lam >= Lip |theta_j|``; the intercept by the mean loss of a class, or of all.
    """
    m, w, sigma = data.rows.m, data.masses, problem.radius
    alpha, beta = _growth(problem)
    low, high = box.support.spread(m)
    width = high - low
    prices = np.ones(m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights
    movable = np.isfinite(prices)
    walled = movable & np.isfinite(width) & (width > 0.0)
    # A constant feature does nothing that an intercept does not.
    bound = np.where((width > 0.0) | (not problem.fit_intercept), np.inf, 0.0)
    rates = [rate for rate, _ in box.runaway(np.zeros(m))]
    runs = movable & np.isinf(width)
    bound[runs] = upper / sigma * prices[runs] / min(rates)
    held = np.sqrt(2.0 * upper / problem.ridge) if problem.ridge > 0.0 else np.inf
    bound = np.minimum(bound, held)
    span = problem.geometry.norm.value(np.where(walled, width, 0.0))
    share = min(1.0, sigma / span) if span > 0.0 else 1.0
    if problem.is_classification:
        sides = [data.y > 0.0, data.y < 0.0]
        mass = [float(w[side].sum()) for side in sides]
        means = np.array(
            [data.rows.transpose_dot(np.where(side, w, 0.0)) / part for side, part in zip(sides, mass, strict=True)]
        )
        both = 2.0 * min(mass)
        apart = 0.5 * np.abs(means[0] - means[1])
        others = ~walled & (bound > 0.0)
        sway = float(apart[others] @ bound[others])
        reach = 2.0 * ((upper / (share * both) + beta) / alpha + sway)
    else:
        mass, means = [1.0], data.rows.transpose_dot(w)[None, :]
        reach = 2.0 * (upper / share + beta) / alpha
    bound[walled] = np.minimum(reach / width[walled], held)
    level = 0.0
    if problem.fit_intercept:
        off = np.abs(means - centre)
        swings = np.array([float(row[row > 0.0] @ bound[row > 0.0]) for row in off])
        level = float(np.max((upper / np.array(mass) + beta) / alpha + swings))
        if not problem.is_classification:
            level += abs(float(w @ data.y))
    return _Region(bound, level, box.floor(), upper / sigma)


def _growth(problem: Problem) -> tuple[float, float]:
    """Return ``alpha > 0`` and ``beta`` with ``L(t) >= alpha |t| - beta`` on the sides where the loss rises."""
    loss, far = problem.loss, 1.0
    sides = (-1.0,) if problem.is_classification else (-1.0, 1.0)
    while True:
        points = np.array([side * far for side in sides])
        value, slope = loss.value(points), loss.slope(points) * points / far
        if float(slope.min()) > 0.25 * min(abs(end) for end in loss.slope_range if end) or far > 1e12:
            return float(slope.min()), float(np.max(slope * far - value))
        far *= 2.0


class Bundle:
    """The planes, the best point seen, and the two bounds.

    Parameters
    ----------
    problem : Problem
        With a support and a positive radius.
    data : Data
    coef, intercept
        Where to begin; a good start saves passes.
    floor : float, default=0.0
        A lower bound that is known.

    Attributes
    ----------
    lower, upper : float
        Of the optimal objective, ridge included; ``upper`` is met at the model `best` returns.
    history : list of (lower, upper)
        One pair a pass.
    """

    def __init__(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, *, floor: float = 0.0) -> None:
        if problem.box is None or problem.radius == 0.0:
            raise ValueError("a bundle is for problems with a support and a positive radius")
        self.problem, self.box, self.data = problem, problem.box, data
        w, m = data.masses, data.rows.m
        self.centre = data.rows.transpose_dot(w) if problem.fit_intercept else np.zeros(m)
        # Unit steps of the scaled variables move the scores alike. A feature that hardly varies is felt through the
        # adversary, who moves it as others.
        spread = np.sqrt(_mean_squares(data, self.centre))
        typical = float(spread.mean()) or 1.0
        self.parts = 2 if self.box.is_free else 1
        units = np.tile(np.maximum(spread, _LEAST_SPREAD * typical), self.parts)
        self.scale = np.append(units, [1.0, typical])
        t = problem.signal(coef, intercept, data)
        # Rows of like margin turn at like places, so that one plane serves a group of them for long.
        self.n_groups = min(_MOST_GROUPS, data.rows.n)
        self.group = np.empty(data.rows.n, dtype=np.intp)
        self.group[np.argsort(t, kind="stable")] = np.arange(data.rows.n) * self.n_groups // data.rows.n
        self.planes, self.gates = np.empty((0, self.scale.size)), np.empty((0, self.scale.size))
        self.offsets = np.empty(0)
        self.owner, self.idle = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        self.lower, self.upper = floor, np.inf
        self.history: list[tuple[float, float]] = []
        first = max(self.box.kappa(coef), problem.loss.lipschitz * problem.geometry.norm.dual(coef))
        self.point = self.place(coef, intercept, first)
        self.look(self.point)
        region = _region(problem, self.box, data, self.centre, self.upper)
        bound = np.tile(region.coef, self.parts)
        self.most = np.append(bound, [region.level, region.high]) * self.scale
        self.least = (
            np.append(-bound if self.parts == 1 else np.zeros_like(bound), [-region.level, region.low]) * self.scale
        )

    @property
    def best(self) -> tuple[FloatArray, float, float]:
        """Coefficients, intercept and multiplier of the best point seen."""
        return self.model(self.point)

    def model(self, x: FloatArray) -> tuple[FloatArray, float, float]:
        """Return coefficients, intercept and multiplier in the units of the data."""
        m = self.data.rows.m
        parts = x[:-2] / self.scale[:-2]
        coef = parts if self.parts == 1 else parts[:m] - parts[m:]
        return coef, float(x[-2] - self.centre @ coef), float(x[-1] / self.scale[-1])

    def place(self, coef: FloatArray, intercept: float, multiplier: float) -> FloatArray:
        """Return the point of a model: scaled, centred, of split coefficients one part zero."""
        parts = coef if self.parts == 1 else np.concatenate([np.maximum(coef, 0.0), np.maximum(-coef, 0.0)])
        return np.asarray(np.append(parts, [intercept + self.centre @ coef, multiplier]) * self.scale)

    def run(self, tol: float, max_iter: int, *, enough: float = -np.inf) -> int:
        """Close the gap to ``tol`` (relative), or raise the lower bound to ``enough``; return how many passes."""
        # A risk of zero cannot be approached relatively: the empty model's says what counts as none.
        empty = self.problem.evaluate(np.zeros(self.data.rows.m), 0.0, self.data).value
        best, since, ask = np.inf, 0, _ASK
        for count in range(max_iter):
            self.bound()
            self.history.append((self.lower, self.upper))
            gap = self.upper - self.lower
            since = 0 if gap < 0.99 * best else since + 1
            best = min(best, gap)
            close = gap <= tol * max(abs(self.upper), 1e-3 * abs(empty))
            if close or self.lower >= enough > -np.inf or since > _STALLED + self.most.size:
                return count + 1
            upper = self.upper
            self.look(self.step(upper - ask * gap))
            ask = min(2.0 * ask, _MOST_ASK) if upper - self.upper >= _ENOUGH * ask * gap else max(0.5 * ask, _LEAST_ASK)
        return max_iter

    def look(self, x: FloatArray) -> None:
        """Evaluate the objective at a point: a plane for every group, and perhaps a better point."""
        problem, box = self.problem, self.box
        coef, intercept, multiplier = self.model(x)
        kappa = box.kappa(coef)
        if multiplier < kappa:
            for rate, loose in box.runaway(coef):
                if rate * problem.geometry.norm.dual(loose) > multiplier:
                    steepest = rate * problem.geometry.norm.steepest(loose)
                    gate = steepest if self.parts == 1 else np.append(steepest, -steepest)
                    self.gates = np.vstack([self.gates, np.append(gate, [0.0, -1.0]) / self.scale])
            multiplier = kappa * (1.0 + 1e-12)
        x = self.place(coef, intercept, multiplier)
        planes, values = np.zeros((self.n_groups, x.size)), np.zeros(self.n_groups)
        total = 0.0
        w = self.data.masses
        for part, found in box.sweep(self.data.rows, self.data.y, coef, intercept, multiplier, points=True):
            slope = problem.loss.slope(found.signal) * (found.label if problem.is_classification else 1.0)
            moved = found.X - self.centre
            if self.parts == 2:
                moved = np.hstack([found.rising - self.centre, self.centre - found.falling])
            table = np.column_stack([moved * slope[:, None], slope, -found.cost])
            group, mass = self.group[part], w[part]
            chooser = sp.csr_array((mass, (group, np.arange(group.size))), shape=(self.n_groups, group.size))
            planes += chooser @ table
            values += chooser @ found.lower
            total += float(mass @ found.upper)
        planes /= self.scale
        self.planes = np.vstack([self.planes, planes])
        self.offsets = np.append(self.offsets, values - planes @ x)
        self.owner = np.append(self.owner, np.arange(self.n_groups))
        self.idle = np.append(self.idle, np.zeros(self.n_groups, dtype=np.intp))
        value = problem.radius * multiplier + total + problem.penalty(coef)
        if value < self.upper:
            self.upper, self.point = value, x

    def bound(self) -> None:
        """Raise the lower bound to the planes' minimum.

        It is computed anew from the multipliers, so it holds however far the program was solved.
        """
        curve = self._curve()
        cost = np.concatenate([np.zeros(self.most.size), np.ones(self.n_groups)])
        cost[self.most.size - 1] = self.problem.radius / self.scale[-1]
        found = self._solve(np.append(curve, np.zeros(self.n_groups)), cost, least=1e-10)
        n, k = self.owner.size, self.gates.shape[0]
        mix = np.maximum(np.asarray(found.z[:n]), 0.0)
        total = np.bincount(self.owner, mix, self.n_groups)
        if (total > 0.0).all() and np.isfinite(total).all():
            mix /= total[self.owner]
            slope = mix @ self.planes + np.maximum(np.asarray(found.z[n : n + k]), 0.0) @ self.gates
            slope[-1] += self.problem.radius / self.scale[-1]
            self.lower = max(self.lower, float(mix @ self.offsets) + self._least(slope, curve))
        self.idle = np.where(mix > 1e-7, 0, self.idle + 1)
        keep = self.idle <= max(_IDLE, self.most.size // 2)
        self.planes, self.offsets = self.planes[keep], self.offsets[keep]
        self.owner, self.idle = self.owner[keep], self.idle[keep]

    def step(self, level: float) -> FloatArray:
        """Return the point nearest to the best one where planes and ridge promise at most ``level``."""
        size, groups = self.most.size, self.n_groups
        promise = np.concatenate([np.zeros(size), np.ones(groups)])
        promise[size - 1] = self.problem.radius / self.scale[-1]
        rows, right, cones = promise[None, :], np.array([level]), [clarabel.NonnegativeConeT(1)]
        if self.problem.ridge > 0.0:
            # |v|^2 <= budget with budget = level - promise . x, as a cone: |(2 v, budget - 1)| <= budget + 1
            root = np.hstack([np.diag(np.sqrt(0.5 * self._curve())), np.zeros((size, groups))])
            rows = np.vstack([promise, promise, -2.0 * root])
            right = np.concatenate([[level + 1.0, level - 1.0], np.zeros(size)])
            cones = [clarabel.SecondOrderConeT(size + 2)]
        curve = np.concatenate([np.ones(size), np.zeros(groups)])
        cost = np.concatenate([-self.point, np.zeros(groups)])
        found = self._solve(curve, cost, least=1e-9, extra=(rows, right, cones))
        x = np.asarray(found.x[:size])
        return np.clip(x, self.least, self.most) if np.isfinite(x).all() else self.point

    def _curve(self) -> FloatArray:
        """Second derivative of the ridge in the scaled variables."""
        return np.append(self.problem.ridge / self.scale[:-2] ** 2, [0.0, 0.0])

    def _solve(
        self,
        curve: FloatArray,
        cost: FloatArray,
        *,
        least: float,
        extra: tuple[FloatArray, FloatArray, list[Any]] | None = None,
    ) -> Any:
        """Minimise over points in the region and the groups' shares above their planes; planes and gates come first."""
        size, n = self.most.size, self.owner.size
        shares = sp.csr_array((-np.ones(n), (np.arange(n), self.owner)), shape=(n, self.n_groups))
        walls = np.vstack([self.gates, np.eye(size), -np.eye(size)])
        blocks = [[sp.csr_array(self.planes), shares], [sp.csr_array(walls), None]]
        right = [-self.offsets, np.zeros(self.gates.shape[0]), self.most, -self.least]
        cones = [clarabel.NonnegativeConeT(n + walls.shape[0])]
        left = sp.block_array(blocks)
        if extra is not None:
            left, cones = sp.vstack([left, sp.csr_array(extra[0])]), cones + extra[2]
            right.append(extra[1])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = 100
        # Far from the optimum rough planes do: the bound holds all the same, and the point need not be exact.
        gap = (self.upper - self.lower) / max(abs(self.upper), 1e-300)
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(least, min(1e-4, 1e-4 * gap))
        if hasattr(settings, "max_threads"):  # since Clarabel 0.10
            settings.max_threads = 1
        square = sp.csc_matrix(sp.diags_array(curve))
        return clarabel.DefaultSolver(square, cost, sp.csc_matrix(left), np.concatenate(right), cones, settings).solve()

    def _least(self, slope: FloatArray, curve: FloatArray) -> float:
        """Return the minimum of ``slope . x`` plus the ridge over the region."""
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(slope == 0.0, 0.0, -slope / curve)
        at = np.clip(at, self.least, self.most)
        return float(slope @ at + 0.5 * curve @ (at * at))


def _mean_squares(data: Data, centre: FloatArray) -> FloatArray:
    """Return the weighted mean square of every centred column."""
    out = np.zeros(data.rows.m)
    for part, X in data.rows.dense_blocks():
        out += data.masses[part] @ (X - centre) ** 2
    return out


def unbounded_features(problem: Problem, n_features: int) -> npt.NDArray[np.bool_]:
    """Return which coefficients nothing bounds: without ridge, those of features that no adversary can move."""
    if problem.box is None or problem.ridge > 0.0:
        return np.zeros(n_features, dtype=bool)
    low, high = problem.box.support.spread(n_features)
    prices = problem.geometry.norm.weights
    held = np.zeros(n_features, dtype=bool) if prices is None else np.isinf(prices)
    return np.where(low == high, not problem.fit_intercept, held)
