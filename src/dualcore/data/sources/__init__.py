"""Where rows come from: memory, memory maps, files, Python iterables, Dask. One interface, `Source`, for all.

The rest of the package does not depend on the kind of source: a source runs a function on its chunks, in row order. The
same seed yields the same coreset from every source of the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualcore.data.arrays import plain_array
from dualcore.data.rows import as_rows, refuse_lazy
from dualcore.data.sources.arrow import ArrowSource, CsvSource, ParquetSource
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import MOST_CLASSES, Chunk, ClassError, RowError, SourceError
from dualcore.data.sources.dask import DaskSource, is_dask
from dualcore.data.sources.memory import ArraySource, PartsSource, open_arrays
from dualcore.data.sources.paths import Files, is_paths, list_tables
from dualcore.data.sources.svmlight import SvmlightSource
from dualcore.data.sources.tables import is_arrow
from dualcore.data.sources.transform import TransformedSource

__all__ = [
    "ArraySource",
    "ArrowSource",
    "Chunk",
    "ClassError",
    "CsvSource",
    "DaskSource",
    "ParquetSource",
    "PartsSource",
    "RowError",
    "Source",
    "SourceError",
    "SvmlightSource",
    "TransformedSource",
    "is_arrow",
    "is_paths",
    "is_source_like",
    "list_tables",
    "open_arrays",
    "open_labelled",
    "open_source",
]


def is_source_like(data: Any, y: Any = None) -> bool:
    """Whether `open_source` opens ``data`` as a source, not as arrays; ``y`` may name one of its columns."""
    if isinstance(data, Source) or is_paths(data) or is_dask(data) or callable(data) or hasattr(data, "get_fragments"):
        return True
    return isinstance(y, str) and is_arrow(data)


def open_source(data: Any, y: Any = None, sample_weight: Any = None, *, labels: Any = None, **options: Any) -> Source:
    """Return a source of rows.

    Parameters
    ----------
    data
        - a source: returned as it is;
        - the path of a Parquet, CSV (also ``.csv.gz`` and ``.csv.bz2``) or Feather file, of a folder of them, with its
          partitions (``year=2024/``), a glob, a URI that pyarrow or fsspec opens (``s3://bucket/clicks/*.parquet``),
          or a list of these: ``y`` and ``sample_weight`` are then the names of columns;
        - a dataset or table of pyarrow, or a pandas or polars frame, with ``y`` the name of a column;
        - the path of a file of SVMlight or LIBSVM text (``.svm``, ``.libsvm``, ``.svmlight``, also with ``.gz`` or
          ``.bz2``), of a folder of them, or a list of paths: the target stands on every line, so leave ``y`` out;
        - the path of an ``.npz`` archive (``y`` and ``sample_weight``: names of arrays in it) or of an ``.npy`` file
          (``y``, ``sample_weight``: arrays or paths of other ``.npy`` files): mapped into memory;
        - the path of an ``.npz`` archive of `scipy.sparse.save_npz` (``y`` and ``sample_weight``: names of arrays in
          it, arrays, or paths of ``.npy`` files): loaded, and kept sparse;
        - a Dask array (with ``y`` another), or a Dask dataframe (``y``: name of a column);
        - a function that returns an iterator over parts ``(X, y)`` or ``(X, y, weights)``;
        - arrays, sparse matrices and data frames in memory.
    y, sample_weight
        See above.
    labels : sequence or "find", optional
        The values of a classifier's target: two become -1 and +1; more become their positions 0, 1, 2 and so on. With
        "find" they are found by reading the targets.
    **options
        Passed to the source: ``chunk_rows`` for all; see `ArrowSource`, `SvmlightSource`, `open_arrays`, `DaskSource`.

    Examples
    --------
    >>> import numpy as np
    >>> open_source(np.eye(3), np.ones(3)).n_rows
    3
    >>> open_source(np.eye(2), np.array(["no", "yes"]), labels=("no", "yes")).take(np.arange(2))[1]
    array([-1.,  1.])
    """
    if labels is not None:
        known = None if isinstance(labels, str) and labels == "find" else labels
        return open_labelled(data, y, sample_weight, classes=known, **options)[0]
    source = _open(data, y, sample_weight, options)
    source.check_numbers()
    return source


def _open(data: Any, y: Any, sample_weight: Any, options: dict[str, Any]) -> Source:
    """Return a source with unchanged targets."""
    refuse_lazy(data)
    if isinstance(data, Source):
        if y is not None or sample_weight is not None or options:
            raise TypeError("A source carries its own targets and weights: leave y and sample_weight out.")
        return data
    if is_paths(data):
        return _open_paths(list_tables(data), y, sample_weight, options)
    if is_dask(data):
        return DaskSource(data, y, sample_weight, **options)
    if is_arrow(data) and (isinstance(y, str) or hasattr(data, "get_fragments")):
        return _open_columns(ArrowSource, data, y, sample_weight, options)
    if callable(data):
        if y is not None or sample_weight is not None:
            raise TypeError("Parts carry their own targets and weights.")
        return PartsSource(data, **options)
    if y is None:
        raise TypeError("Rows in memory need y, one target per row.")
    return ArraySource(as_rows(data), plain_array("y", y), sample_weight, **options)


def open_labelled(
    data: Any, y: Any = None, sample_weight: Any = None, *, classes: Sequence[Any] | None = None, **options: Any
) -> tuple[Source, tuple[Any, ...]]:
    """Return a source whose targets are -1 and +1, or 0, 1, 2, ... for more than two classes, and the sorted classes.

    The labels may be any numbers, texts or truth values.

    Parameters
    ----------
    data, y, sample_weight, **options
        As in `open_source`.
    classes : sequence, optional
        Labels that are known already, those of a trained model for example.

    Examples
    --------
    >>> import numpy as np
    >>> source, classes = open_labelled(np.eye(3), np.array(["no", "yes", "no"]))
    >>> classes, source.take(np.arange(3))[1]
    (('no', 'yes'), array([-1.,  1., -1.]))
    """
    source = _open(data, y, sample_weight, options)
    if source.labels is not None:
        if classes is not None and tuple(classes) != source.labels:
            raise SourceError(f"The source has the labels {source.labels!r}, the model {tuple(classes)!r}.")
        return source, source.labels
    if classes is None:
        tallies = source.survey().tallies
        numbers = () if tallies is None or source.target_type is str else tuple(tallies)
        if tallies is None or (len(numbers) > 2 and not all(float(value).is_integer() for value in numbers)):
            found = f"more than {MOST_CLASSES} different values, or more than two that are not whole numbers"
            raise ClassError(f"The target holds {found}: these are no classes. Use a regressor, or another target.")
        classes = sorted(tallies, key=lambda label: (isinstance(label, str), label))
        if len(classes) == 1:
            raise ClassError(f"The target holds one class only ({classes[0]!r}); a classifier needs rows of two.")
    if source.target_type is bool:
        classes = [bool(label) for label in classes]
    elif all(isinstance(label, float) and label.is_integer() for label in classes):
        classes = [int(label) for label in classes]
    labels = tuple(classes)
    return source if labels == (-1, 1) else TransformedSource(source, classes=labels), labels


def _open_paths(files: Files, y: Any, sample_weight: Any, options: dict[str, Any]) -> Source:
    name = files.files[0].name
    if files.kind == "numpy":
        return open_arrays(name, y, sample_weight, **options)
    if files.kind == "SVMlight":
        if y is not None:
            raise TypeError(f"{name} has its target on every line: leave y out.")
        return SvmlightSource(files, sample_weight=sample_weight, **options)
    opened = {"Parquet": ParquetSource, "CSV": CsvSource}.get(files.kind, ArrowSource)
    return _open_columns(opened, files, y, sample_weight, options)


def _open_columns(opened: type[ArrowSource], data: Any, y: Any, sample_weight: Any, options: dict[str, Any]) -> Source:
    if not isinstance(y, str) or not isinstance(sample_weight, str | None):
        raise TypeError("A table has columns: y must be the name of its target column, and sample_weight a name too.")
    known = ArrowSource.__init__.__kwdefaults__ or {}
    if strange := sorted(options.keys() - known.keys()):
        raise TypeError(f"{strange[0]!r} is no option of tables. Options are {', '.join(known)}.")
    return opened(data, y, weight=sample_weight, **options)
