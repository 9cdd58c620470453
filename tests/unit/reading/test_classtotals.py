"""Sums of the classes before any model: right, and the same however rows are cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore.data.sources import ArraySource, open_source
from dualcore.reading.classtotals import class_totals

N, M, K = 1203, 9, 4


def rows(weighted):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, M)) * 10.0 ** rng.integers(-3, 4, size=M), rng.integers(K, size=N).astype(float)
    return X, y, rng.uniform(0.1, 3.0, size=N) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_totals_do_not_depend_on_the_chunks(weighted, kind):
    X, y, weights = rows(weighted)
    X = X.astype(kind)
    known = class_totals(ArraySource(X, y, weights), K)
    for chunk_rows in (1, 7, 64, 333, 1000):
        found = class_totals(ArraySource(X, y, weights, chunk_rows=chunk_rows), K)
        for one, other in zip(known, found, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("weighted", [False, True])
def test_totals_are_those_of_the_rows(weighted):
    X, y, weights = rows(weighted)
    masses = np.full(N, 1.0 / N) if weights is None else weights / weights.sum()
    for given in (X, sp.csr_matrix(X)):
        found = class_totals(open_source(given, y, weights), K)
        assert found.n_rows == N
        np.testing.assert_allclose(found.masses, np.bincount(y.astype(int), masses), rtol=1e-13)
        np.testing.assert_allclose(found.moments, [(masses * (y == k)) @ X for k in range(K)], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(found.sizes, np.sqrt(masses @ X**2), rtol=1e-13)
