"""Layouts: the same rows from every kind of file, with and without pyarrow, and errors that name file and column."""

import numpy as np
import pytest

from dualcore.cli.commands import layout as layouts
from dualcore.cli.commands.layout import Reading, open_layout
from dualcore.cli.commands.outcome import OptionError
from dualcore.cli.commands.streams import load_rows, open_stream
from dualcore.cli.groups import DataOptions
from dualcore.cli.tables import TableError
from dualcore.data.sources import SourceError

TEXT = "a,b c,label,n\n1.5,2,yes,1\n-3e-2,4,no,2\n0.1,5,yes,4\n"


@pytest.fixture(params=["pyarrow", "plain"])
def reader(request, monkeypatch):
    """Both ways to read CSV; the plain one is what is left where pyarrow is not installed."""
    if request.param == "plain":
        monkeypatch.setattr(layouts, "find_spec", lambda name: None)
    else:
        pytest.importorskip("pyarrow")
    return request.param


def write(folder, text, name="t.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def load(path, target, *, classification=True, **options):
    return load_rows(open_stream(DataOptions(path, target, **options), classification))


@pytest.mark.usefixtures("reader")
class TestCsv:
    def test_numbers_and_labels(self, tmp_path):
        rows = load(write(tmp_path, TEXT), "label", drop=("n",))
        np.testing.assert_array_equal(rows.X, [[1.5, 2.0], [-0.03, 4.0], [0.1, 5.0]])
        assert rows.X.flags.c_contiguous
        assert rows.y.tolist() == ["yes", "no", "yes"]
        assert rows.stream.names == ("a", "b c")
        assert rows.stream.classes == ("no", "yes")
        rows = load(tmp_path / "t.csv", "n", drop=("label",))
        assert rows.y.tolist() == [1, 2, 4]
        assert rows.y.dtype == np.int64
        rows = load(tmp_path / "t.csv", "a", drop=("label",), weight="n", classification=False)
        np.testing.assert_array_equal(rows.y, [1.5, -0.03, 0.1])
        np.testing.assert_array_equal(rows.weights, [1.0, 2.0, 4.0])

    def test_three_labels_of_text(self, tmp_path):
        rows = load(write(tmp_path, "a,l\n1,x\n2,z\n3,y\n4,x\n"), "l")
        assert rows.stream.classes == ("x", "y", "z")
        assert rows.y.tolist() == ["x", "z", "y", "x"]

    def test_tabs_quotes_and_separators(self, tmp_path):
        path = write(tmp_path, 'a\t"b, c"\n1\t"x\ty"\n2\t"z ""q"""\n', "t.tsv")
        assert load(path, "b, c").y.tolist() == ["x\ty", 'z "q"']
        assert load(write(tmp_path, "a;l\n1;x\n2;y\n"), "l", separator=";").y.tolist() == ["x", "y"]

    @pytest.mark.parametrize(
        ("text", "target", "message"),
        [
            ("a,b,l\n1,2,x\nu,3,y\n", "l", "Column 'a' of t.csv is not numeric: 'u' in row 2"),
            ("a,l\n1,x\n2,x\n", "l", "Column 'l' of t.csv holds one class only"),
            ("a,l\n1,x\n2,y\n", "k", r"t\.csv has no column 'k'\. It has: a, l\."),
            ("a,a\n1,2\n", "a", "two columns called 'a'"),
            ("1,2\n3,4\n", "1", "no line of column names"),
            ("l\nx\ny\n", "l", "no feature columns left"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, text, target, message):
        with pytest.raises((TableError, SourceError), match=message):
            load(write(tmp_path, text), target)

    @pytest.mark.parametrize(
        "text", ["", "a,l\n", "a,l\n1,x\n2\n", "a,l\n1,x\n2,y,3\n", "a,l\n1,x\n,y\n", "a,l\n1,x\n2,\n"]
    )
    def test_files_that_cannot_be_used_are_refused(self, tmp_path, text):
        with pytest.raises((TableError, SourceError), match=r"t\.csv|holds no rows|row"):
            load(write(tmp_path, text), "l")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises((FileNotFoundError, TableError), match="not found"):
            open_layout(tmp_path / "absent.csv", Reading())


@pytest.mark.needs("pyarrow")
def test_parquet_holds_the_same(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1.5, 2.0], "l": ["x", "y"], "b": [True, False]}), tmp_path / "t.parquet")
    rows = load(tmp_path / "t.parquet", "l", drop=("b",))
    np.testing.assert_array_equal(rows.X, [[1.5], [2.0]])
    assert rows.y.tolist() == ["x", "y"]
    assert load(tmp_path / "t.parquet", "b", drop=("l",)).y.tolist() == [True, False]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(SourceError, match=r"broken\.parquet is not a whole Parquet file"):
        open_layout(tmp_path / "broken.parquet", Reading())


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=r"dualcore\[parquet\]"):
        open_layout(tmp_path / "t.parquet", Reading())


def test_what_cannot_be_read_is_named(tmp_path):
    write(tmp_path, "x", "t.xlsx")
    with pytest.raises(TableError, match=r"t\.xlsx is of no kind that can be read\. Use one of: \.csv"):
        open_layout(tmp_path / "t.xlsx", Reading())
    np.save(tmp_path / "t.npy", np.eye(3))
    with pytest.raises(OptionError, match="--fill and --drop-missing are for CSV and Parquet"):
        open_layout(tmp_path / "t.npy", Reading(fill="mean"))
    with pytest.raises(OptionError, match="--target is missing"):
        open_stream(DataOptions(tmp_path / "t.npy", None), False)
