"""Rows with named columns before it is known which of them are features: files, datasets, tables and frames."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dualcore.data.sources.chunk import SourceError
from dualcore.data.sources.paths import delimiter_of, import_arrow, is_paths, list_tables
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

    def batches(self, names: Sequence[str], types: Mapping[str, Any], size: int) -> Iterator[Any]:
        """Yield the record batches of some columns; ``types`` are those that text is converted to."""
        if not hasattr(self.rows, "physical_schema"):
            return iter(self.rows.select(names).to_batches(max_chunksize=size))
        fields = [self.schema.field(name).with_type(types.get(name, self.schema.field(name).type)) for name in names]
        field, schema = import_arrow("pyarrow.dataset").field, import_arrow("pyarrow").schema(fields)
        columns = {name: field(name) for name in names}  # a plain name may stand for a path, if there are dots in it
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
        self.schema = self.pieces[0].schema
        self.index = self._find_index()

    @property
    def is_text(self) -> bool:
        """Whether columns have no types of their own."""
        return self.kind == "CSV"

    @property
    def names(self) -> list[str]:
        """The columns, without those of an index."""
        return [name for name in self.schema.names if name not in self.index]

    def _add_files(self, files: list[FileState]) -> None:
        """Add files of one folder, within which the names of folders may be columns."""
        if self.kind not in ("Parquet", "CSV", "Feather"):
            raise SourceError(f"{files[0].name} is no Parquet, CSV or Feather file.")
        ds, base, paths = import_arrow("pyarrow.dataset"), files[0].base, [file.path for file in files]
        filesystem = files[0].filesystem or import_arrow("pyarrow.fs").LocalFileSystem()
        options = ds.FileSystemFactoryOptions(base, ds.HivePartitioning.discover(), False)
        folders = ds.FileSystemDatasetFactory(filesystem, paths, ds.ParquetFileFormat(), options)
        keys = folders.inspect(fragments=0)  # looks at the paths only
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

    def _add_fragment(self, fragment: Any, name: str, known: Any) -> None:
        pa, ds = import_arrow("pyarrow"), import_arrow("pyarrow.dataset")
        try:
            own = fragment.physical_schema
            groups = fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else []
        except ARROW_ERRORS as error:
            if self.is_text:  # pyarrow does not open a file with a repeated name
                check_names(name, _first_line(fragment))
            whole = "CSV file with a header line" if self.is_text else f"whole {self.kind} file"
            raise SourceError(f"{name} is not a {whole}: {error}") from None
        names, keys = own.names, ds.get_partition_keys(fragment.partition_expression)
        check_names(name, names)
        # Columns that were never named are 0, 1, 2, ... of a pandas frame.
        if self.is_text and all(map(is_number, names)) and names != [str(k) for k in range(len(names))]:
            raise SourceError(f"{name} has no line of column names: its first line holds numbers only. Add one.")
        extra = [field for field in known if field.name in keys and field.name not in names]
        schema, file = pa.schema([*own, *extra], metadata=own.metadata), len(self.files) - 1
        for part in groups:
            self.pieces.append(TablePart(f"{name}, row group {part.row_groups[0].id}", file, part, schema))
        if not groups:
            self.pieces.append(TablePart(name, file, fragment, schema))

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
        for start in range(0, max(table.num_rows, 1), step):
            self.pieces.append(TablePart("", -1, table.slice(start, step), table.schema))

    def _find_index(self) -> list[str]:
        """Return the columns that pandas wrote as the index of a frame; pandas does not read them as columns either."""
        if self.is_text:
            return [name for name in self.schema.names[:1] if name in ("", "Unnamed: 0")]
        stored = json.loads((self.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return [name for name in stored if isinstance(name, str) and name in self.schema.names]


def _first_line(fragment: Any) -> list[str]:
    """Return the names of the columns of a file of text."""
    with fragment.filesystem.open_input_stream(fragment.path) as stream:
        lines = io.TextIOWrapper(stream, "utf-8-sig", errors="replace")
        return next(csv.reader(lines, delimiter=fragment.format.parse_options.delimiter), [])


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
