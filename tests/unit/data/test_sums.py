"""Sums that do not depend on how the rows were split."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dualcore.data.sources.chunk import Chunk, complete_edges
from dualcore.data.sums import Leaves, TreeSum, exact_sum, leaf_rows, rounded

cuts = st.lists(st.integers(1, 4999), max_size=12, unique=True).map(sorted)


def parts_of(n: int, inner: list[int]) -> list[tuple[int, int]]:
    ends = [0, *inner, n]
    return list(itertools.pairwise(ends))


@given(cuts)
def test_an_exact_sum_is_the_same_for_every_split(inner):
    values = np.random.default_rng(0).normal(size=5000) * 10.0 ** np.random.default_rng(1).integers(-8, 8, 5000)
    assert sum(exact_sum(values[a:b]) for a, b in parts_of(5000, inner)) == exact_sum(values)
    assert rounded(exact_sum(values)) == math.fsum(values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_an_exact_sum_is_exact(values):
    exact = sum(map(Fraction, values), Fraction(0))
    assert Fraction(exact_sum(np.array(values, dtype=np.float64)), 1 << 1126) == exact
    assert rounded(exact_sum(np.array(values, dtype=np.float64)), 1000) == float(exact / 1000)


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


def span(start: int, stop: int) -> Chunk:
    return Chunk(start, np.zeros((stop - start, 1)), np.zeros(stop - start), None)


@pytest.mark.parametrize(
    ("start", "stop", "end", "whole", "edges"),
    [
        (0, 32, None, (0, 32), []),
        (1, 32, None, (8, 32), [(1, 8)]),
        (0, 31, None, (0, 24), [(24, 31)]),
        (0, 31, 31, (0, 31), []),
        (9, 15, None, None, [(9, 15)]),
        (25, 31, 31, None, [(25, 31)]),
        (7, 9, None, None, [(7, 8), (8, 9)]),
    ],
)
def test_complete_leaves_of_a_chunk(start, stop, end, whole, edges):
    found, others = span(start, stop).leaves(8, end)
    assert (found and (found.start, found.stop)) == whole
    assert [(edge.start, edge.stop) for edge in others] == edges


def test_fragments_complete_a_leaf_only_without_gaps():
    spans = [(4, 8), (0, 4), (8, 11), (13, 16), (16, 20)]
    found = complete_edges([span(*each) for each in spans], 8, 20)
    whole, left = ([(chunk.start, chunk.stop) for chunk in part] for part in found)
    assert whole == [(0, 8), (16, 20)]
    assert left == [(8, 11), (13, 16)]


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
    np.testing.assert_allclose(leaves.squares(None), [(X[s] ** 2).sum(axis=0) for s in spans], rtol=1e-11)
