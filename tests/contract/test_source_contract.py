"""What every source promises: all rows, in order, counted honestly, and the same pilot as any other."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore.data.sources import ArraySource, PartsSource, Source, SourceError, is_source_like, open_source
from pairs import every_value
from source_kinds import KINDS, Table, every_kind, from_array, make_table

N, M = 4321, 5


# Every kind of source with weights or without, in turn; the other half runs with the slow tests.
each_source = every_value(every_kind, weighted=[False, True])


@pytest.fixture
def table(weighted) -> Table:
    return make_table(N, M, weighted=weighted)


@pytest.fixture
def source(kind, table, tmp_path) -> Source:
    return KINDS[kind](table, tmp_path)


@each_source
def test_it_knows_its_size_and_a_source_is_not_opened_twice(source, table):
    assert open_source(source) is source
    assert is_source_like(source)
    with pytest.raises(TypeError, match="carries its own"):
        open_source(source, np.ones(3))
    assert (source.n_rows, source.n_features) == (N, M)
    assert source.is_weighted == (table.weights is not None)
    expected = float(N) if table.weights is None else table.weights.sum()
    assert source.total_weight == pytest.approx(expected, rel=1e-13)


@each_source
def test_a_read_gives_every_row_once_and_in_order(source, table):
    before = source.n_reads
    chunks = list(source.map(lambda chunk: chunk))
    assert source.n_reads == before + 1
    assert source.fold(lambda chunk: chunk.y.size, sum) == N
    assert [chunk.start for chunk in chunks] == np.cumsum([0, *(chunk.y.size for chunk in chunks[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), table.X.astype(np.float64))
    np.testing.assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), table.y)
    for chunk in chunks:
        assert chunk.X.dtype == np.float64
        assert chunk.X.flags.c_contiguous
        assert (chunk.weights is None) == (table.weights is None)
    if table.weights is not None:
        np.testing.assert_array_equal(np.concatenate([chunk.weights for chunk in chunks]), table.weights)


@each_source
def test_the_pilot_is_that_of_the_array(source, table, tmp_path):
    for label in (None, -1.0, 1.0):
        expected = from_array(table, tmp_path).smallest(11, 50, label)
        found = source.smallest(11, 50, label)
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.masses, expected.masses)
        assert found.mass == expected.mass
    # More rows than there are.
    found = source.smallest(3, 10 * N, 1.0)
    np.testing.assert_array_equal(np.sort(found.rows), np.flatnonzero(table.y == 1.0))
    assert found.mass == pytest.approx(found.masses.sum(), rel=1e-12)


@each_source
def test_rows_are_looked_up(source, table):
    rows = np.array([0, 1, 17, 1500, 1501, N - 1])
    X, y = source.take(rows)
    np.testing.assert_array_equal(X, table.X[rows].astype(np.float64))
    np.testing.assert_array_equal(y, table.y[rows])
    reads = source.n_reads
    X, y = source.take(np.empty(0, dtype=np.int64))
    assert (X.shape, y.shape) == ((0, table.X.shape[1]), (0,))
    assert source.n_reads == reads


@each_source
def test_masses_of_all_rows_and_a_function_that_fails_is_heard(source, table):
    expected = np.full(N, 1.0 / N) if table.weights is None else table.weights / table.weights.sum()
    np.testing.assert_allclose(source.row_masses(), expected, rtol=1e-13)

    def fail(chunk):
        raise ZeroDivisionError("of our own")

    with pytest.raises(ZeroDivisionError, match="of our own"):
        list(source.map(fail))


@every_kind
def test_nan_is_found_in_the_first_read_and_its_row_is_named(kind, tmp_path):
    table = make_table(N, M)
    table.X[3210, 2] = np.nan
    source = KINDS[kind](table, tmp_path)
    with pytest.raises(SourceError, match=r"NaN|null") as caught:
        list(source.map(lambda chunk: chunk.y.size))
    assert source.n_reads <= 2  # a source that has to count its rows first has read them once
    where = {"parquet": "row group 4, row 410", "parquet folder": "part-002.parquet, row group 0, row 208"}
    where |= {"uri": "part-002.parquet, row group 0, row 208", "feather": "001.feather, row 1209 of it"}
    where |= {"arrow dataset": "one.parquet, row group 4, row 410", "gzipped csv": "rows.csv.gz, data row 3210"}
    where |= {"csv": "data row 3210", "parts": "part 8, row 102", "dask array": "partition 3, row 477"}
    assert where.get(kind, "row ") in str(caught.value)


@every_kind
def test_a_third_label_is_refused_by_name(kind, tmp_path):
    table = make_table(N, M)
    table.y[7] = 3.0
    with pytest.raises(SourceError, match=r"labels -1 and \+1, found 3.0"):
        KINDS[kind](table, tmp_path).class_survey((-1.0, 1.0))


def test_sparse_rows_stay_sparse():
    table = make_table(N, M, weighted=True)
    X = sp.csr_matrix(np.where(np.abs(table.X) > 1.0, table.X, 0.0))
    for source in (
        ArraySource(X, table.y, table.weights),
        PartsSource([(X[:100], table.y[:100]), (X[100:], table.y[100:])]),
    ):
        assert all(sp.issparse(chunk.X) for chunk in source.map(lambda chunk: chunk))
        assert sp.issparse(source.take(np.array([1, 2]))[0])
        rows = np.sort(source.smallest(1, 20, 1.0).rows)
        np.testing.assert_array_equal(source.take(rows)[0].toarray(), X[rows].toarray())
