"""Files of ours: written whole or not at all, and opened without trusting what they say about themselves.

An archive of arrays states the sizes of its members twice, in its directory and in the header of every array. Both are
compared with each other and with the size of the file before anything is inflated or allocated.
"""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import re
import secrets
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

# Only POSIX systems have it.
fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

Arrays = dict[str, npt.NDArray[Any]]

# An archive that holds no more than this may be compressed as hard as anyone likes.
_HARMLESS = 1 << 24
# Seconds after which an unfinished file is given up where locks cannot tell: a day.
_STALE = 86400.0
_PIECE = 1 << 24
_KINDS = {"f": "real numbers", "i": "whole numbers", "b": "truth values"}


class ArchiveError(ValueError):
    """A file is not an archive of plain arrays, or not one that can be trusted."""


# Writing


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that an interrupt or a full disk leaves either the old one or the new one, never a part.

    A symbolic link is followed: the file it points to gets the content. A file that is there keeps its permissions.
    Unfinished files that a killed process left of earlier writes to the same path are removed.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # a circle of links is left as it is
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o666
    if target.exists():
        found = target.stat().st_mode
        if not stat.S_ISREG(found):  # a device or a pipe is written to, and never replaced
            target.write_bytes(content)
            return
        mode = stat.S_IMODE(found)
    _sweep(target)
    part, handle = _create_part(target, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode != 0o666:
                os.chmod(part, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            # Within the block, while the file is locked: nobody may take it for one that was left behind.
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _create_part(target: Path, mode: int) -> tuple[Path, int]:
    """Return a new file beside the target, and its handle, locked so that nobody sweeps it."""
    while True:
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}.part")
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
        handle = os.open(part, flags, mode)
        if _lock(handle) is not False and part.exists():
            return part, handle
        os.close(handle)  # another writer took it for an old one before it was locked


def _lock(handle: int) -> bool | None:
    """Lock a file for as long as it is open; False where another process has, None where locks do not work."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(target: Path) -> None:
    """Remove the unfinished files of earlier writes to ``target`` that no process has open any more."""
    name = re.escape(target.name)
    ours = re.compile(rf"{name}(\.[0-9a-f]{{16}}|[a-z0-9_]{{8}})\.part")
    for entry in os.scandir(target.parent):
        if not ours.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        try:
            handle = os.open(entry.path, os.O_RDWR)
        except OSError:
            continue
        try:
            free = _lock(handle)
            old = time.time() - os.fstat(handle).st_mtime > _STALE
            if free or (free is None and old):
                os.unlink(entry.path)
        except OSError:
            continue
        finally:
            os.close(handle)


# Reading


class FileState(NamedTuple):
    """A file as it was when it was opened: its path, size, time of change and place on the disk."""

    path: Path
    size: int
    changed: int
    place: int

    @classmethod
    def of(cls, path: str | Path) -> FileState:
        """Return the state of a file now."""
        status = os.stat(path)
        return cls(Path(path), status.st_size, status.st_mtime_ns, status.st_ino)

    def difference(self) -> str | None:
        """Say what has happened to the file since; None if nothing has."""
        try:
            now = FileState.of(self.path)
        except OSError as error:
            return f"{self.path} has gone since it was opened: {error.strerror}."
        return None if now == self else f"{self.path} has changed since it was opened: open it again."


@contextmanager
def _named_faults() -> Iterator[None]:
    """Turn whatever zipfile, zlib and numpy raise for bytes that are not theirs into an ArchiveError."""
    try:
        yield
    except (ArchiveError, FileNotFoundError, PermissionError):
        raise
    except (
        ValueError, KeyError, TypeError, EOFError, OSError, RuntimeError, NotImplementedError, OverflowError,
        MemoryError, RecursionError, SyntaxError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
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
    with _named_faults(), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        allowed = max(_HARMLESS, int(growth * os.fstat(file.fileno()).st_size))
        stated = sum(member.file_size for member in members)
        if stated > allowed:
            raise ArchiveError(
                f"it would inflate from {os.fstat(file.fileno()).st_size:,} to {stated:,} bytes, more than the "
                f"{allowed:,} that are allowed; write it with numpy.savez, which does not compress"
            )
        arrays: Arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name in arrays:
                raise ArchiveError(f"its member {member.filename!r} is no array, or is there twice")
            with archive.open(member) as stream:
                arrays[name] = _read_member(stream, member.file_size, name)
        return arrays


def member_header(stream: Any, size: int, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype of an array whose header is next in ``stream``.

    ``size`` is how many bytes the array has in all, its header included.
    """
    began = stream.tell()
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ArchiveError(f"{name!r} has version {version} of numpy's format; versions 1 and 2 are read")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ArchiveError(f"{name!r} holds Python objects, which are never loaded")
    wanted, held = math.prod(shape) * dtype.itemsize, size - (stream.tell() - began)
    if min(shape, default=0) < 0 or wanted != held:
        raise ArchiveError(f"{name!r} says that it holds {wanted:,} bytes of numbers, and holds {held:,}")
    return shape, fortran, dtype


def _read_member(stream: Any, size: int, name: str) -> npt.NDArray[Any]:
    shape, fortran, dtype = member_header(stream, size, name)
    raw = np.empty(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    done = 0
    while done < raw.size:
        count = stream.readinto(raw[done : done + _PIECE])
        if not count:
            raise ArchiveError(f"{name!r} breaks off after {done:,} of {raw.size:,} bytes")
        done += count
    if stream.read(1):  # also makes zipfile compare the checksum
        raise ArchiveError(f"{name!r} holds more than it says")
    if not raw.size:
        return np.empty(shape, dtype=dtype)
    array = raw.view(dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def read_json(text: bytes) -> dict[str, Any]:
    """Return an object of JSON, or say that it is none."""
    with _named_faults():
        found = json.loads(text.decode())
        if not isinstance(found, dict):
            raise ArchiveError(f"its header is no JSON object but {type(found).__name__}")
        return found


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
        header = arrays.get("header")
        if header is None or header.dtype != np.uint8 or header.ndim != 1:
            raise ArchiveError("it has no header")
        return cls(read_json(header.tobytes()), arrays)

    def within(self, values: Any, prefix: str) -> Record:
        """Return a part: an object of its own, and the arrays whose names begin with ``prefix``."""
        return Record(values, self.arrays, prefix)

    def value(self, name: str) -> Any:
        """Return an entry of the object as it is."""
        if name not in self.values:
            raise ArchiveError(f"{name!r} is missing")
        return self.values[name]

    def whole(self, name: str, least: int = 0) -> int:
        """Return a whole number."""
        return check_whole(name, self.value(name), least)

    def number(self, name: str, least: float = -math.inf, *, may_be_inf: bool = False) -> float:
        """Return a number, finite unless allowed otherwise."""
        return check_number(name, self.value(name), least, may_be_inf=may_be_inf)

    def truth(self, name: str) -> bool:
        """Return True or False."""
        return bool(self._typed(name, bool, "true or false"))

    def text(self, name: str) -> str:
        """Return a text."""
        return str(self._typed(name, str, "a text"))

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        return list(self._typed(name, list, "a list"))

    def mapping(self, name: str, *, optional: bool = False) -> dict[str, Any]:
        """Return an object; an empty one where it is optional, as what earlier versions did not write, and missing."""
        return {} if optional and name not in self.values else dict(self._typed(name, dict, "an object"))

    def _typed(self, name: str, kind: type, words: str) -> Any:
        found = self.value(name)
        if not isinstance(found, kind):
            raise ArchiveError(f"{name!r} must be {words}, found {type(found).__name__}")
        return found

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return self.prefix + name in self.arrays

    def array(
        self, name: str, kind: str, shape: tuple[int | None, ...], least: float = -math.inf, *, may_be_inf: bool = False
    ) -> Any:
        """Return an array of real numbers ("f"), whole ones ("i") or truth values ("b"); None in a shape is any length.

        No entry may be smaller than ``least``. Infinite numbers are allowed by ``may_be_inf``, NaN never is.
        """
        if not self.has(name):
            raise ArchiveError(f"{name!r} is missing")
        array = self.arrays[self.prefix + name]
        if array.dtype.kind != kind:
            raise ArchiveError(f"{name!r} must hold {_KINDS[kind]}, found {array.dtype}")
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if not fits:
            wanted = tuple("any" if n is None else n for n in shape)
            raise ArchiveError(f"{name!r} has shape {array.shape}, expected {wanted}")
        if kind == "f" and not (~np.isnan(array) if may_be_inf else np.isfinite(array)).all():
            raise ArchiveError(f"{name!r} holds NaN or infinite values")
        if array.size and least > -math.inf and array.min() < least:
            raise ArchiveError(f"{name!r} holds {array.min()!r}; no entry may be below {least:g}")
        return array

    def vector(self, name: str, size: int | None, kind: str = "f", least: float = -math.inf) -> Any:
        """Return an array of one dimension; see `array`."""
        return self.array(name, kind, (size,), least)

    def rows(self, name: str, size: int | None) -> Any:
        """Return features, shape (size, n_features), as an array or a CSR matrix."""
        if self.has(name):
            X = self.array(name, "f", (size, None))
        else:
            parts = Record(self.values, self.arrays, f"{self.prefix}{name}." if self.has(f"{name}.data") else "")
            n, m = parts.vector("shape", 2, "i", least=0).tolist()
            data = parts.vector("data", None)
            columns, starts = (parts.vector(part, None, "i", least=0) for part in ("columns", "starts"))
            with _named_faults():
                X = sp.csr_matrix((data, columns, starts), shape=(n, m))
                X.check_format(full_check=True)
            if size not in (None, n):
                raise ArchiveError(f"{name!r} has {n} rows, expected {size}")
        if X.shape[1] < 1:
            raise ArchiveError(f"{name!r} has no columns")
        return X


def check_whole(name: str, found: Any, least: int = 0) -> int:
    """Return a whole number read from a file, or say what is wrong with it."""
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise ArchiveError(f"{name!r} must be a whole number of at least {least}, found {found!r}")
    return found


def check_number(name: str, found: Any, least: float = -math.inf, *, may_be_inf: bool = False) -> float:
    """Return a number read from a file, or say what is wrong with it."""
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not (is_number and found >= least and (math.isfinite(found) or (may_be_inf and found == math.inf))):
        between = "" if least == -math.inf else f" of at least {least:g}"
        raise ArchiveError(f"{name!r} must be a {'' if may_be_inf else 'finite '}number{between}, found {found!r}")
    return float(found)
