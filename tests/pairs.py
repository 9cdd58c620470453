"""A product of parameters of which every pair of values runs by default, and all of it with ``make test-slow``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import pytest


def covering(lengths: list[int]) -> set[tuple[int, ...]]:
    """Return few combinations of positions that hold every pair of positions of two axes; greedy, without draws."""
    everything = list(product(*map(range, lengths)))
    axes = list(combinations(range(len(lengths)), 2))
    pairs = {one: {(a, b, one[a], one[b]) for a, b in axes} for one in everything}
    missing = set().union(*pairs.values())
    chosen: set[tuple[int, ...]] = set()
    while missing:
        best = max(everything, key=lambda one: len(pairs[one] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def every_pair(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by the product of three axes or more; what adds no new pair of values is marked slow.

    The names of a mapping are the ids of its values.
    """
    named = {
        name: list(values.items()) if isinstance(values, Mapping) else [(str(value), value) for value in values]
        for name, values in axes.items()
    }
    quick = covering([len(values) for values in named.values()])
    rows = []
    for at in product(*(range(len(values)) for values in named.values())):
        chosen = [values[k] for values, k in zip(named.values(), at, strict=True)]
        marks = () if at in quick else (pytest.mark.slow,)
        rows.append(pytest.param(*(value for _, value in chosen), id="-".join(name for name, _ in chosen), marks=marks))
    return pytest.mark.parametrize(list(named), rows)
