"""Problems whose answer hangs on few digits: far columns and targets, tiny risks and budgets, columns of zeros."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.solvers import Status
from dualcore.solvers.scoring import _lengthening
from expected import may_stop_early
from pairs import every_value


def line(seed, *, n=40, m=2, noise=1.0):
    rng = np.random.default_rng(seed)
    X = np.round(2.0**13 * rng.normal(size=(n, m))) / 2.0**13  # exact beside an offset of 2^38
    return X, X @ rng.uniform(1.0, 2.0, size=m) + noise * rng.normal(size=n)


# Models in the units of the user


@every_value(
    loss=["hinge", "absolute"],
    offsets=[(2.0**37 * 1.37, 2.0**37 * 1.37), (2.0**37 * 1.37, 0.0), (2.0**36 * 1.1, 2.0**30)],
)
def test_columns_far_from_the_origin_leave_digits_enough(loss, offsets):
    X, y = line(0, noise=0.3)
    y = np.where(y > 0.0, 1.0, -1.0) if loss == "hinge" else y
    far = X + np.round(np.array(offsets))
    assert (far - np.round(np.array(offsets)) == X).all()
    found = solve(Problem(loss), far, y)
    assert found.status is Status.OPTIMAL
    assert found.value == pytest.approx(solve(Problem(loss), X, y).value, rel=1e-6)


@may_stop_early
def test_an_intercept_of_too_few_digits_is_no_early_stop():
    X, y = line(2, n=4)
    found = solve(Problem("absolute", radius=1e-3, ridge=1e-3), X, np.round(y * 2.0**10) / 2.0**10 + 2.0**40)
    assert found.status in (Status.UNCERTIFIED, Status.OPTIMAL)


# Small numbers


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_small_budget_beside_a_large_price_of_the_target(scale):
    X, y = line(4, n=27, m=3)
    problem = Problem("pinball", quantile=0.9, radius=1.5e-5, norm="l1", label_cost=6e-7 * scale, ridge=1e-9 / scale)
    assert solve(problem, X, scale * y).converged


def test_a_column_of_zeros_does_not_stop_a_power():
    X, y = line(5, n=90, m=2)
    settings = {"power": 4.0, "radius": 0.05, "norm": "l1", "label_cost": 0.2}
    plain = solve(Problem("power", **settings), X, y)
    found = solve(Problem("power", **settings), np.column_stack([np.zeros(90), X]), y)
    assert found.converged
    assert found.value == pytest.approx(plain.value, rel=1e-6)


def test_a_target_of_zeros_has_no_risk():
    X, _ = line(6, n=31, m=1)
    found = solve(Problem("pinball", quantile=0.3), X, np.zeros(31))
    assert found.converged
    assert found.value == 0.0


@pytest.mark.parametrize("seed", [1, 2])
def test_conic_has_digits_for_a_risk_that_only_the_radius_makes(seed):
    X, y = line(seed, n=4, m=8)
    found = solve(Problem("absolute", radius=1e-8), X * 10.0 ** np.linspace(-4.0, 6.0, 8), y, solver="conic")
    assert found.relative_gap <= 1e-4


# Descent that crawls


def test_descent_goes_on_while_its_gap_falls():
    """Sparse rows, more features than rows, all coefficients at the bound: the risk is exact long before its bound."""
    rng = np.random.default_rng(0)
    n, m, k = 300, 600, 20
    columns = np.concatenate([rng.choice(m, size=k, replace=False) for _ in range(n)])
    X = sp.csr_matrix((rng.uniform(0.1, 1.0, n * k), columns, np.arange(0, n * k + 1, k)), shape=(n, m))
    score = X @ rng.standard_normal(m)
    y = np.where(2.0 * score / score.std() + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    problem = Problem("logistic", radius=1e-2, norm="l1")
    found = solve(problem, X, y, solver="descent")
    assert found.status is Status.OPTIMAL
    assert found.value == pytest.approx(solve(problem, X, y, solver="structured").value, rel=1e-6)


def test_descent_of_a_high_power_turns_to_a_metric():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = X @ rng.normal(size=3) + 1e-3 * rng.normal(size=60)
    found = solve(Problem("power", power=8.0, radius=0.05, norm="l1"), X, y, solver="descent")
    assert found.status is Status.OPTIMAL
    assert found.iterations < 10
    assert found.gap == pytest.approx(found.value - found.lower_bound)


# Optima that are zero


@pytest.mark.parametrize("settings", [{"radius": 0.03}, {"radius": 0.03, "ridge": 0.002}, {"ridge": 0.1}])
def test_a_constant_target_is_fitted_exactly_whatever_is_penalised(settings):
    """Zero coefficients and the target as the intercept have no risk; an interior point left 1e-23 of it."""
    X, _ = line(4, n=100, m=1)
    found = solve(Problem("pinball", quantile=0.05, **settings), X, np.full(100, 7.9e8))
    assert found.status is Status.OPTIMAL
    assert found.value == 0.0
    assert (found.coef == 0.0).all()


@pytest.mark.parametrize("loss", ["hinge", "smooth_hinge", "squared_hinge"])
def test_margins_are_lengthened_to_where_the_loss_vanishes(loss):
    """A minimum is attained on separable data, however short of 1 a solver leaves the margins."""
    problem = Problem(loss, radius=0.0)
    factor = _lengthening(problem, np.array([1.0 - 1e-10, 3.0]))
    assert problem.loss.value(factor * np.array([1.0 - 1e-10, 3.0])).max() == 0.0
    assert _lengthening(problem, np.array([1.0, 3.0])) == 1.0
    assert _lengthening(problem, np.array([-1e-10, 3.0])) == 1.0


def test_no_margin_makes_the_logistic_loss_vanish():
    assert _lengthening(Problem("logistic", radius=0.0), np.array([0.3, 3.0])) == 1.0
