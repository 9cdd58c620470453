"""Every container of X answers as a float64 array does, is not modified, not densified and not copied as a whole."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.data.rows import as_rows, as_target, as_weights
from dualcore.data.sources import ArraySource
from pairs import every_value
from source_kinds import refused

N, M = 40_000, 24


class Container(NamedTuple):
    """How to make a container from a float64 array, and how exactly it holds the numbers."""

    make: Callable[[np.ndarray, Any], Any]
    tolerance: float = 1e-13
    in_memory: bool = True


def memory_map(X: np.ndarray, folder: Any, dtype: str = "float64", order: str = "C") -> np.memmap:
    path = folder / f"rows-{dtype}-{order}.bin"
    mapped = np.memmap(path, dtype=dtype, mode="w+", shape=X.shape, order=order)
    mapped[:] = X
    mapped.flush()
    return np.memmap(path, dtype=dtype, mode="r", shape=X.shape, order=order)


def frame(package: str, X: np.ndarray, *dtypes: str) -> Any:
    columns = {f"x{j}": X[:, j].astype(dtypes[j % len(dtypes)]) for j in range(X.shape[1])}
    return pytest.importorskip(package).DataFrame(columns)


CONTAINERS: dict[str, Container] = {
    "C order": Container(lambda X, folder: np.ascontiguousarray(X)),
    "Fortran order": Container(lambda X, folder: np.asfortranarray(X)),
    "every second row": Container(lambda X, folder: np.repeat(X, 2, axis=0)[::2]),
    "read-only": Container(lambda X, folder: np.broadcast_to(X, X.shape)),
    "big-endian": Container(lambda X, folder: X.astype(">f8")),
    "float32": Container(lambda X, folder: X.astype(np.float32), 1e-6),
    "int8": Container(lambda X, folder: X.astype(np.int8)),
    "memory map": Container(memory_map),
    "memory map Fortran": Container(lambda X, folder: memory_map(X, folder, order="F")),
    "memory map float32": Container(lambda X, folder: memory_map(X, folder, "float32"), 1e-6),
    "CSR matrix": Container(lambda X, folder: sp.csr_matrix(X)),
    "CSC matrix": Container(lambda X, folder: sp.csc_matrix(X)),
    "CSR array": Container(lambda X, folder: sp.csr_array(X)),
    "COO matrix": Container(lambda X, folder: sp.coo_matrix(X), in_memory=False),  # becomes CSR, which is a copy
    "CSR float32": Container(lambda X, folder: sp.csr_matrix(X.astype(np.float32)), 1e-6),
    "CSC int64": Container(lambda X, folder: sp.csc_matrix(X.astype(np.int64))),
    "pandas": Container(lambda X, folder: frame("pandas", X, "float64")),
    "pandas mixed": Container(lambda X, folder: frame("pandas", X, "float64", "int64", "float32"), 1e-6, False),
    "polars mixed": Container(lambda X, folder: frame("polars", X, "float64", "int64", "float32"), 1e-6, False),
    "list of lists": Container(lambda X, folder: X.tolist(), in_memory=False),
}
INTEGER = {"int8", "CSC int64", "pandas mixed", "polars mixed"}
SPARSE = {name for name in CONTAINERS if name.startswith(("CSR", "CSC", "COO"))}


def make_data(n: int, m: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows with many zeros, whole numbers where the container holds nothing else."""
    rng = np.random.default_rng(7)
    X = np.where(rng.random((n, m)) < 0.6, 0.0, 3.0 * rng.standard_normal((n, m)))
    X = np.round(X) if name in INTEGER else X
    return X, np.where(rng.random(n) < 0.5, -1.0, 1.0)


def parts_of(X: Any) -> list[np.ndarray]:
    return [X.row, X.col, X.data] if X.format == "coo" else [X.indptr, X.indices, X.data]


def content(X: Any) -> bytes:
    """All the numbers of a container, to see whether they change."""
    if sp.issparse(X):
        return b"".join(np.asarray(part).tobytes() for part in parts_of(X))
    return np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, dtype=np.float64).tobytes()


@pytest.fixture(params=CONTAINERS)
def name(request) -> str:
    return request.param


def test_every_container_answers_alike(name, tmp_path):
    X, _ = make_data(700, 5, name)
    held = CONTAINERS[name].make(X, tmp_path)
    before = content(held)
    rows, tolerance = as_rows(held), CONTAINERS[name].tolerance
    scale = np.abs(X).max()
    rng = np.random.default_rng(1)
    coef, vector, weights = rng.standard_normal(5), rng.standard_normal(700), rng.random(700)
    assert (rows.n, rows.m) == X.shape
    np.testing.assert_allclose(rows.dot(coef), X @ coef, rtol=0.0, atol=20.0 * scale * tolerance)
    np.testing.assert_allclose(rows.transpose_dot(vector), X.T @ vector, rtol=0.0, atol=700.0 * scale * tolerance)
    np.testing.assert_allclose(rows.gram(weights), X.T @ (X * weights[:, None]), rtol=1e2 * tolerance, atol=1e-9)
    for norm, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        expected = np.linalg.norm(X, order, axis=1)
        np.testing.assert_allclose(rows.row_norms(norm), expected, rtol=4.0 * tolerance, atol=1e-15)
    chosen = np.array([3, 0, 699, 3], dtype=np.int64)
    taken = rows.take(chosen)
    assert sp.issparse(taken) == (name in SPARSE)
    assert taken.dtype == np.float64
    dense = taken.toarray() if sp.issparse(taken) else taken
    np.testing.assert_allclose(dense, X[chosen], rtol=tolerance, atol=1e-15)
    coefs, vectors = np.arange(15.0).reshape(5, 3) / 7.0, np.ones((700, 2))  # several at once
    np.testing.assert_allclose(rows.dot(coefs), X @ coefs, rtol=0.0, atol=1e4 * tolerance)
    np.testing.assert_allclose(rows.transpose_dot(vectors), X.T @ vectors, rtol=0.0, atol=1e5 * tolerance)
    rows.check_finite()
    assert content(held) == before
    X, _ = make_data(20_000, 3, name)
    rows, at = as_rows(CONTAINERS[name].make(X, tmp_path)), 0
    for part, block in rows.blocks():
        assert part.start == at
        dense = block.toarray() if sp.issparse(block) else block
        np.testing.assert_allclose(dense, X[part], rtol=CONTAINERS[name].tolerance, atol=1e-15)
        at = part.stop
    assert at == 20_000


def extra_memory(function: Callable[[], Any]) -> int:
    """Most bytes that ``function`` holds beyond those held before it; numpy reports its arrays to tracemalloc."""
    function()  # imports and caches are not its doing
    gc.collect()
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()


def test_the_measure_of_memory_sees_a_copy():
    X = np.ones((N, M))
    assert extra_memory(lambda: X.sum()) < 0.01 * X.nbytes
    assert extra_memory(lambda: X.copy().sum()) >= X.nbytes
    assert extra_memory(lambda: (X[::2] * 2.0).sum()) >= 0.5 * X.nbytes
    assert extra_memory(lambda: sp.csr_matrix((N, M)).toarray()) >= X.nbytes


COPIES = ("CSR float32", "CSC int64")  # scipy widens the whole of X.data in every product with a float64 vector


def bytes_of(X: Any) -> int:
    if sp.issparse(X):
        return sum(part.nbytes for part in parts_of(X))
    return int(X.memory_usage(index=False).sum()) if hasattr(X, "memory_usage") else int(X.nbytes)


@every_value(
    name=[name for name, kind in CONTAINERS.items() if kind.in_memory],
    call=[pytest.param("risk", marks=pytest.mark.slow), "gradient"],
)
def test_nothing_copies_the_data(name, call, tmp_path, request):
    """The peak stays below half of X although y, margins and slopes, vectors of length n, are part of it."""
    if name in COPIES:
        request.applymarker(pytest.mark.xfail(strict=True, reason="scipy widens a copy"))
    n, m = (N, M) if name != "int8" else (N, 8 * M)  # the vectors weigh eight times more beside single bytes
    X, y = make_data(n, m, name)
    held = CONTAINERS[name].make(X, tmp_path)
    del X
    problem = Problem("logistic", radius=0.2, norm="l2", label_cost=7.0)
    coef = np.linspace(-0.1, 0.1, m)
    peak = extra_memory(lambda: getattr(problem, call)(coef, 0.0, held, y))
    assert peak < 0.5 * bytes_of(held), f"{peak / bytes_of(held):.2f} of X"


def test_sparse_rows_are_never_densified(monkeypatch):
    X = sp.random(3000, 50, density=0.02, random_state=0, format="csr")
    y = np.where(np.arange(3000) % 2 == 0, 1.0, -1.0)

    def refuse(self, *arguments, **options):
        raise AssertionError("densified")

    for kind in (sp.csr_matrix, sp.csc_matrix):
        for attribute in ("toarray", "todense"):
            monkeypatch.setattr(kind, attribute, refuse)
        problem = Problem("hinge", radius=0.1, label_cost=1.0)
        held = kind(X)
        assert np.isfinite(problem.risk(np.ones(50), 0.0, held, y))
        assert np.isfinite(problem.gradient(np.ones(50), 0.0, held, y).coef).all()
        assert np.isfinite(problem.h(np.ones(50), 0.0, 20.0, held, y)).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_norms_of_wide_sparse_rows_need_no_dense_block(norm):
    """Text has a million columns: a dense block of it would not fit anywhere."""
    X = sp.random(600, 5000, density=1e-3, random_state=0, format="csr")
    rows = as_rows(X)
    assert extra_memory(lambda: rows.row_norms(norm)) < 10 * (X.data.nbytes + X.indptr.nbytes)


# Bad input


def test_an_X_that_cannot_be_used_is_described():
    for X, message in [
        (np.empty((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\)"),
        (np.empty((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        (sp.csr_matrix((0, 3)), r"0 sample\(s\)"),
        (np.ones(4), r"Expected 2D array, got 1D array(.|\n)*reshape\(-1, 1\)"),
        (np.ones((2, 2, 2)), r"with dim 3"),
        (3.0, r"got scalar array"),
        ([["a", "b"], ["c", "d"]], r"must be a matrix of numbers"),
        (np.array([[1.0, "b"], [2.0, None]], dtype=object), r"must be a matrix of numbers"),
        (np.ones((2, 2), dtype=complex), r"matrix of numbers.*Complex data not supported"),
        (np.zeros((2, 2), dtype="M8[s]"), r"matrix of numbers.*found dtype datetime64"),
    ]:
        with pytest.raises(ValueError, match=message):
            as_rows(X)
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"X must be a matrix of numbers .*: could not convert .*'x'"):
        as_rows(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}))
    rows = as_rows(pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, 3.0]}))
    refused(lambda: rows.check_finite(), "X has a NaN or infinite value in row 1", ValueError)


@pytest.mark.parametrize(
    ("check", "given", "message"),
    [
        (as_target, 1.0, r"y must be one-dimensional, got shape \(\)"),
        (as_target, [1.0, np.inf, 2.0], r"y has a NaN or infinite value"),
        (as_target, [1.0, None, 2.0], r"y has a NaN or infinite value|y must be numeric"),
        (as_weights, [[1.0], [2.0], [3.0]], r"sample_weight must hold one number per row \(3\), got shape \(3, 1\)"),
        (as_weights, [1.0, np.inf, 1.0], r"sample_weight has a NaN or infinite value"),
        (as_weights, ["a", "b", "c"], "sample_weight must be numeric"),
    ],
)
def test_targets_and_weights_that_cannot_be_used_are_described(check, given, message):
    """Others are named by `Problem`, see its tests."""
    with pytest.raises(ValueError, match=message):
        check(given, 3)


def test_weights_become_masses_and_arrays_are_not_copied():
    given = np.array([1, 2, 5])
    np.testing.assert_array_equal(as_weights(given, 3), [0.125, 0.25, 0.625])
    np.testing.assert_array_equal(given, [1, 2, 5])
    assert as_weights(None, 3) is None
    np.testing.assert_allclose(as_weights(2.0, 4), np.full(4, 0.25))
    X = np.ones((10, 3))
    rows = as_rows(X)
    assert np.shares_memory(rows.X, X)
    assert as_rows(rows) is rows
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abc"))
    assert np.shares_memory(as_rows(frame).X, frame.to_numpy())


def test_a_path_or_a_source_is_sent_where_it_can_be_read(tmp_path):
    source = ArraySource(np.eye(3), np.array([1.0, -1.0, 1.0]))
    for X, found in (("rows.parquet", "a path"), (tmp_path, "a path"), (source, r"a source \(ArraySource\)")):
        with pytest.raises(TypeError, match=rf"needs rows in memory, got {found}.*assess or certify"):
            Problem("logistic").risk(np.ones(3), 0.0, X, None)
    with pytest.raises(FileNotFoundError, match="There is no"):  # `solve` reads sources
        solve(Problem("logistic"), "rows.parquet", "y")
