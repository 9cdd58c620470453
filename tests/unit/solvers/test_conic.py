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


# Values


@pytest.mark.parametrize("n", [5, 6, 7, 40])  # m + 2 = 6 is where the rows begin to be compressed
def test_compressed_rows_cost_what_all_rows_cost(n):
    problem, found, data, risk = solve("squared", n=n, ridge=0.01)
    X, y = draw(False, n)
    _, _, direct = run(problem, sp.csr_array(np.hstack([X, np.zeros((n, 600))])), y)  # too wide to compress
    assert risk == pytest.approx(direct, rel=1e-7)
    assert np.abs(problem.gradient(found.coef, found.intercept, data.rows, data.y).coef).max() < 1e-4


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
