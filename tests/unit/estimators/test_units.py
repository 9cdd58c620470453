"""Units of columns: exact means and deviations, the same from every source of the same rows."""

import numpy as np

from dualcore import ArraySource, open_source
from dualcore.estimators.units import Units
from pairs import every_value
from source_kinds import KINDS, every_kind, make_table, rows_of


def standardised(source):
    return Units.of(source, None).rows(source)


@every_value(every_kind, weighted=[False, True])
def test_every_source_gives_the_same_bits(kind, weighted, tmp_path):
    table = make_table(5000, 4, weighted=weighted)
    source = KINDS[kind](table, tmp_path)
    source.survey()  # what does not know its rows has to count them
    before = source.n_reads
    found, expected = standardised(source).transform, standardised(ArraySource(*table)).transform
    assert source.n_reads == before + 1
    np.testing.assert_array_equal(found.centre, expected.centre)
    np.testing.assert_array_equal(found.scale, expected.scale)
    X = table.X.astype(np.float64)
    mean = np.average(X, axis=0, weights=table.weights)
    np.testing.assert_allclose(found.centre, mean, rtol=0, atol=1e-15)
    deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=table.weights))
    np.testing.assert_allclose(found.scale, deviation, rtol=1e-14)


def test_large_means_and_outliers_cost_no_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) * [1e-3, 1.0, 1e6] + [1e6, -1e9, 0.0]
    X[0] += 1e9  # a first row far from all others
    found = standardised(open_source(X, np.ones(20_000)))
    exact = X.astype(np.longdouble)
    np.testing.assert_allclose(found.transform.centre, exact.mean(axis=0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(found.transform.scale, exact.std(axis=0).astype(float), rtol=1e-12)
    np.testing.assert_allclose(rows_of(found)[0].std(axis=0), 1.0, rtol=1e-10)


def test_rows_of_no_weight_do_not_count():
    X = np.concatenate([np.random.default_rng(0).normal(size=(5000, 2)), np.full((3000, 2), 1e6)])
    weights = np.concatenate([np.ones(5000), np.zeros(3000)])
    found = standardised(ArraySource(X, np.ones(8000), weights))
    np.testing.assert_allclose(found.transform.centre, X[:5000].mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(found.transform.scale, X[:5000].std(axis=0), rtol=1e-14)
