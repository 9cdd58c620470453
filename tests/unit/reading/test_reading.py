"""One read of a squared hinge that may flip, or of order 2 without a radius: exact, or a bound that says so."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dualcore import Anchor, Coreset, DriftWarning, DualCoreset, Problem, fit_coreset, solve
from dualcore.coresets.stream import CoresetStream
from dualcore.data.sources import ArraySource
from dualcore.problem import fliptail
from dualcore.reading.models import read_models
from dualcore.reading.reading import read
from dualcore.reading.summary import Pass
from dualcore.solvers.assess import assess
from pairs import every_value, first
from reference.referee import referee_of


def sample(seed: int, n: int = 400, m: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.3, 3.0)
    y = np.where(X[:, 0] + rng.uniform(0.1, 1.0) * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return X, y, rng.integers(0, 4, size=n).astype(float)


def flipping(seed: int) -> Problem:
    rng = np.random.default_rng(1000 + seed)
    norm = ("l1", "l2", "linf")[seed % 3]
    radius, cost = float(rng.uniform(0.02, 0.8)), float(rng.uniform(0.2, 2.0))
    return Problem("squared_hinge", radius=radius, label_cost=cost, norm=norm, ridge=0.01 * (seed % 2))


def anchor_of(problem: Problem, *data: np.ndarray, size: int = 30, seed: int = 0) -> tuple[Coreset, float]:
    """Return the coreset of a stream, and the exact risk of its anchor."""
    stream = CoresetStream(problem, size=size, random_state=seed)
    stream.update(*data)
    coreset = stream.coreset()
    return coreset, problem.risk(coreset.anchor.coef, coreset.anchor.intercept, *data)


@every_value(seed=first(4, range(12)), stretch=[0.3, 1.0, 5.0])
def test_the_risk_with_flips_is_exact_whatever_the_multiplier_of_the_anchor(seed, stretch):
    problem, (X, y, weights) = flipping(seed), sample(seed)
    coef, intercept = np.array([0.8, -0.2, 0.1]) * (1 + seed % 4), 0.1
    multiplier = max(1.01 * problem.kappa(coef), stretch * problem.multiplier(coef, intercept, X, y, weights))
    found = read(ArraySource(X, y, weights), Pass(problem, Anchor(coef, intercept, multiplier), sized=True))
    referee = referee_of(problem, X, y, weights)
    assert found.risk == pytest.approx(float(referee.risk(referee.point(coef, intercept))), rel=1e-9)
    assert found.is_exact


@pytest.mark.parametrize("seed", first(2, range(5)))
def test_beyond_the_rows_that_are_kept_it_is_a_close_upper_bound_and_says_so(seed, monkeypatch):
    monkeypatch.setattr(fliptail, "_MOST_TAIL", 50)
    problem, (X, y, weights) = flipping(seed), sample(seed, n=3000)
    coef = np.array([1.2, -0.2, 0.1])
    anchor = Anchor(coef, 0.1, 3.0 + problem.kappa(coef))
    found = read(ArraySource(X, y, weights), Pass(problem, anchor, sized=True))
    risk = problem.risk(coef, 0.1, X, y, weights)
    assert not found.is_exact
    assert risk * (1.0 - 1e-12) <= found.risk <= risk * 1.001


@pytest.mark.parametrize("seed", first(4, range(20)))
def test_a_stream_tells_the_risk_of_its_anchor_with_flips(seed):
    coreset, risk = anchor_of(flipping(seed), *sample(seed, n=4200 + 300 * seed)[:2], seed=seed)
    assert coreset.details["anchor_risk"] == pytest.approx(risk, rel=1e-9)
    assert coreset.details["anchor_risk_is_exact"]
    assert coreset.details["anchor_lower"] <= coreset.details["anchor_risk"]


def test_a_stream_whose_later_rows_outweigh_all_counts_still_bounds(monkeypatch):
    monkeypatch.setattr(fliptail, "_MOST_TAIL", 50)
    problem, (X, y, _) = Problem("logistic", radius=0.3, label_cost=0.5), sample(0, n=6000)
    coreset, risk = anchor_of(problem, X, y, np.where(np.arange(6000) < 4096, 1e-30, 1.0))
    assert coreset.details["anchor_risk"] >= risk * (1.0 - 1e-12)
    assert not coreset.details["anchor_risk_is_exact"]


def test_every_round_of_a_fit_tells_a_true_risk_with_flips():
    problem, (X, y, _) = Problem("squared_hinge", radius=0.3, label_cost=0.7), sample(5, n=500)
    fit = fit_coreset(problem, X, y, coreset=25, random_state=0)
    last = fit.history[-1]
    assert fit.certificate.upper == pytest.approx(problem.risk(fit.solution.coef, fit.solution.intercept, X, y))
    # The last round looks once more at the best model of all before.
    assert last.upper == pytest.approx(min(each.risk for each in fit.history), rel=1e-9)


@pytest.mark.parametrize("label_cost", [1.0, np.inf])
def test_without_a_radius_nothing_moves_and_the_risk_is_the_mean_loss(label_cost):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.sign(X[:, 0])
    X[:, 0] += 0.5 * y  # separable
    problem = Problem("squared_hinge", radius=0.0, label_cost=label_cost)
    fit = fit_coreset(problem, X, y, coreset=40, random_state=0)
    loss = float(np.mean(np.maximum(1.0 - y * (X @ fit.solution.coef + fit.solution.intercept), 0.0) ** 2))
    assert fit.certificate.upper == pytest.approx(loss, rel=1e-9, abs=1e-15)
    assert assess(problem, fit.solution, X, y).upper == pytest.approx(loss, rel=1e-9, abs=1e-15)
    coreset, risk = anchor_of(problem, X, y, size=40)
    assert coreset.details["anchor_risk"] == pytest.approx(risk, abs=1e-15)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "smooth_hinge"])
def test_without_a_radius_a_label_cost_changes_nothing(loss):
    """A row that no coreset held may gain more than any that was seen; it must not cost the lower bound."""
    X, y, _ = sample(4, n=3000)
    never, could = (
        DualCoreset(size=100, rounds=2, random_state=0).fit(Problem(loss, label_cost=cost, ridge=0.01), X, y)
        for cost in (np.inf, 1.0)
    )
    assert could.certificate.upper == pytest.approx(never.certificate.upper, rel=1e-12)
    assert could.certificate.lower == pytest.approx(never.certificate.lower, rel=1e-12)
    assert could.certificate.relative_gap < 0.3


# Streams in parts


def in_parts(problem: Problem, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, parts: int) -> CoresetStream:
    """A stream for every part, each with an anchor of its own, merged one after the other."""
    whole = CoresetStream(problem, size=10, random_state=0)
    for number, rows in enumerate(np.array_split(np.arange(y.size), parts)):
        other = CoresetStream(problem, size=10, random_state=number, first_row=10**6 * (number + 1))
        other.update(X[rows], y[rows], None if weights is None else weights[rows])
        whole.merge(other)
    return whole


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_groups_of_one_class_are_reduced_and_none_is_lost(loss):
    X, y, _ = sample(1, n=20_000)
    order = np.argsort(y, kind="stable")
    stream = in_parts(Problem(loss, radius=0.1), X[order], y[order], None, 4)
    with pytest.warns(DriftWarning):
        coreset = stream.coreset()
    assert coreset.weights[coreset.y > 0.0].sum() == pytest.approx(np.mean(y > 0.0), abs=0.05)
    assert coreset.n_rows == 20_000


def test_a_group_of_no_weight_stands_for_nothing():
    X, y, _ = sample(2, n=15_000)
    weights = np.where(np.arange(15_000) < 5000, 0.0, 1.0)
    for parts in (3, 9):
        coreset = in_parts(Problem("logistic", radius=0.1), X, y, weights, parts).coreset()
        assert (coreset.indices >= 2 * 10**6).all()
        assert coreset.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("size", [10, 6000])
def test_rows_of_no_weight_at_all_are_refused(size):
    X, y, _ = sample(2, n=5000)
    stream = CoresetStream(Problem("logistic", radius=0.1), size=size)
    stream.update(X, y, np.zeros(y.size))
    with pytest.raises(ValueError, match="All rows so far have weight zero"):
        stream.coreset()


@pytest.mark.parametrize("weight", [1e-240, 1e240])
def test_a_stream_takes_weights_of_many_magnitudes(weight):
    X, y, weights = sample(2, n=6000)
    coreset, risk = anchor_of(Problem("logistic", radius=0.1, label_cost=2.0), X, y, weights * weight, size=60)
    assert coreset.details["anchor_risk"] == pytest.approx(risk, rel=1e-9)
    assert coreset.weights.sum() == pytest.approx(1.0)


@every_value(loss=["squared", "huber", "absolute"], by_path=[False, True])
def test_a_side_of_next_to_no_mass_is_not_lost_in_a_difference(loss, by_path):
    """Almost all the mass pulls one way: a lower bound scales the rest up, and with it whatever rounding left there."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 1))
    y = -3.0 * X[:, 0] + rng.normal(size=80)
    weights = 10.0 ** rng.uniform(-30.0, -8.0, size=80)
    weights[7] = 1.0
    problem = Problem(loss, radius=0.4, label_cost=1.0)
    best = solve(problem, X, y, weights).value
    for shift in np.linspace(-10.0, 10.0, 41):
        model = Anchor(np.array([0.5]), float(y[7] - 0.5 * X[7, 0] + shift), np.inf)
        if by_path:
            multiplier = problem.kappa(model.coef)
            given = SimpleNamespace(coef=model.coef, intercept=model.intercept, dual_variable=multiplier)
            scores = read_models(ArraySource(X, y, weights), problem, [given], [0.3], 0.4)
            lower = scores.lower_bound(problem, 0, scores.risk(problem, 0)[0])
        else:
            lower = assess(problem, model, X, y, weights).lower
        assert lower <= best * (1.0 + 1e-9)
