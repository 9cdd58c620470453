"""Problems without an intercept whose groups hold one, and multipliers that are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from dualcore.problem.families.categories import CategoriesFamily


def drawn(rng, n, sizes, n_numbers=1):
    """Return rows of groups of all categories and numbers, and the groups."""
    parts = [np.eye(size)[rng.integers(size, size=n)] for size in sizes]
    X = np.hstack([*parts, rng.normal(size=(n, n_numbers))])
    ends = np.cumsum([0, *sizes])
    return X, [list(range(a, b)) for a, b in pairwise(ends)]


@pytest.mark.parametrize("loss", ["huber", "pinball", "logistic", "hinge"])
def test_a_whole_group_is_an_intercept(loss):
    rng = np.random.default_rng(3)
    X, groups = drawn(rng, 40, (3, 2))
    signal = X @ rng.normal(size=X.shape[1])
    y = np.where(signal + rng.normal(size=40) > 0.0, 1.0, -1.0) if loss in ("logistic", "hinge") else signal
    problem = Problem(loss, radius=0.05, categories=groups, category_cost=[0.5, 1.0], fit_intercept=False)
    found = solve(problem, X, y, tol=1e-7)
    other = solve(problem.replace(fit_intercept=True), X, y, tol=1e-7)
    assert found.intercept == 0.0
    assert found.problem == problem
    assert found.value == pytest.approx(other.value, rel=3e-7)
    assert found.value == pytest.approx(problem.risk(found.coef, 0.0, X, y), rel=1e-12)
    known = certify(problem, found, X, y)
    assert known.lower <= found.value * (1.0 + 1e-12)
    assert known.lower >= found.value * (1.0 - 1e-5)
    # With a ridge the intercept is penalised, and with dropped categories there is none.
    assert problem.replace(ridge=0.1).with_intercept().fit_intercept is False
    dropped = problem.replace(categories=[[None, *group] for group in groups])
    assert dropped.with_intercept() is dropped


def test_offsets_of_the_target_cost_no_digits_without_an_intercept():
    rng = np.random.default_rng(5)
    X, groups = drawn(rng, 30, (4,))
    y = X @ rng.normal(size=X.shape[1]) + 0.1 * rng.normal(size=30)
    problem = Problem("huber", radius=0.05, categories=groups, fit_intercept=False)
    near, far = (solve(problem, X, y + offset, tol=1e-6) for offset in (0.0, 2.0**30))
    assert far.converged
    assert far.value == pytest.approx(near.value, rel=1e-5)


def test_a_multiplier_that_is_known_is_found_again():
    rng = np.random.default_rng(11)
    X, groups = drawn(rng, 300, (4, 5), n_numbers=0)
    y = rng.choice([-1.0, 1.0], size=300)
    problem = Problem("logistic", radius=0.05, categories=groups)
    data, coef = problem.validate(X, y), rng.normal(size=X.shape[1])
    family = CategoriesFamily.of(problem.family)
    least, _ = family.search(data.rows, data.y, None, coef, 0.1)
    for near in (least.multiplier * (1.0 + 1e-4), 2.0 * least.multiplier, 0.1 * least.multiplier):
        again, _ = family.search(data.rows, data.y, None, coef, 0.1, near=near)
        assert again.value == pytest.approx(least.value, rel=1e-13)
