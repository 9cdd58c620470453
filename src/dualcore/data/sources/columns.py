"""From Arrow columns to rows of numbers: which columns, in what order, and what becomes of categories and nulls.

- Numbers and booleans become float64. Decimals do too.
- A category (text, or a dictionary column) is refused unless ``categories`` lists its values; it then becomes one
  0/1 column per value, in the order of the list. A value that is not in the list is an error, or a row of zeros.
- A null in a feature is an error unless ``fill`` gives a number for it or the row is dropped; NaN in a float column
  counts as null. A null category that is filled is a row of zeros.
- A null target or weight is an error unless the row is dropped.
- Anything else (dates, lists, binary) is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.chunk import Chunk, SourceError, chunk_spans, refuse_rows
from dualcore.data.sources.paths import import_arrow
from dualcore.data.sums import exact_sum, rounded

# A number for all features, "mean" or "median", or one of these for each feature.
Fill = float | str | Mapping[str, float | str]

RULES = ("mean", "median")
# Numbers kept at a time to find medians: 160 MB.
_MOST_KEPT = 20_000_000


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are features, target and weight, and how they become numbers; see `ArrowSource`."""

    target: str
    features: Sequence[str] = ()
    weight: str | None = None
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fill: Mapping[str, float | str] = field(default_factory=dict)  # of features only
    drop_missing: bool = False
    unknown: str = "error"

    def __post_init__(self) -> None:
        for value in self.fill.values():
            if not (value in RULES if isinstance(value, str) else math.isfinite(value)):
                raise ValueError(f'fill must be a finite number, "mean" or "median", got {value!r}.')
        if self.unknown not in ("error", "zeros"):
            raise ValueError(f'unknown must be "error" or "zeros", got {self.unknown!r}.')

    def check(self, schema: Any, where: str) -> None:
        """Raise SourceError unless every column is there and can become numbers."""
        if not self.features:
            raise SourceError(f"{where} has no feature columns besides {self.target!r}.")
        others = sorted(set(self.categories) - set(self.features))
        if others:
            raise SourceError(f"categories names {others}, which are not among the features.")
        for name in self.names(features=True):
            if name not in schema.names:
                raise SourceError(f"{where} has no column {name!r}; its columns are {list(schema.names)[:20]}.")
            kind = kind_of(schema.field(name).type)
            is_target = name == self.target and name not in self.features
            if kind == "number" or (kind == "category" and (is_target or name in self.categories)):
                continue
            advice = "leave it out with features=[...] (command line: --drop)"
            if kind == "category":
                advice = f"list its values with categories={{{name!r}: [...]}} (estimators: 'from_dtype'), or {advice}"
            raise SourceError(f"{where}: column {name!r} is {schema.field(name).type}, not a number; {advice}.")

    def names(self, *, features: bool) -> list[str]:
        """Return the names of the columns to read."""
        names = self.features if features else self.needed
        return list(dict.fromkeys([*names, self.target, *([self.weight] if self.weight else [])]))

    @property
    def needed(self) -> list[str]:
        """Features without which it is not known whether a row is left out."""
        return [name for name in self.features if self.drop_missing and name not in self.fill_values]

    @property
    def fill_values(self) -> dict[str, Any]:
        """What is put for missing values, for every feature of numbers that has it."""
        return {name: rule for name, rule in self.fill.items() if name not in self.categories}

    def keep(self, batch: Any) -> Any:
        """Return the rows of a record batch that are not left out."""
        if not self.drop_missing:
            return batch
        missing = np.zeros(batch.num_rows, dtype=bool)
        for name in self.names(features=False):
            missing |= batch.column(name).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        return batch.filter(import_arrow("pyarrow").array(~missing)) if missing.any() else batch

    @property
    def n_features(self) -> int:
        """How many features come out, categories written out."""
        return sum(len(self.categories.get(name, (name,))) for name in self.features)

    def chunks(self, batch: Any, start: int, step: int, *, features: bool) -> Iterator[Chunk]:
        """Yield a record batch as chunks of up to ``step`` rows; ``start`` is the global number of its first row."""
        columns: list[npt.NDArray[Any]] = []
        for name in self.features if features else ():
            columns += self._feature(batch.column(name), name, start)
        y, weights = self._target(batch.column(self.target), start), None
        if self.weight is not None:
            weights = _numbers(batch.column(self.weight), self.weight, start, None).astype(np.float64, copy=False)
        for first, last in chunk_spans(start, start + batch.num_rows, step):
            part, X = slice(first - start, last - start), None
            if features:
                X = np.empty((last - first, len(columns)))
                for position, column in enumerate(columns):
                    X[:, position] = column[part]
            yield Chunk(first, X, y[part], None if weights is None else weights[part])

    def _feature(self, column: Any, name: str, start: int) -> list[npt.NDArray[Any]]:
        if name not in self.categories:
            return [_numbers(column, name, start, self.fill.get(name))]
        values = list(self.categories[name])
        position = _positions(column, values, name, start, zeros=self.unknown == "zeros", gaps=name in self.fill)
        return [position == k for k in range(len(values))]

    def _target(self, column: Any, start: int) -> npt.NDArray[Any]:
        if self.target in self.categories:  # rows are predicted where there is no target, and nothing reads this one
            return np.zeros(len(column))
        if kind_of(column.type) == "number":  # a column that is a feature too is filled like one
            return _numbers(column, self.target, start, self.fill.get(self.target)).astype(np.float64, copy=False)
        _refuse_nulls(column, self.target, start)
        coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
        texts = np.array(coded.dictionary.to_pylist())
        return np.asarray(texts[coded.indices.to_numpy(zero_copy_only=False)])


@cache
def kind_of(arrow_type: Any) -> str:
    """Return what a type of Arrow holds: "number", "category" or "other"."""
    types = import_arrow("pyarrow").types
    if types.is_dictionary(arrow_type):
        return "category" if kind_of(arrow_type.value_type) in ("number", "category") else "other"
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(test(arrow_type) for test in numbers):
        return "number"
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return "category" if any(test(arrow_type) for test in texts) else "other"


def _numbers(column: Any, name: str, start: int, fill: float | str | None) -> npt.NDArray[Any]:
    """Return a numeric column as a vector, without a copy where it has no nulls."""
    if fill is not None or str(column.type).startswith(("decimal", "null")):
        column = column.cast("float64", safe=False)  # what fills need not be a number of the column's own type
    if fill is not None:
        column = import_arrow("pyarrow.compute").if_else(column.is_null(nan_is_null=True), float(fill), column)
    _refuse_nulls(column, name, start, "give fill= a number for it, or drop_missing=True")
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _positions(
    column: Any, values: list[Any], name: str, start: int, *, zeros: bool = False, gaps: bool = False
) -> npt.NDArray[Any]:
    """Return the position of each entry of a category column in ``values``.

    With ``zeros`` it is -1 of a value that is not among them, with ``gaps`` of a missing one.
    """
    pa, pc = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        known = pa.array(values).cast(column.type)
    except pa.ArrowException:
        raise SourceError(f"Column {name!r} is {column.type} and cannot hold the values {values[:5]!r}.") from None
    if not gaps:
        _refuse_nulls(column, name, start)
    position = np.asarray(pc.fill_null(pc.index_in(column, value_set=known), -1).to_numpy(zero_copy_only=False))
    unknown = (position < 0) & column.is_valid().to_numpy(zero_copy_only=False)
    if not zeros:
        found = column[int(np.argmax(unknown))].as_py()
        refuse_rows(unknown, start, f"Column {name!r} has the value {found!r}, not among {values!r}")
    return position


def _refuse_nulls(column: Any, name: str, start: int, advice: str = "drop_missing=True leaves such rows out") -> None:
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        refuse_rows(missing, start, f"Column {name!r} has a null; {advice}")


def find_fills(batches: Iterable[Any], rules: Mapping[str, str]) -> dict[str, float]:
    """Return the means and medians of the values that are there, by a rule for each feature.

    A mean does not depend on how the rows are cut into batches.
    """
    counts, totals = dict.fromkeys(rules, 0), dict.fromkeys(rules, 0)
    kept: dict[str, list[FloatArray]] = {name: [] for name, rule in rules.items() if rule == "median"}
    for batch in batches:
        for name, rule in rules.items():
            values = np.asarray(batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False))
            known = values[~np.isnan(values)]
            if not np.isfinite(known).all():
                raise SourceError(f"Column {name!r} holds infinite values, so it has no {rule}.")
            counts[name] += known.size
            if rule == "mean":
                totals[name] += exact_sum(known)
            else:
                kept[name].append(known)
        if sum(counts[name] for name in kept) > _MOST_KEPT:
            most = f"needs more than {_MOST_KEPT:,} values at once"
            raise SourceError(f'fill="median" {most}: use fill="mean" or numbers.')
    for name, rule in rules.items():
        if not counts[name]:
            raise SourceError(f"Column {name!r} holds no value, so it has no {rule}: leave it out, or fill a number.")
    medians = {name: float(np.median(np.concatenate(parts))) for name, parts in kept.items()}
    return {name: rounded(totals[name], counts[name]) for name in rules} | medians
