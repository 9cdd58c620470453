"""The same rows from every kind of source, for the tests that compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualcore.data.sources import (
    ArraySource,
    ArrowSource,
    CsvSource,
    DaskSource,
    ParquetSource,
    PartsSource,
    Source,
    SourceError,
    open_arrays,
    open_source,
)


class Table(NamedTuple):
    """Rows, targets and weights (or None)."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None

    def cut(self, start: int, stop: int) -> tuple[Any, ...]:
        part = (self.X[start:stop], self.y[start:stop])
        return part if self.weights is None else (*part, self.weights[start:stop])


def make_table(n: int, m: int, *, weighted: bool = False, classification: bool = True, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)).astype(np.float32)
    score = X @ rng.normal(size=m) + 0.3
    noise = rng.logistic(size=n)
    y = np.where(score + noise > 0.0, 1.0, -1.0) if classification else score + 0.5 * noise
    return Table(X, y, rng.uniform(0.1, 2.0, size=n) if weighted else None)


def refused(call: Callable[[], Any], said: str, error: Any = SourceError) -> None:
    """See that a call raises an error, and what it says."""
    with pytest.raises(error, match=said):
        call()


def rows_of(source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets of all rows, in one read."""
    chunks = list(source.map(lambda chunk: chunk))
    return np.concatenate([chunk.X for chunk in chunks]), np.concatenate([chunk.y for chunk in chunks])


def columns_of(table: Table) -> dict[str, np.ndarray]:
    columns = {f"x{j}": table.X[:, j] for j in range(table.X.shape[1])} | {"y": table.y}
    return columns if table.weights is None else columns | {"w": table.weights}


def weight_of(table: Table) -> str | None:
    return None if table.weights is None else "w"


def parts_of(table: Table, step: int) -> Iterator[Table]:
    for start, stop in spans(len(table.y), step):
        yield Table(*(None if column is None else column[start:stop] for column in table))


def write_parquet(table: Table, path: Path, row_group: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns_of(table)), path, row_group_size=row_group)
    return path


def from_array(table: Table, folder: Path) -> Source:
    return ArraySource(table.X, table.y, table.weights)


def from_fortran(table: Table, folder: Path) -> Source:
    return ArraySource(np.asfortranarray(table.X.astype(np.float64)), table.y, table.weights, chunk_rows=999)


def from_memory_map(table: Table, folder: Path) -> Source:
    np.save(folder / "X.npy", table.X)
    np.save(folder / "y.npy", table.y)
    return open_arrays(folder / "X.npy", folder / "y.npy", table.weights)


def from_npz_columns(table: Table, folder: Path) -> Source:
    np.savez(folder / "columns.npz", **columns_of(table))
    return open_arrays(folder / "columns.npz", "y", weight_of(table))


def from_parquet(table: Table, folder: Path) -> Source:
    path = write_parquet(table, folder / "one.parquet", 700)
    return ParquetSource(path, "y", weight=weight_of(table))


def from_parquet_folder(table: Table, folder: Path) -> Source:
    inside = folder / "many"
    inside.mkdir(exist_ok=True)
    for number, part in enumerate(parts_of(table, 1501)):
        write_parquet(part, inside / f"part-{number:03d}.parquet", 333)
    return ParquetSource(inside, "y", weight=weight_of(table), chunk_rows=256)


def from_csv(table: Table, folder: Path) -> Source:
    import pandas as pd

    frame = pd.DataFrame(columns_of(table)).astype(np.float64)  # all digits of a float32
    frame.to_csv(folder / "rows.csv", index=False)
    return CsvSource(folder / "rows.csv", "y", weight=weight_of(table))


def from_gzipped_csv(table: Table, folder: Path) -> Source:
    import gzip

    from_csv(table, folder)
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return open_source(folder / "rows.csv.gz", "y", weight_of(table))


def from_feather(table: Table, folder: Path) -> Source:
    import pyarrow as pa
    import pyarrow.feather as feather

    inside = folder / "feather"
    inside.mkdir(exist_ok=True)
    for number, part in enumerate(parts_of(table, 2001)):
        feather.write_feather(pa.table(columns_of(part)), inside / f"{number:03d}.feather")
    return open_source(f"{inside}/*.feather", "y", weight_of(table))


def from_arrow_dataset(table: Table, folder: Path) -> Source:
    import pyarrow.dataset as ds

    write_parquet(table, folder / "one.parquet", 700)
    return ArrowSource(ds.dataset(folder / "one.parquet"), "y", weight=weight_of(table))


def from_pandas_column(table: Table, folder: Path) -> Source:
    import pandas as pd

    return open_source(pd.DataFrame(columns_of(table), index=np.arange(len(table.y))[::-1]), "y", weight_of(table))


def of_columns(package: str, make: str, **options: Any) -> Callable[[Table, Path], Source]:
    """Frames and tables that name their target."""
    return lambda table, folder: open_source(
        getattr(import_module(package), make)(columns_of(table)), "y", weight_of(table), **options
    )


def from_uri(table: Table, folder: Path) -> Source:
    import fsspec

    files, name = fsspec.filesystem("memory"), f"/{folder.name}"
    for number, part in enumerate(parts_of(table, 1501)):
        path = write_parquet(part, folder / "part.parquet", 333)
        files.pipe(f"{name}/part-{number:03d}.parquet", path.read_bytes())
    return open_source(f"memory:/{name}/part-*.parquet", "y", weight_of(table))


def from_parts(table: Table, folder: Path) -> Source:
    def parts() -> Iterator[tuple[Any, ...]]:
        for start, stop in spans(len(table.y), 777):
            yield table.cut(start, stop)
            yield table.cut(stop, stop)  # an empty part is legal

    return PartsSource(parts)


def from_dask_array(table: Table, folder: Path) -> Source:
    import dask.array as da

    weights = None if table.weights is None else da.from_array(table.weights, chunks=1000)
    return DaskSource(da.from_array(table.X, chunks=(911, 2)), da.from_array(table.y, chunks=500), weights)


def from_dask_frame(table: Table, folder: Path) -> Source:
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame(columns_of(table))
    return DaskSource(dd.from_pandas(frame, npartitions=5), "y", weight_of(table))


def spans(n: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, n)) for start in range(0, n, step)]


KINDS: dict[str, Callable[[Table, Path], Source]] = {
    "array": from_array,
    "fortran": from_fortran,
    "frame": lambda table, folder: ArraySource(import_module("pandas").DataFrame(table.X), table.y, table.weights),
    "memory map": from_memory_map,
    "npz columns": from_npz_columns,
    "parquet": from_parquet,
    "parquet folder": from_parquet_folder,
    "csv": from_csv,
    "gzipped csv": from_gzipped_csv,
    "feather": from_feather,
    "arrow table": of_columns("pyarrow", "table", chunk_rows=300),
    "arrow dataset": from_arrow_dataset,
    "pandas column": from_pandas_column,
    "polars column": of_columns("polars", "DataFrame"),
    "uri": from_uri,
    "parts": from_parts,
    "dask array": from_dask_array,
    "dask frame": from_dask_frame,
}
NEEDS = {
    **dict.fromkeys(("parquet", "parquet folder", "feather", "arrow table", "arrow dataset"), ("pyarrow",)),
    **dict.fromkeys(("csv", "gzipped csv", "pandas column"), ("pyarrow", "pandas")),
    "frame": ("pandas",),
    "polars column": ("pyarrow", "polars"),
    "uri": ("pyarrow", "fsspec"),
    "dask array": ("dask",),
    "dask frame": ("dask", "pandas", "pyarrow"),
}


def each_of(kinds: Iterable[str], *marks: pytest.MarkDecorator) -> list[Any]:
    """Kinds as parameters of a test, which is skipped where a package is missing."""
    return [pytest.param(kind, marks=[pytest.mark.needs(*NEEDS.get(kind, ())), *marks]) for kind in kinds]


every_kind = pytest.mark.parametrize("kind", each_of(KINDS))
