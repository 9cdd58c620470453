"""The hard cases of either solver: radii, labels, weights and columns at their extremes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, solve
from dualcore.problem.geometry import get_norm
from dualcore.solvers import Status
from dualcore.solvers.scoring import runs_away
from pairs import every_pair, every_value
from solver_cases import FIRST_ORDER, both_solvers, classes, data_for, every_norm, separable, targets

# Hard cases: the radius


@every_value(both_solvers, every_norm, loss=FIRST_ORDER)
def test_a_radius_that_forbids_every_feature(loss, norm, solver):
    """The optimum is the best constant."""
    problem = Problem(loss, radius=50.0, norm=norm)
    X, y = data_for(problem)
    solution = solve(problem, X, y, solver=solver)
    assert solution.converged
    assert np.abs(solution.coef).max() <= 1e-7
    constant = minimize_scalar(
        lambda b: problem.risk(np.zeros(3), b, X, y), bounds=(-5.0, 8.0), method="bounded", options={"xatol": 1e-10}
    )
    assert solution.value == pytest.approx(constant.fun, rel=1e-6)


@every_value(both_solvers, loss=FIRST_ORDER)
def test_a_huge_radius_with_cheap_labels(loss, solver):
    problem = Problem(loss, radius=1e4, label_cost=0.5)
    solution = solve(problem, *data_for(problem), solver=solver)
    assert solution.converged
    # Nothing beats ignoring the features: whatever is paid beyond that is the price of moving targets.
    floor = {"logistic": np.log(2.0), "hinge": 1.0, "smooth_hinge": 0.5}.get(
        loss, problem.radius * problem.kappa([0.0])
    )
    assert solution.value == pytest.approx(floor, rel=1e-3)


@every_value(both_solvers, scale=[1.0, 1e-6, 1e6])
def test_separable_data_without_penalty_have_no_logistic_optimum(solver, scale):
    """No minimiser: say so, keep every number finite, and do not overflow (the tests make overflow raise)."""
    problem, (X, y) = Problem("logistic"), separable()
    with pytest.warns(ConvergenceWarning, match="No minimiser exists"):
        solution = solve(problem, scale * X, y, solver=solver)
    assert solution.status is Status.UNBOUNDED
    assert "radius > 0 or ridge > 0" in solution.status.value
    assert np.isfinite(solution.coef).all()
    assert np.isfinite([solution.intercept, solution.value, solution.lower_bound, solution.gap]).all()
    assert np.isfinite([step.value for step in solution.history]).all()
    assert solution.value < 1e-3
    assert solution.lower_bound == 0.0
    assert (y * (scale * X @ solution.coef + solution.intercept) > 0.0).all()


@both_solvers
@pytest.mark.parametrize("penalty", [{"radius": 1e-4}, {"ridge": 1e-6}])
def test_the_least_penalty_gives_separable_data_an_optimum(solver, penalty):
    solution = solve(Problem("logistic", **penalty), *separable(), solver=solver)
    assert solution.converged
    assert solution.relative_gap <= 1e-6


@both_solvers
@pytest.mark.parametrize("loss", ["hinge", "smooth_hinge"])
def test_separable_data_without_penalty_have_a_hinge_optimum(loss, solver):
    solution = solve(Problem(loss), *separable(), solver=solver)
    assert solution.converged
    assert solution.value <= 1e-6


@every_value(both_solvers, loss=FIRST_ORDER)
def test_radius_zero_on_data_that_overlap(loss, solver):
    problem = Problem(loss)
    X, y = data_for(problem)
    solution = solve(problem, X, y, solver=solver)
    assert solution.converged
    t = (
        y * (X @ solution.coef + solution.intercept)
        if problem.is_classification
        else X @ solution.coef + solution.intercept - y
    )
    assert solution.value == pytest.approx(problem.loss.value(t).mean(), rel=1e-12)


@both_solvers
def test_an_exact_fit_without_penalty(solver):
    X, _ = targets()
    solution = solve(Problem("absolute"), X, X @ np.array([1.0, 2.0, -1.0]) + 3.0, solver=solver)
    assert solution.converged
    np.testing.assert_allclose(solution.coef, [1.0, 2.0, -1.0], atol=1e-5)
    assert solution.intercept == pytest.approx(3.0, abs=1e-5)


# Hard cases: labels, weights, columns


@every_pair(both_solvers, loss=["logistic", "hinge", "smooth_hinge"], label_cost=[1e-1, 1e-3, 1e-6])
def test_labels_that_cost_next_to_nothing(loss, label_cost, solver):
    """An adversary who flips for nothing makes every label worthless: the best model says nothing."""
    problem = Problem(loss, radius=0.1, label_cost=label_cost)
    X, y = classes()
    solution = solve(problem, X, y, solver=solver)
    assert solution.converged
    empty = problem.risk(np.zeros(3), 0.0, X, y)
    assert solution.value <= empty * (1.0 + 1e-6)
    if label_cost <= 1e-3:
        assert solution.value == pytest.approx(empty, rel=1e-2)


@every_value(both_solvers, every_norm)
def test_a_singular_gram_matrix(norm, solver):
    X, y = classes()
    wide = np.column_stack([X, X[:, 0], X @ [1.0, 1.0, 1.0], np.full(len(y), 5.0), np.zeros(len(y))])
    for loss in ("logistic", "hinge", "smooth_hinge"):
        solution = solve(Problem(loss, radius=0.02, norm=norm), wide, y, solver=solver)
        assert solution.converged
        assert solution.relative_gap <= 1e-6


@every_value(both_solvers, loss=FIRST_ORDER)
def test_rows_of_no_weight_are_rows_that_are_not_there(loss, solver):
    problem = Problem(loss, radius=0.1, label_cost=1.0)
    X, y = data_for(problem)
    weights = np.where(np.arange(len(y)) % 3 == 2, 0.0, 1.0 + np.arange(len(y)) % 2)
    X = np.where(weights[:, None] > 0.0, X, 1e3)
    kept = weights > 0.0
    weighted = solve(problem, X, y, weights, solver=solver)
    dropped = solve(problem, X[kept], y[kept], weights[kept], solver=solver)
    assert weighted.value == pytest.approx(dropped.value, rel=1e-6)
    assert weighted.converged
    assert dropped.converged
    assert weighted.dual.stay.shape == y.shape


@every_value(both_solvers, loss=FIRST_ORDER)
def test_all_the_weight_on_few_rows(loss, solver):
    problem = Problem(loss, radius=0.1)
    X, y = data_for(problem)
    weights = np.full(len(y), 1e-9)
    weights[:4] = 1.0
    solution = solve(problem, X, y, weights, solver=solver)
    alone = solve(problem, X[:4], y[:4], solver=solver)
    assert solution.converged
    assert solution.value == pytest.approx(alone.value, rel=1e-5)


@every_value(both_solvers, loss=FIRST_ORDER)
def test_a_row_repeated_is_a_row_that_weighs_more(loss, solver):
    problem = Problem(loss, radius=0.1, label_cost=2.0)
    X, y = data_for(problem, n=30)
    counts = 1 + np.arange(30) % 3
    many = solve(problem, np.repeat(X, counts, axis=0), np.repeat(y, counts), solver=solver)
    heavy = solve(problem, X, y, counts, solver=solver)
    scaled = solve(problem, X, y, 1e6 * counts, solver=solver)
    assert many.value == pytest.approx(heavy.value, rel=1e-6)
    assert scaled.value == pytest.approx(heavy.value, rel=1e-9)


@every_pair(both_solvers, every_norm, n_m=[(2, 1), (2, 7), (3, 40), (12, 30)])
def test_fewer_rows_than_features(n_m, norm, solver):
    for loss in ("logistic", "hinge", "huber"):
        problem = Problem(loss, radius=0.2, norm=norm, label_cost=3.0)
        solution = solve(problem, *data_for(problem, *n_m), solver=solver)
        assert solution.converged
        assert solution.relative_gap <= 1e-6


@every_value(both_solvers, every_norm)
def test_prices_per_feature(norm, solver):
    """A column ten times as long whose moves cost a tenth is the same column."""
    X, y = classes()
    stretch = np.array([10.0, 1.0, 0.1])
    plain = solve(Problem("logistic", radius=0.1, norm=norm, label_cost=2.0), X, y, solver=solver)
    priced = Problem("logistic", radius=0.1, norm=get_norm(norm, 1.0 / stretch), label_cost=2.0)
    scaled = solve(priced, X * stretch, y, solver=solver)
    assert scaled.value == pytest.approx(plain.value, rel=1e-6)


@every_value(both_solvers, every_norm)
def test_features_that_cannot_move_are_free(norm, solver):
    X, y = classes()
    solution = solve(Problem("hinge", radius=0.3, norm=get_norm(norm, [np.inf, 1.0, 1.0])), X, y, solver=solver)
    assert solution.converged
    assert abs(solution.coef[0]) > 0.1
    # A column a thousand times as long is as good as immovable, for a thousandth of its coefficient does.
    nearly = solve(Problem("hinge", radius=0.3, norm=norm), X * [1e3, 1.0, 1.0], y, solver=solver)
    assert solution.value == pytest.approx(nearly.value, rel=5e-3)


@every_value(
    both_solvers,
    loss=["huber", "pinball", "epsilon_insensitive", "absolute"],
    scale=[1e-3, 1.0, 1e3, 1e6],
    offset=[0.0, 1e4],
)
def test_targets_of_any_size(loss, scale, offset, solver):
    problem = Problem(loss, radius=0.1)
    X, y = targets()
    solution = solve(problem, X, scale * y + offset, solver=solver)
    assert solution.converged


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("power", [1.5, 4.8])
def test_a_power_where_no_feature_can_move(norm, power):
    """The only price is infinite, so the dual norm is zero whatever the coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(14, 1))
    y = 2.0 * X[:, 0] + rng.normal(size=14)
    problem = Problem("power", power=power, radius=0.03, norm=norm, feature_weights=[np.inf], label_cost=0.2)
    found = solve(problem, X, y)
    assert found.value == pytest.approx(problem.risk(found.coef, found.intercept, X, y), rel=1e-9)
    assert found.relative_gap <= 1e-3


def test_a_loss_that_vanishes_is_never_unbounded():
    """Margins a rounding error below 1 were taken for a model whose every multiple is better."""
    X, y = np.array([[3.0], [1.0], [-1.0], [-7.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    for loss in ("hinge", "smooth_hinge", "squared_hinge"):
        problem = Problem(loss)
        assert not runs_away(problem, problem.validate(X, y), np.array([1.0 - 1e-11]), 0.0)
    problem = Problem("logistic")
    assert runs_away(problem, problem.validate(X, y), np.array([1.0]), 0.0)
