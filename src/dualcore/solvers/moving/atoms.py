"""Training on a box or with categories by an interior point method over a few atoms of every row, with a lower bound.

An atom is a position to which a row may be moved; the unmoved row is one of them. Over the atoms found so far
(`AtomSet`) the problem is a convex program,

    min  radius lam + sum_i w_i s_i + penalty   with   s_i >= L(t_a) - lam c_a  for every atom a of row i ,

and a primal-dual method follows its central path. Each step is a predictor and a corrector with one factor, of the
order of the model, because the ``s_i`` are eliminated. For rows without atoms ``s_i`` is their loss, which is smooth;
between two passes over the rows the sum of these losses is replaced by its quadratic model. A pass adds the best moves
at the current model as new atoms (column generation). The multipliers are a distribution in the ball, and with the
slopes of the loss they define a plane below the risk of every model (`atombound`). The minimum of the plane over a
region that contains the optimum is a rigorous lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers.base import Iterate, tell
from dualcore.solvers.constant import best_constant
from dualcore.solvers.factor import DampedFactor
from dualcore.solvers.moving.atombound import bound_of, has_budget_left
from dualcore.solvers.moving.atomset import AtomSet, Heights, Rest
from dualcore.solvers.moving.covariance import covariance_rows
from dualcore.solvers.moving.result import NewtonResult
from dualcore.solvers.moving.smoothed import SHARPNESS

# The first complementarity, relative to the risk, and the factor by which it falls until the next pass over the rows.
_FIRST, _WAIT = 0.3, 0.3
# Near the end a pass over the rows waits until the residual of the moments has fallen by this factor; a step of length
# a multiplies it by 1 - a.
_UNBALANCED = 0.5
# The last complementarity, relative to the tolerance: closer to the boundary new atoms slow the steps down.
_LAST = 0.2
_MOST_STEPS, _PATIENCE = 200, 5
# Share of the distance to the nearest limit that a step takes, and the share of the predicted slack that must remain
# after it.
_NEAR, _KEPT = 0.98, 0.5
# Share of the mass of rows with atoms whose multipliers may take a shorter step than the model: otherwise a few rows
# among thousands determine the length.
_LEFT = 0.01
# Moves become atoms if they violate the constraints of the program by this share of the mean complementarity.
_HIGHER = 0.1
# Bounds are computed once the complementarity, relative to the tolerance, is below this.
_CLOSE = 2.0
# Share of the distance from the best model that is kept where a model is far worse.
_BACKTRACKED = 0.1
# A risk below this share of that of the zero model is zero up to rounding.
_NOTHING = 1e-14
# Number of rows on which the first multiplier is computed.
_SOME_ROWS = 1500


class _AtomPoint(NamedTuple):
    """A primal-dual point: model and multiplier ``x``, values ``s``, dual variables ``z`` of atoms, ``y`` of limits."""

    x: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray


class _AtomDirection(NamedTuple):
    """A change of a point, and the first-order changes of the slacks of atoms (``gap``) and of limits (``slack``)."""

    x: FloatArray
    s: FloatArray
    z: FloatArray
    y: FloatArray
    gap: FloatArray
    slack: FloatArray


def _longest(at: FloatArray, change: FloatArray) -> FloatArray:
    """Return the largest step lengths, at most 1, with ``at + length * change >= (1 - _NEAR) at``, elementwise."""
    return np.divide(-_NEAR * at, change, out=np.ones(at.size), where=change < -_NEAR * at)


class _System:
    """Newton's equations at a point, factored."""

    def __init__(self, atoms: AtomSet, rest: Rest, point: _AtomPoint, soft: float) -> None:
        self.atoms, self.point, self.masses = atoms, point, atoms.masses
        self.rest, self.rest_gradient = rest, rest.gradient_at(np.append(point.x[: atoms.m], point.x[-2]))
        self.heights, self.limits = atoms.heights(point.x), atoms.limits(point.x, soft)
        self.gap = point.s[atoms.owner] - self.heights.value
        self.stiff = point.z / self.gap
        self.total = atoms.total(self.stiff)
        self.free = atoms.free
        self.factor = DampedFactor(self._matrix()[np.ix_(self.free, self.free)])

    def _matrix(self) -> FloatArray:
        atoms, slope = self.atoms, self.heights.slope
        gradients = np.column_stack([atoms.X * slope[:, None], slope, -atoms.costs])
        rows = covariance_rows(gradients, atoms.owner, self.stiff)
        H = rows.T @ rows
        if self.heights.curvature.any():
            H[:-1, :-1] += atoms.gram(self.point.z * self.heights.curvature)
        model = np.append(np.arange(atoms.m), atoms.width)
        H[np.ix_(model, model)] += self.rest.hessian
        H[model[:-1], model[:-1]] += atoms.problem.ridge
        return np.asarray(H + self.limits.hessian(self.point.y))

    def direction(self, atom_goal: FloatArray, limit_goal: FloatArray) -> _AtomDirection:
        """Return the Newton step to the given products of slack and dual variable, of atoms and of limits."""
        atoms, point = self.atoms, self.point
        z, y = atom_goal / self.gap, limit_goal / self.limits.slack
        over = (atoms.total(z) - self.masses) / self.total
        share = z - self.stiff * over[atoms.owner]
        gradient = np.append(
            atoms.moment(share * self.heights.slope), atoms.problem.radius - float(share @ atoms.costs)
        )
        gradient[: atoms.m] += self.rest_gradient[:-1] + atoms.problem.ridge * point.x[: atoms.m]
        gradient[-2] += self.rest_gradient[-1]
        gradient -= self.limits.gradient(y)
        step = np.zeros(gradient.size)
        step[self.free] = self.factor.solve(-gradient[self.free])
        rise = self.heights.slope * atoms.along(step[:-1]) - step[-1] * atoms.costs
        value = over + atoms.total(self.stiff * rise) / self.total
        widened = value[atoms.owner] - rise
        slack = self.limits.along(step)
        return _AtomDirection(
            step,
            value,
            z - point.z - self.stiff * widened,
            y - point.y - point.y / self.limits.slack * slack,
            widened,
            slack,
        )

    def longest(self, step: _AtomDirection) -> tuple[float, FloatArray]:
        """Return the step length, and for each row with atoms the largest length for its multipliers.

        All slacks and multipliers stay positive to first order, except in rows of little mass.
        """
        atoms, point = self.atoms, self.point
        of_limits = _longest(self.limits.slack, step.slack).min(initial=1.0)
        length = float(min(_longest(point.y, step.y).min(initial=1.0), of_limits))
        of_shares = -atoms.highest(-_longest(point.z, step.z))
        of_row = np.minimum(of_shares, -atoms.highest(-_longest(self.gap, step.gap)))
        short = np.flatnonzero(of_row < length)
        if short.size:
            short = short[np.argsort(of_row[short], kind="stable")]
            # With a polyhedral loss these rows carry the gradient near the optimum, so far fewer may be left.
            allowed = (0.01 * _LEFT if atoms.is_polyhedral else _LEFT) * float(self.masses.sum())
            first = int(np.searchsorted(np.cumsum(self.masses[short]), allowed, side="right"))
            length = float(of_row[short[first]]) if first < short.size else length
        return length, of_shares


def _above(heights: FloatArray, slack: float) -> FloatArray:
    """Return values above heights by ``slack``, or by a few ulps where that is more."""
    return np.asarray(heights + np.maximum(slack, 8.0 * np.finfo(float).eps * np.abs(heights)))


class _Path:
    """The central path over atoms that grow in number.

    The loss of rows without atoms is replaced by its quadratic model. That is updated at every pass over the rows, or
    at every step where the curvature of the loss jumps.
    """

    def __init__(self, atoms: AtomSet, x: FloatArray, upper: float, least: float) -> None:
        self.atoms, self.least = atoms, least
        x = atoms.feasible(x)
        above = float(x[-1]) - max(atoms.family.kappa(x[: atoms.m]), atoms.family.floor())
        # The limits of lifted moves involve the multiplier too, and steps would be short with it near its limit.
        n_held = 1 if atoms.extremes.sizes.size else atoms.n_limits
        x[-1] += max(_FIRST * upper / (atoms.problem.radius * n_held) - above, 0.0)
        self.rest = atoms.rest(x, atoms.own(x))
        value = atoms.heights(x).value
        s = _above(atoms.highest(value), _FIRST * upper)
        z = 1.0 / (s[atoms.owner] - value)
        z *= (atoms.masses / atoms.total(z))[atoms.owner]
        # Rounding of the corners of the norm: small enough to leave slack, and reduced along the path.
        self.soft = 0.1 * (float(x[-1]) - atoms.family.kappa(x[: atoms.m])) / max(atoms.n_open, 1)
        self.point = _AtomPoint(x, s, z, self._balanced(x, _FIRST * upper))

    def _balanced(self, x: FloatArray, total: float) -> FloatArray:
        """Return dual variables (n_limits,) with equal products with the slacks, which add up to ``total``."""
        slack = np.maximum(self.atoms.slacks(x, self.soft), np.finfo(float).tiny)
        return np.asarray(total / slack / slack.size)

    def measure(self) -> float:
        """Return the sum of the products of slack and multiplier."""
        x, s, z, y = self.point
        gap = s[self.atoms.owner] - self.atoms.heights(x).value
        return float(z @ gap + y @ self.atoms.slacks(x, self.soft))

    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """Return the weights of atoms and of limits in the complementarity."""
        return self.atoms.masses[self.atoms.owner], np.full(self.point.y.size, 1.0 / self.point.y.size)

    def mean(self, total: float) -> float:
        """Return the mean complementarity, weighted by `_weights`, for the sum ``total``."""
        by_atom, by_limit = self._weights()
        return total / float(by_atom.sum() + by_limit.sum())

    def advance(self) -> float:
        """Take one step, and return the share of it that was taken."""
        atoms, point = self.atoms, self.point
        gap, slack = point.s[atoms.owner] - atoms.heights(point.x).value, atoms.slacks(point.x, self.soft)
        least = np.sqrt(np.finfo(float).tiny)  # multipliers over smaller slacks overflow
        if not (gap > least).all() or not (slack > least).all():  # slacks are zero up to rounding
            return 0.0
        total = self.measure()
        by_atom, by_limit = self._weights()
        mean = self.mean(total)
        if atoms.n_open and atoms.problem.geometry.norm.name == "linf":  # its corners are not at zero alone
            self.soft += 0.1 * slack[-len(atoms.curved_sides) :].min() / atoms.n_open
        self.soft = min(self.soft, mean / atoms.problem.radius)
        if atoms.problem.loss.curvature_jumps:
            self.rest = atoms.rest(point.x, atoms.own(point.x))
        system = _System(atoms, self.rest, point, self.soft)
        first = system.direction(np.zeros(by_atom.size), np.zeros(by_limit.size))
        length = system.longest(first)[0]
        after = float(
            np.maximum(point.z + length * first.z, 0.0) @ np.maximum(system.gap + length * first.gap, 0.0)
            + (point.y + length * first.y) @ (system.limits.slack + length * first.slack)
        )
        goal = max(mean * min(max(after / total, 0.0), 1.0) ** 3, min(mean, self.mean(self.least)))
        step = system.direction(by_atom * goal - first.z * first.gap, by_limit * goal - first.y * first.slack)
        length, of_shares = system.longest(step)
        if length < 0.1:  # far from the central path: centre first
            step = system.direction(by_atom * mean, by_limit * mean)
            length, of_shares = system.longest(step)
        for _ in range(20):
            x, s = point.x + length * step.x, point.s + length * step.s
            # Norms and heights are convex, so slacks fall below their linear prediction: raise the multiplier and the
            # values s_i to restore them.
            short = _KEPT * (system.limits.slack + length * step.slack) - atoms.slacks(x, self.soft)
            raised = max(float(short.max()), 0.0)
            x[-1] += raised
            wanted = np.maximum(_KEPT * (system.gap + length * step.gap), (1.0 - _NEAR) * system.gap)
            lift = np.maximum(atoms.highest(wanted + atoms.heights(x).value) - s, 0.0)
            if float(system.masses @ lift) + atoms.problem.radius * raised <= total:
                break
            length *= 0.5
        z = point.z + np.minimum(length, of_shares)[atoms.owner] * step.z
        self.point = _AtomPoint(x, s + lift, z, point.y + length * step.y)
        return length

    def evaluate(self, own: Heights, mean: float) -> float:
        """Return the objective at the point, and add the atoms whose constraints it violates.

        ``own``: the heights of the rows at the point.
        """
        atoms, (x, s, z, y) = self.atoms, self.point
        k, known = s.size, z.size
        value = atoms.evaluate(x, own, _HIGHER * mean)
        if atoms.owner.size > known:
            before = atoms.used
            x = atoms.feasible(x, mean)
            heights = atoms.heights(x).value
            least = _above(atoms.highest(heights), mean)
            s = np.append(np.maximum(s, least[:k]), least[k:])
            gap = (s[atoms.owner] - heights)[known:]
            share = np.minimum(0.1, mean / gap)
            share[atoms.own_atom[k:] - known] = 1.0
            if (before != atoms.used).any():
                y = self._balanced(x, mean)
            self.point = _AtomPoint(x, s, np.append(z, atoms.masses[atoms.owner[known:]] * share), y)
        self.rest = atoms.rest(x, own)
        return value

    def backtrack(self, best: FloatArray, mean: float) -> None:
        """Move most of the way back to the best model, keeping the atoms added since."""
        atoms = self.atoms
        x = atoms.feasible(best + _BACKTRACKED * (self.point.x - best))
        short = _BACKTRACKED * atoms.slacks(self.point.x, self.soft) - atoms.slacks(x, self.soft)
        of_multiplier = np.r_[: atoms.n_numeric, atoms.linear.shape[0] : short.size]
        x[-1] += max(float(short[of_multiplier].max()), 0.0)
        self.point = self.point._replace(x=x, s=_above(atoms.highest(atoms.heights(x).value), mean))
        self.rest = atoms.rest(x, atoms.own(x))


def run_atoms(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the relative gap to ``tol`` from a starting model, or return the best point where the method stops."""
    family = BoxFamily.of(problem.family)
    if problem.ridge == 0.0:
        coef, intercept = family.canonical(coef, intercept, fit_intercept=problem.fit_intercept)
    atoms = AtomSet(problem, family, data)
    some = np.unique(np.linspace(0, data.rows.n - 1, min(data.rows.n, _SOME_ROWS)).astype(np.intp))
    weights = None if data.weights is None else data.masses[some] / max(float(data.masses[some].sum()), 1e-300)
    rows = DenseRows(atoms.dense(some))
    multiplier = family.search(rows, data.y[some], weights, coef, intercept, sharpness=SHARPNESS)[0].multiplier
    multiplier = max(multiplier, family.kappa(coef), family.floor())
    best = atoms.feasible(np.concatenate([coef, np.zeros(atoms.width - atoms.m), [intercept, multiplier]]))
    upper = atoms.evaluate(best, atoms.own(best), 0.0)
    at_rest = np.zeros(data.y.size) if problem.is_classification else -data.y
    unit = float(data.masses @ problem.loss.value(at_rest))
    if not unit > 0.0 or not upper > _NOTHING * unit:  # the risk is zero up to rounding, which is optimal
        return NewtonResult(coef, intercept, multiplier, upper, 0.0, 0.0, [(0.0, upper)])
    path = _Path(atoms, best, upper, _LAST * tol * upper)
    lower, rounding, awaited, since, left = 0.0, 0.0, np.inf, 0, 1.0  # no loss is negative
    is_tip, ideal = False, 0.0
    history: list[tuple[float, float]] = []
    for step in range(_MOST_STEPS):
        length = path.advance()
        total = path.measure()
        since, left = since + 1, left * (1.0 - length)
        ends = length == 0.0 or step == _MOST_STEPS - 1
        early = total > awaited if total > 2.0 * path.least else left > _UNBALANCED
        if early and since < _PATIENCE and not ends:
            continue
        x, _, z, y = path.point
        own = atoms.own(x)
        # A bound is at best as tight as the complementarity, so it is computed only near the end. Near the zero model
        # it may be exact earlier. The zero model itself is then compared too: the norm is not smooth there, and the
        # path approaches it slowly.
        if not is_tip and has_budget_left(atoms, x, upper):
            is_tip, constant = True, best_constant(problem.loss, data.y, data.masses) * problem.fit_intercept
            risk = problem.evaluate(np.zeros(atoms.m), constant, data)
            if risk.value < upper:
                upper, best = risk.value, np.append(np.zeros(atoms.width), [constant, risk.multiplier])
        if total <= _CLOSE * tol * upper or ends or has_budget_left(atoms, x, upper):
            known, off = bound_of(atoms, x, own, z, y, upper)
            ideal = max(ideal, known)
            if known - off > lower:
                lower, rounding = known - off, off
        value = path.evaluate(own, path.mean(total))
        if value < upper:
            upper, best = value, x
        elif value > upper + 2.0 * total:
            path.backtrack(best, path.mean(total))
        path.least = _LAST * tol * upper
        history.append((lower, upper))
        tell(Iterate(len(history), upper, upper - lower))
        since, left, awaited = 0, 1.0, _WAIT * path.measure()
        if upper - lower <= 0.9 * tol * abs(upper) or ends:
            break
    return NewtonResult(best[: atoms.m], float(best[-2]), float(best[-1]), upper, lower, rounding, history, ideal)
