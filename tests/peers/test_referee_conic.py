"""The conic solver against CVXPY on a full grid of problems, and the referee against the closed forms."""

from itertools import product

import numpy as np
import pytest

from dualcore.problem import Problem
from dualcore.problem.geometry import get_norm
from dualcore.solvers.conic import ConicSolver

pytest.importorskip("cvxpy")
from peers.cvxpy_referee import cvxpy_optimum, cvxpy_risk

pytestmark = pytest.mark.slow

PARAMETERS = {
    "logistic": {},
    "hinge": {},
    "smooth_hinge": {},
    "squared_hinge": {},
    "huber": {"delta": 0.7},
    "pinball": {"quantile": 0.3},
    "epsilon_insensitive": {"epsilon": 0.2},
    "absolute": {},
    "squared": {},
}
NORMS = ("l1", "l2", "linf")
LABEL_COSTS = (0.5, 2.0, 7.0, np.inf)
RADII = (0.05, 0.2, 0.5)
AGREEMENT = 1e-6


def draw(rng, classification, n, m=4):
    X = rng.normal(size=(n, m))
    score = X @ rng.normal(size=m) + 0.3
    if not classification:
        return X, score + rng.standard_t(3, size=n)
    y = np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def compare(loss, norm, label_cost, ridge, weighted, fit_intercept, seed):
    """Return conic risk over referee's optimum, less one."""
    rng = np.random.default_rng(seed)
    problem = Problem(
        loss,
        radius=float(rng.choice(RADII)),
        norm=norm,
        label_cost=label_cost,
        ridge=ridge,
        fit_intercept=fit_intercept,
        **PARAMETERS[loss],
    )
    # A linear matrix inequality for every row is slow to compile.
    X, y = draw(rng, problem.is_classification, n=10 if problem.geometry.order == 2 else 18)
    weights = rng.uniform(size=len(y)) if weighted else None
    if weighted:
        weights[3:5] = 0.0
    data = problem.validate(X, y, weights)
    found = ConicSolver().run(problem, data, tol=1e-6, max_iter=200, start=None)
    assert not found.stopped_early
    return problem.evaluate(found.coef, found.intercept, data).value / cvxpy_optimum(problem, X, y, weights) - 1.0


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", PARAMETERS)
def test_conic_reaches_the_referees_optimum(loss, norm):
    """Every loss, norm, label cost and ridge; weights and intercept take turns."""
    for k, (label_cost, ridge) in enumerate(product(LABEL_COSTS, (0.0, 0.1))):
        weighted, fit_intercept = bool(k & 1), bool(k & 2)
        excess = compare(loss, norm, label_cost, ridge, weighted, fit_intercept, seed=k)
        assert abs(excess) < AGREEMENT, (label_cost, ridge, weighted, fit_intercept)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", PARAMETERS)
def test_conic_reaches_the_referees_optimum_on_the_full_grid(loss, norm):
    grid = product(LABEL_COSTS, (0.0, 0.1), (False, True), (False, True))
    for k, (label_cost, ridge, weighted, fit_intercept) in enumerate(grid):
        excess = compare(loss, norm, label_cost, ridge, weighted, fit_intercept, seed=100 + k)
        assert abs(excess) < AGREEMENT, (label_cost, ridge, weighted, fit_intercept)


@pytest.mark.parametrize("norm", NORMS)
def test_conic_and_referee_agree_on_prices_of_features(norm):
    rng = np.random.default_rng(5)
    prices = get_norm(norm, [0.5, 2.0, np.inf, 1.0])
    for loss in ("logistic", "huber"):
        problem = Problem(loss, radius=0.1, norm=prices, label_cost=2.0)
        X, y = draw(rng, problem.is_classification, n=30)
        data = problem.validate(X, y)
        found = ConicSolver().run(problem, data, tol=1e-6, max_iter=200, start=None)
        risk = problem.evaluate(found.coef, found.intercept, data).value
        assert risk == pytest.approx(cvxpy_optimum(problem, X, y), rel=AGREEMENT)


@pytest.mark.parametrize("label_cost", [0.5, 2.0, np.inf])
@pytest.mark.parametrize("loss", PARAMETERS)
def test_the_referee_finds_the_closed_forms(loss, label_cost):
    """Risk of a given model: the modelling language minimises over the multiplier, dualcore has formulas."""
    rng = np.random.default_rng(7)
    for norm in NORMS:
        problem = Problem(loss, radius=0.2, norm=norm, label_cost=label_cost, ridge=0.1, **PARAMETERS[loss])
        X, y = draw(rng, problem.is_classification, n=12)
        weights = rng.uniform(size=12)
        coef, intercept = rng.normal(size=4), float(rng.normal())
        risk = problem.risk(coef, intercept, X, y, weights)
        assert cvxpy_risk(problem, coef, intercept, X, y, weights) == pytest.approx(risk, rel=AGREEMENT)


@pytest.mark.parametrize("loss", PARAMETERS)
def test_the_referee_can_tell_problems_apart(loss):
    """A referee that agreed with everything would be no use: a slightly other radius must be seen."""
    rng = np.random.default_rng(9)
    problem = Problem(loss, radius=0.2, label_cost=2.0, **PARAMETERS[loss])
    X, y = draw(rng, problem.is_classification, n=12)
    coef, intercept = rng.normal(size=4), 0.1
    right = cvxpy_risk(problem, coef, intercept, X, y)
    wrong = problem.replace(radius=0.2001).risk(coef, intercept, X, y)
    assert right != pytest.approx(wrong, rel=AGREEMENT)
    assert cvxpy_optimum(problem, X, y) <= right * (1.0 + AGREEMENT)
