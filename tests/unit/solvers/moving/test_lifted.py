"""Polyhedral losses on a box with l1 and with categories, by atoms: the optimum, and bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.solvers.moving import atoms
from dualcore.solvers.moving.atoms import run_atoms
from reference.category_cases import draw_case, draw_rows

LOSSES = ["hinge", "absolute", "pinball", "epsilon_insensitive"]


def draw_box(seed):
    """Return a problem on a box with l1, its rows, targets and weights, in units between 1e-3 and 50."""
    rng = np.random.default_rng(seed)
    n, m, loss = int(rng.integers(4, 40)), int(rng.integers(1, 6)), LOSSES[seed % 4]
    unit = float(rng.choice([1e-3, 1.0, 1.0, 50.0]))
    low = -unit * rng.uniform(0.0, 2.0, m)
    high = low + unit * rng.uniform(0.2, 3.0, m)
    X = low + (high - low) * rng.choice([rng.random((n, m)), rng.random((n, m)).round()])
    y = X @ rng.normal(size=m) / unit + rng.normal(size=n)
    if loss == "hinge":
        y = np.where(np.argsort(np.argsort(y)) < n // 2, -1.0, 1.0)
    problem = Problem(
        loss,
        radius=unit * float(rng.choice([0.01, 0.1, 0.5, 3.0])),
        norm="l1",
        label_cost=unit * float(rng.choice([np.inf, np.inf, 1.0, 0.2])),
        ridge=unit**2 * float(rng.choice([0.0, 0.0, 0.02])),
        fit_intercept=bool(rng.random() < 0.8),
        support=(low, high),
        feature_weights=rng.uniform(0.3, 3.0, m) if rng.random() < 0.3 else None,
    )
    weights = rng.choice([1.0, 2.0, 5.0], size=n) if rng.random() < 0.3 else None
    return problem, X, y, weights


def run(problem, X, y, weights=None, tol=1e-7):
    data = problem.validate(X, y, weights)
    return run_atoms(problem, data, np.zeros(X.shape[1]), 0.0, tol)


def test_closes_the_gap_and_says_the_exact_risk():
    for seed in range(60):
        problem, X, y, weights = draw_box(seed)
        found = run(problem, X, y, weights)
        assert found.is_within(1e-7), seed
        assert problem.risk(found.coef, found.intercept, X, y, weights) <= found.upper * (1.0 + 1e-12)


def test_bounds_hold_wherever_it_stops(monkeypatch):
    for seed in range(24):
        problem, X, y, weights = draw_box(seed)
        best = run(problem, X, y, weights)
        for steps in (1, 4, 7, 10):
            monkeypatch.setattr(atoms, "_MOST_STEPS", steps)
            found = run(problem, X, y, weights)
            assert found.lower <= best.upper, (seed, steps)
            assert found.upper >= best.lower, (seed, steps)
        monkeypatch.undo()


@pytest.mark.parametrize("loss", LOSSES)
def test_categories(loss):
    rng = np.random.default_rng(len(loss))
    for _ in range(15):
        settings = {"ridge": float(rng.choice([0.0, 0.02])), "fit_intercept": bool(rng.random() < 0.8)}
        case = draw_case(rng, loss, immovable=0.15 if settings["ridge"] else 0.0, **settings)
        X, y = draw_rows(rng, case, 40)
        data = case.problem.validate(X, y)
        found = run_atoms(case.problem, data, np.zeros(X.shape[1]), 0.0, 1e-7)
        assert found.is_within(1e-7)
        assert case.problem.risk(found.coef, found.intercept, X, y) <= found.upper * (1.0 + 1e-12)
        for _ in range(20):  # no model near it is below the bound
            step = 10.0 ** rng.uniform(-4.0, 0.0) * rng.normal(size=X.shape[1])
            assert case.problem.risk(found.coef + step, found.intercept, X, y) >= found.lower


def test_one_group_of_two_categories_is_a_box():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 50).astype(float), rng.random(50)])
    y = np.where(X @ [1.5, -2.0] + 0.5 * rng.normal(size=50) > -0.3, 1.0, -1.0)
    box = Problem("hinge", radius=0.1, norm="l1", support=(0.0, 1.0), label_cost=1.5)
    groups = box.replace(categories=[[None, 0]], category_cost=1.0)
    assert run(groups, X, y).upper == pytest.approx(run(box, X, y).upper, rel=1e-6)


def test_categories_that_cannot_change_are_columns_that_cannot_move():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.eye(3)[rng.integers(0, 3, 60)], rng.normal(size=(60, 2))])
    y = np.where(X @ rng.normal(size=5) + 0.5 * rng.normal(size=60) > 0.0, 1.0, -1.0)
    priced = Problem("hinge", radius=0.1, norm="l1", ridge=0.01, categories=[[0, 1, 2]], category_cost=np.inf)
    fixed = Problem("hinge", radius=0.1, norm="l1", ridge=0.01, feature_weights=[np.inf] * 3 + [1.0] * 2)
    assert run(priced, X, y).upper == pytest.approx(solve(fixed, X, y).value, rel=1e-6)


def test_a_small_radius_is_the_plain_problem():
    rng = np.random.default_rng(2)
    X, y = rng.random((80, 3)), rng.normal(size=80)
    problem = Problem("absolute", radius=1e-9, norm="l1", support=(0.0, 1.0))
    assert run(problem, X, y).upper == pytest.approx(solve(Problem("absolute", radius=0.0), X, y).value, rel=1e-6)


def test_sparse_rows_and_parts_of_them_give_the_same():
    rng = np.random.default_rng(3)
    X = np.where(rng.random((400, 30)) < 0.1, 1.0, 0.0)
    y = np.where(X @ rng.normal(size=30) + 0.3 * rng.normal(size=400) > 0.0, 1.0, -1.0)
    problem = Problem("hinge", radius=0.05, norm="l1", support=(0.0, 1.0), label_cost=0.5)
    dense = run(problem, X, y)
    assert run(problem, sp.csr_array(X), y).upper == pytest.approx(dense.upper, rel=1e-7)
    doubled = run(problem, X[:200].repeat(2, axis=0), y[:200].repeat(2))
    weighted = run(problem, X, y, np.repeat([1.0, 0.0], 200))
    assert weighted.upper == pytest.approx(doubled.upper, rel=1e-6)


@pytest.mark.parametrize("radius", [1.0, 10.0])
@pytest.mark.parametrize(("loss", "norm"), [("logistic", "l2"), ("logistic", "linf"), ("huber", "l2")])
def test_a_radius_at_which_nothing_is_learned_is_certified(loss, norm, radius):
    # The optimum is the tip of a cone, where the multiplier is 0 too: cross-validation begins there.
    rng = np.random.default_rng(0)
    group, X = rng.integers(0, 4, 300), rng.normal(size=(300, 3))
    y = X[:, 0] + 0.5 * (group == 1) + 0.5 * rng.normal(size=300)
    problem = Problem(loss, radius=radius, norm=norm, categories=[[3, 4, 5, 6]])
    y = np.where(y > 0.2, 1.0, -1.0) if problem.is_classification else y
    found = solve(problem, np.hstack([X, np.eye(4)[group]]), y)
    assert found.relative_gap <= 1e-6
