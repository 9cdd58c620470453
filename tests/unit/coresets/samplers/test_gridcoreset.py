"""`GridCoreset`: Algorithm 1 as written, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Anchor, GridCoreset, Problem, grid_coreset, solve

LOGISTIC = Problem("logistic", radius=0.1, label_cost=1.0)
HINGE = Problem("hinge", radius=0.1, label_cost=1.0)
HUBER = Problem("huber", radius=0.1)


def sample(n: int = 1200, m: int = 3, seed: int = 0, *, labels: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    score = 2.0 * X[:, 0] - X[:, 1] + 0.3
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0) if labels else score + rng.normal(size=n)


@pytest.mark.parametrize("problem", [LOGISTIC, HINGE, HUBER], ids=lambda problem: problem.loss.name)
def test_algorithm_one_is_the_grid_of_h_at_the_anchor(problem):
    X, y = sample(labels=problem.is_classification)
    anchor = solve(problem, X[:200], y[:200])
    coreset = GridCoreset(size=60, anchor=anchor, random_state=4).build(problem, X, y)
    h = problem.h(anchor.coef, anchor.intercept, anchor.dual_variable, X, y)
    if problem.is_classification:
        stays = problem.loss.value(y * (X @ anchor.coef + anchor.intercept))
        assert (h > stays + 1e-9).mean() > 0.05  # flips are active: h is not the plain loss
    expected = grid_coreset(h, h, size=60, slack=float(h.mean()), random_state=0)
    assert coreset.details["cells"] == expected.grid.n_cells
    cell = expected.grid.cell[coreset.indices]
    np.testing.assert_array_equal(np.bincount(cell, minlength=expected.draws.size), expected.draws)
    np.testing.assert_allclose(coreset.weights, expected.grid.counts[cell] / (1200 * expected.draws[cell]), rtol=1e-12)


def test_an_anchor_may_be_a_solution_and_is_kept():
    X, y = sample()
    solution = solve(LOGISTIC, X[:100], y[:100])
    coreset = GridCoreset(size=80, anchor=solution, random_state=1).build(LOGISTIC, X, y)
    np.testing.assert_array_equal(coreset.anchor.coef, solution.coef)
    assert coreset.anchor.intercept == solution.intercept
    assert coreset.anchor.multiplier == pytest.approx(solution.dual_variable)


@pytest.mark.parametrize(
    ("anchor", "error", "message"),
    [
        (Anchor(np.ones(2), 0.0, 9.0), ValueError, "2 coefficients but X has 3"),
        (Anchor(np.ones(3), 0.0, 0.5), ValueError, r"multiplier 0.5 is below kappa = 1.73\d*: h is infinite"),
        ((np.ones(3), 0.0), TypeError, "must be an Anchor or a Solution, got tuple"),
        (Anchor(np.full(3, np.nan), 0.0, 9.0), ValueError, "finite"),
    ],
)
def test_what_is_no_anchor_is_refused(anchor, error, message):
    X, y = sample()
    with pytest.raises(error, match=message):
        GridCoreset(size=80, anchor=anchor).build(LOGISTIC, X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        ({"epsilon": 1.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        ({"epsilon": 0.1}, "needs a positive parameter_radius"),
        ({"epsilon": 0.1, "parameter_radius": -1.0}, "needs a positive parameter_radius"),
        ({"bounds": "loose"}, "bounds must be 'exact' or 'paper'"),
        ({"size": None}, "size is None"),
        ({"size": 0}, "at least one row"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_build_and_fit(options, message):
    X, y = sample(100)
    for call in ("build", "fit"):
        with pytest.raises(ValueError, match=message):
            getattr(GridCoreset(**({"random_state": 0} | options)), call)(LOGISTIC, X, y)
