"""What the columns of files hold, before any row is used; and the one-hot coding of those of text.

A *coding* maps the name of a column to its values, in their order. Each value becomes one 0/1 feature. A value that is
not among them, met after the coding was found, is no category: a row of zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualcore.data.sources.chunk import SourceError
from dualcore.data.sources.paths import Paths, delimiter_of, is_parquet, list_tables
from dualcore.data.sources.tables import import_arrow, kind_of
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


def find_values(batches: Iterable[Any], names: Iterable[str], most: int) -> dict[str, list[Any]]:
    """Return the different values of some columns of record batches, in their order.

    Of a column that has more than ``most`` the values that were found by then are returned; where all have, the search
    ends.
    """
    pc = import_arrow("pyarrow.compute")
    found: dict[str, set[Any]] = {name: set() for name in names}
    for batch in batches:
        for name, values in found.items():
            if len(values) <= most:
                values.update(value for value in pc.unique(batch.column(name)).to_pylist() if value is not None)
        if all(len(values) > most for values in found.values()):
            break
    return {name: sorted(values) for name, values in found.items()}


def column_kinds(path: Paths, separator: str | None = None) -> dict[str, str]:
    """Return the columns of a file with what they hold: "number", "category" (text too) or "other".

    The files of a folder must have the same columns, and the same in them.
    """
    files = list_tables(path)
    kinds = _file_kinds(files[0], separator)
    for file in files[1:]:
        found = _file_kinds(file, separator)
        odd = sorted(set(found) ^ set(kinds))
        if odd:
            raise SourceError(f"{files[0].name} and {file.name} differ in column {odd[0]!r}: the files do not match.")
        for name, kind in found.items():
            if (kind == "number") != (kinds[name] == "number") and "empty" not in (kind, kinds[name]):
                raise SourceError(mixed_column(name, [file.name, files[0].name], kind == "number"))
            kinds[name] = kind if kinds[name] == "empty" else kinds[name]
    return {name: "number" if kind == "empty" else kind for name, kind in kinds.items()}


def mixed_column(name: str, files: Sequence[str], first_is_number: bool) -> str:
    """Say that a column holds numbers in one file and text in another."""
    number, text = files if first_is_number else reversed(files)
    return f"Column {name!r} holds numbers in {number} and text in {text}: the files do not match."


def _file_kinds(path: Path, separator: str | None = None) -> dict[str, str]:
    """Return the columns of one file with what they hold; "empty" where there is nothing in them."""
    pa = import_arrow("pyarrow")
    try:
        if is_parquet(path):
            schema = import_arrow("pyarrow.parquet").read_schema(path)
        else:
            csv = import_arrow("pyarrow.csv")
            options = csv.ParseOptions(delimiter=separator or delimiter_of(path))
            schema = csv.open_csv(path, parse_options=options).schema
    except (OSError, ValueError, NotImplementedError, TypeError) as error:  # bases of all of pyarrow's errors
        kind = "whole Parquet file" if is_parquet(path) else "CSV file with a header line"
        raise SourceError(f"{path} is not a {kind}: {error}") from None
    check_header(path.name, schema.names, is_text=not is_parquet(path))
    # What is written as true and false is text in a file of text.
    text = set() if is_parquet(path) else {field.name for field in schema if pa.types.is_boolean(field.type)}
    kinds = {field.name: "empty" if pa.types.is_null(field.type) else kind_of(field.type) for field in schema}
    return {name: "category" if name in text else kind for name, kind in kinds.items()}


def check_header(file: str, names: Sequence[str], *, is_text: bool, error: type[ValueError] = SourceError) -> None:
    """Raise an error where two columns have one name, or the first line of a text holds numbers only."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise error(f"{file} has two columns called {twice!r}. Column names must differ.")
    if is_text and all(is_number(name) for name in names):
        raise error(f"{file} has no line of column names: its first line holds numbers only. Add one.")


def is_number(text: object) -> bool:
    """Whether a text of a table reads as a number."""
    try:
        float(text)  # type: ignore[arg-type]  # of anything else it raises
    except (TypeError, ValueError):
        return False
    return True


def first_text(path: Paths, name: str, separator: str | None = None) -> tuple[str, int] | None:
    """Return the first value of a column of CSV files that is not a number, and its row in its file, from 0."""
    pa, csv = import_arrow("pyarrow"), import_arrow("pyarrow.csv")
    for file in list_tables(path):
        if is_parquet(file):
            return None
        options = csv.ConvertOptions(include_columns=[name], column_types={name: pa.string()})
        parse = csv.ParseOptions(delimiter=separator or delimiter_of(file))
        row = 0
        for batch in csv.open_csv(file, parse_options=parse, convert_options=options):
            for value in batch.column(0).to_pylist():
                if value and value.strip() and not is_number(value):
                    return value, row
                row += 1
    return None
