"""Files of ours: written whole or not at all, and read without running anything that is in them.

Arrays are plain numbers and text, the rest is JSON. What an archive would inflate to is compared with the size of the
file first.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Arrays = dict[str, npt.NDArray[Any]]

# An archive that holds no more than this may be compressed as hard as can be.
_HARMLESS = 1 << 24
_KINDS = {"f": "real numbers", "i": "whole numbers"}


class ArchiveError(ValueError):
    """A file is not an archive of plain arrays, or not one that can be trusted."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that an interrupt or a full disk leaves either the old one or the new one, never a part.

    A symbolic link is followed: the file it points to gets the content. A file that is there keeps its permissions.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file():  # a device or a pipe is written to, and never replaced
        target.write_bytes(content)
        return
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb") as file:
            if target.exists():
                shutil.copymode(target, part)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class FileState(NamedTuple):
    """A file as it was when it was opened: its path, size, time of change and place on the disk."""

    path: str
    size: int
    changed: int | None
    place: int
    filesystem: Any = None  # of pyarrow; the disk where it is None
    name: str = ""  # as a user writes it, where that is another than the path

    @classmethod
    def of(cls, path: str | Path, filesystem: Any = None, name: str = "") -> FileState:
        """Return the state of a file now."""
        if filesystem is None:
            status = os.stat(path)
            return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ino, None, name)
        info = filesystem.get_file_info(str(path))
        if info.size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return cls(str(path), info.size, info.mtime_ns, 0, filesystem, name)

    def difference(self) -> str | None:
        """Say what has happened to the file since; None if nothing has."""
        shown = self.name or self.path
        try:
            now = FileState.of(self.path, self.filesystem, self.name)
        except OSError as error:
            return f"{shown} has gone since it was opened: {error.strerror}."
        return None if now == self else f"{shown} has changed since it was opened: open it again."


@contextmanager
def named_faults() -> Iterator[None]:
    """Turn whatever zipfile, numpy, scipy and json raise for bytes that are not theirs into an ArchiveError."""
    try:
        yield
    except (ArchiveError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise ArchiveError(str(error) or type(error).__name__) from None


def read_archive(path: str | Path, growth: float = 1.0) -> Arrays:
    """Return the arrays of an ``.npz`` archive.

    Parameters
    ----------
    path : str or Path
    growth : float, default=1.0
        How many times the size of the file its arrays may have; 16 MiB are allowed in any case. What `numpy.savez`
        writes is not compressed and needs no more than 1.

    Raises
    ------
    ArchiveError
        If the file is damaged, holds anything but plain arrays, or would need more memory than allowed. The sizes are
        compared before anything is inflated.
    """
    # Opened here: numpy leaves a file open that ends too early.
    with named_faults(), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        size, stated = os.path.getsize(path), sum(member.file_size for member in archive.zip.infolist())
        allowed = max(_HARMLESS, int(growth * size))
        if stated > allowed:
            raise ArchiveError(
                f"it would inflate from {size:,} to {stated:,} bytes, more than the {allowed:,} that are allowed; "
                "write it with numpy.savez, which does not compress"
            )
        if archive.zip.testzip() is not None:  # an array that says it is shorter would hide a checksum that fails
            raise ArchiveError("it is damaged")
        return {name: np.asarray(archive[name]) for name in archive.files}


def read_json(text: bytes) -> dict[str, Any]:
    """Return an object of JSON, or say that it is none."""
    with named_faults():
        found = json.loads(text.decode())
        if not isinstance(found, dict):
            raise ArchiveError(f"its header is no JSON object but {type(found).__name__}")
        return found


def sparse_rows(arrays: Arrays, names: tuple[str, str, str, str], kind: str = "csr") -> sp.csr_matrix:
    """Return a sparse matrix from the arrays of these names: numbers, indices, starts and shape; all are checked."""
    with named_faults():
        data, indices, starts, shape = (arrays[name] for name in names)
        if data.dtype.kind not in "fiub":
            raise ArchiveError(f"{names[0]!r} holds {data.dtype}, expected a vector of numbers")
        made = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[kind]
        X = made((data, indices, starts), shape=tuple(shape.tolist()))
        X.check_format(full_check=True)
        return X.tocsr()


class Record:
    """What a file holds, a JSON object and arrays whose names begin with ``prefix``; entries are checked when taken.

    Examples
    --------
    >>> record = Record({"size": -3}, {"weights": np.array([0.5, np.nan])})
    >>> record.whole("size", least=0)
    Traceback (most recent call last):
    dualcore.data.storage.ArchiveError: 'size' must be a whole number of at least 0, found -3
    >>> record.vector("weights", 2, least=0.0)
    Traceback (most recent call last):
    dualcore.data.storage.ArchiveError: 'weights' holds NaN or infinite values
    """

    def __init__(self, values: Any, arrays: Arrays, prefix: str = "") -> None:
        if not isinstance(values, dict):
            raise ArchiveError(f"an object is expected where {type(values).__name__} is found")
        self.values, self.arrays, self.prefix = values, arrays, prefix

    @classmethod
    def of_archive(cls, path: str | Path) -> Record:
        """Return the arrays of an archive, with the JSON object that its array ``header`` holds as bytes."""
        arrays = read_archive(path)
        if "header" not in arrays:
            raise ArchiveError("it has no header")
        return cls(read_json(arrays["header"].tobytes()), arrays)

    def within(self, values: Any, prefix: str) -> Record:
        """Return a part: an object of its own, and the arrays whose names begin with ``prefix``."""
        return Record(values, self.arrays, prefix)

    def value(self, name: str, kind: type = object, words: str = "") -> Any:
        """Return an entry of the object, of a type that ``words`` name."""
        if name not in self.values:
            raise ArchiveError(f"{name!r} is missing")
        found = self.values[name]
        if not isinstance(found, kind):
            raise ArchiveError(f"{name!r} must be {words}, found {type(found).__name__}")
        return found

    def whole(self, name: str, least: int = 0) -> int:
        """Return a whole number."""
        found = self.value(name)
        if isinstance(found, bool) or not isinstance(found, int) or found < least:
            raise ArchiveError(f"{name!r} must be a whole number of at least {least}, found {found!r}")
        return found

    def number(self, name: str, least: float = -math.inf, *, may_be_inf: bool = False) -> float:
        """Return a number, finite unless allowed otherwise."""
        return check_number(name, self.value(name), least, may_be_inf=may_be_inf)

    def text(self, name: str) -> str:
        """Return a text."""
        return str(self.value(name, str, "a text"))

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        return list(self.value(name, list, "a list"))

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return self.prefix + name in self.arrays

    def array(
        self, name: str, kind: str, shape: tuple[int | None, ...], least: float = -math.inf, *, may_be_inf: bool = False
    ) -> Any:
        """Return an array of real numbers ("f") or whole ones ("i"); None in a shape is any length.

        No entry may be smaller than ``least``. Infinite numbers are allowed by ``may_be_inf``, NaN never is.
        """
        if not self.has(name):
            raise ArchiveError(f"{name!r} is missing")
        array = self.arrays[self.prefix + name]
        if array.dtype.kind != kind:
            raise ArchiveError(f"{name!r} must hold {_KINDS[kind]}, found {array.dtype}")
        wanted = tuple("any" if n is None else n for n in shape)
        if array.ndim != len(shape) or any(n not in ("any", m) for n, m in zip(wanted, array.shape, strict=True)):
            raise ArchiveError(f"{name!r} has shape {array.shape}, expected {wanted}")
        if kind == "f" and not (~np.isnan(array) if may_be_inf else np.isfinite(array)).all():
            raise ArchiveError(f"{name!r} holds NaN or infinite values")
        if array.size and array.min() < least:
            raise ArchiveError(f"{name!r} holds {array.min()!r}; no entry may be below {least:g}")
        return array

    def vector(self, name: str, size: int | None, kind: str = "f", least: float = -math.inf) -> Any:
        """Return an array of one dimension; see `array`."""
        return self.array(name, kind, (size,), least)

    def rows(self, name: str, size: int | None) -> Any:
        """Return features, shape (size, n_features), as an array or a CSR matrix."""
        if self.has(name):
            return self.array(name, "f", (size, None))
        self.vector("data", None)  # of finite numbers
        X = sparse_rows(self.arrays, ("data", "columns", "starts", "shape"))
        if size not in (None, X.shape[0]):
            raise ArchiveError(f"{name!r} has {X.shape[0]} rows, expected {size}")
        return X


def check_number(name: str, found: Any, least: float = -math.inf, *, may_be_inf: bool = False) -> float:
    """Return a number read from a file, or say what is wrong with it."""
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not (is_number and found >= least and (math.isfinite(found) or (may_be_inf and found == math.inf))):
        between = "" if least == -math.inf else f" of at least {least:g}"
        raise ArchiveError(f"{name!r} must be a {'' if may_be_inf else 'finite '}number{between}, found {found!r}")
    return float(found)
