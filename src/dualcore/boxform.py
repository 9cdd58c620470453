"""The dual of the worst-case risk where the features live in a box: ``h``, the risk, its subgradient.

A row has two ways to go: a label that stays and one that flips (classification), a residual pushed up and one
pushed down (regression). Along each, `dualcore.boxmoves` finds the best move ``v``, and

    h(theta, b, lam) = max over ways and moves of  L(t after the move) - lam * (||v|| + price of the way) .

Every fixed move bounds ``h`` from below for *all* parameters, so the best moves at one model are a distribution that is
feasible for all of them: the source of subgradients, cuts, worst cases and lower bounds.

Where a feature has no wall on one side, ``h`` is finite for ``lam >= kappa = Lip ||theta_J||_*`` only, ``J`` the
features that can run away. A target that moves (regression, finite label cost) adds ``kappa >= 2 Lip / gamma`` and
nothing else: at such a multiplier it never pays to move it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dualcore.boxmoves import Path, get_path
from dualcore.forms import Minimum
from dualcore.geometry import Box, FloatArray, Geometry, LinfNorm
from dualcore.losses import Loss, MarginLoss
from dualcore.rows import Rows

__all__ = ["BoxForm", "Bracket", "Moves", "Pull"]

# Passes over the data that the search for the multiplier may take; it seldom needs forty.
_MOST_PASSES = 200
_SHARPNESS = 1e-14
# A row this far outside the box, relatively, is inside: single precision has no more digits.
_ROUNDING = 1e-6


class Moves(NamedTuple):
    """The best move of each row of a block.

    Attributes
    ----------
    lower, upper : ndarray of shape (n_rows,)
        What the move earns, and what none exceeds; the two coincide but for l2 with a curved loss.
    cost : ndarray of shape (n_rows,)
        Transport cost, the label included.
    travel : ndarray of shape (n_rows,)
        Of it, what moving the features costs.
    signal : ndarray of shape (n_rows,)
        Margin or residual after the move.
    label : ndarray of shape (n_rows,)
        Label or target after the move.
    X : ndarray of shape (n_rows, n_features)
        Features after the move; no rows where they were not asked for.
    rising, falling : ndarray of shape (n_rows, n_features)
        Where a feature goes at no further cost if its coefficient is positive, or negative: as far as it went, with
        linf as far as the furthest went. No rows where they were not asked for.
    """

    lower: FloatArray
    upper: FloatArray
    cost: FloatArray
    travel: FloatArray
    signal: FloatArray
    label: FloatArray
    X: FloatArray
    rising: FloatArray
    falling: FloatArray


class Bracket(NamedTuple):
    """Two multipliers with the minimiser between them, and what every row's best move costs at either."""

    low: float
    high: float
    low_cost: FloatArray
    high_cost: FloatArray


class Pull(NamedTuple):
    """A subgradient in coefficients and intercept, and the transport cost of the moves behind it."""

    coef: FloatArray
    intercept: float
    cost: float


class _Way(NamedTuple):
    """One way for the rows of a block: from ``start`` the signal moves to ``side``, the score along ``push``."""

    start: FloatArray
    side: float
    push: FloatArray
    label: FloatArray
    price: float


class BoxForm:
    """``h`` and the minimum over the multiplier on a box, a block of rows at a time.

    Parameters
    ----------
    loss : Loss
        Of order 1.
    geometry : Geometry
        With a support.
    radius : float
    """

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        if geometry.support is None:
            raise ValueError("BoxForm needs a geometry with a support.")
        self.loss, self.geometry, self.radius = loss, geometry, radius
        self.support: Box = geometry.support
        self.is_classification = isinstance(loss, MarginLoss)

    # One block of rows

    def check(self, rows: Rows, first: int = 0) -> None:
        """Raise ValueError where a row lies outside the box; ``first`` is the number of the first row.

        Rounding is forgiven, as of features scaled in single precision: such a row cannot move on.
        """
        low, high = self.support.spread(rows.m)
        width = np.where(np.isfinite(high - low), high - low, 1.0)
        least, most = low - _ROUNDING * (np.abs(low) + width), high + _ROUNDING * (np.abs(high) + width)
        for part, X in rows.dense_blocks():
            outside = (least > X) | (most < X)
            if outside.any():
                row, j = (int(place[0]) for place in np.nonzero(outside))
                raise ValueError(
                    f"Row {first + part.start + row} lies outside the support: feature {j} is {X[row, j]:.9g}, "
                    f"allowed are [{low[j]:.9g}, {high[j]:.9g}]. Widen the support, or clip or drop such rows."
                )

    def moves(
        self,
        X: FloatArray,
        y: FloatArray,
        coef: FloatArray,
        intercept: float,
        multiplier: float,
        *,
        points: bool = False,
        sides: bool = False,
    ) -> Moves:
        """Return the best move of each row of a block; with ``points`` where it leads, with ``sides`` either way."""
        score = X @ coef + intercept
        found: tuple[FloatArray, ...] | None = None
        for way in self._ways(score, y):
            best = self._path(X, coef, way.push).best(self.loss, way.start, way.side, multiplier)
            price = multiplier * way.price if way.price else 0.0
            signal = way.start + way.side * best.gain
            cost = best.cost + way.price
            new = (best.lower - price, best.upper - price, cost, best.cost, signal, way.label, way.push, best.key)
            if found is None:
                found = new
            else:  # of equal ways the first
                wins = new[0] > found[0] + 1e-15 * np.abs(found[0])
                upper = np.maximum(found[1], new[1])
                found = tuple(np.where(wins, b, a) for a, b in zip(found, new, strict=True))
                found = (found[0], upper, *found[2:])
        if found is None:
            raise RuntimeError("a row always has a way to go")
        lower, upper, cost, travel, signal, label, push, key = found
        moved = self._displaced(X, coef, push, key) if points else X[:0]
        ways = self._swung(X, moved, push, key) if points and sides else (X[:0], X[:0])
        return Moves(lower, upper, cost, travel, signal, label, moved, *ways)

    def _ways(self, score: FloatArray, y: FloatArray) -> Iterator[_Way]:
        if self.is_classification:
            yield _Way(y * score, -1.0, -y, y, 0.0)
            if np.isfinite(self.geometry.label_cost):
                yield _Way(-y * score, -1.0, y, -y, self.geometry.label_cost)
        else:
            for side in (1.0, -1.0):
                yield _Way(score - y, side, np.full(y.size, side), y, 0.0)

    def _path(self, X: FloatArray, coef: FloatArray, push: FloatArray) -> Path:
        """Return the cheapest moves that change the score along ``push``."""
        low, high = self.support.spread(coef.size)
        rising = push[:, None] * np.sign(coef) > 0.0
        caps = np.maximum(np.where(rising, high - X, X - low), 0.0)
        slopes, prices = np.abs(coef), self.geometry.norm.weights
        if prices is not None:
            movable = np.isfinite(prices)
            slopes = np.where(movable, slopes / prices, 0.0)
            caps = np.where(movable, caps, 0.0) * np.where(movable, prices, 1.0)
        return get_path(self.geometry.norm, slopes, caps)

    def _displaced(self, X: FloatArray, coef: FloatArray, push: FloatArray, key: FloatArray) -> FloatArray:
        """Return the features at the place ``key`` of every row's path."""
        v = self._path(X, coef, push).displacement(key)
        prices = self.geometry.norm.weights
        if prices is not None:
            v /= prices
        low, high = self._walls(X)
        v *= np.sign(coef)
        v *= push[:, None]
        v += X
        return np.clip(v, low, high, out=v)

    def _walls(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how far each feature of each row may go; a row a rounding error outside the box stays where it is."""
        low, high = self.support.spread(X.shape[1])
        return np.minimum(low, X), np.maximum(high, X)

    @property
    def is_free(self) -> bool:
        """Whether a feature moves as far as the furthest at no further cost: linf."""
        return isinstance(self.geometry.norm, LinfNorm)

    def _swung(
        self, X: FloatArray, moved: FloatArray, push: FloatArray, key: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return how far all features go along ``push``, and how far against it."""
        low, high = self._walls(X)
        prices = self.geometry.norm.weights
        if not self.is_free:
            far = np.abs(moved - X)
        else:
            far = np.broadcast_to(key[:, None], X.shape) if prices is None else key[:, None] / prices
        up, down = np.minimum(X + far, high), np.maximum(X - far, low)
        with_it = push[:, None] > 0.0
        return np.where(with_it, up, down), np.where(with_it, down, up)

    # Constants

    def runaway(self, coef: FloatArray) -> Iterator[tuple[float, FloatArray]]:
        """Yield, for either direction of the score, the steepest slope met on it and ``theta_J``."""
        low, high = self.support.spread(coef.size)
        least, most = self.loss.slope_range
        for push in (1.0, -1.0):
            rising = push * coef > 0.0
            open_side = np.where(rising, np.isposinf(high), np.isneginf(low))
            rate = -least if self.is_classification or push < 0.0 else most
            yield rate, np.where(open_side, coef, 0.0)

    def floor(self) -> float:
        """Return the least multiplier of any model: ``2 Lip / gamma`` where targets move, else 0."""
        return 0.0 if self.is_classification else self.loss.lipschitz * self.geometry.target_slope

    def kappa(self, coef: FloatArray) -> float:
        """Return the smallest multiplier for which every ``h_i`` is finite; 0 on a box with all its walls."""
        runs = [rate * self.geometry.norm.dual(part) for rate, part in self.runaway(coef)]
        return max(self.floor(), *runs)

    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> float:
        """Return a multiplier that no minimiser exceeds: beyond it no row moves or flips."""
        top = max(self.kappa(coef), self.loss.lipschitz * self.geometry.norm.dual(coef))
        if isinstance(self.loss, MarginLoss) and np.isfinite(self.geometry.label_cost):
            for part, block in rows.blocks():
                gain = self.loss.flip_gain(y[part] * (block @ coef + intercept))
                top = max(top, float(gain.max(initial=0.0)) / self.geometry.label_cost)
        return top

    # All rows

    def sweep(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float, *, points: bool = False
    ) -> Iterator[tuple[slice, Moves]]:
        """Yield the best moves block by block."""
        for part, X in rows.dense_blocks():
            yield part, self.moves(X, y[part], coef, intercept, multiplier, points=points)

    def bounds(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``a_i <= h_i <= b_i``, equal but for l2 with a curved loss; infinite below `kappa`."""
        lower, upper = np.full(y.size, np.inf), np.full(y.size, np.inf)
        if multiplier >= self.kappa(coef) * (1.0 - 1e-12):
            for part, found in self.sweep(rows, y, coef, intercept, multiplier):
                lower[part], upper[part] = found.lower, found.upper
        return lower, upper

    def paper_bounds(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the paper's bounds: the loss below; above, ``phi(s) >= s / ||theta||_*`` all the way to the wall.

        For the hinge this is the feasible point of the paper's appendix. A convex loss less a linear cost is largest
        at an end, so the rule holds for every loss.
        """
        lower, upper = np.empty(y.size), np.empty(y.size)
        size = self.geometry.norm.dual(coef)
        rate = multiplier / size if size > 0.0 else 0.0
        for part, X in rows.dense_blocks():
            label = y[part]
            score = X @ coef + intercept
            lower[part] = self.loss.value(score * label if self.is_classification else score - label)
            upper[part] = lower[part]
            for way in self._ways(score, label):
                reach = self._path(X, coef, way.push).longest()
                if not np.isfinite(reach).all():
                    raise ValueError("The paper's bounds need a support with all its walls. Use rule='exact'.")
                far = self.loss.value(way.start + way.side * reach) - rate * reach
                value = np.maximum(self.loss.value(way.start), far) - (multiplier * way.price if way.price else 0.0)
                upper[part] = np.maximum(upper[part], value)
        return lower, upper

    def gradient(
        self,
        rows: Rows,
        y: FloatArray,
        weights: FloatArray | None,
        coef: FloatArray,
        intercept: float,
        multiplier: float | None = None,
    ) -> Pull:
        """Return a subgradient of ``sum_i w_i h_i`` at a multiplier, or of its minimum over all of them."""
        if multiplier is not None:
            return self._pull(rows, y, weights, coef, intercept, multiplier)
        _, bracket = self.search(rows, y, weights, coef, intercept)
        low = self._pull(rows, y, weights, coef, intercept, bracket.low)
        if bracket.low < bracket.high:
            # At the minimiser moves of either side share so that they spend the budget.
            high = self._pull(rows, y, weights, coef, intercept, bracket.high)
            share = (self.radius - high.cost) / (low.cost - high.cost) if low.cost > high.cost else 1.0
            rest = 1.0 - share
            return Pull(
                share * low.coef + rest * high.coef,
                share * low.intercept + rest * high.intercept,
                share * low.cost + rest * high.cost,
            )
        # What is left of the budget runs away where there is no wall.
        rate, part = max(self.runaway(coef), key=lambda run: run[0] * self.geometry.norm.dual(run[1]))
        if rate * self.geometry.norm.dual(part) > self.floor():
            rest = max(self.radius - low.cost, 0.0) * rate
            return low._replace(coef=low.coef + rest * self.geometry.norm.steepest(part))
        return low

    def _pull(
        self,
        rows: Rows,
        y: FloatArray,
        weights: FloatArray | None,
        coef: FloatArray,
        intercept: float,
        multiplier: float,
    ) -> Pull:
        in_coef, in_intercept, cost = np.zeros(rows.m), 0.0, 0.0
        for part, found in self.sweep(rows, y, coef, intercept, multiplier, points=True):
            masses = 1.0 / y.size if weights is None else weights[part]
            slope = masses * self.loss.slope(found.signal) * (found.label if self.is_classification else 1.0)
            in_coef += slope @ found.X
            in_intercept += float(slope.sum())
            cost += float(np.sum(masses * found.cost))
        return Pull(in_coef, in_intercept, cost)

    def minimise(
        self, rows: Rows, y: FloatArray, weights: FloatArray | None, coef: FloatArray, intercept: float
    ) -> Minimum:
        """Return the minimum over the multiplier."""
        return self.search(rows, y, weights, coef, intercept)[0]

    def search(
        self,
        rows: Rows,
        y: FloatArray,
        weights: FloatArray | None,
        coef: FloatArray,
        intercept: float,
        *,
        sharpness: float = _SHARPNESS,
    ) -> tuple[Minimum, Bracket]:
        """Minimise the convex ``sigma lam + sum_i w_i h_i(lam)`` between two tangents that close in on each other.

        The slope at ``lam`` is the budget less what the best moves cost. Where tangents meet is the next trial:
        exact at once where a single corner is left between them. The value may be ``sharpness`` above the minimum,
        relatively.
        """

        def at(multiplier: float) -> tuple[float, float, FloatArray]:
            total, cost = 0.0, np.empty(y.size)
            for part, found in self.sweep(rows, y, coef, intercept, multiplier):
                cost[part] = found.cost
                total += float(found.upper.sum() if weights is None else weights[part] @ found.upper)
            mean, spent = (total / y.size, cost.mean()) if weights is None else (total, weights @ cost)
            return self.radius * multiplier + mean, self.radius - float(spent), cost

        low, high = self.kappa(coef), self.largest_multiplier(rows, y, coef, intercept)
        value, slope, cost = at(low)
        if slope >= 0.0 or high <= low:
            return Minimum(value, low), Bracket(low, low, cost, cost)
        high_value, high_slope, high_cost = at(high)
        best = min((high_value, high), (value, low))
        for count in range(_MOST_PASSES):
            if high_slope <= 0.0:
                break
            meet = low + (high_value - value - high_slope * (high - low)) / (slope - high_slope)
            floor = value + slope * (meet - low)
            # Every third trial halves the bracket: tangents alone may creep.
            trial = 0.5 * (low + high) if count % 3 == 2 or not low < meet < high else meet
            if best[0] - floor <= sharpness * abs(best[0]) or not low < trial < high:
                break
            trial_value, trial_slope, trial_cost = at(trial)
            best = min(best, (trial_value, trial))
            if trial_slope < 0.0:
                low, value, slope, cost = trial, trial_value, trial_slope, trial_cost
            else:
                high, high_value, high_slope, high_cost = trial, trial_value, trial_slope, trial_cost
        return Minimum(*best), Bracket(low, high, cost, high_cost)
