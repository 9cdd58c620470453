"""Python iterables of parts, memory maps, and what `open_source` makes of what it is given."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import DualCoreset, Problem
from dualcore.data.sources import ArraySource, PartsSource, SourceError, is_source_like, open_arrays, open_source
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


def test_a_map_is_not_read_before_it_is_used(tmp_path):
    table = make_table(500, 3)
    np.savez(tmp_path / "a.npz", X=table.X, y=table.y.astype(np.int8), z=np.asfortranarray(table.X))
    by_column = open_arrays(tmp_path / "a.npz", features="z").rows.X
    assert isinstance(by_column, np.memmap)
    np.testing.assert_array_equal(by_column, table.X)
    assert by_column.flags.f_contiguous
    source = open_arrays(tmp_path / "a.npz")
    assert isinstance(source.rows.X, np.memmap)
    assert isinstance(source.y, np.memmap)


def test_what_cannot_be_read_is_said(tmp_path):
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


def test_array_source_says_what_is_wrong():
    refused(lambda: ArraySource(np.eye(3), np.ones(2)), "X has 3 rows but y the shape")
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.ones(2)), "one number per row", ValueError)
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.zeros(3)).survey(), "sum to zero")
    refused(lambda: ArraySource(np.eye(3), np.ones(3), np.array([1.0, -1.0, 1.0])).survey(), "negative")
    refused(lambda: ArraySource(np.eye(3), np.array([1.0, np.nan, 1.0])).survey(), "target is missing")
