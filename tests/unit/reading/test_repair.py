"""Bounds of repaired slopes: never above the optimum, tight near it, from sums alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import ArraySource, DualCoreset, PartsSource, Problem, open_source, solve
from dualcore.certificates import LevelSet, dual_point, lower_bound
from dualcore.problem.anchor import Anchor
from dualcore.reading.repair import can_repair, repaired_bounds
from dualcore.solvers.pilot import Pilot
from pairs import every_value
from solver_cases import data_for

CASES = {
    "logistic": {"loss": "logistic", "radius": 0.1},
    "l1": {"loss": "logistic", "radius": 0.1, "norm": "l1"},
    "linf-flips": {"loss": "logistic", "radius": 0.05, "norm": "linf", "label_cost": 1.0},
    "spent-flips": {"loss": "logistic", "radius": 0.1, "label_cost": 0.5},
    "hinge": {"loss": "hinge", "radius": 0.05},
    "hinge-l1-flips": {"loss": "hinge", "radius": 0.1, "norm": "l1", "label_cost": 1.0},
    "no-intercept": {"loss": "hinge", "radius": 0.05, "fit_intercept": False},
    "ridge": {"loss": "smooth_hinge", "radius": 0.02, "ridge": 0.1},
    "huber": {"loss": "huber", "radius": 0.05},
    "narrow-huber": {"loss": "huber", "radius": 0.05, "delta": 0.003},
    "narrow-huber-l1": {"loss": "huber", "radius": 0.05, "delta": 0.02, "norm": "l1", "label_cost": 1.0},
    "target": {"loss": "absolute", "radius": 0.05, "label_cost": 1.0},
    "tube": {"loss": "epsilon_insensitive", "radius": 0.05, "norm": "l1"},
    "priced": {"loss": "logistic", "radius": 0.1, "feature_weights": [1.0, 2.0, 0.5, 1.0]},
}


def bounds_at(problem, X, y, coef, intercept, weights=None, sources=()):
    """Return the risk of a model, and its bounds from the reads of each source; rows in memory where none is given."""
    data = problem.validate(X, y, weights)
    risk = problem.evaluate(coef, intercept, data)
    sizes = data.rows.column_sizes(data.weights)
    level_set = LevelSet(problem, risk.value, sizes, len(y), target_size=float(np.abs(y).mean() * 10.0))
    anchor, rows = Anchor(coef, intercept, risk.multiplier), Pilot(np.arange(len(y)), X, y, data.masses)
    return risk.value, *(
        list(repaired_bounds(source, problem, anchor, rows, level_set)) for source in sources or [open_source(X, y)]
    )


@every_value(name=list(CASES), away=[0.0, 0.01, 0.3])
def test_no_bound_is_above_the_optimum(name, away):
    problem = Problem(**CASES[name])
    X, y = data_for(problem, 1500, 4)
    best = solve(problem, X, y, tol=1e-8)
    rng = np.random.default_rng(1)
    coef = best.coef + away * rng.normal(size=4)
    intercept = best.intercept + away * rng.normal() if problem.fit_intercept else 0.0
    source = open_source(X, y)
    risk, found = bounds_at(problem, X, y, coef, intercept, sources=[source])
    assert source.n_reads in (3, 6)
    assert max(found) <= best.value + best.rounding
    assert max(found) <= risk


@pytest.mark.parametrize("name", ["l1", "linf-flips", "hinge-l1-flips", "narrow-huber", "narrow-huber-l1"])
def test_a_repaired_bound_is_of_second_order(name):
    problem = Problem(**CASES[name])
    X, y = data_for(problem, 20_000, 4)
    near = solve(problem, X[:10_000], y[:10_000], tol=1e-8)
    risk, found = bounds_at(problem, X, y, near.coef, near.intercept)
    data = problem.validate(X, y)
    point = dual_point(problem, problem.signal(near.coef, near.intercept, data), data, problem.size(near.coef))
    plain = lower_bound(problem, data, point, risk, repair=False)
    assert risk - max(found) <= 1e-2 * risk
    assert risk - max(found) <= 0.2 * (risk - plain)


def test_what_cannot_be_repaired_is_known_before_a_read():
    assert can_repair(Problem("hinge", radius=0.1), 20)
    assert not can_repair(Problem("hinge", radius=0.1), 5000)
    assert not can_repair(Problem("squared", radius=0.1), 20)
    assert not can_repair(Problem("hinge", radius=0.1, support=(0.0, 1.0)), 20)


@pytest.mark.parametrize("settings", [{"norm": "l1"}, {"norm": "l1", "label_cost": 1.0}])
def test_the_loop_ends_with_a_repair_where_the_target_is_not_reached(settings):
    problem = Problem("logistic", radius=0.1, **settings)
    X, y = data_for(problem, 40_000, 4)
    source = open_source(X, y)
    rough = DualCoreset(size=400, rounds=2, random_state=0).fit(problem, source)
    fine = DualCoreset(size=400, rounds=2, target_gap=1e-6, random_state=0).fit(problem, source)
    assert fine.certificate.lower > rough.certificate.lower
    assert fine.certificate.relative_gap < rough.certificate.relative_gap
    assert 1 <= fine.certificate.n_reads - rough.certificate.n_reads <= 5
    assert fine.history[-1].read == fine.certificate.n_reads
    assert fine.certificate.lower <= solve(problem, X, y).value


SPLITS = {
    "margins": ({"loss": "logistic", "radius": 0.05, "norm": "l1"}, 6),
    "flips": ({"loss": "hinge", "radius": 0.1, "label_cost": 1.0}, 4),
    "residuals": ({"loss": "huber", "radius": 0.05}, 100),  # Gram matrices ask for leaves of more rows
    "narrow-huber": ({"loss": "huber", "radius": 0.05, "delta": 0.02}, 4),
}


def split_sources(rows, y, weights):
    """Return the same rows in chunks of several sizes, and in parts."""
    columns = (rows, y) if weights is None else (rows, y, weights)
    parts = [tuple(column[at] for column in columns) for at in np.array_split(np.arange(len(y)), 7)]
    return [ArraySource(*columns, chunk_rows=chunk_rows) for chunk_rows in (1 << 14, 1000, 333)] + [PartsSource(parts)]


@every_value(kind=["dense", "weighted", "sparse"], name=list(SPLITS))
def test_a_bound_does_not_depend_on_how_rows_are_split(name, kind):
    """The sums of a repair are of leaves: chunks of any size, and parts in any number, give the same bits."""
    settings, m = SPLITS[name]
    problem, rng, n = Problem(**settings), np.random.default_rng(3), 5001
    X = rng.normal(size=(n, m)) + 0.3
    score = X[:, :4] @ np.array([1.0, -0.7, 0.4, 0.0]) + rng.logistic(size=n)
    y = np.where(score > 0.2, 1.0, -1.0) if problem.is_classification else score
    weights = rng.uniform(0.5, 2.0, size=n) if kind == "weighted" else None
    rows = sp.csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X)) if kind == "sparse" else X
    coef = np.zeros(m)
    coef[:4] = [0.5, -0.4, 0.2, 0.0]
    _, one, *others = bounds_at(problem, rows, y, coef, 0.1, weights, split_sources(rows, y, weights))
    assert np.isfinite(one).all()
    assert others == [one] * len(others)


def test_a_certificate_does_not_depend_on_how_rows_are_split():
    problem = Problem("logistic", radius=0.1, norm="l1", label_cost=1.0)
    X, y = data_for(problem, 24_001, 4)
    sampler = DualCoreset(size=500, rounds=1, target_gap=1e-9, random_state=0)
    found = [sampler.fit(problem, source) for source in split_sources(X, y, None)]
    plain = replace(sampler, target_gap=0.5).fit(problem, X, y)
    assert found[0].certificate.lower > plain.certificate.lower  # it is the repair that counts
    for other in found[1:]:
        assert [(done.upper, done.lower) for done in other.history] == [
            (done.upper, done.lower) for done in found[0].history
        ]
