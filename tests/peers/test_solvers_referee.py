"""Both solvers against CVXPY on random problems: every loss, norm and label cost, on kind and unkind data.

``value`` is the exact risk of a model and ``lower_bound`` is certified, so two one-sided questions can always be asked,
however inaccurate the referee is: no model of ours is worse than the referee's optimum, and no bound of ours exceeds it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from reference.cases import LABEL_COSTS, LOSS_NAMES, MARGIN_LOSSES, NORMS, SECOND_ORDER

from dualcore import Problem, solve

pytest.importorskip("cvxpy")
from peers.cvxpy_referee import cvxpy_optimum  # noqa: E402

AGREEMENT = 1e-6
BOUND_SLACK = 1e-9
TRAITS = (
    "plain",
    "badly scaled",
    "duplicate rows",
    "more features than rows",
    "separable",
    "constant columns",
    "one row per class",
)
WEIGHTS = ("equal", "random", "some zero", "few rows")
ROUNDS = 3
COMBINATIONS = tuple(product(LOSS_NAMES, NORMS, LABEL_COSTS))
N_PROBLEMS = ROUNDS * len(COMBINATIONS)


@dataclass(frozen=True)
class Drawn:
    """A random problem; ``index`` draws it again."""

    index: int
    problem: Problem
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    trait: str
    weighting: str

    @property
    def solvers(self) -> tuple[str, ...]:
        return ("conic",) if self.problem.loss.name in SECOND_ORDER else ("structured", "conic")

    def __str__(self) -> str:
        return f"#{self.index} {self.problem!r} on {len(self.y)} x {self.X.shape[1]}, {self.trait}, weights {self.weighting}"


def draw(index: int) -> Drawn:
    """Return problem ``index`` of `N_PROBLEMS`; loss, norm, label cost and trait go round, the rest is random."""
    loss, norm, label_cost = COMBINATIONS[index % len(COMBINATIONS)]
    trait = TRAITS[index % len(TRAITS)]  # 108 combinations and 7 traits: every round pairs them differently
    rng = np.random.default_rng([314159, index])
    X, y = draw_data(rng, trait, classification=loss in MARGIN_LOSSES)
    weighting = WEIGHTS[int(rng.integers(len(WEIGHTS)))]
    if trait == "one row per class" and weighting in WEIGHTS[2:]:
        weighting = "random"
    ridge = float(rng.choice([0.0, 0.0, 0.01, 1.0]))
    radii = [0.01, 0.1, 0.3, 1.0] if ridge == 0.0 else [0.0, 0.01, 0.1, 0.3]
    parameters = {"huber": {"delta": 0.5}, "pinball": {"quantile": 0.3}}.get(loss, {})
    problem = Problem(
        loss,
        radius=float(rng.choice(radii)),
        norm=norm,
        label_cost=label_cost,
        ridge=ridge,
        fit_intercept=bool(rng.random() < 0.7),
        **parameters,
    )
    return Drawn(index, problem, X, y, draw_weights(rng, weighting, y), trait, weighting)


def draw_data(rng: np.random.Generator, trait: str, *, classification: bool) -> tuple[np.ndarray, np.ndarray]:
    n, m = int(rng.integers(15, 50)), int(rng.integers(1, 6))
    if trait == "more features than rows":
        n, m = int(rng.integers(4, 10)), int(rng.integers(11, 20))
    if trait == "one row per class":
        n = 2
    X = rng.normal(size=(n, m)) + rng.normal(size=m)
    if trait == "constant columns":
        X = np.column_stack([X, np.full(n, 3.7), np.zeros(n)])
    score = X @ rng.normal(size=X.shape[1])
    noise = 0.0 if trait == "separable" else 1.5
    target = score - np.median(score) + noise * rng.normal(size=n)
    if trait == "duplicate rows":
        X[n // 2 : n // 2 * 2], target[n // 2 : n // 2 * 2] = X[: n // 2], target[: n // 2]
    if trait == "badly scaled":
        X = X * 10.0 ** rng.uniform(-3.0, 3.0, size=X.shape[1])
    if not classification:
        return X, target
    y = np.where(target > np.median(target), 1.0, -1.0)
    y[np.argmax(target)], y[np.argmin(target)] = 1.0, -1.0
    return X, y


def draw_weights(rng: np.random.Generator, weighting: str, y: np.ndarray) -> np.ndarray | None:
    if weighting == "equal":
        return None
    weights = rng.exponential(size=y.size)
    if weighting == "some zero":
        weights[rng.random(y.size) < 0.3] = 0.0
    if weighting == "few rows":  # nearly all the mass on three rows
        weights = np.where(np.arange(y.size) < 3, 1.0, 1e-4)
    ends = [int(np.argmin(y)), int(np.argmax(y))]  # both classes keep some mass
    weights[ends] = np.maximum(weights[ends], 0.01)
    return 10.0 * weights


class Comparison(NamedTuple):
    """What a solver found beside what the referee found, all relative to the referee's optimum."""

    optimum: float
    excess: float  # how much worse our model is; negative where it is better than the referee's
    overshoot: float  # how far our lower bound exceeds the referee's optimum; negative where it is below
    gap: float  # our own certified gap
    status: str
    seconds: float


@cache
def optimum(index: int) -> float:
    drawn = draw(index)
    return cvxpy_optimum(drawn.problem, drawn.X, drawn.y, drawn.weights)


def compare(drawn: Drawn, solver: str) -> Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap that is too wide is judged by whoever called
        found = solve(drawn.problem, drawn.X, drawn.y, drawn.weights, solver=solver)
    best = optimum(drawn.index)
    return Comparison(
        best,
        (found.value - best) / best,
        (found.lower_bound - best) / best,
        found.relative_gap,
        found.status.name,
        found.seconds,
    )
