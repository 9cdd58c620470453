"""One read: the answers are those of the full data, whatever the chunks and the order they came in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dualcore import Anchor, Problem, solve
from dualcore.data.keys import row_keys
from dualcore.data.sources import ArraySource, Chunk
from dualcore.problem.losses import Huber
from dualcore.reading.reading import Reading, as_reading, read
from dualcore.reading.summary import CellRule, Extent, Pass, merge, summarise
from pairs import every_value, first

PROBLEMS = {
    "logistic": Problem("logistic", radius=0.1),
    "logistic that flips": Problem("logistic", radius=0.1, norm="l1", label_cost=1.0, ridge=0.01),
    "hinge": Problem("hinge", radius=0.1),
    "hinge that flips": Problem("hinge", radius=0.1, norm="linf", label_cost=1.0),
    "smooth hinge that flips": Problem("smooth_hinge", radius=0.1, label_cost=1.0),
    "squared hinge": Problem("squared_hinge", radius=0.3),
    "huber": Problem("huber", radius=0.1, label_cost=3.0),
    "pinball": Problem("pinball", radius=0.1, quantile=0.2),
    "epsilon insensitive": Problem("epsilon_insensitive", radius=0.1, ridge=0.1),
    "absolute": Problem("absolute", radius=0.1, fit_intercept=False),
    "squared": Problem("squared", radius=0.3),
}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
# Of what does not depend on the loss.
NAMES = ("logistic that flips", "hinge", "huber", "squared", *PROBLEMS)
some_problems = pytest.mark.parametrize("problem", first(4, {name: PROBLEMS[name] for name in NAMES}))
RULE = CellRule(scale=0.5, width=0.5, n_curvatures=4, n_layers=3)


def sample(problem: Problem, n: int = 700, m: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, m))
    score = X @ np.array([1.5, -1.0, 0.5, 0.0]) + 0.3
    weights = rng.uniform(0.2, 2.0, size=n)
    y = (
        np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0)
        if problem.is_classification
        else score + rng.normal(size=n)
    )
    return X, y, weights / weights.sum()


def anchor_for(problem: Problem, scale: float = 1.3) -> Anchor:
    coef = scale * np.array([1.0, -0.8, 0.2, 0.1])
    kappa = problem.kappa(coef)
    return Anchor(
        coef, 0.2 if problem.fit_intercept else 0.0, 1.1 * kappa if problem.geometry.order == 1 else 2.0 * kappa
    )


def task_for(problem: Problem, **changes) -> Pass:
    settings = {
        "cells": RULE,
        "seed": 5,
        "keep": np.full(RULE.n_cells, 0.05),
        "width": 0.1 if problem.loss.kinks else 0.0,
    }
    return Pass(problem, anchor_for(problem), **({"sized": True} | settings | changes))


# The answers


@every_value(each_problem, weighted=[False, True])
def test_the_sums_are_those_of_the_problem_itself(problem, weighted):
    X, y, weights = sample(problem)
    weights = weights if weighted else None
    anchor = anchor_for(problem)
    reading = read(ArraySource(X, y, weights, chunk_rows=64), task_for(problem))
    masses = np.full(len(y), 1.0 / len(y)) if weights is None else weights
    h = problem.h(anchor.coef, anchor.intercept, anchor.multiplier, X, y)
    assert reading.mass == pytest.approx(1.0, rel=1e-12)
    assert reading.mean_h == pytest.approx(masses @ h, rel=1e-12)
    gradient = problem.gradient(anchor.coef, anchor.intercept, X, y, weights, multiplier=anchor.multiplier)
    assert reading.slope == pytest.approx(gradient.intercept, rel=1e-10, abs=1e-13)
    if problem.geometry.order == 1:  # of order 2 `Problem.gradient` counts how h depends on ||theta|| as well
        expected = gradient.coef - problem.ridge * anchor.coef
        np.testing.assert_allclose(reading.gradient, expected, rtol=1e-10, atol=1e-13)
    value, multiplier = problem.evaluate(anchor.coef, anchor.intercept, problem.validate(X, y, weights))
    assert reading.risk == pytest.approx(value, rel=1e-11)
    assert reading.multiplier == pytest.approx(multiplier, rel=1e-9)


@pytest.mark.parametrize("name", ["logistic that flips", "hinge that flips", "smooth hinge that flips"])
def test_flips_are_counted(name):
    problem = PROBLEMS[name]
    X, y, weights = sample(problem)
    anchor = anchor_for(problem, scale=4.0)
    task = task_for(problem)._replace(anchor=anchor)
    reading = read(ArraySource(X, y, weights), task)
    margins = y * (X @ anchor.coef + anchor.intercept)
    flipped = problem.loss.flip_gain(margins) > problem.geometry.label_cost * anchor.multiplier
    assert weights @ flipped > 0.05
    assert reading.flipped == pytest.approx(weights @ flipped, rel=1e-12)


@each_problem
def test_the_lower_bound_is_below_the_optimum(problem):
    X, y, weights = sample(problem)
    best = solve(problem, X, y, weights)
    for scale in (0.0, 0.5, 1.3, 10.0):
        anchor = anchor_for(problem, scale)
        if problem.geometry.order == 2 and scale == 0.0:
            anchor = Anchor(anchor.coef, anchor.intercept, 1.0)
        reading = read(ArraySource(X, y, weights), task_for(problem)._replace(anchor=anchor))
        assert reading.lower_bound(reading.risk) <= best.value * (1.0 + 1e-9)
    at_best = Anchor(best.coef, best.intercept, best.dual_variable)
    reading = read(ArraySource(X, y, weights), task_for(problem)._replace(anchor=at_best))
    share = 0.15 if problem.loss.kinks or np.isfinite(problem.geometry.label_cost) else 1e-3
    assert best.value - share * best.value <= reading.lower_bound(reading.risk) <= best.value * (1.0 + 1e-9)


@each_problem
def test_the_line_search_is_exact_at_every_step(problem):
    X, y, weights = sample(problem)
    origin = Anchor(np.array([0.1, 0.3, 0.0, -0.2]), -0.1, 5.0)
    steps = (0.03, 0.4, 0.7)
    task = task_for(problem, origin=origin, steps=steps)
    line = read(ArraySource(X, y, weights, chunk_rows=100), task).line()
    assert [step for step, _ in line] == list(steps)
    for step, risk in line:
        coef = origin.coef + step * (task.anchor.coef - origin.coef)
        intercept = origin.intercept + step * (task.anchor.intercept - origin.intercept)
        assert risk == pytest.approx(problem.risk(coef, intercept, X, y, weights), rel=1e-10)
    assert read(ArraySource(X, y, weights), task_for(problem)).line() == []


# Cells and what is kept of them


def everything(problem: Problem, rule: CellRule = RULE) -> tuple[Reading, np.ndarray]:
    """A reading that keeps every row, and the signal of each."""
    X, y, _ = sample(problem)
    task = task_for(problem, cells=rule, keep=np.ones(rule.n_cells))
    return read(ArraySource(X, y, chunk_rows=90), task), problem.signal(
        task.anchor.coef, task.anchor.intercept, problem.validate(X, y)
    )


@every_value(each_problem, by_class=[False, True])
def test_every_row_is_in_exactly_one_cell(problem, by_class):
    rule = RULE._replace(n_strata=2 if by_class and problem.is_classification else 1)
    reading, _ = everything(problem, rule)
    np.testing.assert_array_equal(reading.sample.rows, np.arange(700))
    assert (reading.sample.cells >= 0).all()
    assert (reading.sample.cells < rule.n_cells).all()
    np.testing.assert_array_equal(np.bincount(reading.sample.cells, minlength=rule.n_cells), reading.cell_count)
    assert reading.cell_count.sum() == 700
    np.testing.assert_allclose(reading.cell_mass, reading.cell_count / 700, rtol=1e-12)
    if rule.n_strata > 1:
        upper = reading.sample.cells >= rule.n_cells // 2
        np.testing.assert_array_equal(upper, reading.sample.y > 0.0)


@some_problems
def test_layers_of_loss_double(problem):
    rule = CellRule(scale=0.25, width=1.0, n_curvatures=1, n_layers=5)
    reading, _ = everything(problem, rule)
    h, layer = reading.sample.h, reading.sample.cells
    inner = layer < 4
    assert (h[inner] <= 0.25 * 2.0 ** layer[inner] * (1.0 + 1e-12)).all()
    assert (h[layer > 0] >= 0.25 * 2.0 ** (layer[layer > 0] - 1) * (1.0 - 1e-12)).all()
    assert np.unique(layer).size >= 3


@pytest.mark.parametrize("name", ["hinge", "hinge that flips", "absolute", "epsilon insensitive"])
def test_levels_double_the_distance_to_a_kink(name):
    problem = PROBLEMS[name]
    reading, t = everything(problem, CellRule(scale=1.0, width=0.3, n_curvatures=4, n_layers=1))
    distance = np.min([np.abs(t - kink) for kink in problem.loss.kinks], axis=0)
    if np.isfinite(problem.geometry.label_cost):
        border = problem.geometry.label_cost * reading.anchor.multiplier
        distance = np.minimum(distance, np.abs(problem.loss.flip_gain(t) - border))
    level = reading.sample.cells
    assert set(level) == {0, 1, 2, 3}
    for k in range(3):
        assert (distance[level == k] < 0.3 * 2.0**k * (1.0 + 1e-12)).all()
        assert (distance[level == k + 1] >= 0.3 * 2.0**k * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("delta", [0.05, 1.35])
def test_levels_double_the_distance_to_the_curved_part_of_a_loss(delta):
    problem = Problem(Huber(delta), radius=0.1)
    reading, t = everything(problem, CellRule(scale=1.0, width=0.6, n_curvatures=4, n_layers=1))
    distance, level = np.abs(t) - delta, reading.sample.cells
    assert (level[distance <= 0.0] == 0).all()
    for k in range(3):
        assert (distance[level == k] < 0.3 * 2.0**k * (1.0 + 1e-12)).all()
        assert (distance[level == k + 1] >= 0.3 * 2.0**k * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_levels_halve_the_curvature(name):
    problem = PROBLEMS[name]
    reading, t = everything(problem, CellRule(scale=1.0, width=0.3, n_curvatures=4, n_layers=1))
    curvature = problem.loss.curvature(t) * (4.0 if name == "logistic" else 1.0)
    level = reading.sample.cells
    for k in range(3):
        assert (curvature[level == k] >= 0.5 ** (k + 1) * (1.0 - 1e-12)).all()
        assert (curvature[level == k + 1] <= 0.5 ** (k + 1) * (1.0 + 1e-12)).all()


@some_problems
def test_a_row_is_kept_by_its_key_and_the_smallest_of_a_cell_always(problem):
    X, y, _ = sample(problem)
    keep = np.random.default_rng(0).uniform(0.0, 0.2, size=RULE.n_cells)
    keep[::3] = 0.0
    task = task_for(problem, keep=keep)
    whole = read(ArraySource(X, y), task._replace(keep=np.ones(RULE.n_cells))).sample
    keys = row_keys(5, np.arange(700))
    np.testing.assert_array_equal(whole.keys, keys)
    first = np.full(RULE.n_cells, np.inf)
    np.minimum.at(first, whole.cells, keys)
    expected = np.flatnonzero((keys < keep[whole.cells]) | (keys == first[whole.cells]))
    found = read(ArraySource(X, y, chunk_rows=50), task).sample
    np.testing.assert_array_equal(found.rows, expected)
    np.testing.assert_array_equal(found.X, X[expected])
    np.testing.assert_array_equal(found.y, y[expected])
    np.testing.assert_allclose(found.masses, 1.0 / 700, rtol=1e-14)
    np.testing.assert_allclose(found.h, whole.h[expected], rtol=1e-13)


# However the rows come


def assert_same(one: Reading, other: Reading) -> None:
    for name in ("mass", "mean_loss", "mean_h", "slope", "flipped", "risk", "multiplier"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-13, abs=1e-15), name
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(one.cell_count, other.cell_count)
    np.testing.assert_allclose(one.cell_mass, other.cell_mass, rtol=1e-13)
    np.testing.assert_array_equal(one.sample.rows, other.sample.rows)
    np.testing.assert_array_equal(one.sample.cells, other.sample.cells)
    np.testing.assert_allclose(one.sample.slope, other.sample.slope, rtol=1e-12, atol=1e-15)
    assert one.lower_bound(one.risk) == pytest.approx(other.lower_bound(other.risk), rel=1e-12)
    np.testing.assert_allclose(one.line(), other.line(), rtol=1e-12)


def line_task(problem: Problem) -> Pass:
    return task_for(problem, origin=Anchor(np.array([0.1, 0.3, 0.0, -0.2]), -0.1, 5.0), steps=(0.1, 0.5))


def test_the_comparison_of_this_file_can_fail():
    problem = PROBLEMS["hinge"]
    X, y, _ = sample(problem)
    one = read(ArraySource(X, y), line_task(problem))
    assert_same(one, one)
    for other in (line_task(problem)._replace(seed=6), line_task(problem)._replace(anchor=anchor_for(problem, 1.3001))):
        with pytest.raises(AssertionError):
            assert_same(one, read(ArraySource(X, y), other))


@every_value(some_problems, weighted=[False, True])
def test_chunks_do_not_show(problem, weighted):
    X, y, weights = sample(problem)
    weights = weights if weighted else None
    one = read(ArraySource(X, y, weights, chunk_rows=len(y)), line_task(problem))
    for chunk_rows in (1, 7, 64, 333):
        assert_same(read(ArraySource(X, y, weights, chunk_rows=chunk_rows), line_task(problem)), one)


@some_problems
def test_the_order_of_merging_does_not_show(problem):
    X, y, weights = sample(problem)
    task, extent = line_task(problem), Extent(len(y), 1.0)
    one = read(ArraySource(X, y, weights), task)
    rng = np.random.default_rng(1)
    for _ in range(4):
        cuts = np.sort(rng.choice(np.arange(1, len(y)), size=9, replace=False))
        spans = list(zip([0, *cuts], [*cuts, len(y)], strict=True))
        rng.shuffle(spans)
        parts = [summarise(Chunk(int(a), X[a:b], y[a:b], weights[a:b]), task=task, extent=extent) for a, b in spans]
        while len(parts) > 1:  # a tree of any shape
            take = int(rng.integers(2, len(parts) + 1))
            parts = [merge(parts[:take], task=task, extent=extent), *parts[take:]]
            rng.shuffle(parts)
        assert_same(as_reading(task, merge(parts, task=task, extent=extent)), one)


@pytest.mark.parametrize("name", ["logistic that flips", "huber"])
def test_threads_do_not_show(name):
    problem = PROBLEMS[name]
    X, y, weights = sample(problem, n=5000)
    readings = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            readings.append(read(ArraySource(X, y, weights, chunk_rows=100), line_task(problem)))
    assert_same(*readings)


@some_problems
def test_sparse_rows_are_dense_rows(problem):
    X, y, weights = sample(problem)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    dense = read(ArraySource(X, y, weights, chunk_rows=100), line_task(problem))
    sparse = read(ArraySource(sp.csr_matrix(X), y, weights, chunk_rows=100), line_task(problem))
    assert_same(sparse, dense)
    np.testing.assert_array_equal(sparse.sample.X.toarray(), dense.sample.X)


@some_problems
def test_weights_are_repetitions(problem):
    X, y, _ = sample(problem, n=200)
    times = np.random.default_rng(0).integers(0, 4, size=200)
    task = line_task(problem)
    weighted = read(ArraySource(X, y, times / times.sum()), task)
    repeated = read(ArraySource(np.repeat(X, times, axis=0), np.repeat(y, times)), task)
    for name in ("mean_loss", "mean_h", "slope", "flipped", "risk", "multiplier"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-11, abs=1e-14), name
    np.testing.assert_allclose(weighted.gradient, repeated.gradient, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(weighted.cell_mass, repeated.cell_mass, rtol=1e-11, atol=1e-14)
    assert weighted.lower_bound(weighted.risk) == pytest.approx(repeated.lower_bound(repeated.risk), rel=1e-10)


@pytest.mark.parametrize("exact", [True, False])
def test_a_sample_is_kept_in_single_precision_where_that_is_exact(exact):
    problem = Problem("logistic", radius=0.1)
    X, y, _ = sample(problem)
    X = X.astype(np.float32).astype(np.float64) if exact else X
    X[3, 1] = 2.0**30 + (0.0 if exact else 1.0)
    task = Pass(problem, Anchor(np.zeros(4), 0.0, 0.0), RULE, 0, np.ones(RULE.n_cells))
    parts = [Chunk(0, X[:300], y[:300], None), Chunk(300, X[300:], y[300:], None)]
    extent = Extent(700, 700.0)
    reading = as_reading(task, merge([summarise(part, task, extent) for part in parts], task, extent))
    assert reading.sample.X.dtype == (np.float32 if exact else np.float64)
    assert reading.summary.sample is reading.sample
    drawn = reading.sample.draw(np.arange(700))
    assert drawn.X.dtype == np.float64
    np.testing.assert_array_equal(drawn.X, X)
