"""Rows with named columns: how files, datasets, tables and frames are opened, and how columns become numbers.

- Numbers and booleans become float64. Decimals do too.
- A category (text, or a dictionary column) is refused unless ``categories`` lists its values; it then becomes one
  0/1 column per value, in the order of the list. A value that is not in the list is an error, or a row of zeros.
- A null in a feature is an error unless ``fill`` gives a number for it or the row is dropped; NaN in a float column
  counts as null. A null category that is filled is a row of zeros.
- A null target or weight is an error unless the row is dropped.
- Anything else (dates, lists, binary) is refused by name.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.chunk import Chunk, SourceError, chunk_spans, refuse_rows
from dualcore.data.sources.paths import delimiter_of, import_arrow, is_paths, list_tables
from dualcore.data.storage import FileState
from dualcore.data.sums import exact_sum, rounded

# Bytes of text parsed at a time.
_TEXT_BLOCK = 8_388_608
_DROP = "drop_missing=True (an estimator takes it in source_options) leaves such rows out of training, not of predict"
CHOOSE = "features=[...], which an estimator takes in source_options"
# The bases of all of pyarrow's errors.
ARROW_ERRORS = (OSError, ValueError, NotImplementedError, TypeError)


def is_arrow(data: Any) -> bool:
    """Whether ``data`` is a table or dataset of pyarrow, or a data frame; imports none of them."""
    package = type(data).__module__.split(".")[0]
    if package == "pyarrow":
        return hasattr(data, "schema") and (hasattr(data, "get_fragments") or hasattr(data, "to_batches"))
    return package in ("pandas", "polars") and hasattr(data, "columns") and hasattr(data, "to_numpy")


class TablePart(NamedTuple):
    """Rows that are read by themselves: a row group, a file, or a part of a table.

    ``rows`` is a fragment of a dataset or a table. What is in memory has no name, and no file: -1.
    """

    name: str
    file: int
    rows: Any
    schema: Any

    def batches(self, names: Sequence[str], types: Mapping[str, Any], size: int) -> Iterator[Any]:
        """Yield the record batches of some columns; ``types`` are those that text is converted to."""
        if not hasattr(self.rows, "physical_schema"):  # faster than by a dataset of the table
            return iter(self.rows.select(names).to_batches(max_chunksize=size))
        fields = [self.schema.field(name).with_type(types.get(name, self.schema.field(name).type)) for name in names]
        column, schema = import_arrow("pyarrow.dataset").field, import_arrow("pyarrow").schema(fields)
        columns = {name: column(name) for name in names}  # a plain name may stand for a path, if there are dots in it
        found: Iterator[Any] = self.rows.to_batches(schema=schema, columns=columns, batch_size=size, use_threads=False)
        return found

    def count_rows(self) -> int:
        """Return how many rows there are; of text that means to parse all of it."""
        if getattr(self.rows, "row_groups", None):  # those of the whole file would be counted
            return int(self.rows.row_groups[0].num_rows)
        return int(self.rows.count_rows() if hasattr(self.rows, "count_rows") else self.rows.num_rows)

    def bytes_of(self, names: Sequence[str], file_size: int) -> int:
        """Return how many bytes of the file some columns take."""
        if not getattr(self.rows, "row_groups", None):
            return file_size * len(names) // len(self.schema)
        footer = self.rows.metadata.row_group(self.rows.row_groups[0].id)
        columns = [footer.column(k) for k in range(footer.num_columns)]
        return sum(part.total_compressed_size for part in columns if part.path_in_schema.split(".")[0] in names)


class Tables:
    """Opened rows with named columns, before it is decided which of them are features.

    Parameters
    ----------
    data : path, URI, glob, folder or list of them; dataset or table of pyarrow; pandas or polars frame
    kind : "Parquet", "CSV" or "Feather", optional
        Of files; by default what their names or their first bytes say.
    separator : str, optional
        Of CSV files.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the first file, with the columns that its folders name (``year=2024``).
    pieces : list of TablePart
    files : list of FileState
    index : list of str
        Columns that hold the index of a pandas frame; not among ``names``.
    """

    def __init__(self, data: Any, kind: str | None = None, separator: str | None = None) -> None:
        if separator is not None and len(separator) != 1:
            raise ValueError(f"separator must be one character, got {separator!r}.")
        import_arrow("pyarrow")
        self.kind, self.separator = kind, separator
        self.files: list[FileState] = []
        self.pieces: list[TablePart] = []
        if is_paths(data) or isinstance(data, (list, tuple)):
            files = list_tables(data, kind)
            self.kind = files.kind
            for _, group in groupby(files.files, key=lambda file: (file.base, file.filesystem)):
                self._add_files(list(group))
        elif hasattr(data, "get_fragments"):
            self._add_dataset(data)
        else:
            self._add_table(data)
        if not self.pieces:
            raise SourceError("The table holds no rows.")
        self.schema = self.pieces[0].schema
        self.index = self._find_index()

    @property
    def is_text(self) -> bool:
        """Whether the format stores no types of columns, as CSV."""
        return self.kind == "CSV"

    @property
    def names(self) -> list[str]:
        """The columns, without those of an index."""
        return [name for name in self.schema.names if name not in self.index]

    def _add_files(self, files: list[FileState]) -> None:
        """Add files of one folder, within which the names of folders may be columns."""
        if self.kind not in ("Parquet", "CSV", "Feather"):
            raise SourceError(f"{files[0].name} is no Parquet, CSV or Feather file.")
        ds, base = import_arrow("pyarrow.dataset"), files[0].base
        filesystem = files[0].filesystem or import_arrow("pyarrow.fs").LocalFileSystem()
        keys = _partition_keys([os.path.relpath(file.path, base) for file in files])
        for file in files:
            partition = ds.partitioning(keys, flavor="hive").parse(os.path.relpath(file.path, base))
            self.files.append(file)
            self._add_fragment(self._format(file).make_fragment(file.path, filesystem, partition), file.name, keys)

    def _format(self, file: FileState) -> Any:
        ds = import_arrow("pyarrow.dataset")
        if self.kind != "CSV":
            return ds.ParquetFileFormat() if self.kind == "Parquet" else ds.IpcFileFormat()
        text = import_arrow("pyarrow.csv")
        return ds.CsvFileFormat(
            parse_options=text.ParseOptions(delimiter=self.separator or delimiter_of(file.path)),
            default_fragment_scan_options=ds.CsvFragmentScanOptions(
                convert_options=text.ConvertOptions(strings_can_be_null=True),
                read_options=text.ReadOptions(block_size=_TEXT_BLOCK),
            ),
        )

    def _add_dataset(self, dataset: Any) -> None:
        check_names("the table", dataset.schema.names)
        try:
            fragments = list(dataset.get_fragments())
        except ValueError as error:
            raise SourceError(f"The dataset cannot be read part by part: {error}") from None
        self.kind = "CSV" if any("Csv" in type(getattr(part, "format", None)).__name__ for part in fragments) else None
        for fragment in fragments:
            path, filesystem = getattr(fragment, "path", ""), getattr(fragment, "filesystem", None)
            if path:
                local = type(filesystem).__name__ == "LocalFileSystem"
                self.files.append(FileState.of(path, None if local else filesystem))
            self._add_fragment(fragment, path, dataset.schema)

    def _add_fragment(self, fragment: Any, name: str, known: Any) -> None:
        pa, ds = import_arrow("pyarrow"), import_arrow("pyarrow.dataset")
        try:
            own, names = fragment.physical_schema, fragment.physical_schema.names
            groups = fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else []
        except ARROW_ERRORS as error:
            if self.is_text:  # pyarrow does not open a file with a repeated name
                self._check_header(name, _first_lines(fragment)[0], fragment)
            text = "CSV file with a header line, in UTF-8 (convert other encodings)"
            whole = text if self.is_text else f"whole {self.kind} file"
            raise SourceError(f"{name} is not a {whole}: {error}") from None
        keys = ds.get_partition_keys(fragment.partition_expression)
        self._check_header(name, names, fragment)
        extra = [field for field in known if field.name in keys and field.name not in names]
        schema, file = pa.schema([*own, *extra], metadata=own.metadata), len(self.files) - 1
        for part in groups:
            self.pieces.append(TablePart(f"{name}, row group {part.row_groups[0].id}", file, part, schema))
        if not groups:
            self.pieces.append(TablePart(name, file, fragment, schema))

    def _check_header(self, name: str, names: Sequence[str], fragment: Any) -> None:
        """Raise SourceError where names look like data, a column occurs twice, or all columns look like one."""
        if self.is_text and _is_row(names, fragment):
            found = f"has no line of column names: its first line looks like data ({', '.join(names[:4])} ...)"
            raise SourceError(f"{name} {found}. Add a line of names, or read it with pandas and pass the frame.")
        check_names(name, names)
        mark = next((mark for mark in ";\t|" if self.is_text and names and mark in names[0]), None)
        if len(names) == 1 and mark and not self.separator:
            use = f"use separator={mark!r} (an estimator takes it in source_options)"
            raise SourceError(f"{name} has one column, {names[0]!r}; if {mark!r} separates its values, {use}.")

    def _add_table(self, data: Any) -> None:
        pa = import_arrow("pyarrow")
        table = data
        if hasattr(data, "iloc"):  # of pandas; its index is no column
            try:
                table = pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise SourceError(f"The frame cannot be read: {error}") from None
        elif hasattr(data, "to_arrow"):
            table = data.to_arrow()
        elif not hasattr(data, "slice") or isinstance(data, pa.RecordBatch):
            table = pa.table(data)
        check_names("the table", table.column_names)
        step = 262_144  # rows that one thread takes
        for start in range(0, table.num_rows, step):
            self.pieces.append(TablePart("", -1, table.slice(start, step), table.schema))

    def _find_index(self) -> list[str]:
        """Return the columns that pandas wrote as the index of a frame; pandas does not read them as columns either."""
        if self.is_text:
            return [name for name in self.schema.names[:1] if name in ("", "Unnamed: 0")]
        stored = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return [name for name in stored if isinstance(name, str) and name in self.schema.names]


def _first_lines(fragment: Any) -> list[list[str]]:
    """Return the names of the columns of a file of text, and its first rows."""
    with fragment.filesystem.open_input_stream(fragment.path) as stream:
        lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace")
        return list(islice(csv.reader(lines, delimiter=fragment.format.parse_options.delimiter), 100)) or [[]]


def _is_row(names: Sequence[str], fragment: Any) -> bool:
    """Whether the first line of a file of text looks like a row: numbers, and texts that occur in their columns."""
    numbers = [name for name in names if is_number(name)]
    if not numbers or numbers == [str(k) for k in range(len(numbers))]:  # those of a pandas frame without names
        return False
    texts = set(names) - {"", *numbers}  # a missing value is empty
    later = (set(zip(names, row, strict=False)) for row in _first_lines(fragment)[1:])
    return not texts or any((name, name) in row for row in later for name in texts)


def check_names(where: str, names: Sequence[Any]) -> None:
    """Raise SourceError where two columns have one name."""
    twice = [name for name in names if list(names).count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise SourceError(f"The header of {where} names {twice[0]!r} twice; rename one of these columns.")


def is_number(text: object) -> bool:
    """Whether a text of a table reads as a number."""
    try:
        float(text)  # type: ignore[arg-type]  # of anything else it raises
    except (TypeError, ValueError):
        return False
    return True


# Columns

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
            leave = f"leave it out (of a file with {CHOOSE})" if name in self.features else "choose another column"
            found, advice = f"{schema.field(name).type}, not a number", f"turn it into numbers, or {leave}"
            if kind == "category":
                advice = f"mend its values, code them with categories= (estimators: 'from_dtype'), or {leave}"
            elif "binary" in found:
                advice = f"if it is text in Latin-1 or another encoding, convert the file to UTF-8, or {leave}"
            raise SourceError(f"{where}: column {name!r} is {found}; {advice}.")

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
        """The replacement of missing values, for every numeric feature that has one."""
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
            advice = f"training with fill= puts a number for it, {_DROP}"
            return [_numbers(column, name, start, self.fill.get(name), advice)]
        pa, pc, values = import_arrow("pyarrow"), import_arrow("pyarrow.compute"), list(self.categories[name])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        try:
            known = pa.array(values).cast(column.type)
        except pa.ArrowException:
            raise SourceError(f"Column {name!r} is {column.type} and cannot hold the values {values[:5]!r}.") from None
        if name not in self.fill:
            _refuse_nulls(column, name, start, f'{_DROP}; fill="mean" takes it as no category')
        position = np.asarray(pc.fill_null(pc.index_in(column, value_set=known), -1).to_numpy(zero_copy_only=False))
        if self.unknown == "error":
            unknown = (position < 0) & column.is_valid().to_numpy(zero_copy_only=False)
            found = column[int(np.argmax(unknown))].as_py()
            refuse_rows(unknown, start, f"Column {name!r} has the value {found!r}, not among {values!r}")
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
    """Return the kind of a type of Arrow: "number", "category" or "other"."""
    types = import_arrow("pyarrow").types
    if types.is_dictionary(arrow_type):
        return "category" if kind_of(arrow_type.value_type) in ("number", "category") else "other"
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(test(arrow_type) for test in numbers):
        return "number"
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return "category" if any(test(arrow_type) for test in texts) else "other"


def _partition_keys(paths: Sequence[str]) -> Any:
    """Return the columns of folder names such as ``year=2024``: integers or texts."""
    named = [part.split("=", 1) for path in paths for part in os.path.dirname(path).split(os.sep) if "=" in part]
    texts = {name for name, value in named if not value.isdigit() and value != "__HIVE_DEFAULT_PARTITION__"}
    arrow = import_arrow("pyarrow")
    return arrow.schema([(name, arrow.string() if name in texts else arrow.int32()) for name in dict(named)])


def _numbers(column: Any, name: str, start: int, fill: float | str | None, advice: str = _DROP) -> npt.NDArray[Any]:
    """Return a numeric column as a vector, without a copy where it has no nulls; ``advice`` is for these."""
    if fill is not None or str(column.type).startswith(("decimal", "null")):
        column = column.cast("float64", safe=False)  # what fills need not be a number of the column's own type
    if fill is not None:
        column = import_arrow("pyarrow.compute").if_else(column.is_null(nan_is_null=True), float(fill), column)
    _refuse_nulls(column, name, start, advice)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _refuse_nulls(column: Any, name: str, start: int, advice: str = _DROP) -> None:
    if column.null_count:
        refuse_rows(column.is_null().to_numpy(zero_copy_only=False), start, f"Column {name!r} has a null; {advice}")


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
