"""The optimum where the adversary changes categories, and a bound on it, by Newton's method on a few atoms a row.

Every place to which a row was ever moved, an *atom* ``a`` with cost ``c_a``, bounds its dual loss from below, for all
models: ``h_i >= L(t_a) - lam c_a``. Over the atoms known so far, the row's own place among them, the maximum is
smoothed,

    h_i ~ mu log sum_a exp((L(t_a) - lam c_a) / mu) ,

and Newton's method minimises the sum. A pass over the rows adds the atoms that the new model asks for, and ``mu``
falls. The shares of the smoothed maximum are a distribution inside the ball, and with the slopes of the loss they make
a plane below the risk of every model. Its least value in the region that must hold the optimum is a rigorous lower
bound. Slopes are moved a little so that their moment balances; what is left of it is priced by the region.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from dualcore.certificates.plane import NewtonResult, Plane, PlaneBound
from dualcore.certificates.psd import solve_damped
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.geometry import L1Norm, L2Norm

__all__ = ["can_use_atoms", "run_atoms"]

# The first width of the smoothing and its factor a round, relative to the risk; the last, relative to the tolerance.
_FIRST, _SHRINK, _LAST, _GOAL = 1e-2, 0.3, 0.05, 1e-8
_MOST_ROUNDS, _STEPS, _LAST_STEPS, _HALVINGS = 40, 3, 10, 30
# Atoms with less than this share are forgotten where there are many numbers in them.
_LEAST_SHARE, _MOST_NUMBERS = 1e-9, 20_000_000
# Where a point far from the best one is worse, points at these shares of the way are looked at too.
_NEARER = (0.3, 0.1)
# Weight of the barrier at the least multiplier, in widths.
_BARRIER = 0.01
# How strongly the first round is held to its beginning, in widths a squared coefficient.
_NEAR = 0.3
# Fewer numbers, or rows for each feature, than these are quick by planes.
_FEW_NUMBERS, _ROWS_EACH = 100_000, 10
# How near the first multiplier is to the best one, by the risk.
_SHARPNESS = 1e-3
# Rounds without a smaller gap after which the bundle goes on.
_STALLED = 6
# Times that slopes are moved towards balance.
_REPAIRS = 3


def can_use_atoms(problem: Problem, data: Data) -> bool:
    """Whether there are categories, many rows, a loss without kinks, and no number with a wall on one side only."""
    small = data.rows.n * data.rows.m < _FEW_NUMBERS or data.rows.n < _ROWS_EACH * data.rows.m
    if problem.geometry.categories is None or small or problem.loss.kinks:
        return False
    low, high = BoxFamily.of(problem.family).support.spread(data.rows.m)
    half = np.isfinite(low) != np.isfinite(high)
    return not half.any()


class _Shares(NamedTuple):
    """The smoothed maximum at a point: its mean, its entropy, and a line for every atom, all times masses.

    ``share``: of the maximum. ``slope``, ``square``: of the loss in the score, and its square. ``bent``: curvature.
    """

    value: float
    entropy: float
    share: FloatArray
    slope: FloatArray
    square: FloatArray
    bent: FloatArray


class _Atoms:
    """Rows, the atoms they were moved to, and the smoothed problem over both.

    Atoms ``0 .. n - 1`` are the rows themselves.
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.n, self.m = data.rows.n, data.rows.m
        self.w = data.masses
        self.X = np.empty((0, self.m))
        self.owner = np.empty(0, dtype=np.intp)
        self.label, self.cost = np.empty(0), np.empty(0)
        self.below = PlaneBound(problem, family, data)
        self.open = self.below.open
        self.rates = np.where(self.open, problem.loss.lipschitz / family.prices(self.m), 0.0)
        pinned = family.pinned(self.m, fit_intercept=problem.fit_intercept)
        self.free = np.append(~pinned | (problem.ridge > 0.0), [problem.fit_intercept, True])
        self.near, self.hold = np.zeros(self.m + 2), 0.0

    # Points: coefficients, intercept, multiplier

    def _signals(self, x: FloatArray) -> FloatArray:
        score = np.concatenate([self.data.rows.dot(x[:-2]), self.X @ x[:-2]]) + x[-2]
        labels = np.concatenate([self.data.y, self.label])
        return np.asarray(score * labels if self.problem.is_classification else score - labels)

    def shares(self, x: FloatArray, mu: float) -> _Shares:
        """Return the smoothed maximum of every row and who has which share of it."""
        loss, t = self.problem.loss, self._signals(x)
        costs = np.concatenate([np.zeros(self.n), self.cost])
        owners = np.concatenate([np.arange(self.n), self.owner])
        values, slopes = loss.value_and_slope(t)
        heights = values - x[-1] * costs
        best = heights[: self.n].copy()
        np.maximum.at(best, self.owner, heights[self.n :])
        share = np.exp((heights - best[owners]) / mu)
        total = np.bincount(owners, share, self.n)
        share /= total[owners]
        entropy = -float(self.w[owners] @ xlogy(share, share))
        share *= self.w[owners]
        mean = float(self.w @ (best + mu * np.log(total)))
        if self.problem.is_classification:
            slopes = slopes * np.concatenate([self.data.y, self.label])
        return _Shares(mean, entropy, share, share * slopes, share * slopes * slopes, share * loss.curvature(t))

    def moment(self, slope: FloatArray) -> FloatArray:
        """Return ``sum_a slope_a (x_a, 1)``."""
        along = self.data.rows.transpose_dot(slope[: self.n]) + slope[self.n :] @ self.X
        return np.append(along, slope.sum())

    def spent(self, share: FloatArray) -> float:
        """Return the mean cost of the shares."""
        return float(share[self.n :] @ self.cost)

    # What the multiplier must not fall below

    def caps(self, x: FloatArray) -> Iterator[tuple[float, FloatArray, FloatArray | None]]:
        """Yield by how much the multiplier exceeds each of its lower limits, the gradient of that, and its Hessian."""
        unit = np.zeros(x.size)
        unit[-1] = 1.0
        yield float(x[-1]) - self.family.floor(), unit, None
        at = np.flatnonzero(self.open)
        if not at.size:
            return
        part = self.rates[at] * x[at]
        if isinstance(self.problem.geometry.norm, L1Norm):
            for j, value in zip(at, part, strict=True):
                for side in (1.0, -1.0):
                    gradient = unit.copy()
                    gradient[j] = -side * self.rates[j]
                    yield float(x[-1] - side * value), gradient, None
            return
        soft = 1e-9 * max(float(x[-1]), 1e-300)
        gradient, hessian = unit.copy(), np.zeros((x.size, x.size))
        if isinstance(self.problem.geometry.norm, L2Norm):
            length = float(np.sqrt(part @ part + soft * soft))
            gradient[at] = -self.rates[at] * part / length
            pull = self.rates[at] * part
            hessian[np.ix_(at, at)] = np.outer(pull, pull) / length**3 - np.diag(self.rates[at] ** 2 / length)
        else:
            sizes = np.sqrt(part * part + soft * soft)
            length = float(sizes.sum())
            gradient[at] = -self.rates[at] * part / sizes
            hessian[at, at] = -(self.rates[at] ** 2) * soft * soft / sizes**3
        yield float(x[-1]) - length, gradient, hessian

    def objective(self, x: FloatArray, mu: float) -> tuple[float, _Shares]:
        """Return the smoothed objective with a barrier at the multiplier's limits; infinite beyond them."""
        caps = [cap for cap, _, _ in self.caps(x)]
        found = self.shares(x, mu)
        if min(caps) <= 0.0:
            return np.inf, found
        barrier = -_BARRIER * mu / len(caps) * float(np.log(caps).sum())
        away = 0.5 * self.hold * float(((x - self.near)[:-2] ** 2).sum())
        return self.problem.radius * x[-1] + found.value + self.problem.penalty(x[:-2]) + barrier + away, found

    def newton(self, x: FloatArray, mu: float, most: int, goal: float) -> tuple[FloatArray, _Shares]:
        """Minimise at one width, held to where it begins: far away atoms are missing."""
        self.near = x
        value, found = self.objective(x, mu)
        for _ in range(most):
            gradient = np.append(self.moment(found.slope), self.problem.radius - self.spent(found.share))
            gradient[:-2] += self.problem.ridge * x[:-2] + self.hold * (x - self.near)[:-2]
            H = self._hessian(found, mu)
            H[np.arange(self.m), np.arange(self.m)] += self.problem.ridge + self.hold
            caps = list(self.caps(x))
            for cap, slope, bent in caps:
                gradient -= _BARRIER * mu / len(caps) / cap * slope
                H += _BARRIER * mu / len(caps) / cap**2 * np.outer(slope, slope)
                if bent is not None:
                    H -= _BARRIER * mu / len(caps) / cap * bent
            step = np.zeros(x.size)
            step[self.free] = solve_damped(H[np.ix_(self.free, self.free)], -gradient[self.free])
            promised = -float(gradient @ step)
            if not promised > goal:
                break
            length = 1.0
            for _ in range(_HALVINGS):
                trial = x + length * step
                there, at = self.objective(trial, mu)
                if there <= value - 0.1 * length * promised:
                    break
                length *= 0.4
            else:
                break
            x, value, found = trial, there, at
        return x, found

    def _hessian(self, found: _Shares, mu: float) -> FloatArray:
        n, m = self.n, self.m
        H = np.zeros((m + 2, m + 2))
        shared = np.zeros(n, dtype=bool)
        shared[self.owner] = True
        alone = ~shared
        # A row with one atom has the curvature of the loss alone.
        weight = found.bent + found.square / mu
        weight[:n][alone] = found.bent[:n][alone]
        H[:m, :m] = self.data.rows.gram(weight[:n]) + (self.X * weight[n:, None]).T @ self.X
        H[:m, m] = H[m, :m] = self.moment(weight)[:-1]
        H[m, m] = weight.sum()
        if self.owner.size:
            across = found.slope[n:] * self.cost / mu
            H[:m, -1] -= across @ self.X
            H[m, -1] -= across.sum()
            H[-1, :m], H[-1, m] = H[:m, -1], H[m, -1]
            H[-1, -1] = float(found.share[n:] @ self.cost**2) / mu
            rows = np.flatnonzero(shared)
            place = np.empty(n, dtype=np.intp)
            place[rows] = np.arange(rows.size)
            own = self.data.rows.take(rows)
            own = np.asarray(own.toarray() if hasattr(own, "toarray") else own, dtype=np.float64)
            M = np.zeros((rows.size, m + 2))
            M[:, :m] = own * found.slope[rows][:, None]
            M[:, m] = found.slope[rows]
            shape, at = (rows.size, self.owner.size), np.arange(self.owner.size)
            M[:, :m] += sp.csr_array((found.slope[n:], (place[self.owner], at)), shape=shape) @ self.X
            M[:, m] += np.bincount(place[self.owner], found.slope[n:], rows.size)
            M[:, -1] -= np.bincount(place[self.owner], found.share[n:] * self.cost, rows.size)
            root = np.divide(1.0, np.sqrt(mu * self.w[rows]), out=np.zeros(rows.size), where=self.w[rows] > 0.0)
            M *= root[:, None]
            H -= M.T @ M
        return H

    # Passes over the rows

    def look(self, x: FloatArray, mu: float) -> float:
        """Return the objective at a point, and add the atoms that its best moves lead to."""
        coef, intercept, multiplier = x[:-2], float(x[-2]), float(x[-1])
        t = self._signals(x)
        known = self.problem.loss.value(t) - multiplier * np.concatenate([np.zeros(self.n), self.cost])
        best = known[: self.n].copy()
        np.maximum.at(best, self.owner, known[self.n :])
        total, new = 0.0, []
        for part, X in self.data.rows.dense_blocks():
            y = self.data.y[part]
            moves = self.family.moves(X, y, coef, intercept, multiplier)
            total += float(self.w[part] @ moves.upper)
            better = np.flatnonzero((moves.lower > best[part] + 0.01 * mu) & (self.w[part] > 0.0))
            if better.size:
                led = self.family.moves(X[better], y[better], coef, intercept, multiplier, points=True)
                price = led.cost - led.travel
                cost = price + self.family.lengths(led.X - X[better])  # of where the move led
                new.append((led.X, better + part.start, led.label, cost))
        if new:
            self.X = np.vstack([self.X, *(led for led, _, _, _ in new)])
            self.owner = np.concatenate([self.owner, *(owner for _, owner, _, _ in new)])
            self.label = np.concatenate([self.label, *(label for _, _, label, _ in new)])
            self.cost = np.concatenate([self.cost, *(cost for _, _, _, cost in new)])
        return self.problem.radius * multiplier + total + self.problem.penalty(coef)

    def forget(self, share: FloatArray) -> None:
        """Drop the atoms that nothing is moved to, where there are many."""
        if self.X.size <= _MOST_NUMBERS:
            return
        keep = np.ones(self.owner.size, dtype=bool)
        known = share.size - self.n
        keep[:known] = share[self.n :] > _LEAST_SHARE * self.w[self.owner[:known]]
        self.X, self.owner, self.label, self.cost = self.X[keep], self.owner[keep], self.label[keep], self.cost[keep]

    def _repaired(self, x: FloatArray, found: _Shares, mu: float) -> tuple[FloatArray, FloatArray]:
        """Return shares that cost no more than the radius, and slopes times shares whose moment balances.

        A slope moves by the curvature of the loss times the change of its score along a direction that takes the
        gradient away.
        """
        n, share, slope = self.n, found.share.copy(), found.slope.copy()
        room = found.bent
        spent = self.spent(share)
        if spent > self.problem.radius:
            back = (1.0 - self.problem.radius / spent) * share[n:]
            steep = np.divide(slope[:n], share[:n], out=np.zeros(n), where=share[:n] > 0.0)
            given = np.bincount(self.owner, back, n)
            slope[n:] *= self.problem.radius / spent
            share[n:] -= back
            share[:n] += given
            slope[:n] += steep * given
        wanted = -self.problem.ridge * x[:-2]
        caps = list(self.caps(x))
        for cap, along, _ in caps:
            wanted += _BARRIER * mu / len(caps) / cap * along[:-2]
        free, m = self.free[:-1], self.m
        K = np.zeros((m + 1, m + 1))
        K[:m, :m] = self.data.rows.gram(room[:n]) + (self.X * room[n:, None]).T @ self.X
        K[:m, m] = K[m, :m] = self.moment(room)[:-1]
        K[m, m] = room.sum()
        direction = np.zeros(m + 1)
        for _ in range(_REPAIRS):
            left = np.append(wanted, 0.0) - self.moment(slope)
            direction[free] = solve_damped(K[np.ix_(free, free)], left[free])
            along = np.concatenate([self.data.rows.dot(direction[:-1]), self.X @ direction[:-1]]) + direction[-1]
            slope = self._clipped(slope + room * along, share)
        return share, slope

    def _clipped(self, slope: FloatArray, share: FloatArray) -> FloatArray:
        """Return slopes times shares inside the range of the loss's slopes."""
        least, most = self.problem.loss.slope_range
        sign = np.concatenate([self.data.y, self.label]) if self.problem.is_classification else 1.0
        return np.asarray(np.clip(slope * sign, least * share, most * share) * sign)

    def bound(self, x: FloatArray, found: _Shares, mu: float, upper: float) -> tuple[float, float]:
        """Return what the shares' plane says of every model in the region, and what rounding may have added."""
        problem, data = self.problem, self.data
        share, mixed = self._repaired(x, found, mu)
        used = share > 0.0
        own, labels = mixed[used] / share[used], np.concatenate([data.y, self.label])[used]
        signs = labels if problem.is_classification else np.ones(labels.size)
        least_slope, most_slope = problem.loss.slope_range
        own = np.clip(own * signs, least_slope, most_slope)
        mixed = np.zeros(share.size)
        mixed[used] = own * signs * share[used]
        conjugate = share[used] * problem.loss.conjugate(own)
        target = np.zeros(labels.size) if problem.is_classification else mixed[used] * (labels - self.below.middle)
        sizes = data.rows.column_sizes(None) if self.n else np.zeros(self.m)
        plane = Plane(
            -float(conjugate.sum()) - float(target.sum()),
            float(np.abs(conjugate).sum()) + float(np.abs(target).sum()),
            self.moment(mixed),
            float(np.abs(mixed).sum()),
            self.spent(share),
            np.maximum(sizes, np.abs(self.X).max(axis=0, initial=0.0)),
            self.n + self.owner.size,
        )
        return self.below.least(plane, x[:-2], upper)


def run_atoms(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative) from a model on, or go as far as this goes."""
    family = BoxFamily.of(problem.family)
    if problem.ridge == 0.0:
        coef, intercept = family.canonical(coef, intercept, fit_intercept=problem.fit_intercept)
    multiplier = family.search(data.rows, data.y, data.weights, coef, intercept, sharpness=_SHARPNESS)[0].multiplier
    atoms = _Atoms(problem, family, data)
    x = np.append(coef, [intercept, max(multiplier, 1.01 * family.kappa(coef) + 1e-12, 1e-9)])
    upper = atoms.look(x, 0.0)
    best, lower, rounding = x, -np.inf, 0.0
    history: list[tuple[float, float]] = []
    mu, since, narrowest, fine = _FIRST * upper, 0, np.inf, False
    atoms.hold = _NEAR * mu
    for _ in range(_MOST_ROUNDS):
        x, found = atoms.newton(x, mu, _LAST_STEPS if fine else _STEPS, _GOAL * tol * upper)
        known, off = atoms.bound(x, found, mu, upper)
        if known - off > lower:
            lower, rounding = known - off, off
        atoms.forget(found.share)
        value, before = atoms.look(x, mu), upper
        atoms.hold *= _SHRINK if value <= upper else 1.0 / _SHRINK
        if value < upper:
            upper, best = value, x
        elif value > upper + mu:  # so far away atoms were missing; now that they are known, from the best point again
            for share in _NEARER:
                nearer = best + share * (x - best)
                value = atoms.look(nearer, mu)
                if value < upper:
                    upper, best = value, nearer
                    break
            x = best
        history.append((lower, upper))
        gap = upper - lower
        fell, since = upper < before - 0.1 * tol * abs(upper), since + 1
        if gap < 0.9 * narrowest or fell:
            since = 0
        narrowest = min(narrowest, gap)
        if gap <= 0.9 * tol * abs(upper) or (fine and since > _STALLED):
            break
        # What smoothing adds to the risk is the width times the entropy of the shares.
        fine = mu * found.entropy <= _LAST * tol * upper
        if not fine:
            mu *= _SHRINK
    return NewtonResult(best[:-2], float(best[-2]), float(best[-1]), upper, lower, rounding, history)
