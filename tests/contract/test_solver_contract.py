"""What every solver promises, asked of every solver. A new one is covered by its line in ``SOLVERS``."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import IncompatibleError, Problem, Solution, certify, solve
from dualcore.problem.losses import LOSSES, Loss, MarginLoss
from dualcore.solvers import SOLVERS, Solver, Status
from dualcore.solvers.base import RawSolution
from own_losses import CappedExponential, LogCosh, Probit
from pairs import every_value


class TwoSlopes(MarginLoss):
    """``max(0, (1 - z) / 2, -z)``: a user's polyhedral loss."""

    name = "two_slopes"
    lipschitz = 1.0
    kinks = (-1.0, 1.0)
    pieces = ((0.0, 0.0), (-0.5, 0.5), (-1.0, 0.0))

    def value(self, t):
        return np.maximum(np.maximum(0.5 * (1.0 - t), -t), 0.0)

    def slope(self, t):
        return np.where(t < -1.0, -1.0, np.where(t < 1.0, -0.5, 0.0))

    def conjugate(self, s):
        s = np.asarray(s, dtype=np.float64)
        inside = (s >= -1.0) & (s <= 0.0)
        return np.where(inside, np.maximum(s, -1.0 - s), np.inf)


OWN_LOSSES: tuple[Loss, ...] = (Probit(), CappedExponential(), LogCosh(), TwoSlopes())
PROBLEMS = {
    **{name: Problem(name, radius=0.1) for name in LOSSES},
    **{loss.name: Problem(loss, radius=0.1) for loss in OWN_LOSSES},
    "logistic that flips": Problem("logistic", radius=0.2, norm="l1", label_cost=1.0),
    "hinge that flips": Problem("hinge", radius=0.2, norm="linf", label_cost=1.0),
    "smooth hinge that flips": Problem("smooth_hinge", radius=0.2, label_cost=1.0, ridge=0.1),
    "squared hinge that flips": Problem("squared_hinge", radius=0.5, label_cost=0.7),
    "probit that flips": Problem(Probit(), radius=0.2, label_cost=1.0),
    "two slopes that flip": Problem(TwoSlopes(), radius=0.2, label_cost=1.0),
    "huber with a floor": Problem("huber", radius=0.1, norm="l1", label_cost=2.0, ridge=0.01),
    "pinball without intercept": Problem("pinball", radius=0.1, norm="linf", fit_intercept=False, quantile=0.2),
    "hinge on a box": Problem("hinge", radius=0.2, label_cost=1.0, support=(-15.0, 15.0)),
    "logistic on a tight box": Problem("logistic", radius=1.0, norm="linf", support=(-15.0, 15.0)),
    "probit on a half-line": Problem(Probit(), radius=0.2, norm="l1", label_cost=1.0, support=(-15.0, np.inf)),
    "huber on a box": Problem("huber", radius=0.1, label_cost=2.0, ridge=0.01, support=(-15.0, 15.0)),
    "squared with a ridge": Problem("squared", radius=0.1, norm="linf", label_cost=0.5, ridge=0.1),
}


def sample(problem: Problem, n: int = 70, m: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(20)
    X = rng.normal(size=(n, m)) * np.array([1.0, 3.0, 0.2, 1.0])[:m]
    score = X @ np.array([1.0, -0.3, 2.0, 0.0])[:m] + rng.normal(size=n) + 0.4
    weights = rng.uniform(0.5, 2.0, size=n)
    return X, np.where(score > 0.0, 1.0, -1.0) if problem.is_classification else score, weights


@cache
def best_of(problem: Problem) -> Solution:
    return solve(problem, *sample(problem))


def takes(solver: Solver, problem: Problem) -> bool:
    return solver.obstacle(problem, problem.validate(*sample(problem))) is None


PAIRS = [(cls(), name) for cls in SOLVERS.values() for name, problem in PROBLEMS.items() if takes(cls(), problem)]
each_pair = pytest.mark.parametrize(
    ("solver", "accepted"),
    [(solver, PROBLEMS[name]) for solver, name in PAIRS],
    ids=[f"{solver.name}-{name}" for solver, name in PAIRS],
)
REFUSED = [(cls(), name) for cls in SOLVERS.values() for name, problem in PROBLEMS.items() if not takes(cls(), problem)]


@cache
def solved(name: str, problem: Problem) -> Solution:
    """The solution that several tests look at, from rows that cannot be written to."""
    data = sample(problem)
    for array in data:
        array.flags.writeable = False
    return solve(problem, *data, solver=name)


def test_the_contract_covers_every_registered_loss_and_solver():
    assert {type(problem.loss) for problem in PROBLEMS.values()} >= set(LOSSES.values())
    assert {solver.name for solver, _ in PAIRS} == set(SOLVERS)
    assert {name for _, name in PAIRS} == set(PROBLEMS)


@pytest.mark.parametrize(("solver", "name"), REFUSED, ids=[f"{solver.name}-{name}" for solver, name in REFUSED])
def test_a_refusal_comes_before_any_work_and_names_a_solver_that_can(solver, name, monkeypatch):
    problem = PROBLEMS[name]
    reason = solver.obstacle(problem, problem.validate(*sample(problem)))
    monkeypatch.setattr(type(solver), "run", lambda *_, **__: pytest.fail("it began to work"))
    with pytest.raises(IncompatibleError) as refused:
        solve(problem, *sample(problem), solver=solver.name)
    assert str(refused.value) == reason
    assert type(problem.loss).__name__ in reason
    named = [cls for name, cls in SOLVERS.items() if f"'{name}'" in reason.replace('"', "'")]
    assert named, f"no solver is named in {reason!r}"
    assert all(takes(cls(), problem) for cls in named)


@each_pair
def test_a_solution_is_certified_scored_by_the_problem_itself_and_found_again(solver, accepted):
    X, y, weights = sample(accepted)
    solution = solved(solver.name, accepted)
    assert solution.status is Status.OPTIMAL
    assert solution.converged
    assert solution.solver == solver.name
    assert 0.0 <= solution.relative_gap <= 1e-6
    value, multiplier = accepted.evaluate(solution.coef, solution.intercept, accepted.validate(X, y, weights))
    assert solution.value == value
    assert solution.dual_variable == multiplier
    assert solution.gap == solution.value - solution.lower_bound
    assert solution.coef.shape == (X.shape[1],)
    assert type(solution.intercept) is float
    assert accepted.fit_intercept or solution.intercept == 0.0
    assert solution.seconds > 0.0
    assert solution.iterations >= 1
    assert len(solution.history) >= 2
    assert all(np.isfinite([step.value, step.gap]).all() for step in solution.history)
    assert solution.history[-1].value == pytest.approx(solution.value, rel=1e-4)
    assert solution.history[-1].gap <= 1e-3 * max(step.gap for step in solution.history)
    again = solve(accepted, *sample(accepted), solver=solver.name)
    np.testing.assert_array_equal(again.coef, solution.coef)
    for name in ("intercept", "value", "lower_bound"):
        assert getattr(again, name) == getattr(solution, name)
    assert (solution.dual is None) == accepted.family.moves_rows  # there the bound comes from planes, not from a point
    assert certify(accepted, solution, X, y, weights).relative_gap <= (1e-5 if solution.dual is None else 1e-6)
    if solution.dual is not None:
        check_dual_point(accepted, solution, y, weights)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_all_solvers_find_the_same_value(problem):
    found = [solved(name, problem) for name, cls in SOLVERS.items() if takes(cls(), problem)]
    for one in found:
        for other in found:
            assert one.lower_bound <= other.value
            assert one.value == pytest.approx(other.value, rel=1e-6)


def check_dual_point(accepted, solution, y, weights):
    stay, flip, share = solution.dual
    low, high = accepted.loss.slope_range
    part = 1.0 if share is None else 1.0 - share
    assert stay.shape == y.shape
    assert np.isfinite(stay).all()
    if np.isfinite(low):
        assert (stay >= low * part - 1e-9).all()
        assert (stay <= high * part + 1e-9).all()
    if share is not None:
        assert ((share >= 0.0) & (share <= 1.0)).all()
        assert (flip >= 0.0).all()
        spent = accepted.geometry.label_cost**accepted.geometry.order * float(weights @ share) / weights.sum()
        assert spent <= accepted.price * (1.0 + 1e-6)


@every_value(each_pair, max_iter=[1, 2, 5])
def test_a_limit_on_iterations_costs_accuracy_and_says_so(solver, accepted, max_iter):
    best = best_of(accepted)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        short = solve(accepted, *sample(accepted), solver=solver.name, max_iter=max_iter)
    assert np.isfinite(short.coef).all()
    assert np.isfinite([short.intercept, short.value, short.lower_bound, short.dual_variable]).all()
    assert short.lower_bound <= best.value * (1.0 + 1e-9)
    assert short.value >= best.lower_bound * (1.0 - 1e-9)
    if short.converged:
        assert short.relative_gap <= 1e-6
        assert not heard
        return
    assert [warning.category for warning in heard] == [ConvergenceWarning]
    message = str(heard[0].message)
    assert short.status.value in message
    assert f"{short.relative_gap:.2e}" in message
    assert heard[0].filename == __file__


@each_pair
def test_run_takes_a_start_and_hands_back_what_it_has(solver, accepted):
    data = accepted.validate(*sample(accepted))
    start = (np.full(data.rows.m, 0.3), 0.1 if accepted.fit_intercept else 0.0)
    kept = start[0].copy()
    raw = solver.run(accepted, data, tol=1e-6, max_iter=100, start=start)
    assert isinstance(raw, RawSolution)
    assert not raw.stopped_early
    np.testing.assert_array_equal(start[0], kept)
    cold = solver.run(accepted, data, tol=1e-6, max_iter=100, start=None)
    values = [accepted.evaluate(found.coef, found.intercept, data).value for found in (raw, cold)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_pair
def test_a_tighter_tolerance_is_met(solver, accepted):
    solution = solve(accepted, *sample(accepted), solver=solver.name, tol=1e-8)
    assert solution.relative_gap <= (1e-8 if solver.name == "structured" else 1e-7)
