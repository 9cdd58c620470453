"""A coreset that is exact along a path: models of several radii, corrected together."""

import numpy as np
import pytest

from dualcore import DualCoreset, Problem, solve
from dualcore.coresets.sample import WorkingSample
from dualcore.solvers.assess import as_source

ANCHORS = np.geomspace(0.01, 0.5, 4)


def rows(n, m=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) + 3.0
    return X, np.where((X - 3.0) @ np.linspace(-1.0, 1.5, m) + rng.logistic(size=n) > 0.0, 1.0, -1.0)


def excess(problem, coreset, X, y):
    alone = solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-9)
    return problem.risk(alone.coef, alone.intercept, X, y) / solve(problem, X, y, tol=1e-9).value - 1.0


@pytest.mark.parametrize("n", [3000, 60_000])
def test_a_coreset_is_exact_along_the_path(n):
    X, y = rows(n)
    problem = Problem("logistic", radius=float(ANCHORS[1]))
    fit = DualCoreset(radii=ANCHORS, random_state=0).fit(problem, X, y)
    assert len(fit.coreset) <= 4 * 7 + 2 + 10  # ten more, at most, keep any from weighing a tenth
    np.testing.assert_allclose(fit.coreset.exact_at, ANCHORS)
    for radius in np.geomspace(0.01, 0.5, 7):
        assert excess(problem.replace(radius=float(radius)), fit.coreset, X, y) <= 1e-5
    assert fit.certificate.upper == pytest.approx(problem.risk(fit.solution.coef, fit.solution.intercept, X, y))


def test_the_radius_of_the_problem_is_one_of_them():
    X, y = rows(3000)
    coreset = DualCoreset(radii=[0.03, 0.3], random_state=0).build(Problem("logistic", radius=0.1), X, y)
    assert coreset.exact_at == (0.03, 0.1, 0.3)


def test_a_number_of_radii_is_a_grid():
    X, y = rows(3000)
    problem = Problem("logistic", radius=0.1)
    coreset = DualCoreset(radii=3, random_state=0).build(problem, X, y)
    assert len(coreset.exact_at) == 4
    assert abs(coreset.excess) <= 1e-6
    with pytest.raises(TypeError, match="a list of radii"):
        DualCoreset(radii=3).build(Problem("softmax", n_classes=2, radius=0.1), X, (y > 0.0).astype(float))
    with pytest.raises(ValueError, match="non-negative"):
        DualCoreset(radii=[-0.1]).build(problem, X, y)


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared"])
def test_corrections_lead_to_the_optima_of_all_rows(loss):
    X, y = rows(60_000)
    problem = Problem(loss)
    y = y if problem.is_classification else X @ np.linspace(-1.0, 1.0, 5) + np.random.default_rng(1).normal(size=y.size)
    sample = WorkingSample.of(problem, as_source(problem, X, y), 0, {"tol": 1e-9})
    assert not sample.is_whole
    found = {rounds: sample.train_corrected([0.02, 0.2], rounds) for rounds in (0, 4)}
    for k, radius in enumerate((0.02, 0.2)):
        at = problem.replace(radius=radius)
        best = solve(at, X, y, tol=1e-9).value
        first, last = (at.risk(found[r][k].coef, found[r][k].intercept, X, y) / best - 1.0 for r in (0, 4))
        assert last <= 1e-7
        assert last <= 0.01 * first
