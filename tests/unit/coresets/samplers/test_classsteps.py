"""Softmax coresets with fewer rows than parameters: a sample corrected by reads, and the bound from their sums."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import Anchor, DualCoreset, PartsSource, Problem, fit_coreset, open_source, solve
from dualcore.coresets.samplers import classsteps
from dualcore.coresets.samplers.classsteps import ClassSteps, can_step
from dualcore.data.sources import ArraySource
from pairs import every_value

K, M, N = 5, 40, 6000
PROBLEMS = {
    "l2": Problem("softmax", n_classes=K, radius=0.05),
    "l1": Problem("softmax", n_classes=K, radius=0.02, norm="l1"),
    "linf": Problem("softmax", n_classes=K, radius=0.02, norm="linf"),
    "ridge": Problem("softmax", n_classes=K, ridge=0.01),
    "radius and ridge": Problem("softmax", n_classes=K, radius=0.02, ridge=0.01),
    "no intercept": Problem("softmax", n_classes=K, radius=0.05, fit_intercept=False),
}
FLIPS = {
    "l2": Problem("softmax", n_classes=K, radius=0.05, label_cost=2.0),
    "l1": Problem("softmax", n_classes=K, radius=0.02, norm="l1", label_cost=2.0),
    "linf, ridge": Problem("softmax", n_classes=K, radius=0.02, norm="linf", ridge=0.01, label_cost=2.0),
}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


@pytest.fixture
def half(monkeypatch):
    """Let a sample hold half of the rows, as if they were many."""
    monkeypatch.setattr(classsteps, "_FEWEST", N // 2)


def wide(n: int = N, *, seed: int = 0, weighted: bool = False):
    """Columns of different spread away from the origin, classes of different mass."""
    rng = np.random.default_rng(seed)
    y = rng.choice(K, size=n, p=[0.35, 0.3, 0.2, 0.1, 0.05]).astype(np.float64)
    X = 0.4 * rng.normal(size=(K, M))[y.astype(int)] + rng.normal(size=(n, M))
    X = (X + rng.normal(size=M)) * np.geomspace(0.5, 2.0, M)
    return X, y, rng.uniform(0.0, 2.0, size=n) if weighted else None


def optimal_risk(problem: Problem, X, y, weights=None) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, X, y, weights, tol=1e-6).value


@every_value(each_problem, pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"]))
def test_forty_rows_for_two_hundred_parameters_come_near_the_optimum_of_all(half, problem, weighted):
    X, y, weights = wide(weighted=weighted)
    assert can_step(problem, M)
    best = optimal_risk(problem, X, y, weights)
    fit = DualCoreset(size=40, rounds=4, random_state=0).fit(problem, X, y, weights)
    assert best <= fit.certificate.upper * (1.0 + 1e-9)
    assert fit.certificate.upper <= best * 1.005
    for done in fit.history:
        assert done.lower <= best * (1.0 + 1e-9)
    assert fit.certificate.relative_gap < 0.02
    assert fit.certificate.n_reads == fit.history[-1].read == 6  # one for the means of the classes
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, X, y, weights)
    assert fit.certificate.upper == pytest.approx(risk, rel=1e-9)
    assert set(fit.coreset.y) == set(range(K))
    assert len(fit.coreset) <= 40


def test_a_number_for_a_coreset_takes_at_most_eight_reads_of_a_file(half):
    """One for the sample, one for the means of the classes, one a round and a last one; labels are one more here."""
    X, y, _ = wide()
    source = PartsSource(lambda: ((X[k : k + 500], y[k : k + 500]) for k in range(0, N, 500)))
    fit = fit_coreset(PROBLEMS["l2"], source, coreset=40, random_state=0)
    assert fit.certificate.n_reads <= 8
    assert fit.certificate.relative_gap < 0.02


def test_what_is_handed_out_says_how_the_model_was_found(half):
    X, y, _ = wide()
    fit = DualCoreset(size=40, rounds=2, random_state=0).fit(PROBLEMS["l2"], X, y)
    assert "sample of 3,000 rows" in fit.coreset.details["message"]
    assert fit.solution.solver == "tilted"
    np.testing.assert_array_equal(fit.coreset.X, X[fit.coreset.indices])
    assert fit.coreset.weights.sum() == pytest.approx(1.0)


def test_the_fit_does_not_depend_on_how_the_rows_are_read(half):
    X, y, weights = wide(weighted=True)
    sampler = DualCoreset(size=40, rounds=3, random_state=7)
    reference = sampler.fit(PROBLEMS["l2"], ArraySource(X, y, weights, chunk_rows=700))
    again = sampler.fit(PROBLEMS["l2"], ArraySource(X, y, weights, chunk_rows=333))
    np.testing.assert_array_equal(again.solution.coef, reference.solution.coef)
    np.testing.assert_array_equal(again.coreset.indices, reference.coreset.indices)
    np.testing.assert_array_equal(again.coreset.weights, reference.coreset.weights)
    assert again.certificate.lower == reference.certificate.lower
    assert [done.lower for done in again.history] == [done.lower for done in reference.history]
    sparse = sampler.fit(PROBLEMS["l2"], open_source(sp.csr_matrix(X), y, weights))
    np.testing.assert_array_equal(sparse.coreset.indices, reference.coreset.indices)
    np.testing.assert_allclose(sparse.solution.coef, reference.solution.coef, rtol=1e-6, atol=1e-8)


def test_an_anchor_is_where_the_steps_begin(half):
    X, y, _ = wide()
    best = solve(PROBLEMS["l2"], X, y, tol=1e-6)
    start = Anchor(best.coef, best.intercept, best.dual_variable)
    fit = DualCoreset(size=40, rounds=2, anchor=start, random_state=0).fit(PROBLEMS["l2"], X, y)
    assert fit.history[0].risk == pytest.approx(best.value, rel=1e-9)
    assert fit.certificate.upper <= best.value * (1.0 + 1e-9)


def test_columns_far_from_the_origin_have_a_true_bound(half):
    X, y, _ = wide(4500)
    far = X + 1e6
    best = optimal_risk(PROBLEMS["l2"], X, y)  # the same problem, but for the intercept
    fit = DualCoreset(size=40, rounds=3, random_state=0).fit(PROBLEMS["l2"], far, y)
    assert fit.certificate.lower <= best * (1.0 + 1e-6)
    assert fit.certificate.upper <= best * 1.05


def test_bounds_stay_true_where_the_sample_is_poor(monkeypatch):
    """Fewer rows than parameters: steps are damped, go back where they led too far, and no bound is above the best."""
    monkeypatch.setattr(classsteps, "_FEWEST", 60)
    monkeypatch.setattr(classsteps, "_ROWS_PER_NUMBER", 0)
    problem = PROBLEMS["l2"]
    for seed in range(4):
        X, y, _ = wide(1500, seed=seed)
        best = optimal_risk(problem, X, y)
        fit = DualCoreset(size=30, rounds=5, random_state=seed).fit(problem, X, y)
        assert all(done.lower <= best * (1.0 + 1e-9) for done in fit.history)
        uppers = [done.upper for done in fit.history]
        # The last is the same model's risk again, added up over the rows in memory: equal up to rounding.
        assert all(after <= before * (1.0 + 1e-14) for before, after in pairwise(uppers))
        assert fit.certificate.upper < uppers[0]


@every_value(
    pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"]),
    problem=[*PROBLEMS.values(), *FLIPS.values()],
)
def test_few_rows_are_all_trained_on_where_a_coreset_cannot_tell_the_model(problem, weighted):
    X, y, weights = wide(1500, weighted=weighted)
    best = optimal_risk(problem, X, y, weights)
    fit = fit_coreset(problem, X, y, 40, weights, random_state=0)
    assert fit.certificate.lower <= best * (1.0 + 1e-9)
    assert best <= fit.certificate.upper * (1.0 + 1e-9)
    assert fit.certificate.relative_gap <= 1e-3
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, X, y, weights)
    assert fit.certificate.upper == pytest.approx(risk, rel=1e-9)
    assert len(fit.coreset) <= 40
    assert set(fit.coreset.y) == set(range(K))
    assert "the model was trained on them" in fit.coreset.details["message"]


@pytest.mark.parametrize("problem", FLIPS.values(), ids=FLIPS)
def test_changes_of_label_start_from_a_sample_where_rows_are_many(half, problem):
    X, y, _ = wide()
    best = optimal_risk(problem, X, y)
    fit = fit_coreset(problem, X, y, 40, random_state=0)
    assert best <= fit.certificate.upper * (1.0 + 1e-9)
    assert fit.certificate.upper <= best * 1.05
    assert fit.certificate.lower <= best * (1.0 + 1e-9)
    assert fit.history[0].rows == N // 2


def test_few_rows_give_one_model_from_every_source():
    X, y, _ = wide(1500)
    sampler = DualCoreset(size=40, target_gap=1e-3, random_state=3)
    reference = sampler.fit(FLIPS["l2"], X, y)
    parts = PartsSource(lambda: ((X[k : k + 400], y[k : k + 400]) for k in range(0, 1500, 400)))
    again = sampler.fit(FLIPS["l2"], parts)
    np.testing.assert_array_equal(again.solution.coef, reference.solution.coef)
    np.testing.assert_array_equal(again.coreset.indices, reference.coreset.indices)
    assert again.certificate.lower == reference.certificate.lower


def test_few_rows_start_from_an_anchor():
    X, y, _ = wide(1500)
    best = solve(PROBLEMS["l2"], X, y, tol=1e-6)
    start = Anchor(best.coef, best.intercept, best.dual_variable)
    fit = DualCoreset(size=40, anchor=start, target_gap=1e-3, random_state=0).fit(PROBLEMS["l2"], X, y)
    assert fit.certificate.upper <= best.value * (1.0 + 1e-9)


def test_what_has_no_such_steps_goes_on_as_it_did():
    assert not can_step(Problem("softmax", n_classes=K, radius=0.1, label_cost=1.0), M)
    assert not can_step(Problem("softmax", n_classes=K), M)
    assert not can_step(Problem("logistic", radius=0.1), M)


def test_a_step_needs_a_read():
    X, y, _ = wide(300)
    steps = ClassSteps(PROBLEMS["l2"], open_source(X, y))
    steps.start(X, y, np.full(300, 1.0 / 300))
    with pytest.raises(RuntimeError, match="needs a read"):
        steps.next(X, y, np.full(300, 1.0 / 300))


def test_few_rows_far_from_the_origin_have_a_true_risk():
    """Scores are sums of numbers a billion times as large: a read has fewer digits than the centred rows."""
    X, y, _ = wide(1500)
    fit = fit_coreset(PROBLEMS["l2"], X + 1e9, y, 40, random_state=0)
    exact = fit.solution.coef.astype(np.longdouble) @ (X + 1e9).T.astype(np.longdouble)
    scores = exact.T + fit.solution.intercept
    top = scores.max(axis=1)
    losses = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - scores[np.arange(1500), y.astype(int)]
    risk = float(losses.mean()) + PROBLEMS["l2"].radius * PROBLEMS["l2"].kappa(fit.solution.coef)
    assert abs(fit.certificate.upper - risk) <= fit.certificate.rounding + 1e-9 * risk
    assert fit.history[-1].upper == fit.certificate.upper
