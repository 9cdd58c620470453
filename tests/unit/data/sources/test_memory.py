"""Rows in memory and mapped into it, parts that come in turn, and files that change while they are read."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from dualcore import DualCoreset, Problem, fit_coreset
from dualcore.data.sources import ArraySource, PartsSource, SourceError, is_source_like, open_arrays, open_source
from pairs import every_value
from source_kinds import make_table, refused


def test_a_list_and_a_function_are_the_same_and_an_iterator_or_a_change_is_refused():
    refused(lambda: PartsSource(part for part in []), r"once only.*CoresetStream", TypeError)
    table = make_table(100, 2)
    parts = [table.cut(0, 30), table.cut(30, 100)]
    for source in (PartsSource(parts), PartsSource(lambda: iter(parts)), open_source(lambda: parts)):
        X = np.concatenate(list(source.map(lambda chunk: chunk.X)))
        np.testing.assert_array_equal(X, table.X.astype(float))
    source = PartsSource(lambda: parts)
    assert source.n_rows == 100
    parts.pop()
    refused(lambda: list(source.map(lambda chunk: 0)), "hold 30 rows now but held 100 before")


def test_faults_of_parts_are_named():
    for parts, said in [
        ([], "hold no rows"),
        ([(np.empty((0, 2)), np.empty(0))], "hold no rows"),
        (
            [(np.ones((2, 2)), np.ones(2)), (np.ones((2, 3)), np.ones(2))],
            r"Part 1 \(3 features, .*like the first \(2 f",
        ),
        ([(np.ones((2, 2)), np.ones(2)), (np.ones((2, 2)), np.ones(2), np.ones(2))], "Part 1 .*weighted: True"),
        ([(np.ones((2, 2)), np.ones(2)), (sp.eye(2, format="csr"), np.ones(2))], "Part 1 .*sparse: True"),
        ([(np.ones((2, 2)), np.ones(3))], r"Part 0: X has 2 rows but y the shape \(3,\)"),
        ([(np.ones((2, 2)), np.ones(2), np.ones(3))], "Part 0: sample_weight must hold one number per row"),
        ([(np.ones((2, 2)), np.ones((2, 1)))], "Part 0: X has 2 rows but y the shape"),
        ([(np.array([["a"]]), np.ones(1))], "Part 0: X must be a matrix of numbers"),
        ([np.ones((2, 2))], r"Part 0 must be \(X, y\)"),
    ]:
        with pytest.raises(SourceError, match=said):
            PartsSource(parts).survey()


def test_a_part_of_one_class_and_an_empty_part_are_legal():
    table = make_table(400, 2)
    order = np.argsort(table.y, kind="stable")
    X, y = table.X[order], table.y[order]
    parts = [(X[:50], y[:50]), (X[:0], y[:0]), (X[50:], y[50:])]
    fit = DualCoreset(size=40, random_state=0).fit(Problem("logistic", radius=0.1), PartsSource(parts))
    same = DualCoreset(size=40, random_state=0).fit(Problem("logistic", radius=0.1), X, y)
    np.testing.assert_array_equal(fit.coreset.indices, same.coreset.indices)


def test_arrays_are_mapped_and_what_cannot_be_read_is_said(tmp_path):
    table = make_table(500, 3)
    np.savez(tmp_path / "a.npz", X=table.X, y=table.y.astype(np.int8), z=np.asfortranarray(table.X))
    by_column = open_arrays(tmp_path / "a.npz", features="z").rows.X
    assert isinstance(by_column, np.memmap)
    np.testing.assert_array_equal(by_column, table.X)
    assert by_column.flags.f_contiguous
    source = open_arrays(tmp_path / "a.npz")
    assert isinstance(source.rows.X, np.memmap)
    assert isinstance(source.y, np.memmap)
    table = make_table(50, 2)
    np.savez_compressed(tmp_path / "small.npz", X=table.X, y=table.y)
    np.testing.assert_array_equal(open_arrays(tmp_path / "small.npz").take(np.arange(50))[0], table.X)  # loaded
    np.savez(tmp_path / "objects.npz", X=np.array([{}, 1], dtype=object))
    refused(lambda: open_arrays(tmp_path / "objects.npz"), "Python objects")
    (tmp_path / "odd.npz").write_text("not a zip")
    refused(lambda: open_arrays(tmp_path / "odd.npz"), "not a whole file of plain arrays")
    np.savez(tmp_path / "a.npz", x0=np.ones(3), x1=np.ones(4), y=np.ones(3))
    refused(lambda: open_arrays(tmp_path / "a.npz"), "not hold vectors of one length")
    refused(lambda: open_arrays(tmp_path / "a.npz", "target"), "holds no array 'target'")
    with pytest.raises(FileNotFoundError):
        open_arrays(tmp_path / "none.npz")
    np.save(tmp_path / "X.npy", table.X)
    refused(lambda: open_source(tmp_path / "X.npy"), "needs y", TypeError)
    (tmp_path / "X.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:90])
    refused(lambda: open_arrays(tmp_path / "X.npy", table.y), "not a whole file")


def test_open_source_knows_what_it_is_given(tmp_path):
    table = make_table(60, 2)
    np.save(tmp_path / "X.npy", table.X)
    assert open_source(str(tmp_path / "X.npy"), table.y).n_rows == 60
    np.savez(tmp_path / "a.npz", X=table.X, label=table.y)
    assert open_source(tmp_path / "a.npz", "label", chunk_rows=7).chunk_rows == 7
    (tmp_path / "a.dat").write_text("neither of them")
    refused(lambda: open_source(tmp_path / "a.dat", "y"), r"ends in '\.dat'")
    assert open_source(tmp_path / "a.npz", table.y).n_rows == 60
    refused(lambda: open_source(lambda: [], table.y), "carry their own", TypeError)
    assert isinstance(open_source(table.X, table.y), ArraySource)
    assert not is_source_like(table.X)
    assert not is_source_like([[1.0]])
    refused(lambda: open_source(table.X), "need y", TypeError)
    refused(lambda: ArraySource(np.eye(3), np.ones(2)), "X has 3 rows but y the shape")
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.ones(2)), "one number per row", ValueError)
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.zeros(3)).survey(), "sum to zero")
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.array([1.0, -1.0, 1.0])).survey(), "negative")
    refused(lambda: ArraySource(np.eye(3), np.array([1.0, np.nan, 1.0])).survey(), "target is missing")


# Files that change: no read of two versions passes for one of the data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6000, 2))
Y = np.where(X[:, 0] + RNG.normal(size=6000) > 0.0, 1.0, -1.0)


def write(folder, kind, X, y=Y):
    frame = {"a": X[:, 0], "b": X[:, 1], "y": y}
    if kind == "npy":
        np.save(folder / "d.npy", X)
        np.save(folder / "y.npy", y)
        return folder / "d.npy", folder / "y.npy"
    path = folder / f"d.{'npz' if kind == 'columns' else kind}"
    if kind in ("npz", "columns"):
        np.savez(path, **({"X": X, "y": y} if kind == "npz" else frame))
    elif kind == "svm":
        dump_svmlight_file(X, y, str(path), zero_based=False)
    elif kind == "csv":
        pytest.importorskip("pandas").DataFrame(frame).to_csv(path, index=False)
    else:
        pytest.importorskip("pandas").DataFrame(frame).to_parquet(path, row_group_size=1000)
    return path, None if kind == "svm" else "y"


KINDS = ["npy", "npz", "columns", "csv", "parquet", "svm"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_rewritten_between_reads_is_noticed(tmp_path, kind):
    source = open_source(*write(tmp_path, kind, X))
    total = source.fold(lambda chunk: float(chunk.X.sum()), sum)
    assert total == pytest.approx(X.sum())
    path, _ = write(tmp_path, kind, X[::-1] + 1.0)
    with pytest.raises(SourceError, match=rf"{path.name} has changed since it was opened"):
        source.fold(lambda chunk: float(chunk.X.sum()), sum)
    refused(lambda: source.take(np.arange(5)), "has changed since it was opened")
    with pytest.raises(SourceError, match="has changed since it was opened"):
        fit_coreset(Problem("logistic", radius=0.1), source, coreset=200, random_state=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_rewritten_during_a_read_is_noticed_before_its_end(tmp_path, kind):
    """The last read is the one whose result is believed: nothing comes after it."""
    source = open_source(*write(tmp_path, kind, X), chunk_rows=1000)
    seen = []

    def look(chunk):
        if not seen:
            seen.append(chunk.start)
            path = next(iter(tmp_path.iterdir()))
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**6))  # what any write does
        return float(chunk.X.sum())

    refused(lambda: source.fold(look, sum), "has changed since it was opened")


@every_value(name=["X.npy", "y.npy", "w.npy"], replaced=[True, False])
def test_targets_and_weights_are_watched_too(tmp_path, name, replaced):
    for file, array in (("X.npy", X), ("y.npy", Y), ("w.npy", np.ones(6000))):
        np.save(tmp_path / file, array)
    source = open_source(tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "w.npy")
    assert source.survey().n_rows == 6000
    array = np.load(tmp_path / name)
    if replaced:
        np.save(tmp_path / "new.npy", array[::-1])
        os.replace(tmp_path / "new.npy", tmp_path / name)
    else:
        mapped = np.load(tmp_path / name, mmap_mode="r+")
        mapped[0] = mapped[1] + 1.0
        mapped.flush()
    refused(lambda: source.fold(lambda chunk: float(chunk.X.sum()), sum), rf"{name} has changed")


def test_a_mapped_file_that_is_too_short_is_an_error_and_not_the_end_of_the_process(tmp_path):
    source = open_source(*write(tmp_path, "npy", X))
    with open(tmp_path / "d.npy", "r+b") as file:
        file.truncate(200)
    refused(lambda: source.take(np.array([5999])), r"d\.npy has changed")
    (tmp_path / "d.npy").unlink()
    refused(lambda: source.fold(lambda chunk: float(chunk.X.sum()), sum), r"d\.npy has gone")
    with open(tmp_path / "d.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)})
        file.write(bytes(160))
    refused(lambda: open_source(tmp_path / "d.npy", np.ones(10)), r"d\.npy is not a whole file")
