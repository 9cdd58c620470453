"""What pyarrow brings: partitions, globs, URIs, datasets, frames; headers, indices and truth values of files."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest

from dualcore.data.sources import ArrowSource, SourceError, SvmlightSource, is_source_like, open_labelled, open_source
from source_kinds import refused, rows_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = np.where(X[:, 0] > 0.0, 1.0, -1.0)


def frame_of(part=slice(None)):
    return pd.DataFrame({"a": X[part, 0], "b": X[part, 1], "y": Y[part]})


def partitioned(folder, kind="parquet"):
    for k, name in enumerate(("year=2023/half=1", "year=2023/half=2", "year=2024/half=1")):
        inside = folder / name
        inside.mkdir(parents=True)
        frame = frame_of(slice(100 * k, 100 * (k + 1)))
        getattr(frame, f"to_{kind}")(inside / f"part.{kind}", index=False)
    year, half = np.repeat([2023.0, 2023.0, 2024.0], 100), np.repeat([1.0, 2.0, 1.0], 100)
    return np.column_stack([X, year, half])


# Files


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_folders_of_a_partition_are_columns(tmp_path, kind):
    expected = partitioned(tmp_path / "k=v", kind)  # what is above the folder is none
    source = open_source(tmp_path / "k=v", "y")
    assert source.feature_names == ("a", "b", "year", "half")
    np.testing.assert_array_equal(rows_of(source)[0], expected)
    assert "part." in source.describe(250)
    assert "year=2024" in source.describe(250)
    only = open_source(tmp_path / "k=v", "y", features=["year", "a"])
    np.testing.assert_array_equal(rows_of(only)[0], expected[:, [2, 0]])
    by_year = open_source(tmp_path / "k=v", "year", features=["a"])
    np.testing.assert_array_equal(rows_of(by_year)[1], expected[:, 2])
    some = open_source(f"{tmp_path}/k=v/year=2023/*/part.{kind}", "y")
    assert some.n_rows == 200
    assert some.feature_names == ("a", "b", "half")


def test_partitions_of_text_are_categories(tmp_path):
    for city in ("Lima", "Oslo"):
        (tmp_path / f"city={city}").mkdir()
        frame_of(slice(0, 3)).to_parquet(tmp_path / f"city={city}" / "a.parquet", index=False)
    with pytest.raises(SourceError, match="column 'city' is string, not a number; list its values with categories="):
        open_source(tmp_path, "y")
    found, _ = rows_of(open_source(tmp_path, "y", categories={"city": ["Lima", "Oslo"]}))
    np.testing.assert_array_equal(found[:, 2:], [[1, 0]] * 3 + [[0, 1]] * 3)


def test_globs_lists_and_uris_of_any_file_system(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    for k in range(3):
        frame_of(slice(100 * k, 100 * (k + 1))).to_parquet(tmp_path / f"part-{k}.parquet", index=False)
        path = f"/{tmp_path.name}/year={k}/part-{k}.parquet"
        fsspec.filesystem("memory").pipe(path, (tmp_path / f"part-{k}.parquet").read_bytes())
    uri = f"memory://{tmp_path.name}"
    for data in (f"{tmp_path}/part-*.parquet", [f"{tmp_path}/part-[01].parquet", tmp_path / "part-2.parquet"]):
        assert is_source_like(data)
        np.testing.assert_array_equal(rows_of(open_source(data, "y"))[0], X)
    np.testing.assert_array_equal(rows_of(open_source(f"file://{tmp_path}/*.parquet", "y"))[0], X)
    for data in (uri, f"{uri}/", f"{uri}/year=*/*.parquet", f"{uri}/**/*.parquet"):
        source = open_source(data, "y")
        np.testing.assert_array_equal(rows_of(source)[0], np.column_stack([X, np.repeat([0.0, 1.0, 2.0], 100)]))
        assert f"memory:///{tmp_path.name}/year=2/part-2.parquet, row group 0, row 5" in source.describe(205)
    refused(lambda: open_source(f"{tmp_path}/*.csv", "y"), "No file fits the pattern", FileNotFoundError)
    with pytest.raises(FileNotFoundError, match=r"There is no file memory://nowhere/a\.parquet"):
        open_source("memory://nowhere/a.parquet", "y")
    refused(lambda: open_source("unheard://of/a.parquet", "y"), "cannot be opened")
    for name in ("rows.svm", "rows.csv", "rows.npz", "folder", "folder/"):
        with pytest.raises(FileNotFoundError, match="not found"):
            open_source(f"{tmp_path}/{name}", "y")


def test_a_remote_file_that_changes_is_noticed(tmp_path):
    files = pytest.importorskip("fsspec").filesystem("memory")
    for text, name in (("a,y\n1,1\n2,-1\n", "a.csv"), ("a,y\n1,1\n", "b.csv")):
        files.pipe(f"/{tmp_path.name}/{name}", text.encode())
    source = open_source(f"memory://{tmp_path.name}/*.csv", "y")
    assert source.n_rows == 3
    files.pipe(f"/{tmp_path.name}/b.csv", b"a,y\n1,1\n3,-1\n")
    refused(lambda: rows_of(source), r"b\.csv has changed since it was opened")
    files.rm(f"/{tmp_path.name}/b.csv")
    refused(lambda: rows_of(source), r"b\.csv has gone since it was opened")


def test_a_repeated_header_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("x,x,y\n1,2,1\n")
    refused(lambda: open_source(tmp_path / "a.csv", "y"), r"The header of .*a\.csv names 'x' twice; rename")
    with pytest.raises(SourceError, match="The header of the table names 'x' twice"):
        open_source(pa.table([[1.0], [2.0], [1.0]], names=["x", "x", "y"]), "y")
    (tmp_path / "b.csv").write_text("1,2\n3,4\n")
    refused(lambda: open_source(tmp_path / "b.csv", "2"), "has no line of column names")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_index_of_a_pandas_frame_is_left_out_with_a_word(tmp_path, kind):
    frame = frame_of().sort_values("a")
    path = tmp_path / f"a.{kind}"
    getattr(frame, f"to_{kind}")(path)
    with pytest.warns(UserWarning, match=r"looks like the index of a pandas frame and is left out"):
        source = open_source(path, "y")
    assert source.feature_names == ("a", "b")
    index = {"csv": "", "parquet": "__index_level_0__"}[kind]
    named = open_source(path, "y", features=["b", index])
    np.testing.assert_array_equal(rows_of(named)[0][:, 1], frame.index)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "feather", "table", "pandas"])
def test_truth_values_are_labels_and_numbers(tmp_path, kind):
    frame = frame_of().assign(b=X[:, 1] > 0.0, y=Y > 0.0)
    data = {"table": pa.Table.from_pandas(frame), "pandas": frame}.get(kind)
    if data is None:
        data = tmp_path / f"a.{kind}"
        save = getattr(frame, f"to_{kind.split('.')[0]}")
        save(data, index=False) if kind != "feather" else save(data)
    source, classes = open_labelled(data, "y")
    assert classes == (False, True)
    assert [type(label) for label in classes] == [bool, bool]
    found, y = rows_of(source)
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(found[:, 1], X[:, 1] > 0.0)
    np.testing.assert_array_equal(rows_of(open_source(data, "y"))[1], Y > 0.0)


@pytest.mark.parametrize("name", ["kdd.trn.bz2", "a9a", "a9a.t", "news20.bz2", "a.txt"])
def test_libsvm_text_is_known_by_what_is_in_it(tmp_path, name):
    text = b"# made by hand\n+1 3:1 11:0.5\n-1 4:1e-3 # note\n"
    (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    source = open_source(tmp_path / name)
    assert isinstance(source, SvmlightSource)
    assert (source.n_rows, source.n_features) == (2, 11)


def test_files_are_known_by_what_is_in_them(tmp_path):
    pq.write_table(pa.table(frame_of()), tmp_path / "rows.dat")
    assert open_source(tmp_path / "rows.dat", "y").n_rows == 300
    (tmp_path / "rows.gz").write_bytes(gzip.compress(b"a,y\n1,1\n2,-1\n"))
    assert open_source(tmp_path / "rows.gz", "y").n_rows == 2


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_columns_may_have_any_name(tmp_path, kind):
    names = [".x", "a.b", "größe, in m", "y"]
    table = pa.table([X[:, 0], X[:, 1], X[:, 0] * 2.0, Y], names=names)
    save = {} if kind == "feather" else {"index": False}
    getattr(table.to_pandas(), f"to_{kind}")(tmp_path / f"a.{kind}", **save)
    source = open_source(tmp_path / f"a.{kind}", "y")
    assert source.feature_names == tuple(names[:3])
    np.testing.assert_array_equal(rows_of(source)[0], np.column_stack([X, X[:, 0] * 2.0]))


def test_columns_that_were_never_named_are_numbered_and_tabs_told_by_the_name(tmp_path):
    pd.DataFrame(np.column_stack([X, Y])).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame(np.column_stack([X, Y])).to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    np.testing.assert_array_equal(rows_of(open_source(tmp_path, "2"))[0], np.concatenate([X, X]))


def test_a_file_without_a_row_group_holds_no_rows(tmp_path):
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("a", pa.float64()), ("y", pa.float64())])):
        pass
    refused(lambda: open_source(tmp_path / "a.parquet", "y"), r"a\.parquet holds no rows")
    pq.write_table(pa.table(frame_of()), tmp_path / "b.parquet")
    assert open_source(tmp_path, "y", features=["a"]).n_rows == 300


# What is in memory


def test_tables_frames_and_datasets_are_read_by_a_column(tmp_path):
    pl = pytest.importorskip("polars")
    ds = pytest.importorskip("pyarrow.dataset")
    frame = frame_of()
    partitioned(tmp_path)
    dataset = ds.dataset(tmp_path, partitioning="hive")
    for data in (frame, pa.Table.from_pandas(frame), pl.from_pandas(frame), ds.dataset(pa.Table.from_pandas(frame))):
        assert is_source_like(data, "y")
        source = open_source(data, "y")
        assert isinstance(source, ArrowSource)
        np.testing.assert_array_equal(rows_of(source)[0], X)
        np.testing.assert_array_equal(source.take(np.array([3, 250]))[0], X[[3, 250]])
        assert source.describe(7).endswith("row 7") or "row 7 of it" in source.describe(7)
    assert is_source_like(dataset)
    assert open_source(dataset, "y").feature_names == ("a", "b", "year", "half")
    refused(lambda: open_source(dataset, Y), "y must be the name of its target column", TypeError)
    refused(lambda: open_source(dataset.filter(ds.field("a") > 0.0), "y"), "cannot be read part by part")
    words = pl.from_pandas(frame.assign(c=np.where(X[:, 1] > 0.0, "hi", "lo")).astype({"c": "category"}))
    found, _ = rows_of(open_source(words, "y", categories={"c": ["hi", "lo"]}))
    np.testing.assert_array_equal(found[:, 2], X[:, 1] > 0.0)


def test_what_cannot_be_read_is_refused_with_the_call_that_would_do():
    with pytest.raises(SourceError, match=r"The frame cannot be read: .*column mixed"):
        open_source(pd.DataFrame({"mixed": [1.0, "a"], "y": [1.0, -1.0]}), "y")
    pl = pytest.importorskip("polars")
    lazy = pl.from_pandas(frame_of()).lazy()
    for y in ("y", Y):
        with pytest.raises(TypeError, match=r"pass frame\.collect\(\), or the path that frame\.sink_parquet wrote"):
            open_source(lazy, y)
    reader = pa.Table.from_pandas(frame_of()).to_reader()
    refused(lambda: open_source(reader, "y"), r"can be read once only: pass its table \(read_all\(\)\)", TypeError)
