"""The loop: one read a round, the risk never rising, the certificate true, and an early stop."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import Anchor, Coreset, DualCoreset, Problem, Solution, fit_coreset, solve
from dualcore.coresets.samplers import refinement
from dualcore.coresets.samplers.base import Round
from dualcore.data.sources import ArraySource
from dualcore.reading.rowwise import along
from pairs import every_value, first

PROBLEMS = {
    "logistic": Problem("logistic", radius=0.1),
    "logistic that flips": Problem("logistic", radius=0.1, norm="l1", label_cost=1.0),
    "hinge": Problem("hinge", radius=0.1, ridge=0.01),
    "hinge that flips": Problem("hinge", radius=0.1, label_cost=1.0),
    "smooth hinge": Problem("smooth_hinge", radius=0.1, norm="linf"),
    "huber": Problem("huber", radius=0.1, label_cost=3.0),
    "absolute": Problem("absolute", radius=0.1),
    "squared": Problem("squared", radius=0.1),
    "squared hinge": Problem("squared_hinge", radius=0.1),
    "no intercept": Problem("logistic", radius=0.1, fit_intercept=False),
    "no radius": Problem("logistic", ridge=0.05),
}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def sample(problem: Problem, n: int = 1500, m: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n, m))
    score = X @ np.array([1.5, -1.0, 0.5, 0.0, 0.2])[:m] + 0.3
    return X, np.where(
        score + rng.normal(size=n) > 0.0, 1.0, -1.0
    ) if problem.is_classification else score + rng.normal(size=n)


def optimum(problem: Problem, X: np.ndarray, y: np.ndarray) -> Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, X, y, tol=1e-8)


@every_value(each_problem, size=[25, 200])
def test_the_history_is_monotone_and_the_certificate_true(problem, size):
    X, y = sample(problem)
    seen: list[Round] = []
    fit = DualCoreset(size=size, rounds=4, random_state=5).fit(problem, X, y, callback=seen.append)
    assert tuple(seen) == fit.history
    uppers, lowers = np.array([r.upper for r in seen]), np.array([r.lower for r in seen])
    assert (np.diff(uppers) <= 0.0).all()
    assert (np.diff(lowers) >= 0.0).all()
    assert uppers[-1] == min(r.risk for r in seen)
    best = optimum(problem, X, y)
    assert fit.certificate.lower <= best.value * (1.0 + 1e-9)
    assert fit.certificate.upper >= best.lower_bound * (1.0 - 1e-9)
    assert fit.certificate.upper == pytest.approx(
        problem.risk(fit.solution.coef, fit.solution.intercept, X, y), rel=1e-9
    )
    assert fit.solution.value == fit.certificate.upper == uppers[-1]
    assert fit.solution.lower_bound == fit.certificate.lower == lowers[-1]
    assert fit.solution.gap == pytest.approx(fit.certificate.gap)
    assert fit.solution.dual_variable == pytest.approx(
        problem.multiplier(fit.solution.coef, fit.solution.intercept, X, y), rel=1e-6
    )
    if not problem.fit_intercept:
        assert fit.solution.intercept == 0.0


@each_problem
def test_one_read_a_round_and_one_to_certify(problem):
    X, y = sample(problem)
    for rounds in (1, 2, 3):
        source = ArraySource(X, y)
        fit = DualCoreset(size=100, rounds=rounds, random_state=5).fit(problem, source)
        assert source.n_reads == fit.certificate.n_reads == len(fit.history) == rounds + 1
        assert [r.read for r in fit.history] == list(range(1, rounds + 2))
    source = ArraySource(X, y)
    DualCoreset(size=100, rounds=3, random_state=5).build(problem, source)
    assert source.n_reads == 3


def test_reads_of_an_earlier_fit_are_not_counted_again():
    problem = PROBLEMS["logistic"]
    source = ArraySource(*sample(problem))
    sampler = DualCoreset(size=100, random_state=5)
    assert sampler.fit(problem, source).certificate.n_reads == 2
    assert sampler.fit(problem, source).certificate.n_reads == 2


@pytest.mark.parametrize("name", ["logistic", "hinge", "huber", "smooth hinge", "squared"])
def test_rounds_bring_the_model_to_the_optimum(name):
    problem = PROBLEMS[name]
    X, y = sample(problem, n=6000)
    fit = DualCoreset(size=300, rounds=6, random_state=5).fit(problem, X, y)
    best = optimum(problem, X, y)
    assert fit.solution.value - best.value <= (2e-4 if problem.loss.kinks else 1e-6) * best.value
    assert fit.certificate.relative_gap <= (1e-2 if problem.loss.kinks else 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_huber_loss_whose_curved_part_is_narrow_against_the_noise(seed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 20))
    y = X @ rng.uniform(0.0, 80.0, size=20) + 20.0 * rng.normal(size=10_000)
    problem = Problem("huber", radius=0.01)  # delta 1.35
    fit = DualCoreset(size=500, rounds=4, target_gap=1e-3, random_state=seed).fit(problem, X, y)
    assert fit.certificate.relative_gap < 1e-2
    assert fit.certificate.upper <= optimum(problem, X, y).value * (1.0 + 1e-3)


def test_it_stops_as_soon_as_the_certificate_is_tight_enough():
    problem = PROBLEMS["logistic"]
    X, y = sample(problem, n=6000)
    loose, tight = (
        DualCoreset(size=300, rounds=10, target_gap=gap, random_state=5).fit(problem, X, y) for gap in (0.5, 1e-3)
    )
    assert len(loose.history) == 1
    assert loose.certificate.n_reads == 1
    assert 1 < len(tight.history) < 11
    assert tight.history[-1].relative_gap <= 1e-3 < tight.history[-2].relative_gap
    # The pilot was good enough, so nothing was trained on a coreset; one is handed back all the same.
    assert len(loose.coreset) == 300


def test_a_tiny_coreset_does_not_throw_a_good_anchor_away():
    problem = PROBLEMS["logistic"]
    X, y = sample(problem, n=3000)
    best = optimum(problem, X, y)
    for seed in range(10):
        fit = DualCoreset(size=10, rounds=3, anchor=best, random_state=seed).fit(problem, X, y)
        assert fit.certificate.upper <= best.value * (1.0 + 1e-9)


def test_a_thin_coreset_still_moves_downhill():
    """12 rows for 6 parameters: over 10 seeds, six rounds take more than half of the pilot's excess away."""
    problem = PROBLEMS["logistic"]
    X, y = sample(problem, n=3000)
    best = optimum(problem, X, y).value
    pairs = []
    for seed in range(10):
        history = DualCoreset(size=12, rounds=6, random_state=seed).fit(problem, X, y).history
        pairs.append((history[0].upper - best, history[-1].upper - best))
    first, last = np.mean(pairs, axis=0)
    assert last < 0.5 * first


def test_no_round_is_spent_on_a_coreset_that_was_tried_before(monkeypatch):
    problem = PROBLEMS["logistic"]
    X, y = sample(problem, n=3000)
    drawn: list[tuple[float, ...]] = []
    draw_cells = refinement.draw_cells

    def spy(*args, **options) -> Coreset:
        coreset = draw_cells(*args, **options)
        drawn.append((*coreset.indices.tolist(), *coreset.weights.tolist()))
        return coreset

    monkeypatch.setattr(refinement, "draw_cells", spy)
    repeats = 0
    for seed in range(10):
        drawn.clear()
        DualCoreset(size=12, rounds=8, random_state=seed).fit(problem, X, y)
        repeats += len(drawn) - len(set(drawn))
    assert repeats == 0


def test_where_a_fit_begins_can_be_given():
    problem = PROBLEMS["hinge"]
    X, y = sample(problem)
    start = Anchor(np.zeros(5), 0.0, 0.0)
    fit = DualCoreset(size=200, rounds=3, anchor=start, random_state=0).fit(problem, X, y)
    assert fit.history[0].risk == pytest.approx(1.0)
    assert fit.history[-1].upper < 0.8


def test_settings_of_the_solver_reach_it(monkeypatch):
    problem = PROBLEMS["logistic"]
    X, y = sample(problem)
    seen = []
    original = refinement.solve_quietly
    monkeypatch.setattr(
        refinement, "solve_quietly", lambda *args, **options: seen.append(options) or original(*args, **options)
    )
    fit_coreset(problem, X, y, coreset=100, solver="conic", tol=1e-4, max_iter=77, random_state=0)
    assert seen
    assert all((o["solver"], o["tol"], o["max_iter"]) == ("conic", 1e-4, 77) for o in seen)


def test_a_generator_as_random_state():
    problem = PROBLEMS["logistic"]
    X, y = sample(problem)
    one, other = (
        DualCoreset(size=100, random_state=np.random.default_rng(3)).fit(problem, X, y).coreset for _ in range(2)
    )
    np.testing.assert_array_equal(one.indices, other.indices)


@every_value(seed=first(3, range(12)), norm=["l1", "l2", "linf"])
def test_squares_without_a_radius_go_through_the_line_search(seed, norm):
    """Their multipliers are infinite: no step between two of them may come out as not a number."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 2))
    y = X @ np.array([1.0, -1.0]) + rng.normal(size=100)
    problem = Problem("squared", radius=0.0, ridge=0.1, norm=norm)
    fit = fit_coreset(problem, X, y, coreset=20, random_state=seed)
    assert fit.certificate.upper == pytest.approx(
        np.mean((X @ fit.solution.coef + fit.solution.intercept - y) ** 2)
        + 0.05 * fit.solution.coef @ fit.solution.coef
    )
    assert fit.certificate.lower <= optimum(problem, X, y).value * (1.0 + 1e-9)


def test_a_step_towards_a_multiplier_that_is_infinite():
    start, end = Anchor(np.zeros(1), 0.0, np.inf), Anchor(np.ones(1), 1.0, np.inf)
    assert along(Problem("squared").family, start, end, 0.5).multiplier == np.inf
    start = Anchor(np.zeros(1), 0.0, np.inf)
    end = Anchor(np.ones(1), 1.0, 3.0)
    assert along(Problem("squared", radius=0.1).family, start, end, 0.5).multiplier == 3.0


@every_value(small=[5e-324, 1e-320, 1e-300, 1.0, 1e300], share=[0.5, 1.0])
def test_weights_of_any_magnitude(small, share):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.sign(X[:, 0] + rng.normal(size=400))
    weights = np.where(np.arange(400) < share * 400, small, 1.0)
    problem = Problem("logistic", radius=0.1)
    fit = fit_coreset(problem, X, y, coreset=40, sample_weight=weights, random_state=0)
    exact = problem.risk(fit.solution.coef, fit.solution.intercept, X, y, weights)
    assert fit.certificate.upper == pytest.approx(exact, rel=1e-9)
    assert fit.certificate.relative_gap < 0.05
