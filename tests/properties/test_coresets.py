"""Coresets, on data of Hypothesis' choosing: cells, masses, chunks, bounds; and no bias, measured over many seeds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from dualcore import (
    Anchor,
    DualCoreset,
    Problem,
    Solution,
    UniformCoreset,
    grid_coreset,
    solve,
)
from dualcore.coresets.samplers.grid import build_grid, draw_grid
from dualcore.data.keys import seed_from
from dualcore.data.sources import ArraySource
from pairs import every_value

FIRST_ORDER = ("logistic", "hinge", "smooth_hinge", "huber", "pinball", "absolute")
ALL_LOSSES = (*FIRST_ORDER, "squared", "squared_hinge", "epsilon_insensitive")
# Every example solves or reads: a few dozen are enough.
some = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
few = settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True, repr=False)
class Sample:
    """A problem and data for it."""

    problem: Problem
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    recipe: str

    def __repr__(self) -> str:
        return f"{self.problem!r} on {self.recipe}"

    @property
    def masses(self) -> np.ndarray:
        return np.full(len(self.y), 1.0 / len(self.y)) if self.weights is None else self.weights / self.weights.sum()

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        return self.X, self.y, self.weights

    def source(self, chunk_rows: int | None = None) -> ArraySource:
        return ArraySource(self.X, self.y, None if self.weights is None else self.masses, chunk_rows=chunk_rows)


@st.composite
def samples(draw: st.DrawFn, losses: tuple[str, ...] = ALL_LOSSES, min_rows: int = 30, max_rows: int = 160) -> Sample:
    """Data from a drawn seed: plain, on a lattice (so that ties are common), or with many repeated rows."""
    loss, norm = draw(st.sampled_from(losses)), draw(st.sampled_from(("l2", "l1", "linf")))
    # Flips of order 2 are a case of their own: see the contract of samplers.
    label_cost = np.inf if loss == "squared_hinge" else draw(st.sampled_from((1.0, np.inf, 0.3, 4.0)))
    problem = Problem(
        loss,
        radius=draw(st.sampled_from((0.1, 0.02, 0.5))),
        norm=norm,
        label_cost=label_cost,
        ridge=draw(st.sampled_from((0.0, 0.0, 0.05))),
        fit_intercept=draw(st.sampled_from((True, True, False))),
    )
    n, m = draw(st.integers(min_rows, max_rows)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * draw(st.sampled_from((1.0, 4.0)))
    kind = draw(st.sampled_from(("plain", "lattice", "repeated")))
    if kind == "lattice":
        X = np.round(2.0 * X) / 2.0
    elif kind == "repeated":
        X = X[rng.integers(0, max(n // 8, 2), size=n)]
    score = X @ rng.normal(size=m) + rng.normal() + 0.7 * rng.normal(size=n)
    if problem.is_classification:
        y = np.where(score > 0.0, 1.0, -1.0)
        y[:2] = 1.0, -1.0
    else:
        y = np.round(score, 1) if kind == "lattice" else score
    weights = rng.uniform(0.1, 3.0, size=n) if draw(st.booleans()) else None
    return Sample(problem, X, y, weights, f"{n} x {m} {kind} rows of seed {seed}, {'un' * (weights is None)}weighted")


def best(sample: Sample) -> Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(sample.problem, *sample.data)


# Cells

values = st.floats(0.0, 1e6, allow_subnormal=False).map(lambda v: 0.0 if v < 1e-9 else v)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    pairs = draw(st.lists(st.tuples(values, values, st.floats(0.01, 10.0)), min_size=1, max_size=40))
    array = np.array(pairs)
    weights = array[:, 2] / array[:, 2].sum() if draw(st.booleans()) else None
    return array[:, :2].min(axis=1), array[:, :2].max(axis=1), weights


@given(case=bounds())
def test_every_row_is_in_exactly_one_cell_and_obeys_its_inequality(case):
    lower, upper, masses = case
    grid = build_grid(lower, upper, masses)
    assert grid.counts.sum() == lower.size
    assert len(set(zip(grid.lower_layer, grid.upper_layer, strict=True))) == grid.counts.size
    i, j = grid.lower_layer[grid.cell], grid.upper_layer[grid.cell]
    A, B = grid.lower_mean, grid.upper_mean
    slack = 1.0 + 1e-14
    # mu_i 2^{i-1} A <= a <= h <= b <= 2^j B, with mu_0 = 0
    assert (np.where(i > 0, 2.0 ** (i - 1.0), 0.0) * A <= lower * slack).all()
    assert (upper <= 2.0**j * B * slack).all()
    # and the layers are the ones of least number
    assert (lower <= 2.0**i * A * slack).all()
    assert (np.where(j > 0, 2.0 ** (j - 1.0), 0.0) * B <= upper * slack).all()


@given(case=bounds(), share=st.floats(0.01, 1.0), seed=st.integers(0, 1000))
def test_a_grid_draw_has_masses_and_loses_none(case, share, seed):
    lower, upper, masses = case
    size = max(1, round(share * lower.size))
    draw = draw_grid(build_grid(lower, upper, masses), size, seed)
    assert len(draw.indices) == len(set(draw.indices)) == size
    assert (draw.weights >= 0.0).all()
    assert abs(draw.weights.sum() - 1.0) <= 1e-12
    if not draw.merged:
        cell = draw.grid.cell[draw.indices]
        np.testing.assert_allclose(np.bincount(cell, draw.weights, draw.grid.masses.size), draw.grid.masses, rtol=1e-9)


# Chunks


@few
@given(sample=samples(losses=("logistic", "hinge"), min_rows=200, max_rows=400), chunk_rows=st.sampled_from((7, 50)))
def test_chunks_and_threads_change_nothing_over_rounds(sample, chunk_rows):
    fits = []
    for rows, threads in ((10**6, 1), (chunk_rows, 1), (chunk_rows, 2)):
        with threadpool_limits(threads, user_api="blas"):
            fits.append(DualCoreset(size=60, rounds=3, random_state=1).fit(sample.problem, sample.source(rows)))
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].coreset.indices, other.coreset.indices)
        np.testing.assert_allclose(fits[0].coreset.weights, other.coreset.weights, atol=1e-12)
        np.testing.assert_allclose(fits[0].solution.coef, other.solution.coef, atol=1e-12)
        assert fits[0].certificate.lower == pytest.approx(other.certificate.lower, rel=1e-12)


# The coreset reproduces the model


@some
@given(sample=samples(losses=("logistic", "hinge", "huber"), min_rows=300, max_rows=400), seed=st.integers(0, 99))
def test_a_coreset_of_ample_size_gives_back_the_model(sample, seed):
    problem = sample.problem
    fit = DualCoreset(size=150, random_state=seed).fit(problem, *sample.data)
    alone = solve(problem, fit.coreset.X, fit.coreset.y, fit.coreset.weights, tol=1e-8)
    risk = problem.risk(alone.coef, alone.intercept, *sample.data)
    # Repeated rows may all lie on a kink, more of them than are kept: then the check says how far the coreset is off.
    assert risk <= fit.certificate.upper * (1.0 + 1e-3) + 1e-9
    assert fit.coreset.excess == pytest.approx(risk / fit.certificate.upper - 1.0, abs=1e-7)


# History and certificate


@some
@given(sample=samples(), size=st.integers(8, 60), rounds=st.integers(1, 4), seed=st.integers(0, 50))
def test_the_full_risk_never_rises_and_the_certificate_brackets_the_optimum(sample, size, rounds, seed):
    problem = sample.problem
    # At fewer rows the pilot of a squared loss may fit exactly: see the contract of samplers.
    assume(problem.geometry.order == 1 or size >= 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = DualCoreset(size=size, rounds=rounds, random_state=seed).fit(problem, *sample.data)
    uppers, lowers = [r.upper for r in fit.history], [r.lower for r in fit.history]
    assert len(uppers) >= 1
    assert all(a >= b for a, b in pairwise(uppers))
    assert all(a <= b for a, b in pairwise(lowers))
    value = problem.risk(fit.solution.coef, fit.solution.intercept, *sample.data)
    assert fit.certificate.upper == pytest.approx(value, rel=1e-9, abs=1e-12)
    optimum = best(sample).value
    assert fit.certificate.lower <= optimum * (1.0 + 1e-7) + 1e-9


# No bias

SEEDS = 1000


def population(label_cost: float) -> tuple[Problem, np.ndarray, np.ndarray, Anchor, list[np.ndarray]]:
    """A problem, data, an anchor, and h of every row at the anchor and at two other models."""
    rng = np.random.default_rng(12)
    X = rng.standard_t(3, size=(80, 2))
    y = np.where(X[:, 0] + rng.normal(size=80) > 0.0, 1.0, -1.0)
    problem = Problem("logistic", radius=0.1, label_cost=label_cost)
    anchor = Anchor(np.array([1.5, 0.3]), 0.1, 1.6)
    models = [
        (anchor.coef, anchor.intercept, anchor.multiplier),
        (np.array([0.2, -1.0]), 1.0, 2.0),
        (np.zeros(2), 0.0, 0.1),
    ]
    return problem, X, y, anchor, [problem.h(*model, X, y) for model in models]


def assert_unbiased(estimates: np.ndarray, truth: np.ndarray) -> None:
    """Six standard errors: a true mean fails with probability 2e-9 a figure, 1e-8 in a test of a few."""
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - truth) <= 6.0 * error + 1e-12).all()


def test_the_check_of_bias_can_fail():
    rng = np.random.default_rng(0)
    estimates = 1.0 + 0.1 * rng.normal(size=(SEEDS, 1))
    assert_unbiased(estimates, np.ones(1))
    with pytest.raises(AssertionError):
        assert_unbiased(estimates, np.array([1.03]))


@every_value(label_cost=[1.0, np.inf], size=[3, 12, 40])
def test_algorithm_one_is_unbiased_at_every_model(label_cost, size):
    problem, X, y, anchor, rows = population(label_cost)
    h = problem.h(anchor.coef, anchor.intercept, anchor.multiplier, X, y)
    if np.isfinite(label_cost):
        assert (h > problem.loss.value(y * (X @ anchor.coef + anchor.intercept)) + 1e-9).mean() > 0.05
    draws = [grid_coreset(h, h, size=size, random_state=seed) for seed in range(SEEDS)]
    estimates = np.array([[d.weights @ row[d.indices] for row in rows] for d in draws])
    assert_unbiased(estimates, np.array([row.mean() for row in rows]))


def test_the_uniform_draw_is_unbiased():
    problem, X, y, _, rows = population(1.0)
    source = ArraySource(X, y)
    coresets = [UniformCoreset(size=20).draw(problem, source, 20, seed_from(seed)) for seed in range(SEEDS // 2)]
    assert_unbiased(
        np.array([[c.weights @ row[c.indices] for row in rows] for c in coresets]),
        np.array([row.mean() for row in rows]),
    )


def test_weights_are_repetitions_in_expectation():
    """A weighted draw estimates a ratio, so it is unbiased only as draws grow: 2 % of the mean at half of the rows."""
    problem, X, y, anchor, rows = population(1.0)
    times = np.random.default_rng(1).integers(1, 4, size=80)
    h = problem.h(anchor.coef, anchor.intercept, anchor.multiplier, X, y)
    repeated = np.repeat(np.arange(80), times)
    weighted, plain = [], []
    for seed in range(SEEDS):
        d = grid_coreset(h, h, size=40, sample_weight=times, random_state=seed)
        weighted.append([d.weights @ row[d.indices] for row in rows])
        d = grid_coreset(h[repeated], h[repeated], size=40, random_state=seed)
        plain.append([d.weights @ row[repeated][d.indices] for row in rows])
    truth = np.array([times @ row / times.sum() for row in rows])
    assert_unbiased(np.array(plain), truth)
    np.testing.assert_allclose(np.mean(weighted, axis=0), truth, rtol=0.02)
