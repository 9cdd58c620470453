"""Sums that do not depend on how the rows were split."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualcore.data.sums import TreeSum, exact_sum, rounded

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


def test_rows_that_are_summed_twice_or_not_at_all_are_noticed():
    tree = TreeSum.of_leaves(0, np.ones((3, 1)))
    with pytest.raises(ValueError, match="summed twice"):
        TreeSum.join([tree, tree])
    with pytest.raises(ValueError, match="nothing"):
        TreeSum().total()
