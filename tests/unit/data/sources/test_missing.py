"""Missing values, separators, compression, lists of files, and labels that are found while reading."""

import numpy as np
import pytest

from dualcore import CsvSource, DaskSource, DualCoreset, ParquetSource, Problem, open_source
from dualcore.data.sources import SourceError, open_labelled
from source_kinds import refused, rows_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 3000
X = RNG.normal(size=(N, 3)) * [1.0, 20.0, 0.1] + [50.0, 0.0, 1.0]
GONE = RNG.random((N, 3)) < [0.05, 0.0, 0.3]
Y = np.where(X[:, 0] + RNG.normal(size=N) > 50.0, 1.0, -1.0)
LOST = RNG.random(N) < 0.02
HOLES = np.where(GONE, np.nan, X)


def write(kind, folder, text=False):
    """Write the rows in two files and return a list of them."""
    target = pd.Series(np.where(Y > 0.0, "yes", "no") if text else Y).mask(LOST)
    frame, files = pd.DataFrame(HOLES, columns=["x0", "x1", "x2"]).assign(y=target), []
    for number, part in enumerate((frame[:1100], frame[1100:])):
        files.append(folder / f"{number}.{kind}")
        if kind == "parquet":
            part.to_parquet(files[-1], index=False, row_group_size=400)
        else:
            part.to_csv(files[-1], index=False, sep="\t" if "tsv" in kind else ",", na_rep="NA" if number else "")
    return files


KINDS = ["parquet", "csv.gz", "tsv.bz2"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_missing_values_are_dropped(tmp_path, kind):
    files = write(kind, tmp_path)
    kept = ~(GONE.any(axis=1) | LOST)
    for data in (files, tmp_path):
        source = open_source(data, "y", drop_missing=True, chunk_rows=128)
        found, y = rows_of(source)
        np.testing.assert_array_equal(found, X[kept])
        np.testing.assert_array_equal(y, Y[kept])
        assert (source.n_rows, source.n_dropped) == (kept.sum(), N - kept.sum())
        np.testing.assert_array_equal(source.take(np.array([5, 900, 1500]))[0], X[kept][[5, 900, 1500]])
        assert source.survey().count(1.0) == np.count_nonzero(Y[kept] > 0)
        assert "kept " in source.describe(1500)


@pytest.mark.parametrize("kind", KINDS)
def test_means_and_medians_fill(tmp_path, kind):
    files = write(kind, tmp_path)
    left = HOLES[~LOST]
    for rule, numbers in (("mean", np.nanmean(left, axis=0)), ("median", np.nanmedian(left, axis=0))):
        source = open_source(files, "y", fill=rule, drop_missing=True, chunk_rows=128)
        assert list(source.fill_values) == ["x0", "x1", "x2"]
        np.testing.assert_allclose(list(source.fill_values.values()), numbers, rtol=1e-13)
        found, y = rows_of(source)
        np.testing.assert_array_equal(found, np.where(np.isnan(left), list(source.fill_values.values()), left))
        np.testing.assert_array_equal(y, Y[~LOST])
        assert (source.n_rows, source.n_dropped) == (N - LOST.sum(), LOST.sum())
    source = open_source(files, "y", fill={"x0": "mean", "x2": 7.0}, drop_missing=True)
    assert source.fill_values["x2"] == 7.0
    again = open_source(files, "y", fill=source.fill_values, drop_missing=True)
    np.testing.assert_array_equal(rows_of(again)[0], rows_of(source)[0])


def test_the_mean_does_not_depend_on_the_files(tmp_path):
    found = []
    for kind in ("parquet", "csv"):
        (tmp_path / kind).mkdir()
        found.append(open_source(write(kind, tmp_path / kind), "y", fill="mean", drop_missing=True, chunk_rows=64))
    assert found[0].fill_values == found[1].fill_values
    coresets = [DualCoreset(size=100, random_state=0).build(Problem("logistic", radius=0.1), s) for s in found]
    np.testing.assert_array_equal(coresets[0].indices, coresets[1].indices)
    np.testing.assert_array_equal(coresets[0].weights, coresets[1].weights)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_labels_are_found_beside_missing_ones(tmp_path, kind):
    source, classes = open_labelled(write(kind, tmp_path, text=True), "y", drop_missing=True, fill=0.0)
    assert classes == ("no", "yes")
    np.testing.assert_array_equal(rows_of(source)[1], Y[~LOST])


def test_fills_are_exact_and_what_is_wrong_is_said(tmp_path, monkeypatch):
    table = pa.table(
        {"a": pa.array([1.0, None, 2.0], pa.float32()), "b": pa.array([1, None, 2]), "y": [1.0, -1.0, 1.0]}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found, _ = rows_of(ParquetSource(tmp_path / "a.parquet", "y", fill=0.1))
    np.testing.assert_array_equal(found[1], [0.1, 0.1])
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,,1\n2,,-1\n")
    for wrong in ("mode", float("inf"), {"a": "mode"}):
        with pytest.raises(ValueError, match="fill must be a finite number"):
            CsvSource(path, "y", fill=wrong)
    refused(lambda: CsvSource(path, "y", fill="mean"), "Column 'b' holds no value, so it has no mean")
    with pytest.raises(SourceError, match=r"a\.csv holds no rows: every row has a missing value"):
        CsvSource(path, "y", drop_missing=True).survey()
    pq.write_table(pa.table({"a": [1.0, None], "y": [None, 1.0]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet holds no rows: every row has a missing value"):
        ParquetSource(tmp_path / "a.parquet", "y", drop_missing=True).survey()
    refused(lambda: CsvSource(path, "y", separator="ab"), "separator must be one character", ValueError)
    monkeypatch.setattr("dualcore.data.sources.tables._MOST_KEPT", 1)
    refused(lambda: CsvSource(path, "y", features=["a"], fill="median"), "median")
    with pytest.raises(SourceError, match=r"Column 'b' has a null; training with fill= puts a number"):
        rows_of(CsvSource(path, "y"))


def test_labels_of_a_dask_frame_are_found():
    words = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.where(Y > 0, "yes", "no")})
    frame = pytest.importorskip("dask.dataframe").from_pandas(words, npartitions=4)
    for data, target in ((frame, "y"), (frame[["a", "b"]], frame["y"])):
        source, classes = open_labelled(data, target)
        assert classes == ("no", "yes")
        assert [type(label) for label in classes] == [str, str]
        np.testing.assert_array_equal(rows_of(source)[1], Y)
        given = open_source(data, target, labels=("yes", "no"))
        np.testing.assert_array_equal(rows_of(given)[1], -Y)
    with pytest.raises(SourceError, match=r"The target is 'no', but the classes are 'yes' and 'maybe' \(partition \d"):
        rows_of(open_source(frame, "y", labels=("yes", "maybe")))
    refused(lambda: DaskSource(frame, "a"), "encode it first")
    refused(lambda: rows_of(DaskSource(frame, "y")), "targets are not numbers; labels=")
