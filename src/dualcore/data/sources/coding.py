"""One-hot coding of columns of text: which values they hold, and which features their values become.

A *coding* maps the name of a column to its values, in their order. Each value becomes one 0/1 feature. A value that is
not among them, met after the coding was found, is no category: a row of zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dualcore.data.sources.arrow import import_arrow
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
