"""Many classes at once: the dual against brute force, the solvers against each other, the bound against everything."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from dualcore.coresets.softmax import SoftmaxProblem, certify_softmax, fit_softmax_coreset, solve_softmax
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from dualcore import DualCoreset, GridCoreset, ImportanceCoreset, Problem, UniformCoreset, solve
from dualcore.certificates.softmax.bound import NewtonStep, lower_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.certificates.softmax.transport import Transport, routing_cost
from dualcore.problem.geometry import get_norm
from dualcore.solvers import IncompatibleError

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
    return SoftmaxProblem(Problem("logistic", **({"radius": 0.1} | settings)), n_classes)


# The dual, row by row


@every_norm
def test_no_other_row_is_worth_more_than_h(norm):
    """``h = sup l(x', y') - lam (||x - x'|| + gamma [y' != y])`` over far and near rows, and it is attained."""
    rng = np.random.default_rng(1)
    ball = get_norm(norm)
    for _ in range(30):
        problem = make(3, norm=norm, label_cost=rng.uniform(0.2, 2.0))
        coef, intercept, x = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
        multiplier = problem.kappa(coef) * rng.uniform(1.0, 1.5)
        h = problem.h(coef, intercept, multiplier, x[None, :], np.array([0]))[0]
        steps = np.vstack([np.zeros(2), rng.normal(size=(400, 2)) * rng.choice([0.1, 1.0, 10.0, 1e3], size=(400, 1))])
        scores = (x + steps) @ coef.T + intercept
        losses = logsumexp(scores, axis=1, keepdims=True) - scores
        costs = np.array([ball.value(step) for step in steps])[:, None] + problem.geometry.label_cost * np.array(
            [0.0, 1.0, 1.0]
        )
        worth = losses - multiplier * costs
        assert worth.max() <= h + 1e-9 * multiplier * costs.max()
        assert worth[0].max() == pytest.approx(h, abs=1e-12)


@every_norm
def test_below_kappa_the_adversary_gains_without_end(norm):
    rng = np.random.default_rng(2)
    coef, intercept = rng.normal(size=(3, 2)), rng.normal(size=3)
    problem = make(3, norm=norm)
    pairs = [(j, k) for j in range(3) for k in range(3) if j != k]
    j, k = max(pairs, key=lambda pair: problem.geometry.norm.dual(coef[pair[0]] - coef[pair[1]]))
    direction = problem.geometry.norm.steepest(coef[j] - coef[k])
    scores = 1e6 * coef @ direction + intercept
    assert logsumexp(scores) - scores[k] > 0.999 * problem.kappa(coef) * 1e6
    assert np.isinf(problem.h(coef, intercept, 0.99 * problem.kappa(coef), np.zeros((1, 2)), np.array([k]))).all()


def test_the_risk_is_the_minimum_over_the_multiplier():
    rng = np.random.default_rng(3)
    for seed in range(20):
        X, y = sample(seed=seed, n=25)
        problem = make(label_cost=rng.uniform(0.1, 1.0), radius=rng.uniform(0.05, 1.0), ridge=0.1)
        coef, intercept = rng.normal(size=(4, 4)), rng.normal(size=4)
        weights = rng.uniform(size=25)
        kappa = problem.kappa(coef)

        def objective(lam, problem=problem, coef=coef, intercept=intercept, X=X, y=y, weights=weights):
            h = problem.h(coef, intercept, max(lam, problem.kappa(coef)), X, y)
            return problem.radius * lam + weights @ h / weights.sum() + 0.05 * np.square(coef).sum()

        found = minimize_scalar(objective, bounds=(kappa, kappa + 100.0), method="bounded", options={"xatol": 1e-10})
        risk = problem.risk(coef, intercept, X, y, weights)
        assert risk <= found.fun + 1e-12
        assert risk == pytest.approx(min(found.fun, objective(kappa)), rel=1e-7)


@every_norm
@pytest.mark.parametrize("label_cost", [np.inf, 2.0, 0.5])
def test_two_classes_are_the_binary_problem(norm, label_cost):
    X, y = sample(n_classes=2, seed=4)
    base = Problem("logistic", radius=0.1, norm=norm, label_cost=label_cost)
    rng = np.random.default_rng(5)
    coef, intercept = rng.normal(size=(2, 4)), rng.normal(size=2)
    binary = base.risk(coef[1] - coef[0], float(intercept[1] - intercept[0]), X, 2.0 * y - 1.0)
    assert SoftmaxProblem(base, 2).risk(coef, intercept, X, y) == pytest.approx(binary, rel=1e-13)
    joint = solve_softmax(SoftmaxProblem(base, 2), X, y, tol=1e-8)
    assert joint.value == pytest.approx(solve(base, X, 2.0 * y - 1.0, tol=1e-8).value, rel=1e-8)


# Training


@every_norm
@pytest.mark.parametrize("name", SETTINGS)
def test_newton_and_cones_agree_and_certify(norm, name):
    X, y = sample(seed=6)
    weights = np.random.default_rng(7).uniform(0.2, 2.0, size=y.size)
    problem = make(norm=norm, **SETTINGS[name])
    newton, cones = (solve_softmax(problem, X, y, weights, solver=solver) for solver in ("structured", "conic"))
    for solution in (newton, cones):
        assert solution.converged
        assert solution.relative_gap <= 1e-6
        assert solution.value == pytest.approx(problem.risk(solution.coef, solution.intercept, X, y, weights))
    assert newton.value == pytest.approx(cones.value, rel=1e-6)
    assert cones.lower_bound <= newton.value * (1.0 + 1e-12)
    assert newton.lower_bound <= cones.value * (1.0 + 1e-12)


def test_radius_zero_is_plain_multinomial_regression():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    X, y = sample(seed=8, n=200, noise=2.0)
    solution = solve_softmax(make(radius=0.0), X, y, tol=1e-9)
    with np.errstate(all="ignore"):
        peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000).fit(X, y)
        assert solution.value == pytest.approx(log_loss(y, peer.predict_proba(X)), rel=1e-7)


def test_sparse_and_narrow_rows_give_the_same_model():
    X, y = sample(seed=9)
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32)
    problem = make(label_cost=2.0)
    dense = solve_softmax(problem, X.astype(np.float64), y, tol=1e-9)
    for other in (X, sp.csr_matrix(X), sp.csc_matrix(X)):
        np.testing.assert_allclose(solve_softmax(problem, other, y, tol=1e-9).coef, dense.coef, atol=1e-4)


def test_badly_scaled_columns_and_a_far_origin():
    X, y = sample(seed=10)
    stretch, offset = np.array([1e-3, 1.0, 1e3, 10.0]), np.array([0.0, 1e4, -1e3, 5.0])
    plain = solve_softmax(make(label_cost=2.0), X, y)
    scaled = solve_softmax(make(label_cost=2.0, feature_weights=1.0 / stretch), X * stretch + offset, y)
    assert scaled.converged
    assert scaled.value == pytest.approx(plain.value, rel=1e-5)


def test_separable_rows_without_a_penalty_have_no_minimiser():
    X, y = sample(seed=11, noise=0.01)
    with pytest.warns(Warning, match="separable"):
        solve_softmax(make(radius=0.0), X, y, max_iter=20)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.full(90, 0)}, ValueError, "no row of positive weight"),
        ({"y": np.full(90, 9)}, ValueError, "class numbers"),
        ({"y": np.full(90, 0.5)}, ValueError, "class numbers"),
        ({"y": np.zeros(3, dtype=int)}, ValueError, "one class number per row"),
        ({"solver": "newton"}, ValueError, "Unknown solver"),
        ({"X": np.ones((90, 900)), "solver": "structured"}, IncompatibleError, "too many"),
        ({"X": np.full((90, 4), np.nan)}, ValueError, "NaN"),
    ],
)
def test_what_cannot_be_solved_is_said_before_work(change, error, message):
    X, y = sample()
    asked = {"X": X, "y": y} | change
    with pytest.raises(error, match=message):
        solve_softmax(make(), asked.pop("X"), asked.pop("y"), **asked)


def test_a_softmax_problem_extends_a_logistic_one():
    with pytest.raises(TypeError, match="logistic"):
        SoftmaxProblem(Problem("hinge", radius=0.1), 3)
    with pytest.raises(ValueError, match="at least 2"):
        SoftmaxProblem(Problem("logistic"), 1)


# The bound


@every_norm
@pytest.mark.parametrize("name", SETTINGS)
def test_no_dual_point_exceeds_the_optimum(norm, name):
    """Not even wild ones: any tilt, any flow, any labels."""
    rng = np.random.default_rng(12)
    X, y = sample(seed=13, n=40)
    problem = make(norm=norm, **SETTINGS[name])
    with warnings.catch_warnings():  # without a radius one class of these runs away from the others, and says so
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = solve_softmax(problem, X, y, solver="conic")
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
        best = solve_softmax(problem, X, y)
        part = solve_softmax(problem, X[:200], y[:200])
        known = certify_softmax(problem, part.coef, part.intercept, X, y)
        assert known.upper == problem.risk(part.coef, part.intercept, X, y)
        assert known.lower <= best.value
        assert known.gap <= 1.2 * (known.upper - best.value) + 1e-6


# Coresets


@pytest.mark.parametrize(
    "coreset",
    [0.2, 200, UniformCoreset(size=0.2), GridCoreset(size=200), DualCoreset(size=200)],
    ids=repr,
)
def test_a_coreset_keeps_every_class_and_its_mass(coreset):
    X, y = sample(seed=16, n=1000, noise=2.0)
    y[y == 3] = np.where(np.arange(np.count_nonzero(y == 3)) < 4, 3, 2)  # a class of four rows
    weights = np.random.default_rng(17).uniform(0.5, 2.0, size=1000)
    problem = make(label_cost=2.0)
    fit = fit_softmax_coreset(problem, X, y, coreset, weights, random_state=0)
    calibrated = "calibration_residual" in fit.coreset.details
    assert 100 <= len(fit.coreset) <= 200 if calibrated else len(fit.coreset) == 200
    assert fit.coreset.weights.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(
        np.bincount(fit.coreset.y.astype(int), fit.coreset.weights),
        np.bincount(y, weights) / weights.sum(),
        rtol=1e-6 if calibrated else 1e-9,
    )
    best = solve_softmax(problem, X, y, weights)
    assert fit.certificate.upper == pytest.approx(
        problem.risk(fit.solution.coef, fit.solution.intercept, X, y, weights)
    )
    assert fit.certificate.lower <= best.value <= fit.certificate.upper
    assert fit.certificate.relative_gap < 0.2
    again = fit_softmax_coreset(problem, X, y, coreset, weights, random_state=0)
    np.testing.assert_array_equal(again.coreset.indices, fit.coreset.indices)


def test_calibration_and_rounds_bring_a_coreset_nearer():
    """Three seeds each; a draw as the paper has it misses the optimum by a percent or two here."""
    X, y = sample(seed=20, n=2000, noise=2.0)
    problem = make(label_cost=2.0)
    best = solve_softmax(problem, X, y).value
    excess = {}
    for name, settings in {
        "as written": {"calibrate": False, "focus": False},
        "once": {"rounds": 1},
        "thrice": {"rounds": 3},
    }.items():
        fits = [fit_softmax_coreset(problem, X, y, DualCoreset(size=150, **settings), random_state=k) for k in range(3)]
        excess[name] = np.mean([fit.solution.value for fit in fits]) / best - 1.0
    assert excess["thrice"] < 0.5 * excess["once"] < 0.5 * excess["as written"]


def test_all_rows_are_the_full_data():
    X, y = sample(seed=18)
    fit = fit_softmax_coreset(make(), X, y, 1.0, random_state=0)
    np.testing.assert_array_equal(fit.coreset.indices, np.arange(90))
    assert fit.certificate.upper == pytest.approx(solve_softmax(make(), X, y).value, rel=1e-6)


@pytest.mark.parametrize(
    ("coreset", "error", "message"),
    [
        (ImportanceCoreset(size=0.1), ValueError, "multinomial"),
        (GridCoreset(size=0.1, epsilon=0.1, parameter_radius=1.0), ValueError, "epsilon"),
        ("a tenth", TypeError, "a size"),
        (3, ValueError, "cannot hold 4 classes"),
        (UniformCoreset(size=3), ValueError, "cannot hold 4 classes"),
        (GridCoreset(size=3), ValueError, "cannot hold 4 classes"),
    ],
    ids=repr,
)
def test_a_coreset_that_is_not_supported_is_refused(coreset, error, message):
    X, y = sample()
    with pytest.raises(error, match=message):
        fit_softmax_coreset(make(), X, y, coreset)
