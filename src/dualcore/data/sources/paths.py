"""Paths of files of rows: what a path, a folder or a list of them stands for, and which format a name says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dualcore.data.sources.chunk import SourceError

Paths = str | Path | Sequence[str | Path]

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv")
TEXT = (*CSV, ".txt")
SVMLIGHT = (".svm", ".libsvm", ".svmlight")
_COMPRESSION = {".gz": "gzip", ".bz2": "bz2"}


def is_paths(data: object) -> bool:
    """Whether ``data`` is a path, or a list of paths."""
    if isinstance(data, (str, Path)):
        return True
    return isinstance(data, (list, tuple)) and bool(data) and all(isinstance(part, (str, Path)) for part in data)


def list_files(paths: Paths, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a path, a folder (with its subfolders, by name) or a list of paths.

    Of a folder the files count whose names end in one of ``suffixes``, that of compression left out. Names that begin
    with ``_`` or ``.`` are left out of folders.
    """
    given = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = [p for p in path.rglob("*") if _suffix(p) in suffixes and p.is_file()]
            shown = [p for p in inside if not any(part[0] in "_." for part in p.relative_to(path).parts)]
            if not shown:
                raise SourceError(f"The folder {path} holds no file that ends in {' or '.join(suffixes)}.")
            files += sorted(shown)
        elif path.is_file():
            files.append(path)
        else:
            kind = "file" if path.suffix else "file or folder"
            raise FileNotFoundError(f"There is no {kind} {path}: not found.")
    if not files:
        raise SourceError("No file was given.")
    return files


def list_tables(paths: Paths) -> list[Path]:
    """Return the files of rows that a path or a list stands for; those of a folder must be of one kind.

    A folder of Parquet files may hold texts (``.txt``) beside them, but no CSV file: it is not known whether its rows
    are meant.
    """
    if not isinstance(paths, (str, Path)):
        return [file for path in paths for file in list_tables(path)]
    path = Path(paths)
    if not path.is_dir():
        return list_files(path, ())
    files = list_files(path, (*PARQUET, *CSV, *SVMLIGHT, ".txt", ".gz", ".bz2"))
    named = [file for file in files if _suffix(file) in (*PARQUET, *CSV, *SVMLIGHT)]
    if not named:
        return files
    kinds = {format_of(file): file for file in reversed(named)}
    if len(kinds) > 1:
        (first, one), (second, other) = sorted(kinds.items(), key=lambda kind: _ORDER.index(str(kind[0])))[:2]
        raise SourceError(
            f"The folder {path} holds {first} files and {second} files ({one.name} and {other.name}). Keep the rows in "
            "files of one kind."
        )
    (kind,) = kinds
    return [file for file in files if format_of(file) == kind]


_ORDER = ["Parquet", "CSV", "SVMlight"]


def format_of(path: Path) -> str | None:
    """Return the format of a file of rows by its name: "Parquet", "SVMlight" or "CSV"; None for any other.

    Examples
    --------
    >>> format_of(Path("rows.svm.bz2")), format_of(Path("rows.tsv")), format_of(Path("rows.xlsx"))
    ('SVMlight', 'CSV', None)
    """
    if is_parquet(path):
        return "Parquet"
    kind = _suffix(path)
    if kind in SVMLIGHT:
        return "SVMlight"
    return "CSV" if kind in (*TEXT, *_COMPRESSION) else None


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet by its name; of files of rows the others are text."""
    return path.suffix.lower() in PARQUET


def compression_of(path: Path) -> str | None:
    """Return how a file is compressed, by its name: "gzip", "bz2" or None."""
    return _COMPRESSION.get(path.suffix.lower())


def _suffix(path: Path) -> str:
    """Return the ending of a name, that of compression left out where another is before it."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() or last if last in _COMPRESSION else last


def delimiter_of(path: Path) -> str:
    r"""Return what stands between the values of a file of text, by its name.

    Examples
    --------
    >>> delimiter_of(Path("rows.tsv.gz")), delimiter_of(Path("rows.csv"))
    ('\t', ',')
    """
    return "\t" if _suffix(path) == ".tsv" else ","
