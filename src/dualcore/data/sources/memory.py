"""Rows in memory, or mapped into it: arrays, sparse matrices, data frames, and numpy's own files."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import Rows, SparseRows, as_row_weights, as_rows, in_range
from dualcore.data.sources.base import LocalSource, Pieces, Wanted, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError, as_targets, check_labels, chunk_spans, encode
from dualcore.data.storage import ArchiveError, Arrays, FileState, named_faults, read_archive

# What an archive of scipy.sparse holds, and what the matrix is called beside the other arrays of its archive.
_SPARSE_PARTS = {"data", "indices", "indptr", "shape", "format"}
MATRIX = "X"
# How many times its size a compressed archive may grow: a matrix of equal values does a hundred times.
_GROWTH = 200.0


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
        The values of a classifier's target: two become -1 and +1, more their positions 0, 1, 2 and so on. "find" looks
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
        labels: Sequence[Any] | str | None = None,
    ) -> None:
        super().__init__()
        self.rows: Rows = as_rows(X)
        self.y, self._checked = plain_array("y", y), checked
        self._n_rows, self.n_features = self.rows.n, self.rows.m
        if self.y.shape != (self.rows.n,):
            raise SourceError(f"X has {self.rows.n} rows but y the shape {self.y.shape}: give one target per row.")
        if isinstance(labels, str):
            labels = None if self.y.dtype.kind in "fiu" else check_labels(np.unique(self.y).tolist(), "y")
        if labels is not None:
            self.labels = tuple(labels)
            with self.naming_rows():
                self.y = as_targets(encode(self.y, self.labels, 0), len(self.labels))
        elif self.y.dtype.kind not in "fiub":
            raise SourceError("The targets are not numbers; labels=(negative, positive) maps two values to -1 and +1.")
        self.is_weighted = weights is not None
        self.weights = None if weights is None else in_range(as_row_weights(weights, self.rows.n))
        sparse = isinstance(self.rows, SparseRows)
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features, sparse=sparse)

    def _pieces(self, *, features: bool, wanted: Wanted) -> Pieces:
        step = self.chunk_rows if features else max(self.chunk_rows, 65536)
        for start, stop in chunk_spans(0, self.n_rows, step):
            yield lambda part=slice(start, stop): [self.chunk(part, features=features)]  # type: ignore[misc]

    def chunk(self, part: slice, *, features: bool) -> Chunk:
        """Return some rows, with or without their features."""
        self.check_files()  # a mapped file that was cut short since must not be touched
        X = None
        if features:  # one memory layout for all: products of other layouts round differently
            X = self.rows.block(part)
            X = X.astype(np.float64) if sp.issparse(X) else np.ascontiguousarray(X)
        weights = None if self.weights is None else self.weights[part]
        return Chunk(part.start, X, np.asarray(self.y[part], dtype=np.float64), weights)

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows; reads nothing else."""
        self.check_files()
        X, y = self.rows.take(rows), np.asarray(self.y[rows], dtype=np.float64)
        self.check_files()
        return X, y


# Numpy's files


class VectorRows(Rows):
    """Features that are kept one by one, as vectors of the same length."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]], n_rows: int, path: str | Path) -> None:
        if not columns:
            raise SourceError(f"{path} holds no features besides its target.")
        for name, column in columns.items():
            if column.shape != (n_rows,) or column.dtype.kind not in "fiub":
                found = f"{name!r} is {column.dtype} of shape {column.shape}"
                raise SourceError(f"{path}: {found}; a column holds {n_rows} numbers.")
        self.columns, self.n, self.m = list(columns.values()), n_rows, len(columns)

    def block(self, part: slice) -> FloatArray:
        return self.take(part)

    def take(self, indices: Any) -> FloatArray:
        return np.stack([np.asarray(column[indices], dtype=np.float64) for column in self.columns], axis=1)


def open_npy(X: str | Path, y: Any, weights: Any = None, **options: Any) -> ArraySource:
    """Return the rows of an ``.npy`` file, mapped into memory.

    ``X`` is the path of a two-dimensional array; ``y`` and ``weights`` are arrays, or paths of other ``.npy`` files.
    The rest is as in `ArraySource`.
    """
    if y is None:
        raise TypeError(f"{X} holds the features only: give y, an array or the path of another .npy file.")
    files = [FileState.of(part) for part in (X, y, weights) if isinstance(part, (str, Path))]
    source = ArraySource(*(map_npy(part) for part in (X, y, weights)), **options)
    source.files = files
    return source


def map_npy(given: Any) -> Any:
    """Return the array of an ``.npy`` file, mapped into memory; what is not a path as it is."""
    if not isinstance(given, (str, Path)):
        return given
    try:
        return np.lib.format.open_memmap(given, mode="r")  # of an array that fits the file, and holds no objects
    except (ValueError, EOFError) as error:
        raise SourceError(f"{given} is not a whole .npy file of numbers: {error}") from None


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
    target : str or array, default="y"
        Name of the array of targets in the archive, an array, or the path of an ``.npy`` file.
    features : str or sequence of str, optional
        Name of one two-dimensional array, or names of vectors, one a feature. By default the array ``X`` if there is
        one, else all vectors but target and weight.
    weight : str or array, optional
        As for ``target``.
    **options
        As in `ArraySource`.
    """
    if target is None:
        raise TypeError(f"{path} needs y: the name of an array in it, an array, or the path of an .npy file.")
    files = [FileState.of(path)]
    try:
        with named_faults():
            arrays = _read_npz(path)
    except ArchiveError as error:
        raise SourceError(f"{path} is not an .npz archive of plain arrays that can be read: {error}.") from None

    def get(part: Any) -> Any:
        if isinstance(part, str) and part in arrays:
            return arrays[part]
        if isinstance(part, (str, Path)):
            if Path(part).suffix.lower() != ".npy":
                known = f"it holds {sorted(arrays)[:20]}"
                raise SourceError(f"{path} holds no array {part!r}; {known}. Name one, or the path of an .npy file.")
            files.append(FileState.of(part))
        return map_npy(part)

    y, weights = get(target), get(weight)
    if features is None:
        aside = [name for name in (target, weight) if isinstance(name, str)]
        features = MATRIX if MATRIX in arrays else [name for name in arrays if name not in aside]
    names = None if isinstance(features, str) else tuple(features)
    X = get(features) if names is None else VectorRows({name: get(name) for name in names}, len(y), path)
    source = ArraySource(X, y, weights, **options)
    source.feature_names, source.files = names, files
    return source


def _read_npz(path: str | Path) -> dict[str, Any]:
    """Return the arrays of an archive: mapped, unless they are the parts of a sparse matrix."""
    with zipfile.ZipFile(path) as archive:
        if {f"{part}.npy" for part in _SPARSE_PARTS} <= set(archive.namelist()):
            return with_matrix(read_archive(path, growth=_GROWTH))
        with open(path, "rb") as file:
            return {member.filename.removesuffix(".npy"): _map_member(file, member) for member in archive.infolist()}


def _map_member(file: Any, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array that an open archive stores as it is, mapped into memory: nothing is read before it is used."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ArchiveError("it is compressed and cannot be mapped. Write it with numpy.savez")
    file.seek(member.header_offset + 26)  # where the lengths of the name, and of what a zip tool added, are
    file.seek(sum(struct.unpack("<2H", file.read(4))), 1)
    end, version = file.tell() + member.file_size, np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ArchiveError("it holds Python objects, which are never loaded")
    if file.tell() + math.prod(shape) * dtype.itemsize != end:
        raise ArchiveError(f"{member.filename} does not hold as many numbers as it says")
    order: Any = "F" if fortran else "C"
    if 0 in shape:
        return np.empty(shape, dtype, order)
    return np.memmap(file.name, dtype, "r", file.tell(), shape, order)


def with_matrix(arrays: Arrays) -> dict[str, Any]:
    """Return the arrays of an archive, the parts of a sparse matrix put together under the name `MATRIX`."""
    if not set(arrays) >= _SPARSE_PARTS:
        return arrays
    kind = str(arrays["format"].astype(str))
    if kind not in ("csr", "csc"):
        raise ArchiveError(f"its matrix has the format {kind!r}; save it with scipy.sparse.save_npz(path, X.tocsr())")
    if arrays["data"].dtype.kind not in "fiub":
        raise ArchiveError(f"'data' holds {arrays['data'].dtype}, expected a vector of numbers")
    with named_faults():
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        matrix = getattr(sp, f"{kind}_matrix")(parts, shape=tuple(arrays["shape"].tolist()))
        matrix.check_format(full_check=True)
    others = {name: array for name, array in arrays.items() if name not in (*_SPARSE_PARTS, MATRIX)}
    return {MATRIX: matrix.tocsr()} | others
