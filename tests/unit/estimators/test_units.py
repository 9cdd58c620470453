"""Units of columns: exact means and deviations, the same from every source of the same rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import ArraySource, open_source
from dualcore.data.sources import TransformedSource
from dualcore.estimators.units import Units
from source_kinds import KINDS, NEEDS, make_table


def standardised(source):
    return Units.of(source, None).rows(source)


def rows_of(source):
    chunks = list(source.map(lambda chunk: chunk))
    stack = sp.vstack if sp.issparse(chunks[0].X) else np.concatenate
    return stack([chunk.X for chunk in chunks])


@pytest.mark.parametrize("weighted", [False, True])
def test_every_source_gives_the_same_bits(tmp_path, weighted):
    table = make_table(5000, 4, weighted=weighted)
    expected = None
    for name, make in KINDS.items():
        for package in NEEDS.get(name, []):
            pytest.importorskip(package)
        (tmp_path / name).mkdir()
        source = make(table, tmp_path / name)
        source.survey()  # what does not know its rows has to count them
        before = source.n_reads
        found = standardised(source)
        assert source.n_reads == before + 1
        assert isinstance(found, TransformedSource)
        if expected is None:
            expected = found
            X, w = table.X.astype(np.float64), table.weights if weighted else np.ones(5000)
            mean = np.average(X, axis=0, weights=w)
            np.testing.assert_allclose(found.transform.centre, mean, rtol=0, atol=1e-15)
            np.testing.assert_allclose(
                found.transform.scale, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w)), rtol=1e-14
            )
        np.testing.assert_array_equal(found.transform.centre, expected.transform.centre, err_msg=name)
        np.testing.assert_array_equal(found.transform.scale, expected.transform.scale, err_msg=name)


def test_large_means_and_outliers_cost_no_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) * [1e-3, 1.0, 1e6] + [1e6, -1e9, 0.0]
    X[0] += 1e9  # a first row far from all others
    found = standardised(open_source(X, np.ones(20_000)))
    exact = X.astype(np.longdouble)
    np.testing.assert_allclose(found.transform.centre, exact.mean(axis=0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(found.transform.scale, exact.std(axis=0).astype(float), rtol=1e-12)
    scaled = rows_of(found)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-10)


def test_rows_of_no_weight_do_not_count():
    X = np.concatenate([np.random.default_rng(0).normal(size=(5000, 2)), np.full((3000, 2), 1e6)])
    weights = np.concatenate([np.ones(5000), np.zeros(3000)])
    found = standardised(ArraySource(X, np.ones(8000), weights))
    np.testing.assert_allclose(found.transform.centre, X[:5000].mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(found.transform.scale, X[:5000].std(axis=0), rtol=1e-14)
