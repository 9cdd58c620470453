"""Rows that Arrow reads: Parquet, CSV and Feather files, `pyarrow.dataset`, Arrow tables, pandas and polars frames."""

from __future__ import annotations

import bisect
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.sources.base import LocalSource, Pieces, default_chunk_rows, touched
from dualcore.data.sources.chunk import MOST_CLASSES, Chunk, SourceError, check_labels
from dualcore.data.sources.columns import RULES, Columns, Fill, find_fills, find_values, kind_of
from dualcore.data.sources.paths import Listing, delimiter_of, format_of, import_arrow, is_paths, list_tables
from dualcore.data.storage import FileState

# Chunks decoded at a time: enough to pay for a call to the decoder, few enough to bound its memory.
_CHUNKS_PER_BATCH = 8
# Bytes of text parsed at a time.
_TEXT_BLOCK = 1 << 23
# Rows of a table in memory that one thread takes.
_TABLE_ROWS = 1 << 18
# The bases of all of pyarrow's errors.
_ARROW_ERRORS = (OSError, ValueError, NotImplementedError, TypeError)
# Stands for the labels of a target until they are found.
_UNKNOWN: tuple[Any, ...] = ("", "")


def is_arrow(data: Any) -> bool:
    """Whether ``data`` is a table or dataset of pyarrow, or a data frame; imports none of them."""
    package = type(data).__module__.split(".")[0]
    if package == "pyarrow":
        return hasattr(data, "schema") and (hasattr(data, "get_fragments") or hasattr(data, "to_batches"))
    return package in ("pandas", "polars") and hasattr(data, "columns") and hasattr(data, "to_numpy")


class TablePart(NamedTuple):
    """Rows that are read by themselves: a row group, a file, or a part of a table.

    ``rows`` is a fragment of a dataset or a table; ``n_rows`` is None where they are not counted yet.
    """

    name: str
    file: int
    rows: Any
    schema: Any
    n_rows: int | None
    group: Any = None  # what the footer of a Parquet file says about the row group

    def batches(self, names: Sequence[str], types: Mapping[str, Any], size: int) -> Iterator[Any]:
        """Yield the record batches of some columns; ``types`` are those that text is converted to."""
        if not hasattr(self.rows, "physical_schema"):
            return iter(self.rows.select(names).to_batches(max_chunksize=size))
        fields = [self.schema.field(name).with_type(types.get(name, self.schema.field(name).type)) for name in names]
        field, schema = import_arrow("pyarrow.dataset").field, import_arrow("pyarrow").schema(fields)
        columns = {name: field(name) for name in names}  # a plain name may stand for a path, if there are dots in it
        found: Iterator[Any] = self.rows.to_batches(schema=schema, columns=columns, batch_size=size, use_threads=False)
        return found

    def bytes_of(self, names: Sequence[str], file_size: int) -> int:
        """Return how many bytes of the file some columns take."""
        if self.group is None:
            return file_size * len(names) // len(self.schema)
        columns = [self.group.column(k) for k in range(self.group.num_columns)]
        return sum(part.total_compressed_size for part in columns if part.path_in_schema.split(".")[0] in names)


class Tables:
    """Rows with named columns that are opened, before it is known which of them are features.

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
    index : tuple of str
        Columns that hold the index of a pandas frame; not among ``names``.
    """

    def __init__(self, data: Any, kind: str | None = None, separator: str | None = None) -> None:
        if separator is not None and len(separator) != 1:
            raise ValueError(f"separator must be one character, got {separator!r}.")
        import_arrow("pyarrow")
        self.kind, self.separator = kind, separator
        self.files: list[FileState] = []
        self.pieces: list[TablePart] = []
        self.index: tuple[str, ...] = ()
        if is_paths(data) or isinstance(data, (list, tuple)):
            for listing in list_tables(data, kind):
                self._add_files(listing)
        elif hasattr(data, "get_fragments"):
            self._add_dataset(data)
        else:
            self._add_table(data)
        self.schema = self.pieces[0].schema
        self._find_index()

    @property
    def is_text(self) -> bool:
        """Whether columns have no types of their own."""
        return self.kind == "CSV"

    @property
    def names(self) -> list[str]:
        """The columns, without those of an index."""
        return [name for name in self.schema.names if name not in self.index]

    def is_label(self, name: str) -> bool:
        """Whether a column holds texts or truth values, not numbers."""
        if name not in self.schema.names:
            return False
        kind = self.schema.field(name).type
        return kind_of(kind) == "category" or bool(import_arrow("pyarrow").types.is_boolean(kind))

    def _add_files(self, listing: Listing) -> None:
        ds, fs = import_arrow("pyarrow.dataset"), import_arrow("pyarrow.fs")
        filesystem = listing.filesystem or fs.LocalFileSystem()
        options = ds.FileSystemFactoryOptions(listing.base, ds.HivePartitioning.discover(), False)
        folders = ds.FileSystemDatasetFactory(filesystem, listing.files, ds.ParquetFileFormat(), options)
        keys = folders.inspect(fragments=0)  # looks at the paths only
        for file, shown in zip(listing.files, listing.names, strict=True):
            kind = self.kind or format_of(file, listing.filesystem)
            if kind is None or kind == "SVMlight":
                raise SourceError(f"{shown} is no Parquet, CSV or Feather file.")
            self.kind = kind
            self.files.append(FileState.of(file, listing.filesystem, shown))
            try:
                place = ds.partitioning(keys, flavor="hive").parse(os.path.relpath(file, listing.base))
                self._add_fragment(self._format(file).make_fragment(file, filesystem, place), shown, keys)
            except _ARROW_ERRORS as error:
                if isinstance(error, SourceError):
                    raise
                twice = re.search("multiple columns named (.*)", str(error))
                if twice is not None:
                    check_header(shown, [twice.group(1)] * 2, is_text=True)
                whole = "CSV file with a header line" if kind == "CSV" else f"whole {kind} file"
                raise SourceError(f"{shown} is not a {whole}: {error}") from None

    def _format(self, file: str) -> Any:
        ds = import_arrow("pyarrow.dataset")
        if self.kind != "CSV":
            return ds.ParquetFileFormat() if self.kind == "Parquet" else ds.IpcFileFormat()
        csv = import_arrow("pyarrow.csv")
        return ds.CsvFileFormat(
            parse_options=csv.ParseOptions(delimiter=self.separator or delimiter_of(file)),
            default_fragment_scan_options=ds.CsvFragmentScanOptions(
                convert_options=csv.ConvertOptions(strings_can_be_null=True),
                read_options=csv.ReadOptions(block_size=_TEXT_BLOCK),
            ),
        )

    def _add_fragment(self, fragment: Any, name: str, known: Any) -> None:
        pa, ds = import_arrow("pyarrow"), import_arrow("pyarrow.dataset")
        own, keys = fragment.physical_schema, ds.get_partition_keys(fragment.partition_expression)
        check_header(name, own.names, is_text=self.is_text)
        extra = [field for field in known if field.name in keys and field.name not in own.names]
        schema, file = pa.schema([*own, *extra], metadata=own.metadata), len(self.files) - 1
        groups = fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else []
        if not groups:
            n_rows = None if self.is_text else fragment.count_rows()
            self.pieces.append(TablePart(name, file, fragment, schema, n_rows))
        for part in groups:
            number = part.row_groups[0].id
            footer = part.metadata.row_group(number)
            self.pieces.append(TablePart(f"{name}, row group {number}", file, part, schema, footer.num_rows, footer))

    def _add_dataset(self, dataset: Any) -> None:
        try:
            fragments = list(dataset.get_fragments())
        except ValueError as error:
            raise SourceError(f"The dataset cannot be read part by part: {error}") from None
        text = any("Csv" in type(getattr(fragment, "format", None)).__name__ for fragment in fragments)
        self.kind = "CSV" if text else None
        for number, fragment in enumerate(fragments):
            path, filesystem = getattr(fragment, "path", None), getattr(fragment, "filesystem", None)
            if path:
                local = type(filesystem).__name__ == "LocalFileSystem"
                self.files.append(FileState.of(path, None if local else filesystem))
            self._add_fragment(fragment, path or f"fragment {number}", dataset.schema)

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
        check_header("The table", table.column_names, is_text=False)
        for start in range(0, max(table.num_rows, 1), _TABLE_ROWS):
            part = table.slice(start, _TABLE_ROWS)
            self.pieces.append(TablePart("", -1, part, table.schema, part.num_rows))

    def _find_index(self) -> None:
        """Find the columns that pandas wrote as the index of a frame; pandas does not read them as columns either."""
        stored = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        index = [name for name in stored if isinstance(name, str) and name in self.schema.names]
        if self.is_text and self.schema.names[0] in ("", "Unnamed: 0"):
            index = [self.schema.names[0]]
        self.index = tuple(index)


def check_header(where: str, names: Sequence[str], *, is_text: bool) -> None:
    """Raise an error where two columns have one name, or the first line of a text holds numbers only."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise SourceError(f"{where} has two columns called {twice!r}. Column names must differ.")
    # Columns that were never named are 0, 1, 2, ... of a pandas frame.
    if is_text and all(is_number(name) for name in names) and list(names) != [str(k) for k in range(len(names))]:
        raise SourceError(f"{where} has no line of column names: its first line holds numbers only. Add one.")


def is_number(text: object) -> bool:
    """Whether a text of a table reads as a number."""
    try:
        float(text)  # type: ignore[arg-type]  # of anything else it raises
    except (TypeError, ValueError):
        return False
    return True


class ArrowSource(LocalSource):
    r"""Columns of files, datasets, tables and frames.

    Only the columns that are asked for are read. A truncated file, a missing one or one with another schema is reported
    before any row is read. Row numbers count on through the files in the order of their names. A folder may be
    partitioned: of ``clicks/year=2024/part-0.parquet`` the column ``year`` is a feature like any other.

    Parameters
    ----------
    data : path, URI, glob, folder or list of them; dataset or table of pyarrow; pandas or polars frame
        Files are Parquet, CSV (``.csv`` or ``.tsv``, also with ``.gz`` or ``.bz2``; an empty field is a null, and so
        is ``NA`` or ``NaN``) or Feather (``.feather``, ``.arrow``). A URI is opened by pyarrow or fsspec:
        ``s3://bucket/clicks/*.parquet``.
    target : str
    features : sequence of str, optional
        In this order; all columns but target and weight by default. A column that holds the index of a pandas frame
        is left out with a warning unless it is named.
    weight : str, optional
    labels : sequence or "find", optional
        The values of a classifier's target. Two become -1 and +1; of more each becomes its place in the list: 0, 1, 2
        and so on. "find" reads them off a target of text or truth values, and leaves numbers as they are.
    categories : mapping of str to sequence, optional
        Values of category columns: each becomes one 0/1 column per value. Category columns are refused otherwise.
    unknown : "error" or "zeros", default="error"
        What becomes of a value that ``categories`` does not list; "zeros" is a row of zeros, no category.
    fill : float, "mean", "median", or mapping of str to these, optional
        What to put for nulls and NaN in features; without it they are an error. Mean and median of the values that are
        there take one more read when the source is opened; ``fill_values`` has the numbers that were found. The median
        keeps all values at once and is refused where they are many.
    drop_missing : bool, default=False
        Leave out rows in which the target, the weight or a feature is missing; with ``fill`` features are filled.
        Row numbers then count the rows that are left, and ``n_dropped`` the others.
    separator : str, optional
        What stands between the values of CSV files; by default a tab in files that end in ``.tsv``, else a comma.
    chunk_rows : int, optional
        Rows computed with at a time; eight times as many are decoded at a time.

    Notes
    -----
    Memory: a row group's compressed bytes, and eight chunks of rows, for every thread.

    The pilot draw needs labels and row numbers first: the target column alone is read. The pilot's rows are then
    fetched from their row groups. Unless there are more row groups than pilot rows, that is one read.

    How many rows a CSV file has is not known before all of them were parsed: the first use counts them, and their
    labels, in one read; the pilot draw is another. To read a file often, convert it to Parquet once.

    Examples
    --------
    >>> import pyarrow as pa
    >>> ArrowSource(pa.table({"x": [0.5, 1.5], "y": ["no", "yes"]}), "y", labels=("no", "yes"))
    <ArrowSource of 2 rows, 1 features>
    """

    columns: Columns
    n_dropped = 0
    extra_threads = 1
    kind: ClassVar[str | None] = None

    def __init__(
        self,
        data: Any,
        target: str,
        *,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        labels: Sequence[Any] | str | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        unknown: str = "error",
        fill: Fill | None = None,
        drop_missing: bool = False,
        separator: str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.tables = tables = Tables(data, self.kind, separator)
        self.files = tables.files
        where = self._place(0) or "The table"
        if tables.index and not features:
            warnings.warn(
                f"{where}: column {', '.join(map(repr, tables.index))} looks like the index of a pandas frame and is "
                "left out. Write the file with index=False, or name the columns to use with features=[...].",
                UserWarning,
                stacklevel=2,
            )
        chosen = tuple(features or (name for name in tables.names if name not in (target, weight)))
        if isinstance(labels, str):  # "find"
            labels = _UNKNOWN if tables.is_label(target) else None
        columns = Columns(target, chosen, weight, labels, dict(categories or {}), fill, drop_missing, unknown)
        self.columns = columns
        self._check_schemas(where, exactly=not features)
        self.is_weighted, self.n_features = weight is not None, columns.n_features
        self.feature_names = None if columns.categories else chosen
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features)
        self._types = self._scan_types()
        self._find_rows()
        if labels is _UNKNOWN:
            place = f"Column {target!r}{f' of {self._file_name}' if len(self.files) == 1 else ''}"
            labels = check_labels(self._target_values(), place)
        self.columns = replace(self.columns, labels=labels)
        self.labels = None if labels is None else tuple(labels)

    def _place(self, piece: int) -> str:
        return self.tables.pieces[piece].name.rsplit(", row group ")[0]

    @property
    def _file_name(self) -> str:
        return self._place(0).rsplit("/")[-1] or "the table"

    def _check_schemas(self, where: str, *, exactly: bool) -> None:
        """Raise SourceError unless the columns are in all files, and with ``exactly`` no others."""
        first, seen = self.tables.schema, -2
        for number, piece in enumerate(self.tables.pieces):
            if piece.file == seen:
                continue
            seen, place = piece.file, self._place(number) or where
            self.columns.check(piece.schema, place)
            more = [name for name in piece.schema.names if name not in first.names]
            if exactly and more:
                raise SourceError(
                    f"{place} has a column {more[0]!r} that the first file has not: the schemas differ. "
                    "Name the columns to use with features=[...]."
                )

    def _scan_types(self) -> dict[str, Any]:
        """Return the types that columns of text are converted to: those found in its beginning are a guess."""
        if not self.tables.is_text:
            return {}
        pa, columns, types = import_arrow("pyarrow"), self.columns, {}
        for name in columns.names(features=True):
            kind = self.tables.schema.field(name).type
            text = name in columns.categories or kind_of(kind) != "number"
            types[name] = pa.string() if text else kind if pa.types.is_boolean(kind) else pa.float64()
        return types

    def _find_rows(self) -> None:
        """Find out what has to be known before a row is given out: where rows are, and the numbers that fill."""
        columns = self.columns
        rules = {name: str(rule) for name, rule in columns.fill_values.items() if rule in RULES}
        self._used = [piece for piece in self.tables.pieces if piece.n_rows != 0]
        if not self._used:
            raise SourceError(f"{self._place(0) if len(self.files) == 1 else 'The table'} holds no rows.")
        self._seen = counts = [piece.n_rows or 0 for piece in self._used]
        self._is_counted = None not in {piece.n_rows for piece in self._used}
        self.labels_alone = self._is_counted and not columns.needed
        self.random_access = not self.files
        if rules or (self._is_counted and columns.drop_missing):
            self.n_reads += 1 if rules or columns.needed else 0
            counts = [0] * len(counts)

            def batches() -> Iterator[Any]:
                for number in range(len(counts)):
                    for batch in self._batches(number, bool(rules)):
                        counts[number] += batch.num_rows
                        yield batch

            found = find_fills(batches(), rules)
            if found:
                gaps = {name: 0.0 for name in columns.categories if columns.rule(name) is not None}
                self.columns = replace(columns, fill=gaps | columns.fill_values | found)
        if self._is_counted:
            self._n_rows = sum(counts)
            self.n_dropped = sum(self._seen) - self._n_rows
            if not self._n_rows:
                raise SourceError(f"Every row of {self._file_name} has a missing value: nothing is left to read.")
            self._used = [piece for piece, count in zip(self._used, counts, strict=True) if count]
        self._starts = list(accumulate((count for count in counts if count), initial=0))
        self._n_pieces = len(self._used)

    def _all_batches(self, *, features: bool) -> Iterator[Any]:
        """Yield the record batches of all pieces, without the features unless asked for."""
        for number in range(len(self._used)):
            yield from self._batches(number, features)

    def _batches(self, number: int, features: bool) -> Iterator[Any]:
        """Yield the record batches of a piece; only the columns that are needed are converted."""
        piece, seen = self._used[number], 0
        names = self.columns.names(features=features)
        try:
            for batch in piece.batches(names, self._types, _CHUNKS_PER_BATCH * self.chunk_rows):
                seen += batch.num_rows
                kept = self.columns.keep(batch)
                if kept.num_rows:
                    yield kept
        except _ARROW_ERRORS as error:
            raise SourceError(f"Could not read {piece.name} after {self._row_word} {seen}: {error}") from None
        self._seen[number] = seen

    @property
    def _row_word(self) -> str:
        return "data row" if self.tables.is_text else "row"

    @property
    def fill_values(self) -> dict[str, float]:
        """The number that is put for missing values of each feature."""
        return self.columns.fill_values

    def _target_values(self) -> list[Any]:
        """Return the different targets as they are in the files, or more of them than classes can be."""
        self._count_targets()
        target = self.columns.target
        return find_values(self._all_batches(features=False), [target], MOST_CLASSES)[target]

    def category_values(self, most: int) -> dict[str, list[Any]]:
        """Return the different values of every column in ``categories``, in one read; more than ``most`` end a search.

        What ``categories`` lists for them plays no part.
        """
        self.n_reads += 1
        return find_values(self._all_batches(features=True), self.columns.categories, most)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.n_rows} rows, {self.n_features} features>"

    def describe(self, row: int) -> str:
        number = min(bisect.bisect_right(self._starts, row), len(self._used)) - 1
        name = self._used[number].name
        if not name:
            return f"row {row}"
        which = "those that are left" if self.columns.drop_missing else "it"
        return f"{name}, {self._row_word} {row - self._starts[number]} of {which}"

    def _reads_all(self, rows: npt.NDArray[np.int64]) -> bool:
        if self.random_access or not self._is_counted:
            return not self.random_access
        return len(touched(self._starts[:-1], rows)) == len(self._used)

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        if not self._is_counted:
            yield from self._in_turn(features)
            return
        for number in range(len(self._used)) if wanted is None else touched(self._starts[:-1], wanted):
            self._count_bytes(number, features)
            yield partial(self._chunks, number, features)

    def _count_bytes(self, number: int, features: bool) -> None:
        piece, names = self._used[number], self.columns.names(features=features)
        self.bytes_read += piece.bytes_of(names, self.files[piece.file].size) if self.files else 0

    def _chunks(self, number: int, features: bool) -> Iterator[Chunk]:
        start = self._starts[number]
        for batch in self._batches(number, features):
            yield from self.columns.chunks(batch, start, self.chunk_rows, features=features)
            start += batch.num_rows

    def _in_turn(self, features: bool) -> Pieces:
        """Yield the batches of files whose rows are not counted, one after the other; threads turn them into rows."""
        start, self._starts = 0, [0]
        for number in range(len(self._used)):
            self._count_bytes(number, features)
            for batch in self._batches(number, features):
                yield partial(self.columns.chunks, batch, start, self.chunk_rows, features=features)
                start += batch.num_rows
            self._starts.append(start)
        self.n_dropped = sum(self._seen) - start
        if not start:
            why = "every row has a missing value" if self.n_dropped else "there is nothing after the header line"
            raise SourceError(f"{self._file_name} holds no rows: {why}.")
        if self._n_rows is not None and start != self._n_rows:
            raise SourceError(f"The files hold {start} rows now but held {self._n_rows} before.")


class ParquetSource(ArrowSource):
    """A Parquet file, a folder of them, or a list, whatever their names; see `ArrowSource`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [0.5, 1.5], "y": ["no", "yes"]}), f"{folder}/rows.parquet")
    ...     ParquetSource(folder, "y", labels=("no", "yes"))
    <ParquetSource of 2 rows, 1 features>
    """

    kind = "Parquet"


class CsvSource(ArrowSource):
    r"""A CSV file with a header line, a folder of them, or a list, whatever their names; see `ArrowSource`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rows.csv").write_text("x,y\n0.5,-1\n1.5,1\n")
    ...     CsvSource(f"{folder}/rows.csv", "y").n_rows
    2
    """

    kind = "CSV"
