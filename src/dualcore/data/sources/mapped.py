"""Rows mapped into memory from numpy's own files: ``.npy`` arrays, and the members of an ``.npz`` archive."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.data.sources.arrays import ArraySource
from dualcore.data.sources.chunk import SourceError
from dualcore.data.storage import ArchiveError, Arrays, FileState, Record, member_header, read_archive

Labels = tuple[Any, Any] | str | None
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


class ColumnRows(Rows):
    """Features that are kept one by one, as vectors of the same length."""

    def __init__(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        self.columns = list(columns)
        self.n, self.m = self.columns[0].shape[0], len(self.columns)

    def block(self, part: slice) -> FloatArray:
        start, stop, _ = part.indices(self.n)
        out = np.empty((stop - start, self.m))
        for place, column in enumerate(self.columns):
            out[:, place] = column[part]
        return out

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
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
                    raise SourceError(
                        f"{path} is compressed and cannot be mapped: write it with numpy.savez, or load it into memory."
                    )
                arrays[member.filename.removesuffix(".npy")] = _map_member(path, file, member)
    except (OSError, zipfile.BadZipFile, ValueError, struct.error) as error:
        if isinstance(error, (FileNotFoundError, SourceError)):
            raise
        raise SourceError(f"{path} is not an .npz archive of plain arrays: {error}") from None
    return arrays


def _map_member(path: str | Path, file: Any, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    file.seek(member.header_offset)
    fields = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    file.seek(fields[-2] + fields[-1], 1)  # the member's name, and what a zip tool added
    shape, fortran, dtype = member_header(file, member.file_size, member.filename)
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order=order)


def open_npy(
    X: str | Path, y: Any, weights: Any = None, *, chunk_rows: int | None = None, labels: Labels = None
) -> ArraySource:
    """Return the rows of an ``.npy`` file, mapped into memory.

    ``X`` is the path of a two-dimensional array; ``y`` and ``weights`` are arrays, or paths of other ``.npy`` files.
    The rest is as in `ArraySource`.
    """

    def load(data: Any) -> Any:
        return _map_npy(data) if isinstance(data, (str, Path)) else data

    if y is None:
        raise TypeError(f"{X} holds the features only: give y, an array or the path of another .npy file.")
    files = [FileState.of(part) for part in (X, y, weights) if isinstance(part, (str, Path))]
    weights = None if weights is None else load(weights)
    source = ArraySource(_map_npy(X), load(y), weights, chunk_rows=chunk_rows, labels=labels)
    source.files = files
    return source


def _map_npy(path: str | Path) -> npt.NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")  # of an array that fits the file, and holds no objects
    except (ValueError, EOFError) as error:
        raise SourceError(f"{path} is not a whole .npy file of numbers: {error}") from None


def open_npz(
    path: str | Path,
    target: Any = "y",
    *,
    features: str | Sequence[str] | None = None,
    weight: Any = None,
    chunk_rows: int | None = None,
    labels: Labels = None,
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
    chunk_rows : int, optional
    labels : (negative, positive) or "find", optional
        As in `ArraySource`.
    """
    files, is_sparse = [FileState.of(path)], _is_sparse(path)
    if is_sparse and features is not None:
        raise TypeError(f"{path} holds one sparse matrix: leave features out.")
    if is_sparse and target is None:
        raise TypeError(f"{path} holds the features only: give y, an array or the path of an .npy file.")
    if not is_sparse and not (isinstance(target, str) and isinstance(weight, str | None)):
        raise TypeError(f"{path} is a file: y and sample_weight are the names of its columns, arrays in it.")
    arrays = _read_sparse(path) if is_sparse else map_npz(path)

    def get(part: Any) -> Any:
        if isinstance(part, str) and part in arrays:
            return arrays[part]
        if not is_sparse:
            raise SourceError(f"{path} holds no array {part!r}; it holds {sorted(arrays)[:20]}.")
        if not isinstance(part, (str, Path)):
            return part
        if Path(part).suffix.lower() != ".npy":
            raise SourceError(
                f"{path} holds no array {str(part)!r} beside the matrix {MATRIX}; it holds {sorted(arrays)[:20]}. Give "
                "the targets as an array, or as the path of an .npy file."
            )
        files.append(FileState.of(part))
        return _map_npy(part)

    y, weights = get(target), None if weight is None else get(weight)
    if features is None:
        one = is_sparse or "X" in arrays
        features = MATRIX if one else [name for name in arrays if name not in (target, weight)]
    X = get(features) if isinstance(features, str) else _columns(path, {name: get(name) for name in features}, y.size)
    source = ArraySource(X, y, weights, chunk_rows=chunk_rows, labels=labels)
    source.feature_names, source.files = None if isinstance(features, str) else tuple(features), files
    return source


def _columns(path: str | Path, columns: dict[str, Any], n_rows: int) -> ColumnRows:
    """Return vectors as features, after checking them."""
    if not columns:
        raise SourceError(f"{path} holds no features besides its target.")
    for name, column in columns.items():
        if column.ndim != 1 or column.size != n_rows or column.dtype.kind not in "fiub":
            raise SourceError(
                f"{path}: {name!r} is {column.dtype} of shape {column.shape}; a column holds {n_rows} numbers."
            )
    return ColumnRows(list(columns.values()))


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
    record = Record({}, arrays)
    n, m = record.vector("shape", 2, "i", least=0).tolist()
    columns, starts = (record.vector(part, None, "i", least=0) for part in ("indices", "indptr"))
    data = arrays["data"]
    if data.ndim != 1 or data.dtype.kind not in "fiub":
        raise ArchiveError(f"'data' holds {data.dtype} of shape {data.shape}, expected a vector of numbers")
    made = sp.csr_matrix if name == "csr" else sp.csc_matrix
    try:
        X = made((data, columns, starts), shape=(n, m))
        X.check_format(full_check=True)
    except (ValueError, OverflowError) as error:
        raise ArchiveError(str(error)) from None
    if not n or not m:
        raise ArchiveError(f"its matrix has shape {(n, m)}")
    return X.tocsr()
