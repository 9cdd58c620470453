"""One read: the answers are those of the full data, whatever the chunks and the order they came in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Anchor, Problem, solve
from dualcore.data.sources import ArraySource, Chunk
from dualcore.reading.reading import Reading, as_reading, read
from dualcore.reading.summary import Pass, SummaryRead
from pairs import every_value, first
from solver_cases import data_for

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


def sample(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weights = np.random.default_rng(2).uniform(0.2, 2.0, size=700)
    return *data_for(problem, n=700, m=4), weights / weights.sum()


def anchor_for(problem: Problem, scale: float = 4.0) -> Anchor:
    coef = scale * np.array([1.0, -0.8, 0.2, 0.1])
    multiplier = (1.1 if problem.geometry.order == 1 else 2.0) * problem.kappa(coef)
    return Anchor(coef, 0.2 if problem.fit_intercept else 0.0, multiplier)


def task_for(problem: Problem, anchor: Anchor | None = None) -> Pass:
    return Pass(problem, anchor or anchor_for(problem), sized=True, width=0.1 if problem.loss.kinks else 0.0)


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
    if problem.is_classification and problem.geometry.order == 1:
        margins = y * (X @ anchor.coef + anchor.intercept)
        flips = problem.loss.flip_gain(margins) > problem.geometry.label_cost * anchor.multiplier
        assert reading.flipped == pytest.approx(masses @ flips, rel=1e-12)


@each_problem
def test_the_lower_bound_is_below_the_optimum(problem):
    X, y, weights = sample(problem)
    best = solve(problem, X, y, weights)
    for scale in (0.0, 0.5, 1.3, 10.0):
        anchor = anchor_for(problem, scale)
        if problem.geometry.order == 2 and scale == 0.0:
            anchor = Anchor(anchor.coef, anchor.intercept, 1.0)
        reading = read(ArraySource(X, y, weights), task_for(problem, anchor))
        assert reading.lower_bound(reading.risk) <= best.value * (1.0 + 1e-9)
    at_best = Anchor(best.coef, best.intercept, best.dual_variable)
    reading = read(ArraySource(X, y, weights), task_for(problem, at_best))
    share = 0.15 if problem.loss.kinks or np.isfinite(problem.geometry.label_cost) else 1e-3
    assert best.value - share * best.value <= reading.lower_bound(reading.risk) <= best.value * (1.0 + 1e-9)


def assert_same(one: Reading, other: Reading, rel: float = 1e-12) -> None:
    for name in ("mass", "mean_loss", "mean_h", "slope", "flipped", "risk", "multiplier"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=rel, abs=1e-14), name
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=10.0 * rel, atol=1e-13)
    assert one.lower_bound(one.risk) == pytest.approx(other.lower_bound(other.risk), rel=10.0 * rel)


@every_value(some_problems, weighted=[False, True])
def test_chunks_and_containers_do_not_show_and_weights_are_repetitions(problem, weighted):
    X, y, weights = sample(problem)
    X, weights, task = np.where(np.abs(X) > 0.5, X, 0.0), weights if weighted else None, task_for(problem)
    one = read(ArraySource(X, y, weights, chunk_rows=len(y)), task)
    for rows, chunk_rows in ((X, 1), (X, 64), (X, 333), (sp.csr_matrix(X), 100)):
        assert_same(read(ArraySource(rows, y, weights, chunk_rows=chunk_rows), task), one)
    times = np.random.default_rng(0).integers(0, 4, size=len(y))
    repeated = read(ArraySource(np.repeat(X, times, axis=0), np.repeat(y, times)), task)
    assert_same(read(ArraySource(X, y, times / times.sum()), task), repeated, rel=1e-11)


@some_problems
def test_the_order_of_merging_does_not_show(problem):
    X, y, weights = sample(problem)
    task = task_for(problem)
    run = SummaryRead(len(y), 1.0, task)
    one = read(ArraySource(X, y, weights), task)
    rng = np.random.default_rng(1)
    for _ in range(4):
        cuts = np.sort(rng.choice(np.arange(1, len(y)), size=9, replace=False))
        spans = list(zip([0, *cuts], [*cuts, len(y)], strict=True))
        rng.shuffle(spans)
        parts = [run(Chunk(int(a), X[a:b], y[a:b], weights[a:b])) for a, b in spans]
        while len(parts) > 1:  # a tree of any shape
            take = int(rng.integers(2, len(parts) + 1))
            parts = [run.merge(parts[:take]), *parts[take:]]
            rng.shuffle(parts)
        [whole] = run.merge(parts).found
        assert_same(as_reading(task, whole), one)
