"""What turns a raw row into numbers, learned by `fit` and kept: coded columns of text, and numbers for missing values.

A column of text or of categories becomes one 0/1 column for each value that occurred in training, in their order. Any
other value is coded as zeros, and with ``fill`` so is a missing one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import ArrowSource, SourceError, is_arrow
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sources.paths import import_arrow
from dualcore.data.sources.products import whole_chunk
from dualcore.data.sources.tables import Tables, check_names, is_number, kind_of

FROM_DTYPE = "from_dtype"
# A column of more different texts is taken for names or remarks, not for categories.
_MOST_LEVELS = 200
# Signs beside numbers that are text because of them.
_SIGNS = "%$€£¥"


@dataclass(frozen=True)
class Preparation:
    """Raw columns, and how they become numbers.

    Attributes
    ----------
    names : tuple of str
        The raw columns that are features, in their order.
    coding : dict of str to tuple
        The values of the columns that are coded.
    fill : dict of str to float
        What is put for missing values.
    gaps : bool
        Whether a missing text is coded as zeros; else it is an error.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [30.0, None], "city": ["Oslo", "Lima"]})
    >>> preparation = Preparation.learn(table, fill="mean", coded=True)
    >>> preparation.coded_names, preparation.rows(table)
    (('age', 'city=Lima', 'city=Oslo'), array([[30.,  0.,  1.],
           [30.,  1.,  0.]]))
    """

    names: tuple[str, ...]
    coding: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    fill: dict[str, float] = field(default_factory=dict)
    gaps: bool = False

    @classmethod
    def learn(
        cls,
        data: Any,
        *,
        fill: Any = None,
        coded: bool = False,
        target: str | None = None,
        weight: str | None = None,
        **options: Any,
    ) -> Preparation:
        """Find the columns of a table, of files or of a dataset, the values of those of text, and what fills gaps.

        ``options`` are those of `ArrowSource`: ``features``, ``separator``, ``drop_missing``.
        """
        tables = Tables(data, separator=options.get("separator"))
        names = tuple(options.get("features") or [name for name in tables.names if name not in (target, weight)])
        known = [name for name in names if name in tables.schema.names]
        texts = [name for name in known if coded and kind_of(tables.schema.field(name).type) == "category"]
        if not texts and fill is None:
            return cls(names)
        options |= {"categories": dict.fromkeys(texts, ("",)), "unknown": "zeros", "fill": fill}
        options |= {"features": names} if target is None else {"weight": weight}
        source = ArrowSource(data, target or names[0], **options)
        found = source.category_values(_MOST_LEVELS) if texts else {}
        for name, values in found.items():
            _check_levels(name, values)
        coding = {name: tuple(values) for name, values in found.items()}
        numbers = {name: float(number) for name, number in source.fill_values.items()}
        return cls(names, coding, numbers, gaps=fill is not None)

    @classmethod
    def of(cls, source: ArrowSource) -> Preparation:
        """Return what a source does to its raw columns itself."""
        columns = source.columns
        coding = {name: tuple(columns.categories[name]) for name in columns.features if name in columns.categories}
        return cls(tuple(columns.features), coding, source.fill_values, gaps=bool(columns.fill))

    @property
    def options(self) -> dict[str, Any]:
        """The options of a source of named columns."""
        return {
            "features": self.names,
            "categories": self.coding or None,
            "unknown": "zeros",
            "fill": self.fill | (dict.fromkeys(self.coding, 0.0) if self.gaps else {}) or None,
        }

    @property
    def coded_names(self) -> tuple[str, ...]:
        """Names of the columns of numbers."""
        parts = (
            [f"{name}={value}" for value in self.coding[name]] if name in self.coding else [name] for name in self.names
        )
        return tuple(name for part in parts for name in part)

    @property
    def groups(self) -> list[list[int | None]]:
        """The groups of 0/1 columns, as `Problem` takes them; None is the row of zeros."""
        groups: list[list[int | None]] = []
        first = 0
        for name in self.names:
            width = len(self.coding.get(name, (name,)))
            groups += [[None, *range(first, first + width)]] if name in self.coding else []
            first += width
        return groups

    def rows(self, X: Any) -> FloatArray:
        """Return the rows of a table, or of an array of objects, as numbers."""
        table = as_table(X)
        if table is not X and table.num_columns == len(self.names):  # columns of an array are known by their positions
            table = table.rename_columns(list(self.names))
        source = ArrowSource(table, self.names[0], **self.options)
        return np.asarray(stack_rows([chunk.X for chunk in source.map(whole_chunk)]), dtype=np.float64)

    def spread(self, values: Any, default: float) -> Any:
        """Return numbers given for raw columns as numbers of coded ones, which have ``default``."""
        if not self.coding or np.ndim(values) != 1 or np.size(values) != len(self.names):
            return values
        parts = [
            [default] * len(self.coding[name]) if name in self.coding else [value]
            for name, value in zip(self.names, values, strict=True)
        ]
        return [value for part in parts for value in part]


def _check_levels(name: str, values: Sequence[Any]) -> None:
    """Raise SourceError where the values of a column of text are not those of a category."""
    # With a comma or a sign too: such columns would be coded as categories without a word.
    plain = {value: value.translate(dict.fromkeys(map(ord, _SIGNS))) for value in values if isinstance(value, str)}
    numbers = {value for value, text in plain.items() if any(is_number(text.replace(",", mark)) for mark in (".", ""))}
    why, advice = "", "Leave it out, or mend its values."
    if not values:
        why = "holds no value"
    # One typing error makes a column of numbers one of text. Whole numbers alone, stored as text, are codes.
    elif 2 * len(numbers) >= len(values) and not all(str(value).isdecimal() for value in values):
        odd = min(values, key=lambda value: (value in numbers, is_number(value)))
        why = f"is text, for example {odd!r}, but {len(numbers)} of its {len(values)} different values are numbers"
        if odd in numbers and (mark := next((mark for mark in f"{_SIGNS}," if mark in odd), "")):
            why = f"holds numbers with {mark!r}, such as {odd!r}, which are text"
            advice = (
                "Make them numbers: pd.to_numeric after str.replace, or read_csv with decimal=',' or thousands=','."
            )
    elif len(values) > _MOST_LEVELS:
        why = f"holds more than {_MOST_LEVELS} different texts, such as {values[0]!r}, so it is not coded as a category"
    if why:
        raise SourceError(f"Column {name!r} {why}. {advice}")


def is_table(X: Any) -> bool:
    """Whether rows in memory have named columns: a pandas or polars frame, or a table of pyarrow."""
    return is_arrow(X) and not hasattr(X, "get_fragments")


def as_table(X: Any) -> Any:
    """Return an array as a table with columns x0, x1, ...; frames and tables as they are."""
    if is_arrow(X):
        return X
    if sp.issparse(X):
        raise TypeError("fill= and categories='from_dtype' are not for sparse matrices.")
    array = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    if array.ndim != 2:
        raise ValueError(f"X must have the shape (n_samples, n_features), got {array.shape}.")
    pa = import_arrow("pyarrow")
    columns = {}
    for j in range(array.shape[1]):
        try:
            columns[f"x{j}"] = pa.array(array[:, j].tolist(), from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            raise ValueError(f"Column {j} of X holds numbers and text, or other objects: use one kind.") from None
    return pa.table(columns)


def column_names(X: Any) -> list[Any]:
    """Return the names of the columns of a table in memory, each of which must be there once."""
    names = list(X.column_names if hasattr(X, "column_names") else X.columns)
    check_names("X", names)
    return names


def select_columns(X: Any, names: Sequence[Any]) -> Any:
    """Return some columns of a table in memory, in this order."""
    found = column_names(X)
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; its columns are {found[:20]}.")
    return X.select(list(names)) if hasattr(X, "select") else X[list(names)]


def take_columns(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return features, target and weights where ``y``, and perhaps the weights, are names of columns of a table."""
    names = [name for name in (y, sample_weight) if isinstance(name, str)]
    chosen = select_columns(X, names)
    y, sample_weight = (_values(chosen[name]) if isinstance(name, str) else name for name in (y, sample_weight))
    return select_columns(X, [name for name in column_names(X) if name not in names]), y, sample_weight


def _values(column: Any) -> npt.NDArray[Any]:
    values = np.asarray(column.to_numpy())
    # Polars and Arrow return truth values and texts as objects.
    kinds = {type(value) for value in values.tolist()} if values.dtype == object else set()
    return values.astype(kinds.pop()) if kinds in ({bool}, {str}) else values


def group_costs(costs: Any, coding: Mapping[str, Any]) -> Any:
    """Return the price of a change for each coded column; a mapping may name some; None is for all others, else 1."""
    if not isinstance(costs, Mapping):
        return costs
    strangers = [name for name in costs if name is not None and name not in coding]
    if strangers:
        raise ValueError(f"category_cost names {strangers[:5]}, which are no columns of text: {list(coding)[:5]}.")
    return [costs.get(name, costs.get(None, 1.0)) for name in coding]
