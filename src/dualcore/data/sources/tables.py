"""Rows with named columns before it is known which of them are features: files, datasets, tables and frames."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dualcore.data.sources.chunk import SourceError
from dualcore.data.sources.paths import Listing, delimiter_of, import_arrow, is_paths, list_tables
from dualcore.data.storage import FileState

# Bytes of text parsed at a time.
_TEXT_BLOCK = 8_388_608
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

    ``rows`` is a fragment of a dataset or a table.
    """

    name: str
    file: int
    rows: Any
    schema: Any
    n_rows: int
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
            files = list_tables(data, kind)
            self.kind = files.kind
            for listing in files.listings:
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

    def _add_files(self, listing: Listing) -> None:
        ds, fs = import_arrow("pyarrow.dataset"), import_arrow("pyarrow.fs")
        filesystem = listing.filesystem or fs.LocalFileSystem()
        options = ds.FileSystemFactoryOptions(listing.base, ds.HivePartitioning.discover(), False)
        folders = ds.FileSystemDatasetFactory(filesystem, listing.files, ds.ParquetFileFormat(), options)
        keys = folders.inspect(fragments=0)  # looks at the paths only
        for file, shown in zip(listing.files, listing.names, strict=True):
            if self.kind not in ("Parquet", "CSV", "Feather"):
                raise SourceError(f"{shown} is no Parquet, CSV or Feather file.")
            self.files.append(FileState.of(file, listing.filesystem, shown))
            try:
                partition = ds.partitioning(keys, flavor="hive").parse(os.path.relpath(file, listing.base))
                self._add_fragment(self._format(file).make_fragment(file, filesystem, partition), shown, keys)
            except ARROW_ERRORS as error:
                if isinstance(error, SourceError):
                    raise
                whole = "CSV file with a header line" if self.is_text else f"whole {self.kind} file"
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
            self.pieces.append(TablePart(name, file, fragment, schema, fragment.count_rows()))
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
        step = 262_144  # rows that one thread takes
        for start in range(0, max(table.num_rows, 1), step):
            part = table.slice(start, step)
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
