"""Categories that change at a price: every assignment of every row in long doubles; CVXPY is given them all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .boxrisk import BoxReferee, Table
from .cases import Case
from .cones import DUAL, loss_in_cvxpy, minimiser, signals
from .exact import Long
from .referees import Point, Referee

# Rows times moves that CVXPY is given at most.
_MOST_MOVES = 6000


class CategoriesReferee(BoxReferee):
    """Rows enter with every assignment of their groups and every corner of their numbers' limits."""

    def __init__(self, case: Case) -> None:
        Referee.__init__(self, case)
        if case.categories is None or case.category_cost is None:
            raise ValueError("a case with categories has groups and costs")
        m = self.rows.shape[1]
        self.groups = [np.array([c for c in group if c is not None], dtype=int) for group in case.categories]
        held = np.concatenate(self.groups)
        limits = case.support or (np.full(m, -np.inf), np.full(m, np.inf))
        self.open_up, self.open_down = np.isinf(limits[1]), np.isinf(limits[0])
        self.open_up[held] = self.open_down[held] = False
        rows = case.dense[np.ones(len(case.y)) > 0 if case.weights is None else case.weights > 0.0]
        self.moves = list(self._moves(case, rows, np.setdiff1d(np.arange(m), held), limits))

    def _moves(self, case: Case, rows: Any, numbers: Any, limits: Any) -> Iterator[tuple[Any, Any]]:
        """Yield how far every row moves and what that costs, one move for each assignment and corner."""
        choices = [list(group) for group in case.categories or []]
        ends = [[None] if case.support is None else [None, "low", "high"]] * numbers.size
        prices = np.ones(rows.shape[1]) if case.prices is None else case.prices
        for choice in itertools.product(*choices):
            there, cost = rows.copy(), np.zeros(len(rows), dtype=Long)
            for group, column, price in zip(self.groups, choice, case.category_cost or (), strict=True):
                there[:, group] = 0.0
                if column is not None:
                    there[:, column] = 1.0
                cost += np.where((there[:, group] != rows[:, group]).any(axis=1), Long(price), Long(0))
            for corner in itertools.product(*ends):
                shift, paid, able = there.astype(Long) - rows.astype(Long), cost.copy(), True
                for column, end in zip(numbers, corner, strict=True):
                    if end is None:
                        continue
                    limit = limits[0][column] if end == "low" else limits[1][column]
                    able = able and bool(np.isfinite(limit) and np.isfinite(prices[column]))
                    if able:
                        shift[:, column] = Long(limit) - rows[:, column].astype(Long)
                        paid += Long(prices[column]) * np.abs(shift[:, column])
                if able:
                    yield shift, paid

    def risk(self, point: Point, radius: float | None = None) -> Any:
        sigma = Long(self.case.radius if radius is None else radius)
        with np.errstate(all="ignore"):
            table = EveryMove(self, point)
            if sigma == 0:
                return (self.w * table.stay).sum() + self.ridge(point.theta)
            return table.minimise(sigma, self.kappa(point.theta))[1] + self.ridge(point.theta)


class EveryMove(Table):
    """Losses and costs of all moves of all rows."""

    def __init__(self, referee: CategoriesReferee, point: Point) -> None:
        self.referee, case = referee, referee.case
        y = referee.y.astype(Long) if case.is_classification else None
        losses, costs = [], []
        for shift, paid in referee.moves:
            score = point.score + shift @ point.theta
            losses.append(referee.loss(score - referee.target if y is None else y * score))
            costs.append(paid)
            if y is not None and np.isfinite(case.label_cost):
                losses.append(referee.loss(-y * score))
                costs.append(paid + Long(case.label_cost))
        self.values, self.costs = np.stack(losses, axis=1), np.stack(costs, axis=1)
        self.stay = referee.loss(point.score - referee.target if y is None else y * point.score)

    def h(self, lam: Any) -> tuple[Any, Any]:
        values = np.where(np.isfinite(self.costs), self.values - lam * self.costs, -np.inf)
        place = values.argmax(axis=1)[:, None]
        return np.take_along_axis(values, place, 1)[:, 0], np.take_along_axis(self.costs, place, 1)[:, 0]


def solve_categories(referee: CategoriesReferee, most_numbers: int) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model of the programme with a constraint for every row, move and label."""
    import cvxpy as cp

    case = referee.case
    n, m = referee.rows.shape
    if n * len(referee.moves) > _MOST_MOVES or case.radius == 0.0:
        return
    rows = referee.rows.astype(np.float64)
    theta, lam, h = cp.Variable(m), cp.Variable(nonneg=True), cp.Variable(n)
    shift = cp.Variable() if case.fit_intercept else 0.0
    prices = np.ones(m) if case.prices is None else case.prices
    constraints = [lam >= float(referee.kappa(np.zeros(m, dtype=Long)))]
    for rate, sides in zip(
        referee.rates(), ((referee.open_up, referee.open_down), (referee.open_down, referee.open_up)), strict=True
    ):
        if any(side.any() for side in sides):
            up, down = (np.where(side, 1.0 / prices, 0.0) for side in sides)
            length = cp.norm(cp.multiply(up, cp.pos(theta)) + cp.multiply(down, cp.neg(theta)), DUAL[case.norm])
            constraints.append(lam >= rate * length)
    for moved, paid in referee.moves:
        able = np.flatnonzero(np.isfinite(paid.astype(np.float64)))
        score, price = (rows + moved.astype(np.float64))[able] @ theta + shift, paid[able].astype(np.float64)
        constraints += [
            h[able] >= loss_in_cvxpy(case, signal) - (price + extra) * lam
            for signal, _, extra in signals(referee, score, able)
        ]
    cost = case.radius * lam + referee.w.astype(np.float64) @ h + case.ridge / 2 * cp.sum_squares(theta)
    found = minimiser(theta, lambda: (cost, constraints))
    if found is not None:
        yield "cvxpy", referee.centred(found, Long(float(shift.value)) if case.fit_intercept else Long(0))
