"""A bundle of planes below the worst-case risk on a box: its minimum is a rigorous lower bound.

The objective ``sigma lam + sum_i w_i h_i(theta, b, lam) + ridge`` is jointly convex. One pass over the rows at a point
gives, for each row or for each of many groups of rows, a plane below its share of it: the best moves at that point are
moves at every other. The planes' minimum over a region that must hold the optimum bounds it from below. A rough
minimiser of the planes, not too far from the best point so far, is the next point to look at.

With linf a feature moves along with the others at no extra cost, whatever the sign of its coefficient. So it does in
any norm if the radius takes rows anywhere. The objective then has an edge wherever a coefficient is zero, and there
would have to be planes for every pattern of signs. There the coefficients are split, ``theta = theta+ - theta-``, and a
plane takes the best move of either part. It stays below: at a model one part of each feature is zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates.region import BoxLevelSet, find_region
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily, Moves
from dualcore.solvers.constant import best_constant
from dualcore.solvers.moving.bundle.caps import find_caps
from dualcore.solvers.moving.bundle.cuts import CurveStore, MovedRows, PlaneStore, Tangents, tangents
from dualcore.solvers.moving.bundle.master import MOST_STEPS, Found, Master
from dualcore.solvers.moving.bundle.sums import mean_squares, pairwise

__all__ = ["Bundle"]

# Planes of one pass: a row each where that many numbers, or groups, are not exceeded.
_MOST_NUMBERS, _MOST_GROUPS = 300_000, 4000
# Features that vary less than this share of the mean are scaled as if they varied so much.
_LEAST_SPREAD = 0.1
# Planes that have not carried the bound for this many passes are dropped: where there are many, or few numbers.
_IDLE, _OLD, _ROOMY = 2, 60, 200_000
# Products that minimising the planes may take in all, for data of 1e5 numbers: some seconds.
_MOST_WORK = 2e10
# A plane must rise above the others by this share of its height.
_NOTHING = 1e-9
# Passes without a smaller gap after which rounding is to blame.
_STALLED = 25
# A pass in which rounding kept the planes' minimum from being found counts for this many of them; for more where the
# planes were those of the pass before.
_BLOCKED, _SAME_AGAIN = 4, 12
# To which share of what it promises the planes' minimum is found.
_EFFORT = 0.1
# And the smallest share of the risk to which it is ever found.
_SHARPEST = 1e-14
# Points that a pass may add between the best one and the planes' minimum.
_CLOSER = 7
# Roundings in the sum behind a bound, in units of machine precision; see `Bundle.bound`.
_ROUNDINGS = 32.0


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
    multiplier : float, optional
        Of the risk at the start, where it is known.

    Attributes
    ----------
    lower, upper : float
        Of the optimal objective, ridge included; ``upper`` is met at the model `best` returns.
    rounding : float
        What rounding can have added to the planes' minimum; ``lower`` is smaller by it already.
    history : list of (lower, upper)
        One pair a pass.
    """

    def __init__(
        self,
        problem: Problem,
        data: Data,
        coef: FloatArray,
        intercept: float,
        *,
        floor: float = 0.0,
        multiplier: float | None = None,
    ) -> None:
        if problem.radius == 0.0:
            raise ValueError("a bundle is for problems with a support and a positive radius")
        self.problem, self.box, self.data = problem, BoxFamily.of(problem.family), data
        w, m = data.masses, data.rows.m
        if problem.ridge == 0.0:
            coef, intercept = self.box.canonical(coef, intercept, fit_intercept=problem.fit_intercept)
        # Offsets of features and target are taken out before anything is summed.
        self.centre = data.rows.transpose_dot(w) if problem.fit_intercept else np.zeros(m)
        shifted = problem.fit_intercept and not problem.is_classification
        self.middle = float(w @ data.y) if shifted else 0.0
        # Unit steps of the scaled variables move the scores alike. A feature that hardly varies still matters: the
        # adversary moves it as much as others. Features are compared by what moving them costs, whatever their units.
        spread = np.sqrt(mean_squares(data, self.centre))
        typical = float(spread.mean()) or 1.0
        prices = self.box.prices(m)
        priced = np.isfinite(prices)
        usual = float((spread[priced] * prices[priced]).mean()) if priced.any() else 0.0
        self.spread = np.maximum(spread, _LEAST_SPREAD * np.minimum(usual / prices, self._room(prices)))
        self.spread[self.spread == 0.0] = typical
        self.parts = 2 if self.box.has_edges(m) else 1
        # A multiplier is of the size of the largest coefficient, in units of its price.
        ease = float((1.0 / (self.spread * prices)).mean())
        self.scale = np.append(np.tile(self.spread, self.parts), [1.0, 1.0 / ease if ease > 0.0 else typical])
        t = problem.signal(coef, intercept, data)
        self._group(t)
        size = self.scale.size
        self.cuts = self._no_cuts(size)
        self.idle = np.empty(0, dtype=np.intp)
        self.lower, self.upper, self.rounding = floor, np.inf, 0.0
        self.history: list[tuple[float, float]] = []
        self.bend: FloatArray | None = None
        self.furthest = np.zeros(m)
        ball = 1.0 / (self.spread * prices)
        self.ball = np.append(np.tile(ball / max(float(np.median(ball)), 1e-300), self.parts), [0.0, 0.0])
        self.cost = np.zeros(size)
        self.cost[-1] = problem.radius / self.scale[-1]
        self.curve = np.append(problem.ridge / self.scale[:-2] ** 2, [0.0, 0.0])
        if multiplier is None:
            multiplier = problem.evaluate(coef, intercept, data).multiplier
        self.look(self.place(coef, intercept, multiplier))
        # Where no feature counts, and the risk may be nothing at all.
        self.look(self.place(np.zeros(m), self._constant(), self.box.floor()))
        self._set_region(self._find_region())
        # How far the first step may go.
        unit = 1.0 if problem.is_classification else float(w @ np.abs(t))
        self.reach = max(
            0.3 * float(np.abs(self.point[:-1]).max()), unit, 1e-12 * float(np.abs(self.point).max()), 1e-300
        )

    # Points and groups

    def _room(self, prices: FloatArray) -> FloatArray:
        """Return how far the adversary takes a feature: across the box, or as far as the radius pays for."""
        low, high = self.box.support.spread(self.data.rows.m)
        return np.where(
            np.isinf(prices), 0.0, np.where(np.isfinite(high - low), high - low, self.problem.radius / prices)
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
        level = x[-2] - self.centre @ coef + self.middle if self.problem.fit_intercept else 0.0
        return coef, float(level), float(x[-1] / self.scale[-1])

    def place(self, coef: FloatArray, intercept: float, multiplier: float) -> FloatArray:
        """Return the point of a model: scaled, centred, of split coefficients one part zero."""
        parts = coef if self.parts == 1 else np.concatenate([np.maximum(coef, 0.0), np.maximum(-coef, 0.0)])
        level = intercept + self.centre @ coef - self.middle
        return np.asarray(np.append(parts, [level, multiplier]) * self.scale)

    def _group(self, t: FloatArray) -> None:
        """Give every row of positive mass a group: of rows with similar margins, whose best moves change together."""
        kept = np.flatnonzero(self.data.masses > 0.0)
        self.n_groups = min(kept.size, _MOST_GROUPS, max(8, _MOST_NUMBERS // self.scale.size))
        self.group = np.full(self.data.rows.n, -1, dtype=np.intp)
        self.group[kept[np.argsort(t[kept], kind="stable")]] = np.arange(kept.size) * self.n_groups // kept.size
        self.largest = -(-kept.size // self.n_groups)

    def _no_cuts(self, size: int) -> PlaneStore | CurveStore:
        """Return an empty store: of curves where every row is a group of its own and the loss is curved."""
        none, nobody = np.empty(0), np.empty(0, dtype=np.intp)
        if self.problem.loss.pieces is not None or self.largest > 1:
            return PlaneStore(np.empty((0, size)), none, nobody, self.n_groups)
        loss, unit = self.problem.loss, float(self.scale[-1])
        return CurveStore(loss, np.empty((0, size)), none, none, none, none, nobody, self.n_groups, unit=unit)

    def _constant(self) -> float:
        """Return the best intercept of a model without features, nearly: nothing that costs nothing is missed."""
        if not self.problem.fit_intercept:
            return 0.0
        return best_constant(self.problem.loss, self.data.y, self.data.masses)

    def _find_region(self) -> BoxLevelSet:
        above = self.upper * (1.0 + 1e-9)
        return find_region(self.problem, self.box, self.data, self.centre, self.middle, self.spread, above)

    def _set_region(self, region: BoxLevelSet) -> None:
        bound = np.tile(region.coef, self.parts)
        low = -bound if self.parts == 1 else np.zeros_like(bound)
        self.region = region
        self.most = np.append(bound, [region.level, region.high]) * self.scale
        self.least = np.append(low, [-region.level, region.low]) * self.scale
        self.floor = self.least.copy()

    # The loop

    def run(self, tol: float, max_iter: int, *, enough: float = -np.inf) -> int:
        """Close the gap to ``tol`` (relative), or raise the lower bound to ``enough``; return how many passes."""
        best, since, last, known, spent = np.inf, 0, np.inf, -1, 0
        limit = _MOST_WORK * max(1.0, self.data.rows.n * self.data.rows.m / 1e5)
        accuracy, sharp = _EFFORT * (self.upper - self.lower), 0.05 * tol
        for count in range(max_iter):
            if self.upper <= self.lower:
                self.history.append((self.lower, self.upper))
                return count + 1
            finest = sharp * abs(self.upper)
            accuracy = max(min(accuracy, _EFFORT * (self.upper - self.lower)), finest)
            found, held = self.solve(accuracy)
            spent += found.steps * len(self.cuts) * self.scale.size * (self.scale.size + 20)
            self.bound(found, tol)
            self.history.append((self.lower, self.upper))
            gap = self.upper - self.lower
            # Planes whose minimum is out of reach are no better next time.
            blocked = 0 if found.steps < MOST_STEPS else _BLOCKED if len(self.cuts) != known else _SAME_AGAIN
            since = 0 if gap < 0.9 * best else since + max(blocked, 1)
            best = min(best, gap)
            stuck = since > _STALLED + 2 * self.scale.size or spent > limit
            if gap <= tol * abs(self.upper) or self.lower >= enough > -np.inf or stuck:
                return count + 1
            upper, centre = self.upper, self.point
            promised = upper - found.value
            error = self.look(found.x) - found.value
            share, wrong = 1.0, error
            for _ in range(_CLOSER):
                # Far away the planes were wrong: nearer to the best point there are others to learn.
                if wrong <= 2.0 * share * max(promised, accuracy):
                    break
                share *= 0.1
                wrong = self.look(centre + share * (found.x - centre)) - (upper - share * max(promised, 0.0))
            settled = promised <= 2.0 * accuracy
            if settled and accuracy <= finest:
                # The planes touch the best point, and yet the bound does not: their multipliers are too rough, because
                # the region that the bound is about is wider than the one in which the planes are minimised.
                sharp = max(0.1 * sharp, _SHARPEST)
            accuracy = 0.1 * accuracy if settled else _EFFORT * promised
            if held and (settled or error <= promised):
                self.reach, last = 4.0 * self.reach, np.inf
            elif error > 10.0 * promised and not settled and error < 0.3 * last * promised:
                # Nearer the planes are better. Where they are not, it is their number that counts.
                last = error / promised
                self.reach *= float(np.clip(10.0 * share, 0.2, 0.5))
            if len(self.cuts) == known and accuracy <= finest and not held:
                since += 5  # nothing new to learn
            known = len(self.cuts)
        return max_iter

    def solve(self, target: float) -> tuple[Found, bool]:
        """Minimise the planes near the best point; say whether the limit on the distance held it back."""
        near = np.append(np.full(self.scale.size - 1, self.reach), 10.0 * self.reach)
        near[-1] = max(near[-1], 0.5 * self.point[-1])
        low, high = np.maximum(self.least, self.point - near), np.minimum(self.most, self.point + near)
        # Variables whose two limits coincide are held fixed.
        free = np.flatnonzero(high - low > 1e-14 * (np.abs(low) + np.abs(high)))
        firm = np.append(np.full(self.scale.size - 2, self.parts == 2), [False, True]) & (low <= self.floor)
        cuts = self.cuts.near(self.point, free)
        caps = find_caps(self.box, self.scale, self.parts, free, 1e-9 * self.upper / self.problem.radius)
        bend = None
        if self.bend is not None and len(self.history) % 2:
            round_off = 2.0 * (self.upper - self.lower) * (self.ball / self.reach) ** 2
            bend = (self.bend + np.diag(round_off))[np.ix_(free, free)], self.point[free]
        about = self._directions()
        master = Master(
            cuts, self.cost[free], self.curve[free], low[free], high[free], caps, firm[free], bend, about[:, free]
        )
        found = master.solve(self.point[free], gap=self.upper - self.lower, target=target)
        x, edge = self.point.copy(), 0.02 * (high - low)
        x[free] = found.x
        gradients = np.zeros((len(caps), x.size))
        gradients[:, free] = found.gradients
        held = ((low > self.least) & (x - low < edge)) | ((high < self.most) & (high - x < edge))
        value = found.value + float(self.cost @ x - self.cost[free] @ found.x)
        left, stray = np.zeros(x.size), np.zeros(about.shape)
        left[free], stray[:, free] = found.left, found.stray
        spans = np.where(np.delete(about, free, axis=1).any(axis=1), np.inf, found.spans)
        found = found._replace(x=x, value=value, gradients=gradients, left=left, spans=spans, stray=stray)
        return found, bool(held[free].any())

    def bound(self, found: Found, tol: float) -> None:
        """Raise the lower bound to what the multipliers make of the planes, however far they are from optimal.

        Notes
        -----
        With unit roundoff u, every entry of a row's plane, relative to centred features and target, is the result of
        at most 5 operations (difference, loss or slope, products with label and mass); a group of k rows adds k - 1
        sums; dividing by the scale, mixing (two products) and numpy's pairwise sum over at most 2^24 planes add 3 and
        16 + 3 + 17. The computed slope and offset are thus within ``(44 + k) u`` of the sums of absolute terms, u half
        of machine precision; 32 + k machine precisions leave room for the loss functions. What a slope is off by costs
        at most that times how far the optimum can be, which the region says: ``sum_j units_j |theta_j|``, the level,
        and the multiplier.
        """
        planes = self.cuts.tangents(found.x)
        lower, rounding = self._evaluate(planes, found)
        if max(rounding, -self._least(found.left)) > 0.05 * tol * self.upper and self._localise(found, rounding):
            lower, rounding = self._evaluate(planes, found)
        if lower - rounding > self.lower:
            self.lower, self.rounding = lower - rounding, rounding
        self.idle = np.where(found.mix > 1e-3, 0, self.idle + 1)
        crowded = len(self.cuts) > max(3 * self.n_groups, _ROOMY // self.scale.size)
        keep = self.idle <= (_IDLE if crowded else _OLD)
        self.cuts.keep(keep)
        self.idle = self.idle[keep]

    def _evaluate(self, planes: Tangents, found: Found) -> tuple[float, float]:
        """Return the planes' bound and its rounding allowance."""
        mix, weights, gradients = found.mix, found.weights, found.gradients
        slope = pairwise(planes.rows, mix) + weights @ gradients + self.cost
        value = float((mix * planes.offsets).sum()) + self._least(slope)
        sizes, region = mix @ planes.sizes, self.region
        caps = np.abs(weights @ np.abs(gradients)) * np.maximum(np.abs(self.least), np.abs(self.most))
        far = min(region.reach * sizes[1], float(region.coef @ self.furthest) * sizes[2])
        terms = sizes[0] + far + region.level * sizes[2] + region.high * sizes[3]
        terms += region.high * self.problem.radius + float(caps.sum())
        return value, (_ROUNDINGS + self.largest) * np.finfo(np.float64).eps * float(terms)

    def _least(self, slope: FloatArray) -> float:
        """Return the minimum of ``slope . x`` plus the ridge over the region, or something below it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(slope == 0.0, 0.0, -slope / self.curve)
        at = np.clip(at, self.least, self.most)
        each = slope * at + 0.5 * self.curve * (at * at)
        # All coefficients together cannot go as far as each of them.
        down = np.maximum(-slope[:-2], 0.0) if self.parts == 2 else np.abs(slope[:-2])
        units = np.tile(self.region.units, self.parts)
        steepest = np.divide(down * self.scale[:-2], units, out=np.zeros_like(down), where=units > 0.0).max(initial=0.0)
        return max(float(each[:-2].sum()), -float(steepest) * self.region.reach) + float(each[-2:].sum())

    def _directions(self) -> FloatArray:
        """Return what is localised: coefficients, level, multiplier; the sum of split parts is no part of a model."""
        size = self.scale.size
        if self.parts == 1:
            return np.eye(size)
        m = self.data.rows.m
        return np.vstack([np.hstack([np.eye(m), -np.eye(m), np.zeros((m, 2))]), np.eye(size)[-2:]])

    def _localise(self, found: Found, rounding: float) -> bool:
        """Shrink the region to where the planes are below the best value seen; say whether that helped.

        Multipliers moved by no more than their own size are multipliers: those moved along ``+-e_j`` bound ``x_j`` of
        every point whose value is at most ``upper``. They carry at most twice the rounding.
        """
        span = self.most - self.least
        over = max(self.upper * (1.0 + 1e-9) - found.value, 0.0) + found.gap + 2.0 * rounding
        over += float(np.abs(found.left) @ span)
        with np.errstate(invalid="ignore", over="ignore"):
            far = found.spans * over + np.abs(found.stray) @ span
        far = np.where(np.isfinite(far), far, np.inf)
        at = self._directions() @ found.x
        low, high = at - far, at + far
        if self.parts == 2:  # of a model one part is zero
            low, high = (
                np.concatenate([np.zeros(2 * (low.size - 2)), low[-2:]]),
                np.concatenate([np.maximum(high[:-2], 0.0), np.maximum(-low[:-2], 0.0), high[-2:]]),
            )
        least, most = np.maximum(self.least, low), np.minimum(self.most, high)
        if not (most - least < 0.9 * span).any():
            return False
        self.least, self.most = least, most
        bound = np.maximum(np.abs(least), np.abs(most)) / self.scale
        coef = bound[:-2].reshape(self.parts, -1).max(axis=0)
        region = self.region
        reach = min(region.reach, float(region.units @ coef))
        self.region = region._replace(
            coef=np.minimum(region.coef, coef),
            reach=reach,
            level=min(region.level, float(bound[-2])),
            high=min(region.high, float(bound[-1])),
        )
        return True

    # Planes

    def look(self, x: FloatArray) -> float:
        """Evaluate the objective at a point: a plane for every group, and perhaps a better point."""
        problem, box = self.problem, self.box
        coef, intercept, multiplier = self.model(x)
        multiplier = max(multiplier, box.kappa(coef) * (1.0 + 1e-12))
        x = self.place(coef, intercept, multiplier)
        sums = Tangents(np.zeros((self.n_groups, x.size)), np.zeros(self.n_groups), np.zeros((self.n_groups, 4)))
        total = 0.0
        curved = self.box.is_curved and self.parts == 1
        bend = np.zeros((x.size, x.size)) if curved else None
        for part, block in self.data.rows.dense_blocks():
            rows = np.flatnonzero(self.group[part] >= 0)
            X, y = block[rows], self.data.y[part][rows]
            mass, group = self.data.masses[part][rows], self.group[part][rows]
            found = box.moves(X, y, coef, intercept, multiplier, points=True, sides=self.parts == 2)
            moved = self._moved(X, y, found)
            if isinstance(self.cuts, CurveStore):
                self._add_curves(moved, mass, group, x)
            else:
                gather = sp.csr_array((mass, (group, np.arange(group.size))), shape=(self.n_groups, group.size))
                for sum_, each in zip(sums, tangents(problem.loss, moved), strict=True):
                    sum_ += gather @ each
            total += float(mass @ found.upper)
            if bend is not None:
                bend += self._bending(coef, multiplier, found.X - X, mass * np.abs(problem.loss.slope(found.signal)))
        if isinstance(self.cuts, PlaneStore):
            self._add_planes(self.cuts, sums._replace(rows=sums.rows / self.scale), x)
        value = problem.radius * multiplier + total + problem.penalty(coef)
        if value < self.upper:
            self.upper, self.point = value, x
            self.bend = None if bend is None else bend / np.outer(self.scale, self.scale)
        return value

    def _bending(self, coef: FloatArray, multiplier: float, moves: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the second derivative of what l2 moves earn, at fixed slopes of the loss.

        Where some features are at their walls, ``T`` the square of how far they went, the others go along their
        coefficients ``u`` and earn ``-sqrt(T (lam^2 - |u|^2))``.
        """
        prices = self.problem.geometry.norm.weights
        p = np.ones(coef.size) if prices is None else prices
        u = np.abs(coef) / p
        v = np.abs(moves) * np.where(np.isfinite(p), p, 0.0)
        ratio = np.divide(v, u, out=np.zeros_like(v), where=u > 0.0)
        far = ratio.max(axis=1, initial=0.0)
        free = (ratio >= (1.0 - 1e-9) * far[:, None]) & (u > 0.0)
        T = (np.where(free, 0.0, v) ** 2).sum(axis=1)
        rows = np.flatnonzero((far > 0.0) & (T > 0.0) & (weights > 0.0))
        out = np.zeros((self.scale.size, self.scale.size))
        if rows.size:
            first = weights[rows] * far[rows]
            second = first * far[rows] ** 2 / T[rows]
            pull = np.where(free[rows], coef / p**2, 0.0)
            lam = np.sqrt(T[rows] / far[rows] ** 2 + (np.where(free[rows], u, 0.0) ** 2).sum(axis=1))
            across = np.column_stack([pull, np.zeros(rows.size), -lam])
            out = (across * second[:, None]).T @ across
            m = coef.size
            out[np.arange(m), np.arange(m)] += first @ (free[rows] / p**2)
            out[-1, -1] = float(second @ (lam**2)) - float(first.sum())
        return out

    def _add_planes(self, cuts: PlaneStore, found: Tangents, x: FloatArray) -> None:
        """Keep the planes that say more at ``x``, where they were made, than those before them."""
        new = self._news(found.rows @ x + found.offsets, np.arange(self.n_groups), x)
        cuts.add(Tangents(found.rows[new], found.offsets[new], found.sizes[new]), new)
        self.idle = np.append(self.idle, np.zeros(new.size, dtype=np.intp))

    def _add_curves(self, moved: MovedRows, mass: FloatArray, group: npt.NDArray[np.intp], x: FloatArray) -> None:
        """Keep the curves that say more at ``x`` than those before them."""
        if not isinstance(self.cuts, CurveStore):
            raise TypeError("curves go to a store of curves")
        value = self.problem.loss.value(moved.signal) - float(x[-1] / self.scale[-1]) * moved.cost
        new = self._news(mass * value, group, x)
        self.cuts.add(MovedRows(*(part[new] for part in moved)), mass[new], self.scale, group[new])
        self.idle = np.append(self.idle, np.zeros(new.size, dtype=np.intp))

    def _news(self, height: FloatArray, group: npt.NDArray[np.intp], x: FloatArray) -> npt.NDArray[np.intp]:
        """Return the places of the cuts that are higher at ``x`` than all others of their group."""
        if not len(self.cuts):
            return np.arange(height.size)
        top = np.full(self.n_groups, -np.inf)
        np.maximum.at(top, self.cuts.owner, self.cuts.heights(x))
        # Before the end of the first look no risk is known, and the groups of later blocks have no cut yet.
        known = np.abs(self.upper) / self.n_groups if np.isfinite(self.upper) else 0.0
        return np.flatnonzero(height > top[group] + _NOTHING * (np.abs(height) + known))

    def _moved(self, X: FloatArray, y: FloatArray, found: Moves) -> MovedRows:
        """Return rows after their best moves, with the cost of the moves measured where they led."""
        problem = self.problem
        price = found.cost - found.travel
        if self.parts == 1:
            moved = found.X - self.centre
            cost = price + self.box.lengths(found.X - X)
        else:
            moved = np.hstack([found.rising - self.centre, self.centre - found.falling])
            # A model may have some features rise and others fall, so each counts as far as it goes on either side.
            far = np.maximum(np.abs(found.rising - X), np.abs(found.falling - X))
            cost = price + self.box.lengths(far)
        self.furthest = np.maximum(
            self.furthest, np.abs(moved).max(axis=0, initial=0.0).reshape(self.parts, -1).max(axis=0)
        )
        units = np.tile(self._units(), self.parts)
        share = np.divide(np.abs(moved), units, out=np.zeros_like(moved), where=units > 0.0).max(axis=1, initial=0.0)
        gradient, offset = np.column_stack([moved, np.ones(y.size)]), np.zeros(y.size)
        if problem.is_classification:
            gradient *= found.label[:, None]
        else:
            offset = self.middle - y
        return MovedRows(gradient, offset, found.signal, cost, share)

    def _units(self) -> FloatArray:
        """Return the units in which the region measures coefficients."""
        low, high = self.box.support.spread(self.data.rows.m)
        walled = np.isfinite(high - low) & (high > low) & np.isfinite(self.box.prices(low.size))
        return np.where(walled, high - low, self.spread)
