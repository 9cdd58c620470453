"""The conic solver: its cones, its dual point, its scaling, and how it behaves where there is no good answer."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualcore
from dualcore.certificates import lower_bound
from dualcore.problem import Problem
from dualcore.problem.geometry import L2Norm
from dualcore.problem.losses import Hinge, Logistic, MarginLoss
from dualcore.solvers.base import IncompatibleError
from dualcore.solvers.cones import Affine, ConeProgram, ScaledRows, Sizes
from dualcore.solvers.conic import ConicSolver

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
TOL = 1e-6


def draw(classification, n=30, m=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    score = X @ rng.normal(size=m) + 0.3
    noise = rng.normal(size=n)
    return X, np.where(score + noise > 0.0, 1.0, -1.0) if classification else score + noise


def problem_of(loss, **settings):
    return Problem(loss, **{"radius": 0.1} | settings, **PARAMETERS[loss])


def run(problem, X, y, sample_weight=None, max_iter=200, start=None):
    data = problem.validate(X, y, sample_weight)
    found = ConicSolver().run(problem, data, tol=TOL, max_iter=max_iter, start=start)
    return found, data, problem.evaluate(found.coef, found.intercept, data).value


def solve(loss, seed=0, n=30, m=4, **settings):
    problem = problem_of(loss, **settings)
    X, y = draw(problem.is_classification, n, m, seed)
    return problem, *run(problem, X, y)


# The program


def test_an_affine_expression_is_worth_what_its_formula_says():
    program = ConeProgram()
    x, c = program.variables(3), program.variables(1)
    expression = 2.0 * x - np.array([1.0, 2.0, 3.0]) * c.spread(3) + 5.0
    point = np.array([1.0, 10.0, 100.0, 7.0])
    value = expression.offset + sum(matrix @ point[k : k + matrix.shape[1]] for k, matrix in expression.terms)
    np.testing.assert_allclose(value, 2.0 * point[:3] - np.array([1.0, 2.0, 3.0]) * 7.0 + 5.0)
    np.testing.assert_allclose((1.0 - x).offset, 1.0)
    assert len(expression[np.array([True, False, True])]) == 2


def test_multipliers_tell_how_the_minimum_falls():
    """Minimise x + 2 y subject to x >= 3 and exp(1) <= y: slopes 1 and 2 in the two bounds."""
    program = ConeProgram()
    x, y = program.variables(1), program.variables(1)
    program.minimise(x + 2.0 * y)
    low = program.nonnegative(x - 3.0)
    _, _, bound = program.exponential(Affine(np.ones(1)), y)
    found = program.solve(tol=1e-9, loose_tol=1e-6, max_iter=50, stretch=7.0)
    assert found.status == "Solved"
    np.testing.assert_allclose(found.value(x), 3.0, atol=1e-7)
    np.testing.assert_allclose(found.value(y), np.e, atol=1e-7)
    np.testing.assert_allclose(found.multipliers[low], 1.0, atol=1e-7)
    np.testing.assert_allclose(found.multipliers[bound], 2.0, atol=1e-7)
    assert found.trace[-1][1] == pytest.approx(3.0 + 2.0 * np.e, abs=1e-7)


def test_a_rotated_cone_bounds_a_product_from_below():
    program = ConeProgram()
    left, right = program.variables(2), program.variables(2)
    program.minimise((left + right).mapped(np.ones(2)))
    total, difference, _ = program.rotated(left, right, Affine(np.array([1.0, 3.0])))
    found = program.solve(tol=1e-9, loose_tol=1e-6, max_iter=50)
    np.testing.assert_allclose(found.value(left), [1.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(found.multipliers[total] + found.multipliers[difference], 1.0, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_scaled_rows_say_the_same_in_other_units(fit_intercept, sparse):
    X, y = draw(False)
    X = X * np.array([1e-3, 1.0, 1e3, 0.0]) + (0.0 if sparse else np.array([5.0, 0.0, 0.0, 7.0]))
    problem = Problem("absolute", fit_intercept=fit_intercept)
    data = problem.validate(sp.csr_array(X) if sparse else X, 1e4 * y + 3e5)
    rows = ScaledRows.of(problem, data)
    phi, level = np.array([0.3, -2.0, 0.1, 1.0]), 0.7 if fit_intercept else 0.0
    matrix = rows.matrix.toarray() if sparse else rows.matrix
    assert np.abs(matrix).max() < 10.0
    residual = rows.unit * (matrix @ phi + level - rows.target)
    coef, intercept = rows.model(np.append(phi, level))
    if not fit_intercept:
        assert intercept == 0.0
    if fit_intercept and not sparse:
        coef, phi[3] = coef * np.array([1.0, 1.0, 1.0, 0.0]), 0.0  # a constant column is not the model's business
        intercept = rows.model(np.append(phi, level))[1]
    np.testing.assert_allclose(problem.signal(coef, intercept, data), residual, rtol=1e-9)


# Values


@pytest.mark.parametrize("n", [5, 6, 7, 40])  # m + 2 = 6 is where the rows begin to be compressed
def test_compressed_rows_cost_what_all_rows_cost(n):
    problem, found, data, risk = solve("squared", n=n, ridge=0.01)
    X, y = draw(False, n)
    _, _, direct = run(problem, sp.csr_array(np.hstack([X, np.zeros((n, 600))])), y)  # too wide to compress
    assert risk == pytest.approx(direct, rel=1e-7)
    assert np.abs(problem.gradient(found.coef, found.intercept, data.rows, data.y).coef).max() < 1e-4


def test_the_flip_branch_is_the_least_over_steeper_models():
    """What `_squared_hinge_flips` rests on: the closed form, positive part, as a minimum over k >= K."""
    problem = Problem("squared_hinge", radius=0.1, label_cost=0.8)
    steep, lam, gamma = 0.9, 2.5, 0.8
    margins = np.array([-1.5, -0.5, 0.3, 0.9, 2.0, 4.0])
    k = np.linspace(steep, np.sqrt(lam), 200_001)[:-1]
    short = np.maximum(1.0 + margins[:, None] - gamma * k, 0.0)
    least = (lam * short**2 / (lam - k**2)).min(axis=1)
    stay = lam * np.maximum(1.0 - margins, 0.0) ** 2 / (lam - steep**2)
    np.testing.assert_allclose(np.maximum(least, stay), problem.form.h(margins, lam, steep), rtol=1e-6, atol=1e-9)


def test_sizes_stay_unknown_where_the_model_is_empty():
    problem, found, data, risk = solve("squared_hinge", radius=5.0, label_cost=0.5)
    sizes = Sizes.at(problem, found, data, ScaledRows.of(problem, data))
    assert sizes.risk == risk
    assert sizes.steepness == 1.0 or np.any(found.coef)
    assert Sizes(0.5, 2.0, 3.0).multiplier == 2.0


# What it can take


class OwnLoss(Logistic):
    """A subclass that means something else."""

    def value(self, t):
        return 2.0 * super().value(t)


class Steps(MarginLoss):
    """A polyhedral loss of one's own: ``max(0, 1 - z, 1 - 2 z)``, slopes 0, -1 and -2."""

    name = "steps"
    lipschitz = 2.0
    kinks = (0.0, 1.0)
    pieces = ((0.0, 0.0), (-1.0, 1.0), (-2.0, 1.0))

    def value(self, t):
        return np.maximum.reduce([0.0 * t, 1.0 - t, 1.0 - 2.0 * t])

    def slope(self, t):
        return np.where(t < 0.0, -2.0, np.where(t < 1.0, -1.0, 0.0))

    def conjugate(self, s):
        inside = (s >= -2.0) & (s <= 0.0)
        return np.where(inside, np.maximum(s, -1.0), np.inf)


class OwnNorm(L2Norm):
    """Another subclass that means something else."""


def test_a_loss_without_cones_is_sent_to_the_structured_solver():
    problem = Problem(OwnLoss(), radius=0.1)
    data = problem.validate(*draw(True))
    sentence = ConicSolver().obstacle(problem, data)
    assert "OwnLoss" in sentence
    assert 'solver="structured"' in sentence
    with pytest.raises(IncompatibleError, match="OwnLoss"):
        run(problem, *draw(True))
    assert "OwnNorm" in ConicSolver().obstacle(Problem("hinge", norm=OwnNorm()), data)
    assert ConicSolver().obstacle(Problem(Hinge()), data) is None


@pytest.mark.parametrize("label_cost", [1.0, np.inf])
def test_a_polyhedral_loss_of_ones_own_needs_only_its_pieces(label_cost):
    problem = Problem(Steps(), radius=0.1, label_cost=label_cost)
    found, data, risk = run(problem, *draw(True))
    assert risk - lower_bound(problem, data, found.dual, risk, repair=False) <= TOL * risk


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_iterations_are_told_while_clarabel_works(loss):
    """In the units of the risk: the values come down to it. A callback that raises stops the run."""
    problem = problem_of(loss)
    X, y = draw(problem.is_classification)
    seen = []
    found = dualcore.solve(problem, X, y, solver="conic", callback=seen.append)
    assert len(seen) >= len(found.history) > 3
    assert seen[-1].value == pytest.approx(found.value, rel=1e-5)
    assert seen[-1].gap < 1e-4 * found.value

    class StoppedError(Exception):
        pass

    def stop(done):
        if done.iteration == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        dualcore.solve(problem, X, y, solver="conic", callback=stop)
