"""`GridCoreset`: Algorithm 1 as written, what a guarantee asks for, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dualcore import Anchor, GridCoreset, Problem, grid_coreset, solve
from dualcore.coresets.samplers.grid import build_grid
from dualcore.coresets.samplers.gridcoreset import Region, sample_sizes

FLIPS = Problem("logistic", radius=0.1, label_cost=2.0)
LOGISTIC = Problem("logistic", radius=0.1, label_cost=1.0)
HINGE = Problem("hinge", radius=0.1, label_cost=1.0)
HUBER = Problem("huber", radius=0.1)


def sample(n: int = 1200, m: int = 3, seed: int = 0, *, labels: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    score = 2.0 * X[:, 0] - X[:, 1] + 0.3
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0) if labels else score + rng.normal(size=n)


@pytest.mark.parametrize("problem", [LOGISTIC, HINGE, HUBER], ids=lambda problem: problem.loss.name)
def test_algorithm_one_is_the_grid_of_h_at_the_anchor(problem):
    X, y = sample(labels=problem.is_classification)
    anchor = solve(problem, X[:200], y[:200])
    coreset = GridCoreset(size=60, anchor=anchor, random_state=4).build(problem, X, y)
    h = problem.h(anchor.coef, anchor.intercept, anchor.dual_variable, X, y)
    if problem.is_classification:
        stays = problem.loss.value(y * (X @ anchor.coef + anchor.intercept))
        assert (h > stays + 1e-9).mean() > 0.05  # flips are active: h is not the plain loss
    expected = grid_coreset(h, h, size=60, slack=float(h.mean()), random_state=0)
    assert coreset.details["cells"] == expected.grid.counts.size
    cell = expected.grid.cell[coreset.indices]
    np.testing.assert_array_equal(np.bincount(cell, minlength=expected.draws.size), expected.draws)
    np.testing.assert_allclose(coreset.weights, expected.grid.counts[cell] / (1200 * expected.draws[cell]), rtol=1e-12)


@pytest.mark.parametrize(
    ("anchor", "error", "message"),
    [
        (Anchor(np.ones(2), 0.0, 9.0), ValueError, "2 coefficients but X has 3"),
        (Anchor(np.ones(3), 0.0, 0.5), ValueError, r"multiplier 0.5 is below kappa = 1.73\d*: h is infinite"),
        ((np.ones(3), 0.0), TypeError, "must be an Anchor or a Solution, got tuple"),
        (Anchor(np.full(3, np.nan), 0.0, 9.0), ValueError, "finite"),
    ],
)
def test_what_is_no_anchor_is_refused(anchor, error, message):
    X, y = sample()
    with pytest.raises(error, match=message):
        GridCoreset(size=80, anchor=anchor).build(LOGISTIC, X, y)


# What a guarantee asks for


def narrow(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def test_each_bound_is_the_formula_of_the_theory():
    h = np.random.default_rng(1).lognormal(size=500)
    lower, upper = 0.8 * h, 1.1 * h
    grid = build_grid(lower, upper)
    epsilon, n, least, moved, flipped = 0.5, 500, float(lower.mean()) - 0.1, 1.5 * 0.2, 0.7 * 0.3
    drift, eps2, eps3 = moved + flipped, epsilon * least / (6 * flipped), epsilon * least / (6 * moved)
    net = 3 * math.log(1 + 2 / eps3) + math.log(math.ceil(1 / eps2))
    layers = max(grid.lower_layer.max(), grid.upper_layer.max()) + 1
    cells = ranges = spread = 0.0
    terms = []
    A, B, t = lower.mean(), upper.mean(), epsilon * least / 3
    log_all = math.log(2 * n) + net
    for cell, (i, j) in enumerate(zip(grid.lower_layer.tolist(), grid.upper_layer.tolist(), strict=True)):
        rows = grid.cell == cell
        width = 2.0**j * B - (2.0 ** (i - 1) * A if i else 0.0) + 2 * drift
        delta = epsilon * least * (2.0 ** (i - 1) + 2.0 ** (j - 1)) / 9
        cells += math.ceil(width**2 * (log_all + 2 * math.log(layers)) / (2 * delta**2))
        actual = upper[rows].max() - lower[rows].min() + 2 * drift
        deviation = (0.5 * (lower + upper)[rows]).std() + 0.5 * (upper - lower)[rows].max() + drift
        ranges, spread = ranges + rows.mean() * actual, spread + rows.mean() * deviation
        terms.append(actual / deviation)
    expected = {
        "cells": cells,
        "ranges": math.ceil(ranges**2 * log_all / (2 * t**2)),
        "bernstein": math.ceil(2 * log_all * (spread**2 / t**2 + max(terms) * spread / (3 * t))),
    }
    found = sample_sizes(grid, epsilon, Region(moved, flipped, 3, least))
    assert found.asked == pytest.approx(expected, rel=1e-9, abs=1)
    assert found.vacuous
    np.testing.assert_array_equal(found.draws, grid.counts)


def test_cells_are_taken_whole_at_no_more_than_their_rows():
    h = np.concatenate([np.full(5000, 1.0), [40.0, 41.0]])
    grid = build_grid(h, h)
    found = sample_sizes(grid, 0.9, Region(0.0, 0.0, 3, float(h.mean())))
    assert found.asked["cells"] < 5002
    assert not found.vacuous
    assert found.draws[grid.cell[-1]] <= 2
    # Where the objective may vanish there is no relative guarantee.
    found = sample_sizes(grid, 0.1, Region(1.0, 1.0, 2, -0.5))
    assert found.vacuous
    np.testing.assert_array_equal(found.draws, grid.counts)


def test_the_smallest_bound_is_chosen_and_its_draws_add_up():
    h = np.random.default_rng(1).lognormal(size=20000)
    grid = build_grid(h, h)
    found = sample_sizes(grid, 0.3, Region(0.0, 0.0, 3, float(h.mean())))
    assert found.asked[found.chosen] == min(found.asked.values())
    assert not found.vacuous
    assert found.draws.sum() == max(found.asked[found.chosen], grid.counts.size)
    assert (found.draws <= grid.counts).all()
    assert (found.draws[grid.counts > 0] >= 1).all()
    assert found.report(20000).startswith(
        f"The '{found.chosen}' bound asks for {found.asked[found.chosen]} of 20000 rows"
    )


# Through the sampler


def test_a_vacuous_guarantee_is_said_to_be_vacuous_and_takes_every_row():
    X, y = narrow(300)
    coreset = GridCoreset(epsilon=0.1, parameter_radius=0.5, random_state=0).build(FLIPS, X, y)
    sizes = coreset.details["sizes"]
    assert sizes["vacuous"]
    assert min(sizes["asked"].values()) >= 300
    assert coreset.details["message"].startswith("The guarantee is vacuous here: of 300 rows the bounds ask for")
    assert all(name in coreset.details["message"] for name in sizes["asked"])
    np.testing.assert_array_equal(coreset.indices, np.arange(300))
    np.testing.assert_allclose(coreset.weights, 1.0 / 300, rtol=1e-12)


def test_a_guarantee_that_says_something_is_kept():
    """20 coresets and 40 models each: each coreset may fail with probability 1 / 4000, so this test with 1/200."""
    X, y = narrow()
    problem, radius = FLIPS.replace(label_cost=np.inf), 1e-3
    anchor = Anchor(np.array([0.2, 0.1]), 0.05, 0.3)
    rng = np.random.default_rng(5)
    for seed in range(20):
        sampler = GridCoreset(epsilon=0.3, parameter_radius=radius, anchor=anchor, random_state=seed)
        coreset = sampler.build(problem, X, y)
        assert not coreset.details["sizes"]["vacuous"]
        assert len(coreset) == coreset.details["sizes"]["asked"][coreset.details["sizes"]["chosen"]] < 4000
        for _ in range(40):
            step = rng.normal(size=3)
            step *= radius / np.linalg.norm(step)
            coef, intercept = anchor.coef + step[:2], anchor.intercept + step[2]
            multiplier = problem.kappa(coef) * rng.uniform(1.0, 2.0)
            full = problem.h(coef, intercept, multiplier, X, y).mean()
            few = coreset.weights @ problem.h(coef, intercept, multiplier, coreset.X, coreset.y)
            assert abs(few / full - 1.0) <= 0.3


def test_the_guarantee_is_kept_where_one_row_weighs_as_much_as_all_others():
    """Half the mass is on a row with ``h = 0``, in one cell with thousands of light rows of ``h = 0.45``."""
    n = 20000
    h = np.where(np.arange(n) % 2 == 0, 0.45, 1.35)
    h[0] = 0.0
    weights = np.ones(n)
    weights[0] = n - 1.0
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    X = ((1.0 - h) * y)[:, None]
    sampler = GridCoreset(epsilon=0.1, parameter_radius=1e-9, anchor=Anchor(np.ones(1), 0.0, 1.0), random_state=0)
    coreset = sampler.build(Problem("hinge", radius=0.1), X, y, weights)
    assert coreset.weights @ h[coreset.indices] == pytest.approx(weights @ h / weights.sum(), rel=0.1)
