"""Files of the package: written whole or not at all, and read without running anything in them.

Arrays are plain numbers and text, the rest is JSON. What an archive would inflate to is compared with the size of the
file first.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

# An archive that holds no more than this may be compressed as hard as can be.
_HARMLESS = 16_777_216


class ArchiveError(ValueError):
    """A file is not an archive of plain arrays, or not one that can be trusted."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that an interrupt or a full disk leaves either the old one or the new one, never a part.

    A symbolic link is followed: the file it points to gets the content. A file that is there keeps its permissions.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: there is no folder {target.parent}.")
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
    """A file as it was when it was opened: its path, size, time of change and inode.

    ``filesystem`` is one of pyarrow, or None for the disk; ``name`` is what a user writes. Within the folder ``base``
    the names of folders may be partitions, ``column=value``.
    """

    path: str
    size: int
    changed: int | None
    inode: int
    filesystem: Any
    name: str
    base: str

    @classmethod
    def of(cls, path: str | Path, filesystem: Any = None, name: str = "", base: str = "") -> FileState:
        """Return the state of a file now."""
        shown = name or str(path)
        if filesystem is None:
            status = os.stat(path)
            return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ino, None, shown, base)
        info = filesystem.get_file_info(str(path))
        if info.size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return cls(str(path), info.size, info.mtime_ns, 0, filesystem, shown, base)

    def difference(self) -> str | None:
        """Return a description of how the file has changed since; None if it has not."""
        try:
            now = FileState.of(self.path, *self[4:])
        except OSError as error:
            return f"{self.name} has gone since it was opened: {error.strerror}."
        return None if now == self else f"{self.name} has changed since it was opened: open it again."


@contextmanager
def named_faults() -> Iterator[None]:
    """Turn the errors of zipfile, numpy, scipy and json for invalid bytes into an ArchiveError."""
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
    """Return an object parsed from JSON; raise ArchiveError if it is invalid."""
    with named_faults():
        found = json.loads(text.decode())
        if not isinstance(found, dict):
            raise ArchiveError(f"its header is no JSON object but {type(found).__name__}")
        return found


def write_signed(path: str | Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Write arrays and a JSON object as one ``.npz`` archive with a digest of both: atomically, and without pickle."""
    arrays = arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, digest=_digest(arrays))  # type: ignore[arg-type]  # older numpy has no allow_pickle=
    write_atomically(Path(path), buffer.getvalue())


def read_signed(path: str | Path, form: int) -> tuple[dict[str, Any], Arrays]:
    """Return the object and the arrays that `write_signed` wrote, with ``form`` as the object's entry ``format``.

    Raises
    ------
    ArchiveError
        If the file has another format, or if anything in it was damaged or changed.
    """
    arrays = read_archive(path)
    if "header" not in arrays:
        raise ArchiveError("it has no header")
    header = read_json(arrays["header"].tobytes())
    if header.get("format") != form:
        raise ArchiveError(f"it has format {header.get('format')!r} of another edition, and this one reads {form}")
    if not np.array_equal(arrays.pop("digest", np.empty(0)), _digest(arrays)):
        raise ArchiveError("it was damaged or changed")
    return header, arrays


def _digest(arrays: Arrays) -> npt.NDArray[Any]:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return np.frombuffer(found.digest(), dtype=np.uint8)
