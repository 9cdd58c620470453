"""Many classes at once: the dual against brute force, the solvers against each other, the bound against everything."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import DualCoreset, GridCoreset, ImportanceCoreset, Problem, UniformCoreset, fit_coreset, solve
from dualcore.certificates.softmax.bound import NewtonStep, lower_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.certificates.softmax.transport import Transport, routing_cost
from dualcore.solvers import IncompatibleError
from many_classes import certify_model, softmax_of
from pairs import every_value

NORMS = ("l1", "l2", "linf")
SETTINGS = {
    "plain": {},
    "flips": {"label_cost": 1.0},
    "ridge": {"ridge": 0.05},
    "flips and ridge": {"label_cost": 1.0, "ridge": 0.02},
    "no intercept": {"fit_intercept": False},
    "radius zero": {"radius": 0.0},
    "prices": {"feature_weights": [0.5, 1.0, 2.0, np.inf]},
}
every_norm = pytest.mark.parametrize("norm", NORMS)


def sample(n=90, m=4, n_classes=4, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, m))
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = np.arange(n_classes)
    return centres[y] + noise * rng.normal(size=(n, m)), y


def make(n_classes=4, **settings):
    return softmax_of(Problem("logistic", **({"radius": 0.1} | settings)), n_classes)


# Training


def test_radius_zero_is_plain_multinomial_regression():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    X, y = sample(seed=8, n=200, noise=2.0)
    solution = solve(make(radius=0.0), X, y, tol=1e-9)
    with np.errstate(all="ignore"):
        peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000).fit(X, y)
        assert solution.value == pytest.approx(log_loss(y, peer.predict_proba(X)), rel=1e-7)


def test_sparse_and_narrow_rows_give_the_same_model():
    X, y = sample(seed=9)
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32)
    problem = make(label_cost=2.0)
    dense = solve(problem, X.astype(np.float64), y, tol=1e-9)
    for other in (X, sp.csr_matrix(X), sp.csc_matrix(X)):
        np.testing.assert_allclose(solve(problem, other, y, tol=1e-9).coef, dense.coef, atol=1e-4)


def test_badly_scaled_columns_and_a_far_origin():
    X, y = sample(seed=10)
    stretch, offset = np.array([1e-3, 1.0, 1e3, 10.0]), np.array([0.0, 1e4, -1e3, 5.0])
    plain = solve(make(label_cost=2.0), X, y)
    scaled = solve(make(label_cost=2.0, feature_weights=1.0 / stretch), X * stretch + offset, y)
    assert scaled.converged
    assert scaled.value == pytest.approx(plain.value, rel=1e-5)


def test_separable_rows_without_a_penalty_have_no_minimiser():
    X, y = sample(seed=11, noise=0.01)
    with pytest.warns(Warning, match="separable"):
        solve(make(radius=0.0), X, y, max_iter=20)


def test_what_cannot_be_solved_is_said_before_work():
    for change, error, message in [
        ({"y": np.full(90, 0)}, ValueError, "no row of positive weight"),
        ({"y": np.full(90, 9)}, ValueError, "numbers 0 to"),
        ({"y": np.full(90, 0.5)}, ValueError, "numbers 0 to"),
        ({"y": np.zeros(3, dtype=int)}, ValueError, "one class number per row"),
        ({"solver": "newton"}, ValueError, "Unknown solver"),
        ({"X": np.ones((90, 900)), "solver": "structured"}, IncompatibleError, "too many"),
        ({"X": np.full((90, 4), np.nan)}, ValueError, "NaN"),
    ]:
        X, y = sample()
        asked = {"X": X, "y": y} | change
        with pytest.raises(error, match=message):
            solve(make(), asked.pop("X"), asked.pop("y"), **asked)


# The bound


@every_value(every_norm, name=list(SETTINGS))
def test_no_dual_point_exceeds_the_optimum(norm, name):
    """Not even wild ones: any tilt, any flow, any labels."""
    rng = np.random.default_rng(12)
    X, y = sample(seed=13, n=40)
    problem = make(norm=norm, **SETTINGS[name])
    with warnings.catch_warnings():  # without a radius one class of these runs away from the others, and says so
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = solve(problem, X, y, tol=1e-9)
    data = problem.validate(X, y)
    design = ClassDesign.of(problem, data)
    for trial in range(25):
        W = design.weights(best.coef, best.intercept) * rng.uniform(0.0, 2.0) + rng.normal(size=design.shape) * (
            trial % 3
        )
        moment = rng.normal(size=(4, 4)) * rng.choice([0.0, 0.01, 0.1])
        moment -= moment.mean(axis=0)
        if design.norm.weights is not None:
            moment[:, np.isinf(design.norm.weights)] = 0.0
        flips = Flips.none()
        if problem.family.flips and trial % 2:
            rows = np.sort(rng.choice(40, size=5, replace=False))
            flips = Flips(rows, (y[rows] + 1 + rng.integers(3, size=5)) % 4, rng.uniform(size=5))
            flips = flips.within(problem.radius, data, problem.geometry.label_cost)
        step = NewtonStep(
            W,
            rng.normal(size=W.shape) * rng.choice([0.0, 0.1, 1.0]),
            flips,
            Transport(moment, routing_cost(design.norm, moment)),
        )
        assert lower_bound(design, W, step, best.value).value <= best.value * (1.0 + 1e-12)


@every_norm
def test_a_flow_costs_at_least_what_its_moment_is_worth(norm):
    """``sum_j theta_j . M_j <= cost max ||theta_j - theta_k||_*``, with equality somewhere for the l1 norm."""
    rng = np.random.default_rng(14)
    problem = make(5, norm=norm)
    moment = rng.normal(size=(5, 3))
    moment -= moment.mean(axis=0)
    cost = routing_cost(problem.geometry.norm, moment)
    worth = max((coef * moment).sum() / problem.size(coef) for coef in rng.normal(size=(2000, 5, 3)))
    assert worth <= cost
    if norm == "l1":
        assert (np.sign(moment) * moment).sum() / problem.size(np.sign(moment)) == pytest.approx(cost)


def test_a_certificate_of_a_model_from_elsewhere():
    X, y = sample(seed=15, n=600)
    for settings in SETTINGS.values():
        problem = make(**settings)
        best = solve(problem, X, y)
        part = solve(problem, X[:200], y[:200])
        known = certify_model(problem, part.coef, part.intercept, X, y)
        assert known.upper == problem.risk(part.coef, part.intercept, X, y)
        assert known.lower <= best.value
        assert known.gap <= 1.2 * (known.upper - best.value) + 1e-6


# Coresets


def test_a_coreset_of_many_classes_gives_back_the_model():
    """150 of 2,000 rows; a draw as the paper has it misses the optimum by a percent or two here."""
    X, y = sample(seed=20, n=2000, noise=2.0)
    problem = make(label_cost=2.0)
    fit = fit_coreset(problem, X, y, DualCoreset(size=150), random_state=0)
    alone = solve(problem, fit.coreset.X, fit.coreset.y, fit.coreset.weights, tol=1e-8)
    risk = problem.risk(alone.coef, alone.intercept, X, y)
    assert risk <= solve(problem, X, y).value * (1.0 + 1e-4)


def test_a_coreset_that_is_not_supported_is_refused():
    for coreset, error, message in [
        (ImportanceCoreset(size=0.1), ValueError, "multinomial"),
        (GridCoreset(size=0.1, epsilon=0.1, parameter_radius=1.0), ValueError, "epsilon"),
        ("a tenth", TypeError, "a size"),
        (3, ValueError, "cannot hold 4 classes"),
        (UniformCoreset(size=3), ValueError, "cannot hold 4 classes"),
        (GridCoreset(size=3), ValueError, "cannot hold 4 classes"),
    ]:
        X, y = sample()
        with pytest.raises(error, match=message):
            fit_coreset(make(), X, y, coreset)
