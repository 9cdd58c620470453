"""Rows in files: Parquet, a row group at a time, and CSV through the same columns."""

from __future__ import annotations

import bisect
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.sources.base import touched
from dualcore.data.sources.chunk import Chunk, SourceError, two_labels
from dualcore.data.sources.coding import find_values
from dualcore.data.sources.local import LocalSource, Pieces, default_chunk_rows
from dualcore.data.sources.paths import PARQUET, TEXT, Paths, delimiter_of, list_files
from dualcore.data.sources.tables import Block, Columns, Fill, aligned_chunks, import_arrow, is_text
from dualcore.data.storage import FileState
from dualcore.data.sums import leaf_rows

# Chunks decoded at a time: enough to pay for a call to the decoder, few enough to bound its memory.
_CHUNKS_PER_BATCH = 8
# Bytes of text parsed at a time.
_TEXT_BLOCK = 1 << 23


# Stands for the labels of a target of text until they are found.
_UNKNOWN: tuple[Any, Any] = ("", "")


class _RowGroup(NamedTuple):
    """Where a row group is: file, number in it, global number of its first row, rows, bytes (all, labels alone)."""

    file: int
    number: int
    start: int
    n_rows: int
    bytes_all: int
    bytes_labels: int


class _TableSource(LocalSource):
    """Columns of files that pyarrow reads: what Parquet and CSV have in common."""

    columns: Columns
    n_dropped = 0
    suffixes: ClassVar[tuple[str, ...]]  # of the files of a folder

    def __init__(
        self,
        path: Paths,
        target: str,
        *,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        labels: Sequence[Any] | str | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        unknown: str = "error",
        fill: Fill | None = None,
        drop_missing: bool = False,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        import_arrow("pyarrow")
        columns = Columns(target, features, weight, labels, dict(categories or {}), fill, drop_missing, unknown)
        self.files = [FileState.of(file) for file in list_files(path, self.suffixes)]
        self.columns = columns
        for place, file in enumerate(self.files):
            schema, where = self._schema(file.path), str(file.path)
            if place:
                self.columns.check(schema, where, exactly=not columns.features)
                continue
            if columns.labels == "find":
                self.columns = replace(columns, labels=_UNKNOWN if is_text(schema, columns.target) else None)
            self.columns = self.columns.resolve(schema, where)
        self.is_weighted, self.n_features = columns.weight is not None, self.columns.n_features
        self.chunk_rows = chunk_rows or default_chunk_rows(self.n_features)
        self._find_rows()
        self._set_labels()

    @abstractmethod
    def _find_rows(self) -> None:
        """Find out what has to be known before a row is given out: where rows are, and the numbers that fill."""

    @abstractmethod
    def _schema(self, path: Path) -> Any:
        """Return the schema of a file."""

    @abstractmethod
    def _all_batches(self, features: bool) -> Iterator[Any]:
        """Yield the record batches of all files, without the features unless asked for."""

    @abstractmethod
    def _target_batches(self) -> Iterator[Any]:
        """Yield the record batches without the features, and count the read."""

    def _set_labels(self) -> None:
        """Find labels that are not known yet, and name the features."""
        if self.columns.labels is _UNKNOWN:
            found = two_labels(self.target_values(2), f"Column {self.columns.target!r}")
            self.columns = replace(self.columns, labels=found)
        labels, self.feature_names = self.columns.labels, self.columns.plain_names
        self.labels = (labels[0], labels[1]) if labels is not None and len(labels) == 2 else None

    @property
    def fill_values(self) -> dict[str, float]:
        """The number that is put for missing values of each feature."""
        return self.columns.fill_values

    def target_values(self, most: int) -> list[Any]:
        """Return the different targets as they are in the files, or the first ``most`` and one."""
        target = self.columns.target
        return find_values(self._target_batches(), [target], most)[target]

    def category_values(self, most: int) -> dict[str, list[Any]]:
        """Return the different values of every column in ``categories``, in one read; more than ``most`` end a search.

        What ``categories`` lists for them plays no part.
        """
        self.n_reads += 1
        return find_values(self._all_batches(True), self.columns.categories, most)

    def _place(self, row: int) -> str:
        """Return the words for a row of a file or row group, counted from its first row."""
        return f"row {row} of {'those that are left' if self.columns.drop_missing else 'it'}"


class ParquetSource(_TableSource):
    """A Parquet file, a folder of them, or a list.

    Only the columns that are asked for are read. Footers are read when the source is opened, so a truncated file, a
    missing one or one with another schema is reported before any row is read. Row numbers count on through the files
    in the order of their names.

    Parameters
    ----------
    path : str, Path or sequence of them
    target : str
    features : sequence of str, optional
        In this order; all columns but target and weight by default.
    weight : str, optional
    labels : (negative, positive) or "find", optional
        The two values of a classifier's target; they become -1 and +1. "find" reads them off a target of text. Of more
        than two values each becomes its place in the list: 0, 1, 2 and so on.
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
    chunk_rows : int, optional
        Rows computed with at a time; eight times as many are decoded at a time.

    Notes
    -----
    Memory: a row group's compressed bytes, and eight chunks of rows, for every thread.

    The pilot draw needs labels and row numbers first: the target column alone is read (``partial_reads`` counts its
    share of the bytes). The pilot's rows are then fetched from their row groups. If these are most of the row groups,
    as they are unless there are more row groups than pilot rows, that is one read and ``n_reads`` counts it.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [0.5, 1.5], "y": ["no", "yes"]}), f"{folder}/rows.parquet")
    ...     ParquetSource(folder, "y", labels=("no", "yes"))
    <ParquetSource of 2 rows, 1 features, 1 row groups>
    """

    extra_threads = 1
    suffixes = PARQUET
    _footers: tuple[Any, ...] = ()

    def _find_rows(self) -> None:
        self._groups = list(self._list_groups())
        if not self._groups:
            raise SourceError(
                f"{self.files[0].path} holds no rows." if len(self.files) == 1 else "The files hold no rows."
            )
        self.labels_alone = self.columns.labels_alone
        if self.columns.needs_pass or self.columns.drop_missing:
            self._count_missing()
        self._starts, self._n_pieces = [group.start for group in self._groups], len(self._groups)
        self._n_rows = self._groups[-1].start + self._groups[-1].n_rows

    def _count_missing(self) -> None:
        """Find the numbers that fill, and how many rows of each row group are left."""
        fills = self.columns.needs_pass
        if fills or not self.columns.labels_alone:
            self.n_reads += 1
        else:
            self.partial_reads += self._label_share()
        statistics, groups, start = self.columns.statistics(), list[_RowGroup](), 0
        for group in self._groups:
            n_rows = 0
            for batch in self._batches(group, fills):
                statistics.add(batch)
                n_rows += batch.num_rows
            if n_rows:
                groups.append(group._replace(start=start, n_rows=n_rows))
            start += n_rows
        if not groups:
            raise SourceError(f"Every row of {self.files[0].path.name} has a missing value: nothing is left to read.")
        self.n_dropped = sum(group.n_rows for group in self._groups) - start
        self._groups, self.columns = groups, self.columns.filled(statistics.numbers())

    def _all_batches(self, features: bool) -> Iterator[Any]:
        for group in self._groups:
            yield from self._batches(group, features)

    def _target_batches(self) -> Iterator[Any]:
        self.partial_reads += self._label_share()
        yield from self._all_batches(False)

    def _schema(self, path: Path) -> Any:
        try:
            file = import_arrow("pyarrow.parquet").ParquetFile(path)
        except (OSError, ValueError, NotImplementedError, TypeError) as error:  # bases of all of pyarrow's errors
            raise SourceError(f"{path} is not a whole Parquet file: {error}") from None
        with file:
            self._footers += (file.metadata,)
            return file.schema_arrow

    def _list_groups(self) -> Iterator[_RowGroup]:
        wanted, labels = (set(self.columns.names(features=features)) for features in (True, False))
        start = 0
        for place, footer in enumerate(self._footers):
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                columns = [group.column(k) for k in range(group.num_columns)]
                sizes = [(column.path_in_schema.split(".")[0], column.total_compressed_size) for column in columns]
                total, alone = (sum(size for name, size in sizes if name in some) for some in (wanted, labels))
                if group.num_rows:
                    yield _RowGroup(place, number, start, group.num_rows, total, alone)
                start += group.num_rows

    def __repr__(self) -> str:
        return f"<ParquetSource of {self.n_rows} rows, {self.n_features} features, {len(self._groups)} row groups>"

    def describe(self, row: int) -> str:
        group = self._groups[bisect.bisect_right(self._starts, row) - 1]
        return f"{self.files[group.file].path}, row group {group.number}, {self._place(row - group.start)}"

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        groups = self._groups if wanted is None else [self._groups[k] for k in touched(self._starts, wanted)]
        for group in groups:
            self.bytes_read += group.bytes_all if features else group.bytes_labels
            yield lambda group=group: self._chunks(group, features)  # type: ignore[misc]

    def _chunks(self, group: _RowGroup, features: bool) -> Iterator[Chunk]:
        def blocks() -> Iterator[Block]:
            start = group.start
            for batch in self._batches(group, features):
                yield self.columns.block(batch, start, features=features)
                start += batch.num_rows

        return aligned_chunks(blocks(), group.start, self.chunk_rows, leaf_rows(self.n_features), features=features)

    def _batches(self, group: _RowGroup, features: bool) -> Iterator[Any]:
        path = self.files[group.file].path
        try:
            parquet = import_arrow("pyarrow.parquet")
            with parquet.ParquetFile(path, metadata=self._footers[group.file]) as file:
                for batch in file.iter_batches(
                    batch_size=_CHUNKS_PER_BATCH * self.chunk_rows,
                    row_groups=[group.number],
                    columns=self.columns.names(features=features),
                    use_threads=False,
                ):
                    yield self.columns.keep(batch)
        except (OSError, ValueError, NotImplementedError, TypeError) as error:
            raise SourceError(f"Could not read {path}, row group {group.number}: {error}") from None

    def _label_share(self) -> float:
        return sum(g.bytes_labels for g in self._groups) / max(sum(g.bytes_all for g in self._groups), 1)

    def _take_share(self, rows: npt.NDArray[np.int64]) -> float:
        places = touched(self._starts, rows)
        if len(places) == len(self._groups):
            return 1.0
        return sum(self._groups[k].bytes_all for k in places) / max(sum(g.bytes_all for g in self._groups), 1)


class CsvSource(_TableSource):
    r"""A CSV file with a header line, a folder of them, or a list; parsed by pyarrow.

    How many rows there are is not known before all of them were parsed: the first use counts them, and their labels,
    in one read; the pilot draw is another. To read a file often, convert it to Parquet once.

    Parameters
    ----------
    path : str, Path or sequence of them
    target, features, weight, labels, categories, unknown, fill, drop_missing, chunk_rows
        As for `ParquetSource`; an empty field is a null, and so is ``NA`` or ``NaN``.
    separator : str, optional
        What stands between values; by default a tab in files that end in ``.tsv``, else a comma.
    delimiter : str, optional
        The older name of ``separator``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rows.csv").write_text("x,y\n0.5,-1\n1.5,1\n")
    ...     CsvSource(f"{folder}/rows.csv", "y").n_rows
    2
    """

    labels_alone = False
    suffixes = (*TEXT, ".gz", ".bz2")
    _dropped = 0

    def __init__(
        self,
        path: Paths,
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
        delimiter: str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self.separator = separator if delimiter is None else delimiter
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"separator must be one character, got {self.separator!r}.")
        super().__init__(
            path,
            target,
            features=features,
            weight=weight,
            labels=labels,
            categories=categories,
            unknown=unknown,
            fill=fill,
            drop_missing=drop_missing,
            chunk_rows=chunk_rows,
        )

    def _find_rows(self) -> None:
        self._starts: list[int] = [0]
        if self.columns.needs_pass:  # the numbers that fill take a read
            self.n_reads += 1
            statistics = self.columns.statistics()
            for batch in self._all_batches(True):
                statistics.add(batch)
            self.columns = self.columns.filled(statistics.numbers())

    def _schema(self, path: Path) -> Any:
        """Return the schema of a file, category columns as text whatever their values look like."""
        pa, schema = import_arrow("pyarrow"), self._reader(path, None).schema
        for name in self.columns.categories:
            if name in schema.names:
                schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
        return schema

    def _all_batches(self, features: bool) -> Iterator[Any]:
        for file in self.files:
            yield from self._batches(file.path, 0, features)

    def _target_batches(self) -> Iterator[Any]:
        self.n_reads += 1
        yield from self._all_batches(False)

    def _reader(self, path: Path, names: list[str] | None) -> Any:
        pa, csv = import_arrow("pyarrow"), import_arrow("pyarrow.csv")
        options: dict[str, Any] = {"strings_can_be_null": True}
        if names is not None:
            texts = {*self.columns.categories, *([self.columns.target] if self.columns.labels else [])}
            types = {name: pa.string() if name in texts else pa.float64() for name in names}
            options |= {"include_columns": names, "column_types": types}
        try:
            return csv.open_csv(
                path,
                read_options=csv.ReadOptions(block_size=_TEXT_BLOCK),
                parse_options=csv.ParseOptions(delimiter=self.separator or delimiter_of(path)),
                convert_options=csv.ConvertOptions(**options),
            )
        except (OSError, ValueError, NotImplementedError, TypeError) as error:
            raise SourceError(f"{path} is not a CSV file with a header line: {error}") from None

    def describe(self, row: int) -> str:
        place = bisect.bisect_right(self._starts, row) - 1
        return f"{self.files[place].path}, data {self._place(row - self._starts[place])}"

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        start, self._starts, self._dropped = 0, [], 0
        leaf = leaf_rows(self.n_features)
        for file in self.files:
            self._starts.append(start)
            self.bytes_read += file.size
            for batch in self._batches(file.path, start, features):

                def work(batch: Any = batch, start: int = start) -> Iterator[Chunk]:
                    block = self.columns.block(batch, start, features=features)
                    return aligned_chunks([block], start, self.chunk_rows, leaf, features=features)

                yield work
                start += batch.num_rows
        self.n_dropped = self._dropped
        if not start:
            why = "every row has a missing value" if self._dropped else "there is nothing after the header line"
            raise SourceError(f"{self.files[0].path.name} holds no rows: {why}.")
        if self._n_rows is not None and start != self._n_rows:
            raise SourceError(f"The files hold {start} rows now but held {self._n_rows} before.")

    def _batches(self, path: Path, start: int, features: bool) -> Iterator[Any]:
        """Yield the record batches of a file; only the columns that are needed are converted."""
        first, reader = start, self._reader(path, self.columns.names(features=features))
        try:
            for batch in reader:
                start += batch.num_rows
                kept = self.columns.keep(batch)
                self._dropped += batch.num_rows - kept.num_rows
                if kept.num_rows:
                    yield kept
        except (OSError, ValueError, NotImplementedError, TypeError) as error:
            raise SourceError(f"Could not read {path} after data row {start - first}: {error}") from None
