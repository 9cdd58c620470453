"""The same seed gives the same coreset, to the last bit, however the rows were chunked and wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dualcore import Anchor, Coreset, DualCoreset, Problem
from dualcore.data.sources import ArraySource, Chunk, PartsSource, Source
from dualcore.solvers.assess import read_model
from source_kinds import Table, make_table

PROBLEMS = {
    "logistic that flips": Problem("logistic", radius=0.1, norm="l1", label_cost=1.5),
    "hinge": Problem("hinge", radius=0.1, norm="linf", ridge=0.01),
    "squared hinge": Problem("squared_hinge", radius=0.1),
    "huber": Problem("huber", radius=0.1),
    "squared": Problem("squared", radius=0.1),
}


class Shuffled(ArraySource):
    """A source that hands out the results of its chunks in an order of its own."""

    def _run(self, function: Callable[[Chunk], object], merge=None, **options) -> Iterator[object]:
        results = list(super()._run(function, merge, **options))
        yield from (results[k] for k in np.random.default_rng(len(results)).permutation(len(results)))


class Cut(ArraySource):
    """A source whose chunks end where we say."""

    def __init__(self, table: Table, ends: list[int]) -> None:
        super().__init__(table.X, table.y, table.weights)
        self.ends = [0, *ends, self.n_rows]

    def _pieces(self, *, features, wanted):
        for start, stop in pairwise(self.ends):
            yield lambda part=slice(start, stop): [self.chunk(part, features=features)]


def build(source: Source, problem: Problem, size: int = 150) -> Coreset:
    """Three rounds: what the first leaves different in the last bit, the solver and the next reads would blow up."""
    return DualCoreset(size=size, rounds=3, random_state=7).build(problem, source)


def assert_same(found: Coreset, expected: Coreset) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert found.anchor is not None
    assert expected.anchor is not None
    np.testing.assert_array_equal(found.anchor.coef, expected.anchor.coef)


@pytest.fixture(scope="module", params=[False, True], ids=["equal", "weighted"])
def tables(request) -> dict[bool, Table]:
    settings = {"n": 9001, "m": 6, "weighted": request.param}
    return {kind: make_table(**settings, classification=kind) for kind in (True, False)}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_chunks_and_their_order_do_not_show(problem, tables):
    table = tables[problem.is_classification]
    n, rows = len(table.y), (table.X, table.y, table.weights)
    expected = build(ArraySource(*rows, chunk_rows=n), problem)
    for chunk_rows in (-(-n // 7), -(-n // 1000)):
        assert_same(build(ArraySource(*rows, chunk_rows=chunk_rows), problem), expected)
    assert_same(build(Shuffled(*rows, chunk_rows=300), problem), expected)


@settings(max_examples=5)
@given(st.lists(st.integers(1, 5999), max_size=30, unique=True).map(sorted))
def test_any_cuts_give_the_same_coreset(ends):
    table, problem = make_table(6000, 3), PROBLEMS["hinge"]
    assert_same(build(Cut(table, ends), problem, 80), build(ArraySource(table.X, table.y), problem, 80))


def test_sparse_rows():
    table, problem = make_table(9000, 8), PROBLEMS["hinge"]
    X = sp.csr_matrix(np.where(np.abs(table.X) > 1.2, table.X, 0.0))
    expected = build(ArraySource(X, table.y), problem)
    assert_same(build(ArraySource(X, table.y, chunk_rows=777), problem), expected)
    assert_same(build(Cut(table._replace(X=X), [5, 4095, 8193]), problem), expected)
    parts = [(X[start : start + 1000], table.y[start : start + 1000]) for start in range(0, 9000, 1000)]
    assert_same(build(PartsSource(parts), problem), expected)


def test_a_long_tail_of_flips_is_bounded_from_above_and_the_same_for_every_chunking(monkeypatch):
    monkeypatch.setattr("dualcore.problem.fliptail._MOST_TAIL", 1000)
    table, problem = make_table(20_000, 4), Problem("hinge", radius=0.05, label_cost=0.5)
    anchor = Anchor(np.array([0.8, -0.5, 0.3, 0.1]), 0.2, 2.0)
    risks = set()
    for chunk_rows in (20_000, 777, 50):
        reading = read_model(problem, ArraySource(table.X, table.y, chunk_rows=chunk_rows), anchor)
        assert reading.summary.tail.n_rows > 1000
        assert reading.summary.tail.delta.size == 0
        risks.add(reading.risk)
    [risk] = risks
    exact = problem.risk(anchor.coef, anchor.intercept, table.X, table.y)
    assert exact * (1.0 - 1e-12) <= risk <= exact * (1.0 + 1e-4)
