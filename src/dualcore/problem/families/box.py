"""The dual of the worst-case risk where the adversary moves rows one by one inside a box: ``h``, risk, subgradient.

A row can be moved in two directions: a label that stays and one that flips (classification), a residual pushed up and
one pushed down (regression). Along each, `dualcore.problem.families.boxpath` finds the best move ``v``, and

    h(theta, b, lam) = max over directions and moves of  L(t after the move) - lam * (||v|| + price of the direction) .

Every fixed move bounds ``h`` from below for *all* parameters, so the best moves at one model are a distribution that is
feasible for all of them: the source of subgradients, planes, worst cases and lower bounds.

If features ``J`` have no limit on one side, ``h`` is finite only for ``lam >= kappa = Lip ||theta_J||_*``. A target
that moves (regression, finite label cost) adds only the constraint ``kappa >= 2 Lip / gamma``: at such a multiplier
moving it never pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.anchor import Anchor
from dualcore.problem.families.base import Data, Family, Gradient, RowDual
from dualcore.problem.families.boxl2 import TOLERANCE, L2Path
from dualcore.problem.families.boxpath import CornerPath, MoveDirection, Moves, Path, corners_of_l1, corners_of_linf
from dualcore.problem.families.bracket import Bracket, minimise_between
from dualcore.problem.forms import Minimum, get_form
from dualcore.problem.geometry import Box, Geometry, L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import Loss, MarginLoss

__all__ = ["BoxFamily"]

# A row that is outside the box by at most this, relatively, counts as inside: the rounding of single precision.
_ROUNDING = 1e-6


class BoxFamily(Family):
    """``h`` and the minimum over the multiplier on a box, a block of rows at a time.

    Parameters
    ----------
    loss : Loss
        Of order 1.
    geometry : Geometry
        With a support.
    radius : float
    """

    name = "box"
    moves_rows = True
    support: Box
    #: parameters changed in the problem without limits whose optimum is the starting point, and its tolerance
    start_changes: ClassVar[dict[str, Any]] = {}
    start_tolerance: ClassVar[float] = 1e-3
    _spread: tuple[FloatArray, FloatArray] | None = None

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        if geometry.support is None:
            raise ValueError("BoxFamily needs a geometry with a support.")
        if geometry.order != 1:
            raise ValueError(
                "A support needs transport order 1: no closed form of a higher order is known on a box. "
                "Use a loss of order 1 ('hinge', 'huber', ...) or support=None."
            )
        get_form(loss, geometry, radius)  # it refuses losses whose worst-case risk is infinite
        super().__init__(loss, geometry, radius)
        self.support = geometry.support
        # Whether all features move at the cost of the longest move (linf), and whether the cost is curved (l2).
        self.moves_together = isinstance(geometry.norm, LinfNorm)
        self.has_curved_cost = isinstance(geometry.norm, L2Norm)

    @classmethod
    def of(cls, family: Family) -> Self:
        """Return a family that is one of boxes as such; ValueError for any other."""
        if not isinstance(family, cls):
            raise ValueError(f"This needs a problem of the {cls.name!r} family, got one of the {family.name!r} family.")
        return family

    def unbounded_features(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        """Return which coefficients are unbounded without a ridge: those of features that cannot move."""
        low, high = self.support.spread(n_features)
        return np.where(low == high, not fit_intercept, np.isinf(self.prices(n_features)))

    # One block of rows

    def check_rows(self, rows: Rows, first: int = 0) -> None:
        """Raise ValueError where a row lies outside the box; ``first`` is the number of the first row.

        Rounding errors are allowed, as of features scaled in single precision: such a row cannot move further out.
        """
        low, high = self.support.spread(rows.m)
        width = np.where(np.isfinite(high - low), high - low, 1.0)
        least, most = low - _ROUNDING * (np.abs(low) + width), high + _ROUNDING * (np.abs(high) + width)
        for part, X in rows.dense_blocks():
            outside = (least > X) | (most < X)
            if outside.any():
                row, j = (int(position[0]) for position in np.nonzero(outside))
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
    ) -> Moves:
        """Return the best move of each row of a block; with ``points`` the moved features."""
        paths = self.paths(X, y, coef, intercept, least=multiplier)
        lower, upper, cost, travel, signal, label, push, position = self._choose(paths, multiplier)
        if self.moves_together:
            position = travel
        moved = self.displaced(X, coef, push, position) if points else X[:0]
        return Moves(lower, upper, cost, travel, signal, label, moved)

    def _choose(self, paths: Iterable[Path], multiplier: float) -> tuple[FloatArray, ...]:
        """Return the best direction of every row: bounds, cost, cost of the move, signal, label, push, position."""
        found: tuple[FloatArray, ...] = ()
        for path in paths:
            start, side, push, label, fee = path.direction
            price = multiplier * fee if fee else 0.0
            best = path.best(multiplier, found[0] + price if found else None)
            lower, upper, cost = best.lower - price, best.upper - price, best.cost + fee
            new = (lower, upper, cost, best.cost, start + side * best.gain, label, push, best.position)
            if not found:
                found = new
            else:  # of equal directions the first
                wins = new[0] > found[0] + 1e-15 * np.abs(found[0])
                upper = np.maximum(found[1], new[1])
                found = tuple(np.where(wins, b, a) for a, b in zip(found, new, strict=True))
                found = (found[0], upper, *found[2:])
        return found

    def paths(
        self, X: FloatArray, y: FloatArray, coef: FloatArray, intercept: float, *, least: float = 0.0
    ) -> Iterator[Path]:
        """Yield the directions of the rows of a block, each with its cheapest moves at multipliers from ``least`` on.

        With l1 features with ``Lip |theta_j| / price_j < least`` never move; the others are sorted, largest first.
        Those equal up to rounding are kept: the moves at a multiplier do not depend on ``least``.
        """
        slopes, in_order = self._slopes(coef), isinstance(self.geometry.norm, L1Norm)
        columns = np.flatnonzero(slopes > ((1.0 - 1e-12) * least / self.loss.lipschitz if in_order else 0.0))
        if in_order:
            columns = columns[np.argsort(-slopes[columns], kind="stable")]
        slopes = slopes[columns]
        for direction in self._directions(X @ coef + intercept, y):
            caps = self._capacities(X, coef, direction.push, columns)
            if self.has_curved_cost:
                yield L2Path(self.loss, direction, slopes, caps, least)
            else:
                corners = partial(corners_of_linf if self.moves_together else corners_of_l1, slopes)
                rate = self.geometry.norm.dual(coef)
                yield CornerPath(self.loss, direction, caps @ slopes, rate, least, corners, caps)

    def _directions(self, score: FloatArray, y: FloatArray) -> Iterator[MoveDirection]:
        if self.is_classification:
            yield MoveDirection(y * score, -1.0, -y, y, 0.0)
            if np.isfinite(self.geometry.label_cost):
                yield MoveDirection(-y * score, -1.0, y, -y, self.geometry.label_cost)
        else:
            for side in (1.0, -1.0):
                yield MoveDirection(score - y, side, np.full(y.size, side), y, 0.0)

    def _slopes(self, coef: FloatArray) -> FloatArray:
        """Return the change of the score by each feature per unit of cost."""
        prices = self.geometry.norm.weights
        return np.abs(coef) if prices is None else np.abs(coef) / prices

    def _capacities(
        self, X: FloatArray, coef: FloatArray, push: FloatArray, columns: npt.NDArray[np.intp]
    ) -> FloatArray:
        """Return the cost of moving some features to their limits in the direction of ``push``."""
        low, high = self._sides(coef.size)
        X = X[:, columns]
        with np.errstate(invalid="ignore"):  # a feature that cannot move may have no limit
            caps = np.where(_ahead(coef[columns], push), high[columns] - X, X - low[columns])
            np.maximum(caps, 0.0, out=caps)
            if self.geometry.norm.weights is not None:
                caps *= self.geometry.norm.weights[columns]
        return caps

    def displaced(self, X: FloatArray, coef: FloatArray, push: FloatArray, position: FloatArray) -> FloatArray:
        """Return the features at a position of every row's path."""
        low, high = self.limits(X)
        prices = self.geometry.norm.weights
        if not (self.moves_together or self.has_curved_cost):
            rank = np.empty(coef.size)
            rank[np.argsort(-self._slopes(coef), kind="stable")] = np.arange(coef.size)
            limit = np.where(_ahead(coef, push), high, low)
            return np.where((rank < position[:, None]) & np.isfinite(limit), limit, X)
        step = np.sign(coef) if self.moves_together else coef
        if prices is not None:
            step = step / prices if self.moves_together else step / prices / prices
        return np.asarray(np.clip(X + (position * push)[:, None] * step, low, high))

    def _sides(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        """Return the limits of every feature, not to be written to."""
        if self._spread is None or self._spread[0].size != n_features:
            self._spread = self.support.spread(n_features)
        return self._spread

    def limits(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the distance of each feature of each row to its limit, with the shape of ``X``.

        It is zero for features that are outside the box by rounding.
        """
        low, high = self._sides(X.shape[1])
        return np.minimum(low, X), np.maximum(high, X)

    # All rows

    def rows(self, model: Anchor, X: Any, y: FloatArray) -> RowDual:
        block = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        found = self.moves(block, y, model.coef, model.intercept, model.multiplier, points=True)
        return RowDual(found.lower, found.upper, self._slope(found), found.cost, found.X)

    def _slope(self, found: Moves) -> FloatArray:
        """Return the derivative of ``h`` in the score of the moved row."""
        slope = np.asarray(self.loss.slope(found.signal), dtype=np.float64)
        return slope * found.label if self.is_classification else slope

    def sweep(
        self,
        rows: Rows,
        y: FloatArray,
        coef: FloatArray,
        intercept: float,
        multiplier: float,
        *,
        points: bool = False,
    ) -> Iterator[tuple[slice, Moves]]:
        """Yield the best moves block by block."""
        for part, X in rows.dense_blocks():
            yield part, self.moves(X, y[part], coef, intercept, multiplier, points=points)

    def bounds(self, model: Anchor, rows: Rows, y: FloatArray, *, rule: str = "exact") -> tuple[FloatArray, FloatArray]:
        at = model.coef, model.intercept, model.multiplier
        self.signal(rows, y, model.coef, model.intercept)  # the model must fit the data, and both be finite
        if rule == "paper":
            return self.paper_bounds(rows, y, *at)
        lower, upper = np.full(y.size, np.inf), np.full(y.size, np.inf)
        if model.multiplier >= self.kappa(model.coef) * (1.0 - 1e-12):
            for part, found in self.sweep(rows, y, *at):
                lower[part], upper[part] = found.lower, found.upper
        return lower, upper

    def gradient(self, data: Data, coef: FloatArray, intercept: Any, multiplier: float | None = None) -> Gradient:
        rows, y, weights = data

        def at(multiplier: float) -> Gradient:
            in_coef, in_intercept, cost = np.zeros(rows.m), 0.0, 0.0
            sweep = self.sweep(rows, y, coef, intercept, multiplier, points=True)
            for part, found in sweep:
                masses = 1.0 / y.size if weights is None else weights[part]
                slope = masses * self._slope(found)
                in_coef += slope @ found.X
                in_intercept += float(slope.sum())
                cost += float(np.sum(masses * found.cost))
            return Gradient(in_coef, in_intercept, -cost)

        if multiplier is not None:
            return at(multiplier)
        _, bracket = self.search(*data, coef, intercept)
        low = at(bracket.low)
        if bracket.low < bracket.high:
            # At the minimiser moves of either side share so that they spend the budget.
            high = at(bracket.high)
            share = 1.0
            if low.multiplier < high.multiplier:
                share = (self.radius + high.multiplier) / (high.multiplier - low.multiplier)
            return Gradient(*(share * one + (1.0 - share) * other for one, other in zip(low, high, strict=True)))
        # The rest of the budget moves vanishing mass to infinity along the features without a limit.
        rate, part = max(self.unlimited(coef), key=lambda run: run[0] * self.geometry.norm.dual(run[1]))
        if rate * self.geometry.norm.dual(part) > self.floor():
            rest = max(self.radius + low.multiplier, 0.0) * rate
            return low._replace(coef=low.coef + rest * self.geometry.norm.steepest(part))
        return low

    def minimise(self, data: Data, coef: FloatArray, intercept: Any) -> Minimum:
        self.signal(data.rows, data.y, coef, intercept)  # the model must fit the data, and both be finite
        self.check_rows(data.rows)  # the data may not have been validated; it costs little
        return self.search(*data, coef, intercept)[0]

    def search(
        self,
        rows: Rows,
        y: FloatArray,
        weights: FloatArray | None,
        coef: FloatArray,
        intercept: float,
        *,
        sharpness: float = 1e-14,
        near: float | None = None,
    ) -> tuple[Minimum, Bracket]:
        """Minimise the convex ``sigma lam + sum_i w_i h_i(lam)`` by tangents at both ends of a shrinking interval.

        The slope at ``lam`` is the radius minus the cost of the best moves. The next trial is the intersection of the
        tangents, which is exact if only one corner is left between them. The value is at most ``sharpness`` above the
        minimum, relatively. An interval around ``near`` is searched first.
        """
        # The sorted paths of data of up to so many numbers are kept between evaluations; they take five times as many.
        keeps = rows.in_memory and rows.n * self.n_items(rows.m) <= 2_000_000

        def passes(least: float) -> Callable[[float], tuple[float, float]]:
            def paths(least: float) -> Iterator[tuple[slice, list[Path]]]:
                for part, X in rows.dense_blocks():
                    yield part, list(self.paths(X, y[part], coef, intercept, least=least))

            kept = list(paths(least)) if keeps else None

            def at(multiplier: float) -> tuple[float, float]:
                total, cost = 0.0, np.empty(y.size)
                for part, block in paths(multiplier) if kept is None else kept:
                    _, upper, cost[part], *_ = self._choose(block, multiplier)
                    total += float(upper.sum() if weights is None else weights[part] @ upper)
                mean, spent = (total / y.size, cost.mean()) if weights is None else (total, weights @ cost)
                return self.radius * multiplier + mean, self.radius - float(spent)

            return at

        low, high = self.kappa(coef), self.largest_multiplier(rows, y, coef, intercept)
        found = None
        # Relative distance within which a nearby minimiser is expected.
        below, above = (0.0, 0.0) if near is None else (near * (1.0 - 3e-3), near * (1.0 + 3e-3))
        if low < below:
            found = minimise_between(passes(below), below, above, sharpness, within=True)
        if found is None:
            found = minimise_between(passes(low), low, high, sharpness, within=False)
        if found is None:
            raise RuntimeError("the search for a multiplier has no limits")
        return found

    def n_items(self, n_features: int) -> int:
        """Return the number of items that the moves of a row consist of."""
        return n_features

    # For training and its bounds

    def prices(self, n_features: int) -> FloatArray:
        """Return what moving each feature by one unit costs."""
        weights = self.geometry.norm.weights
        return np.ones(n_features) if weights is None else weights.copy()

    def lengths(self, moves: FloatArray) -> FloatArray:
        """Return the cost of every row's change of features, shape (n,)."""
        norm = self.geometry.norm
        if norm.weights is not None:
            moves = np.where(moves == 0.0, 0.0, moves * np.where(np.isfinite(norm.weights), norm.weights, 0.0))
        order = {"l1": 1, "l2": 2, "linf": np.inf}[norm.name]
        return np.asarray(np.linalg.norm(moves, ord=order, axis=1))

    def span(self, width: FloatArray) -> float:
        """Return the cost of moving a row from one corner of the box to the opposite one."""
        return self.geometry.norm.value(width)

    @property
    def coupled(self) -> int:
        """Number of coefficients that one move couples; 1 for a box."""
        return 1

    def pinned(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        """Return which coefficients may be set to 0 without changing the scores of any row (see `canonical`)."""
        return np.zeros(n_features, dtype=bool)

    def canonical(self, coef: FloatArray, intercept: float, *, fit_intercept: bool) -> tuple[FloatArray, float]:
        """Return the model with the same scores of all rows whose `pinned` coefficients are 0."""
        return coef, intercept

    def intercept_columns(self, n_features: int) -> npt.NDArray[np.bool_]:
        """Return the columns of which every row has one: together they are an intercept."""
        return np.zeros(n_features, dtype=bool)

    # Constants

    def unlimited(self, coef: FloatArray) -> Iterator[tuple[float, FloatArray]]:
        """Yield, for each direction of the score, the largest slope of the loss and ``theta_J``."""
        low, high = self.support.spread(coef.size)
        least, most = self.loss.slope_range
        for push in (1.0, -1.0):
            rising = push * coef > 0.0
            open_side = np.where(rising, np.isposinf(high), np.isneginf(low))
            rate = -least if self.is_classification or push < 0.0 else most
            yield rate, np.where(open_side, coef, 0.0)

    def floor(self) -> float:
        """Return the smallest multiplier of any model: ``2 Lip / gamma`` if targets move, else 0."""
        return 0.0 if self.is_classification else self.loss.lipschitz * self.geometry.target_slope

    def kappa(self, coef: FloatArray) -> float:
        """Return the smallest multiplier for which every ``h_i`` is finite; 0 on a box with all its limits."""
        runs = [rate * self.geometry.norm.dual(part) for rate, part in self.unlimited(coef)]
        return max(self.floor(), *runs)

    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> float:
        """Return a multiplier that no minimiser exceeds: beyond it no row moves or flips."""
        top = max(self.kappa(coef), self.loss.lipschitz * self.geometry.norm.dual(coef))
        if isinstance(self.loss, MarginLoss) and np.isfinite(self.geometry.label_cost):
            for part, block in rows.blocks():
                gain = self.loss.flip_gain(y[part] * (block @ coef + intercept))
                top = max(top, float(gain.max(initial=0.0)) / self.geometry.label_cost)
        return top

    def paper_bounds(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the paper's bounds: the loss from below, and from above the value with ``phi(s) >= s / ||theta||_*``.

        For the hinge this is the feasible point of the paper's appendix. A convex loss less a linear cost is largest
        at an end, so the rule holds for every loss.
        """
        if any(part.any() for _, part in self.unlimited(coef)):
            raise ValueError("The paper's bounds need a support with all its limits. Use rule='exact'.")
        lower, upper = np.empty(y.size), np.empty(y.size)
        size = self.geometry.norm.dual(coef)
        rate = multiplier / size if size > 0.0 else 0.0
        slopes = self._slopes(coef)
        columns = np.flatnonzero(slopes)
        for part, X in rows.dense_blocks():
            label = y[part]
            score = X @ coef + intercept
            lower[part] = self.loss.value(score * label if self.is_classification else score - label)
            upper[part] = lower[part]
            for start, side, push, _, fee in self._directions(score, label):
                longest = self._capacities(X, coef, push, columns) @ slopes[columns]
                far = self.loss.value(start + side * longest) - rate * longest
                value = np.maximum(self.loss.value(start), far) - (multiplier * fee if fee else 0.0)
                upper[part] = np.maximum(upper[part], value)
        return lower, upper

    @property
    def enclosure(self) -> float:
        return TOLERANCE if self.loss.pieces is None and self.has_curved_cost else 0.0

    def extremes(self, n_features: int, longest: float, *, fit_intercept: bool) -> tuple[float, float]:
        low, high = self.support.spread(n_features)
        farthest = np.append(np.maximum(np.abs(low), np.abs(high)), float(fit_intercept))
        label = super().extremes(n_features, longest, fit_intercept=fit_intercept)[1]
        return float(np.linalg.norm(farthest)), label + self.geometry.norm.value(high - low)


def _ahead(coef: FloatArray, push: FloatArray) -> npt.NDArray[np.bool_]:
    """Return, for each row and feature, whether a larger feature moves the score along the row's ``push``."""
    return np.asarray((coef > 0.0) == (push > 0.0)[:, None])
