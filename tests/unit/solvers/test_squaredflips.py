"""The squared hinge whose labels may flip, by Newton's method on the smoothed maximum."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from dualcore import Problem, solve
from dualcore.certificates import lower_bound
from dualcore.solvers.cones import ScaledRows, spread_dual
from dualcore.solvers.squaredflips import FlipDescent
from pairs import every_value


def sample(n=120, m=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = np.where(X.sum(axis=1) / np.sqrt(m) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return X, y


def descent(problem, X, y, weights=None):
    data = problem.validate(X, y, weights)
    return FlipDescent(problem, ScaledRows.of(problem, data)), data


@every_value(
    pytest.mark.parametrize(
        ("radius", "label_cost", "ridge"), [(0.1, 0.4, 0.0), (0.1, 0.4, 0.05), (0.3, 0.7, 0.0), (0.02, 0.1, 0.0)]
    ),
    norm=["l1", "l2", "linf"],
)
def test_the_value_is_that_of_the_cone_program(norm, radius, label_cost, ridge):
    X, y = sample()
    problem = Problem("squared_hinge", radius=radius, norm=norm, label_cost=label_cost, ridge=ridge)
    found, known = solve(problem, X, y, solver="power"), solve(problem, X, y, solver="conic")
    assert problem.evaluate(found.coef, found.intercept, problem.validate(X, y)).multiplier > 0.0
    assert found.converged
    assert_allclose(found.value, known.value, rtol=1e-6)
    assert found.lower_bound <= known.value * (1.0 + 1e-9) + known.rounding


@pytest.mark.parametrize("kind", ["weights", "sparse", "no intercept", "prices"])
def test_other_data_and_settings_are_solved_alike(kind):
    X, y = sample(seed=3)
    settings, weights = {"radius": 0.1, "label_cost": 0.4}, None
    if kind == "weights":
        weights = np.random.default_rng(1).exponential(size=y.size) * (np.arange(y.size) % 5 > 0)
    elif kind == "sparse":
        X = sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    elif kind == "no intercept":
        settings["fit_intercept"] = False
    else:
        settings["feature_weights"] = [1.0, 0.3, 2.0, np.inf]
    problem = Problem("squared_hinge", **settings)
    found, known = solve(problem, X, y, weights, solver="power"), solve(problem, X, y, weights, solver="conic")
    assert found.converged
    assert_allclose(found.value, known.value, rtol=1e-6)


@pytest.mark.parametrize("width", [0.3, 0.03])
def test_the_derivatives_of_the_smoothed_risk_are_those_of_differences(width):
    X, y = sample()
    problem = Problem("squared_hinge", radius=0.3, label_cost=0.4, ridge=0.1)
    engine, _ = descent(problem, X, y)
    x = np.array([0.8, 0.5, 0.6, 0.9, 0.1])
    here = engine.at(x, 1.0, width)
    near = engine.expand(here, width)
    assert near.roughness > 0.0  # rows are tied: the hard part of the Hessian is there
    # At its best the multiplier has no slope.
    assert abs(near.gradient[-2]) < 1e-9

    def risk(shift):
        return engine.at(x + shift, here.multiplier, width).cost

    size = x[:4] / engine.design.scale
    along = size / engine.problem.geometry.norm.dual(size) / engine.design.scale  # of the dual norm, l2
    total = near.gradient[:5] + near.gradient[-1] * np.append(along, 0.0)
    for j, unit in enumerate(np.eye(5)):
        assert_allclose((risk(1e-6 * unit) - risk(-1e-6 * unit)) / 2e-6, total[j], rtol=2e-5, atol=1e-7)


def test_the_second_derivatives_in_margin_multiplier_and_norm_are_those_of_differences():
    t, lam, k = np.array([-2.0, 0.3, 1.5, 4.0, 9.0]), 2.0, 0.9
    engine, _ = descent(Problem("squared_hinge", radius=0.3, label_cost=1.4), *sample())
    at = np.array([0.0, lam, k])
    for branch, of_values in zip(engine._branches(t, lam, k), (0, 1), strict=True):
        assert_allclose(branch.value, engine._values(t, lam, k)[of_values])
        for entry, (i, j) in enumerate([(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]):
            step = 1e-6 * np.eye(3)[j]
            up, down = (engine._branches(t + s[0], *(at + s)[1:])[of_values].first[i] for s in (step, -step))
            assert_allclose((up - down) / 2e-6, branch.second[entry], rtol=1e-4, atol=1e-6)


def test_a_row_far_out_whose_share_rounding_hides_is_certified():
    """Its gain is a difference of numbers of 1e6, its share 1e-6: only the budget knows the digits of the share."""
    X, y = sample(n=400)
    X[0], y[0] = 600.0 * np.ones(4), 1.0
    problem = Problem("squared_hinge", radius=1e-5, label_cost=0.15, norm="l1")
    found = solve(problem, X, y)
    assert found.solver == "power"
    assert found.converged


@pytest.mark.parametrize("seed", range(5))
def test_the_shares_spend_the_budget_and_the_bound_is_none_above_the_optimum(seed):
    X, y = sample(seed=seed)
    problem = Problem("squared_hinge", radius=0.2, label_cost=0.5)
    engine, data = descent(problem, X, y)
    known = solve(problem, X, y, solver="conic")
    for width in (0.3, 0.01):
        place, _ = engine.minimise(engine.start(0.5 * known.coef, 0.0), width, 1e-6, 50, [])
        dual = engine.dual(place, width)
        point = spread_dual(problem, data, engine.design, dual)
        assert problem.geometry.label_cost**2 * float(data.masses @ point.share) <= problem.price
        risk = problem.evaluate(*engine.design.model(place.x), data).value
        bound = lower_bound(problem, data, point, risk, repair=False)
        assert 0.5 * known.value < bound <= known.value * (1.0 + 1e-9)


def test_where_no_flip_pays_the_optimum_of_fixed_labels_is_returned():
    X, y = sample()
    problem = Problem("squared_hinge", radius=0.01, label_cost=50.0)
    found = solve(problem, X, y, solver="power")
    assert_allclose(found.value, solve(problem.replace(label_cost=np.inf), X, y).value, rtol=1e-7)
    assert found.converged


def test_separated_rows_without_curvature_are_left_to_the_second_opinion():
    X, y = np.array([[3.0], [2.0], [-2.0], [-3.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    problem = Problem("squared_hinge", radius=0.1, label_cost=0.5)
    assert solve(problem, X, y).converged
