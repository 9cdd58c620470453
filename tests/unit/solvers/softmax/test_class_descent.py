"""Many classes by products with X: the smoothed widest difference, its flows, the descent and its bound."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from dualcore import PartsSource, Problem, certify, solve
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.widest import widest_for
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.solvers.base import IncompatibleError
from dualcore.solvers.softmax import class_models
from dualcore.solvers.softmax.descent import ClassDescent
from pairs import every_value

NORMS = {"l1": L1Norm(), "l2": L2Norm(), "linf": LinfNorm()}
each_norm = pytest.mark.parametrize("norm", NORMS)


def make(n_classes=4, *, n=300, m=6, seed=0, spread=1.0):
    """Rows around one centre for every class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return spread * rng.normal(size=(n_classes, m))[y] + rng.normal(size=(n, m)), y


@each_norm
def test_a_smoothed_difference_has_its_gradient(norm):
    rng = np.random.default_rng(1)
    widest = widest_for(NORMS[norm], 5, 7)
    U = rng.normal(size=(5, 7))
    for _ in range(3):
        found = widest.at(U, 0.4)
        step = rng.normal(size=U.shape)
        ahead, behind = (widest.at(U + sign * 1e-6 * step, 0.4).value for sign in (1.0, -1.0))
        assert (ahead - behind) / 2e-6 == pytest.approx(float((found.gradient * step).sum()), rel=1e-5, abs=1e-7)
        widest.renew(found.shares, 1e-3)


@each_norm
def test_a_flow_holds_every_model(norm):
    """``<M, U> <= cost * kappa(U)`` for the divergence M that a cost is stated for, whatever the model U."""
    rng = np.random.default_rng(3)
    widest = widest_for(NORMS[norm], 5, 4)
    for trial in range(20):
        U, rest = rng.normal(size=(5, 4)), (0.0 if trial == 0 else 0.3) * rng.normal(size=(5, 4))
        rest -= rest.mean(axis=0)
        found = widest.at(U, 0.2)
        gradient = found.gradient - found.gradient.mean(axis=0)
        cost = widest.cost(U, 0.2, found._replace(gradient=gradient), 0.7, rest)
        moment = 0.7 * gradient + rest
        for _ in range(200):
            other = rng.normal(size=(5, 4)) * rng.integers(0, 2, size=(5, 4))
            assert float((moment * other).sum()) <= cost * widest.exact(other) * (1.0 + 1e-12) + 1e-12
        widest.renew(found.shares, 1e-3)


@each_norm
def test_more_numbers_than_newton_takes(norm):
    X, y = make(12, n=600, m=260, seed=2, spread=0.4)
    problem = Problem("softmax", n_classes=12, radius={"l1": 0.02, "l2": 0.1, "linf": 0.02}[norm], norm=norm)
    found = solve(problem, X.astype(np.float32), y, tol=1e-2)
    assert found.solver == "descent"
    assert found.converged
    assert found.coef.shape == (12, 260)
    lean = solve(problem, sp.csr_matrix(X.astype(np.float32)), y, tol=1e-2)
    assert lean.value == pytest.approx(found.value, rel=2e-2)
    assert max(lean.lower_bound, found.lower_bound) <= min(lean.value, found.value)


def test_a_model_of_many_numbers_is_certified():
    X, y = make(12, n=600, m=260, seed=2, spread=0.4)
    problem = Problem("softmax", n_classes=12, radius=0.1)
    found = solve(problem, X, y, tol=1e-2)
    known = certify(problem, found, X, y)
    assert known.upper == pytest.approx(found.value, rel=1e-12)
    assert known.lower <= found.value
    assert known.relative_gap < 0.05
    poor = certify(problem, SimpleNamespace(coef=0.3 * found.coef, intercept=found.intercept), X, y)
    assert poor.lower <= found.value
    assert poor.lower > 0.8 * found.value


def test_reads_of_a_source_train_the_same_model():
    X, y = make(5, n=3000, m=30, seed=4)
    problem = Problem("softmax", n_classes=5, radius=0.1)
    here = solve(problem, X, y, tol=1e-3, solver="descent")
    read = solve(
        problem,
        PartsSource(lambda: ((X[k : k + 500], y[k : k + 500].astype(float)) for k in range(0, 3000, 500))),
        tol=1e-3,
        solver="descent",
    )
    assert read.converged
    assert read.value == pytest.approx(here.value, rel=2e-3)
    assert here.iterations <= read.n_reads <= 120


def test_too_many_numbers_for_newton_names_the_solver_that_takes_them():
    X, y = make(3, n=40, m=1000)
    problem = Problem("softmax", n_classes=3, radius=0.1)
    with pytest.raises(IncompatibleError, match=r"3003 numbers, too many .* Use solver='descent'"):
        solve(problem, X, y, solver="structured")
    assert solve(problem, X, y, tol=1e-2).solver == "descent"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_descent_goes_on_where_nothing_bounds_the_risk():
    """Without a penalty descent has no bound: it ends where rounds gain nothing, not after the first one."""
    X, y = make(3, n=200, m=5, seed=6)
    problem = Problem("softmax", n_classes=3, radius=0.0)
    best = solve(problem, X, y, solver="structured")
    assert best.status.name == "OPTIMAL"
    assert solve(problem, 1e3 * X**3, y, solver="descent").iterations > 40  # badly conditioned, a round is 30
    assert solve(problem, X, y, solver="descent").value == pytest.approx(best.value, rel=1e-6)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_flips_that_spend_the_radius_are_certified(norm):
    """What is left of the gradient is priced there: the widest difference keeps next to no budget of its own."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 16.0, y[:500]
    problem = Problem("softmax", n_classes=10, radius=0.05, norm=norm, label_cost=0.2)
    found = solve(problem, X, y, solver="descent", tol=1e-3)
    assert found.relative_gap <= 1e-3


@each_norm
@pytest.mark.parametrize("label_cost", [0.3, 1.0])
def test_bounds_along_the_way_stay_below_the_optimum(norm, label_cost):
    """Far from the optimum, too, where changes of label spend all of the radius or too much of it."""
    X, y = make(3, n=120, m=4, seed=5)
    problem = Problem("softmax", n_classes=3, norm=norm, radius=0.1, label_cost=label_cost)
    best = solve(problem, X, y, solver="structured", tol=1e-9).value
    data = problem.validate(X, y.astype(float))
    for evaluations in (3, 8, 20, 60):
        descent = ClassDescent(ClassDesign.of(problem, data), 1e-9, evaluations)
        descent.run()
        assert descent.lower.value <= best * (1.0 + 1e-8)
        assert descent.upper >= best * (1.0 - 1e-8)
    assert descent.lower.value >= 0.9 * best


def images(n, m, n_classes):
    """Rows in [0, 1], most of their features small."""
    rng, y = np.random.default_rng(5), np.arange(n) % n_classes
    lit = rng.random((n_classes, m))[y] * (rng.random((n, m)) < 0.4)
    return np.clip(lit + 0.1 * rng.random((n, m)), 0.0, 1.0), y


@pytest.mark.parametrize("radius", [0.002, 0.005])
def test_changes_of_label_start_from_the_model_without_them(radius):
    """Without that start 400 evaluations are needed here, and on real images the run ends above the risk of chance."""
    X, y = images(300, 300, 10)
    problem = Problem("softmax", n_classes=10, norm="linf", radius=radius, label_cost=1.0)
    found = solve(problem, X, y, solver="descent", tol=1e-3)
    assert found.converged
    assert found.iterations < 250
    assert found.value >= solve(problem.replace(label_cost=np.inf), X, y, solver="descent", tol=1e-3).lower_bound


def test_many_sparse_coefficients_reach_the_default_tolerance():
    """With linf most coefficients are equal in all classes: their signs want wide smoothing, their priors no floor."""
    X, y = images(240, 300, 4)
    found = solve(Problem("softmax", n_classes=4, norm="linf", radius=0.01), X, y, solver="descent")
    assert found.converged
    assert found.relative_gap <= 1e-6


@every_value(each_norm, label_cost=[np.inf, 1.0])
def test_a_start_is_never_left_for_a_worse_model(norm, label_cost):
    """Rounds with wide smoothing begin by going uphill from an optimum."""
    X, y = make(n=400)
    problem = Problem("softmax", n_classes=4, norm=norm, radius=0.05, label_cost=label_cost)
    best = solve(problem, X, y)
    again = solve(problem, X, y, solver="descent", tol=0.05, warm_start=best)
    assert again.value <= best.value * (1.0 + 1e-12)


@each_norm
@pytest.mark.parametrize("label_cost", [np.inf, 1.0])
def test_models_along_radii_are_as_near_as_asked(norm, label_cost):
    X, y = make()
    problem = Problem("softmax", n_classes=4, norm=norm, label_cost=label_cost)
    data, radii = problem.validate(X + 50.0, y.astype(float)), [0.003, 0.03, 0.3]
    for radius, model in zip(radii, class_models(problem, data, radii, 1e-3, 200), strict=True):
        best = solve(problem.replace(radius=radius), data.rows, data.y, tol=1e-6).value
        risk = problem.replace(radius=radius).evaluate(model.coef, model.intercept, data).value
        assert best * (1.0 - 1e-6) <= risk <= best * (1.0 + 1e-3)
