"""Sums over rows by their categories against products of columns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore.data.rows import DenseRows, SparseRows
from dualcore.solvers.moving.onehot import OneHotRows


def _rows(rng, sizes, dropped, n_numbers, n=700):
    """Return rows whose columns are in any order, and the columns of every group."""
    parts = [
        np.eye(size + drop)[rng.integers(size + drop, size=n)][:, :size]
        for size, drop in zip(sizes, dropped, strict=True)
    ]
    X = np.hstack([*parts, rng.normal(size=(n, n_numbers))])
    order = rng.permutation(X.shape[1])
    place = np.argsort(order)
    ends = np.cumsum([0, *sizes])
    return X[:, order], [place[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("n_numbers", [0, 3])
@pytest.mark.parametrize("container", [DenseRows, lambda X: SparseRows(sp.csr_array(X))])
def test_sums_are_those_of_the_columns(n_numbers, container):
    rng = np.random.default_rng(1)
    X, groups = _rows(rng, [4, 1, 7, 2], [0, 1, 1, 0], n_numbers)
    rows = OneHotRows(container(X), groups)
    weights, coef = rng.uniform(size=len(X)), rng.normal(size=X.shape[1])
    np.testing.assert_allclose(rows.dot(coef), X @ coef, atol=1e-12)
    np.testing.assert_allclose(rows.transpose_dot(weights), X.T @ weights, atol=1e-11)
    np.testing.assert_allclose(rows.gram(weights), X.T @ (X * weights[:, None]), atol=1e-11)


def test_tables_are_for_groups_of_many_columns():
    assert not OneHotRows.pays([])
    assert not OneHotRows.pays([np.arange(2), np.arange(2, 4)])
    assert OneHotRows.pays([np.arange(20), np.arange(20, 22)])
