"""Random problems with categories; `reference.referee.dual_loss` tries every assignment of every row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualcore import Problem

PARAMETERS: dict[str, dict[str, float]] = {"pinball": {"quantile": 0.3}, "epsilon_insensitive": {"epsilon": 0.2}}


class Case(NamedTuple):
    """A problem and its groups."""

    problem: Problem
    columns: list[np.ndarray]
    dropped: list[bool]
    costs: np.ndarray
    n_features: int


def draw_case(rng: np.random.Generator, loss: str, *, limits: bool | None = None, **fixed: Any) -> Case:
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
    limited = n_numbers > 0 and (bool(rng.random() < 0.4) if limits is None else limits)
    is_margin = loss in ("hinge", "logistic", "smooth_hinge")
    settings: dict[str, Any] = {
        "radius": float(rng.choice([0.05, 0.2, 0.6])),
        "norm": "l1" if limited else str(rng.choice(["l1", "l2", "linf"])),
        "label_cost": float(rng.choice([0.7, 2.0, np.inf])) if is_margin else float(rng.choice([3.0, np.inf])),
        "categories": [[None] * drop + part.tolist() for part, drop in zip(columns, dropped, strict=True)],
        "category_cost": costs,
        "support": (-2.0, 2.0) if limited else None,
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
