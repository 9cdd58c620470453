"""The optimum where the adversary changes categories, and a bound on it, by an interior point on a few atoms a row.

Over the atoms known so far (`AtomSet`), the row's own place among them, the problem is a convex programme,

    min  radius lam + sum_i w_i s_i + penalty   with   s_i >= L(t_a) - lam c_a  for every atom a of row i ,

and a primal-dual method follows its central path: a predictor and a corrector a step, from one factor of the size of
the model, as the ``s_i`` are eliminated row by row. A pass over the rows now and then adds the atoms that the model
asks for. The multipliers are a distribution inside the ball, and with the slopes of the loss they make a plane below
the risk of every model. Its least value in the region that must hold the optimum is a rigorous lower bound. Slopes are
moved a little so that their moment balances; what is left of it is priced by the region.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.atomset import AtomSet, Heights, Limits
from dualcore.certificates.plane import NewtonResult
from dualcore.certificates.psd import DampedFactor
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily

__all__ = ["can_use_atoms", "run_atoms"]

# The first complementarity, relative to the risk, and the share left of it when the next pass over the rows is due.
_FIRST, _WAIT = 0.3, 0.3
# How far above its limits the multiplier begins, by what it costs, relative to the risk.
_ABOVE = 0.1
# The last complementarity, relative to the tolerance: less would only make new atoms harder to take up.
_LAST = 0.2
_MOST_STEPS, _PATIENCE = 200, 5
# Share of the way to the nearest limit that a step takes, and of the room that curvature may take from it.
_NEAR, _KEPT = 0.98, 0.5
# Of the mass of rows with several atoms, the share whose multipliers may take less of a step than the model does: a few
# rows in thousands would hold all others back.
_LEFT = 0.003
# New atoms are higher than what is known by this share of the mean complementarity.
_HIGHER = 0.1
# Complementarity, relative to the tolerance, from which on bounds are computed.
_CLOSE = 2.0
# Where a model is far worse than the best one, this share of the way to it is taken.
_BACK = 0.1
# Atoms with less than this share are forgotten where there are many numbers in them.
_LEAST_SHARE, _MOST_NUMBERS = 1e-6, 20_000_000
# Fewer numbers than these are quick by planes.
_FEW_NUMBERS = 1000
# How near the first multiplier is to the best one, by the risk.
_SHARPNESS = 1e-3


def can_use_atoms(problem: Problem, data: Data) -> bool:
    """Whether there are categories, some data, a loss without kinks, and no number with a wall on one side only."""
    small = data.rows.n * data.rows.m < _FEW_NUMBERS
    if problem.geometry.categories is None or small or problem.loss.kinks:
        return False
    low, high = BoxFamily.of(problem.family).support.spread(data.rows.m)
    half = np.isfinite(low) != np.isfinite(high)
    return not half.any()


class _Point(NamedTuple):
    """A place on the way: the model, the rows' values, and the multipliers of atoms and limits."""

    x: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray


class _Direction(NamedTuple):
    """A change of a point, and those of what must stay positive: rooms of atoms and of limits, to first order."""

    x: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray
    gap: FloatArray
    room: FloatArray


def _way(at: FloatArray, change: FloatArray) -> FloatArray:
    """Return the share of a change that leaves what is positive so; at most 1."""
    return np.divide(-_NEAR * at, change, out=np.ones(at.size), where=change < -_NEAR * at)


class _System:
    """Newton's equations at a point, factored."""

    def __init__(self, atoms: AtomSet, point: _Point, masses: FloatArray, soft: float) -> None:
        self.atoms, self.point, self.masses = atoms, point, masses
        self.heights, self.limits = atoms.heights(point.x), atoms.limits(point.x, soft)
        self.gap = point.s[atoms.owner] - self.heights.value
        self.stiff = point.z / self.gap
        self.total = atoms.total(self.stiff)
        self.pulled = self._pulled()
        self.free = atoms.free
        self.factor = DampedFactor(self._matrix()[np.ix_(self.free, self.free)])

    def _pulled(self) -> FloatArray:
        """Return the sum of stiffness times gradient of every row's atoms; no more is needed of rows with one atom."""
        atoms, n, m = self.atoms, self.atoms.n, self.atoms.m
        self.rows = np.unique(atoms.moved)
        place = np.empty(n, dtype=np.intp)
        place[self.rows] = np.arange(self.rows.size)
        pull = self.stiff * self.heights.slope
        out = np.zeros((self.rows.size, atoms.width + 2))
        out[:, :m] = atoms.dense(self.rows) * pull[self.rows][:, None]
        at = place[atoms.moved]
        chosen = sp.csr_array((pull[n:], (at, np.arange(at.size))), shape=(self.rows.size, at.size))
        out[:, :-2] += chosen @ atoms.X
        out[:, -2] = atoms.total(pull)[self.rows]
        out[:, -1] = -atoms.total(self.stiff * atoms.costs)[self.rows]
        return out

    def _matrix(self) -> FloatArray:
        atoms, heights, z = self.atoms, self.heights, self.point.z
        weight = z * heights.bent
        shared = np.ones(z.size, dtype=bool)
        shared[: atoms.n] = False
        shared[self.rows] = True
        # Of a row with one atom the value follows, and the curvature of the loss is left.
        weight[shared] += (self.stiff * heights.slope**2)[shared]
        H = np.empty((atoms.width + 2, atoms.width + 2))
        H[:-1, :-1] = atoms.gram(weight)
        H[:-1, -1] = H[-1, :-1] = -atoms.moment(self.stiff * heights.slope * atoms.costs)
        H[-1, -1] = float(self.stiff @ atoms.costs**2)
        part = self.pulled / np.sqrt(self.total[self.rows])[:, None]
        H -= part.T @ part
        coef = np.arange(atoms.m)
        H[coef, coef] += atoms.problem.ridge
        jacobian = self.limits.jacobian
        H += (jacobian.T @ (jacobian * (self.point.y / self.limits.room)[:, None])).toarray()
        if self.limits.bent is not None:
            H -= self.point.y[-1] * self.limits.bent
        return H

    def direction(self, atom_goal: FloatArray, limit_goal: FloatArray) -> _Direction:
        """Return the step to products of room and multiplier as given."""
        atoms, point, heights, gap = self.atoms, self.point, self.heights, self.gap
        z, y = atom_goal / gap, limit_goal / self.limits.room
        over = (atoms.total(z) - self.masses) / self.total
        # The rows' own share of it, and what the values of the rows take away.
        alone = np.ones(atoms.n, dtype=bool)
        alone[self.rows] = False
        steep = z.copy()
        steep[: atoms.n][alone] -= (self.stiff[: atoms.n] * over)[alone]
        gradient = np.append(atoms.moment(steep * heights.slope), atoms.problem.radius - float(z @ atoms.costs))
        gradient[: atoms.m] += atoms.problem.ridge * point.x[: atoms.m]
        gradient -= self.limits.jacobian.T @ y + self.pulled.T @ over[self.rows]
        step = np.zeros(gradient.size)
        step[self.free] = self.factor.solve(-gradient[self.free])
        rise = heights.slope * atoms.along(step[:-1]) - step[-1] * atoms.costs
        value = over + atoms.total(self.stiff * rise) / self.total
        widened = value[atoms.owner] - rise
        room = self.limits.jacobian @ step
        return _Direction(
            step,
            value,
            z - point.z - self.stiff * widened,
            y - point.y - point.y / self.limits.room * room,
            widened,
            room,
        )

    def longest(self, step: _Direction) -> tuple[float, FloatArray]:
        """Return the share of a step to take, and the share of it that the multipliers of each row can take.

        Everything stays positive there, to first order, except in a few of the rows that have several atoms.
        """
        atoms, point = self.atoms, self.point
        length = min(_way(point.y, step.y).min(initial=1.0), _way(self.limits.room, step.room).min(initial=1.0))
        of_shares = -atoms.highest(-_way(point.z, step.z))
        of_row = np.minimum(of_shares, -atoms.highest(-_way(self.gap, step.gap)))
        short = np.flatnonzero(of_row < length)
        if short.size:
            short = short[np.argsort(of_row[short], kind="stable")]
            allowed = _LEFT * float(self.masses[self.rows].sum())
            first = int(np.searchsorted(np.cumsum(self.masses[short]), allowed, side="right"))
            length = float(of_row[short[first]]) if first < short.size else length
        return float(length), of_shares


class _Path:
    """The central path over atoms that grow in number."""

    def __init__(self, atoms: AtomSet, x: FloatArray, upper: float, least: float) -> None:
        self.atoms, self.least = atoms, least
        self.masses = np.maximum(atoms.w, 1e-9 / max(atoms.n, 1))  # a row without mass has multipliers all the same
        x = atoms.settled(x)
        x[-1] += _ABOVE * upper / atoms.problem.radius
        value = atoms.heights(x).value
        s = atoms.highest(value) + _FIRST * upper
        z = 1.0 / (s[atoms.owner] - value)
        z *= (self.masses / atoms.total(z))[atoms.owner]
        # Rounded corners must leave room at the beginning, and are sharpened as the path goes on.
        self.soft = 0.1 * (float(x[-1]) - atoms.family.kappa(x[: atoms.m])) / max(atoms.open.size, 1)
        room = atoms.limits(x, self.soft).room
        self.point = _Point(x, s, z, _FIRST * upper / room / room.size)

    def measure(self) -> tuple[Heights, Limits, FloatArray, float]:
        """Return heights and limits here, the products of room and multiplier of the atoms, and the sum of all."""
        x, s, z, y = self.point
        heights, limits = self.atoms.heights(x), self.atoms.limits(x, self.soft)
        products = z * (s[self.atoms.owner] - heights.value)
        return heights, limits, products, float(products.sum() + y @ limits.room)

    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """Return how a complementarity is shared by atoms and limits."""
        return self.masses[self.atoms.owner], np.full(self.point.y.size, 1.0 / self.point.y.size)

    def mean(self, total: float) -> float:
        """Return what an atom has of a total, a unit of mass."""
        by_atom, by_limit = self._weights()
        return total / float(by_atom.sum() + by_limit.sum())

    def advance(self) -> float:
        """Take one step, and return the share of it that was taken."""
        _, _, _, total = self.measure()
        by_atom, by_limit = self._weights()
        mean = self.mean(total)
        self.soft = min(self.soft, mean / (self.atoms.problem.radius * max(self.atoms.open.size, 1)))
        system = _System(self.atoms, self.point, self.masses, self.soft)
        first = system.direction(np.zeros(by_atom.size), np.zeros(by_limit.size))
        (length, _), point = system.longest(first), self.point
        after = float(
            np.maximum(point.z + length * first.z, 0.0) @ np.maximum(system.gap + length * first.gap, 0.0)
            + (point.y + length * first.y) @ (system.limits.room + length * first.room)
        )
        goal = max(mean * min(max(after / total, 0.0), 1.0) ** 3, min(mean, self.mean(self.least)))
        step = system.direction(by_atom * goal - first.z * first.gap, by_limit * goal - first.y * first.room)
        length, of_shares = system.longest(step)
        if length < 0.1:  # far from the path: back towards it first
            step = system.direction(by_atom * mean, by_limit * mean)
            length, of_shares = system.longest(step)
        for _ in range(20):
            x, s = point.x + length * step.x, point.s + length * step.s
            # Where a norm or heights bend upwards, the multiplier and the values rise too: both are free to.
            short = _KEPT * (system.limits.room + length * step.room) - self.atoms.limits(x, self.soft).room
            raised = max(float(short.max()), 0.0)
            x[-1] += raised
            wanted = np.maximum(_KEPT * (system.gap + length * step.gap), (1.0 - _NEAR) * system.gap)
            lift = np.maximum(self.atoms.highest(wanted + self.atoms.heights(x).value) - s, 0.0)
            if float(self.masses @ lift) + self.atoms.problem.radius * raised <= total:
                break
            length *= 0.5
        z = point.z + np.minimum(length, of_shares)[self.atoms.owner] * step.z
        self.point = _Point(x, s + lift, z, point.y + length * step.y)
        return length

    def look(self, mean: float) -> float:
        """Return the objective here, and take up the atoms that are higher than those known."""
        atoms, (x, s, z, y) = self.atoms, self.point
        known = z.size
        value = atoms.look(x, atoms.highest(atoms.heights(x).value), _HIGHER * mean)
        if atoms.costs.size == known:
            return value
        before = atoms.used
        x = atoms.settled(x)
        heights = atoms.heights(x).value
        s = np.maximum(s, atoms.highest(heights) + mean)
        gap = (s[atoms.owner] - heights)[known:]
        small = self.masses[atoms.owner[known:]] * np.minimum(0.1, mean / gap)
        if (before != atoms.used).any():
            room = atoms.limits(x, self.soft).room
            y = mean / room / room.size
        self.point = _Point(x, s, np.append(z, small), y)
        return value

    def retreat(self, best: FloatArray, mean: float) -> None:
        """Go most of the way back to a better model, with the atoms that were missing."""
        atoms = self.atoms
        x = atoms.settled(best + _BACK * (self.point.x - best))
        short = _BACK * atoms.limits(self.point.x, self.soft).room - atoms.limits(x, self.soft).room
        of_multiplier = np.r_[: atoms.n_numeric, atoms.linear.shape[0] : short.size]
        x[-1] += max(float(short[of_multiplier].max()), 0.0)
        heights = atoms.heights(x).value
        self.point = self.point._replace(x=x, s=atoms.highest(heights) + mean)

    def forget(self) -> None:
        """Drop the atoms that nothing is moved to, where there are many."""
        atoms = self.atoms
        if atoms.X.size <= _MOST_NUMBERS:
            return
        keep = self.point.z > _LEAST_SHARE * self.masses[atoms.owner]
        keep[: atoms.n] = True
        atoms.forget(keep)
        self.point = self.point._replace(z=self.point.z[keep])


def run_atoms(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as this goes."""
    family = BoxFamily.of(problem.family)
    if problem.ridge == 0.0:
        coef, intercept = family.canonical(coef, intercept, fit_intercept=problem.fit_intercept)
    multiplier = family.search(data.rows, data.y, data.weights, coef, intercept, sharpness=_SHARPNESS)[0].multiplier
    atoms = AtomSet(problem, family, data)
    multiplier = max(multiplier, family.kappa(coef), family.floor())
    best = np.append(atoms.extremes.lifted(coef), [intercept, multiplier])
    upper = atoms.look(best, atoms.highest(atoms.heights(best).value), 0.0)
    path = _Path(atoms, best, upper, _LAST * tol * upper)
    lower, rounding, awaited, since = 0.0, 0.0, np.inf, 0  # no loss is negative
    history: list[tuple[float, float]] = []
    for step in range(_MOST_STEPS):
        length = path.advance()
        heights, limits, _, total = path.measure()
        since += 1
        ends = length == 0.0 or step == _MOST_STEPS - 1
        if total > max(awaited, 2.0 * path.least) and since < _PATIENCE and not ends:
            continue
        x, _, z, y = path.point
        # A bound is no nearer than the complementarity: far from the end it is not worth its sums.
        if total <= _CLOSE * tol * upper or ends:
            known, off = atoms.bound(x, heights, z, limits, y, upper)
            if known - off > lower:
                lower, rounding = known - off, off
        path.forget()
        value = path.look(path.mean(total))
        if value < upper:
            upper, best = value, x
        elif value > upper + 2.0 * total:
            path.retreat(best, path.mean(total))
        path.least = _LAST * tol * upper
        history.append((lower, upper))
        since, awaited = 0, _WAIT * path.measure()[-1]
        if upper - lower <= 0.9 * tol * abs(upper) or ends:
            break
    return NewtonResult(best[: atoms.m], float(best[-2]), float(best[-1]), upper, lower, rounding, history)
