"""Leaves of rows: completed in any order, and summed alike whatever is around them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore.data.sources import Chunk
from dualcore.data.sums import leaf_rows
from dualcore.reading.leaves import Leaves, complete_edges, cut_leaves


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
    found, others = cut_leaves(span(start, stop), 8, end)
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
