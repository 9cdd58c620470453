"""The dual of the worst-case risk where the features live in a box: ``h``, the risk, its subgradient.

A row has two ways to go: a label that stays and one that flips (classification), a residual pushed up and one
pushed down (regression). Along each, `dualcore.problem.families.boxmoves` finds the best move ``v``, and

    h(theta, b, lam) = max over ways and moves of  L(t after the move) - lam * (||v|| + price of the way) .

Every fixed move bounds ``h`` from below for *all* parameters, so the best moves at one model are a distribution that is
feasible for all of them: the source of subgradients, cuts, worst cases and lower bounds.

Where a feature has no limit on one side, ``h`` is finite for ``lam >= kappa = Lip ||theta_J||_*`` only, ``J`` the
features that can run away. A target that moves (regression, finite label cost) adds ``kappa >= 2 Lip / gamma`` and
nothing else: at such a multiplier it never pays to move it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.families.base import Family
from dualcore.problem.families.boxmoves import TOLERANCE, Path, get_path
from dualcore.problem.families.moving import Moves, MovingFamily
from dualcore.problem.forms import get_form
from dualcore.problem.geometry import Box, Geometry, L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import Loss, MarginLoss

__all__ = ["BoxFamily", "MoveDirection"]

# A row this far outside the box, relatively, is inside: single precision has no more digits.
_ROUNDING = 1e-6


class MoveDirection(NamedTuple):
    """One way for the rows of a block: from ``start`` the signal moves to ``side``, the score along ``push``."""

    start: FloatArray
    side: float
    push: FloatArray
    label: FloatArray
    price: float


class BoxFamily(MovingFamily):
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
    may_narrow = True
    support: Box
    #: what is changed in the problem without limits whose optimum is a start, and how near that is looked for
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
        # Whether a feature moves as far as the furthest at no further cost, and whether what moves earn is curved.
        self.is_free = isinstance(geometry.norm, LinfNorm)
        self.is_curved = isinstance(geometry.norm, L2Norm)

    @classmethod
    def of(cls, family: Family) -> Self:
        """Return a family that is one of boxes as such; ValueError for any other."""
        if not isinstance(family, cls):
            raise ValueError(f"This needs a problem of the {cls.name!r} family, got one of the {family.name!r} family.")
        return family

    def unbounded_features(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        """Return which coefficients nothing bounds without a ridge: those of features that cannot move."""
        low, high = self.support.spread(n_features)
        return np.where(low == high, not fit_intercept, np.isinf(self.prices(n_features)))

    # One block of rows

    def check_rows(self, rows: Rows, first: int = 0) -> None:
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
        pairs = list(self.paths(X, y, coef, intercept, least=multiplier))
        lower, upper, cost, travel, signal, label, push, key = self._choose(pairs, multiplier)
        moved = self.displaced(X, coef, push, key) if points else X[:0]
        ways = self._swung(X, moved, push, key) if points and sides else (X[:0], X[:0])
        return Moves(lower, upper, cost, travel, signal, label, moved, *ways)

    def _choose(self, pairs: list[tuple[MoveDirection, Path]], multiplier: float) -> tuple[FloatArray, ...]:
        """Return the best of the ways: bounds, cost, cost of the move, signal, label, push and key of every row."""
        found: tuple[FloatArray, ...] = ()
        for way, path in pairs:
            price = multiplier * way.price if way.price else 0.0
            best = path.best(self.loss, way.start, way.side, multiplier, found[0] + price if found else None)
            lower, upper, cost = best.lower, best.upper, best.cost
            if way.price:
                lower, upper, cost = lower - price, upper - price, cost + way.price
            signal = way.start + way.side * best.gain
            new = (lower, upper, cost, best.cost, signal, way.label, way.push, best.key)
            if not found:
                found = new
            else:  # of equal ways the first
                wins = new[0] > found[0] + 1e-15 * np.abs(found[0])
                upper = np.maximum(found[1], new[1])
                found = tuple(np.where(wins, b, a) for a, b in zip(found, new, strict=True))
                found = (found[0], upper, *found[2:])
        return found

    def n_items(self, n_features: int) -> int:
        """Return how many parts a row's moves are put together from."""
        return n_features

    def keeps_order(self, rows: Rows) -> bool:
        # Numbers of data whose limits are kept in order while the multiplier is looked for: five times as many are
        # stored.
        return rows.in_memory and rows.n * self.n_items(rows.m) <= 2_000_000

    def looks(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, least: float
    ) -> Callable[[float], Iterator[tuple[slice, FloatArray, FloatArray]]]:
        """Return what yields bounds of ``h`` from above and the costs of the moves, block by block, at multipliers.

        The orders of the limits and the sums up to them are kept from one multiplier to the next, where they fit.
        """
        if not self.keeps_order(rows):
            return super().looks(rows, y, coef, intercept, least)
        kept = [(part, list(self.paths(X, y[part], coef, intercept, least=least))) for part, X in rows.dense_blocks()]

        def at(multiplier: float) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
            for part, pairs in kept:
                found = self._choose(pairs, multiplier)
                yield part, found[1], found[2]

        return at

    def paths(
        self, X: FloatArray, y: FloatArray, coef: FloatArray, intercept: float, *, least: float = 0.0
    ) -> Iterator[tuple[MoveDirection, Path]]:
        """Yield the ways of the rows of a block, each with its cheapest moves at multipliers from ``least`` on."""
        for way in self._ways(X @ coef + intercept, y):
            yield way, self._path(X, coef, way.push, least)

    def _ways(self, score: FloatArray, y: FloatArray) -> Iterator[MoveDirection]:
        if self.is_classification:
            yield MoveDirection(y * score, -1.0, -y, y, 0.0)
            if np.isfinite(self.geometry.label_cost):
                yield MoveDirection(-y * score, -1.0, y, -y, self.geometry.label_cost)
        else:
            for side in (1.0, -1.0):
                yield MoveDirection(score - y, side, np.full(y.size, side), y, 0.0)

    def _path(self, X: FloatArray, coef: FloatArray, push: FloatArray, least: float = 0.0) -> Path:
        """Return the cheapest moves that change the score along ``push``, at multipliers from ``least`` on."""
        slopes, prices = np.abs(coef), self.geometry.norm.weights
        if prices is not None:
            movable = np.isfinite(prices)
            slopes, prices = np.where(movable, slopes / prices, 0.0), np.where(movable, prices, 0.0)
        columns = self._moving(slopes, least)
        low, high = self._sides(coef.size)
        if columns is not None:
            X, coef, slopes, low, high = X[:, columns], coef[columns], slopes[columns], low[columns], high[columns]
            prices = None if prices is None else prices[columns]
        with np.errstate(invalid="ignore"):  # a feature that cannot move may have no limit
            caps = np.where(_ahead(coef, push), high - X, X - low)
            np.maximum(caps, 0.0, out=caps)
            if prices is not None:
                caps *= prices
        return get_path(self.geometry.norm, slopes, caps)

    def _moving(self, slopes: FloatArray, least: float) -> npt.NDArray[np.intp] | None:
        """Return the features that may be moved at multipliers from ``least`` on, or None for all.

        With l1 a feature whose slope does not pay for itself never moves, and the steepest come first.
        """
        if not isinstance(self.geometry.norm, L1Norm):
            return None if np.count_nonzero(slopes) == slopes.size else np.flatnonzero(slopes)
        columns = np.flatnonzero(slopes > least / self.loss.lipschitz)
        return None if columns.size == slopes.size else columns[np.argsort(-slopes[columns], kind="stable")]

    def displaced(self, X: FloatArray, coef: FloatArray, push: FloatArray, key: FloatArray) -> FloatArray:
        """Return the features at the place ``key`` of every row's path."""
        low, high = self.walls(X)
        prices = self.geometry.norm.weights
        if not (self.is_free or self.is_curved):
            slopes = np.abs(coef) if prices is None else np.abs(coef) / prices
            first = np.argsort(-slopes, kind="stable")[: int(key.max(initial=0.0))]
            moved, here = X.copy(), X[:, first]
            wall = np.where(_ahead(coef[first], push), high[:, first], low[:, first])
            moved[:, first] = np.where((np.arange(first.size) < key[:, None]) & np.isfinite(wall), wall, here)
            return moved
        step = np.sign(coef) if self.is_free else coef
        if prices is not None:
            step = step / prices if self.is_free else step / prices / prices
        return np.asarray(np.clip(X + (key * push)[:, None] * step, low, high))

    def _sides(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        """Return the limits of every feature, not to be written to."""
        if self._spread is None or self._spread[0].size != n_features:
            self._spread = self.support.spread(n_features)
        return self._spread

    def walls(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how far each feature of each row may go, of the shape of ``X``.

        A row a rounding error outside the box stays where it is.
        """
        low, high = self._sides(X.shape[1])
        return np.minimum(low, X), np.maximum(high, X)

    def _swung(
        self, X: FloatArray, moved: FloatArray, push: FloatArray, key: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return how far all features go along ``push``, and how far against it."""
        low, high = self.walls(X)
        prices = self.geometry.norm.weights
        if not self.is_free:
            far = np.abs(moved - X)
        else:
            far = np.broadcast_to(key[:, None], X.shape) if prices is None else key[:, None] / prices
        up, down = np.minimum(X + far, high), np.maximum(X - far, low)
        with_it = push[:, None] > 0.0
        return np.where(with_it, up, down), np.where(with_it, down, up)

    # What a bundle of planes asks of it

    def prices(self, n_features: int) -> FloatArray:
        """Return what moving each feature by one unit costs."""
        weights = self.geometry.norm.weights
        return np.ones(n_features) if weights is None else weights.copy()

    def lengths(self, moves: FloatArray) -> FloatArray:
        """Return what every row's change of features costs."""
        norm = self.geometry.norm
        if norm.weights is not None:
            moves = np.where(moves == 0.0, 0.0, moves * np.where(np.isfinite(norm.weights), norm.weights, 0.0))
        order = {"l1": 1, "l2": 2, "linf": np.inf}[norm.name]
        return np.asarray(np.linalg.norm(moves, ord=order, axis=1))

    def span(self, width: FloatArray) -> float:
        """Return what it costs to send a row from one corner to the opposite one, by the features' widths."""
        return self.geometry.norm.value(width)

    def has_edges(self, n_features: int) -> bool:
        """Whether features are moved for nothing, so that the risk has an edge where a coefficient is zero."""
        low, high = self.support.spread(n_features)
        width = np.where(np.isfinite(high - low), high - low, 0.0)
        width[np.isinf(self.prices(n_features))] = 0.0
        # A radius of this share of the box takes most rows anywhere.
        return self.is_free or self.radius >= 0.2 * self.span(width) > 0.0

    @property
    def coupled(self) -> int:
        """How many coefficients the adversary sets against each other with one move: of a box each is alone."""
        return 1

    def pinned(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        """Return which coefficients are 0 in one of several models that say the same of every row."""
        return np.zeros(n_features, dtype=bool)

    def canonical(self, coef: FloatArray, intercept: float, *, fit_intercept: bool) -> tuple[FloatArray, float]:
        """Return the model that says the same of every row and whose `pinned` coefficients are 0."""
        return coef, intercept

    def intercept_columns(self, n_features: int) -> npt.NDArray[np.bool_]:
        """Return the columns of which every row has one: together they are an intercept."""
        return np.zeros(n_features, dtype=bool)

    # Constants

    def unlimited(self, coef: FloatArray) -> Iterator[tuple[float, FloatArray]]:
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
        """Return the paper's bounds: the loss below; above, ``phi(s) >= s / ||theta||_*`` all the way to the limit.

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
            for way, path in self.paths(X, label, coef, intercept):
                reach = path.longest()
                if not np.isfinite(reach).all():
                    raise ValueError("The paper's bounds need a support with all its walls. Use rule='exact'.")
                far = self.loss.value(way.start + way.side * reach) - rate * reach
                value = np.maximum(self.loss.value(way.start), far) - (multiplier * way.price if way.price else 0.0)
                upper[part] = np.maximum(upper[part], value)
        return lower, upper

    @property
    def enclosure(self) -> float:
        curved = self.loss.pieces is None and self.geometry.norm.name == "l2"
        return TOLERANCE if curved else 0.0

    def reach(self, n_features: int, longest: float, *, fit_intercept: bool) -> tuple[float, float]:
        low, high = self.support.spread(n_features)
        farthest = np.append(np.maximum(np.abs(low), np.abs(high)), float(fit_intercept))
        label = super().reach(n_features, longest, fit_intercept=fit_intercept)[1]
        return float(np.linalg.norm(farthest)), label + self.geometry.norm.value(high - low)


def _ahead(coef: FloatArray, push: FloatArray) -> npt.NDArray[np.bool_]:
    """Return, for each row and feature, whether a larger feature moves the score along the row's ``push``."""
    return np.asarray((coef > 0.0) == (push > 0.0)[:, None])
