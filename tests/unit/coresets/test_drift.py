"""Streams of rows that change as they come: a warning, a new anchor, and no false alarm."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dualcore import Anchor, CoresetStream, DriftWarning, Problem, solve
from pairs import every_value
from source_kinds import Table, make_table

N = 30_000


def drifting(n: int = 24_000, seed: int = 0) -> Table:
    """Rows whose features, labels and ties between both move from the first to the last."""
    rng = np.random.default_rng(seed)
    place = np.linspace(-1.0, 1.0, n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 3.0 * place
    score = 0.8 * X[:, 0] + (1.0 - 2.0 * place) * X[:, 1] + 1.5 * place
    return Table(X, np.where(score + rng.logistic(size=n) > 0, 1.0, -1.0), None)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_ordered_rows_are_no_worse_than_a_uniform_sample(loss):
    """The means over 12 seeds differ by a factor of two or more; the seeds are fixed, so nothing is left to chance."""
    table, problem, size = drifting(), Problem(loss, radius=0.02), 400
    n, best = table.y.size, solve(problem, *table).value

    def excess(X, y, weights=None) -> float:
        model = solve(problem, X, y, weights)
        return problem.risk(model.coef, model.intercept, table.X, table.y) / best - 1.0

    streamed, uniform = [], []
    for seed in range(12):
        stream = CoresetStream(problem, size, random_state=seed)
        for start, stop in pairwise([*range(0, n, 3000), n]):
            stream.update(*table.cut(start, stop))
        with pytest.warns(DriftWarning, match=r"The first rows do not stand for all.*% above the least.*[Ss]huffle"):
            coreset = stream.coreset()
        assert coreset.details["drift"] > 0.01
        assert len(coreset) <= size
        streamed.append(excess(coreset.X, coreset.y, coreset.weights))
        rows = np.random.default_rng(seed).choice(n, size, replace=False)
        uniform.append(excess(table.X[rows], table.y[rows]))
    assert np.mean(streamed) <= np.mean(uniform)


@every_value(loss=["logistic", "hinge", "huber", "squared", "pinball"], scale=[1.0, 2.0**20])
def test_shuffled_rows_do_not_drift(loss, scale):
    """The statistic exceeds its mean of four chi-squares by four deviations in less than one stream of a million."""
    table = make_table(N, 5, classification=loss in ("logistic", "hinge"))
    y = table.y if loss in ("logistic", "hinge") else scale * table.y
    for seed in range(3):
        stream = CoresetStream(Problem(loss, radius=0.1), 200, random_state=seed)
        stream.update(table.X, y)
        assert "drift" not in stream.coreset().details  # a warning would be an error here


def test_an_anchor_that_was_given_is_not_questioned():
    table = drifting()
    anchor = Anchor(np.array([2.0, 3.0, 0.0, 0.0]), -1.0, 5.0)
    problem = Problem("logistic", radius=0.1, label_cost=2.0)
    for n in (2000, 24_000):
        stream = CoresetStream(problem, 300, anchor=anchor)
        stream.update(table.X[:n], table.y[:n])
        coreset = stream.coreset()  # a warning would be an error here
        np.testing.assert_array_equal(coreset.anchor.coef, anchor.coef)
        risk = problem.risk(anchor.coef, anchor.intercept, table.X[:n], table.y[:n])
        assert coreset.details["anchor_risk"] == pytest.approx(risk, rel=1e-9)


def test_masses_are_even_where_sums_cannot_be_met_to_the_last_digit():
    """In other coordinates the masses of this seed collapsed on a few rows, with an excess of 2.4."""
    rng, n = np.random.default_rng(1), 60_000
    X, place = rng.normal(size=(n, 10)), np.linspace(-1.0, 1.0, n)
    X[:, 0] += 3.0 * place
    score = X @ rng.normal(size=10) * np.sqrt(0.4) + 1.5 * place
    rng.logistic(size=n)
    y, problem = np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0), Problem("hinge", radius=0.02)
    stream = CoresetStream(problem, 500, random_state=1)
    stream.update(X, y)
    with pytest.warns(DriftWarning):
        coreset = stream.coreset()
    model = solve(problem, coreset.X, coreset.y, coreset.weights)
    assert problem.risk(model.coef, model.intercept, X, y) <= 1.01 * solve(problem, X, y).value
