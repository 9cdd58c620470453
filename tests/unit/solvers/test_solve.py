"""The front door: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import IncompatibleError, Problem, solve
from dualcore.solvers import SOLVERS, Status
from dualcore.solvers.conic import ConicSolver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.structured import StructuredSolver
from pairs import every_value
from solver_cases import FIRST_ORDER, both_solvers, classes, data_for, every_norm

# What a Solution says


def test_every_outcome_is_one_sentence_of_its_own():
    sentences = [status.value for status in Status]
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert sentence[0].isupper()
        assert sentence.endswith(".")


def test_a_solution_says_everything_about_itself():
    problem = Problem("logistic", radius=0.1, label_cost=2.0)
    X, y = classes()
    solution = solve(problem, X, y)
    assert solution.value == problem.risk(solution.coef, solution.intercept, X, y)
    assert solution.dual_variable == problem.multiplier(solution.coef, solution.intercept, X, y)
    assert solution.gap == solution.value - solution.lower_bound
    assert solution.relative_gap == solution.gap / solution.value
    assert solution.status is Status.OPTIMAL
    assert solution.converged
    assert solution.solver == "structured"
    assert 1 <= solution.iterations < 200
    assert solution.seconds > 0.0
    assert solution != dataclasses.replace(solution)
    assert solution.dual.stay.shape == y.shape
    text = repr(solution)
    assert "history" not in text
    assert "Solved" in text
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.value = 0.0


def test_auto_takes_the_structured_solver_where_it_applies():
    assert list(SOLVERS) == ["structured", "box", "descent", "conic"]
    for loss in FIRST_ORDER:
        problem = Problem(loss, radius=0.2)
        assert solve(problem, *data_for(problem)).solver == "structured"
    for name, settings, solver in (
        ("squared", {}, "conic"),
        ("squared_hinge", {}, "descent"),
        ("squared_hinge", {"label_cost": 1.0}, "conic"),
        ("power", {"power": 3.0}, "descent"),
    ):
        problem = Problem(name, radius=0.2, **settings)
        assert solve(problem, *data_for(problem)).solver == solver


# What is refused, before any work


@pytest.fixture
def idle(monkeypatch):
    """Solvers that may be asked but must not run."""
    for cls in (StructuredSolver, ConicSolver, DescentSolver):
        monkeypatch.setattr(cls, "run", lambda *_, **__: pytest.fail("a solver began to work"))


def test_a_loss_that_no_solver_takes_is_refused_with_its_name(idle, monkeypatch):
    for cls in (StructuredSolver, ConicSolver, DescentSolver):
        monkeypatch.setattr(cls, "obstacle", lambda *_: "not today")
    with pytest.raises(IncompatibleError, match="Hinge"):
        solve(Problem("hinge", radius=0.1), *classes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "simplex"}, r"Unknown solver 'simplex'.*conic.*structured"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": -1.0}, "tol must be positive"),
        ({"tol": np.nan}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
    ],
)
def test_an_option_out_of_range_is_named(idle, options, message):
    with pytest.raises(ValueError, match=message):
        solve(Problem("hinge", radius=0.1), *classes(), **options)


def with_entry(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


def test_bad_data_are_named(idle):
    problem, (X, y) = Problem("hinge", radius=0.1), classes()
    with pytest.raises(ValueError, match="NaN or infinite value in row 7"):
        solve(problem, with_entry(X, (7, 1), np.nan), y)
    with pytest.raises(ValueError, match="NaN or infinite value"):
        solve(problem, sp.csr_array(with_entry(X, (7, 1), np.inf)), y)
    with pytest.raises(ValueError, match="y has a NaN"):
        solve(problem, X, with_entry(y, (3,), np.nan))
    with pytest.raises(ValueError, match=r"60 rows but y has 59"):
        solve(problem, X, y[:-1])
    with pytest.raises(ValueError, match="labels -1 and"):
        solve(problem, X, 0.5 + 0.5 * y)
    with pytest.raises(ValueError, match="one class only"):
        solve(problem, X, np.ones_like(y))
    with pytest.raises(ValueError, match="0 sample"):
        solve(problem, X[:0], y[:0])
    with pytest.raises(ValueError, match="negative"):
        solve(problem, X, y, np.linspace(-1.0, 1.0, y.size))


def test_weights_that_empty_a_class_are_refused(idle):
    X, y = classes()
    with pytest.raises(ValueError, match=r"Every row of class \+1 has zero weight"):
        solve(Problem("logistic", radius=0.1), X, y, (y < 0.0).astype(float))


def test_a_warm_start_of_other_features_is_refused(monkeypatch):
    X, y = classes(m=3)
    earlier = solve(Problem("hinge", radius=0.1), X, y)
    monkeypatch.setattr(StructuredSolver, "run", lambda *_, **__: pytest.fail("it began to work"))
    with pytest.raises(ValueError, match="3 coefficients but the rows have 2 features"):
        solve(Problem("hinge", radius=0.1), X[:, :2], y, warm_start=earlier)


# Not converged


@both_solvers
def test_more_iterations_never_hurt_much_and_in_the_end_suffice(solver):
    problem, data = Problem("logistic", radius=0.05, norm="l1", label_cost=1.0), classes()
    gaps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for max_iter in (1, 3, 6, 10, 20, 100):
            gaps.append(solve(problem, *data, solver=solver, max_iter=max_iter).relative_gap)
    assert gaps[-1] <= 1e-6
    assert gaps[0] > 1e-3


# Starting from an earlier solution


@every_value(both_solvers, every_norm, loss=FIRST_ORDER)
def test_a_warm_start_from_another_radius_ends_at_the_same_optimum(loss, norm, solver):
    problem = Problem(loss, radius=0.1, norm=norm, label_cost=2.0)
    X, y = data_for(problem)
    cold = solve(problem, X, y, solver=solver)
    for radius in (0.0, 0.05, 0.2, 5.0):
        earlier = solve(problem.replace(radius=radius), X, y, solver=solver)
        warm = solve(problem, X, y, solver=solver, warm_start=earlier)
        assert warm.converged
        assert warm.value == pytest.approx(cold.value, rel=1e-6)


@every_value(both_solvers, size=[0.0, 1e-3, 1e3, 1e8], label_cost=[1.0, np.inf], loss=FIRST_ORDER)
def test_a_warm_start_may_be_anything(loss, label_cost, size, solver):
    problem = Problem(loss, radius=0.1, label_cost=label_cost)
    X, y = data_for(problem)
    best = solve(problem, X, y)
    elsewhere = dataclasses.replace(best, coef=np.full(3, size), intercept=-size, dual=None)
    warm = solve(problem, X, y, solver=solver, warm_start=elsewhere)
    assert warm.converged
    assert warm.value == pytest.approx(best.value, rel=1e-6)


# Containers and types


def containers(X: np.ndarray) -> dict[str, object]:
    return {
        "Fortran order": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "CSR": sp.csr_array(X),
        "CSC": sp.csc_array(X),
        "pandas": pd.DataFrame(X),
        "list": X.tolist(),
    }


@pytest.mark.parametrize(
    ("loss", "solver"),
    [
        ("logistic", "structured"),
        ("logistic", "conic"),
        ("huber", "structured"),
        ("huber", "conic"),
        ("squared", "conic"),
    ],
)
def test_the_container_does_not_matter(loss, solver):
    problem = Problem(loss, radius=0.1, label_cost=3.0)
    X, y = data_for(problem)
    expected = solve(problem, X, y, solver=solver)
    for name, container in containers(X).items():
        found = solve(problem, container, y, solver=solver)
        assert found.value == pytest.approx(expected.value, rel=1e-7), name


@both_solvers
def test_single_precision_is_widened_not_trusted(solver):
    problem, (X, y) = Problem("logistic", radius=0.1), classes()
    narrow = X.astype(np.float32)
    found = solve(problem, narrow, y, solver=solver)
    assert found.value == pytest.approx(solve(problem, narrow.astype(np.float64), y, solver=solver).value, rel=1e-9)
    assert found.coef.dtype == np.float64


def test_the_value_along_a_path_of_radii_is_concave_and_rising():
    """The optimum is a minimum of functions that are concave in the radius."""
    X, y = classes()
    radii = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
    values = np.array([solve(Problem("logistic", radius=r, label_cost=1.0), X, y, tol=1e-9).value for r in radii])
    assert (np.diff(values) >= -1e-9).all()
    slopes = np.diff(values) / np.diff(radii)
    assert (np.diff(slopes) <= 1e-6).all()


@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber", "squared", "squared_hinge"])
def test_small_sparse_rows_are_solved_as_dense_ones_to_the_last_digit(loss):
    """A product with a small sparse matrix is overhead, and thousands of them took longer than the numbers."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4)) * (rng.random((60, 4)) < 0.4)
    problem = Problem(loss, radius=0.1, label_cost=1.0)
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=60)
    y = np.where(y > 0.0, 1.0, -1.0) if problem.is_classification else y
    thin, whole = (solve(problem, each, y) for each in (sp.csc_matrix(X), X))
    np.testing.assert_array_equal(thin.coef, whole.coef)
    assert (thin.value, thin.lower_bound, thin.iterations) == (whole.value, whole.lower_bound, whole.iterations)
