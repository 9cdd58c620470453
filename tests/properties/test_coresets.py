"""Coresets on random data: cells, masses, threads, bounds; and no bias, measured over many seeds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dualcore import Anchor, DualCoreset, Problem, UniformCoreset, grid_coreset, solve
from dualcore.coresets.samplers.grid import build_grid, draw_grid
from dualcore.data.keys import seed_from
from dualcore.data.sources import ArraySource
from pairs import every_value, first

LOSSES = ("logistic", "hinge", "smooth_hinge", "huber", "pinball", "absolute", "squared", "squared_hinge")


def draw(seed: int, losses: tuple[str, ...], most_rows: int) -> tuple[Problem, tuple[np.ndarray, ...]]:
    """A problem and data: plain, on a lattice (so that ties are common), or with many repeated rows."""
    rng = np.random.default_rng(seed)
    loss = str(rng.choice(losses))
    # Flips of order 2 are a case of their own: see the contract of samplers.
    label_cost = np.inf if loss == "squared_hinge" else float(rng.choice([1.0, np.inf, 0.3, 4.0]))
    settings = {"radius": float(rng.choice([0.1, 0.02, 0.5])), "norm": str(rng.choice(["l2", "l1", "linf"]))}
    settings |= {"ridge": float(rng.choice([0.0, 0.0, 0.05])), "fit_intercept": bool(rng.random() < 0.7)}
    problem = Problem(loss, label_cost=label_cost, **settings)
    n, m = int(rng.integers(most_rows // 4, most_rows)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, m)) * rng.choice([1.0, 4.0])
    kind = rng.choice(["plain", "lattice", "repeated"])
    if kind == "lattice":
        X = np.round(2.0 * X) / 2.0
    elif kind == "repeated":
        X = X[rng.integers(0, max(n // 8, 2), size=n)]
    y = np.round(X @ rng.normal(size=m) + rng.normal() + 0.7 * rng.normal(size=n), 1)
    if problem.is_classification:
        y = np.where(y > 0.0, 1.0, -1.0)
        y[:2] = 1.0, -1.0
    return problem, (X, y, rng.uniform(0.1, 3.0, size=n) if rng.random() < 0.5 else np.ones(n))


values = st.floats(0.0, 1e6, allow_subnormal=False).map(lambda v: 0.0 if v < 1e-9 else v)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    pairs = draw(st.lists(st.tuples(values, values, st.floats(0.01, 10.0)), min_size=1, max_size=40))
    array = np.array(pairs)
    weights = array[:, 2] / array[:, 2].sum() if draw(st.booleans()) else None
    return array[:, :2].min(axis=1), array[:, :2].max(axis=1), weights


@given(case=bounds(), share=st.floats(0.01, 1.0), seed=st.integers(0, 1000))
def test_every_row_is_in_one_cell_and_obeys_its_inequality_and_a_draw_loses_no_mass(case, share, seed):
    lower, upper, masses = case
    grid = build_grid(lower, upper, masses)
    assert grid.counts.sum() == lower.size
    assert len(set(zip(grid.lower_layer, grid.upper_layer, strict=True))) == grid.counts.size
    i, j = grid.lower_layer[grid.cell], grid.upper_layer[grid.cell]
    A, B = grid.lower_mean, grid.upper_mean
    slack = 1.0 + 1e-14
    # mu_i 2^{i-1} A <= a <= h <= b <= 2^j B, with mu_0 = 0, and the layers are the ones of least number
    for value, mean, layer in ((lower, A, i), (upper, B, j)):
        assert (value <= 2.0**layer * mean * slack).all()
        assert (np.where(layer > 0, 2.0 ** (layer - 1.0), 0.0) * mean <= value * slack).all()
    size = max(1, round(share * lower.size))
    draw = draw_grid(grid, size, seed)
    assert len(draw.indices) == len(set(draw.indices)) == size
    assert (draw.weights >= 0.0).all()
    assert abs(draw.weights.sum() - 1.0) <= 1e-12
    if not draw.merged:
        held = np.bincount(grid.cell[draw.indices], draw.weights, grid.masses.size)
        np.testing.assert_allclose(held, grid.masses, rtol=1e-9)


def test_threads_change_nothing_over_rounds():
    X = np.random.default_rng(0).normal(size=(400, 3))
    problem, fits = Problem("logistic", radius=0.1, label_cost=1.0), []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            source = ArraySource(X, np.where(X[:, 0] > 0.3 * X[:, 1], 1.0, -1.0), chunk_rows=50)
            fits.append(DualCoreset(size=60, rounds=3, random_state=1).fit(problem, source))
    one, other = fits
    np.testing.assert_array_equal(one.coreset.indices, other.coreset.indices)
    np.testing.assert_allclose(one.coreset.weights, other.coreset.weights, atol=1e-12)
    assert one.certificate.lower == pytest.approx(other.certificate.lower, rel=1e-12)


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_a_coreset_of_ample_size_gives_back_the_model(seed):
    problem, data = draw(seed, ("logistic", "hinge", "huber"), 1200)
    fit = DualCoreset(size=150, random_state=seed).fit(problem, *data)
    alone = solve(problem, fit.coreset.X, fit.coreset.y, fit.coreset.weights, tol=1e-8)
    risk = problem.risk(alone.coef, alone.intercept, *data)
    # Repeated rows may all lie on a kink, more of them than are kept: then the check says how far the coreset is off.
    assert risk <= fit.certificate.upper * (1.0 + 1e-3) + 1e-9
    assert fit.coreset.excess == pytest.approx(risk / fit.certificate.upper - 1.0, abs=1e-7)


@pytest.mark.parametrize("seed", first(15, range(80)))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_full_risk_never_rises_and_the_certificate_brackets_the_optimum(seed):
    problem, data = draw(100 + seed, LOSSES, 160)
    # At fewer rows the pilot of a squared loss may fit exactly: see the contract of samplers.
    size = 20 + seed % 3 * 20 if problem.geometry.order == 2 else 8 + seed
    fit = DualCoreset(size=size, rounds=1 + seed % 4, random_state=seed).fit(problem, *data)
    assert fit.history
    assert all(a.upper >= b.upper and a.lower <= b.lower for a, b in pairwise(fit.history))
    value = problem.risk(fit.solution.coef, fit.solution.intercept, *data)
    assert fit.certificate.upper == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert fit.certificate.lower <= solve(problem, *data).value * (1.0 + 1e-7) + 1e-9


SEEDS = 600


def population(label_cost: float) -> tuple[Problem, np.ndarray, np.ndarray, list[np.ndarray]]:
    """A problem, data, and h of every row at an anchor and at two other models."""
    rng = np.random.default_rng(12)
    X = rng.standard_t(3, size=(80, 2))
    y = np.where(X[:, 0] + rng.normal(size=80) > 0.0, 1.0, -1.0)
    problem = Problem("logistic", radius=0.1, label_cost=label_cost)
    anchor = Anchor(np.array([1.5, 0.3]), 0.1, 1.6)
    models = [anchor, Anchor(np.array([0.2, -1.0]), 1.0, 2.0), Anchor(np.zeros(2), 0.0, 0.1)]
    return problem, X, y, [problem.h(model.coef, model.intercept, model.multiplier, X, y) for model in models]


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
    *_, rows = population(label_cost)
    draws = [grid_coreset(rows[0], rows[0], size=size, random_state=seed) for seed in range(SEEDS)]
    estimates = np.array([[d.weights @ row[d.indices] for row in rows] for d in draws])
    assert_unbiased(estimates, np.array([row.mean() for row in rows]))


def test_the_uniform_draw_is_unbiased():
    problem, X, y, rows = population(1.0)
    source = ArraySource(X, y)
    coresets = [UniformCoreset(size=20).draw(problem, source, 20, seed_from(seed)) for seed in range(SEEDS)]
    assert_unbiased(
        np.array([[c.weights @ row[c.indices] for row in rows] for c in coresets]),
        np.array([row.mean() for row in rows]),
    )


def test_weights_are_repetitions_in_expectation():
    """A weighted draw estimates a ratio, so it is unbiased only as draws grow: 2 % of the mean at half of the rows."""
    *_, rows = population(1.0)
    times = np.random.default_rng(1).integers(1, 4, size=80)
    h = rows[0]
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
