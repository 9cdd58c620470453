"""Sums that do not depend on how the rows were split, and the tail of flips that stays an upper bound."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dualcore import Problem
from dualcore.data.sums import FlipTail, Leaves, RowSum, TreeSum, complete_leaves, leaf_rows, split_rows

cuts = st.lists(st.integers(1, 4999), max_size=12, unique=True).map(sorted)


def parts_of(n: int, inner: list[int]) -> list[tuple[int, int]]:
    ends = [0, *inner, n]
    return list(itertools.pairwise(ends))


@given(cuts, st.randoms(use_true_random=False))
def test_a_row_sum_is_the_same_for_every_split_and_order(inner, random):
    values = np.random.default_rng(0).normal(size=5000) * 10.0 ** np.random.default_rng(1).integers(-8, 8, 5000)
    parts = [RowSum.of(a, values[a:b]) for a, b in parts_of(5000, inner)]
    random.shuffle(parts)
    half = len(parts) // 2
    joined = RowSum.join([RowSum.join(parts[:half]), RowSum.join(parts[half:])]) if half else RowSum.join(parts)
    assert joined.total() == RowSum.of(0, values).total()
    assert joined.total() == pytest.approx(values.sum(), rel=1e-9)


def test_plain_sums_do_differ():
    values = np.random.default_rng(0).normal(size=5000)
    totals = {
        sum(values[a:b].sum() for a, b in parts_of(5000, list(range(step, 5000, step)))) for step in (7, 100, 999)
    }
    assert len(totals) > 1  # or the tests above would show nothing


@given(st.integers(0, 40), st.integers(1, 60), st.randoms(use_true_random=False))
def test_a_tree_has_few_nodes_and_joins_in_any_order(first, n, random):
    leaves = np.random.default_rng(n).normal(size=(n, 3))
    tree = TreeSum.of_leaves(first, leaves)
    assert len(tree.nodes) <= 2 * n.bit_length() + 1
    singles = [TreeSum.of_leaves(first + k, leaves[k : k + 1]) for k in range(n)]
    random.shuffle(singles)
    joined = TreeSum.join(singles)
    assert joined.nodes.keys() == tree.nodes.keys()
    np.testing.assert_array_equal(joined.total(), tree.total())


def test_rows_that_are_summed_twice_are_noticed():
    tree = TreeSum.of_leaves(0, np.ones((3, 1)))
    with pytest.raises(ValueError, match="summed twice"):
        TreeSum.join([tree, tree])


def test_nothing_to_sum():
    with pytest.raises(ValueError, match="nothing"):
        TreeSum().total()


@pytest.mark.parametrize(
    ("start", "stop", "end", "expected"),
    [
        (0, 32, None, (0, 32)),
        (1, 32, None, (8, 32)),
        (0, 31, None, (0, 24)),
        (0, 31, 31, (0, 31)),
        (9, 15, None, (15, 15)),
        (25, 31, 31, (31, 31)),
        (7, 9, None, (9, 9)),
    ],
)
def test_split_rows(start, stop, end, expected):
    assert split_rows(start, stop, 8, end) == expected


def test_fragments_complete_a_leaf_only_without_gaps():
    spans = [(4, 8), (0, 4), (8, 11), (13, 16), (16, 20)]
    complete, left = complete_leaves(spans, 8, end=20)
    assert complete == [[1, 0], [4]]
    assert sorted(left) == [2, 3]


@pytest.mark.parametrize("m", [1, 3, 20, 64, 500])
def test_a_product_does_not_depend_on_the_rows_around_it(m):
    rng = np.random.default_rng(0)
    leaf = leaf_rows(m)
    X, coef = rng.normal(size=(6 * leaf + 5, m)), rng.normal(size=m)
    whole = Leaves(X).dot(coef)
    np.testing.assert_allclose(whole, X @ coef, rtol=1e-11, atol=1e-11)
    for first in range(0, 6):
        np.testing.assert_array_equal(Leaves(X[first * leaf :]).dot(coef), whole[first * leaf :])
        np.testing.assert_array_equal(Leaves(X[: (first + 1) * leaf]).dot(coef), whole[: (first + 1) * leaf])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_sums_of_leaves(make):
    rng = np.random.default_rng(0)
    X, values = rng.normal(size=(9000, 20)), rng.normal(size=9000)
    leaves = Leaves(make(X))
    spans = [slice(k, k + leaves.rows) for k in range(0, 9000, leaves.rows)]
    np.testing.assert_allclose(leaves.sums(values), [values[s].sum() for s in spans], rtol=1e-11)
    np.testing.assert_allclose(leaves.moments(values), [X[s].T @ values[s] for s in spans], rtol=1e-9, atol=1e-11)
    assert leaves.counts().sum() == 9000
    place = rng.integers(0, 4, 9000)
    expected = [np.bincount(place[s], values[s], 4) for s in spans]
    np.testing.assert_allclose(leaves.bins(place, values, 4), expected, rtol=1e-11)


def exact(problem: Problem, delta: np.ndarray, mass: np.ndarray, kappa: float) -> float:
    """The minimum of the piecewise linear objective over all its breakpoints."""
    gamma = problem.geometry.label_cost
    at = np.concatenate([[kappa], delta])
    order = np.argsort(delta)[::-1]
    reach, above = np.cumsum((mass * delta)[order]), np.cumsum(mass[order])
    place = np.searchsorted(-delta[order], -at, side="left")
    gain = np.where(place > 0, reach[place - 1] - at * above[place - 1], 0.0)
    return float((problem.radius * at + gamma * gain).min())


@pytest.mark.parametrize("radius", [0.001, 0.05, 0.3, 2.0])
def test_the_histogram_is_an_upper_bound_and_a_tight_one(radius):
    rng = np.random.default_rng(0)
    n, kappa, gamma = 200_000, 0.7, 1.5
    delta, mass = kappa + rng.gamma(2.0, 0.4, n), rng.random(n)
    mass *= 0.6 / mass.sum()
    tail = FlipTail.join([FlipTail(delta, mass)])
    assert tail.delta.size == 0
    assert tail.n_rows == n
    assert tail.bins.size < 10_000
    at, gain = tail.candidates(kappa)
    bound = float((radius * at + gamma * gain).min())
    truth = exact(Problem("logistic", radius=radius, label_cost=gamma), delta, mass, kappa)
    assert truth <= bound <= truth * (1.0 + 1e-5)
    spot = rng.integers(0, at.size, 50)
    expected = [(mass * np.maximum(delta - lam, 0.0)).sum() for lam in at[spot]]
    np.testing.assert_allclose(gain[spot], expected, rtol=1e-9, atol=1e-12)
    assert (gain[spot] >= np.array(expected) * (1.0 - 1e-12)).all()


def test_few_rows_are_kept_as_they_are():
    tail = FlipTail.join(
        [FlipTail(np.array([2.0]), np.array([0.5])), FlipTail.empty(), FlipTail(np.ones(1), np.ones(1))]
    )
    assert tail.bins.size == 0
    assert tail.n_rows == 2
    np.testing.assert_array_equal(tail.sorted()[0], [2.0, 1.0])


def test_the_order_of_joining_does_not_show():
    rng = np.random.default_rng(3)
    parts = [FlipTail(rng.gamma(2.0, size=30_000) + 0.1, rng.random(30_000) / 3e5) for _ in range(6)]
    one = FlipTail.join(parts)
    two = FlipTail.join([parts[5], FlipTail.join([parts[2], parts[0], FlipTail.join(parts[3:5])]), parts[1]])
    np.testing.assert_array_equal(one.bins, two.bins)
    np.testing.assert_array_equal(one.counts, two.counts)


def test_a_tail_that_is_scaled_gains_in_proportion():
    rng = np.random.default_rng(3)
    tail = FlipTail.join([FlipTail(rng.gamma(2.0, size=70_000) + 0.1, np.full(70_000, 1e-6))])
    np.testing.assert_allclose(tail.scaled(4.0).candidates(0.1)[1], 4.0 * tail.candidates(0.1)[1], rtol=1e-12)
    few = FlipTail(np.ones(2), np.ones(2)).scaled(0.5)
    assert few.mass.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("kept", [10, 10_000])
def test_the_brackets_of_a_tail_bound_sums_of_convex_functions(kept, monkeypatch):
    monkeypatch.setattr("dualcore.data.sums._MOST_TAIL", kept)
    rng = np.random.default_rng(0)
    delta, mass = 1.0 + rng.exponential(size=4000), rng.uniform(0.0, 1.0 / 2000, size=4000)
    tail = FlipTail.join([FlipTail(delta[:1000], mass[:1000]), FlipTail(delta[1000:], mass[1000:])])
    value, masses, least = tail.brackets()
    for function in (np.square, lambda v: np.maximum(v - 1.7, 0.0), lambda v: np.maximum(2.0 - v, 0.0) ** 2):
        exact = float(mass @ function(delta))
        assert exact * (1.0 - 1e-12) <= float(masses @ function(value)) <= exact * (1.0 + 1e-5)
    falling = np.maximum(2.0 - delta, 0.0) ** 2
    assert 0.99 * float(mass @ falling) <= float(least @ np.maximum(2.0 - value, 0.0) ** 2)
    assert float(least @ np.maximum(2.0 - value, 0.0) ** 2) <= float(mass @ falling) * (1.0 + 1e-12)


def test_many_long_tails_are_joined_one_by_one():
    rng = np.random.default_rng(0)
    parts = [FlipTail(rng.uniform(0.1, 9.0, size=60_000), np.full(60_000, 1e-7)) for _ in range(12)]
    tracemalloc.start()
    joined = FlipTail.join(parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6  # of all rows at once it would be 80 MB
    assert joined.n_rows == 720_000
    other = FlipTail.join([FlipTail.join(parts[:5]), *parts[:4:-1]])
    np.testing.assert_array_equal(joined.bins, other.bins)
    np.testing.assert_array_equal(joined.counts, other.counts)
