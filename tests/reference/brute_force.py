"""The adversary, played out instead of solved: searches over perturbed rows, knowing none of the closed forms.

Everything here is a value that some perturbation attains, hence a lower bound on a supremum, found by trying many
perturbations and climbing from the best. `worst_case` turns them into the worst expected loss by a linear programme
over transport plans and asks the search for better perturbations until it has none to offer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from reference.cases import Case

FAR = 1e8  # far enough that a loss has its final slope to eight digits, near enough for float64


def plain_loss(case: Case, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The losses again, written from their definitions."""
    z, r = y * prediction, prediction - y
    size = np.abs(r)
    match case.loss:
        case "logistic":
            return np.logaddexp(0.0, -z)
        case "hinge":
            return np.where(z < 1.0, 1.0 - z, 0.0)
        case "smooth_hinge":
            return np.where(z >= 1.0, 0.0, np.where(z <= 0.0, 0.5 - z, 0.5 * (1.0 - z) ** 2))
        case "squared_hinge":
            return np.where(z < 1.0, (1.0 - z) ** 2, 0.0)
        case "huber":
            delta = case.parameters["delta"]
            return np.where(size <= delta, 0.5 * r**2, delta * (size - 0.5 * delta))
        case "pinball":
            quantile = case.parameters["quantile"]
            return np.where(r < 0.0, -quantile * r, (1.0 - quantile) * r)
        case "epsilon_insensitive":
            epsilon = case.parameters["epsilon"]
            return np.where(size > epsilon, size - epsilon, 0.0)
        case "absolute":
            return size
        case "squared":
            return r**2
    raise ValueError(f"no definition of {case.loss!r}")


def feature_norm(case: Case, moves: np.ndarray) -> np.ndarray:
    match case.norm:
        case "l1":
            return np.abs(moves).sum(axis=-1)
        case "l2":
            return np.sqrt((moves**2).sum(axis=-1))
        case "linf":
            return np.abs(moves).max(axis=-1)
    raise ValueError(f"no definition of {case.norm!r}")


class Branches(NamedTuple):
    """What the adversary may do, one branch for each row and each label it may give that row."""

    row: np.ndarray
    flip: np.ndarray

    def __getitem__(self, chosen):  # type: ignore[override]
        return Branches(self.row[chosen], self.flip[chosen])


def branches(case: Case) -> Branches:
    flips = (False, True) if case.is_classification and np.isfinite(case.label_cost) else (False,)
    row, flip = zip(*product(range(len(case.y)), flips), strict=True)
    return Branches(np.array(row), np.array(flip))


def dimension(case: Case) -> int:
    """How many numbers describe a move: the features, and the target where it may move."""
    return len(case.coef) + (not case.is_classification and np.isfinite(case.label_cost))


def outcome(case: Case, branch: Branches, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss and transport cost (to the order) after ``moves``, shape (n_branches, n_moves, dimension)."""
    m = len(case.coef)
    row, flip = branch.row[:, None], branch.flip[:, None]
    prediction = (case.X @ case.coef + case.intercept)[row] + moves[..., :m] @ case.coef
    target, cost = case.y[row], feature_norm(case, moves[..., :m])
    if case.is_classification:
        target = np.where(flip, -target, target)
        if flip.any():
            cost = cost + np.where(flip, case.label_cost, 0.0)
    elif moves.shape[-1] > m:
        target = target + moves[..., m]
        cost = cost + 0.5 * case.label_cost * np.abs(moves[..., m])
    return plain_loss(case, prediction, target), cost**case.order


Objective = Callable[[Branches, np.ndarray], np.ndarray]


def directions(case: Case) -> np.ndarray:
    """Every sign pattern: axes, diagonals, corners."""
    every = np.array(list(product((0.0, 1.0, -1.0), repeat=dimension(case))))
    return every[np.any(every != 0.0, axis=1)]


def climb(
    objective: Objective, branch: Branches, starts: np.ndarray, *, steps: int = 60, samples: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """From the best start of each branch go uphill by random steps that shrink when none helps.

    Of five steps one rescales the whole move, one changes a coordinate, one changes all, one drops coordinates (a norm
    has its edges where they vanish) and one turns towards the direction of another start.
    """
    rng = np.random.default_rng(0)
    values = objective(branch, starts[None])
    at, which = np.arange(len(branch.row)), values.argmax(axis=1)
    point, best = starts[which], values[at, which]
    step = np.full(len(at), 0.5)
    shape, kind = (len(at), samples, starts.shape[1]), np.arange(samples) % 5
    limit = np.abs(starts).max()  # a linear objective would otherwise climb into the rounding of large numbers
    ways = starts / np.maximum(np.abs(starts).max(axis=1, keepdims=True), 1e-300)
    trial = np.empty(shape)
    for _ in range(steps):
        here, reach = point[:, None, :], step[:, None, None]
        size = np.maximum(np.abs(here).max(axis=2, keepdims=True), 1e-3)
        noise = rng.standard_normal(shape)
        scaled = here * (1.0 + reach * noise[..., :1])
        trial[:, kind == 0] = scaled[:, kind == 0]
        one = np.arange(shape[2]) == rng.integers(shape[2], size=shape[:2])[..., None]
        trial[:, kind == 1] = (here + reach * size * noise * one)[:, kind == 1]
        trial[:, kind == 2] = (here + reach * size * noise)[:, kind == 2]
        trial[:, kind == 3] = (scaled * (rng.random(shape) < 0.5))[:, kind == 3]
        turn = np.minimum(2.0 * reach * np.abs(noise[..., :1]), 1.0)
        aim = size * np.exp(rng.standard_normal((*shape[:2], 1))) * ways[rng.integers(len(ways), size=shape[:2])]
        trial[:, kind == 4] = ((1.0 - turn) * here + turn * aim)[:, kind == 4]
        np.clip(trial, -limit, limit, out=trial)
        values = objective(branch, trial)
        which = values.argmax(axis=1)
        better = values[at, which] > best
        point = np.where(better[:, None], trial[at, which], point)
        best = np.where(better, values[at, which], best)
        step = np.where(better, np.minimum(1.2 * step, 1.0), 0.7 * step)
    return best, point


def steepest_directions(case: Case) -> np.ndarray:
    """For each branch the direction in which a far move earns most, scaled to largest entry 1, by search."""
    _, ways = climb(_rate(case), branches(case), directions(case), steps=90)
    return ways / np.abs(ways).max(axis=1, keepdims=True)


def local_starts(case: Case, ways: np.ndarray) -> np.ndarray:
    """Staying put, and going any of many distances in any of the patterned directions or the given ``ways``."""
    distances = np.geomspace(1e-3, 1e4, 15)
    spread = distances[:, None, None] * np.vstack([directions(case), np.unique(ways, axis=0)])
    return np.vstack([np.zeros(dimension(case)), spread.reshape(-1, dimension(case))])


def brute_h(case: Case, multiplier: float) -> np.ndarray:
    """``sup over (x', y') of l(x', y') - lam d((x', y'), row_i)^p``, shape (n,), by search."""
    branch = branches(case)
    best, _ = climb(_penalised(case, multiplier), branch, local_starts(case, steepest_directions(case)))
    h = np.full(len(case.y), -np.inf)
    np.maximum.at(h, branch.row, best)
    return h


def brute_kappa(case: Case) -> float:
    """The steepest rate at which a far move earns loss per unit of cost; ``h`` is infinite below it."""
    rates = _rate(case)(branches(case), steepest_directions(case)[:, None, :])
    return float(rates.max(initial=0.0))


def brute_far(case: Case, multiplier: float, distance: float) -> np.ndarray:
    """What each row earns by going ``distance`` in its steepest direction, less the price of it, shape (n,)."""
    branch = branches(case)
    loss, cost = outcome(case, branch, distance * steepest_directions(case)[:, None, :])
    far = np.full(len(case.y), -np.inf)
    np.maximum.at(far, branch.row, (loss - multiplier * cost)[:, 0])
    return far


def _penalised(case: Case, multiplier: float) -> Objective:
    def objective(branch: Branches, moves: np.ndarray) -> np.ndarray:
        loss, cost = outcome(case, branch, moves)
        return loss - multiplier * cost

    return objective


def _rate(case: Case) -> Objective:
    """Loss earned per unit of cost by going ``FAR`` in the direction of a move."""

    def objective(branch: Branches, moves: np.ndarray) -> np.ndarray:
        size = np.maximum(np.abs(moves).max(axis=-1, keepdims=True), 1e-12)
        here = outcome(case, branch, np.zeros((1, 1, moves.shape[-1])))[0]
        loss, cost = outcome(case, branch, FAR * moves / size)
        return (loss - here) / np.maximum(cost, 1.0)

    return objective


class Columns(NamedTuple):
    """Perturbed rows on offer to the transport plan."""

    row: np.ndarray
    flip: np.ndarray
    loss: np.ndarray
    cost: np.ndarray

    def joined(self, other: Columns) -> Columns:
        return Columns(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


class BruteWorstCase(NamedTuple):
    """Worst expected loss found, its multiplier, and the mass whose label was flipped."""

    value: float
    multiplier: float
    flipped: float


def worst_case(case: Case, *, rounds: int = 30) -> BruteWorstCase:
    """``sup { E_Q l : W_p(Q, P) <= radius }`` by column generation over perturbed rows."""
    base = plain_loss(case, case.X @ case.coef + case.intercept, case.y)
    budget = case.radius**case.order
    plain = float(case.masses @ base)
    if budget == 0.0:
        return BruteWorstCase(plain, np.inf, 0.0)
    branch, still = branches(case), np.zeros((1, dimension(case)))
    columns = _columns(case, branch[branch.flip], still)
    ways = steepest_directions(case)
    starts = local_starts(case, ways)
    for distance in (FAR,) if case.order == 1 else (FAR, *np.geomspace(1e-3, 1e3, 25)):
        columns = columns.joined(_columns(case, branch, distance * ways))
    for _ in range(rounds):
        value, multiplier, flipped = _transport(case, columns, base, budget)
        _, moves = climb(_penalised(case, multiplier), branch, starts, steps=30 * case.order)
        offers = _columns(case, branch, moves)
        h = base.copy()
        np.maximum.at(h, offers.row, offers.loss - multiplier * offers.cost)
        if budget * multiplier + case.masses @ h <= value + 1e-9 * max(value, 1e-3):
            break
        columns = columns.joined(offers)
    return BruteWorstCase(value, multiplier, flipped)


def _columns(case: Case, branch: Branches, moves: np.ndarray) -> Columns:
    if not branch.row.size:
        return Columns(branch.row, branch.flip, np.empty(0), np.empty(0))
    loss, cost = outcome(case, branch, moves[:, None, :])
    return Columns(branch.row, branch.flip, loss[:, 0], cost[:, 0])


def _transport(case: Case, columns: Columns, base: np.ndarray, budget: float) -> tuple[float, float, float]:
    """Spend the budget on the columns, never more than the mass of a row.

    A variable is money spent on a column, so that far moves of little mass stay well scaled: it buys ``1 / cost``
    of mass and ``(loss - base) / cost`` of loss a unit.
    """
    paid = columns.cost > 1e-10
    row, flip, loss, cost = (part[paid] for part in columns)
    gain = (loss - base[row]) / cost
    use = np.zeros((len(base) + 1, len(row)))
    use[row, np.arange(len(row))] = 1.0 / cost
    use[-1] = 1.0
    with np.errstate(all="ignore"):
        plan = linprog(
            -gain,
            A_ub=use,
            b_ub=np.append(case.masses, budget),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
    if plan.status != 0:
        raise RuntimeError(f"the transport programme failed: {plan.message}")
    value = float(case.masses @ base) + float(gain @ plan.x)
    return value, float(-plan.ineqlin.marginals[-1]), float((plan.x / cost)[flip].sum())
