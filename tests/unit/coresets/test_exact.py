"""Exact coresets: rows whose own optimum is the model, for every family; what is measured is what is true."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dualcore import DualCoreset, Problem, UniformCoreset, fit_coreset, solve
from dualcore.coresets.exact import rows_for
from dualcore.coresets.sample import WorkingSample
from dualcore.solvers.assess import as_source

ANCHORS = np.geomspace(0.01, 0.5, 4)


def table(n: int = 4000, m: int = 6, seed: int = 0, *, labels: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) @ (np.eye(m) + 0.3 * rng.normal(size=(m, m))) + 3.0
    score = (X - 3.0) @ rng.normal(size=m) + 0.3
    return X, np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0) if labels else score + rng.standard_t(3, size=n)


def excess(problem: Problem, coreset, X: np.ndarray, y: np.ndarray, best: float | None = None) -> float:
    """Relative to the optimum on all rows, or to a risk that is given."""
    alone = solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-9)
    best = solve(problem, X, y, tol=1e-9).value if best is None else best
    return problem.risk(alone.coef, alone.intercept, X, y) / best - 1.0


PROBLEMS = {
    "logistic": Problem("logistic", radius=0.1),
    "logistic l1 that flips": Problem("logistic", radius=0.05, norm="l1", label_cost=1.0),
    "logistic linf with ridge": Problem("logistic", radius=0.05, norm="linf", ridge=0.01),
    "logistic without intercept": Problem("logistic", radius=0.1, fit_intercept=False),
    "plain": Problem("logistic", ridge=0.01),
    "hinge": Problem("hinge", radius=0.1),
    "hinge l1 that flips": Problem("hinge", radius=0.05, norm="l1", label_cost=1.0),
    "smooth hinge": Problem("smooth_hinge", radius=0.1, label_cost=2.0),
    "squared hinge": Problem("squared_hinge", radius=0.1),
    "huber": Problem("huber", radius=0.1, norm="linf"),
    "pinball": Problem("pinball", quantile=0.9, radius=0.1),
    "absolute l1": Problem("absolute", radius=0.05, norm="l1", label_cost=3.0),
    "squared": Problem("squared", radius=0.1),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_coreset_alone_gives_back_the_model(problem):
    X, y = table(labels=problem.is_classification)
    fit = DualCoreset(random_state=0).fit(problem, X, y, tol=1e-7)
    coreset = fit.coreset
    assert len(coreset) <= rows_for(problem, 6) + 10
    assert coreset.weights.max() <= 0.3
    found = excess(problem, coreset, X, y, fit.certificate.upper)
    assert found <= 1e-6
    assert coreset.excess == pytest.approx(found, abs=1e-6)
    assert coreset.exact_at == (problem.radius,)


def test_a_rough_model_is_given_back_as_rough_as_it_is():
    """The sums of the rows that trained it are matched, not those of all rows, which would lead elsewhere."""
    X, y = table(60_000)
    problem = Problem("logistic", radius=0.1)
    fit = DualCoreset(rounds=1, target_gap=0.5, random_state=0).fit(problem, X, y, tol=1e-10)
    assert fit.certificate.upper > solve(problem, X, y).value * (1.0 + 1e-6)
    alone = solve(problem, fit.coreset.X, fit.coreset.y, fit.coreset.weights, tol=1e-9)
    np.testing.assert_allclose(alone.coef, fit.solution.coef, atol=1e-5)


@pytest.mark.parametrize("levels", [0, 16])
@pytest.mark.parametrize(
    ("loss", "norm", "radius"), [("hinge", "l1", 0.3), ("hinge", "linf", 0.05), ("logistic", "l1", 0.3)]
)
def test_the_model_is_given_back_where_the_adversary_is_indifferent(loss, norm, radius, levels):
    """In a box the sums of one of many best moves said little, and rare categories were left out of coresets."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(0.5, 0.4, size=(600 if levels else 300, 8)), 0.0, 1.0)
    X = np.column_stack([X, np.eye(levels)[rng.geometric(0.2, size=600) % levels]]) if levels else X
    slopes = np.resize(np.linspace(-1.0, 1.5, 8), 8 + levels)
    y = np.where((X - 0.5) @ slopes + 0.4 * rng.normal(size=len(X)) > 0.0, 1.0, -1.0)
    limits = {"norm": "l1", "categories": [range(8, 24)]} if levels else {"norm": norm, "support": (0.0, 1.0)}
    problem = Problem(loss, radius=radius / (1 + levels), **limits)
    coreset = DualCoreset(size=60 + 4 * levels, random_state=0).fit(problem, X, y, tol=1e-6).coreset
    assert len(coreset) <= 60 + 4 * levels
    assert coreset.excess <= 1e-5


def test_more_rows_serve_other_radii():
    X, y = table()
    problem = Problem("logistic", radius=0.1)
    few, many = (DualCoreset(size=size, random_state=0).fit(problem, X, y).coreset for size in (12, 60))
    assert len(few.exact_at) == 1
    assert len(many.exact_at) >= 3  # at a tenfold radius there may be nothing to learn
    assert len(many) > 50
    far = [excess(problem.replace(radius=0.03), coreset, X, y) for coreset in (few, many)]
    assert far[1] <= min(1e-4, 0.1 * far[0])


@pytest.mark.filterwarnings("ignore:The draw missed class")
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_never_worse_than_a_uniform_sample_of_the_seed(loss):
    """Heavy tails, a rare class and far too few rows, on which a calibrated draw may collapse."""
    rng = np.random.default_rng(3)
    X = rng.standard_t(2, size=(3000, 20))
    y = np.where(X[:, 0] + rng.normal(size=3000) > 2.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.02)
    for size in (8, 20, 60):
        fit = DualCoreset(size=size, random_state=1).fit(problem, X, y)
        uniform = UniformCoreset(size=size, random_state=1).build(problem, X, y)
        assert fit.coreset.excess <= excess(problem, uniform, X, y, fit.certificate.upper) + 1e-6
        if size < rows_for(problem, 20, near=False):
            assert "too few to reproduce the model" in fit.coreset.details["message"]


def test_in_other_hands():
    """Plain scikit-learn on the rows and weights, beside a uniform sample of as many rows."""
    X, y = table(20_000)
    coreset = DualCoreset(size=150, random_state=0).fit(Problem("logistic", radius=0.02), X, y).coreset
    uniform = UniformCoreset(size=150, random_state=0).build(Problem("logistic", radius=0.02), X, y)
    losses = []
    for rows in ((X, y, np.full(len(y), 1 / len(y))), *((c.X, c.y, c.weights) for c in (coreset, uniform))):
        model = LogisticRegression(C=1.0).fit(*rows[:2], 150 * rows[2])
        losses.append(np.logaddexp(0.0, -y * model.decision_function(X)).mean())
    assert losses[1] - losses[0] < 0.1 * (losses[2] - losses[0])


def test_there_are_no_more_rows_than_were_asked_for():
    problem = Problem("hinge", radius=0.1, label_cost=1.0)
    for size in (5, 14, 15, 16, 31, 75, 180, 400):
        coreset = DualCoreset(size=size, random_state=0).build(problem, *table(1500, 10))
        assert len(coreset) <= size
        assert ("too few" in coreset.details.get("message", "")) == (size < 15)
        assert coreset.exact_at == () or coreset.excess <= 1e-6
    fit = fit_coreset(Problem("hinge", radius=0.1), *table(), coreset=0.02, random_state=0)
    assert len(fit.coreset) <= 80
    assert fit.coreset.n_reads >= 1
    assert fit.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize("n", [3000, 60_000])
def test_a_coreset_is_exact_along_the_path(n):
    X, y = table(n, 5)
    problem = Problem("logistic", radius=float(ANCHORS[1]))
    fit = DualCoreset(radii=ANCHORS, random_state=0).fit(problem, X, y)
    assert len(fit.coreset) <= 4 * 7 + 2 + 10  # ten more, at most, keep any from weighing a tenth
    np.testing.assert_allclose(fit.coreset.exact_at, ANCHORS)
    for radius in np.geomspace(0.01, 0.5, 7):
        assert excess(problem.replace(radius=float(radius)), fit.coreset, X, y) <= 1e-5
    assert fit.certificate.upper == pytest.approx(problem.risk(fit.solution.coef, fit.solution.intercept, X, y))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_radius_at_which_few_rows_are_not_exact_is_not_named(seed):
    """Rows hardly more than matched numbers, and kinks: the second model is no optimum of the coreset."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 8))
    y = np.where(X @ rng.normal(size=8) + 3.0 * rng.normal(size=60) > 0.0, 1.0, -1.0)
    problems = {radius: Problem("hinge", radius=radius) for radius in (0.05, 0.5)}
    coreset = DualCoreset(size=23, random_state=0, radii=list(problems)).build(problems[0.5], X, y)
    assert coreset.exact_at == (0.5,)
    assert excess(problems[0.5], coreset, X, y) < 1e-6 < excess(problems[0.05], coreset, X, y)


def test_the_radii_of_a_coreset_are_a_list_or_a_grid():
    (X, y), problem = table(3000), Problem("logistic", radius=0.1)
    assert DualCoreset(radii=[0.03, 0.3], random_state=0).build(problem, X, y).exact_at == (0.03, 0.1, 0.3)
    coreset = DualCoreset(radii=3, random_state=0).build(problem, X, y)
    assert len(coreset.exact_at) == 4
    assert abs(coreset.excess) <= 1e-6
    with pytest.raises(TypeError, match="a list of radii"):
        DualCoreset(radii=3).build(Problem("softmax", n_classes=2, radius=0.1), X, (y > 0.0).astype(float))
    with pytest.raises(ValueError, match="non-negative"):
        DualCoreset(radii=[-0.1]).build(problem, X, y)


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared"])
def test_corrections_lead_to_the_optima_of_all_rows(loss):
    problem = Problem(loss)
    X, y = table(60_000, labels=problem.is_classification)
    sample = WorkingSample.of(problem, as_source(problem, X, y), 0, {"tol": 1e-9})
    assert not sample.is_whole
    found = {rounds: sample.train_corrected([0.02, 0.2], rounds) for rounds in (0, 4)}
    for k, radius in enumerate((0.02, 0.2)):
        at = problem.replace(radius=radius)
        best = solve(at, X, y, tol=1e-9).value
        first, last = (at.risk(found[r][k].coef, found[r][k].intercept, X, y) / best - 1.0 for r in (0, 4))
        assert last <= min(1e-7, 0.01 * first)


def test_more_rows_than_the_sample_has_are_drawn():
    fit = DualCoreset(size=0.5, random_state=0).fit(Problem("hinge", radius=0.05), *table(30_000, 3))
    assert len(fit.coreset) == 15_000
    assert fit.coreset.excess < 1e-6
