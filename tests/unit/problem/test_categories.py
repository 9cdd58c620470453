"""Categories that change at a price: ``h`` against every assignment, the invariants, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.solvers.base import IncompatibleError
from reference.category_cases import draw_case, draw_rows
from reference.referee import dual_loss

LOSSES = ["hinge", "logistic", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute"]


@pytest.mark.parametrize("loss", LOSSES)
def test_h_is_the_best_of_all_assignments(loss):
    rng = np.random.default_rng(len(loss))
    for _ in range(60):  # 6,300 rows over the losses
        case = draw_case(rng, loss)
        X, y = draw_rows(rng, case, 15)
        coef, intercept = rng.normal(size=X.shape[1]) * rng.choice([0.3, 1.0, 3.0]), float(rng.normal())
        coef[rng.random(coef.size) < 0.1] = 0.0
        lam = case.problem.kappa(coef) + float(rng.exponential(rng.choice([0.1, 1.0])))
        expected = dual_loss(case.problem, coef, intercept, lam, X, y)
        lower, upper = case.problem.bounds(coef, intercept, lam, X, y)
        assert (lower <= upper).all()
        for side in (lower, upper):
            assert (np.abs(side - expected) <= 1e-12 * np.maximum(1.0, np.abs(expected))).all()


@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
def test_moved_rows_earn_what_is_said_and_the_gradient_is_a_subgradient(loss):
    rng = np.random.default_rng(5)
    for _ in range(8):
        case = draw_case(rng, loss)
        problem = case.problem
        X, y = draw_rows(rng, case, 20)
        coef, intercept = rng.normal(size=X.shape[1]), float(rng.normal())
        lam = problem.kappa(coef) + float(rng.exponential(0.3))
        found = problem.family.moves(X, y, coef, intercept, lam, points=True)
        data = problem.validate(found.X, y)  # every group is still one-hot, numbers inside their walls
        score = data.rows.dot(coef) + intercept
        signal = found.label * score if problem.is_classification else score - y
        np.testing.assert_allclose(signal, found.signal, atol=1e-12)
        price = found.cost - found.travel
        np.testing.assert_allclose(problem.family.lengths(found.X - X) + price, found.cost, atol=1e-12)
        np.testing.assert_allclose(problem.loss.value(signal) - lam * found.cost, found.lower, atol=1e-12)
        risk, (low, high) = problem.risk(coef, intercept, X, y), problem.multiplier_interval(coef, intercept, X, y)
        trials = [problem.objective(coef, intercept, lam, X, y) for lam in np.linspace(low, high + 1e-9, 50)]
        assert min(trials) - problem.radius * (high - low) / 49 - 1e-12 <= risk <= min(trials) + 1e-12
        slope = problem.gradient(coef, intercept, X, y)
        for _ in range(5):
            step, rise = 0.3 * rng.normal(size=coef.size), 0.3 * float(rng.normal())
            ahead = problem.risk(coef + step, intercept + rise, X, y)
            assert ahead >= risk + slope.coef @ step + slope.intercept * rise - 1e-9


def test_a_binary_column_of_price_one_is_the_unit_interval_for_the_hinge():
    rng = np.random.default_rng(8)
    X = rng.integers(0, 2, size=(60, 4)).astype(float)
    y = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    settings = {"radius": 0.2, "norm": "l1", "label_cost": 1.5}
    changed = Problem("hinge", categories=[[None, j] for j in range(4)], category_cost=1.0, **settings)
    walled = Problem("hinge", support=(0.0, 1.0), **settings)
    for _ in range(50):
        coef, intercept = rng.normal(size=4), float(rng.normal())
        assert changed.risk(coef, intercept, X, y) == pytest.approx(walled.risk(coef, intercept, X, y), abs=1e-12)
        lam = float(rng.exponential())
        np.testing.assert_allclose(
            changed.h(coef, intercept, lam, X, y), walled.h(coef, intercept, lam, X, y), atol=1e-12
        )


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


def test_constants_hold():
    rng = np.random.default_rng(11)
    case = draw_case(rng, "logistic", walls=False)
    X, y = draw_rows(rng, case, 30)
    known = case.problem.constants(X)
    coef, intercept = rng.normal(size=X.shape[1]), float(rng.normal())
    lam = case.problem.kappa(coef) + 1.0
    for _ in range(8):
        step = 0.05 * rng.normal(size=coef.size)
        change = case.problem.h(coef + step, intercept, lam, X, y) - case.problem.h(coef, intercept, lam, X, y)
        assert np.abs(change).max() <= known.parameters * np.linalg.norm(step) + 1e-12
        change = case.problem.h(coef, intercept, lam + 0.1, X, y) - case.problem.h(coef, intercept, lam, X, y)
        assert np.abs(change).max() <= 0.1 * known.multiplier + 1e-12


def test_numbers_between_walls_that_no_row_is_near():
    """All rows of a block may go as far as the walls, which then have the shape of one row."""
    problem = Problem(
        "hinge",
        radius=0.5,
        norm="l1",
        categories=[[1, 2]],
        support=([-5.0, -np.inf, -np.inf], [5.0, np.inf, np.inf]),
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
    walled = Problem("huber", support=(low, high), **settings)
    high[3] = np.inf
    coef = rng.normal(size=4)
    assert Problem("huber", support=(low, high), **settings).risk(coef, 0.1, X, y) == walled.risk(coef, 0.1, X, y)
