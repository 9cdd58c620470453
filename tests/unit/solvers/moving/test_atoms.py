"""Newton's method on atoms: the optimum of boxes and categories, and a lower bound that holds wherever it stops."""

from __future__ import annotations

import warnings
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualcore import ParquetSource, Problem, certify, solve
from dualcore.solvers.moving import atoms
from dualcore.solvers.moving.atoms import run_atoms
from dualcore.solvers.moving.closedform import closed_form, run_closed
from pairs import every_pair, every_value
from reference.category_cases import draw_case, draw_rows
from source_kinds import Table, write_parquet


def trained(problem, X, y, tol):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, X, y, tol=tol)


@pytest.mark.parametrize("loss", ["logistic", "smooth_hinge", "huber", "hinge", "absolute"])
def test_bounds_hold_wherever_it_stops(loss, monkeypatch):
    rng = np.random.default_rng(len(loss))
    close = 0
    for number in range(12):
        settings = {"ridge": float(rng.choice([0.0, 0.02])), "fit_intercept": bool(rng.random() < 0.8)}
        case = draw_case(rng, loss, immovable=0.0, **settings)
        problem = case.problem
        X, y = draw_rows(rng, case, 60)
        best = trained(problem, X, y, 1e-8)
        data = problem.validate(X, y)
        monkeypatch.setattr(atoms, "_MOST_STEPS", 200 if number % 2 else int(rng.integers(1, 20)))
        found = run_atoms(problem, data, np.zeros(case.n_features), 0.0, 1e-4)
        assert found.lower <= best.value * (1.0 + 1e-9) + best.rounding
        assert found.upper >= best.lower_bound * (1.0 - 1e-9) - best.rounding
        assert problem.risk(found.coef, found.intercept, X, y) <= found.upper * (1.0 + 1e-12)
        close += found.upper - found.lower <= 1e-4 * found.upper
    assert close >= 3  # it is made for more rows; there it closes the gap, here it must only be right


@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon_insensitive", "pinball"])
def test_one_slope_of_each_sign_has_the_optimum_of_a_closed_form(loss):
    rng = np.random.default_rng(4)
    for number in range(9):
        problem, *_ = case = draw_case(rng, loss, limits=False, immovable=0.0, norm="l1")
        problem = problem.replace(loss=loss, quantile=0.1 * number + 0.1) if loss == "pinball" else problem
        data = problem.validate(*draw_rows(rng, case, 60))
        assert closed_form(problem, data).family.is_closed
        closed, known = (run(problem, data, np.zeros(case.n_features), 0.0, 1e-7) for run in (run_closed, run_atoms))
        assert closed.is_within(1e-6)
        assert closed.lower <= known.upper * (1.0 + 1e-9)  # atoms know nothing of closed forms
        assert known.lower <= problem.evaluate(closed.coef, closed.intercept, data).value <= closed.upper * (1.0 + 1e-9)


def test_the_side_of_the_smaller_slope_of_a_quantile_carries_nothing():
    X = np.hstack([np.random.default_rng(0).normal(size=(2000, 3)), np.eye(4)[np.arange(2000) % 4]])
    problem = Problem("pinball", quantile=0.99, radius=0.1, categories=[[3, 4, 5, 6]])
    assert trained(problem, X, X[:, 0] * X[:, 1], 1e-6).converged


BOXES = {
    "both": (0.0, 1.0),
    "one": (0.0, np.inf),
    "mixed": ([0.0, 0.0, -np.inf, -np.inf, 0.0, 0.0], [1.0, np.inf, 1.0, np.inf, 1.0, 1.0]),
}


def draw_box(loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.random((80, 6)).round(1)
    score = (X - 0.5) @ rng.normal(size=6)
    is_residual = loss in ("absolute", "huber", "pinball")
    return X, score + 0.2 * rng.normal(size=80) if is_residual else np.where(score > 0.1, 1.0, -1.0)


@every_pair(
    loss=["hinge", "logistic", "absolute", "huber", "pinball"],
    norm=["l1", "l2", "linf"],
    label_cost=[1.0, np.inf],
    box=list(BOXES),
    radius=[0.02, 1.0],
    ridge=[0.0, 0.1],
    prices=[None, [1.0, 0.5, 2.0, 1.0, 1.0, 0.3]],
)
def test_the_bound_is_below_every_model_and_meets_the_best(
    loss, norm, label_cost, box, radius, ridge, prices, monkeypatch
):
    # A radius of 1 takes rows across the box. Mass that is sent along features with one limit and with none costs the
    # norm of both together: paid for apart, bounds were loose.
    settings = {"radius": radius, "norm": norm, "label_cost": label_cost, "ridge": ridge, "feature_weights": prices}
    problem = Problem(loss, support=BOXES[box], **settings, **({"quantile": 0.2} if loss == "pinball" else {}))
    X, y = draw_box(loss, 3)
    data, rng = problem.validate(X, y), np.random.default_rng(0)
    found = solve(problem, X, y, tol=1e-5)
    assert found.converged
    assert found.value == pytest.approx(problem.risk(found.coef, found.intercept, X, y), rel=1e-9, abs=found.rounding)
    monkeypatch.setattr(atoms, "_MOST_STEPS", 15)
    stopped = [run_atoms(problem, data, np.full(6, at), 0.0, 1e-6) for at in (1.0, -1.0)]
    least = min(found.value, *(each.upper for each in stopped))
    for _ in range(10):
        coef = found.coef + rng.normal(size=6) * rng.choice([0.01, 0.3, 3.0])
        least = min(least, problem.risk(coef, found.intercept + float(rng.normal()) * 0.1, X, y))
    assert max(found.lower_bound, *(each.lower for each in stopped)) <= least * (1.0 + 1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("loss", ["hinge", "huber"])
def test_a_tiny_radius_leaves_coefficients_much_room(loss, offset):
    X, y = draw_box(loss, 2)
    problem = Problem(loss, norm="l2", radius=1e-8, support=(offset, offset + 1.0))
    found = solve(problem, X + offset, y, tol=1e-5)
    assert found.converged
    assert certify(problem, found, X + offset, y).relative_gap <= 1e-5


def test_many_rows_are_trained_by_atoms():
    rng = np.random.default_rng(0)
    n, sizes = 6000, (4, 6, 8)
    codes = [rng.integers(0, size, n) for size in sizes]
    X = np.hstack([np.eye(size)[code] for size, code in zip(sizes, codes, strict=True)])
    X = np.column_stack([X, rng.normal(size=(n, 2))])
    coef = rng.normal(size=X.shape[1])
    y = np.where(X @ coef + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    groups = [list(range(4)), list(range(4, 10)), list(range(10, 18))]
    problem = Problem("logistic", radius=0.02, label_cost=3.0, categories=groups, category_cost=[0.5, 1.0, 2.0])
    found = solve(problem, X, y, tol=1e-4)
    assert found.converged
    assert found.relative_gap <= 1e-4
    assert found.iterations < 30
    known = certify(problem, SimpleNamespace(coef=0.9 * found.coef, intercept=found.intercept), X, y)
    assert known.lower <= found.value * (1.0 + 1e-9)
    assert known.lower >= found.lower_bound - 1e-3 * found.value
    assert known.upper == pytest.approx(problem.risk(0.9 * found.coef, found.intercept, X, y), rel=1e-9)


def few_rows(n_rows, sizes, seed, dropped):
    """Return separable rows of one-hot columns, fewer than twice the columns, and their groups."""
    rng = np.random.default_rng(seed)
    codes = [np.minimum(rng.geometric(0.25, n_rows) - 1, size - 1) for size in sizes]
    X = np.hstack([np.eye(size)[code] for size, code in zip(sizes, codes, strict=True)])
    y = np.where(X @ rng.normal(size=X.shape[1]) > 0.0, 1.0, -1.0)
    ends = np.cumsum([0, *sizes])
    groups = [list(range(start, end)) for start, end in pairwise(ends)]
    return X, y, [[None, *group] if dropped else group for group in groups]


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("n_rows", [60, 120])
def test_few_separable_rows_of_many_categories(n_rows, dropped):
    X, y, groups = few_rows(n_rows, (8, 16, 7, 14, 6, 5, 2, 10), n_rows, dropped)
    problem = Problem("logistic", radius=0.01, categories=groups)
    data = problem.validate(X, y)
    assert run_atoms(problem, data, np.zeros(X.shape[1]), 0.0, 1e-4).is_within(1e-4)
    found = solve(problem, X, y, tol=1e-4)
    assert found.converged
    assert found.relative_gap <= 1e-4
    known = problem.risk(found.coef, found.intercept, X, y)
    assert found.lower_bound <= known * (1.0 + 1e-12)
    # No model near it is below the bound.
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 1e-1):
        step = size * rng.normal(size=X.shape[1])
        assert problem.risk(found.coef + step, found.intercept, X, y) >= found.lower_bound


@every_value(dropped=[False, True], fit_intercept=[True, False], loss=["logistic", "huber"])
def test_categories_that_no_row_has(dropped, fit_intercept, loss):
    X, y, groups = few_rows(90, (40, 30, 6), 5, dropped)
    wide = np.insert(X, 40, np.zeros((3, 90)), axis=1)  # three more categories of the second group
    more = [groups[0], [*groups[1], 70, 71, 72], [None, *range(73, 79)] if dropped else list(range(73, 79))]
    problem = Problem(loss, radius=0.05, categories=groups, category_cost=[0.5, 1.0, 2.0], fit_intercept=fit_intercept)
    known = trained(problem, X, y, 1e-5)
    other = problem.replace(categories=more, category_cost=[0.5, 1.0, 2.0])
    found = run_atoms(other, other.validate(wide, y), np.zeros(79), 0.0, 1e-5)
    assert found.upper == pytest.approx(problem.risk(known.coef, known.intercept, X, y), rel=1e-3)
    assert other.risk(found.coef, found.intercept, wide, y) <= found.upper * (1.0 + 1e-12)
    assert found.lower <= known.value * (1.0 + 1e-12)
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 1e-1):  # no model near it is below the bound
        step = size * rng.normal(size=79)
        assert other.risk(found.coef + step, found.intercept, wide, y) >= found.lower


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_rows_that_a_constant_fits_have_no_risk(level, recwarn):
    X, _, groups = few_rows(400, (3, 4), 0, dropped=False)
    y = np.full(400, level)
    problem = Problem("huber", radius=0.1, categories=groups)
    found = solve(problem, X, y)
    assert found.converged
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert not recwarn


def test_targets_in_a_file(tmp_path):
    rng = np.random.default_rng(2)
    X, _, groups = few_rows(400, (3, 4), 0, dropped=False)
    y = X @ rng.normal(size=7) + rng.normal(size=400)
    problem = Problem("huber", radius=0.05, categories=groups)
    model = solve(problem, X, y)
    expected = certify(problem, model, X, y)
    path = write_parquet(Table(X, y, None), tmp_path / "rows.parquet", 100)
    found = certify(problem, model, ParquetSource(path, "y"))
    assert found.lower == pytest.approx(expected.lower, rel=1e-5)
