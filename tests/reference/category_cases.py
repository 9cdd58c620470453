"""Random problems with categories, and their adversary by brute force: every assignment of every row is tried."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from dualcore import Problem

__all__ = ["Case", "assignments", "brute_force", "draw_case", "draw_rows", "moved_rows"]

PARAMETERS: dict[str, dict[str, float]] = {"pinball": {"quantile": 0.3}, "epsilon_insensitive": {"epsilon": 0.2}}


class Case(NamedTuple):
    """A problem and its groups."""

    problem: Problem
    columns: list[np.ndarray]
    dropped: list[bool]
    costs: np.ndarray
    n_features: int


def draw_case(rng: np.random.Generator, loss: str, *, walls: bool | None = None, **fixed: Any) -> Case:
    """Return a problem of up to three groups of up to four categories and up to two numbers."""
    n_groups, n_numbers = int(rng.integers(1, 4)), int(rng.integers(0, 3))
    sizes = [int(rng.integers(1, 4)) for _ in range(n_groups)]
    dropped = [bool(rng.random() < 0.4) or size == 1 for size in sizes]
    m = sum(sizes) + n_numbers
    order, columns, at = rng.permutation(m), [], 0
    for size in sizes:
        columns.append(order[at : at + size])
        at += size
    costs = np.where(rng.random(n_groups) < fixed.pop("immovable", 0.1), np.inf, rng.uniform(0.2, 2.0, n_groups))
    walled = n_numbers > 0 and (bool(rng.random() < 0.4) if walls is None else walls)
    is_margin = loss in ("hinge", "logistic", "smooth_hinge")
    settings: dict[str, Any] = {
        "radius": float(rng.choice([0.05, 0.2, 0.6])),
        "norm": "l1" if walled else str(rng.choice(["l1", "l2", "linf"])),
        "label_cost": float(rng.choice([0.7, 2.0, np.inf])) if is_margin else float(rng.choice([3.0, np.inf])),
        "categories": [[None] * drop + part.tolist() for part, drop in zip(columns, dropped, strict=True)],
        "category_cost": costs,
        "support": (-2.0, 2.0) if walled else None,
        "feature_weights": rng.uniform(0.5, 2.0, m) if rng.random() < 0.3 else None,
    }
    problem = Problem(loss, **(settings | PARAMETERS.get(loss, {}) | fixed))
    return Case(problem, columns, dropped, costs, m)


def draw_rows(rng: np.random.Generator, case: Case, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return legal rows and targets of either class, or real ones."""
    X = rng.uniform(-2.0, 2.0, size=(n, case.n_features))
    for part, drop in zip(case.columns, case.dropped, strict=True):
        X[:, part] = 0.0
        chosen = rng.integers(0, part.size + drop, size=n)
        has = chosen < part.size
        X[np.flatnonzero(has), part[chosen[has]]] = 1.0
    if case.problem.is_classification:
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        y[:2] = 1.0, -1.0
    else:
        y = 1.5 * rng.normal(size=n)
    return X, y


def assignments(columns: list[np.ndarray], dropped: list[bool]) -> list[tuple[int | None, ...]]:
    """Return every choice of a column, or of none where that is a category, in every group."""
    choices = [[*part.tolist(), *([None] if drop else [])] for part, drop in zip(columns, dropped, strict=True)]
    return list(itertools.product(*choices))


def moved_rows(case: Case, X: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for every assignment, the rows after it and what changing them costs."""
    out = []
    for choice in assignments(case.columns, case.dropped):
        moved, cost = X.copy(), np.zeros(len(X))
        for part, column, price in zip(case.columns, choice, case.costs, strict=True):
            moved[:, part] = 0.0
            if column is not None:
                moved[:, column] = 1.0
            changed = (moved[:, part] != X[:, part]).any(axis=1)
            cost[changed] += price
        out.append((moved, cost))
    return out


def brute_force(case: Case, coef: np.ndarray, intercept: float, lam: float, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ``h`` of every row: every assignment, label, and corner of the numbers' box that a best move can use.

    With l1 a best move of the numbers fills some of them to their walls, the convex loss being largest at an end of
    what each may do.
    """
    problem = case.problem
    numbers = np.setdiff1d(np.arange(case.n_features), np.concatenate(case.columns))
    weights = problem.geometry.norm.weights
    weights = np.ones(case.n_features) if weights is None else weights
    ends = [[None]] * numbers.size
    if problem.geometry.support is not None:
        ends = [[None, -2.0, 2.0]] * numbers.size
    best = np.full(len(y), -np.inf)
    flips = [1.0, -1.0] if problem.is_classification and np.isfinite(problem.geometry.label_cost) else [1.0]
    flat = problem.loss.value
    for moved, cost in moved_rows(case, X):
        for corner in itertools.product(*ends):
            there, paid = moved.copy(), cost.copy()
            for column, wall in zip(numbers, corner, strict=True):
                if wall is not None:
                    paid += weights[column] * np.abs(wall - X[:, column])
                    there[:, column] = wall
            for flip in flips:
                label = flip * y
                score = there @ coef + intercept
                signal = label * score if problem.is_classification else score - y
                total = paid + (problem.geometry.label_cost if flip < 0.0 else 0.0)
                with np.errstate(invalid="ignore"):
                    value = flat(signal) - np.where(total > 0.0, lam * total, 0.0)
                best = np.maximum(best, value)
    return best
