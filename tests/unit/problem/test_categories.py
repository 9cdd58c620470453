"""Categories that change at a price: special cases, and what is refused; ``h`` and the risk are in `test_families`."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.solvers.base import IncompatibleError


def test_rows_that_are_not_one_hot_are_named():
    problem = Problem("hinge", radius=0.1, categories=[[0, 1], [None, 2, 3]])
    good = np.array([[1.0, 0, 0, 0, 5], [0, 1, 0, 1, -2]])
    y = np.array([1.0, -1.0])
    problem.validate(good, y)
    for row, column, value, group in ((1, 1, 0.0, 0), (0, 1, 1.0, 0), (1, 2, 1.0, 1), (0, 3, 0.5, 1), (1, 0, -1.0, 0)):
        bad = good.copy()
        bad[row, column] = value
        with pytest.raises(ValueError, match=f"Row {row} is not one-hot in group {group} of categories"):
            problem.validate(bad, y)


def test_problems_compare_print_and_copy_by_value():
    one = Problem("hinge", radius=0.1, categories=[[0, 1], [None, 2]], category_cost=[1.0, np.inf])
    same = Problem("hinge", radius=0.1, categories=((0, 1), (None, 2)), category_cost=(1.0, np.inf))
    assert one == same
    assert hash(one) == hash(same)
    assert one != one.replace(category_cost=2.0)
    assert one != one.replace(categories=[[0, 1], [2]])
    assert one.replace(radius=0.3).geometry.categories == one.geometry.categories
    assert eval(repr(one).replace("Problem(Hinge()", "Problem('hinge'"), {"Problem": Problem, "inf": np.inf}) == one
    assert one.replace(categories=None) == Problem("hinge", radius=0.1)


def test_what_cannot_be_is_refused_before_any_work():
    for settings, error, words in [
        ({"categories": "ab"}, TypeError, "list of groups"),
        ({"categories": [3, 4]}, TypeError, "group 0 must be a list"),
        ({"categories": [["a"]]}, TypeError, "column numbers"),
        ({"categories": [[True]]}, TypeError, "column numbers"),
        ({"categories": [[-1, 0]]}, ValueError, "counted from 0"),
        ({"categories": [[0, 1], [1, 2]]}, ValueError, "column 1 is in the groups 0 and 1"),
        ({"categories": [[None]]}, ValueError, "at least one column"),
        ({"categories": [[0, 1]], "category_cost": 0.0}, ValueError, "positive"),
        ({"categories": [[0, 1]], "category_cost": [1.0, 2.0]}, ValueError, "each of the 1 groups"),
        ({"categories": [[0, 1]], "category_cost": np.nan}, ValueError, "positive"),
        ({"categories": [[0, 1]], "support": (0.0, 1.0)}, ValueError, "norm='l1'"),
        ({"categories": [[0, 1]], "loss": "squared_hinge"}, ValueError, "order 1"),
        ({"categories": [[0, 1]], "loss": "softmax", "n_classes": 3}, ValueError, "one score"),
    ]:
        settings = {"loss": "hinge", "radius": 0.1, **settings}
        with pytest.raises(error, match=words):
            Problem(**settings)
    with pytest.raises(ValueError, match="column 7, but X has 3 features"):
        Problem("hinge", radius=0.1, categories=[[0, 7]]).validate(np.eye(3), np.array([1.0, -1.0, 1.0]))
    problem = Problem("logistic", radius=0.1, categories=[[0, 1]])
    for solver in ("descent", "structured"):
        with pytest.raises(IncompatibleError, match=r"with categories\. Use solver='box'"):
            solve(problem, np.eye(2), np.array([1.0, -1.0]), solver=solver)


def test_numbers_between_walls_that_no_row_is_near():
    """All rows of a block may go as far as the limits, which then have the shape of one row."""
    problem = Problem(
        "hinge", radius=0.5, norm="l1", categories=[[1, 2]], support=([-5.0, -np.inf, -np.inf], [5.0, np.inf, np.inf])
    )
    X = np.array([[0.9, 1.0, 0.0], [0.1, 0.0, 1.0], [0.7, 1.0, 0.0], [0.2, 0.0, 1.0]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    coef, lam = np.array([1.0, 0.3, -0.3]), 0.5
    moves = problem.family.moves(X, y, coef, 0.0, lam, points=True)
    np.testing.assert_allclose(moves.X[:, 0], -5.0 * y)
    margins = y * (moves.X @ coef)
    np.testing.assert_allclose(moves.lower, np.maximum(1.0 - margins, 0.0) - lam * moves.cost)
    assert solve(problem, X, y).converged


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_number_that_cannot_move_needs_no_wall():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.eye(2)[rng.integers(0, 2, 20)], rng.normal(size=(20, 2))])
    y = X @ rng.normal(size=4)
    settings = {"radius": 0.1, "norm": "l1", "categories": [[0, 1]], "feature_weights": [1.0, 1.0, 1.0, np.inf]}
    low, high = np.array([0.0, 0.0, -4.0, -4.0]), np.array([1.0, 1.0, 4.0, 4.0])
    limited = Problem("huber", support=(low, high), **settings)
    high[3] = np.inf
    coef = rng.normal(size=4)
    assert Problem("huber", support=(low, high), **settings).risk(coef, 0.1, X, y) == limited.risk(coef, 0.1, X, y)
