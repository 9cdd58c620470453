"""Rows that Arrow reads: Parquet, CSV and Feather files, `pyarrow.dataset`, Arrow tables, pandas and polars frames."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

from dualcore.data.sources.base import LocalSource, Pieces, Wanted, default_chunk_rows
from dualcore.data.sources.chunk import Chunk, SourceError
from dualcore.data.sources.paths import import_arrow
from dualcore.data.sources.tables import ARROW_ERRORS, CHOOSE, RULES, Columns, Fill, Tables, find_fills, kind_of

# Chunks decoded at a time: enough to pay for a call to the decoder, few enough to bound its memory.
_CHUNKS_PER_BATCH = 8


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
    categories : mapping of str to sequence, optional
        Values of category columns: each becomes one 0/1 column per value. Category columns are refused otherwise.
    unknown : "error" or "zeros", default="error"
        What to do with a value that ``categories`` does not list; "zeros" codes it as zeros.
    fill : float, "mean", "median", or mapping of str to these, optional
        Replacement for nulls and NaN in features; without it they are an error. Mean and median of the other values
        take one more read when the source is opened; ``fill_values`` are the resulting numbers. The median needs all
        values in memory and is refused if there are too many.
    drop_missing : bool, default=False
        Leave out rows in which the target, the weight or a feature is missing; with ``fill`` features are filled.
        Row numbers then count the rows that are left, and ``n_dropped`` the others.
    separator : str, optional
        Separator of the values in CSV files; by default a tab in files that end in ``.tsv``, else a comma.
    chunk_rows : int, optional
        Rows of a chunk; eight times as many are decoded at a time.

    Notes
    -----
    Memory: a row group's compressed bytes, and eight chunks of rows, for every thread.

    The pilot draw needs labels and row numbers first: the target column alone is read. The pilot's rows are then
    fetched from their row groups. Unless there are more row groups than pilot rows, that is one read.

    The number of rows of a CSV file is known only after parsing all of it: the first use counts them. That takes about
    a fifth of a read, and so does every use of the targets alone. Convert files that are read often to Parquet.

    Examples
    --------
    >>> import pyarrow as pa
    >>> ArrowSource(pa.table({"x": [0.5, 1.5], "y": [0.0, 2.0]}), "y")
    <ArrowSource of 2 rows, 1 features>
    """

    columns: Columns
    extra_threads = 1
    kind: ClassVar[str | None] = None

    def __init__(
        self,
        data: Any,
        target: str,
        *,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        unknown: str = "error",
        fill: Fill | None = None,
        drop_missing: bool = False,
        separator: str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.tables = tables = Tables(data, self.kind, separator)
        self.files, self._row_word = tables.files, "data row" if tables.is_text else "row"
        where = self._file_of(0) or "The table"
        if tables.index and not features:
            warnings.warn(
                f"{where}: column {', '.join(map(repr, tables.index))} looks like the index of a pandas frame and is "
                f"left out. Write the file with index=False, or choose columns with {CHOOSE}.",
                stacklevel=2,
            )
        chosen = tuple(features or (name for name in tables.names if name not in (target, weight)))
        given: Mapping[str, Any] = fill if isinstance(fill, Mapping) else dict.fromkeys(chosen, fill)
        rules = {name: given[name] for name in chosen if given.get(name) is not None}
        columns = Columns(target, chosen, weight, dict(categories or {}), rules, drop_missing, unknown)
        self.columns = columns
        self._check_schemas(where, exactly=not features)
        self.is_weighted, self.n_features = weight is not None, columns.n_features
        self.feature_names = None if columns.categories else chosen
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features)
        self._types = self._scan_types()
        kind = tables.schema.field(target).type
        if target not in columns.categories:
            self.target_type = str if kind_of(kind) == "category" else bool if str(kind) == "bool" else float
        self._find_rows()

    def _file_of(self, piece: int) -> str:
        return self.tables.pieces[piece].name.rsplit(", row group ")[0]

    def _check_schemas(self, where: str, *, exactly: bool) -> None:
        """Raise SourceError unless the columns are in all files, and with ``exactly`` no others."""
        first, last = self.tables.schema, None
        for number, piece in enumerate(self.tables.pieces):
            if piece.schema is last:  # of the same file
                continue
            last, file = piece.schema, self._file_of(number) or where
            self.columns.check(last, file)
            more = [name for name in last.names if name not in first.names]
            if exactly and more:
                why = f"{file} has a column {more[0]!r} that the first file has not: the schemas differ"
                raise SourceError(f"{why}. Choose columns with {CHOOSE}.")

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
        """Find out what has to be known before a row is given out: the numbers that fill, and where rows are.

        Rows of text, and those that are left where some are dropped, are counted by the first pass over them.
        """
        columns = self.columns
        rules = {name: str(rule) for name, rule in columns.fill_values.items() if rule in RULES}
        if rules:
            self.columns = dataclasses.replace(columns, fill={**columns.fill, **find_fills(self._read_all(), rules)})
        self.labels_alone, self.random_access = not columns.needed, not self.files
        if not self.tables.is_text and not columns.drop_missing:
            self._place([piece.count_rows() for piece in self.tables.pieces])

    def _place(self, counts: Sequence[int]) -> None:
        """Number the rows of all pieces, from the number of rows of each."""
        *self._piece_starts, n_rows = accumulate(counts, initial=0)
        if not n_rows:
            where = (self._file_of(0) if len(self.files) == 1 else "") or "The table"
            why = ": every row has a missing value" if self.n_dropped else ""
            raise SourceError(f"{where} holds no rows{why}.")
        self._n_rows = n_rows

    def _read_all(self) -> Iterator[Any]:
        """Yield the record batches of all pieces, without the rows that are left out."""
        self.n_reads += 1
        for number in range(len(self.tables.pieces)):
            yield from map(self.columns.keep, self._batches(number, True))

    def _batches(self, number: int, features: bool) -> Iterator[Any]:
        """Yield the record batches of a piece; only the columns that are needed are converted."""
        piece, seen = self.tables.pieces[number], 0
        names = self.columns.names(features=features)
        try:
            for batch in piece.batches(names, self._types, _CHUNKS_PER_BATCH * self.chunk_rows):
                seen += batch.num_rows
                yield batch
        except ARROW_ERRORS as error:
            raise SourceError(f"Could not read {piece.name} after {self._row_word} {seen}: {error}") from None

    @property
    def fill_values(self) -> dict[str, float]:
        """The number that is put for missing values of each feature."""
        return self.columns.fill_values

    def category_values(self, most: int) -> dict[str, list[Any]]:
        """Return the different values of every column in ``categories``, in their order, in one read.

        Of a column that has more than ``most`` the values that were found by then are returned; where all have, the
        search ends. What ``categories`` lists for them plays no part.
        """
        found: dict[str, set[Any]] = {name: set() for name in self.columns.categories}
        for batch in self._read_all():
            for name, values in found.items():
                if len(values) <= most:
                    values.update(value for value in batch.column(name).unique().to_pylist() if value is not None)
            if all(len(values) > most for values in found.values()):
                break
        return {name: sorted(values) for name, values in found.items()}

    def _name_of(self, piece: int) -> str:
        name = self.tables.pieces[piece].name
        kept = "kept " if self.columns.drop_missing else ""
        return f"{name}, {kept}{self._row_word}" if name else ""

    def _pieces(self, *, features: bool, wanted: Wanted) -> Pieces:
        counted, counts, dropped = self._n_rows is not None, list[int](), 0
        for number in self._touched(wanted) if counted and wanted is not None else range(len(self.tables.pieces)):
            piece, names = self.tables.pieces[number], self.columns.names(features=features)
            self.bytes_read += piece.bytes_of(names, self.files[piece.file].size) if piece.file >= 0 else 0
            if counted:
                yield partial(self._chunks, number, features)
                continue
            self._piece_starts = list(accumulate(counts, initial=0))
            counts.append(0)
            for batch in self._batches(number, features):  # read one after the other; threads turn them into rows
                kept = self.columns.keep(batch)
                yield partial(self.columns.chunks, kept, sum(counts), self.chunk_rows, features=features)
                counts[-1], dropped = counts[-1] + kept.num_rows, dropped + batch.num_rows - kept.num_rows
        if not counted:
            self.n_dropped = dropped
            self._place(counts)

    def _chunks(self, number: int, features: bool) -> Iterator[Chunk]:
        start = self._piece_starts[number]
        for batch in map(self.columns.keep, self._batches(number, features)):
            yield from self.columns.chunks(batch, start, self.chunk_rows, features=features)
            start += batch.num_rows


class ParquetSource(ArrowSource):
    """A Parquet file, a folder of them, or a list, with any file names; see `ArrowSource`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [0.5, 1.5], "y": [0.0, 2.0]}), f"{folder}/rows.parquet")
    ...     ParquetSource(folder, "y")
    <ParquetSource of 2 rows, 1 features>
    """

    kind = "Parquet"


class CsvSource(ArrowSource):
    r"""A CSV file with a header line, a folder of them, or a list, with any file names; see `ArrowSource`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rows.csv").write_text("x,y\n0.5,-1\n1.5,1\n")
    ...     CsvSource(f"{folder}/rows.csv", "y").n_rows
    2
    """

    kind = "CSV"
