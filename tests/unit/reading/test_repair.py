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
from pairs import every_value, first
from solver_cases import data_for

CASES = {
    "logistic": {"loss": "logistic", "radius": 0.1},
    "l1": {"loss": "logistic", "radius": 0.1, "norm": "l1"},
    "linf-flips": {"loss": "logistic", "radius": 0.05, "norm": "linf", "label_cost": 1.0},
    "spent-flips": {"loss": "logistic", "radius": 0.1, "label_cost": 0.5},
    "hinge": {"loss": "hinge", "radius": 0.05},
    "hinge-l1-flips": {"loss": "hinge", "radius": 0.1, "norm": "l1", "label_cost": 1.0},
    "hinge-linf-flips": {"loss": "hinge", "radius": 0.1, "norm": "linf", "label_cost": 2.0},
    "huber": {"loss": "huber", "radius": 0.05},
    "narrow-huber": {"loss": "huber", "radius": 0.05, "delta": 0.003},
    "narrow-huber-l1": {"loss": "huber", "radius": 0.05, "delta": 0.02, "norm": "l1", "label_cost": 1.0},
    "target": {"loss": "absolute", "radius": 0.05, "label_cost": 1.0},
    "tube": {"loss": "epsilon_insensitive", "radius": 0.05, "norm": "l1"},
}


def bounds_at(problem, X, y, coef, intercept, weights=None, sources=(), factor=1.0):
    """Return the risk of a model, and its bounds from the reads of each source; rows in memory where none is given."""
    data = problem.validate(X, y, weights)
    risk, sizes = problem.evaluate(coef, intercept, data), data.rows.column_sizes(data.weights)
    level_set = LevelSet(problem, risk.value, sizes, len(y), target_size=float(np.abs(y).mean() * 10.0))
    anchor, rows = Anchor(coef, intercept, factor * risk.multiplier), Pilot(np.arange(len(y)), X, y, data.masses)
    sources = sources or [ArraySource(X, y, weights)]
    return risk.value, *(list(repaired_bounds(source, problem, anchor, rows, level_set)) for source in sources)


@every_value(name=list(CASES), away=[0.0, 0.01, 0.3])
def test_no_bound_is_above_the_optimum(name, away):
    problem = Problem(**CASES[name])
    X, y = data_for(problem, 1500, 4)
    best, source = solve(problem, X, y, tol=1e-8), open_source(X, y)
    step = away * np.random.default_rng(1).normal(size=5)
    risk, found = bounds_at(problem, X, y, best.coef + step[:4], best.intercept + step[4], sources=[source])
    assert source.n_reads in (3, 6)
    assert max(found) <= min(best.value + best.rounding, risk)


@pytest.mark.parametrize("seed", first(40, range(400)))
def test_no_bound_is_above_the_optimum_of_a_small_problem(seed):
    """Flip budgets that are spent or not, multipliers at and above the least; models near the optimum and far away."""
    rng = np.random.default_rng(seed)
    n, m, pick = int(rng.integers(4, 60)), int(rng.integers(1, 5)), lambda *values: rng.choice(values)
    X = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-1.0, 1.0) + pick(0.0, 1.0, 5.0)
    y = np.sign(X[:, 0] - 1.0 + rng.logistic(size=n))
    y[:2], weights = [1.0, -1.0], rng.uniform(0.01, 2.0, size=n) if seed % 2 else None
    settings = {"radius": 10.0 ** rng.uniform(-2.5, 0.3), "label_cost": pick(0.1, 0.3, 0.7, 1.0, 2.0, 7.0, np.inf)}
    settings |= {"feature_weights": 10.0 ** rng.uniform(-0.5, 0.5, size=m), "fit_intercept": bool(rng.random() < 0.7)}
    loss, norm, ridge = pick("logistic", "hinge", "smooth_hinge"), pick("l1", "l2", "linf"), pick(0.0, 0.0, 0.01, 1.0)
    problem, away = Problem(loss, norm=norm, ridge=ridge, **settings), pick(0.0, 1e-4, 0.01, 0.3, 3.0)
    best = solve(problem, X, y, weights, tol=1e-9)
    coef, intercept = best.coef + away * rng.normal(size=m), best.intercept + problem.fit_intercept * away
    _, found = bounds_at(problem, X, y, coef, intercept, weights, factor=pick(1.0, 1.0, 1.3))
    assert max(found) <= best.value * (1.0 + 1e-13) + best.rounding


@pytest.mark.parametrize("name", [name for name in CASES if "l1" in name or "linf" in name or "narrow" in name])
def test_a_repaired_bound_is_of_second_order(name):
    problem = Problem(**CASES[name])
    X, y = data_for(problem, 20_000, 4)
    near, data = solve(problem, X[:10_000], y[:10_000], tol=1e-8), problem.validate(X, y)
    risk, found = bounds_at(problem, X, y, near.coef, near.intercept)
    point = dual_point(problem, problem.signal(near.coef, near.intercept, data), data, problem.size(near.coef))
    plain = lower_bound(problem, data, point, risk, repair=False)
    assert risk - max(found) <= min(2e-3 * risk, 0.2 * (risk - plain))


def test_what_cannot_be_repaired_is_known_before_a_read():
    hinge, box = Problem("hinge", radius=0.1), Problem("hinge", radius=0.1, support=(0.0, 1.0))
    cases = [(hinge, 20), (hinge, 5000), (Problem("squared", radius=0.1), 20), (box, 20)]
    assert [can_repair(*case) for case in cases] == [True, False, False, False]


@pytest.mark.parametrize("settings", [{"norm": "l1"}, {"norm": "l1", "label_cost": 1.0}])
def test_the_loop_ends_with_a_repair_where_the_target_is_not_reached(settings):
    problem = Problem("logistic", radius=0.1, **settings)
    X, y = data_for(problem, 40_000, 4)
    sampler = DualCoreset(size=400, rounds=2, random_state=0)
    rough, fine = (replace(sampler, target_gap=gap).fit(problem, X, y).certificate for gap in (1e-3, 1e-6))
    assert rough.lower < fine.lower <= solve(problem, X, y).value
    assert fine.relative_gap < min(rough.relative_gap, 1e-5)
    assert 1 <= fine.n_reads - rough.n_reads <= 5


def test_no_label_flips_at_radius_0():
    problem = Problem("hinge", radius=0.0, label_cost=0.2, norm="l1", ridge=0.01)
    X, y = data_for(problem, 40_000, 4)
    found = DualCoreset(size=500, target_gap=1e-6, random_state=0).fit(problem, X, y).certificate
    assert found.lower <= solve(problem, X, y, tol=1e-8).value <= found.upper * (1.0 + 1e-8)


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
    coef = np.append([0.5, -0.4, 0.2], np.zeros(m - 3))
    _, one, *others = bounds_at(problem, rows, y, coef, 0.1, weights, split_sources(rows, y, weights))
    assert np.isfinite(one).all()
    assert others == [one] * len(others)


def test_a_certificate_does_not_depend_on_how_rows_are_split():
    problem = Problem("logistic", radius=0.1, norm="l1", label_cost=1.0)
    X, y = data_for(problem, 30_001, 4)
    sampler = DualCoreset(size=500, rounds=1, target_gap=1e-6, random_state=0)
    histories = [sampler.fit(problem, source).history for source in split_sources(X, y, None)]
    found = [[(done.upper, done.lower) for done in history] for history in histories]
    assert found[0][-1][1] > replace(sampler, target_gap=0.5).fit(problem, X, y).certificate.lower  # by the repair
    assert found[1:] == found[:1] * 3
