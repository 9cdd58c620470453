"""Named columns in memory: ``.npy`` and ``.npz`` files, and CSV files where pyarrow is not installed.

All other files are opened as sources (`dualcore.data.sources`); errors name the file and the column.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.cli.coding import mixed_column, table_files
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import SourceError
from dualcore.data.sources.arrow import check_header, is_number
from dualcore.data.sources.memory import with_matrix
from dualcore.data.sources.paths import CSV, FEATHER, PARQUET, SVMLIGHT, delimiter_of
from dualcore.data.storage import FileState, read_archive

# Files that can be read, here or as sources.
SUFFIXES = (*CSV, ".txt", ".gz", ".bz2", *PARQUET, *FEATHER, *SVMLIGHT, ".npy", ".npz")
# How many times its size a compressed archive may grow: a table of mostly zeros does a hundred times.
_GROWTH = 200.0
# Rows of a CSV file turned into numbers at a time: enough to be fast, few enough to hold as text.
_CSV_ROWS = 20000

Column = npt.NDArray[Any]


class TableError(ValueError):
    """A file cannot be used as a table; the message names it and says what to do."""


@dataclass(frozen=True)
class Table:
    """Named columns of one length: numbers, or text where a column is not numeric; or, under one name, a matrix.

    Examples
    --------
    >>> table = Table("t.csv", {"a": np.array([1.0, 2.0]), "b": np.array(["x", "y"])})
    >>> table.labels("b")
    array(['x', 'y'], dtype='<U1')
    """

    source: str  # name of the file, for messages
    columns: dict[str, Column]

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(next(iter(self.columns.values())).shape[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)

    def find(self, name: str) -> str:
        """Return the name of a column, given by name or, where there is none of that name, by position."""
        return find_column(self.source, self.names, name)

    def labels(self, name: str) -> Column:
        """Return a column as class labels: text, or numbers (whole ones as integers)."""
        column = self.columns[self.find(name)]
        if column.dtype.kind == "U":
            missing = np.flatnonzero(np.char.strip(column) == "")
            if missing.size:
                raise self._missing(name, int(missing[0]))
            return column
        if column.dtype.kind == "b":
            return column
        return as_labels(self.numbers(name))

    def numbers(self, name: str) -> FloatArray:
        """Return a column as finite numbers."""
        column = self.columns[self.find(name)]
        if column.ndim != 1:
            raise TableError(f"{name!r} in {self.source} is a matrix of shape {column.shape}, not a column.")
        if column.dtype.kind not in "fiub":
            # Text that looks like numbers is text all the same: the file says so.
            row = next((k for k, text in enumerate(column.tolist()) if not is_number(text)), 0)
            raise TableError(
                f"Column {name!r} of {self.source} is not numeric: {str(column[row])!r} in row {row + 1}. "
                "Leave it out with --drop, or encode it as numbers first."
            )
        numbers = np.asarray(column, dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            raise self._missing(name, int(bad[0]))
        return numbers

    @property
    def matrix(self) -> str | None:
        """Name of the matrix of features, where there is one."""
        return next((name for name, column in self.columns.items() if column.ndim == 2), None)

    def features(self, without: Sequence[str] = (), only: Sequence[str] = ()) -> tuple[Any, tuple[str, ...]]:
        """Return the features as one matrix of shape (n_rows, n_features), and their names; a sparse one stays sparse.

        They are all columns ``without`` some, or ``only`` some in their order.
        """
        skipped = {self.find(name) for name in without}
        names = [self.find(name) for name in only] or [name for name in self.names if name not in skipped]
        if not names:
            raise TableError(f"{self.source} has no feature columns left.")
        if len(names) == 1 and self.columns[names[0]].ndim == 2:
            matrix = self.columns[names[0]]
            entries = matrix.data if sp.issparse(matrix) else matrix
            if matrix.dtype.kind not in "fiub" or not np.isfinite(entries).all():
                raise TableError(f"{names[0]!r} in {self.source} must hold finite numbers only.")
            numbers = matrix.astype(np.float64) if sp.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
            return numbers, tuple(f"x{j}" for j in range(matrix.shape[1]))
        return np.column_stack([self.numbers(name) for name in names]), tuple(names)

    def _missing(self, name: str, row: int) -> TableError:
        return TableError(
            f"Column {name!r} of {self.source} has a missing or infinite value in row {row + 1}. "
            "Drop or fill such rows first."
        )


def as_labels(numbers: FloatArray) -> Column:
    """Return numbers as integers, where all are whole."""
    whole = np.all(numbers == np.round(numbers)) and np.abs(numbers).max(initial=0.0) < 2**53
    return numbers.astype(np.int64) if whole else numbers


def find_column(source: str, names: Sequence[str], name: str) -> str:
    """Return the name of a column, given by name or, where there is none of that name, by position.

    Examples
    --------
    >>> find_column("t.csv", ["a", "b"], "b"), find_column("t.csv", ["a", "b"], "0")
    ('b', 'a')
    """
    if name in names:
        return name
    try:
        return names[int(name)]
    except (ValueError, IndexError):
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        near = get_close_matches(name, names, 1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise TableError(f"{source} has no column {name!r}.{guess} It has: {shown}.") from None


def read_table(path: str | Path, separator: str | None = None) -> Table:
    """Read a table into memory; the suffix of the file says which kind it is.

    CSV and TSV files begin with a line of column names. An ``npy`` file holds a matrix, whose columns are called x0, x1
    and so on, or a structured array; an ``npz`` file named vectors, or a matrix (also one of `scipy.sparse.save_npz`)
    and vectors. A folder holds CSV files with the same columns, one after the other by name.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path, separator)
    table = _read_file(path, separator)
    if table.n_rows == 0:
        raise TableError(f"{path.name} holds no rows.")
    return table


def _read_file(path: Path, separator: str | None) -> Table:
    """Read a table that may have no rows."""
    readers = {".npy": _read_npy, ".npz": _read_npz}
    suffix = path.suffix.lower()
    try:
        before = FileState.of(path)
        columns = readers[suffix](path) if suffix in readers else _read_csv(path, separator)
        changed = before.difference()
        if changed is not None:
            raise TableError(changed)
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(f"There is no file {path}: not found.") from None
    except (OSError, ValueError, EOFError, zlib.error, csv.Error) as error:
        raise TableError(f"{path.name} cannot be read: {_first_line(error)}.") from None
    table = Table(path.name, columns)
    if not columns:
        raise TableError(f"{path.name} holds no rows.")
    for name, column in columns.items():
        if column.shape[0] != table.n_rows:
            raise TableError(f"{path.name}: {name!r} has {column.shape[0]} rows, the others {table.n_rows}.")
    return table


def _read_folder(folder: Path, separator: str | None) -> Table:
    """Read the files of a folder, which must have the same columns."""
    try:
        files = table_files(folder)
    except SourceError as error:
        if "holds no file" not in str(error):
            raise TableError(str(error)) from None
        raise TableError(f"{folder.name} is a folder that holds no Parquet, CSV or TSV file.") from None
    tables = [_read_file(file, separator) for file in files]
    names = tables[0].names
    for table in tables[1:]:
        if set(table.names) != set(names):
            odd = sorted(set(table.names) ^ set(names))[0]
            raise TableError(f"{files[0].name} and {table.source} differ in column {odd!r}: the files do not match.")
    filled = [table for table in tables if table.n_rows]
    if not filled:
        raise TableError(f"The files of {folder.name} hold no rows.")
    for name in names:
        _check_alike(name, filled)
    return Table(folder.name, {name: _join([table.columns[name] for table in filled]) for name in names})


def _check_alike(name: str, tables: list[Table]) -> None:
    """See that a column holds numbers in all files, or text in all; where it holds nothing it may be either."""
    kinds: dict[bool, str] = {}
    for table in tables:
        column = table.columns[name]
        if column.dtype.kind != "f" or not np.isnan(column).all():
            kinds.setdefault(column.dtype.kind == "U", table.source)
    if len(kinds) > 1:
        raise TableError(mixed_column(name, [kinds[False], kinds[True]], True))


def write_csv(columns: dict[str, Sequence[Any]]) -> str:
    """Return columns as the text of a CSV file; numbers keep every digit."""
    lines = [",".join(_quoted(name) for name in columns)]
    lines += [",".join(_quoted(value) for value in row) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def _quoted(value: Any) -> str:
    text = repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _read_csv(path: Path, separator: str | None) -> dict[str, Column]:
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    open_text = openers.get(path.suffix.lower(), open)
    with open_text(path, "rt", newline="", encoding="utf-8-sig") as stream:
        rows = csv.reader(stream, delimiter=separator or delimiter_of(path))
        names = _header(path, next(rows, []))
        parts: list[list[Column]] = [[] for _ in names]
        for block in _row_blocks(path, rows, len(names)):
            for part, texts in zip(parts, zip(*block, strict=True), strict=True):
                part.append(_as_column(texts))
    return {name: _join(part) for name, part in zip(names, parts, strict=True)}


def _header(path: Path, names: Sequence[str]) -> list[str]:
    names = [name.strip() for name in names]
    if not names:
        raise TableError(f"{path.name} is empty.")
    check_header(path.name, names, is_text=True, error=TableError)
    return names


def _row_blocks(path: Path, rows: Any, width: int) -> Iterator[list[list[str]]]:
    done = 0
    while block := [row for row in islice(rows, _CSV_ROWS) if row]:
        for number, row in enumerate(block):
            if len(row) != width:
                raise TableError(f"Row {done + number + 1} of {path.name} has {len(row)} values, the header {width}.")
        done += len(block)
        yield block


def _as_column(texts: Sequence[str]) -> Column:
    """Return numbers where every text is one (an empty text is a missing number), else the texts."""
    array = np.array(texts)
    try:
        return array.astype(np.float64)
    except ValueError:
        pass
    try:
        return np.array([float(text) if text.strip() else math.nan for text in texts])
    except ValueError:
        return array


def _join(parts: list[Column]) -> Column:
    if not parts:
        return np.empty(0)
    if len({part.dtype.kind == "U" for part in parts}) > 1:  # text further down: the column is text from its start
        parts = [part if part.dtype.kind == "U" else _as_text(part) for part in parts]
    return np.concatenate(parts)


def _as_text(numbers: Column) -> Column:
    """Return numbers as the texts they were; what is missing stays missing."""
    return np.array(["" if math.isnan(number) else f"{number:.17g}" for number in numbers])


def _read_npy(path: Path) -> dict[str, Column]:
    array = np.array(np.lib.format.open_memmap(path, mode="r"))  # a map must fit the file, whatever the header says
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim != 2:
        raise TableError(f"{path.name} must hold a matrix of shape (rows, columns), found shape {array.shape}.")
    return {f"x{j}": array[:, j] for j in range(array.shape[1])}


def _read_npz(path: Path) -> dict[str, Column]:
    arrays = with_matrix(read_archive(path, growth=_GROWTH))
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise TableError(f"{name!r} in {path.name} must be a vector or a matrix, found shape {array.shape}.")
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if len(matrices) > 1:
        raise TableError(f"{path.name} holds more than one matrix ({', '.join(matrices)}). Keep the features only.")
    return arrays
