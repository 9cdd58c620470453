"""The adversary, played out instead of solved: searches over perturbed rows, knowing none of the closed forms.

Everything here is a value that some perturbation attains, hence a lower bound on a supremum, found by trying many
perturbations and climbing from the best. `Adversary.worst_case` turns them into the worst expected loss by a linear
programme over transport plans and asks the search for better perturbations until it has none to offer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from reference.cases import Case
from reference.referee import ORDERS, plain_loss

FAR = 1e10  # far enough that a loss has its final slope to eight digits, near enough for float64


def plain_losses(case: Case) -> np.ndarray:
    """The loss of every row as it is."""
    return plain_loss(case.problem, case.X @ case.coef + case.intercept, case.y)


Objective = Callable[[np.ndarray], np.ndarray]


def climb(objective: Objective, n: int, starts: np.ndarray, *, steps: int) -> np.ndarray:
    """Return the best points found, shape (n, d), of ``n`` objectives that map (n, k, d) or (1, k, d) to (n, k).

    From its best start each goes uphill by random steps that shrink when none helps. Of five steps one rescales the
    whole move, one changes a coordinate, one changes all, one drops coordinates (a norm has its edges where they
    vanish) and one turns towards the direction of another start.
    """
    rng = np.random.default_rng(0)
    values = objective(starts[None])
    at, which = np.arange(n), values.argmax(axis=1)
    point, best = starts[which], values[at, which]
    step = np.full(n, 0.5)
    d, per_kind = starts.shape[1], 8
    limit = np.abs(starts).max()  # a linear objective would otherwise climb into the rounding of large numbers
    ways = starts / np.maximum(np.abs(starts).max(axis=1, keepdims=True), 1e-300)
    for _ in range(steps):
        here, reach = point[:, None, :], step[:, None, None]
        size = np.maximum(np.abs(here).max(axis=2, keepdims=True), 1e-3)
        noise = rng.standard_normal((5, n, per_kind, d))
        uniform = rng.random((4, n, per_kind, d))
        turn = np.minimum(2.0 * reach * np.abs(noise[3, ..., :1]), 1.0)
        aim = size * np.exp(noise[4, ..., :1]) * ways[(uniform[2, ..., 0] * len(ways)).astype(int)]
        trial = np.concatenate(
            [
                here * (1.0 + reach * noise[0, ..., :1]),
                here + reach * size * noise[1] * (np.arange(d) == (uniform[0, ..., :1] * d).astype(int)),
                here + reach * size * noise[2],
                here * (1.0 + reach * noise[0, ..., 1:2] if d > 1 else 1.0) * (uniform[1] < 0.5),
                (1.0 - turn) * here + turn * aim,
            ],
            axis=1,
        )
        np.clip(trial, -limit, limit, out=trial)
        values = objective(trial)
        which = values.argmax(axis=1)
        found = values[at, which]
        better = found > best
        point = np.where(better[:, None], trial[at, which], point)
        best = np.where(better, found, best)
        step = np.where(better, np.minimum(1.2 * step, 1.0), 0.7 * step)
    return point


class BruteWorstCase(NamedTuple):
    """Worst expected loss found, its multiplier, and the mass whose label was flipped."""

    value: float
    multiplier: float
    flipped: float


class Adversary:
    """Who perturbs the rows of a case, one branch for each row and each label that row may be given.

    A move is a vector of features, and of the target where that may move.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.problem = case, case.problem
        flips = (False, True) if case.is_classification and np.isfinite(case.label_cost) else (False,)
        row, flip = zip(*product(range(len(case.y)), flips), strict=True)
        self.row, self.flip = np.array(row), np.array(flip)
        self.dimension = len(case.coef) + (not case.is_classification and np.isfinite(case.label_cost))
        self.base = plain_losses(case)
        patterns = np.array(list(product((0.0, 1.0, -1.0), repeat=self.dimension)))
        self.patterns = patterns[np.any(patterns != 0.0, axis=1)]  # axes, diagonals, corners

    def outcome(self, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Loss and transport cost (to the order) of moves of shape (n_branches or 1, k, dimension)."""
        case, m = self.case, len(self.case.coef)
        row, flip = self.row[:, None], self.flip[:, None]
        prediction = (case.X @ case.coef + case.intercept)[row] + moves[..., :m] @ case.coef
        target, cost = case.y[row], np.linalg.norm(moves[..., :m], ord=ORDERS[case.norm], axis=-1)
        if case.is_classification:
            target = np.where(flip, -target, target)
            if flip.any():
                cost = cost + np.where(flip, case.label_cost, 0.0)
        elif self.dimension > m:
            target = target + moves[..., m]
            cost = cost + 0.5 * case.label_cost * np.abs(moves[..., m])
        return plain_loss(self.problem, prediction, target), np.broadcast_to(cost**case.order, prediction.shape)

    def rate(self, moves: np.ndarray) -> np.ndarray:
        """Loss earned per unit of cost by going ``FAR`` in the direction of each move."""
        size = np.abs(moves).max(axis=-1, keepdims=True)
        loss, cost = self.outcome(FAR * moves / np.maximum(size, 1e-9))
        gain = (loss - self.base[self.row][:, None]) / np.maximum(cost, 1.0)
        return np.where(size[..., 0] > 1e-9, gain, -np.inf)  # to stay is not to go far

    @cached_property
    def ways(self) -> np.ndarray:
        """For each branch the direction in which a far move earns most, largest entry 1."""
        found = climb(self.rate, len(self.row), self.patterns, steps=90)
        return found / np.abs(found).max(axis=1, keepdims=True)

    @cached_property
    def starts(self) -> np.ndarray:
        """Staying put, and going any of many distances in any direction worth a try."""
        spread = np.geomspace(1e-3, 1e4, 15)[:, None, None] * np.vstack([self.patterns, np.unique(self.ways, axis=0)])
        return np.vstack([np.zeros(self.dimension), spread.reshape(-1, self.dimension)])

    def best_moves(self, multiplier: float) -> np.ndarray:
        """For each branch the move that earns most after paying ``multiplier`` per unit of cost."""

        def objective(moves: np.ndarray) -> np.ndarray:
            loss, cost = self.outcome(moves)
            return loss - multiplier * cost

        return climb(objective, len(self.row), self.starts, steps=30 if self.case.order == 1 else 100)

    def kappa(self) -> float:
        """The steepest rate at which a far move earns loss per unit of cost; ``h`` is infinite below it."""
        return float(self.rate(self.ways[:, None, :]).max(initial=0.0))

    def h(self, multiplier: float, moves: np.ndarray | None = None) -> np.ndarray:
        """``sup over (x', y') of l(x', y') - lam d((x', y'), row_i)^p``, shape (n,), by search or by given moves."""
        moves = self.best_moves(multiplier) if moves is None else moves
        loss, cost = self.outcome(moves[:, None, :])
        h = np.full(len(self.base), -np.inf)
        np.maximum.at(h, self.row, (loss - multiplier * cost)[:, 0])
        return h

    def far(self, multiplier: float, distance: float) -> np.ndarray:
        """What each row earns by going ``distance`` in its steepest direction, less the price of it, shape (n,)."""
        return self.h(multiplier, distance * self.ways)

    def columns(self, moves: np.ndarray) -> np.ndarray:
        """Perturbed rows on offer to the transport plan: row, whether flipped, loss and cost."""
        loss, cost = self.outcome(moves[:, None, :])
        return np.stack([self.row, self.flip, loss[:, 0], cost[:, 0]])

    def worst_case(self, *, rounds: int = 15) -> BruteWorstCase:
        """``sup { E_Q l : W_p(Q, P) <= radius }`` by column generation over perturbed rows."""
        case, budget = self.case, self.case.radius**self.case.order
        if budget == 0.0:
            return BruteWorstCase(float(case.masses @ self.base), np.inf, 0.0)
        columns = self.columns(np.zeros((len(self.row), self.dimension)))
        for distance in (FAR,) if case.order == 1 else (FAR, *np.geomspace(1e-3, 1e3, 61)):
            columns = np.hstack([columns, self.columns(distance * self.ways)])
        for _ in range(rounds):
            found = self.transport(columns, budget)
            moves = self.best_moves(found.multiplier)
            bound = budget * found.multiplier + case.masses @ self.h(found.multiplier, moves)
            if bound <= found.value + 1e-7 * max(found.value, 1e-3):
                break
            columns = np.hstack([columns, self.columns(moves)])
        return found

    def transport(self, columns: np.ndarray, budget: float) -> BruteWorstCase:
        """Spend the budget on the columns, never more than the mass of a row.

        A variable is money spent on a column, so that far moves of little mass stay well scaled: it buys ``1 / cost``
        of mass and ``(loss - base) / cost`` of loss a unit.
        """
        row, flip, loss, cost = columns[:, columns[3] > 1e-10]
        row = row.astype(int)
        gain = (loss - self.base[row]) / cost
        use = np.zeros((len(self.base) + 1, len(row)))
        use[row, np.arange(len(row))] = 1.0 / cost
        use[-1] = 1.0
        with np.errstate(all="ignore"):
            plan = linprog(
                -gain,
                A_ub=use,
                b_ub=np.append(self.case.masses, budget),
                method="highs-ds",
                options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
            )
        if plan.status != 0:
            raise RuntimeError(f"the transport programme failed: {plan.message}")
        value = float(self.case.masses @ self.base) + float(gain @ plan.x)
        return BruteWorstCase(value, float(-plan.ineqlin.marginals[-1]), float((plan.x / cost) @ flip))
