"""What a file of rows looks like to the commands: its columns, and how it is opened as a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualcore.cli.coding import MOST_LEVELS, column_kinds, find_text, table_files
from dualcore.cli.commands.outcome import OptionError
from dualcore.cli.tables import SUFFIXES, Table, TableError, find_column, read_table
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import ArraySource, ArrowSource, Source, SourceError, SvmlightSource
from dualcore.data.sources.arrow import Tables, is_number
from dualcore.data.sources.paths import format_of

# A target of more different labels than these is taken for that of a regression.
MOST_CLASSES = 100
# Stands for the name of a target where there is none; no column is called so.
NO_TARGET = "\0"


@dataclass(frozen=True)
class Reading:
    """How rows are read, apart from which columns: missing values, separators, what counts from 0, a known coding."""

    fill: Any = None
    drop_missing: bool = False
    separator: str | None = None
    zero_based: bool | None = None
    n_features: int | None = None
    coding: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def missing(self) -> dict[str, Any]:
        """What sources are told about missing values."""
        return {"fill": self.fill, "drop_missing": self.drop_missing}


class Chosen(NamedTuple):
    """The columns of a file that are used: those of the features, the target and the weight."""

    names: tuple[str, ...]
    target: str
    weight: str | None = None


class Layout(ABC):
    """The columns of a file or folder."""

    path: Path
    names: list[str]  # of all columns; for a matrix without names, x0, x1 and so on
    # Values of the columns that are one-hot coded. Any other value of such a column becomes a row of zeros.
    coding: dict[str, tuple[Any, ...]]
    # The target where rows have one that is no column.
    own_target: str | None = None

    def find(self, name: str) -> str:
        """Return the name of a column, given by name or by position."""
        return find_column(self.path.name, self.names, name)

    def features(self, without: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the features: all columns but these."""
        names = tuple(name for name in self.names if name not in without)
        if not names:
            raise TableError(f"{self.path.name} has no feature columns left.")
        return names

    @property
    def unnamed(self) -> tuple[str, ...]:
        """Names of features that have none in the file, x0, x1 and so on; none where columns have names."""
        return ()

    def code_texts(self, chosen: Chosen) -> None:
        """Find the values of the columns of text among these, in one read: they are one-hot coded from now on."""
        texts = [name for name in chosen.names if self.is_category(name)]
        found = self._levels(texts, chosen) if texts else {}
        for name, values in found.items():
            self._check_levels(name, values)
        self.coding = {name: tuple(values) for name, values in found.items()}

    def _check_levels(self, name: str, values: Sequence[Any]) -> None:
        """Raise TableError if the values of a column of text are not those of a category."""
        numbers = [value for value in values if isinstance(value, str) and is_number(value)]
        if not values:
            raise self._not_numeric(name, "and holds no value", "Leave it out with --drop.")
        if len(values) > MOST_LEVELS:
            raise self._not_numeric(
                name,
                f"and holds more than {MOST_LEVELS} different texts, so it is not coded as a category",
                "Leave it out with --drop, or join rare texts first.",
            )
        # One typing error makes a column of numbers one of text. Whole numbers alone, stored as text, are codes.
        if 2 * len(numbers) >= len(values) and not all(str(value).isdecimal() for value in values):
            raise self._not_numeric(
                name,
                f"and {len(numbers)} of its {len(values)} different texts are numbers",
                "Leave it out with --drop, mend what is no number, or write all as words if categories are meant.",
            )

    def _not_numeric(self, name: str, why: str = "", advice: str = "") -> TableError:
        found = self._first_text(name)
        where = "" if found is None else f": {found[0]!r} in row {found[1] + 1}"
        advice = advice or "Leave it out with --drop, or encode it as numbers first."
        return TableError(
            f"Column {name!r} of {self.path.name} is not numeric{where}{', ' if why else ''}{why}. {advice}"
        )

    def is_category(self, name: str) -> bool:
        """Whether a column holds text that can be coded."""
        return False

    def _levels(self, texts: Sequence[str], chosen: Chosen) -> dict[str, list[Any]]:
        """Return the different values of columns of text, in their order; of a column with too many, some of them."""
        return {}

    def _first_text(self, name: str) -> tuple[str, int] | None:
        """Return the first value of a column that is no number, and its row from 0, where they can be told."""
        return None

    @abstractmethod
    def check_numbers(self, names: Sequence[str]) -> None:
        """Raise TableError if one of these columns does not hold numbers and is not coded."""

    @abstractmethod
    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""

    @abstractmethod
    def open(self, chosen: Chosen) -> Source:
        """Return the rows with targets that are numbers; where the target is `NO_TARGET` they mean nothing."""

    @abstractmethod
    def open_labelled(self, chosen: Chosen) -> tuple[Source, tuple[Any, ...]]:
        """Return the rows with labels of text as -1 and +1 (two of them) or 0, 1, 2, ..., and the labels.

        Labels that are numbers stay as they are; no labels are returned then.
        """


def open_layout(path: Path, reading: Reading) -> Layout:
    """Return the layout of a file or folder."""
    if path.suffix.lower() in (".npy", ".npz"):
        return _Arrays(path, reading)
    if not path.is_dir() and format_of(path) is None and (path.suffix or path.exists()):
        raise TableError(f"{path.name} is of no kind that can be read. Use one of: {', '.join(SUFFIXES)}.")
    try:
        files = table_files(path)
    except SourceError as error:
        if "holds no file" not in str(error):
            raise
        raise TableError(f"{path.name} is a folder that holds no Parquet, CSV or TSV file. {error}") from None
    kind = format_of(files[0])
    if kind == "SVMlight":
        return _Svmlight(path, reading)
    return _Arrays(path, reading) if kind == "CSV" and find_spec("pyarrow") is None else _Columns(path, reading)


class _Columns(Layout):
    """CSV and Parquet files, read by pyarrow."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self.reading, self.coding = path, reading, dict(reading.coding)
        self.tables = Tables(path, separator=reading.separator)
        self.kinds = column_kinds(self.tables)
        self.names = list(self.kinds)

    def check_numbers(self, names: Sequence[str]) -> None:
        for name in names:
            if self.kinds[name] != "number" and name not in self.coding:
                raise self._not_numeric(name)

    def is_text(self, name: str) -> bool:
        return self.kinds[name] != "number"

    def is_category(self, name: str) -> bool:
        return self.kinds[name] == "category"

    def _first_text(self, name: str) -> tuple[str, int] | None:
        return find_text(self.tables, name)

    def _levels(self, texts: Sequence[str], chosen: Chosen) -> dict[str, list[Any]]:
        # Which rows are left out depends on all columns; else those of text are enough. A number fills as any other.
        drops, fill = self.reading.drop_missing, None if self.reading.fill is None else 0.0
        others = [name for name in chosen.names if drops and self.kinds[name] == "number"]
        self.coding = dict.fromkeys(texts, ("",))  # until the values are known
        columns = chosen._replace(names=(*texts, *others))
        source = self._open(columns, ("", ""), fill=fill, drop_missing=drops)
        found: dict[str, list[Any]] = source.category_values(MOST_LEVELS)
        return found

    def open(self, chosen: Chosen) -> Source:
        if chosen.target == NO_TARGET:
            chosen = chosen._replace(target=chosen.names[0])
        source: Source = self._open(chosen, None, **self.reading.missing)
        return source

    def open_labelled(self, chosen: Chosen) -> tuple[Source, tuple[Any, ...]]:
        source = self._open(chosen, "find", **self.reading.missing)
        return source, source.labels or ()

    def _open(self, chosen: Chosen, labels: Any, **missing: Any) -> Any:
        names, target, weight = chosen
        coding = {name: values for name, values in self.coding.items() if name in names}
        options: dict[str, Any] = {"features": names, "weight": weight, "labels": labels, **missing}
        options |= {"categories": coding, "unknown": "zeros"}
        return ArrowSource(self.path, target, separator=self.reading.separator, **options)


class _Arrays(Layout):
    """Named columns in memory: numpy's files, and CSV files where pyarrow is not installed."""

    def __init__(self, path: Path, reading: Reading) -> None:
        if reading.drop_missing or reading.fill:
            raise OptionError(
                "--fill and --drop-missing are for CSV and Parquet files, and need pyarrow: "
                "pip install 'dualcore[parquet]'."
            )
        self.path, self.coding = path, dict(reading.coding)
        self.table: Table = read_table(path, reading.separator)
        self.names = list(self.table.names)

    def find(self, name: str) -> str:
        if name.endswith(".npy") and name not in self.names:  # a vector of its own, beside a matrix
            vector = np.load(name, allow_pickle=False)
            if vector.shape != (self.table.n_rows,):
                raise TableError(f"{name} has shape {vector.shape}; {self.path.name} has {self.table.n_rows} rows.")
            self.table.columns[name] = vector
            self.names.append(name)
        return super().find(name)

    def features(self, without: Sequence[str]) -> tuple[str, ...]:
        names = super().features(without)
        return self.unnamed if names == (self.table.matrix,) else names

    @property
    def unnamed(self) -> tuple[str, ...]:
        matrix = self.table.matrix
        return () if matrix is None else tuple(f"x{j}" for j in range(self.table.columns[matrix].shape[1]))

    def check_numbers(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.unnamed and name not in self.coding:
                self.table.numbers(name)

    def is_text(self, name: str) -> bool:
        return self.table.columns[name].dtype.kind not in "fiub"

    def is_category(self, name: str) -> bool:
        return name not in self.unnamed and self.table.columns[name].dtype.kind == "U"

    def _first_text(self, name: str) -> tuple[str, int] | None:
        texts = self.table.columns[name].tolist()
        return next(((text, row) for row, text in enumerate(texts) if not is_number(text)), None)

    def _levels(self, texts: Sequence[str], chosen: Chosen) -> dict[str, list[Any]]:
        return {name: sorted(set(self.table.labels(name).tolist())) for name in texts}

    def open(self, chosen: Chosen) -> Source:
        is_known = chosen.target != NO_TARGET
        y = self.table.numbers(chosen.target) if is_known else np.zeros(self.table.n_rows)
        return self._open(chosen, y, None)

    def open_labelled(self, chosen: Chosen) -> tuple[Source, tuple[Any, ...]]:
        y = self.table.labels(chosen.target)
        if y.dtype.kind in "fiu":
            return self._open(chosen, y, None), ()
        labels, place = np.unique(y, return_inverse=True)
        if labels.size == 2:
            return self._open(chosen, y, tuple(labels.tolist())), tuple(labels.tolist())
        return self._open(chosen, place.astype(np.float64), None), tuple(labels.tolist())

    def _open(self, chosen: Chosen, y: Any, labels: Any) -> Source:
        (names, _, weight), matrix = chosen, self.table.matrix
        if self.coding and matrix is None:
            X, found = np.hstack([self._coded(name) for name in names]), tuple(names)
        else:
            X, found = self.table.features(only=names if matrix is None else [matrix])
        if len(found) != len(names):
            raise TableError(f"{self.path.name} has {len(found)} features, the model takes {len(names)}.")
        return ArraySource(X, y, None if weight is None else self.table.numbers(weight), labels=labels)

    def _coded(self, name: str) -> FloatArray:
        """Return the features that a column becomes, shape (n_rows, n_values) where it is coded."""
        if name not in self.coding:
            return self.table.numbers(name)[:, None]
        texts, values = self.table.labels(name).astype(str), np.array(self.coding[name], dtype=str)
        return np.asarray(texts[:, None] == values, dtype=np.float64)


class _Svmlight(Layout):
    """SVMlight and LIBSVM text: the target stands on every line, and features have numbers for names."""

    own_target = "target"

    def __init__(self, path: Path, reading: Reading) -> None:
        if reading.drop_missing or reading.fill:
            raise OptionError("--fill and --drop-missing are for CSV and Parquet files.")
        self.path, self.coding = path, {}
        zero_based = "auto" if reading.zero_based is None else reading.zero_based
        self.source = SvmlightSource(path, n_features=reading.n_features, zero_based=zero_based)
        self.names = [f"x{j}" for j in range(self.source.n_features)]

    @property
    def unnamed(self) -> tuple[str, ...]:
        return tuple(self.names)

    def find(self, name: str) -> str:
        return name if name == self.own_target else super().find(name)

    def check_numbers(self, names: Sequence[str]) -> None:
        if list(names) != self.names:
            raise TableError(f"{self.path.name} holds sparse rows: --drop and other names cannot be used with them.")

    def is_text(self, name: str) -> bool:
        return False

    def open(self, chosen: Chosen) -> Source:
        if chosen.weight is not None or chosen.target not in (NO_TARGET, self.own_target):
            raise OptionError(f"{self.path.name} has no columns with names: leave --target and --weight out.")
        return self.source

    def open_labelled(self, chosen: Chosen) -> tuple[Source, tuple[Any, ...]]:
        return self.open(chosen), ()
