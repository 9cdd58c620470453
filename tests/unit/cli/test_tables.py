"""Named columns in memory: the same from every kind of file, and errors that name the file and the column."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore.cli import tables
from dualcore.cli.tables import Table, TableError, read_table, write_csv

TEXT = "a,b c,label\n1.5,2,yes\n-3e-2,4,no\n0.1,5,yes\n"


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


class TestCsv:
    def test_numbers_and_text(self, tmp_path):
        table = read_table(write(tmp_path, TEXT))
        assert table.names == ("a", "b c", "label")
        X, names = table.features(without=["label"])
        np.testing.assert_array_equal(X, [[1.5, 2.0], [-0.03, 4.0], [0.1, 5.0]])
        assert names == ("a", "b c")
        assert X.flags.c_contiguous
        np.testing.assert_array_equal(table.labels("label"), ["yes", "no", "yes"])
        np.testing.assert_array_equal(table.labels("b c"), [2, 4, 5])
        assert table.labels("b c").dtype == np.int64
        assert table.labels("a").dtype == np.float64

    def test_every_digit_survives(self, tmp_path):
        values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
        path = write(tmp_path, write_csv({"v": values.tolist(), "w": list(range(200))}))
        np.testing.assert_array_equal(read_table(path).numbers("v"), values)

    def test_tabs_quotes_and_marks(self, tmp_path):
        table = read_table(write(tmp_path, '\ufeffa\t"b, c"\n1\t"x\ty"\n2\t"z ""q"""\n', "t.tsv"))
        assert table.names == ("a", "b, c")
        np.testing.assert_array_equal(table.labels("b, c"), ["x\ty", 'z "q"'])

    @pytest.mark.parametrize(
        ("text", "column", "message"),
        [
            (TEXT, "label", r"Column 'label' of t\.csv is not numeric: 'yes' in row 1"),
            (TEXT, "nosuch", r"t\.csv has no column 'nosuch'\. It has: a, b c, label\."),
            ("a,b\n1,2\n,3\n", "a", "Column 'a' of t.csv has a missing or infinite value in row 2"),
            ("a,b\n1,2\ninf,3\n", "a", "missing or infinite value in row 2"),
            ("a,b\n1,2\nTrue,3\n", "a", "not numeric: 'True' in row 2"),
        ],
    )
    def test_wrong_columns_are_named(self, tmp_path, text, column, message):
        with pytest.raises(TableError, match=message):
            read_table(write(tmp_path, text)).numbers(column)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"t\.csv is empty"),
            ("a,b\n", "holds no rows"),
            ("a,a\n1,2\n", "two columns called 'a'"),
            ("1,2\n3,4\n", "no line of column names"),
            ("a,b\n1,2\n3\n", "Row 2 of t.csv has 1 values, the header 2"),
        ],
    )
    def test_wrong_files_are_named(self, tmp_path, text, message):
        with pytest.raises(TableError, match=message):
            read_table(write(tmp_path, text))

    def test_missing_labels_are_named(self, tmp_path):
        table = read_table(write(tmp_path, "a,l\n1,x\n2,\n"))
        with pytest.raises(TableError, match=r"Column 'l' of t\.csv has a missing"):
            table.labels("l")

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
        with pytest.raises(TableError, match=r"t\.csv cannot be read|not numeric"):
            read_table(tmp_path / "t.csv").numbers("a")


def test_text_far_down_makes_the_whole_column_text(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CSV_ROWS", 2)
    table = read_table(write(tmp_path, "a,b\n1,1\n2,1\n3,1\nx,1\n"))
    np.testing.assert_array_equal(table.labels("a"), ["1", "2", "3", "x"])
    np.testing.assert_array_equal(table.numbers("b"), np.ones(4))


def test_matrices(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.save(tmp_path / "m.npy", X)
    table = read_table(tmp_path / "m.npy")
    assert table.names == ("x0", "x1")
    assert table.find("-1") == "x1"
    np.testing.assert_array_equal(table.features(without=["x1"])[0], X[:, :1])
    np.savez(tmp_path / "m.npz", X=X, y=y)
    table = read_table(tmp_path / "m.npz")
    found, names = table.features(without=["y"])
    np.testing.assert_array_equal(found, X)
    assert names == ("x0", "x1")
    np.testing.assert_array_equal(table.labels("y"), y)
    with pytest.raises(TableError, match="is a matrix"):
        table.numbers("X")


def test_structured_arrays_have_named_columns(tmp_path):
    np.save(tmp_path / "s.npy", np.array([(1.0, "u"), (2.0, "v")], dtype=[("a", float), ("l", "U1")]))
    table = read_table(tmp_path / "s.npy")
    np.testing.assert_array_equal(table.labels("l"), ["u", "v"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, "'y' has 3 rows, the others 2"),
        ({"X": np.ones((2, 2)), "Z": np.ones((2, 2))}, "more than one matrix"),
        ({"X": np.ones((2, 2, 2))}, "must be a vector or a matrix"),
    ],
)
def test_wrong_archives_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.npz")


def test_sparse_archives_are_a_matrix_and_vectors(tmp_path):
    X = sp.random(9, 5, density=0.4, format="csr", random_state=0)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
    np.savez(tmp_path / "t.npz", **parts, y=np.arange(9))
    table = read_table(tmp_path / "t.npz")
    found, names = table.features(without=["y"])
    assert sp.issparse(found)
    assert (found != X).nnz == 0
    assert names == ("x0", "x1", "x2", "x3", "x4")
    assert table.n_rows == 9
    np.savez(tmp_path / "t.npz", **(parts | {"indices": X.indices + 9}))
    with pytest.raises(TableError, match=r"t\.npz cannot be read"):
        read_table(tmp_path / "t.npz")


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(TableError, match=r"t\.npy cannot be read"):
        read_table(tmp_path / "t.npy")
    np.save(tmp_path / "v.npy", np.ones(3))
    with pytest.raises(TableError, match="must hold a matrix"):
        read_table(tmp_path / "v.npy")


def test_the_files_of_a_folder_are_one_table(tmp_path):
    (tmp_path / "b.csv").write_text("label,x\nno,3\nyes,4.5\n")
    (tmp_path / "a.csv").write_text("x,label\n1,yes\n2,no\n")
    table = read_table(tmp_path)
    np.testing.assert_array_equal(table.numbers("x"), [1.0, 2.0, 3.0, 4.5])
    assert table.labels("label").tolist() == ["yes", "no", "no", "yes"]


def test_what_is_no_table_is_refused(tmp_path):
    with pytest.raises(TableError, match=r"There is no file .*absent\.csv: not found"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path / "folder.csv")
    (tmp_path / "folder.csv" / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "folder.csv" / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(TableError, match=r"a.csv and b.csv differ in column 'y'"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(TableError, match="no feature columns left"):
        Table("t", {"a": np.ones(2)}).features(without=["a"])
    with pytest.raises(TableError, match="finite numbers only"):
        Table("t", {"X": np.full((2, 2), np.nan)}).features()
