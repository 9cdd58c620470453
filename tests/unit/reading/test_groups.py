"""Merged rows: their optimum is never above that of all rows, and near it where few rows would not tell."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import ArraySource, DualCoreset, PartsSource, Problem, open_source, solve
from dualcore.problem.anchor import Anchor
from dualcore.reading.groups import NearRows, can_merge, merge_rows
from pairs import every_pair

CASES = {
    "plain": {"radius": 0.01},
    "flips": {"radius": 0.01, "label_cost": 2.0},
    "spent": {"radius": 0.1, "label_cost": 0.5, "norm": "l1"},
    "radius-0": {"radius": 0.0},
    "ridge": {"radius": 0.0, "ridge": 0.01},
    "no-intercept": {"radius": 0.02, "norm": "linf", "fit_intercept": False},
}


def made(n: int = 6000, share: float = 0.1, seed: int = 1):
    """Return rows of which few are positive, and weights that balance the classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    score = 0.6 * X[:, 0] - 0.4 * X[:, 1] + rng.logistic(size=n)
    y = np.where(score > np.quantile(score, 1.0 - share), 1.0, -1.0)
    return X, y, np.where(y > 0.0, 0.5 / share, 0.5 / (1.0 - share))


def anchors(problem: Problem, X, y, weights, away: float, number: int) -> tuple[Anchor, ...]:
    best = solve(problem, X, y, weights)
    rng, found = np.random.default_rng(2), []
    for _ in range(number):
        coef = best.coef + away * rng.normal(size=best.coef.size)
        intercept = best.intercept + away * rng.normal() * problem.fit_intercept
        risk = problem.evaluate(coef, intercept, problem.validate(X, y, weights))
        found.append(Anchor(coef, intercept, risk.multiplier))
    return tuple(found)


def mean_h(problem: Problem, model: Anchor, X, y, masses) -> float:
    t = y * (X @ model.coef + model.intercept)
    return float(masses @ problem.form.h(t, model.multiplier, problem.size(model.coef)))


@every_pair(name=list(CASES), number=[1, 2], share=[1.0, 0.3])
def test_merged_rows_have_less_risk_at_every_model(name, number, share):
    problem = Problem("hinge", **CASES[name])
    X, y, weights = made(3000)
    models = anchors(problem, X, y, weights, 0.1, number)
    merged = merge_rows(
        open_source(X, y, weights), problem, models, NearRows(np.array([0.02, 0.2]), np.full(2, share), 5)
    )
    assert len(merged.y) < 0.5 * len(y)
    assert merged.weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert merged.weights @ merged.X == pytest.approx(weights @ X / weights.sum(), abs=1e-12)
    rng = np.random.default_rng(3)
    for away in (0.01, 0.1, 1.0, 10.0):
        coef, intercept = models[0].coef + away * rng.normal(size=6), models[0].intercept
        less, whole = problem.risk(coef, intercept, *merged), problem.risk(coef, intercept, X, y, weights)
        assert less <= whole * (1.0 + 1e-12)
    # On linear pieces nothing is lost: not at any of the models they were made for.
    for model in models:
        here = mean_h(problem, model, *merged)
        assert here == pytest.approx(mean_h(problem, model, X, y, weights / weights.sum()), rel=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_the_certificate_of_a_support_vector_machine_is_near_the_true_excess(name):
    """Sums alone said 0.2 without flips, and nothing at radius 0 or with flips."""
    problem = Problem("hinge", **CASES[name])
    X, y, weights = made(30_000, 0.05)
    fit = DualCoreset(size=400, rounds=2, target_gap=1e-4, random_state=0).fit(problem, X, y, weights)
    best = solve(problem, X, y, weights)
    excess = fit.certificate.upper / best.value - 1.0
    assert fit.certificate.lower <= best.value + best.rounding
    assert fit.certificate.relative_gap <= max(1e-4, 2.0 * excess)
    assert fit.history[-1].read == fit.certificate.n_reads


def test_the_rows_that_are_kept_are_few_where_all_lie_on_a_kink(monkeypatch):
    """At coefficients of zero and an intercept of -1 every negative row has a margin of exactly 1."""
    kept = []

    def watched(*arguments):
        kept.append(merge_rows(*arguments))
        return kept[-1]

    monkeypatch.setattr("dualcore.coresets.samplers.merged.merge_rows", watched)
    problem = Problem("hinge", radius=0.0)
    X, y, _ = made(60_000, 0.02)
    fit = DualCoreset(size=300, rounds=2, target_gap=1e-4, random_state=0).fit(problem, X, y)
    assert np.abs(fit.solution.coef).max() < 1e-3
    assert kept
    assert max(len(each.y) for each in kept) < 25_000
    assert fit.certificate.relative_gap <= 1e-4


@pytest.mark.parametrize("kind", ["dense", "weighted", "sparse"])
def test_merged_rows_do_not_depend_on_how_rows_are_split(kind):
    problem = Problem("hinge", radius=0.01, label_cost=2.0)
    X, y, weights = made(5001)
    rows = sp.csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X)) if kind == "sparse" else X
    models = anchors(problem, rows, y, None, 0.1, 2)
    columns = (rows, y, weights) if kind == "weighted" else (rows, y)
    parts = [tuple(column[at] for column in columns) for at in np.array_split(np.arange(len(y)), 7)]
    sources = [ArraySource(*columns, chunk_rows=chunk_rows) for chunk_rows in (1 << 14, 1000, 333)]
    near = NearRows(np.array([0.05, 0.1]), np.array([0.5, 1.0]), 1)
    found = [merge_rows(source, problem, models, near) for source in [*sources, PartsSource(parts)]]
    dense = [each.X.toarray() if sp.issparse(each.X) else each.X for each in found]
    for X_other, other in zip(dense[1:], found[1:], strict=True):
        assert (X_other == dense[0]).all()
        assert (other.y == found[0].y).all()
        assert (other.weights == found[0].weights).all()


def test_what_cannot_be_merged_is_known_before_a_read():
    assert can_merge(Problem("hinge", radius=0.1), 20)
    assert not can_merge(Problem("hinge", radius=0.1), 5000)
    assert not can_merge(Problem("hinge", radius=0.1, support=(0.0, 1.0)), 20)
    assert not can_merge(Problem("logistic", radius=0.1), 20)
    assert not can_merge(Problem("squared", radius=0.1), 20)
