"""Products of parameters of which a part runs by default, and all of it with ``make test-slow``.

`every_pair` runs every pair of values of two axes by default, `every_value` every value of every axis. An axis is a
keyword (the names of a mapping are the ids of its values) or a mark made by ``pytest.mark.parametrize``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import pytest

ParameterSet = type(pytest.param(0))
Places = tuple[int, ...]
Axis = tuple[list[str], list[Any]]


def pairs_of(lengths: list[int]) -> set[Places]:
    """Return few combinations of places that hold every pair of places of two axes; greedy, without draws."""
    everything = list(product(*map(range, lengths)))
    axes = list(combinations(range(len(lengths)), 2))
    pairs = {one: {(a, b, one[a], one[b]) for a, b in axes} for one in everything}
    missing = set().union(*pairs.values())
    chosen: set[Places] = set()
    while missing:
        best = max(everything, key=lambda one: len(pairs[one] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def values_of(lengths: list[int]) -> set[Places]:
    """Return as many combinations of places as the longest axis has, which hold every place of every axis."""
    return {tuple(k % length for length in lengths) for k in range(max(lengths))}


def every_pair(*marks: pytest.MarkDecorator, **axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by the product of three axes or more; what adds no new pair of values is marked slow."""
    return _parametrise(marks, axes, pairs_of)


def every_value(*marks: pytest.MarkDecorator, **axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by the product of two axes or more; one row for each value of the longest is not slow."""
    return _parametrise(marks, axes, values_of)


def first(number: int, values: Iterable[Any]) -> list[Any]:
    """Return values as parameters, all but the first ``number`` of them slow; seeds, or problems of one kind."""
    named = values.items() if isinstance(values, Mapping) else [(None, value) for value in values]
    return [
        pytest.param(value, id=name, marks=[] if place < number else [pytest.mark.slow])
        for place, (name, value) in enumerate(named)
    ]


def _parametrise(marks: Any, axes: dict[str, Any], choose: Any) -> pytest.MarkDecorator:
    rows: list[Axis] = [_axis(mark.args[0], mark.args[1], mark.kwargs.get("ids")) for mark in marks]
    rows += [_axis(name, values, None) for name, values in axes.items()]
    # A value that is slow by itself cannot stand for others.
    quick = [[k for k, row in enumerate(values) if not _is_slow(row)] or [0] for _, values in rows]
    chosen = {
        tuple(places[k] for places, k in zip(quick, at, strict=True))
        for at in choose([len(places) for places in quick])
    }
    made = []
    for at in product(*(range(len(values)) for _, values in rows)):
        parts = [values[k] for (_, values), k in zip(rows, at, strict=True)]
        kept = [mark for part in parts for mark in part.marks]
        values = [value for part in parts for value in part.values]
        name = "-".join(str(part.id) for part in parts)
        made.append(pytest.param(*values, id=name, marks=kept if at in chosen else [*kept, pytest.mark.slow]))
    return pytest.mark.parametrize([name for names, _ in rows for name in names], made)


def _is_slow(row: Any) -> bool:
    return any(getattr(mark, "name", None) == "slow" for mark in row.marks)


def _axis(names: Any, values: Any, ids: Any) -> Axis:
    """Return the names of an axis and its rows, each with an id."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    if isinstance(values, Mapping):
        ids, values = list(values), values.values()
    values = list(values)
    ids = [None] * len(values) if ids is None or callable(ids) else [str(one) for one in ids]
    rows = []
    for number, (value, given) in enumerate(zip(values, ids, strict=True)):
        row = value if isinstance(value, ParameterSet) else pytest.param(*([value] if len(names) == 1 else value))
        rows.append(row._replace(id=row.id or given or _id(row.values, number)))
    return names, rows


def _id(values: Any, number: int) -> str:
    plain = [str(value) for value in values if isinstance(value, str | int | float) or value is None]
    return "-".join(plain) if len(plain) == len(values) else f"{'-'.join([*plain, ''])}{number}"
