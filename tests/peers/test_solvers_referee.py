"""Both solvers against CVXPY on random problems: every loss, norm and label cost, on kind and unkind data.

``value`` is the exact risk of a model and ``lower_bound`` is certified, so two one-sided questions can be asked however
inaccurate the referee is: no model of ours is worse than the referee's optimum, and no bound of ours exceeds the risk
of the referee's model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, solve
from reference.cases import LABEL_COSTS, LOSS_NAMES, MARGIN_LOSSES, NORMS, SECOND_ORDER

pytest.importorskip("cvxpy")
import cvxpy as cp

from peers.cvxpy_referee import UndecidedError, cvxpy_optimum, minimum, robust_cost, with_mass

pytestmark = pytest.mark.slow

AGREEMENT = 1e-6
BOUND_SLACK = 1e-9
ROUNDING = 1e-12
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

    @property
    def masses(self) -> np.ndarray:
        return np.ones(len(self.y)) if self.weights is None else self.weights

    def __str__(self) -> str:
        n, m = self.X.shape
        return f"#{self.index} {self.problem!r} on {n} x {m}, {self.trait}, weights {self.weighting}"


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


class Referee(NamedTuple):
    """What CVXPY claims the optimum to be, and the exact risk of the model it found: never below the optimum."""

    claim: float
    risk: float


class Comparison(NamedTuple):
    """A solver's answer beside the referee's, relative to the referee's claim."""

    optimum: float
    excess: float  # how much worse our model is; negative where it is better
    overshoot: float  # how far our lower bound exceeds the claim; negative where it is below
    beaten: float  # how far our lower bound exceeds the exact risk of the referee's model: impossible if it is one
    gap: float  # our certified gap
    status: str
    seconds: float

    @property
    def faults(self) -> list[str]:
        """What the solver is to blame for."""
        found = []
        if self.status != "OPTIMAL" or not self.gap <= AGREEMENT:
            found.append(f"status {self.status}, relative gap {self.gap:.2e}")
        if not self.excess <= AGREEMENT:
            found.append(f"the value is {self.excess:.2e} above the referee's optimum")
        if not self.beaten <= ROUNDING:
            found.append(f"the lower bound is {self.beaten:.2e} above the risk of the referee's model")
        elif not (self.overshoot <= BOUND_SLACK or self.referee_is_short):
            found.append(f"the lower bound is {self.overshoot:.2e} above the referee's optimum")
        return found

    @property
    def referee_is_short(self) -> bool:
        """Whether the referee claims less than the very model it found attains: its claim is off, not our bound."""
        return self.overshoot - self.beaten > BOUND_SLACK

    @property
    def referee_is_long(self) -> bool:
        """Whether our model, whose risk is exact, is better than what the referee takes for the optimum."""
        return self.excess < -AGREEMENT


@cache
def referee(index: int) -> Referee:
    drawn = draw(index)
    problem = drawn.problem
    X, y, w = with_mass(drawn.X, drawn.y, drawn.weights)
    coef = cp.Variable(X.shape[1])
    intercept = cp.Variable() if problem.fit_intercept else cp.Constant(0.0)
    cost, constraints = robust_cost(problem, coef, intercept, X, y, w)
    if problem.ridge > 0.0:
        cost = cost + problem.ridge / 2.0 * cp.sum_squares(coef)
    claim = minimum(cost, constraints)
    return Referee(claim, problem.risk(coef.value, float(intercept.value), drawn.X, drawn.y, drawn.weights))


def compare(drawn: Drawn, solver: str) -> Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told by the status
        found = solve(drawn.problem, drawn.X, drawn.y, drawn.weights, solver=solver)
    return score(found.value, found.lower_bound, referee(drawn.index), found.status.name, found.seconds)


def score(value: float, lower: float, best: Referee, status: str = "OPTIMAL", seconds: float = 0.0) -> Comparison:
    return Comparison(
        best.claim,
        (value - best.claim) / best.claim,
        (lower - best.claim) / best.claim,
        (lower - best.risk) / best.claim,
        (value - lower) / value,
        status,
        seconds,
    )


def check(index: int) -> None:
    drawn = draw(index)
    for solver in drawn.solvers:
        try:
            found = compare(drawn, solver)
        except UndecidedError:  # nothing to compare with: the certificate alone must do
            assert solve(drawn.problem, drawn.X, drawn.y, drawn.weights, solver=solver).relative_gap <= AGREEMENT
        else:
            assert found.faults == [], f"{solver} on {drawn}"


# 5 has no divisor in common with the 9 losses, 3 norms, 4 label costs and 7 traits: a fifth of the problems has all.
@pytest.mark.parametrize("index", range(0, N_PROBLEMS, 5))
def test_the_optimum_is_the_referees(index):
    check(index)


@pytest.mark.slow
@pytest.mark.parametrize("index", [index for index in range(N_PROBLEMS) if index % 5])
def test_the_optimum_is_the_referees_on_all_the_others(index):
    check(index)


# The draw covers what it should


@pytest.mark.parametrize("every", [1, 5])
def test_the_problems_cover_everything(every):
    drawn = [draw(index) for index in range(0, N_PROBLEMS, every)]
    seen = {
        "loss": {d.problem.loss.name for d in drawn},
        "norm": {d.problem.geometry.norm.name for d in drawn},
        "label cost": {d.problem.geometry.label_cost for d in drawn},
        "ridge": {d.problem.ridge > 0.0 for d in drawn},
        "radius": {d.problem.radius > 0.0 for d in drawn},
        "intercept": {d.problem.fit_intercept for d in drawn},
        "trait": {d.trait for d in drawn},
        "weights": {d.weighting for d in drawn},
    }
    assert seen == {
        "loss": set(LOSS_NAMES),
        "norm": set(NORMS),
        "label cost": set(LABEL_COSTS),
        "ridge": {False, True},
        "radius": {False, True},
        "intercept": {False, True},
        "trait": set(TRAITS),
        "weights": set(WEIGHTS),
    }
    assert {(d.problem.loss.name, d.problem.geometry.norm.name) for d in drawn} >= set(product(LOSS_NAMES, NORMS))
    if every == 1:
        assert len(drawn) >= 300
        assert {(d.problem.loss.name, d.trait) for d in drawn} == set(product(LOSS_NAMES, TRAITS))


# The comparison can say no


def test_a_worse_value_a_bound_too_high_and_a_wide_gap_are_noticed():
    best = Referee(1.0, 1.0 + 1e-10)
    assert score(1.0 + 1e-7, 1.0 - 1e-7, best).faults == []
    assert len(score(1.0 + 3e-6, 1.0 + 2.5e-6, best).faults) == 2
    assert any("above the referee's optimum" in fault for fault in score(1.0 + 3e-6, 1.0 - 1e-9, best).faults)
    assert any("relative gap" in fault for fault in score(1.0, 1.0 - 2e-6, best).faults)
    assert any("lower bound" in fault for fault in score(1.0 + 5e-9, 1.0 + 4e-9, best).faults)
    assert score(1.0, 1.0 - 1e-8, best, status="MAX_ITER").faults != []
    assert score(np.nan, np.nan, best).faults != []


def test_a_referee_that_claims_less_than_its_model_attains_is_no_evidence_against_a_bound():
    short = score(1.0 + 6e-9, 1.0 + 5e-9, Referee(1.0, 1.0 + 8e-9))
    assert short.referee_is_short
    assert short.faults == []
    assert score(0.99, 0.989999, Referee(1.0, 1.0)).referee_is_long


def binary(seed: int = 3, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(X @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=n) > 0.3, 1.0, -1.0)


@pytest.mark.parametrize(
    "change", [{"radius": 0.101}, {"label_cost": 0.99}, {"ridge": 0.0101}, {"fit_intercept": False}]
)
def test_the_referee_notices_another_problem(change):
    X, y = binary(n=40)
    problem = Problem("hinge", radius=0.1, norm="l2", label_cost=1.0, ridge=0.01)
    right, wrong = solve(problem, X, y).value, solve(problem.replace(**change), X, y).value
    optimum = cvxpy_optimum(problem, X, y)
    assert right == pytest.approx(optimum, rel=AGREEMENT)
    assert abs(wrong - optimum) > 10.0 * AGREEMENT * optimum


# Special cases that scikit-learn solves


def test_features_that_move_in_linf_make_the_square_root_lasso():
    """``sqrt(R) = rms + sigma ||theta||_1``: its optimality conditions say that no correlation exceeds the radius."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 5))
    y = X @ np.array([1.0, 0.0, 0.0, -2.0, 0.0]) + rng.normal(size=60)
    radius = 0.2
    ours = solve(Problem("squared", norm="linf", radius=radius), X, y, tol=1e-9)
    residual = y - X @ ours.coef - ours.intercept
    correlation = X.T @ residual / len(y) / np.sqrt((residual**2).mean())
    used = np.abs(ours.coef) > 1e-3
    np.testing.assert_allclose(correlation[used], radius * np.sign(ours.coef[used]), rtol=1e-3)
    assert (np.abs(correlation[~used]) <= radius * (1.0 + 1e-3)).all()
