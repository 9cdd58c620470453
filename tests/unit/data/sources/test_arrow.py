"""Tables, frames and their files: columns, partitions, globs, URIs, and what is said when a file is at fault."""

from __future__ import annotations

import bz2
import gzip
import os

import numpy as np
import pytest

from dualcore import DualCoreset, Problem
from dualcore.data.sources import (
    ArrowSource,
    CsvSource,
    ParquetSource,
    SourceError,
    SvmlightSource,
    is_source_like,
    open_source,
)  # fmt: skip
from source_kinds import make_table, refused, rows_of, write_parquet

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
    with pytest.raises(SourceError, match="column 'city' is string, not a number; mend its values, code them"):
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
        with pytest.raises(FileNotFoundError, match="There is no"):
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


def test_a_repeated_header_and_a_missing_package_are_named(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,x,y\n1,2,1\n")
    refused(lambda: open_source(tmp_path / "a.csv", "y"), r"The header of .*a\.csv names 'x' twice; rename")
    with pytest.raises(SourceError, match="The header of the table names 'x' twice"):
        open_source(pa.table([[1.0], [2.0], [1.0]], names=["x", "x", "y"]), "y")
    faults = dict.fromkeys(("1,2\n3,4\n", "1,1\n", "7,1.5,a\n8,2,b\n9,,a\n"), "no line of column names: .* like data")
    faults |= {"ä,y\n1,1\n": r"in UTF-8 \(convert", "a,y\nü,1\n": "to UTF-8, .* an estimator takes in source_options"}
    for text, fault in faults.items():
        (tmp_path / "b.csv").write_bytes(text.encode("cp1252"))
        refused(lambda: open_source(tmp_path / "b.csv", "y"), fault)
    (tmp_path / "b.csv").write_text("1990,1991,y\n1,2,1\n")
    assert open_source(tmp_path / "b.csv", "y").feature_names == ("1990", "1991")
    import importlib

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    refused(lambda: ParquetSource("a.parquet", "y"), r"dualcore\[parquet\]", ImportError)


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


@pytest.mark.parametrize("name", ["kdd.trn.bz2", "a9a", "a9a.t", "news20.bz2", "a.txt"])
def test_libsvm_text_is_known_by_what_is_in_it(tmp_path, name):
    text = b"# made by hand\n+1 3:1 11:0.5\n-1 4:1e-3 # note\n"
    (tmp_path / name).write_bytes(bz2.compress(text) if name.endswith("bz2") else text)
    source = open_source(tmp_path / name)
    assert isinstance(source, SvmlightSource)
    assert (source.n_rows, source.n_features) == (2, 11)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_columns_may_have_any_name(tmp_path, kind):
    names = [".x", "a.b", "größe, in m", "y"]
    table = pa.table([X[:, 0], X[:, 1], X[:, 0] * 2.0, Y], names=names)
    save = {} if kind == "feather" else {"index": False}
    getattr(table.to_pandas(), f"to_{kind}")(tmp_path / f"a.{kind}", **save)
    source = open_source(tmp_path / f"a.{kind}", "y")
    assert source.feature_names == tuple(names[:3])
    np.testing.assert_array_equal(rows_of(source)[0], np.column_stack([X, X[:, 0] * 2.0]))


def test_files_columns_and_separators_are_told_without_names(tmp_path):
    pd.DataFrame(np.column_stack([X, Y])).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame(np.column_stack([X, Y])).to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    np.testing.assert_array_equal(rows_of(open_source(tmp_path, "2"))[0], np.concatenate([X, X]))
    pq.write_table(pa.table(frame_of()), tmp_path / "rows.dat")
    assert open_source(tmp_path / "rows.dat", "y").n_rows == 300
    (tmp_path / "rows.gz").write_bytes(gzip.compress(b"a,y\n1,1\n2,-1\n"))
    assert open_source(tmp_path / "rows.gz", "y").n_rows == 2


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


def write_folder(folder, n_files=5, n=600, m=3):
    table = make_table(n_files * n, m)
    for k in range(n_files):
        part = table._replace(X=table.X[k * n : (k + 1) * n], y=table.y[k * n : (k + 1) * n])
        write_parquet(part, folder / f"part-{k}.parquet", 250)
    return table


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path, row_group_size=250)


def test_only_the_columns_and_row_groups_asked_for_are_read(tmp_path):
    path = write_parquet(make_table(5000, 10), tmp_path / "a.parquet", 1000)
    few, all_of_them = ParquetSource(path, "y", features=["x1"]), ParquetSource(path, "y")
    for source in (few, all_of_them):
        list(source.map(lambda chunk: 0))
    assert few.bytes_read < all_of_them.bytes_read / 3
    labels = all_of_them.bytes_read
    all_of_them.survey()
    assert 0 < all_of_them.bytes_read - labels < labels / 5
    assert all_of_them.n_reads == 1
    path = write_parquet(make_table(6000, 3), tmp_path / "a.parquet", 20)
    source = ParquetSource(path, "y")
    rows = np.sort(source.smallest(0, 5).rows)
    before = source.bytes_read  # targets alone
    source.take(rows)
    assert source.n_reads == 0
    assert 0 < source.bytes_read - before < 0.1 * path.stat().st_size
    source.take(np.arange(0, 6000, 20))
    assert source.n_reads == 1  # every row group was opened


def test_integers_booleans_and_decimals_are_numbers_and_others_refused_by_name(tmp_path):
    columns = {
        "i": pa.array([1, -2, 3], pa.int16()),
        "b": pa.array([True, False, True]),
        "d": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        "f": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "y": pa.array([1, -1, 1], pa.int8()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    X, y = rows_of(ParquetSource(tmp_path / "a.parquet", "y"))
    np.testing.assert_array_equal(X, [[1, 1, 1, 0.5], [-2, 0, 2, 1.5], [3, 1, 3, 2.5]])
    np.testing.assert_array_equal(y, [1.0, -1.0, 1.0])
    for kind in (pa.timestamp("s"), pa.list_(pa.float64()), pa.binary()):
        table = pa.table({"odd": pa.nulls(3, kind), "x": [1.0] * 3, "y": [1.0] * 3})
        with pytest.raises(SourceError, match=r"column 'odd' is .* leave it out \(of a file with features="):
            open_source(table, "y")
        assert open_source(table, "y", features=["x"]).n_features == 1


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_category_is_refused_or_written_out(tmp_path, dictionary):
    colour = pa.array(["red", "green", "red", "blue"])
    columns = {"colour": colour.dictionary_encode() if dictionary else colour, "x": [1.0, 2.0, 3.0, 4.0]}
    pq.write_table(pa.table(columns | {"y": [1.0, -1.0, 1.0, -1.0]}), tmp_path / "a.parquet", row_group_size=2)
    with pytest.raises(SourceError, match=r"column 'colour' is .*; mend its values, code them with categories="):
        ParquetSource(tmp_path / "a.parquet", "y")
    source = ParquetSource(tmp_path / "a.parquet", "y", categories={"colour": ["blue", "green", "red"]})
    assert source.n_features == 4
    np.testing.assert_array_equal(rows_of(source)[0], [[0, 0, 1, 1], [0, 1, 0, 2], [0, 0, 1, 3], [1, 0, 0, 4]])
    source = ParquetSource(tmp_path / "a.parquet", "y", categories={"colour": ["green", "red"]})
    refused(lambda: rows_of(source), r"'blue', not among .*row group 1, row 1")
    refused(lambda: ParquetSource(tmp_path / "a.parquet", "y", categories={"z": [1]}), "not among the features")


def test_labels_are_mapped(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "y": ["no", "yes", "no"]}), tmp_path / "a.parquet")
    refused(lambda: rows_of(ParquetSource(tmp_path / "a.parquet", "y")), "targets are not numbers; labels=")
    for labels in (("no", "yes"), "find"):
        np.testing.assert_array_equal(rows_of(open_source(tmp_path / "a.parquet", "y", labels=labels))[1], [-1, 1, -1])
    with pytest.raises(SourceError, match=r"target is 'no', but .* 'maybe' and 'yes' .*row group 0, row 0"):
        open_source(tmp_path / "a.parquet", "y", labels=("maybe", "yes")).survey()


def test_nulls_are_an_error_or_filled(tmp_path):
    columns = {"x": [1.0, None, 3.0, float("nan")], "i": pa.array([1, 2, None, 4]), "y": [1.0, -1.0, 1.0, -1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"Column 'x' has a null; training with fill=.*row group 0, row 1"):
        rows_of(ParquetSource(tmp_path / "a.parquet", "y"))
    X, _ = rows_of(ParquetSource(tmp_path / "a.parquet", "y", fill=9.0))
    np.testing.assert_array_equal(X, [[1, 1], [9, 2], [3, 9], [9, 4]])
    X, _ = rows_of(ParquetSource(tmp_path / "a.parquet", "y", fill={"x": 0.0, "i": -1.0}))
    np.testing.assert_array_equal(X, [[1, 1], [0, 2], [3, -1], [0, 4]])
    refused(lambda: rows_of(ParquetSource(tmp_path / "a.parquet", "y", fill={"x": 0.0})), "Column 'i' has a null")

    for name in ("y", "w"):  # a target or a weight is never filled
        table = pa.table({"x": [1.0, 2.0], "y": [1.0, -1.0], "w": [1.0, 2.0]} | {name: [1.0, None]})
        with pytest.raises(SourceError, match=f"Column '{name}' has a null; drop_missing"):
            open_source(table, "y", "w", fill=0.0).survey()


def test_files_are_read_by_name_and_their_columns_by_name(tmp_path):
    table = write_folder(tmp_path)
    (tmp_path / "_metadata.parquet").write_text("not data")
    (tmp_path / ".hidden").mkdir()
    write_parquet(make_table(10, 3), tmp_path / ".hidden" / "part.parquet", 10)
    source = ParquetSource(tmp_path, "y")
    np.testing.assert_array_equal(rows_of(source)[0], table.X.astype(float))
    assert "part-3.parquet, row group 1, row 7 of it" in source.describe(3 * 600 + 257)
    # Another order of columns, and another type of numbers, are no fault.
    rewrite(tmp_path / "part-2.parquet", lambda t: t.select(["y", "x2", "x0", "x1"]))
    rewrite(tmp_path / "part-3.parquet", lambda t: t.set_column(0, "x0", t["x0"].cast(pa.float64())))
    np.testing.assert_array_equal(rows_of(ParquetSource(tmp_path, "y"))[0], table.X.astype(float))


def test_a_file_that_is_truncated_or_damaged_is_named(tmp_path):
    write_folder(tmp_path)
    whole = (tmp_path / "part-3.parquet").read_bytes()
    (tmp_path / "part-3.parquet").write_bytes(whole[: len(whole) // 2])
    refused(lambda: ParquetSource(tmp_path, "y"), r"part-3.parquet is not a whole Parquet file")
    write_folder(tmp_path, n=3000)
    path = tmp_path / "part-2.parquet"
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(4).column(0).data_page_offset
    content[start : start + 60] = os.urandom(60)
    path.write_bytes(bytes(content))
    refused(lambda: rows_of(ParquetSource(tmp_path, "y")), r"part-2.parquet, row group 4")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.drop_columns(["x1"]), "part-2.parquet has no column 'x1'"),
        (lambda t: t.rename_columns(["x0", "other", "x2", "y"]), "part-2.parquet has no column 'x1'"),
        (lambda t: t.append_column("more", t["x0"]), "part-2.parquet has a column 'more' that the first file has not"),
        (lambda t: t.set_column(1, "x1", pa.array(["a"] * 600)), "part-2.parquet: column 'x1' is string, not a number"),
    ],
)
def test_a_schema_that_differs_is_named_before_any_read(tmp_path, change, said):
    write_folder(tmp_path)
    rewrite(tmp_path / "part-2.parquet", change)
    refused(lambda: ParquetSource(tmp_path, "y"), said)


def test_an_empty_file_and_a_file_of_one_class_are_no_fault(tmp_path):
    table = write_folder(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "part-0.parquet").slice(0, 0), tmp_path / "part-0a.parquet")
    rewrite(tmp_path / "part-4.parquet", lambda t: t.set_column(3, "y", pa.array(np.ones(600))))
    source = ParquetSource(tmp_path, "y")
    X, y = rows_of(source)
    np.testing.assert_array_equal(X, table.X.astype(float))
    assert (y[-600:] == 1.0).all()
    fit = DualCoreset(size=100, random_state=0).fit(Problem("logistic", radius=0.1), source)
    assert fit.certificate.upper > 0.0
    with pytest.raises(ValueError, match="both classes"):
        DualCoreset(size=10).fit(Problem("logistic", radius=0.1), tmp_path / "part-4.parquet", "y")


def test_a_folder_without_files_and_files_without_rows(tmp_path):
    refused(lambda: ParquetSource(tmp_path, "y"), "holds no file")
    refused(lambda: ParquetSource([], "y"), "No file")
    pq.write_table(pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    refused(lambda: ParquetSource(tmp_path, "y"), r"a.parquet holds no rows")
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("a", pa.float64()), ("y", pa.float64())])):
        pass
    refused(lambda: open_source(tmp_path / "a.parquet", "y"), r"a\.parquet holds no rows")
    frame_of().to_parquet(tmp_path / "b.parquet")
    assert open_source(tmp_path, "y", features=["a"]).n_rows == 300


def test_csv_separators_and_faults(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("colour;x;y\n1;0.5;good\n2;1.5;bad\n1;2.5;good\n")
    options = {"labels": ("bad", "good"), "categories": {"colour": ["1", "2"]}, "separator": ";"}
    X, y = rows_of(open_source(tmp_path / "a.csv", "y", **options))
    np.testing.assert_array_equal(X, [[1, 0, 0.5], [0, 1, 1.5], [1, 0, 2.5]])
    np.testing.assert_array_equal(y, [1.0, -1.0, 1.0])
    refused(lambda: open_source(tmp_path / "a.csv", "y"), r"has one column, 'colour;x;y'.* use separator=';'")
    (tmp_path / "a.csv").write_text("x;y\n0,5;1\n1,5;-1\n")  # decimal commas
    refused(lambda: open_source(tmp_path / "a.csv", "y"), r"has one column, 'x;y'.* use separator=';'")
    (tmp_path / "a.csv").write_text("x,y\n1,1\n,-1\n3,1\n")
    for data in (tmp_path / "a.csv", tmp_path):
        with pytest.raises(SourceError, match=r"Column 'x' has a null.*a.csv, data row 1"):
            rows_of(open_source(data, "y"))
    np.testing.assert_array_equal(rows_of(CsvSource(tmp_path / "a.csv", "y", fill=7.0))[0][:, 0], [1, 7, 3])
    refused(lambda: CsvSource(tmp_path / "a.csv", "z"), r"a.csv has no column 'z'")
    (tmp_path / "b.csv").write_text("x,y\n1,1\ntwo,-1\n")
    refused(lambda: CsvSource(tmp_path / "b.csv", "y"), r"b.csv: column 'x' is string, not a number")
    (tmp_path / "c.csv").write_text("x,y\n1,1\n2,3,4\n")
    refused(lambda: rows_of(CsvSource(tmp_path / "c.csv", "y")), r"c.csv")
    (tmp_path / "d.csv").write_text("")
    refused(lambda: CsvSource(tmp_path / "d.csv", "y"), r"d.csv is not a CSV file with a header line")
    (tmp_path / "e.csv").write_text("x,z\n1,1\n")
    refused(lambda: CsvSource([tmp_path / "a.csv", tmp_path / "e.csv"], "y"), r"e.csv has no column 'y'")
    monkeypatch.setattr("dualcore.data.sources.tables._TEXT_BLOCK", 1 << 12)
    lines = [f"{k}.0,{1 if k % 2 else -1}" for k in range(5000)]
    lines[4000] = "four thousand,1"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    with pytest.raises(SourceError, match=r"Could not read .*a.csv after data row \d+: .*four thousand"):
        rows_of(CsvSource(tmp_path / "a.csv", "y"))
