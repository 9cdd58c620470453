"""Files of rows: the files of a path, a folder, a glob, a URI or a list of them, and their format."""

from __future__ import annotations

import bz2
import glob
import gzip
import importlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualcore.data.sources.chunk import SourceError
from dualcore.data.storage import FileState

_TABLES = {
    "Parquet": (".parquet", ".pq"),
    "CSV": (".csv", ".tsv"),
    "SVMlight": (".svm", ".libsvm", ".svmlight"),
    "Feather": (".feather", ".arrow", ".ipc"),
}
_KINDS = _TABLES | {"numpy": (".npy", ".npz")}
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
# Names that do not determine the format: the contents of the file decide, and otherwise it is CSV.
_ANY_TEXT = (".txt", *_OPENERS)
_SVMLIGHT_LINE = re.compile(rb"[-+.\deE]+(,[-+.\deE]+)*(\s+qid:\d+)?(\s+\d+:[-+.\deEnaNifI]+)+\s*(#.*)?")


def import_arrow(name: str) -> Any:
    """Import a module of pyarrow; the error names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError("Tables and their files need pyarrow: pip install 'dualcore[parquet]'") from None


def is_paths(data: object) -> bool:
    """Whether ``data`` is a path, a list of paths, or `Files` found from them."""
    if isinstance(data, (str, Path, Files)):
        return True
    return isinstance(data, (list, tuple)) and bool(data) and all(isinstance(part, (str, Path)) for part in data)


@dataclass(frozen=True)
class Files:
    """The files of rows of a path or a list, all of one format; see `format_of`."""

    kind: str
    files: list[FileState]
    shown: str

    def __str__(self) -> str:
        return self.shown


Paths = str | Path | Files | Sequence[str | Path]


def list_tables(paths: Paths, kind: str | None = None) -> Files:
    """Return the files of rows of a path or a list, which must have one format.

    Of a folder or a glob the files count whose names tell their format, if there are any: a folder of Parquet files may
    hold texts (``.txt``) beside them, but no CSV file, because it is not known whether its rows are meant. With a
    ``kind`` only its files count.
    """
    if isinstance(paths, Files):
        return paths
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not given:
        raise SourceError("No file was given.")
    files, kinds = [file for path in given for file in list_path(path, kind)], dict[str | None, str]()
    for file in files:
        kinds.setdefault(kind or format_of(file.path, file.filesystem), file.name)
    if None in kinds:
        ending = Path(kinds[None]).suffix or "nothing"
        raise SourceError(
            f"{kinds[None]} is no Parquet, CSV, Feather, SVMlight, .npy or .npz file: its name ends in {ending!r}. "
            "Save it as CSV or Parquet, or read it with pandas and pass the frame; CsvSource opens text of any name."
        )
    shown = str(paths) if len(given) == 1 else "The list of files"
    if len(kinds) > 1:
        first, second = sorted(map(str, kinds))[:2]
        names = " and ".join(os.path.basename(kinds[each]) for each in (first, second))
        raise SourceError(f"{shown} holds {first} files and {second} files ({names}). Keep one kind of files.")
    return Files(str(*kinds), files, shown)


def list_path(path: str | Path, kind: str | None) -> list[FileState]:
    """Return the files of a path, a glob or a folder (with its subfolders, by name).

    Names that begin with ``_`` or ``.`` are left out of folders.
    """
    text, root, filesystem, remote = str(path), "", None, None
    if re.match(r"[a-zA-Z][\w+.-]+://", text):
        root = text[: text.index("://") + 3]
        filesystem, remote, text = _open_filesystem(text)
    start = re.split(r"[*?\[]", text)[0]
    is_glob = start != text and (remote is not None or not os.path.exists(text))
    is_folder = not is_glob and (os.path.isdir(text) if remote is None else remote.isdir(text))
    if remote is not None:
        inside = (remote.glob if is_glob else remote.find)(text, detail=True)
        found = [file for file, info in inside.items() if info["type"] == "file"]
    else:
        pattern = os.path.join(glob.escape(text), "**") if is_folder else text
        inside = glob.glob(pattern, recursive=True) if is_folder or is_glob else [text]
        found = [file for file in inside if os.path.isfile(file)]
    base = (text.rstrip("/") or text) if is_folder else os.path.dirname(start if is_glob else text)
    if is_folder:
        suffixes = [suffix for name in _TABLES if kind in (None, name) for suffix in _TABLES[name]]
        suffixes += _ANY_TEXT if kind in (None, "CSV") else ()
        found = [file for file in found if _suffix(file) in suffixes and not _is_hidden(os.path.relpath(file, base))]
        if not found:
            raise SourceError(f"The folder {path} holds no file that ends in {' or '.join(suffixes)}.")
    elif not found:
        what = "file" if Path(text).suffix else "file or folder"
        raise FileNotFoundError(f"No file fits the pattern {path}." if is_glob else f"There is no {what} {path}.")
    named = [file for file in found if kind is not None or _named_format(file)]
    return [FileState.of(file, filesystem, f"{root}{file}", base) for file in sorted(named or found)]


def _open_filesystem(uri: str) -> tuple[Any, Any, str]:
    """Return a file system of pyarrow, the same as one of fsspec, and the path within it."""
    pa, fs = import_arrow("pyarrow"), import_arrow("pyarrow.fs")
    start = re.split(r"[*?\[]", uri)[0]  # pyarrow takes no pattern for a URI
    try:
        filesystem, path = fs.FileSystem.from_uri(start)
        path += ("/" if start.endswith("/") and start != uri else "") + uri[len(start) :]
        return filesystem, importlib.import_module("fsspec.implementations.arrow").ArrowFSWrapper(filesystem), path
    except pa.ArrowInvalid as error:
        try:
            remote, path = importlib.import_module("fsspec.core").url_to_fs(uri)
        except (ImportError, ValueError):
            raise SourceError(f"{uri} cannot be opened: {error}. Install the fsspec package that reads it.") from None
        return fs.PyFileSystem(fs.FSSpecHandler(remote)), remote, path


def _is_hidden(path: str) -> bool:
    return any(part[0] in "_." for part in Path(path).parts)


def _named_format(path: str | Path) -> str | None:
    return next((kind for kind, suffixes in _KINDS.items() if _suffix(path) in suffixes), None)


def format_of(path: str | Path, filesystem: Any = None) -> str | None:
    """Return the format of a file of rows: "Parquet", "CSV", "Feather", "SVMlight", "numpy"; None for any other.

    The name decides, or if it is inconclusive (``rows.trn.bz2``) the first bytes of the file.

    Examples
    --------
    >>> format_of("rows.svm.bz2"), format_of("rows.tsv"), format_of("rows.xlsx")
    ('SVMlight', 'CSV', None)
    """
    if (named := _named_format(path)) is not None:
        return named
    head = b""
    with suppress(OSError, EOFError), open_text(path, filesystem) as stream:
        head = stream.read(1 << 16)
    if head[:4] == b"PAR1":
        return "Parquet"
    if head[:6] == b"ARROW1":
        return "Feather"
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    if lines and _SVMLIGHT_LINE.fullmatch(lines[0].strip()):
        return "SVMlight"
    return "CSV" if _suffix(path) in _ANY_TEXT else None


def open_text(path: str | Path, filesystem: Any = None) -> Any:
    """Open a file for reading, inflated by its name."""
    if filesystem is not None:
        return filesystem.open_input_stream(str(path))
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
