"""Dask collections without a cluster: partitions of any kind, and what is said about those that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import DualCoreset, Problem
from dualcore.data.sources import DaskSource, SourceError, open_source
from source_kinds import from_array, make_table, refused, rows_of

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")


def frame_of(table):
    frame = pd.DataFrame({f"x{j}": table.X[:, j] for j in range(table.X.shape[1])})
    return frame.assign(y=table.y)


def test_unknown_sizes_are_counted_and_targets_may_stand_apart():
    table = make_table(1000, 3)
    X = da.from_array(table.X, chunks=(300, 3))
    X = X[da.from_array(np.ones(1000, dtype=bool), chunks=300)]  # Dask no longer knows how long the chunks are
    y = da.from_array(table.y, chunks=300)[da.from_array(np.ones(1000, dtype=bool), chunks=300)]
    source = DaskSource(X, y)
    assert source.n_rows == 1000
    assert source.n_reads == 0
    np.testing.assert_array_equal(rows_of(source)[0], table.X.astype(float))
    table = make_table(500, 3)
    frame = dd.from_pandas(frame_of(table), npartitions=3)
    source = open_source(frame[["x0", "x1", "x2"]], frame["y"])
    np.testing.assert_array_equal(rows_of(source)[1], table.y)
    assert DaskSource(frame, "y", features=["x1"]).n_features == 1


def test_an_empty_partition_is_no_fault(tmp_path):
    table = make_table(1000, 3)
    frame = dd.from_pandas(frame_of(table), npartitions=4)
    frame = dd.concat([frame, frame[frame["x0"] > 1e9]])
    source = DaskSource(frame, "y")
    np.testing.assert_array_equal(rows_of(source)[1], table.y)
    problem = Problem("logistic", radius=0.1)
    found = DualCoreset(size=60, random_state=0).build(problem, source)
    expected = DualCoreset(size=60, random_state=0).build(problem, from_array(table, tmp_path))
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_what_does_not_fit_is_said_at_once(monkeypatch):
    for make, error, said in [
        (lambda f, t: DaskSource(f, "z"), SourceError, "no column 'z'"),
        (lambda f, t: DaskSource(f.assign(c="a"), "y"), SourceError, "Column 'c' is .*, not a number"),
        (lambda f, t: DaskSource(f, None), TypeError, "needs y"),
        (lambda f, t: DaskSource(f, t.y), TypeError, "must be Dask collections"),
        (lambda f, t: DaskSource(da.from_array(t.X), "y"), TypeError, "has no columns"),
        (lambda f, t: DaskSource(da.from_array(t.y), da.from_array(t.y)), SourceError, "must have shape"),
        (lambda f, t: DaskSource(f, da.from_array(t.y, chunks=7)), SourceError, "3 partitions but y .* repartition"),
    ]:
        table = make_table(500, 3)
        with pytest.raises(error, match=said):
            make(dd.from_pandas(frame_of(table), npartitions=3), table)
    table = make_table(500, 3)
    frame = dd.from_pandas(frame_of(table), npartitions=3)
    source = DaskSource(frame[["x0"]], frame[frame["x0"] > 0.0]["y"])
    refused(lambda: rows_of(source), r"Partition \d has \d+ rows but \d+ targets")
    import sys

    table = make_table(50, 3)
    X, y = da.from_array(table.X), da.from_array(table.y)
    monkeypatch.setitem(sys.modules, "dask", None)
    refused(lambda: DaskSource(X, y), r"dualcore\[dask\]", ImportError)
