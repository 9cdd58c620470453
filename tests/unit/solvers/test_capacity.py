"""What does not fit the machine is refused before work."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.data.sources import PartsSource
from dualcore.solvers import capacity


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(capacity, "physical_memory", lambda: 1e6)


def rows(n, m):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, m)), np.where(rng.random(n) > 0.5, 1.0, -1.0)


def test_the_memory_of_this_machine_is_known_or_infinite(monkeypatch):
    assert capacity.physical_memory() > 1e8
    monkeypatch.delattr(capacity.os, "sysconf")
    assert capacity.physical_memory() == np.inf


@pytest.mark.parametrize(
    ("solver", "shape"), [("structured", (400, 300)), ("conic", (400, 60)), ("descent", (400, 300))]
)
def test_a_solver_that_needs_more_memory_than_there_is_refuses(solver, shape, small_machine):
    X, y = rows(*shape)
    advice = "Use a coreset" if solver == "descent" else "Use solver='descent'"
    with pytest.raises(capacity.TooLargeError, match=f"solver='{solver}' would need about .* GB.*{advice}") as caught:
        solve(Problem("logistic", radius=0.1), X, y, solver=solver)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, MemoryError)


def test_rows_that_fit_are_not_refused(small_machine):
    X, y = rows(400, 20)
    assert solve(Problem("logistic", radius=0.1), X, y).converged


def test_sparse_rows_are_counted_as_stored():
    X, y = rows(2000, 50)
    X[:, 1:] = 0.0
    problem = Problem("hinge", radius=0.1)
    dense, sparse = (problem.validate(each, y) for each in (X, sp.csr_array(X)))
    assert capacity.needed_bytes(problem, sparse, "conic") < 0.05 * capacity.needed_bytes(problem, dense, "conic")


def test_too_many_rows_for_a_few_numbers_each_are_refused(small_machine, monkeypatch):
    monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", 1000)
    X, y = rows(20_000, 2)
    with pytest.raises(capacity.TooLargeError, match=r"keeps about 12 numbers a row.*Use a coreset"):
        solve(Problem("logistic", radius=0.1), PartsSource(lambda: iter([(X, y)])))
