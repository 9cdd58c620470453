"""What the columns of files hold, before any row is used; and the one-hot coding of those of text.

A *coding* maps the name of a column to its values, in their order. Each value becomes one 0/1 feature. A value that is
not among them, met after the coding was found, is no category: a row of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualcore.data.sources.arrow import Tables, is_number
from dualcore.data.sources.chunk import SourceError
from dualcore.data.sources.columns import kind_of
from dualcore.data.sources.paths import import_arrow, list_tables
from dualcore.data.storage import ArchiveError

Coding = Mapping[str, Sequence[Any]]

# A column of more different texts is taken for names or remarks, not for categories.
MOST_LEVELS = 200


def coded_names(columns: Sequence[str], coding: Coding) -> tuple[str, ...]:
    """Return the names of the features that columns become.

    Examples
    --------
    >>> coded_names(["age", "city"], {"city": ["Lima", "Oslo"]})
    ('age', 'city=Lima', 'city=Oslo')
    """
    return tuple(
        feature
        for name in columns
        for feature in ([f"{name}={value}" for value in coding[name]] if name in coding else [name])
    )


def coded_groups(columns: Sequence[str], coding: Coding) -> list[list[int | None]]:
    """Return the groups of one-hot features, as ``categories=`` takes them; None is the row of zeros.

    Examples
    --------
    >>> coded_groups(["age", "city"], {"city": ["Lima", "Oslo"]})
    [[None, 1, 2]]
    """
    groups: list[list[int | None]] = []
    first = 0
    for name in columns:
        width = len(coding[name]) if name in coding else 1
        if name in coding:
            groups.append([None, *range(first, first + width)])
        first += width
    return groups


def check_coding(found: Any) -> dict[str, tuple[Any, ...]]:
    """Return a coding as a file holds it, checked; ArchiveError says what is wrong with it."""
    if not isinstance(found, dict) or not all(isinstance(values, list) and values for values in found.values()):
        raise ArchiveError("'coding' must be an object that holds lists of values")
    for name, values in found.items():
        if not all(isinstance(value, (str, int, float)) for value in values):
            raise ArchiveError(f"'coding' of {name!r} must hold texts or numbers")
    return {name: tuple(values) for name, values in found.items()}


def table_files(path: Path) -> list[Path]:
    """Return the files of rows that a path or a folder stands for."""
    return [Path(file) for listing in list_tables(path) for file in listing.files]


def column_kinds(tables: Tables) -> dict[str, str]:
    """Return the columns of opened files with what they hold: "number", "category" (text too) or "other".

    The files of a folder must have the same columns, and the same in them.
    """
    null, files = import_arrow("pyarrow").types.is_null, {piece.file: piece for piece in reversed(tables.pieces)}
    names = [Path(file.path).name for file in tables.files]
    first = names[0]
    kinds: dict[str, str] = {}
    for number in sorted(files):
        schema = files[number].schema
        found = {field.name: "empty" if null(field.type) else kind_of(field.type) for field in schema}
        odd = sorted(set(found) ^ set(kinds)) if kinds else []
        if odd:
            raise SourceError(f"{first} and {names[number]} differ in column {odd[0]!r}: the files do not match.")
        for name, kind in found.items():
            known = kinds.setdefault(name, kind)
            if (kind == "number") != (known == "number") and "empty" not in (kind, known):
                raise SourceError(mixed_column(name, [names[number], first], kind == "number"))
            kinds[name] = kind if known == "empty" else known
    return {name: "number" if kinds[name] == "empty" else kinds[name] for name in tables.names}


def mixed_column(name: str, files: Sequence[str], first_is_number: bool) -> str:
    """Say that a column holds numbers in one file and text in another."""
    number, text = files if first_is_number else reversed(files)
    return f"Column {name!r} holds numbers in {number} and text in {text}: the files do not match."


def find_text(tables: Tables, name: str) -> tuple[str, int] | None:
    """Return the first value of a column of text files that is not a number, and its row in its file, from 0."""
    for piece in tables.pieces if tables.is_text else ():
        row = 0
        for batch in piece.batches([name], {name: import_arrow("pyarrow").string()}, 1 << 16):
            for value in batch.column(0).to_pylist():
                if value and value.strip() and not is_number(value):
                    return value, row
                row += 1
    return None
