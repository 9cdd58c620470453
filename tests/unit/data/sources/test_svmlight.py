"""SVMlight and LIBSVM text, and archives of scipy.sparse: the rows that scikit-learn and scipy find, in chunks."""

import bz2
import gzip
import io

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import dualcore
from dualcore import SvmlightSource, open_source
from dualcore.data.sources import SourceError, is_source_like, open_labelled, svmlight
from dualcore.reading.rowdata import rows_in_memory
from pairs import every_value
from source_kinds import refused


def make(n=500, m=40, density=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, m)) < density, rng.random((n, m)), 0.0)
    X[n - 1, m - 1] = X[0, 0] = 1.0
    y = np.where(X @ rng.normal(size=m) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return sp.csr_matrix(X), y


def write(path, X, y, zero_based=True, **options):
    text = io.BytesIO()
    dump_svmlight_file(X, y, text, zero_based=zero_based, **options)
    content = text.getvalue()
    path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(content))
    return path


def rows_of(source):
    chunks = list(source.map(lambda chunk: chunk))
    assert all(sp.issparse(chunk.X) and chunk.X.format == "csr" for chunk in chunks)
    return sp.vstack([chunk.X for chunk in chunks]).tocsr(), np.concatenate([chunk.y for chunk in chunks])


@every_value(name=["rows.svm", "rows.libsvm.gz", "rows.svmlight.bz2"], zero_based=[True, False], kept=[0, 1 << 30])
def test_the_rows_are_those_of_scikit_learn(tmp_path, monkeypatch, name, zero_based, kept):
    monkeypatch.setattr(svmlight, "_TEXT_BLOCK", 2000)
    monkeypatch.setattr(svmlight, "_MOST_KEPT", kept)
    X, y = make()
    path = write(tmp_path / name, X, y, zero_based, comment="made for a test")
    source = open_source(path, chunk_rows=64)
    expected, targets = load_svmlight_file(str(path))
    found, y_found = rows_of(source)
    assert (found != expected).nnz == 0
    np.testing.assert_array_equal(y_found, targets)
    assert (source.n_rows, source.n_features, source.zero_based) == (500, 40, zero_based)
    assert source.n_reads == 2  # the first parsed the text
    assert (rows_in_memory(source) is None) == (kept == 0)
    np.testing.assert_array_equal(source.take(np.array([3, 77, 499]))[0].toarray(), expected[[3, 77, 499]].toarray())
    assert source.survey().count(None) == 500


def test_rows_that_fit_in_memory_are_parsed_once(tmp_path, monkeypatch):
    path, parsed = write(tmp_path / "rows.svm.gz", *make()), []
    parse = svmlight._parse
    monkeypatch.setattr(svmlight, "_parse", lambda *text: parsed.append(text) or parse(*text))
    model = dualcore.WassersteinLogisticRegression(radius=0.01).fit(path)
    assert len(parsed) == 1
    X, y = load_svmlight_file(str(path))
    np.testing.assert_array_equal(model.coef_, dualcore.WassersteinLogisticRegression(radius=0.01).fit(X, y).coef_)


def test_folders_and_lists_of_files(tmp_path):
    X, y = make()
    (tmp_path / "many").mkdir()
    files = [
        write(tmp_path / "many" / "0.svm", X[:200], y[:200]),
        write(tmp_path / "many" / "1.svm.gz", X[200:], y[200:]),
    ]
    for data in (tmp_path / "many", files, [str(file) for file in files]):
        assert is_source_like(data)
        found, y_found = rows_of(open_source(data))
        assert abs(found - X).max() < 1e-15
        np.testing.assert_array_equal(y_found, y)
    (tmp_path / "many" / "2.csv").write_text("a,b\n1,2\n")
    refused(lambda: open_source(tmp_path / "many"), r"holds CSV files and SVMlight files \(2\.csv and 0\.svm\)")
    with pytest.raises(SourceError, match="The list of files holds CSV files and SVMlight files"):
        open_source([*files, tmp_path / "many" / "2.csv"])


def test_features_can_be_given_and_comments_are_left_out(tmp_path):
    X, y = make()
    path = write(tmp_path / "test.svm", X[:400, :30], y[:400])
    assert open_source(path).n_features == 30
    assert open_source(path, n_features=40).n_features == 40
    write(path, sp.csr_matrix(np.eye(30)[[0, 29]]), [1.0, 1.0])
    with pytest.raises(SourceError, match=r"test\.svm, line 2 has the index 29: that is 30 features, more than n_f"):
        SvmlightSource(path, n_features=12)
    (tmp_path / "rows.svm").write_bytes(b"# head\r\n1 qid:7 1:0.5 3:2 # note 9:9\r\n\r\n-1 2:1")
    X, y = rows_of(open_source(tmp_path / "rows.svm"))
    np.testing.assert_array_equal(X.toarray(), [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(y, [1.0, -1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\nx 1:2\n", r"rows\.svm, line 2 is no row: could not convert .*'target index:value"),
        ("# head\n\n1 3:2 2:1\n", r"line 3 is no row: Feature indices .* sorted"),
        ("1 1:2\n1 -1:2\n", "line 2 is no row: Invalid index -1"),
        ("1 1:2\n1 99999999999:2\n", "line 2 is no row: an index is larger than"),
        ("1 1:2\n1 1 2:3\n", "line 2 is no row"),
        ("", r"rows\.svm holds no rows"),
        ("# nothing\n", "holds no rows"),
        ("1\n-1\n", "holds no features"),
        ("1 1:2\nnan 1:3\n", r"The target has a NaN or infinite value.*line 2"),
        ("# head\n1 1:2\n\n-1 2:inf\n", r"X has a NaN or infinite value.*rows\.svm, line 4"),
    ],
)
def test_wrong_lines_are_named(tmp_path, text, message):
    (tmp_path / "rows.svm").write_text(text)
    refused(lambda: rows_of(open_source(tmp_path / "rows.svm")), message)


def test_options_and_lengths_of_lines_are_checked(tmp_path, monkeypatch):
    path = tmp_path / "rows.svm"
    path.write_text("1 0:2\n2 1:1\n")
    refused(lambda: open_source(path, zero_based=False), r"line 1 has the index 0, but indices begin with 1")
    refused(lambda: open_source(path, zero_based="maybe"), "zero_based must be", ValueError)
    refused(lambda: open_source(path, n_features=0), "n_features must be", ValueError)
    refused(lambda: open_source(path, "y"), "leave y out", TypeError)
    with pytest.raises(SourceError, match=r"The target is 1, but the classes are 'no' and 'yes' .*line 1"):
        rows_of(open_labelled(path, classes=("no", "yes"))[0])
    with pytest.raises(SourceError, match=r"The target is 2, but the classes are 0 and 1 .*line 2"):
        rows_of(open_labelled(path, classes=(0, 1))[0])
    source, classes = open_labelled(path)
    assert classes == (1, 2)
    np.testing.assert_array_equal(rows_of(source)[1], [-1.0, 1.0])
    monkeypatch.setattr(svmlight, "_LONGEST_LINE", 1 << 16)
    monkeypatch.setattr(svmlight, "_TEXT_BLOCK", 1 << 12)
    (tmp_path / "bomb.svm.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    refused(lambda: open_source(tmp_path / "bomb.svm.gz"), "bytes: no row")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.svm.gz", gzip.compress(b"1 1:2\n" * 99, mtime=0)[:-9]), ("a.svm.bz2", b"BZh9 no")],
    ids=["gzip", "bzip2"],
)
def test_damaged_compression_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    refused(lambda: open_source(tmp_path / name), rf"{name} cannot be read")


# Archives of scipy.sparse


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_archives(tmp_path, compressed, kind):
    X, y = make()
    sp.save_npz(tmp_path / "X.npz", X.asformat(kind), compressed=compressed)
    np.save(tmp_path / "y.npy", y)
    for target in (y, tmp_path / "y.npy"):
        source = open_source(tmp_path / "X.npz", target)
        found, y_found = rows_of(source)
        assert (found != X).nnz == 0
        np.testing.assert_array_equal(y_found, y)
    refused(lambda: open_source(tmp_path / "X.npz", "label"), "holds no array 'label'; it holds")
    refused(lambda: open_source(tmp_path / "X.npz"), "needs y", TypeError)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
    np.savez(tmp_path / "X.npz", **parts, label=np.where(y > 0, "yes", "no"), w=np.arange(500.0))
    source, classes = open_labelled(tmp_path / "X.npz", "label", "w")
    assert classes == ("no", "yes")
    np.testing.assert_array_equal(rows_of(source)[1], y)
    assert source.total_weight == np.arange(500.0).sum()


def test_archives_that_cannot_be_trusted_are_refused(tmp_path):
    X, y = make()
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
    wrong = {
        "a column beyond the last": ({"indices": X.indices + 40}, "indices"),
        "rows that end before they begin": ({"indptr": X.indptr[::-1]}, "indptr|index pointer"),
        "another format": ({"format": b"dia"}, "not a whole file of plain arrays: 'offsets"),
        "text": ({"data": X.data.astype(str)}, "expected a vector of numbers"),
        "objects": ({"data": np.array([{}], dtype=object)}, "Object arrays cannot be loaded"),
    }
    for changes, message in wrong.values():
        np.savez(tmp_path / "X.npz", **(parts | changes))
        with pytest.raises(SourceError, match=message):
            open_source(tmp_path / "X.npz", y)
    np.savez_compressed(tmp_path / "bomb.npz", **(parts | {"data": np.zeros(10_000_000)}))
    refused(lambda: open_source(tmp_path / "bomb.npz", y), "would inflate")
