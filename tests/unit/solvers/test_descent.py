"""The descent solver: agreement with the other solvers, valid certificates, and every kind of rows."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.certificates import lower_bound
from dualcore.problem.losses import MarginLoss
from dualcore.solvers.descent import DescentSolver
from own_losses import LogCosh
from pairs import every_pair, every_value

NORMS = ("l1", "l2", "linf")
MARGINS = ("logistic", "hinge", "smooth_hinge")
RESIDUALS = ("huber", "pinball", "epsilon_insensitive", "absolute")
TOL = 1e-6

every_norm = pytest.mark.parametrize("norm", NORMS)


class Doubled(MarginLoss):
    """Twice the hinge loss with its kink at zero: a kink and a Lipschitz constant of the user's own."""

    name = "doubled"
    lipschitz = 2.0
    kinks = (0.0,)

    def value(self, t):
        return np.maximum(-2.0 * t, 0.0)

    def slope(self, t):
        return np.where(t < 0.0, -2.0, 0.0)

    def conjugate(self, s):
        return np.where((s >= -2.0) & (s <= 0.0), 0.0, np.inf)


def sample(problem: Problem, n: int = 80, m: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.3, 3.0, size=m) + rng.normal(size=m)
    score = 0.5 * (X @ rng.normal(size=m)) + rng.normal(size=n) + 0.2
    return X, np.where(score > np.median(score), 1.0, -1.0) if problem.is_classification else score


def check(problem: Problem, X: Any, y: np.ndarray, weights: Any = None, *, certified: bool = True) -> None:
    """Compare with the default solver, and hold the bound against its optimum."""
    known = solve(problem, X, y, weights, tol=1e-8)
    found = solve(problem, X, y, weights, solver="descent", tol=TOL)
    assert found.solver == "descent"
    assert found.value == pytest.approx(known.value, rel=1.5 * TOL)
    assert found.lower_bound <= known.value * (1.0 + 1e-9)
    if certified:
        assert found.converged
        assert found.relative_gap <= TOL


@every_pair(every_norm, loss=MARGINS, label_cost=[np.inf, 1.0], fit_intercept=[True, False])
def test_margins_agree(loss, norm, label_cost, fit_intercept):
    problem = Problem(loss, radius=0.1, norm=norm, label_cost=label_cost, fit_intercept=fit_intercept)
    check(problem, *sample(problem))


@every_pair(every_norm, loss=RESIDUALS, label_cost=[np.inf, 2.0])
def test_residuals_agree(loss, norm, label_cost):
    problem = Problem(loss, radius=0.1, norm=norm, label_cost=label_cost)
    check(problem, *sample(problem))


@every_value(every_norm, loss=["squared", "squared_hinge"])
def test_squares_agree(loss, norm):
    problem = Problem(loss, radius=0.1, norm=norm)
    check(problem, *sample(problem))


@every_value(every_norm, loss=["logistic", "huber"])
def test_ridge_and_weights_agree(loss, norm):
    problem = Problem(loss, radius=0.1, norm=norm, ridge=0.05)
    X, y = sample(problem)
    weights = np.random.default_rng(1).uniform(size=y.size)
    weights[::7] = 0.0
    check(problem, X, y, weights)


@every_value(every_norm, loss=["logistic", "hinge", "squared"])
def test_feature_weights_agree(loss, norm):
    problem = Problem(loss, radius=0.1, norm=norm, feature_weights=[1.0, 2.0, 0.5, 1.5, 3.0])
    check(problem, *sample(problem))


@every_value(every_norm, loss=["logistic", "smooth_hinge", "squared_hinge", "huber"])
def test_immovable_features_agree_and_are_certified(loss, norm):
    problem = Problem(loss, radius=0.1, norm=norm, feature_weights=[1.0, 2.0, np.inf, 1.5, 3.0])
    check(problem, *sample(problem))


@pytest.mark.parametrize("loss", [LogCosh(), Doubled()], ids=["smooth", "kinked"])
def test_losses_of_the_users_own_agree(loss):
    problem = Problem(loss, radius=0.1)
    check(problem, *sample(problem))


@every_norm
def test_a_large_radius_leaves_no_coefficient(norm):
    problem = Problem("logistic", radius=50.0, norm=norm)
    X, y = sample(problem)
    found = solve(problem, X, y, solver="descent", tol=1e-8)
    assert found.converged
    assert not found.coef.any()


def test_agreement_with_cvxpy():
    cp = pytest.importorskip("cvxpy")
    problem = Problem("hinge", radius=0.1, norm="linf", label_cost=1.0)
    X, y = sample(problem)
    theta, b, lam = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
    margin = cp.multiply(y, X @ theta + b)
    rows = cp.maximum(cp.pos(1 - margin), cp.pos(1 + margin) - lam)
    model = cp.Problem(cp.Minimize(0.1 * lam + cp.sum(rows) / y.size), [lam >= cp.norm(theta, 1)])
    model.solve(solver="CLARABEL")
    found = solve(problem, X, y, solver="descent", tol=TOL)
    assert found.value == pytest.approx(model.value, rel=1e-6)
    assert found.lower_bound <= model.value + 1e-8


@every_value(every_norm, label_cost=[np.inf, 1.0])
def test_the_bound_returned_is_that_of_the_dual_point(norm, label_cost):
    problem = Problem("hinge", radius=0.1, norm=norm, label_cost=label_cost)
    X, y = sample(problem)
    data = problem.validate(X, y)
    raw = DescentSolver().run(problem, data, tol=1e-4, max_iter=200, start=None)
    value = problem.evaluate(raw.coef, raw.intercept, data).value
    bound = lower_bound(problem, data, raw.dual, value, repair=False)
    assert not raw.stopped_early
    assert value - 1e-4 * value <= bound <= solve(problem, X, y, tol=1e-9).value * (1.0 + 1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_columns_of_any_scale(norm):
    """Scaled columns with scaled prices are the same problem."""
    plain = Problem("logistic", radius=0.1, norm=norm)
    X, y = sample(plain)
    scales = np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])
    scaled = Problem("logistic", radius=0.1, norm=norm, feature_weights=1.0 / scales)
    one = solve(plain, X, y, solver="descent", tol=TOL)
    other = solve(scaled, X * scales, y, solver="descent", tol=TOL)
    assert other.converged
    assert other.value == pytest.approx(one.value, rel=1e-6)
    np.testing.assert_allclose(other.coef * scales, one.coef, atol=1e-3 * np.abs(one.coef).max())


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_columns_far_from_zero(offset):
    problem = Problem("logistic", radius=0.1)
    X, y = sample(problem)
    near = solve(problem, X, y, solver="descent", tol=TOL)
    far = solve(problem, X + offset, y, solver="descent", tol=TOL)
    assert far.converged
    assert far.value == pytest.approx(near.value, rel=1e-6)


@every_value(kind=[sp.csr_matrix, sp.csc_matrix], norm=NORMS)
def test_sparse_rows_are_dense_rows(kind, norm):
    problem = Problem("logistic", radius=0.02, norm=norm)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 12)) * (rng.random((200, 12)) < 0.3)
    y = np.where(X @ rng.normal(size=12) + 0.5 * rng.normal(size=200) > 0.0, 1.0, -1.0)
    dense, sparse = (solve(problem, rows, y, solver="descent", tol=1e-7) for rows in (X, kind(X)))
    assert sparse.converged
    assert sparse.value == pytest.approx(dense.value, rel=1e-7)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("tol", [1e-5, 1e-8])
def test_single_precision(order, tol):
    """The products are in single precision, and in double where the tolerance needs it."""
    problem = Problem("logistic", radius=0.05)
    X, y = sample(problem, n=400, m=8)
    single = np.asarray(X, dtype=np.float32, order=order)
    found = solve(problem, single, y, solver="descent", tol=tol)
    assert found.converged
    assert found.value == pytest.approx(solve(problem, single.astype(np.float64), y, tol=1e-9).value, rel=tol)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_many_features_need_no_square_matrix(monkeypatch, norm):
    problem = Problem("logistic", radius=0.05, norm=norm)
    X, y = sample(problem, n=150, m=12)
    known = solve(problem, X, y, solver="descent", tol=TOL)
    monkeypatch.setattr("dualcore.solvers.descent.solver.MOST_FEATURES", 4)
    found = solve(problem, X, y, solver="descent", tol=TOL)
    assert found.converged
    assert found.value == pytest.approx(known.value, rel=1.5 * TOL)


def test_wide_sparse_rows_are_never_written_out():
    rng = np.random.default_rng(0)
    n, m = 1000, 20_000
    X = sp.random(n, m, density=2e-3, random_state=0, format="csr")
    y = np.where(np.asarray(X[:, :50].sum(axis=1)).ravel() + 0.1 * rng.normal(size=n) > 0.05, 1.0, -1.0)
    problem = Problem("logistic", radius=1e-3)
    tracemalloc.start()
    found = solve(problem, X, y, solver="descent", tol=1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.converged
    assert peak < 0.2 * (8 * n * m)  # 32 MB, and a solve takes 28; the rows written out would take 160 MB


def test_dense_rows_are_not_copied():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 100), dtype=np.float32)
    y = np.where(X[:, 0] + rng.normal(size=60_000) > 0.0, 1.0, -1.0)
    data = Problem("logistic", radius=0.05).validate(X, y)
    tracemalloc.start()
    DescentSolver().run(Problem("logistic", radius=0.05), data, tol=1e-4, max_iter=200, start=None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.9 * X.nbytes
