"""Rows in memory, or mapped into it: arrays, sparse matrices, frames, numpy's files; and parts that come in turn."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import Rows, SparseRows, as_row_weights, as_rows, in_range, refuse_lazy
from dualcore.data.sources.arrow import ArrowSource
from dualcore.data.sources.base import LocalSource, Pieces, Source, Wanted, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError, as_type, chunk_spans, stack_chunks, type_of
from dualcore.data.sources.paths import import_arrow
from dualcore.data.storage import ArchiveError, Arrays, FileState, named_faults, read_archive

# What an archive of scipy.sparse holds, and what the matrix is called beside the other arrays of its archive.
_SPARSE_PARTS = {"data", "indices", "indptr", "shape", "format"}
MATRIX = "X"
# How many times its size a compressed archive may grow: a matrix of equal values does a hundred times.
_GROWTH = 200.0


class ArraySource(LocalSource):
    """Rows in memory, read by as many threads as BLAS may use.

    Parameters
    ----------
    X : array, memory map, sparse matrix or data frame, or Rows
    y : array of shape (n_rows,)
        Numbers, or labels of any kind that `open_source` translates; a memory map stays one.
    weights : ndarray of shape (n_rows,) or None
        Non-negative; the masses are the weights divided by their sum.
    chunk_rows : int, optional
        Rows read at a time; by default a chunk fits the cache. The result of a read does not depend on it.
    checked : bool, default=False
        Whether ``X`` is known to be finite; else the first read checks it.

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
    ) -> None:
        super().__init__()
        self.rows: Rows = as_rows(X)
        self.y, self._checked = plain_array("y", y), checked
        self._n_rows, self.n_features = self.rows.n, self.rows.m
        if self.y.shape != (self.rows.n,):
            raise SourceError(f"X has {self.rows.n} rows but y the shape {self.y.shape}: give one target per row.")
        self.target_type = type_of(self.y.dtype)
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
        return Chunk(part.start, X, as_type(self.y[part], self.target_type), weights)

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        """Return features and targets of a few rows, without reading others."""
        self.check_files()
        X, y = self.rows.take(rows), as_type(self.y[rows], self.target_type)
        self.check_files()
        return X, y


# Numpy's files


def open_arrays(
    path: str | Path, y: Any = "y", weight: Any = None, *, features: str | Sequence[str] | None = None, **options: Any
) -> Source:
    """Return the rows of an ``.npy`` file or an ``.npz`` archive, mapped into memory unless they are compressed.

    Parameters
    ----------
    path : str or Path
        As written by `numpy.save` or `numpy.savez`, or a sparse matrix as written by `scipy.sparse.save_npz`, which is
        loaded and stays sparse.
    y : str or array, default="y"
        Name of the array of targets in the archive, an array, or the path of an ``.npy`` file.
    weight : str or array, optional
        As for ``y``.
    features : str or sequence of str, optional
        Name of one two-dimensional array, or names of vectors, one a feature. By default the array ``X`` if there is
        one, else all vectors but target and weight.
    **options
        As in `ArraySource`; as in `ArrowSource` where features are vectors.
    """
    if y is None:
        raise TypeError(f"{path} needs y: the name of an array in it, an array, or the path of an .npy file.")
    files, arrays = [FileState.of(path)], read_arrays(path)

    def get(part: Any) -> Any:
        if isinstance(part, str) and part in arrays:
            return arrays[part]
        if not isinstance(part, (str, Path)):
            return part
        if Path(part).suffix.lower() != ".npy":
            known = f"it holds {sorted(arrays)[:20]}"
            raise SourceError(f"{path} holds no array {part!r}; {known}. Name one, or the path of an .npy file.")
        files.append(FileState.of(part))
        return read_arrays(part)[MATRIX]

    targets, weights = get(y), get(weight)
    if features is None:
        aside = [name for name in (y, weight) if isinstance(name, str)]
        features = MATRIX if MATRIX in arrays else [name for name in arrays if name not in aside]
    if isinstance(features, str):
        source: LocalSource = ArraySource(get(features), targets, weights, **options)
    else:
        columns = {name: get(name) for name in features} | {"target": targets}
        columns |= {} if weight is None else {"weight": weights}
        names: dict[str, Any] = {"features": features, "weight": None if weight is None else "weight"}
        source = ArrowSource(as_table(columns, str(path)), "target", **names, **options)
    source.files = files
    return source


def as_table(columns: dict[str, Any], where: str) -> Any:
    """Return vectors as a table, without a copy of those of numbers."""
    pa = import_arrow("pyarrow")
    try:
        return pa.table(columns)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{where} does not hold vectors of one length: {error}") from None


def read_arrays(path: str | Path) -> dict[str, Any]:
    """Return the arrays of a file of numpy by name, mapped into memory where they are stored as they are.

    A sparse matrix, and the one array of an ``.npy`` file, has the name `MATRIX`.
    """
    try:
        if Path(path).suffix.lower() == ".npy":
            array = np.lib.format.open_memmap(path, mode="r")  # of an array that fits the file, and holds no objects
            return {name: array[name] for name in array.dtype.names} if array.dtype.names else {MATRIX: array}
        with named_faults(), zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            members = archive.infolist()
            sparse = {f"{part}.npy" for part in _SPARSE_PARTS} <= set(archive.namelist())
            if sparse or any(member.compress_type != zipfile.ZIP_STORED for member in members):
                arrays = read_archive(path, growth=_GROWTH)
                return _with_matrix(path, arrays) if sparse else arrays
            return {member.filename.removesuffix(".npy"): _map_member(file, member) for member in members}
    except (ValueError, EOFError) as error:
        raise SourceError(f"{path} is not a whole file of plain arrays: {error}.") from None


def _map_member(file: Any, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array that an open archive stores as it is, mapped into memory: nothing is read before it is used."""
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


def _with_matrix(path: str | Path, arrays: Arrays) -> dict[str, Any]:
    """Return the arrays of an archive, the parts of a sparse matrix put together under the name `MATRIX`."""
    matrix = sp.load_npz(path)
    if matrix.dtype.kind not in "fiub":
        raise ArchiveError(f"'data' holds {matrix.dtype}, expected a vector of numbers")
    matrix.check_format(full_check=True)
    others = {name: array for name, array in arrays.items() if name not in (*_SPARSE_PARTS, MATRIX)}
    return {MATRIX: sp.csr_matrix(matrix)} | others


# Parts


class PartsSource(LocalSource):
    """Parts ``(X, y)`` or ``(X, y, weights)`` from something that can be iterated again and again.

    Parameters
    ----------
    parts : callable or iterable
        A function that returns a new iterator each time it is called, or an object (a list, a data loader) that can be
        iterated more than once. It must give the same rows in the same order every time. A generator cannot: for data
        that come once, use `CoresetStream`.
    chunk_rows : int, optional
        Rows computed with at a time. Smaller parts are put together, larger ones are cut.

    Notes
    -----
    A part may be empty, or hold one class only. How many rows there are is not known before the end, so the first use
    counts them in one read; the pilot draw is another. Memory: a few parts at a time.

    Examples
    --------
    >>> def parts():
    ...     for k in range(3):
    ...         yield np.full((2, 1), float(k)), np.array([-1.0, 1.0])
    >>> source = PartsSource(parts)
    >>> source.n_rows, source.n_features
    (6, 1)
    """

    labels_alone = False

    def __init__(self, parts: Callable[[], Iterable[Any]] | Iterable[Any], *, chunk_rows: int | None = None) -> None:
        super().__init__()
        refuse_lazy(parts)
        self._parts: Any = parts
        first = next((part for part in self._all() if part.y.size), None)
        if first is None:
            raise SourceError("The parts hold no rows.")
        self.n_features, self._sparse = first.X.shape[1], sp.issparse(first.X)
        self.is_weighted, self.target_type = first.weights is not None, type_of(first.y.dtype)
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features, sparse=self._sparse)

    def describe(self, row: int) -> str:
        position = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"part {position}, row {row - self._starts[position]} of it"

    def _all(self) -> Iterator[Chunk]:
        """Yield all parts, checked, numbered and converted."""
        start, first, self._starts = 0, None, list[int]()
        for number, part in enumerate(self._parts() if callable(self._parts) else self._parts):
            self._starts.append(start)
            chunk = _as_chunk(part, start, f"Part {number}")
            if chunk.y.size:
                kind = chunk.X.shape[1], chunk.weights is not None, sp.issparse(chunk.X)
                first = first or kind
                if kind != first:
                    what = "({} features, weighted: {}, sparse: {})".format
                    raise SourceError(f"Part {number} {what(*kind)} is not like the first {what(*first)}.")
            yield chunk
            start += chunk.y.size

    def _pieces(self, *, features: bool, wanted: Wanted) -> Pieces:
        n_rows, small = 0, list[Chunk]()
        for part in (part for part in self._all() if part.y.size):
            n_rows += part.y.size
            small.append(part if features else part._replace(X=None))
            if sum(chunk.y.size for chunk in small) >= self.chunk_rows:
                yield partial(stack_chunks(small).cut, self.chunk_rows)
                small = []
        if small:
            yield partial(stack_chunks(small).cut, self.chunk_rows)
        if self._n_rows is not None and n_rows != self._n_rows:
            raise SourceError(f"The parts hold {n_rows} rows now but held {self._n_rows} before: they must not change.")


def _as_chunk(part: Any, start: int, name: str) -> Chunk:
    """Return a part ``(X, y)`` or ``(X, y, weights)`` as float64 rows."""
    if not isinstance(part, (tuple, list)) or len(part) not in (2, 3):
        raise SourceError(f"{name} must be (X, y) or (X, y, weights), got {type(part).__name__}.")
    if not len(part[1]):
        return Chunk(start, np.empty((0, 0)), np.empty(0), None)
    try:
        rows = ArraySource(part[0], part[1])
        weights = None if len(part) == 2 or part[2] is None else as_row_weights(part[2], rows.n_rows)
    except ValueError as error:
        raise SourceError(f"{name}: {error}") from None
    return rows.chunk(slice(0, rows.n_rows), features=True)._replace(start=start, weights=weights)
