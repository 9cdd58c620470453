"""Paths of files of rows: what a path, a folder, a glob, a URI or a list of them stands for, and which format it is."""

from __future__ import annotations

import bz2
import glob
import gzip
import importlib
import os
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from dualcore.data.sources.chunk import SourceError

PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow", ".ipc")
CSV = (".csv", ".tsv")
SVMLIGHT = (".svm", ".libsvm", ".svmlight")
_KINDS = {"Parquet": PARQUET, "CSV": CSV, "SVMlight": SVMLIGHT, "Feather": FEATHER}
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
# Names that do not tell the format: what is in the file decides, and if that does not either, it is CSV.
_ANY_TEXT = (".txt", *_OPENERS)
_SVMLIGHT_LINE = re.compile(rb"[-+.\deE]+(,[-+.\deE]+)*(\s+qid:\d+)?(\s+\d+:[-+.\deEnaNifI]+)+\s*(#.*)?")


def import_arrow(name: str) -> Any:
    """Import a module of pyarrow, or say which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            "Reading Parquet, CSV and Feather files needs pyarrow. Install it with: pip install 'dualcore[parquet]'"
        ) from None


def is_paths(data: object) -> bool:
    """Whether ``data`` is a path, or a list of paths."""
    if isinstance(data, (str, Path)):
        return True
    return isinstance(data, (list, tuple)) and bool(data) and all(isinstance(part, (str, Path)) for part in data)


class Listing(NamedTuple):
    """The files that one path stands for.

    ``files`` are paths of ``filesystem``, a file system of pyarrow, or of the disk where it is None. ``base`` is the
    folder within which the names of folders may be partitions, ``column=value``; ``root`` is what a URI begins with.
    """

    files: list[str]
    base: str
    filesystem: Any = None
    root: str = ""

    @property
    def names(self) -> list[str]:
        """The files as a user writes them."""
        return [f"{self.root}{file}" for file in self.files]


Paths = str | Path | Listing | Sequence[str | Path | Listing]


def list_path(path: str | Path, suffixes: Sequence[str]) -> Listing:
    """Return the files of a path, a glob or a folder (with its subfolders, by name).

    Of a folder the files count whose names end in one of ``suffixes``, that of compression left out. Names that begin
    with ``_`` or ``.`` are left out of folders.
    """
    text = str(path)
    root, filesystem = "", None
    if re.match(r"[a-zA-Z][\w+.-]+://", text):
        filesystem, text = _open_filesystem(text)
        root = str(path)[: str(path).index("://") + 3]
    is_glob = any(mark in text for mark in "*?[") and (filesystem is not None or not os.path.exists(text))
    base = text.rstrip("/") or text
    if is_glob:
        base = os.path.dirname(re.split(r"[*?\[]", text)[0])
    if filesystem is None:
        kind = "folder" if os.path.isdir(text) else "file" if os.path.isfile(text) else None
        if is_glob:
            found = [file for file in glob.glob(text, recursive=True) if os.path.isfile(file)]
        else:
            found = [str(file) for file in Path(text).rglob("*") if file.is_file()] if kind == "folder" else [text]
    else:
        fs = import_arrow("pyarrow.fs")
        kind = {fs.FileType.Directory: "folder", fs.FileType.File: "file"}.get(filesystem.get_file_info(text).type)
        inside = [] if kind == "file" else filesystem.get_file_info(fs.FileSelector(base, True, recursive=True))
        found = [info.path for info in inside if info.type == fs.FileType.File] or [text]
        if is_glob:
            found = [file for file in found if _fits(file, text)]
    if is_glob and not found:
        raise FileNotFoundError(f"No file fits the pattern {path}.")
    if kind is None and not is_glob:
        what = "file" if Path(text).suffix else "file or folder"
        raise FileNotFoundError(f"There is no {what} {path}: not found.")
    if kind == "folder" and not is_glob:
        found = [file for file in found if _suffix(file) in suffixes and not _is_hidden(os.path.relpath(file, base))]
        if not found:
            raise SourceError(f"The folder {path} holds no file that ends in {' or '.join(suffixes)}.")
    elif not is_glob:
        base = os.path.dirname(text)
    return Listing(sorted(found), base, filesystem, root)


def _open_filesystem(uri: str) -> tuple[Any, str]:
    """Return a file system of pyarrow, its own or one of fsspec, and the path within it."""
    pa, fs = import_arrow("pyarrow"), import_arrow("pyarrow.fs")
    start = re.split(r"[*?\[]", uri)[0]  # pyarrow takes no pattern for a URI
    try:
        filesystem, path = fs.FileSystem.from_uri(start)
        return filesystem, path + ("/" if start.endswith("/") and start != uri else "") + uri[len(start) :]
    except pa.ArrowInvalid as error:
        try:
            inner, path = importlib.import_module("fsspec.core").url_to_fs(uri)
        except (ImportError, ValueError):
            raise SourceError(f"{uri} cannot be opened: {error}. Install the fsspec package that reads it.") from None
        return fs.PyFileSystem(fs.FSSpecHandler(inner)), path


def _fits(file: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatch(file, pattern.replace("**/", "*"))
    names, wanted = file.split("/"), pattern.split("/")
    return len(names) == len(wanted) and all(map(fnmatch, names, wanted))


def _is_hidden(path: str) -> bool:
    return any(part[0] in "_." for part in Path(path).parts)


def list_tables(paths: Paths, kind: str | None = None) -> list[Listing]:
    """Return the files of rows that a path or a list stands for; those of a folder or a glob must be of one kind.

    A folder of Parquet files may hold texts (``.txt``) beside them, but no CSV file: it is not known whether its rows
    are meant. With a ``kind`` only its files count.
    """
    if isinstance(paths, Listing):
        return [paths]
    if not isinstance(paths, (str, Path)):
        if not paths:
            raise SourceError("No file was given.")
        return [listing for path in paths for listing in list_tables(path, kind)]
    suffixes = (*PARQUET, *CSV, *SVMLIGHT, *FEATHER) if kind is None else _KINDS[kind]
    found = list_path(paths, (*suffixes, *(_ANY_TEXT if kind in (None, "CSV") else ())))
    if len(found.files) == 1 or kind is not None:
        return [found]
    kinds: dict[str, str] = {}
    for file in found.files:
        named = _named_format(file)
        if named is not None:
            kinds.setdefault(named, file)
    if len(kinds) > 1:
        first, second = sorted(kinds, key=list(_KINDS).index)[:2]
        one, other = (os.path.basename(kinds[name]) for name in (first, second))
        raise SourceError(
            f"The folder {paths} holds {first} files and {second} files ({one} and {other}). Keep the rows in files of "
            "one kind."
        )
    return [found._replace(files=[file for file in found.files if not kinds or _named_format(file) in kinds])]


def _named_format(path: str | Path) -> str | None:
    suffix = _suffix(path)
    return next((kind for kind, suffixes in _KINDS.items() if suffix in suffixes), None)


def format_of(path: str | Path, filesystem: Any = None) -> str | None:
    """Return the format of a file of rows: "Parquet", "CSV", "Feather" or "SVMlight"; None for any other.

    The name decides; a name that tells nothing (``rows.trn.bz2``) leaves it to the first bytes of the file.

    Examples
    --------
    >>> format_of("rows.svm.bz2"), format_of("rows.tsv"), format_of("rows.xlsx")
    ('SVMlight', 'CSV', None)
    """
    named = _named_format(path)
    if named is not None:
        return named
    head = b""
    if filesystem is not None:
        with filesystem.open_input_stream(str(path)) as stream:  # inflates by the name
            head = stream.read(1 << 16)
    elif os.path.isfile(path):
        try:
            with open_text(path) as stream:
                head = stream.read(1 << 16)
        except (OSError, EOFError):
            head = b""
    if head[:4] == b"PAR1":
        return "Parquet"
    if head[:6] == b"ARROW1":
        return "Feather"
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    if lines and _SVMLIGHT_LINE.fullmatch(lines[0].strip()):
        return "SVMlight"
    return "CSV" if _suffix(path) in _ANY_TEXT else None


def open_text(path: str | Path) -> Any:
    """Open a file for reading, inflated by its name."""
    return _OPENERS.get(Path(path).suffix.lower(), open)(path, "rb")


def _suffix(path: str | Path) -> str:
    """Return the ending of a name, that of compression left out where another is before it."""
    name = Path(path)
    last = name.suffix.lower()
    return Path(name.stem).suffix.lower() or last if last in _OPENERS else last


def delimiter_of(path: str | Path) -> str:
    r"""Return what stands between the values of a file of text, by its name.

    Examples
    --------
    >>> delimiter_of("rows.tsv.gz"), delimiter_of("rows.csv")
    ('\t', ',')
    """
    return "\t" if _suffix(path) == ".tsv" else ","
