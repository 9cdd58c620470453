"""From Arrow columns to rows of numbers: which columns, in what order, and what becomes of categories and nulls.

- Numbers and booleans become float64. Decimals do too.
- A category (text, or a dictionary column) is refused unless ``categories`` lists its values; it then becomes one
  0/1 column per value, in the order of the list. A value that is not in the list is an error, or a row of zeros.
- A null in a feature is an error unless ``fill`` gives a number for it or the row is dropped; NaN in a float column
  counts as null.
- A null target or weight is an error unless the row is dropped.
- Anything else (dates, lists, binary) is refused by name.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.chunk import Chunk, RowError, SourceError, chunk_spans, stack_chunks
from dualcore.data.sums import RowSum

# A number for all features, "mean" or "median", or one of these for each feature.
Fill = float | str | Mapping[str, float | str]

RULES = ("mean", "median")
# Numbers kept at a time to find medians: 160 MB.
_MOST_KEPT = 20_000_000


def import_arrow(name: str) -> Any:
    """Import a module of pyarrow, or say which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            "Reading Parquet and CSV files needs pyarrow. Install it with: pip install 'dualcore[parquet]'"
        ) from None


class Block(NamedTuple):
    """Rows as columns: one vector per feature, targets, weights."""

    columns: list[npt.NDArray[Any]]
    y: FloatArray
    weights: FloatArray | None

    def chunk(self, start: int, first: int, last: int, *, features: bool) -> Chunk:
        """Return rows ``[first, last)`` of the block as a chunk whose first row has the global number ``start``."""
        X = None
        if features:
            X = np.empty((last - first, len(self.columns)))
            for place, column in enumerate(self.columns):
                X[:, place] = column[first:last]
        return Chunk(start, X, self.y[first:last], None if self.weights is None else self.weights[first:last])


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are features, target and weight, and how they become numbers; see `ParquetSource`."""

    target: str
    features: Sequence[str] | None = None
    weight: str | None = None
    labels: Sequence[Any] | None = None
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fill: Fill | None = None
    drop_missing: bool = False
    unknown: str = "error"

    def __post_init__(self) -> None:
        check_fill(self.fill)
        if self.unknown not in ("error", "zeros"):
            raise ValueError(f'unknown must be "error" or "zeros", got {self.unknown!r}.')

    def resolve(self, schema: Any, where: str) -> Columns:
        """Return the columns with the features written out, after checking ``schema`` (of the first file)."""
        names = [name for name in schema.names if name not in (self.target, self.weight)]
        chosen = replace(self, features=tuple(self.features or names))
        if not chosen.features:
            raise SourceError(f"{where} has no feature columns besides {self.target!r}.")
        strangers = sorted(set(self.categories) - set(chosen.features))
        if strangers:
            raise SourceError(f"categories names {strangers}, which are not among the features.")
        chosen.check(schema, where)
        return chosen

    def check(self, schema: Any, where: str, *, exactly: bool = False) -> None:
        """Raise SourceError unless every column is there and can become numbers.

        With ``exactly`` a column that is not asked for is an error too.
        """
        wanted = self.names(features=True)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise SourceError(f"{where} has no column {missing[0]!r}; its columns are {list(schema.names)[:20]}.")
        extra = [name for name in schema.names if name not in wanted]
        if exactly and extra:
            raise SourceError(
                f"{where} has a column {extra[0]!r} that the first file has not: the schemas differ. "
                "Name the columns to use with features=[...]."
            )
        for name in wanted:
            kind = kind_of(schema.field(name).type)
            is_label = name == self.target and self.labels is not None
            if kind == "number" or is_label or (kind == "category" and name in self.categories):
                continue
            advice = "leave it out with features=[...]"
            if name == self.target:
                advice = "give labels=(negative, positive) to map its two values to -1 and +1"
            elif kind == "category":
                advice = f"list its values with categories={{{name!r}: [...]}}, or {advice}"
            raise SourceError(f"{where}: column {name!r} is {schema.field(name).type}, not a number; {advice}.")

    def names(self, *, features: bool) -> list[str]:
        """Return the names of the columns to read."""
        names = list(self.features or ()) if features else self._checked_features
        return list(dict.fromkeys([*names, self.target, *([self.weight] if self.weight else [])]))

    @property
    def _checked_features(self) -> list[str]:
        """Features whose missing values make a row be left out."""
        if not self.drop_missing:
            return []
        return [name for name in self.features or () if name in self.categories or rule_of(self.fill, name) is None]

    @property
    def labels_alone(self) -> bool:
        """Whether targets can be read without features."""
        return not self._checked_features

    @property
    def needs_pass(self) -> bool:
        """Whether all rows have to be read before the first can be given out."""
        return bool(self._fill_rules)

    @property
    def _fill_rules(self) -> dict[str, str]:
        plain = [name for name in self.features or () if name not in self.categories]
        return {name: str(rule) for name in plain if (rule := rule_of(self.fill, name)) in RULES}

    def statistics(self) -> FillStatistics:
        """Return what finds the numbers of "mean" and "median"."""
        return FillStatistics(self._fill_rules)

    def filled(self, found: Mapping[str, float]) -> Columns:
        """Return the columns with these numbers in the place of rules."""
        return replace(self, fill=self.fill_values | dict(found)) if found else self

    @property
    def fill_values(self) -> dict[str, Any]:
        """What is put for missing values, for every feature that has it."""
        plain = [name for name in self.features or () if name not in self.categories]
        return {name: rule for name in plain if (rule := rule_of(self.fill, name)) is not None}

    def keep(self, batch: Any) -> Any:
        """Return the rows of a record batch that are not left out."""
        if not self.drop_missing:
            return batch
        return without_missing(batch, self.names(features=False))

    @property
    def n_features(self) -> int:
        """How many features come out, categories written out."""
        return sum(len(self.categories[name]) if name in self.categories else 1 for name in self.features or ())

    @property
    def plain_names(self) -> tuple[str, ...] | None:
        """Names of the features, None where a category becomes several."""
        return None if self.categories else tuple(self.features or ())

    def block(self, batch: Any, start: int, *, features: bool) -> Block:
        """Return a record batch as columns of numbers; ``start`` is the global number of its first row."""
        columns: list[npt.NDArray[Any]] = []
        if features:
            for name in self.features or ():
                columns += self._feature(batch.column(name), name, start)
        y = self._target(batch.column(self.target), start)
        weights = None
        if self.weight is not None:
            weights = _numbers(batch.column(self.weight), self.weight, start, None).astype(np.float64, copy=False)
        return Block(columns, y, weights)

    def _feature(self, column: Any, name: str, start: int) -> list[npt.NDArray[Any]]:
        if name not in self.categories:
            fill = rule_of(self.fill, name)
            return [_numbers(column, name, start, None if fill is None else float(fill))]
        values = list(self.categories[name])
        place = _places(column, values, name, start, zeros=self.unknown == "zeros")
        return [place == k for k in range(len(values))]

    def _target(self, column: Any, start: int) -> FloatArray:
        if self.target in self.categories:  # rows are predicted where there is no target, and nothing reads this one
            return np.zeros(len(column))
        if self.labels is None:
            # A column that is a feature too is read like one: rows are predicted where there is no target.
            fill = rule_of(self.fill, self.target) if self.target in (self.features or ()) else None
            number = None if fill is None else float(fill)
            return _numbers(column, self.target, start, number).astype(np.float64, copy=False)
        place = _places(column, list(self.labels), self.target, start)
        return np.where(place == 1, 1.0, -1.0) if len(self.labels) == 2 else place.astype(np.float64)


def kind_of(arrow_type: Any) -> str:
    """Return what a type of Arrow holds: "number", "category" or "other"."""
    types = import_arrow("pyarrow").types
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
        return "category" if kind_of(arrow_type) in ("number", "category") else "other"
    if types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return "number"
    if types.is_boolean(arrow_type) or types.is_decimal(arrow_type) or types.is_null(arrow_type):
        return "number"
    return "category" if types.is_string(arrow_type) or types.is_large_string(arrow_type) else "other"


def is_text(schema: Any, name: str) -> bool:
    """Whether a column is there and holds something else than numbers."""
    types = import_arrow("pyarrow").types
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    return kind_of(kind) == "category" or types.is_boolean(kind)


def _numbers(column: Any, name: str, start: int, fill: float | None) -> npt.NDArray[Any]:
    """Return a numeric column as a vector, without a copy where it has no nulls."""
    pa, pc = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    if column.null_count:
        if fill is None:
            row = start + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowError(row, f"Column {name!r} has a null; give fill= a number for it, or drop_missing=True")
        column = column.cast(pa.float64())  # a mean need not be a number of the column's own type
        column = pc.fill_null(column, pa.scalar(fill, column.type))
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if fill is not None and values.dtype.kind == "f" and np.isnan(values).any():
        values = np.where(np.isnan(values), np.float64(fill), values)
    return values


_NO_CATEGORY = "drop_missing=True leaves such rows out"


def _places(column: Any, values: list[Any], name: str, start: int, *, zeros: bool = False) -> npt.NDArray[Any]:
    """Return the place of each entry of a category column in ``values``; with ``zeros`` -1 where it has none."""
    pa, pc = import_arrow("pyarrow"), import_arrow("pyarrow.compute")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        known = pa.array(values).cast(column.type)
    except pa.ArrowException:
        raise SourceError(f"Column {name!r} is {column.type} and cannot hold the values {values[:5]!r}.") from None
    place = pc.index_in(column, value_set=known)
    if place.null_count and zeros:
        empty = column.is_null().to_numpy(zero_copy_only=False)
        if empty.any():
            raise RowError(start + int(np.flatnonzero(empty)[0]), f"Column {name!r} has a null; {_NO_CATEGORY}")
        place = pc.fill_null(place, -1)
    if place.null_count:
        first = int(np.flatnonzero(place.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(start + first, f"Column {name!r} has the value {column[first].as_py()!r}, not among {values!r}")
    return np.asarray(place.to_numpy(zero_copy_only=False))


def aligned_chunks(blocks: Iterable[Block], start: int, step: int, leaf: int, *, features: bool) -> Iterator[Chunk]:
    """Cut consecutive blocks into chunks of up to ``step`` rows that end where a leaf ends, wherever a block does.

    ``start`` is the global number of the first row; only the first chunk may begin, and only the last end, inside a
    leaf.
    """
    rest: Chunk | None = None
    for block in blocks:
        size, first = block.y.size, 0
        if rest is not None:  # the rows before this block began a leaf
            first = min(-(start) % leaf, size)
            rest = stack_chunks([rest, block.chunk(start, 0, first, features=features)])
            start += first
            if start % leaf:
                continue
            yield rest
            rest = None
        offset = start - first
        for begin, end in chunk_spans(start, offset + size, step):
            whole = end if end < offset + size else max(end // leaf * leaf, begin)
            if begin < whole:
                yield block.chunk(begin, begin - offset, whole - offset, features=features)
            if whole < end:
                rest = block.chunk(whole, whole - offset, end - offset, features=features)
        start = offset + size
    if rest is not None:
        yield rest


# Missing values: which rows to drop, and the numbers that fill the others


def check_fill(fill: Fill | None) -> None:
    """Raise ValueError unless every entry is a finite number, "mean" or "median"."""
    for value in fill.values() if isinstance(fill, Mapping) else [fill]:
        known = value in RULES if isinstance(value, str) else value is None or math.isfinite(value)
        if not known:
            raise ValueError(f'fill must be a finite number, "mean" or "median", got {value!r}.')


def rule_of(fill: Fill | None, name: str) -> float | str | None:
    """Return what is put for missing values of one feature."""
    return fill.get(name) if isinstance(fill, Mapping) else fill


def is_missing(column: Any) -> npt.NDArray[np.bool_]:
    """Return which entries of an Arrow column are null or NaN."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool)


def without_missing(batch: Any, names: list[str]) -> Any:
    """Return the rows of a record batch in which none of these columns is missing."""
    missing = np.zeros(batch.num_rows, dtype=bool)
    for name in names:
        missing |= is_missing(batch.column(name))
    if not missing.any():
        return batch
    return batch.filter(import_arrow("pyarrow").array(~missing))


class FillStatistics:
    """Means and medians of the values that are there, gathered batch by batch, by a rule for each feature.

    The mean does not depend on how the rows are cut into batches.
    """

    def __init__(self, rules: dict[str, str]) -> None:
        self.rules = rules
        self._counts = dict.fromkeys(rules, 0)
        self._sums: dict[str, RowSum] = {}
        self._kept: dict[str, list[FloatArray]] = {name: [] for name, rule in rules.items() if rule == "median"}
        self._n_kept = self._n_rows = 0

    def add(self, batch: Any) -> None:
        """Take in the next rows."""
        for name, rule in self.rules.items():
            values = _floats(batch.column(name))
            missing = np.isnan(values)
            self._counts[name] += int(values.size - np.count_nonzero(missing))
            if rule == "median":
                self._keep(name, values[~missing])
                continue
            part = RowSum.of(self._n_rows, np.where(missing, 0.0, values))
            self._sums[name] = RowSum.join([self._sums[name], part]) if name in self._sums else part
        self._n_rows += batch.num_rows

    def _keep(self, name: str, values: FloatArray) -> None:
        self._n_kept += values.size
        if self._n_kept > _MOST_KEPT:
            raise SourceError(
                f'fill="median" needs all values at once, more than {_MOST_KEPT:,} of them here: use fill="mean" or '
                "numbers."
            )
        self._kept[name].append(values)

    def numbers(self) -> dict[str, float]:
        """Return the number for each feature."""
        found = {}
        for name, rule in self.rules.items():
            if not self._counts[name]:
                raise SourceError(
                    f"Column {name!r} holds no value, so it has no {rule}: leave it out, or give fill= a number for it."
                )
            if rule == "median":
                found[name] = float(np.median(np.concatenate(self._kept[name])))
            else:
                found[name] = self._sums[name].total() / self._counts[name]
            if not math.isfinite(found[name]):
                raise SourceError(f"Column {name!r} holds infinite or huge values: its {rule} is {found[name]}.")
        return found


def _floats(column: Any) -> FloatArray:
    """Return a numeric column with NaN for nulls."""
    pa = import_arrow("pyarrow")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
