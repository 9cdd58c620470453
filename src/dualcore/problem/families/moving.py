"""Families whose adversary moves rows one by one: everything that follows from the best move of every row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.anchor import Anchor
from dualcore.problem.families.base import Data, Family, RowDual, RowGradient, signal
from dualcore.problem.forms import Minimum

_SHARPNESS = 1e-14
# A minimiser that is known to be near is within this share.
_NEAR = 3e-3


class Moves(NamedTuple):
    """The best move of each row of a block, shape (n_rows,); features have the shape (n_rows, n_features).

    Features are of no rows where they were not asked for.
    """

    lower: FloatArray  # what the move earns
    upper: FloatArray  # what none exceeds; the two coincide but for l2 with a curved loss
    cost: FloatArray  # transport cost, the label included
    travel: FloatArray  # of it, what moving the features costs
    signal: FloatArray  # margin or residual after the move
    label: FloatArray  # label or target after the move
    X: FloatArray  # features after the move
    # Where a feature goes at no further cost if its coefficient is positive, or negative: as far as it went, with linf
    # as far as the furthest went.
    rising: FloatArray
    falling: FloatArray


class Bracket(NamedTuple):
    """Two multipliers with the minimiser between them."""

    low: float
    high: float


class MovingFamily(Family):
    """``h`` and the minimum over the multiplier from the best move of every row, a block of rows at a time.

    Every fixed move bounds ``h`` from below for *all* parameters, so the best moves at one model are a distribution
    that is feasible for all of them: the source of subgradients, planes, worst cases and lower bounds.
    """

    moves_rows = True

    @abstractmethod
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

    @abstractmethod
    def floor(self) -> float:
        """Return the least multiplier of any model."""

    @abstractmethod
    def unlimited(self, coef: FloatArray) -> Iterator[tuple[float, FloatArray]]:
        """Yield, for either direction of the score, the steepest slope met on it and the coefficients without limit."""

    @abstractmethod
    def paper_bounds(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, multiplier: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of the paper's appendix."""

    def multiplier_face(self, coef: FloatArray, target: FloatArray, budget: float) -> FloatArray:
        norm = self.geometry.norm
        rate, part = max(self.unlimited(coef), key=lambda run: run[0] * norm.dual(run[1]))
        least = rate * norm.dual(part)
        if least == 0.0 or least < self.floor() * (1.0 - 1e-9):
            return np.zeros_like(coef)
        return np.where(part != 0.0, norm.face(part, np.where(part != 0.0, target, 0.0), rate * budget), 0.0)

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

    def keeps_order(self, rows: Rows) -> bool:
        """Whether a search over multipliers keeps what does not change with them."""
        return True

    def looks(
        self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float, least: float
    ) -> Callable[[float], Iterator[tuple[slice, FloatArray, FloatArray]]]:
        """Return what yields bounds of ``h`` from above and the costs of the moves, block by block, at multipliers.

        It is asked about multipliers from ``least`` on.
        """

        def at(multiplier: float) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
            for part, found in self.sweep(rows, y, coef, intercept, multiplier):
                yield part, found.upper, found.cost

        return at

    def bounds(self, model: Anchor, rows: Rows, y: FloatArray, *, rule: str = "exact") -> tuple[FloatArray, FloatArray]:
        at = model.coef, model.intercept, model.multiplier
        signal(self.loss, rows, y, model.coef, model.intercept)  # the model must fit the data, and both be finite
        if rule == "paper":
            return self.paper_bounds(rows, y, *at)
        lower, upper = np.full(y.size, np.inf), np.full(y.size, np.inf)
        if model.multiplier >= self.kappa(model.coef) * (1.0 - 1e-12):
            for part, found in self.sweep(rows, y, *at):
                lower[part], upper[part] = found.lower, found.upper
        return lower, upper

    def gradient(self, data: Data, coef: FloatArray, intercept: Any, multiplier: float | None = None) -> RowGradient:
        rows, y, weights = data

        def at(multiplier: float) -> RowGradient:
            in_coef, in_intercept, cost = np.zeros(rows.m), 0.0, 0.0
            sweep = self.sweep(rows, y, coef, intercept, multiplier, points=True)
            for part, found in sweep:
                masses = 1.0 / y.size if weights is None else weights[part]
                slope = masses * self._slope(found)
                in_coef += slope @ found.X
                in_intercept += float(slope.sum())
                cost += float(np.sum(masses * found.cost))
            return RowGradient(in_coef, in_intercept, cost)

        if multiplier is not None:
            return at(multiplier)
        _, bracket = self.search(*data, coef, intercept)
        low = at(bracket.low)
        if bracket.low < bracket.high:
            # At the minimiser moves of either side share so that they spend the budget.
            high = at(bracket.high)
            share = (self.radius - high.spent) / (low.spent - high.spent) if low.spent > high.spent else 1.0
            return RowGradient(*(share * one + (1.0 - share) * other for one, other in zip(low, high, strict=True)))
        # The rest of the budget moves a vanishing mass ever farther, along the features without a limit.
        rate, part = max(self.unlimited(coef), key=lambda run: run[0] * self.geometry.norm.dual(run[1]))
        if rate * self.geometry.norm.dual(part) > self.floor():
            rest = max(self.radius - low.spent, 0.0) * rate
            return low._replace(coef=low.coef + rest * self.geometry.norm.steepest(part))
        return low

    def minimise(self, data: Data, coef: FloatArray, intercept: Any) -> Minimum:
        signal(self.loss, data.rows, data.y, coef, intercept)  # the model must fit the data, and both be finite
        self.check_rows(data.rows)  # cheap beside the search, and data may come here without validation
        return self.search(*data, coef, intercept)[0]

    def search(
        self,
        rows: Rows,
        y: FloatArray,
        weights: FloatArray | None,
        coef: FloatArray,
        intercept: float,
        *,
        sharpness: float = _SHARPNESS,
        near: float | None = None,
    ) -> tuple[Minimum, Bracket]:
        """Minimise the convex ``sigma lam + sum_i w_i h_i(lam)`` between two tangents that close in on each other.

        The slope at ``lam`` is the budget less what the best moves cost. Where tangents meet is the next trial:
        exact at once where a single corner is left between them. The value may be ``sharpness`` above the minimum,
        relatively. A minimiser that is known to be ``near`` is looked for there first.
        """

        def passes(least: float) -> Callable[[float], tuple[float, float]]:
            look = self.looks(rows, y, coef, intercept, least)

            def at(multiplier: float) -> tuple[float, float]:
                total, cost = 0.0, np.empty(y.size)
                for part, upper, spent_by in look(multiplier):
                    cost[part] = spent_by
                    total += float(upper.sum() if weights is None else weights[part] @ upper)
                mean, spent = (total / y.size, cost.mean()) if weights is None else (total, weights @ cost)
                return self.radius * multiplier + mean, self.radius - float(spent)

            return at

        low, high = self.kappa(coef), self.largest_multiplier(rows, y, coef, intercept)
        if near is not None and low < near * (1.0 - _NEAR):
            close = near * (1.0 - _NEAR)
            found = _between(passes(close), close, near * (1.0 + _NEAR), sharpness, within=True)
            if found is not None:
                return found
        found = _between(passes(low), low, high, sharpness, within=False)
        if found is None:
            raise RuntimeError("the search for a multiplier has no limits")
        return found


def _between(
    at: Callable[[float], tuple[float, float]], low: float, high: float, sharpness: float, *, within: bool
) -> tuple[Minimum, Bracket] | None:
    """Minimise between two multipliers, from values and slopes; None where the minimiser is not ``within`` them."""
    value, slope = at(low)
    if slope >= 0.0 or high <= low:
        return None if within else (Minimum(value, low), Bracket(low, low))
    high_value, high_slope = at(high)
    if within and high_slope < 0.0:
        return None
    best = min((high_value, high), (value, low))
    if high_slope < 0.0:  # rows that are undecided at the very end, by rounding: beyond it they stay
        low, value, slope = high, high_value, high_slope
        high *= 1.0 + 1e-12
        high_value, high_slope = at(high)
    # Passes over the data that the search for the multiplier may take; it seldom needs forty.
    for count in range(200):
        if high_slope <= 0.0:
            break
        meet = low + (high_value - value - high_slope * (high - low)) / (slope - high_slope)
        # Where the tangents meet, by the one or the other: a steep one has few digits there.
        floor = min(value + slope * (meet - low), high_value - high_slope * (high - meet))
        # Every third trial halves the bracket: tangents alone may creep.
        trial = 0.5 * (low + high) if count % 3 == 2 or not low < meet < high else meet
        if best[0] - floor <= sharpness * abs(best[0]) or not low < trial < high:
            break
        trial_value, trial_slope = at(trial)
        best = min(best, (trial_value, trial))
        if trial_slope < 0.0:
            low, value, slope = trial, trial_value, trial_slope
        else:
            high, high_value, high_slope = trial, trial_value, trial_slope
    return Minimum(*best), Bracket(low, high)
