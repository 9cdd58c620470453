"""Mixtures of near-optimal moves meet the optimality conditions that no single choice of moves meets."""

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.problem.anchor import Anchor
from dualcore.solvers.moving.mixture import mixed_anchor

RNG = np.random.default_rng(0)
N, M = 200, 6
NUMBERS = RNG.uniform(0.0, 1.0, (N, M))
SCORES = NUMBERS @ RNG.normal(size=M)
LABELS = np.where(SCORES - np.median(SCORES) + 0.3 * RNG.normal(size=N) > 0.0, 1.0, -1.0)
TARGETS = SCORES + 0.2 * RNG.normal(size=N)
LEVELS = np.eye(3)[RNG.integers(0, 3, (N, 3))].reshape(N, 9)
GROUPS = [[0, 1, 2], [None, 3, 4], [6, 7, 8]]
LEVELS[:, 5] = 0.0
BOX = [(loss, norm, False) for loss in ("hinge", "logistic", "huber") for norm in ("l1", "l2", "linf")]


def made(loss, norm, has_categories):
    y = TARGETS if loss == "huber" else LABELS
    more = {} if loss == "huber" else {"label_cost": 2.0}
    if has_categories:
        X = np.hstack([LEVELS[:, :5], NUMBERS[:, :1], LEVELS[:, 6:]])
        return Problem(loss, radius=0.2, norm=norm, categories=GROUPS, ridge=1e-3, **more), X, y
    return Problem(loss, radius=0.05, norm=norm, support=(0.0, 1.0), **more), NUMBERS, y


def violation(problem, anchor, moment, slope, spent):
    """The largest of the optimality conditions' residuals: coefficients, intercept, complementarity."""
    left = anchor.multiplier * (problem.radius - spent)
    return np.abs(np.append(moment + problem.ridge * anchor.coef, [slope, left])).max()


@pytest.mark.parametrize(("loss", "norm", "has_categories"), [*BOX, ("hinge", "l2", True), ("logistic", "l2", True)])
def test_the_mean_of_mixtures_is_optimal_where_that_of_single_moves_is_not(loss, norm, has_categories):
    problem, X, y = made(loss, norm, has_categories)
    data = problem.validate(X, y)
    solution = solve(problem, X, y, tol=1e-4)
    least = problem.evaluate(solution.coef, solution.intercept, data)
    best = Anchor(solution.coef, solution.intercept, least.multiplier)
    single = problem.family.rows(best, X, y)
    moment = (single.slope[:, None] * single.moved).mean(axis=0)
    unmixed = violation(problem, best, moment, single.slope.mean(), single.spent.mean())
    anchor = mixed_anchor(problem, data, best, 3e-3)
    rows = problem.family.mixed_rows(anchor, X, y, 3e-3)
    mixed = violation(problem, anchor, rows.moment.mean(axis=0), rows.slope.mean(), rows.spent.mean())
    # Where features have no limits a part of the budget is spent infinitely far away.
    if np.isfinite(problem.family.support.spread(X.shape[1])[1]).all():
        assert mixed < 0.02 * unmixed + 0.011 * 3e-3  # a barrier of 0.01 widths holds the multiplier
    assert problem.evaluate(anchor.coef, anchor.intercept, data).value < least.value * (1.0 + 2e-3)


@pytest.mark.parametrize(("loss", "norm", "has_categories"), [*BOX, ("hinge", "l2", True), ("logistic", "l2", True)])
def test_means_are_the_derivatives_of_the_smoothed_value(loss, norm, has_categories):
    problem, X, y = made(loss, norm, has_categories)
    rng = np.random.default_rng(1)
    x = np.append(rng.normal(size=X.shape[1]), [0.1, 1.5])

    def at(x):
        return problem.family.mixed_rows(Anchor(x[:-2], x[-2], x[-1]), X, y, 0.05)

    rows = at(x)
    steps = 1e-6 * np.eye(x.size)
    numeric = np.array([(at(x + step).value - at(x - step).value) / 2e-6 for step in steps]).T
    np.testing.assert_allclose(np.column_stack([rows.moment, rows.slope, -rows.spent]), numeric, atol=2e-6)
    plain = problem.family.rows(Anchor(x[:-2], x[-2], x[-1]), X, y)
    # With linf every feature may lose a width at the rounded edge of its coefficient, and steps one more.
    assert (rows.value >= plain.lower - (M + 2) * 0.05).all()
    assert (rows.cost <= rows.spent + 1e-12).all()
