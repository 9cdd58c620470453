r"""The optimum, and a bound on it, on a box with l1 and a curved loss, by Newton's method on a smoothed worst case.

At a slope of size ``a`` the features decouple, and what a row's moves earn is convex in ``a``:

    h = max over a of  a e - L*(a) + sum_j cap_j p_j(a) ,    p_j(a) = (a theta_j - lam price_j)_+ .

Between nodes ``a_1 < ... < a_A`` the ``p_j`` are replaced by their chords. On an interval the row's worst case is then
a loss again, with slopes within the interval: ``l_k(e + D_ik) - C_ik``, ``D`` and ``C`` products of ``X`` with a table
of one column for each interval. Chords are exact but where a feature begins to pay. There ``h`` is the maximum of a
function with a convex kink, which no row attains: nodes on both sides of every kink leave the error of chords to
intervals without rows. Nodes stay where they are while a model is looked for, and are placed anew at what is found.

The positive parts are smoothed to ``nu log(1 + exp(. / nu))`` and the maximum over intervals and directions to
``mu log sum exp(. / mu)``, so that the sum over rows is convex and smooth in (theta, b, lam). Newton's method, damped,
minimises it at widths that fall with the gap. Shares of intervals, slopes and logistic shares of moves are a
distribution of moved rows; its plane (`dualcore.certificates.plane`) is the lower bound, and at the minimum of the
smoothed sum its slopes vanish.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import Plane
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.solvers.factor import solve_damped
from dualcore.solvers.moving.decoupled.bends import Bends, Table
from dualcore.solvers.moving.decoupled.curve import Curve
from dualcore.solvers.moving.decoupled.polyhedral import can_decouple
from dualcore.solvers.moving.result import MANY_NUMBERS, MODEST_GAP, NewtonResult
from dualcore.solvers.moving.smoothed import ObjectiveSums, Progress, SmoothedObjective, minimise

__all__ = ["can_use_curves", "run_curves"]


# How near nodes may be, in roots of the width.
_APART = 2.0
# The first width, relative to the risk.
_FIRST_WIDTH = 0.3
# How the width falls: to this share of what the gap asks for, within limits.
_SHARE, _FALLS = 0.3, (0.25, 0.5)
# Widths of the positive parts, all features of a row together, in widths of the maximum; of many features no more than
# these are near their price together.
_SOFT, _TOGETHER = 30.0, 120
_MOST_STAGES = 20
# Nodes are placed anew at one width while that lowers the objective by this much, in widths.
_FREED = 1e-3
# Share of the last scale of a step that stays, and of the curvature of a move at first.
_REMEMBERED, _LEAST_SCALE = 0.3, 1e-3
# Newton's method at one width ends where it promises less than this, in widths; where the width may be the last one,
# times the square of the gap that is asked for: what it promises is the square of a slope that the bound pays for.
_SETTLED, _ROUGH = 1e-3, 1e-4
# Intervals this many widths below the best of their row have no share.
_NEGLIGIBLE = 16.0
# A gap above this share of the one before does not fall.
_STALLED = 0.7
# Nodes are this many widths of its positive part from the slope where a feature begins to pay.
_AROUND = 6.0
# Shares of a row below this have no curvature.
_HEAVY = 1e-3
# Widths after which it is given up if Newton's method did not end there; the first is made wider by so much.
_GIVEN_UP, _WIDER = 3, 5.0
# With more features the gradients of intervals cost too much.
_MOST_FEATURES = 1000
# Change of the width by which the path of minimisers is found.
_CLOSE = 1e-3


def can_use_curves(problem: Problem, data: Data) -> bool:
    """Whether there is a box with l1, a loss without kinks, and every feature that moves has two walls."""
    family, m = problem.family, data.rows.m
    if not isinstance(family, BoxFamily) or isinstance(family, CategoriesFamily):
        return False
    if m > _MOST_FEATURES or problem.loss.kinks or problem.loss.pieces or not can_decouple(problem, data):
        return False
    low, high = family.support.spread(m)
    return bool((np.isfinite(high - low) | np.isinf(family.prices(m))).all())


class _Side(NamedTuple):
    """A direction for the rows: ``e = push (score - target)``, and what it costs."""

    push: FloatArray
    target: FloatArray
    price: float


class _IntervalAtoms(NamedTuple):
    """Rows of a block on intervals that have a share: ``row``, ``interval``, signal, value, slope."""

    side: _Side
    row: npt.NDArray[np.intp]
    interval: npt.NDArray[np.intp]
    signal: FloatArray
    value: FloatArray
    slope: FloatArray


class _CurvedEvaluation(NamedTuple):
    """The smoothed objective at a point, the atoms behind it by block, and the logistic shares of moves by side."""

    value: float
    atoms: list[list[_IntervalAtoms]]
    logistic: dict[float, FloatArray]


class _CurvedObjective(SmoothedObjective):
    """The objective with smoothed positive parts and maxima."""

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        super().__init__(problem, family, data)
        low, high = family.support.spread(self.m)
        self.prices = family.prices(self.m)
        self.movable = np.isfinite(self.prices) & (high > low)
        self.low, self.high = np.where(self.movable, low, 0.0), np.where(self.movable, high, 0.0)
        self.prices = np.where(self.movable, self.prices, 0.0)
        width = np.where(self.movable, high - low, 1.0)
        self.soft = _SOFT / (width * min(max(int(self.movable.sum()), 1), _TOGETHER))
        sides = (-1.0,) if problem.is_classification else (1.0, -1.0)
        self.curves = {side: Curve(problem, side) for side in sides}
        #: whether nodes are placed anew at a minimiser
        self.refines = False
        self._scale: FloatArray | None = None
        self._last: tuple[FloatArray, _CurvedEvaluation] | None = None

    def sides(self, y: FloatArray) -> list[tuple[Curve, _Side]]:
        """Return the directions of the rows of a block."""
        zero = np.zeros(y.size)
        if not self.problem.is_classification:
            return [(self.curves[side], _Side(np.full(y.size, side), y, 0.0)) for side in (1.0, -1.0)]
        out = [(self.curves[-1.0], _Side(-y, zero, 0.0))]
        if self.problem.family.flips:
            out.append((self.curves[-1.0], _Side(y, zero, self.problem.geometry.label_cost)))
        return out

    def tables(self, curve: Curve, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smoothed positive parts and their logistic shares, shape (2, nodes, m): rising, falling."""
        nu = self.soft * self.mu
        gain = curve.nodes[:, None] * x[: self.m] * np.array([1.0, -1.0])[:, None, None] - x[-1] * self.prices
        far = np.exp(-np.abs(gain / nu))
        part = np.maximum(gain, 0.0) + nu * np.log1p(far)
        share = np.where(gain >= 0.0, 1.0, far) / (1.0 + far)
        if self.movable.all():
            return part, share
        return np.where(self.movable, part, 0.0), np.where(self.movable, share, 0.0)

    def value(self, x: FloatArray) -> float:
        return self._at(x).value

    def _at(self, x: FloatArray) -> _CurvedEvaluation:
        """Return the smoothed objective, and the atoms that have a share; the last one is kept."""
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        mu = self.mu
        made = {side: self.tables(curve, x) for side, curve in self.curves.items()}
        total, found = 0.0, []
        for part, X in self.blocks():
            score, y = X @ x[: self.m] + x[-2], self.data.y[part]
            heights, parts = [], []
            for curve, side in self.sides(y):
                earned = self._earned(X, side.push, made[curve.side][0])
                rate = np.diff(earned, axis=1) / curve.widths
                signal = (side.push * (score - side.target))[:, None] + rate
                value, slope = curve.at(signal)
                value += earned[:, :-1] - curve.nodes[:-1] * rate
                if side.price:
                    value -= side.price * x[-1]
                heights.append(value)
                parts.append((side, signal, slope))
            best = np.max([value.max(axis=1) for value in heights], axis=0)
            weight = sum(np.exp(np.maximum((value - best[:, None]) / mu, -700.0)).sum(axis=1) for value in heights)
            total += float(self.w[part] @ (best + mu * np.log(weight)))
            atoms = []
            for value, (side, signal, slope) in zip(heights, parts, strict=True):
                row, k = np.nonzero(value >= (best - _NEGLIGIBLE * mu)[:, None])
                atoms.append(_IntervalAtoms(side, row, k, signal[row, k], value[row, k], slope[row, k]))
            found.append(atoms)
        logistic = {side: shares for side, (_, shares) in made.items()}
        self._last = x, _CurvedEvaluation(self.complete(x, mu, total), found, logistic)
        return self._last[1]

    def _earned(self, X: FloatArray, push: FloatArray, part: FloatArray) -> FloatArray:
        """Return what the moves earn at every node, shape (n, nodes)."""
        rising, falling = part
        ahead, behind = rising @ self.high - falling @ self.low, falling @ self.high - rising @ self.low
        earned = X @ (falling - rising).T
        earned *= push[:, None]  # +1 or -1
        earned += np.where(push[:, None] > 0.0, ahead, behind)
        return np.asarray(earned)

    def sums(self, x: FloatArray, *, with_hessian: bool = True) -> ObjectiveSums:
        problem, d, mu, found = self.problem, self.m + 2, self.mu, self._at(x)
        gradient, H = np.zeros(d), np.zeros((d, d))
        offset = size = steepness = spent = 0.0
        widest, count = np.maximum(np.abs(self.low), np.abs(self.high)), 0
        logistic = found.logistic
        for (part, X), atoms in zip(self.blocks(), found.atoms, strict=True):
            n, w, y = X.shape[0], self.w[part], self.data.y[part]
            widest = np.maximum(widest, np.abs(X).max(axis=0, initial=0.0))
            best = np.full(n, -np.inf)
            for each in atoms:
                np.maximum.at(best, each.row, each.value)
            weight, number = np.zeros(n), np.zeros(n)
            for each in atoms:
                weight += np.bincount(each.row, np.exp((each.value - best[each.row]) / mu), n)
                number += np.bincount(each.row, minlength=n)
            bends = Bends(n, d)
            single = X.astype(np.float32) if with_hessian else np.zeros((0, self.m), dtype=np.float32)
            for (curve, _), each in zip(self.sides(y), atoms, strict=True):
                row = each.row
                if not row.size:
                    continue
                portion = np.exp((each.value - best[row]) / mu) / weight[row]
                share = w[row] * portion
                spent += self._add(gradient, H, curve, each, X, share, logistic[curve.side])
                if each.side.price:
                    gradient[-1] -= each.side.price * float(share.sum())
                    spent += each.side.price * float(share.sum())
                sign = -1.0 if problem.is_classification else curve.side
                conjugate = share * problem.loss.conjugate(np.clip(sign * each.slope, *problem.loss.slope_range))
                steep, push = share * each.slope, each.side.push[row]
                goal = np.zeros(0) if problem.is_classification else steep * push * (y[row] - self.below.middle)
                offset -= float(conjugate.sum()) + float(goal.sum())
                size += float(np.abs(conjugate).sum()) + float(np.abs(goal).sum())
                steepness += float(steep.sum())
                count += row.size
                if not with_hessian:
                    continue
                # Curvature is that of the intervals that count.
                heavy = np.flatnonzero(portion > _HEAVY)
                row, share = row[heavy], share[heavy]
                shares_row = number[row] > 1.0
                bend = share * curve.curvature(each.interval[heavy], each.signal[heavy])
                some = np.flatnonzero(shares_row | (bend > 0.0))
                heavy, tie = heavy[some], np.flatnonzero(shares_row[some])
                T, Q = self._gradients(curve, each, heavy, tie, single, logistic[curve.side])
                bends.add(Q, bend[some], T, row[some[tie]], share[some[tie]], mu)
            if with_hessian:
                H += bends.hessian(mu)
        plane = Plane(offset, size, gradient[:-1].copy(), steepness, spent, widest, count)
        self.complete_derivatives(x, mu, gradient, H)
        return ObjectiveSums(found.value, gradient, H, plane)

    def _gradients(
        self,
        curve: Curve,
        atoms: _IntervalAtoms,
        which: npt.NDArray[np.intp],
        tie: npt.NDArray[np.intp],
        X: Table,
        logistic: FloatArray,
    ) -> tuple[Table, Table]:
        """Return the gradients of the values of some of the chosen atoms, and of the signals of all of these.

        At a node a gradient is linear in the row, ``x * slope + level``. Of a score that rises the rising positive
        parts go up to the high wall, the falling ones down to the low one.
        """
        m, K, widths = self.m, curve.nodes.size, curve.widths[:, None]
        k, row = atoms.interval[which], atoms.row[which]
        falls = (atoms.side.push[row] < 0.0).astype(np.intp)
        slope, level = np.empty((2, K, m)), np.empty((2, K, m))
        moving = X @ ((logistic[0] - logistic[1]) * self.prices).T.astype(np.float32)
        paid = np.empty((2, K))
        for side, (sign, near, far) in enumerate(((1.0, self.high, self.low), (-1.0, self.low, self.high))):
            np.multiply(sign * curve.nodes[:, None], 1.0 - logistic[0] - logistic[1], out=slope[side])
            np.multiply(sign * curve.nodes[:, None], near * logistic[0] + far * logistic[1], out=level[side])
            np.matmul(near * logistic[0] - far * logistic[1], self.prices, out=paid[side])
        at, rows = falls * (K - 1) + k, X[row]
        push = 1.0 - 2.0 * falls
        begin = push * (moving[row, k] - paid[falls, k])
        Q = np.empty((k.size, m + 2), dtype=np.float32)
        np.multiply(rows, (np.diff(slope, axis=1) / widths).astype(np.float32).reshape(-1, m)[at], out=Q[:, :m])
        Q[:, :m] += (np.diff(level, axis=1) / widths).astype(np.float32).reshape(-1, m)[at]
        Q[:, m] = push * ((curve.nodes[1:] - curve.nodes[:-1]) / curve.widths)[k]
        Q[:, -1] = (push * (moving[row, k + 1] - paid[falls, k + 1]) - begin) / curve.widths[k]
        far_in = np.clip(atoms.slope[which[tie]] - curve.nodes[k[tie]], 0.0, curve.widths[k[tie]])
        G = Q[tie] * far_in.astype(np.float32)[:, None]
        at = (falls * K + k)[tie]
        G[:, :m] += rows[tie] * slope.astype(np.float32).reshape(-1, m)[at]
        G[:, :m] += level.astype(np.float32).reshape(-1, m)[at]
        G[:, m] += push[tie] * curve.nodes[k[tie]]
        G[:, -1] += begin[tie] - atoms.side.price
        return G, Q

    def _add(
        self,
        gradient: FloatArray,
        H: FloatArray,
        curve: Curve,
        atoms: _IntervalAtoms,
        X: FloatArray,
        share: FloatArray,
        logistic: FloatArray,
    ) -> float:
        """Add the gradient of all atoms and the curvature of positive parts, and return what the moves cost.

        An atom between two nodes is shared by them. A move of slope ``a`` goes as far as leaves the gradient as it is:
        the mean of its nodes' shares, weighted by slope.
        """
        m, nodes, k = self.m, curve.nodes, atoms.interval
        t = np.clip((atoms.slope - nodes[k]) / curve.widths[k], 0.0, 1.0)
        at = np.concatenate([k, k + 1])
        mass = np.concatenate([share * (1.0 - t), share * t])
        slope = np.tile(atoms.slope, 2)
        paid = np.divide(mass * nodes[at], slope, out=np.zeros(mass.size), where=slope > 0.0)
        place = np.tile(atoms.row, 2) * nodes.size + at
        shape = X.shape[0], nodes.size
        by_node = [np.bincount(place, weight, X.shape[0] * nodes.size).reshape(shape) for weight in (mass, paid)]
        nu, spent = self.soft * self.mu, 0.0
        for rises in (True, False):
            own = np.flatnonzero((atoms.side.push > 0.0) == rises)
            if not own.size:
                continue
            push, part_of = (1.0 if rises else -1.0), X[own]
            for mean, weights in zip((True, False), by_node, strict=True):
                total, moment = weights[own].sum(axis=0)[:, None], weights[own].T @ part_of
                up, down = self.high * total - moment, moment - self.low * total
                rising, falling = (up, down) if rises else (down, up)
                parts = logistic[0] * rising, logistic[1] * falling
                if not mean:
                    spent += float(np.sum((parts[0] + parts[1]) @ self.prices))
                    continue
                gradient[:m] += nodes @ (push * moment + parts[0] - parts[1])
                gradient[m] += push * float(nodes @ total[:, 0])
                gradient[-1] -= float(np.sum((parts[0] + parts[1]) @ self.prices))
                for sign, part, f in ((1.0, parts[0], logistic[0]), (-1.0, parts[1], logistic[1])):
                    stiff = np.maximum(part, 0.0) * (1.0 - f) / nu
                    H[np.arange(m), np.arange(m)] += nodes**2 @ stiff
                    across = -sign * self.prices * (nodes @ stiff)
                    H[:m, -1] += across
                    H[-1, :m] += across
                    H[-1, -1] += float(np.sum(stiff @ self.prices**2))
        return spent

    def scale(self, sums: ObjectiveSums) -> FloatArray:
        """Return what steps are damped by: at a narrow width a feature may have no curvature where it is.

        The diagonals of steps before are remembered, and at first a small share of the curvature that moves can have.
        """
        if self._scale is None:
            steepest = max(curve.steepest for curve in self.curves.values())
            spread = (self.high - self.low) ** 2
            self._scale = np.append(_LEAST_SCALE * steepest**2 / self.mu * spread, [0.0, 0.0])
        self._scale = np.maximum(np.diag(sums.hessian), _REMEMBERED * self._scale)
        return self._scale

    def refine(self, x: FloatArray, sums: ObjectiveSums) -> ObjectiveSums | None:
        """Place nodes anew: chords hold a feature back where the slope at which it begins to pay would pass a node."""
        if not self.refines:
            return None
        self.cut(x, self.mu)
        return self.sums(x) if self.value(x) <= sums.value - _FREED * self.mu else None

    def set_width(self, mu: float) -> None:
        self.mu, self._last = mu, None

    def cut(self, x: FloatArray, mu: float) -> None:
        """Choose the width, and place nodes around the slopes where features begin to pay, as near as it asks for.

        The worst case of a row is convex in the slope there, so that its best slope is elsewhere: no row has a share in
        these cells, and on the others the chords are nearly exact.
        """
        self.set_width(mu)
        size = np.abs(x[: self.m])
        pays = self.movable & (size > 0.0)
        for curve in self.curves.values():
            price, soft = float(x[-1]) * self.prices[pays], self.soft[pays] * mu
            around = (price + _AROUND * soft * np.array([[-1.0], [1.0]])) / size[pays]
            curve.cut(around[:, around[0] < curve.steepest], _APART * float(np.sqrt(mu)))


def _follow(smoothed: _CurvedObjective, x: FloatArray, sums: ObjectiveSums, mu: float, fall: float) -> FloatArray:
    """Return where the minimisers go as the width falls, to first order, where that is better than to stay."""
    smoothed.set_width(mu * (1.0 - _CLOSE))
    change = smoothed.sums(x, with_hessian=False).gradient - sums.gradient
    there = x - solve_damped(sums.hessian, sums.gradient + change * (1.0 - fall) / _CLOSE)
    smoothed.cut(x, fall * mu)
    here = smoothed.value(x)
    if smoothed.slack(there) > 0.0 and smoothed.value(there) < here:
        smoothed.cut(there, fall * mu)
        return there
    return x


def run_curves(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as this goes."""
    if data.rows.n * data.rows.m > MANY_NUMBERS:  # at the widths of a smaller gap no bound is found in 40 s
        tol = max(tol, MODEST_GAP)
    smoothed = _CurvedObjective(problem, BoxFamily.of(problem.family), data)
    progress = Progress(smoothed, coef, intercept)
    if not progress.upper > 0.0:  # no width is a share of nothing
        return progress.result()
    x, mu, fall, failed = progress.best, _FIRST_WIDTH * progress.upper, 1.0, 0
    last, kept = None, x
    expected = before = np.inf
    smoothed.cut(x, mu)
    for _ in range(_MOST_STAGES):
        smoothed.refines = expected <= tol * progress.upper  # the width may be the last one
        there, sums, settled = minimise(smoothed, x, _SETTLED * tol**2 if smoothed.refines else _ROUGH)
        value, known = progress.record(there, sums.plane)
        if progress.is_within(tol):
            break
        if settled:
            x, mu, failed = there, fall * mu, 0
            last, kept = sums, x
            gap = value - (known if smoothed.refines else smoothed.plane_at(sums.plane, x))
            fall = float(np.clip(_SHARE * tol * progress.upper / max(gap, 1e-300), *_FALLS))
            # A gap that does not fall with the width is that of chords: the next width is treated as the last.
            expected, before = (fall * gap if gap < _STALLED * before else 0.0), gap
            if smoothed.refines:  # its nodes are not those of the sums any more
                smoothed.cut(x, fall * mu)
                continue
        elif failed == _GIVEN_UP:
            break
        elif last is None:
            x, mu, failed = there, _WIDER * mu, failed + 1
            smoothed.cut(x, mu)
            continue
        else:  # less of the way
            x, failed, fall = kept, failed + 1, float(np.sqrt(fall))
            smoothed.cut(x, mu)
            last = smoothed.sums(x)
        x = _follow(smoothed, x, last, mu, fall)
    return progress.result()
