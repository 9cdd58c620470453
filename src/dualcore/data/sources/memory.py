"""Rows in memory, or mapped into it: arrays, sparse matrices, data frames, and numpy's own files."""

from __future__ import annotations

import mmap
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import DenseRows, Rows, SparseRows, as_row_weights, as_rows
from dualcore.data.sources.base import LocalSource, Pieces, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError, as_targets, check_labels, chunk_spans, encode
from dualcore.data.storage import ArchiveError, Arrays, FileState, Record, member_header, read_archive

Labels = Sequence[Any] | str | None
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
# Rows of a mapped file that are looked up before their pages are given back.
_MAPPED_ROWS = 512


class ArraySource(LocalSource):
    """Rows that can be looked up in memory, read by as many threads as BLAS is allowed.

    Parameters
    ----------
    X : array, memory map, sparse matrix or data frame, or Rows
    y : array of shape (n_rows,)
        Numbers, or labels of any kind where ``labels`` says what they mean; a memory map stays one.
    weights : ndarray of shape (n_rows,) or None
        Non-negative; the masses are the weights divided by their sum.
    chunk_rows : int, optional
        Rows read at a time; by default a chunk fits the cache. The result of a read does not depend on it.
    checked : bool, default=False
        Whether ``X`` is known to be finite; else the first read checks it.
    labels : sequence or "find", optional
        The values of a classifier's target: two become -1 and +1, more their places 0, 1, 2 and so on. "find" looks
        for them where targets are texts or truth values.

    Examples
    --------
    >>> source = ArraySource(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), chunk_rows=3)
    >>> [chunk_sum for chunk_sum in source.map(lambda chunk: float(chunk.X.sum()))]
    [3.0, 1.0]
    """

    random_access = True

    def __init__(
        self,
        X: Any,
        y: npt.NDArray[Any],
        weights: FloatArray | None = None,
        *,
        chunk_rows: int | None = None,
        checked: bool = False,
        labels: Labels = None,
    ) -> None:
        super().__init__()
        self.rows: Rows = as_rows(X)
        self.y, self._checked = plain_array("y", y), checked
        self._n_rows, self.n_features = self.rows.n, self.rows.m
        if len(self.y) != self.rows.n:
            raise SourceError(f"X has {self.rows.n} rows but y has {len(self.y)}: give one target per row.")
        if isinstance(labels, str):
            labels = None if self.y.dtype.kind in "fiu" else check_labels(np.unique(self.y).tolist(), "y")
        if labels is not None:
            self.labels = tuple(labels)
            with self.naming_rows():
                self.y = as_targets(encode(self.y, self.labels, 0), len(self.labels))
        elif self.y.dtype.kind not in "fiub":
            raise SourceError(
                "The targets are not numbers; give labels=(negative, positive) to map two values to -1 and +1."
            )
        self.is_weighted = weights is not None
        self.weights = None if weights is None else as_row_weights(weights, self.rows.n)
        self.sparse = isinstance(self.rows, SparseRows)
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features, sparse=self.sparse)

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        step = self.chunk_rows if features else max(self.chunk_rows, 65536)
        for start, stop in chunk_spans(0, self.n_rows, step):
            yield lambda part=slice(start, stop): self._chunks(part, features)  # type: ignore[misc]

    def _chunks(self, part: slice, features: bool) -> Iterator[Chunk]:
        self.check_files()  # a mapped file that was cut short since must not be touched
        X, weights = None, None if self.weights is None else self.weights[part]
        if features:  # one memory layout for all: products of other layouts round differently
            X = self.rows.block(part)
            X = X.astype(np.float64) if sp.issparse(X) else np.ascontiguousarray(X)
        yield Chunk(part.start, X, np.asarray(self.y[part], dtype=np.float64), weights)
        if features and isinstance(self.rows, DenseRows):
            release_pages(self.rows.X[part])

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows; reads nothing else."""
        self.check_files()
        taken = self._features(rows), np.asarray(self.y[rows], dtype=np.float64)
        self.check_files()
        return taken

    def _features(self, rows: npt.NDArray[np.int64]) -> Any:
        """Return the features of a few rows; of a mapped file a few at a time: each brings its neighbours along."""
        if not isinstance(self.rows, DenseRows) or not is_mapped(self.rows.X):
            return self.rows.take(rows)
        out = np.empty((len(rows), self.n_features))
        for start in range(0, len(rows), _MAPPED_ROWS):
            batch = rows[start : start + _MAPPED_ROWS]
            out[start : start + _MAPPED_ROWS] = self.rows.take(batch)
            release_pages(self.rows.X[int(np.min(batch)) : int(np.max(batch)) + 1])
        return out


def release_pages(array: Any) -> None:
    """Give back the pages that hold an array, where it shows a file mapped for reading only.

    Only the process lets go: the system may keep the file in its cache, and what is asked for again is there again.
    Maps that can be written to are left alone, and so is everything else.

    Examples
    --------
    >>> release_pages(np.ones(3))
    """
    root = _map_of(array)
    if root is None or not array.size:
        return
    beginning = root.ctypes.data - root.offset % mmap.ALLOCATIONGRANULARITY
    first, last = np.lib.array_utils.byte_bounds(array)
    start = (first - beginning) // mmap.PAGESIZE * mmap.PAGESIZE
    root._mmap.madvise(mmap.MADV_DONTNEED, start, min(last - beginning, len(root._mmap)) - start)


def is_mapped(array: Any) -> bool:
    """Whether an array shows a file mapped for reading only, whose pages can be given back."""
    return _map_of(array) is not None


def _map_of(array: Any) -> Any:
    """Return the map that an array is a view of; None where it is none, or one that can be written to."""
    root = array
    while isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base
    known = isinstance(root, np.memmap) and root.mode == "r" and isinstance(getattr(root, "_mmap", None), mmap.mmap)
    return root if known and hasattr(mmap, "MADV_DONTNEED") else None


# Numpy's files


class VectorRows(Rows):
    """Features that are kept one by one, as vectors of the same length."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]], n_rows: int, path: str | Path) -> None:
        if not columns:
            raise SourceError(f"{path} holds no features besides its target.")
        for name, column in columns.items():
            if column.shape != (n_rows,) or column.dtype.kind not in "fiub":
                raise SourceError(
                    f"{path}: {name!r} is {column.dtype} of shape {column.shape}; a column holds {n_rows} numbers."
                )
        self.columns, self.n, self.m = list(columns.values()), n_rows, len(columns)

    def block(self, part: slice) -> FloatArray:
        return self.take(part)

    def take(self, indices: Any) -> FloatArray:
        return np.stack([np.asarray(column[indices], dtype=np.float64) for column in self.columns], axis=1)


def map_npz(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an ``.npz`` archive, mapped into memory: nothing is read before it is used.

    Raises
    ------
    SourceError
        If a member is compressed: only what `numpy.savez` stores as it is can be mapped.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError("it is compressed and cannot be mapped. Write it with numpy.savez")
                file.seek(member.header_offset)
                fields = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                file.seek(fields[-2] + fields[-1], 1)  # the member's name, and what a zip tool added
                shape, fortran, dtype = member_header(file, member.file_size, member.filename)
                layout: dict[str, Any] = {"dtype": dtype, "shape": shape, "order": "F" if fortran else "C"}
                empty = 0 in shape
                found = np.empty(**layout) if empty else np.memmap(path, mode="r", offset=file.tell(), **layout)
                arrays[member.filename.removesuffix(".npy")] = found
    except FileNotFoundError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, struct.error) as error:
        raise SourceError(f"{path} is not an .npz archive of plain arrays that can be mapped: {error}.") from None
    return arrays


def _map_npy(path: str | Path) -> npt.NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")  # of an array that fits the file, and holds no objects
    except (ValueError, EOFError) as error:
        raise SourceError(f"{path} is not a whole .npy file of numbers: {error}") from None


def open_npy(X: str | Path, y: Any, weights: Any = None, **options: Any) -> ArraySource:
    """Return the rows of an ``.npy`` file, mapped into memory.

    ``X`` is the path of a two-dimensional array; ``y`` and ``weights`` are arrays, or paths of other ``.npy`` files.
    The rest is as in `ArraySource`.
    """
    if y is None:
        raise TypeError(f"{X} holds the features only: give y, an array or the path of another .npy file.")
    files = [FileState.of(part) for part in (X, y, weights) if isinstance(part, (str, Path))]
    source = ArraySource(
        *(_map_npy(part) if isinstance(part, (str, Path)) else part for part in (X, y, weights)), **options
    )
    source.files = files
    return source


def open_npz(
    path: str | Path,
    target: Any = "y",
    *,
    features: str | Sequence[str] | None = None,
    weight: Any = None,
    **options: Any,
) -> ArraySource:
    """Return the rows of an ``.npz`` archive, mapped into memory.

    Parameters
    ----------
    path : str or Path
        As written by `numpy.savez`, or a sparse matrix as written by `scipy.sparse.save_npz`. A sparse matrix is
        loaded, not mapped, and stays sparse.
    target : str, default="y"
        Name of the array of targets. With a sparse matrix also an array, or the path of an ``.npy`` file.
    features : str or sequence of str, optional
        Name of one two-dimensional array, or names of vectors, one a feature. By default the array ``X`` if there is
        one, else all vectors but target and weight.
    weight : str, optional
        Name of the array of weights; with a sparse matrix as for ``target``.
    **options
        As in `ArraySource`.
    """
    files, is_sparse = [FileState.of(path)], _is_sparse(path)
    if is_sparse and (features is not None or target is None):
        raise TypeError(
            f"{path} holds one sparse matrix, the features: leave features out and give y, an array or the path of an "
            ".npy file."
        )
    if not is_sparse and not (isinstance(target, str) and isinstance(weight, str | None)):
        raise TypeError(f"{path} is a file: y and sample_weight are the names of its columns, arrays in it.")
    arrays = _read_sparse(path) if is_sparse else map_npz(path)

    def get(part: Any) -> Any:
        if isinstance(part, str) and part in arrays:
            return arrays[part]
        if is_sparse and not isinstance(part, (str, Path)):
            return part
        if is_sparse and Path(part).suffix.lower() == ".npy":
            files.append(FileState.of(part))
            return _map_npy(part)
        beside, advice = "", ""
        if is_sparse:
            beside, advice = f" beside the matrix {MATRIX}", " Give an array, or the path of an .npy file."
        raise SourceError(f"{path} holds no array {str(part)!r}{beside}; it holds {sorted(arrays)[:20]}.{advice}")

    y, weights = get(target), None if weight is None else get(weight)
    if features is None:
        features = MATRIX if MATRIX in arrays else [name for name in arrays if name not in (target, weight)]
    names = None if isinstance(features, str) else tuple(features)
    X = get(features) if names is None else VectorRows({name: get(name) for name in names}, y.size, path)
    source = ArraySource(X, y, weights, **options)
    source.feature_names, source.files = names, files
    return source


# Archives of scipy.sparse

SPARSE_PARTS = {"indices", "indptr", "data", "shape", "format"}
# How many times its size a compressed archive may grow: a matrix of equal values does a hundred times.
_GROWTH = 200.0
# What the matrix of features is called beside the other arrays of its archive.
MATRIX = "X"


def _is_sparse(path: str | Path) -> bool:
    """Whether an archive holds a matrix of `scipy.sparse`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {f"{part}.npy" for part in SPARSE_PARTS} <= set(archive.namelist())
    except (zipfile.BadZipFile, ValueError):
        return False  # the reader of archives says what is wrong


def _read_sparse(path: str | Path) -> dict[str, Any]:
    try:
        return with_matrix(read_archive(path, growth=_GROWTH))
    except ArchiveError as error:
        raise SourceError(f"{path} is not an archive of scipy.sparse: {error}.") from None


def with_matrix(arrays: Arrays) -> dict[str, Any]:
    """Return the arrays of an archive, the parts of a sparse matrix put together under the name `MATRIX`."""
    if not set(arrays) >= SPARSE_PARTS:
        return arrays
    others = {name: part for name, part in arrays.items() if name not in (*SPARSE_PARTS, MATRIX)}
    return {MATRIX: sparse_matrix(arrays)} | others


def sparse_matrix(arrays: Arrays) -> sp.csr_matrix:
    """Return the matrix of an archive in CSR form, after checking that its parts fit together."""
    kind = arrays["format"]
    name = kind.item() if kind.shape == () else None
    name = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    if name not in ("csr", "csc"):
        raise ArchiveError(f"its matrix has the format {name!r}; save it with scipy.sparse.save_npz(path, X.tocsr())")
    X = Record({}, arrays).sparse(("data", "indices", "indptr"), sp.csr_matrix if name == "csr" else sp.csc_matrix)
    if 0 in X.shape:
        raise ArchiveError(f"its matrix has shape {X.shape}")
    return X.tocsr()
