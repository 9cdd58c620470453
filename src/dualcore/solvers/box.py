"""Training on a box support: a level bundle method on the exact risk, which never builds an auxiliary per feature.

The objective ``sigma lam + sum_i w_i h_i(theta, b, lam) + ridge`` is jointly convex. One pass over the rows at a point gives, for
each of a few dozen groups of rows, a plane below the group's share of it: the best moves at that point are moves at every
other. The planes' minimum over a region that must hold the optimum is a rigorous lower bound, and the next point is the
nearest to the best so far at which the planes promise a given share of the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.boxform import BoxForm
from dualcore.geometry import FloatArray
from dualcore.problem import Data, Problem
from dualcore.solvers.base import Iterate, RawSolution, Solver
from dualcore.solvers.cones import Affine, ConeProgram
from dualcore.solvers.structured import StructuredSolver

__all__ = ["BoxSolver"]

_MOST_GROUPS = 48
# How much of the gap each step asks the planes to promise.
_LEVEL = 0.3
# Planes that have not carried the bound for this many steps are dropped.
_IDLE = 12


class BoxSolver(Solver):
    """Level bundle method for problems with a support: O(n + m) memory beyond the rows."""

    name = "box"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if problem.box is None:
            return "BoxSolver is for problems with a support. Use solver='structured'."
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        if problem.box is None:
            raise ValueError("BoxSolver is for problems with a support.")
        open_problem = problem.replace(support=None)
        open_solver = StructuredSolver()
        if start is None:
            found = open_solver.run(open_problem, data, tol=max(tol, 1e-4), max_iter=max_iter, start=None)
            start = found.coef, found.intercept
        return _Bundle(problem, problem.box, data, start).run(tol, max_iter)


@dataclass(frozen=True)
class _Region:
    """A box that holds every model at least as good as the one known, in centred features."""

    coef: FloatArray
    level: float
    low: float
    high: float


def _region(problem: Problem, box: BoxForm, data: Data, centre: FloatArray, upper: float) -> _Region:
    r"""Bound coefficients, centred intercept and multiplier of every model whose risk is at most ``upper``.

    With ``L(t) >= alpha |t| - beta`` on the steep sides: an adversary who sends a share ``epsilon = min(1, sigma / D)`` of the mass
    across the box makes the loss grow with ``sum_j |theta_j| width_j / 2``; a feature without a wall is held by
    ``lam >= Lip |theta_j|``; the intercept by the mean loss of a class, or of all.
    """
    m, w, sigma = data.rows.m, data.masses, problem.radius
    alpha, beta = _growth(problem)
    low, high = box.support.spread(m)
    width = high - low
    prices = np.ones(m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights
    movable = np.isfinite(prices)
    walled = movable & np.isfinite(width) & (width > 0.0)
    bound = np.where(width > 0.0, np.inf, 0.0)  # a constant feature does nothing that the intercept does not
    rates = [rate for rate, _ in box.runaway(np.zeros(m))]
    runs = movable & np.isinf(width)
    bound[runs] = upper / sigma * prices[runs] / min(rates)
    span = problem.geometry.norm.value(np.where(walled, width, 0.0))
    share = min(1.0, sigma / span) if span > 0.0 else 1.0
    if problem.is_classification:
        sides = [data.y > 0.0, data.y < 0.0]
        mass = [float(w[side].sum()) for side in sides]
        means = np.array([data.rows.transpose_dot(np.where(side, w, 0.0)) / part for side, part in zip(sides, mass, strict=True)])
        both = 2.0 * min(mass)
        apart = 0.5 * np.abs(means[0] - means[1])
        sway = float(apart[runs] @ bound[runs])
        reach = 2.0 * ((upper / (share * both) + beta) / alpha + sway)
    else:
        mass, means = [1.0], data.rows.transpose_dot(w)[None, :]
        reach = 2.0 * (upper / share + beta) / alpha
    bound[walled] = reach / width[walled]
    if problem.ridge > 0.0:
        bound = np.minimum(bound, np.sqrt(2.0 * upper / problem.ridge))
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


class _Bundle:
    """The planes, the point of least objective, and the region."""

    def __init__(self, problem: Problem, box: BoxForm, data: Data, start: tuple[FloatArray, float]) -> None:
        self.problem, self.box, self.data = problem, box, data
        w, m = data.masses, data.rows.m
        self.centre = data.rows.transpose_dot(w) if problem.fit_intercept else np.zeros(m)
        squares = np.zeros(m)
        for part, block in data.rows.blocks():
            X = np.asarray(block.toarray() if sp.issparse(block) else block)
            squares += w[part] @ (X - self.centre) ** 2
        spread = np.sqrt(squares)
        self.scale = np.append(np.where(spread > 0.0, spread, 1.0), [1.0, float(spread.mean()) or 1.0])
        coef, intercept = start
        t = problem.signal(coef, intercept, data)
        groups = min(_MOST_GROUPS, data.rows.n)
        # Rows of like margin turn at like places, so that one plane serves a group of them for long.
        self.group = np.empty(data.rows.n, dtype=np.intp)
        self.group[np.argsort(t, kind="stable")] = np.arange(data.rows.n) * groups // data.rows.n
        self.n_groups = groups
        self.planes = np.empty((0, m + 2))
        self.offsets = np.empty(0)
        self.owner = np.empty(0, dtype=np.intp)
        self.idle = np.empty(0, dtype=np.intp)
        self.gates = np.empty((0, m + 2))
        self.best = np.append(self.scale[:m] * coef, [intercept + self.centre @ coef, 0.0])
        self.upper, self.lower = np.inf, -np.inf

    def model(self, x: FloatArray) -> tuple[FloatArray, float, float]:
        """Return coefficients, intercept and multiplier in the units of the data."""
        m = self.data.rows.m
        coef = x[:m] / self.scale[:m]
        return coef, float(x[m] - self.centre @ coef), float(x[m + 1] / self.scale[m + 1])

    def run(self, tol: float, max_iter: int) -> RawSolution:
        problem, history = self.problem, []
        coef, intercept, _ = self.model(self.best)
        first = max(self.box.kappa(coef), problem.loss.lipschitz * problem.geometry.norm.dual(coef))
        x = self.best.copy()
        x[-1] = first * self.scale[-1]
        self.look(x)
        region = _region(problem, self.box, self.data, self.centre, self.upper)
        self.limits = np.concatenate([region.coef, [region.level, region.high]]) * self.scale
        self.floor = region.low * self.scale[-1]
        count = 0
        for count in range(1, 5 * max_iter + 1):
            self.bound()
            gap = self.upper - self.lower
            history.append(Iterate(count, self.upper, gap))
            if gap <= 0.5 * tol * abs(self.upper):
                break
            self.look(self.step(self.lower + _LEVEL * gap))
        coef, intercept, _ = self.model(self.best)
        return RawSolution(
            coef, intercept, None, count, tuple(history), stopped_early=gap > tol * abs(self.upper), lower=self.lower
        )

    def look(self, x: FloatArray) -> None:
        """Evaluate the objective at a point: a plane for every group, and perhaps a better point."""
        problem, box, m = self.problem, self.box, self.data.rows.m
        coef, intercept, multiplier = self.model(x)
        kappa = box.kappa(coef)
        if multiplier < kappa:
            for rate, part in box.runaway(coef):
                if rate * problem.geometry.norm.dual(part) > multiplier:
                    gate = np.append(rate * problem.geometry.norm.steepest(part), [0.0, -1.0]) / self.scale
                    self.gates = np.vstack([self.gates, gate])
            multiplier = kappa * (1.0 + 1e-12)
            x = x.copy()
            x[-1] = multiplier * self.scale[-1]
        planes, values = np.zeros((self.n_groups, m + 2)), np.zeros(self.n_groups)
        total = 0.0
        w = self.data.masses
        for part, found in box.sweep(self.data.rows, self.data.y, coef, intercept, multiplier, points=True):
            slope = problem.loss.slope(found.signal) * (found.label if problem.is_classification else 1.0)
            table = np.column_stack([(found.X - self.centre) * slope[:, None], slope, -found.cost])
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
            self.upper, self.best = value, x

    def program(self) -> tuple[ConeProgram, Affine, Affine, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the planes as constraints on a point ``x`` and the groups' shares."""
        program = ConeProgram()
        x, share = program.variables(self.limits.size), program.variables(self.n_groups)
        pick = sp.csr_array(
            (np.ones(self.owner.size), (np.arange(self.owner.size), self.owner)), shape=(self.owner.size, self.n_groups)
        )
        above = program.nonnegative(share.mapped(pick) - x.mapped(self.planes) - self.offsets)
        gates = np.empty(0, dtype=np.int64)
        if self.gates.size:
            gates = program.nonnegative(-x.mapped(self.gates))
        least = -self.limits
        least[-1] = self.floor
        program.nonnegative(self.limits - x)
        program.nonnegative(x - least)
        return program, x, share, above, gates

    def price(self, x: Affine, share: Affine) -> Affine:
        """Return ``sigma lam`` plus the groups' shares."""
        row = np.zeros((1, self.limits.size))
        row[0, -1] = self.problem.radius / self.scale[-1]
        return share.mapped(np.ones((1, self.n_groups))) + x.mapped(row)

    def bound(self) -> None:
        """Raise the lower bound: the planes' minimum, recomputed from its multipliers so that it holds to the last digit."""
        program, x, share, above, gates = self.program()
        program.minimise(self.price(x, share))
        m = self.data.rows.m
        if self.problem.ridge > 0.0:
            program.minimise_squares(np.append(self.problem.ridge / self.scale[:m] ** 2, np.zeros(2)), x)
        found = program.solve(tol=1e-10, loose_tol=1e-6, max_iter=100)
        mix = np.maximum(found.multipliers[above], 0.0)
        total = np.bincount(self.owner, mix, self.n_groups)
        mix /= np.where(total > 0.0, total, 1.0)[self.owner]
        if (total > 0.0).all():
            slope = mix @ self.planes
            slope[-1] += self.problem.radius / self.scale[-1]
            if gates.size:
                slope += np.maximum(found.multipliers[gates], 0.0) @ self.gates
            self.lower = max(self.lower, float(mix @ self.offsets) + self._least(slope))
        self.idle = np.where(mix > 1e-7, 0, self.idle + 1)
        keep = self.idle <= _IDLE
        self.planes, self.offsets = self.planes[keep], self.offsets[keep]
        self.owner, self.idle = self.owner[keep], self.idle[keep]

    def _least(self, slope: FloatArray) -> float:
        """Return the minimum of ``slope . x`` plus the ridge over the region."""
        m, limits = self.data.rows.m, self.limits
        curve = np.append(self.problem.ridge / self.scale[:m] ** 2, [0.0, 0.0])
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(slope == 0.0, 0.0, -slope / curve)
        at = np.clip(np.nan_to_num(at, nan=0.0), -limits, limits)
        at[-1] = self.floor if slope[-1] > 0.0 else limits[-1]
        return float(slope @ at + 0.5 * curve @ (at * at))

    def step(self, level: float) -> FloatArray:
        """Return the point nearest to the best one where the planes and the ridge promise at most ``level``."""
        program, x, share, _, _ = self.program()
        m, budget = self.data.rows.m, level - self.price(x, share)
        if self.problem.ridge > 0.0:
            root = np.sqrt(0.5 * self.problem.ridge) / self.scale[:m]
            inside = x.mapped(sp.csr_array((root, (np.arange(m), np.arange(m))), shape=(m, m + 2)))
            # |v|^2 <= budget as a cone: |(2 v, budget - 1)| <= budget + 1
            program.second_order(budget + 1.0, _stack(2.0 * inside, budget - 1.0))
        else:
            program.nonnegative(budget)
        program.minimise_squares(np.ones(m + 2), x)
        program.minimise(x.mapped(-self.best[None, :]))
        found = program.solve(tol=1e-9, loose_tol=1e-5, max_iter=100)
        least = -self.limits
        least[-1] = self.floor
        return np.clip(found.value(x), least, self.limits)


def _stack(first: Affine, last: Affine) -> Affine:
    """Return two expressions as one vector."""
    a, b = len(first), len(last)
    top = sp.csr_array((np.ones(a), (np.arange(a), np.arange(a))), shape=(a + b, a))
    bottom = sp.csr_array((np.ones(b), (np.arange(a, a + b), np.arange(b))), shape=(a + b, b))
    return first.mapped(top) + last.mapped(bottom)
