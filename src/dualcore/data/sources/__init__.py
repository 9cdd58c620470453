"""Where rows come from: memory, memory maps, files, Python iterables, Dask. One interface, `Source`, for all.

Nothing outside this package asks which of them it has: a source runs a function on its chunks, in row order. The same
seed gives the same coreset from every source of the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualcore.data.arrays import plain_array
from dualcore.data.rows import as_rows
from dualcore.data.sources.arrays import ArraySource
from dualcore.data.sources.base import Source
from dualcore.data.sources.chunk import Chunk, ClassError, RowError, SourceError, two_labels
from dualcore.data.sources.dask import DaskSource, is_dask
from dualcore.data.sources.files import CsvSource, ParquetSource
from dualcore.data.sources.mapped import open_npy, open_npz
from dualcore.data.sources.parts import PartsSource
from dualcore.data.sources.paths import Paths, format_of, is_paths, list_files, list_tables
from dualcore.data.sources.prepared import PreparedSource
from dualcore.data.sources.scaling import standardised
from dualcore.data.sources.svmlight import SvmlightSource

__all__ = [
    "ArraySource",
    "Chunk",
    "ClassError",
    "CsvSource",
    "DaskSource",
    "ParquetSource",
    "PartsSource",
    "PreparedSource",
    "RowError",
    "Source",
    "SourceError",
    "SvmlightSource",
    "format_of",
    "is_paths",
    "is_source_like",
    "list_tables",
    "open_labelled",
    "open_npy",
    "open_npz",
    "open_source",
    "standardised",
]


def is_source_like(data: Any) -> bool:
    """Whether `open_source` makes of ``data`` something else than rows in memory."""
    return isinstance(data, Source) or is_paths(data) or is_dask(data) or callable(data)


def open_source(
    data: Any, y: Any = None, sample_weight: Any = None, *, standardize: bool = False, **options: Any
) -> Source:
    """Return a source of rows.

    Parameters
    ----------
    data
        - a source: returned as it is;
        - the path of a Parquet or CSV file (the latter also ``.csv.gz`` and ``.csv.bz2``), of a folder of them, or a
          list of paths: ``y`` and ``sample_weight`` are then the names of columns;
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
    standardize : bool, default=False
        Whether to scale the features to mean 0 and deviation 1. One read measures them, and the source that is
        returned has them as ``centre`` and ``scale``; see `dualcore.data.sources.standardised`.
    **options
        Passed to the source: ``chunk_rows`` for all; see `ParquetSource`, `CsvSource`, `SvmlightSource`,
        `open_npz`, `DaskSource`.

    Examples
    --------
    >>> import numpy as np
    >>> open_source(np.eye(3), np.ones(3)).n_rows
    3
    """
    if standardize:
        return standardised(open_source(data, y, sample_weight, **options))
    if isinstance(data, Source):
        if y is not None or sample_weight is not None or options:
            raise TypeError("A source carries its own targets and weights: leave y and sample_weight out.")
        return data
    if is_paths(data):
        return _open_paths(data, y, sample_weight, options)
    if is_dask(data):
        return DaskSource(data, y, sample_weight, **options)
    if callable(data):
        if y is not None or sample_weight is not None:
            raise TypeError("Parts carry their own targets and weights.")
        return PartsSource(data, **options)
    if y is None:
        raise TypeError("Rows in memory need y, one target per row.")
    return ArraySource(as_rows(data), plain_array("y", y), sample_weight, **options)


def open_labelled(
    data: Any, y: Any = None, sample_weight: Any = None, *, classes: Sequence[Any] | None = None, **options: Any
) -> tuple[Source, tuple[Any, Any]]:
    """Return a source whose targets are -1 and +1, and the two labels these stand for.

    The labels may be any two numbers; in files and arrays that were not opened yet also two texts.

    Parameters
    ----------
    data, y, sample_weight, **options
        As in `open_source`.
    classes : (negative, positive), optional
        Labels that are known already, those of a trained model for example.

    Examples
    --------
    >>> import numpy as np
    >>> source, classes = open_labelled(np.eye(3), np.array(["no", "yes", "no"]))
    >>> classes, source.take(np.arange(3))[1]
    (('no', 'yes'), array([-1.,  1., -1.]))
    """
    if not isinstance(data, Source):
        text = classes is not None and isinstance(classes[0], str)
        if not callable(data) or is_dask(data):
            options = {"labels": (classes[0], classes[1]) if classes is not None and text else "find"} | options
        data, y, sample_weight, options = open_source(data, y, sample_weight, **options), None, None, {}
    source = open_source(data, y, sample_weight, **options)
    if source.labels is not None:
        found = source.labels
        if classes is not None and tuple(classes) != found:
            raise SourceError(f"The source has the labels {found!r}, the model {tuple(classes)!r}.")
        return source, found
    if classes is None:
        tally = source.survey().tally
        if tally is None:
            raise ClassError(
                "The target holds more than two different values: a classifier is trained from a source for two "
                "classes. Load the rows into memory for more, or use a regressor."
            )
        classes = two_labels([value for value, _ in tally], "The target")
    low, high = (_as_number(label) for label in classes)
    whole = low.is_integer() and high.is_integer()
    labels = (int(low), int(high)) if whole else (low, high)
    return source if labels == (-1, 1) else PreparedSource(source, labels=labels), labels


def _as_number(label: Any) -> float:
    try:
        return float(label)
    except ValueError:
        raise SourceError(f"The source has numbers as targets, the model the label {label!r}.") from None


def _open_paths(paths: Paths, y: Any, sample_weight: Any, options: dict[str, Any]) -> Source:
    single = Path(paths) if isinstance(paths, (str, Path)) else None
    suffix = "" if single is None else single.suffix.lower()
    if single is not None and suffix in (".npy", ".npz"):
        list_files(single, ())  # says that there is no such file
        if suffix == ".npy":
            return open_npy(single, y, sample_weight, **options)
        return open_npz(single, y, weight=sample_weight, **options)
    if single is not None and suffix and not single.is_dir():
        _check_format(single)
    files = list_tables(paths)
    for file in files:
        _check_format(file)
    kinds = {format_of(file) for file in files}
    if len(kinds) > 1:
        names = " and ".join(sorted(map(str, kinds)))
        raise SourceError(f"The files are of different kinds ({names}): open them apart.")
    if kinds == {"SVMlight"}:
        if y is not None:
            raise TypeError(f"{files[0]} has its target on every line: leave y out.")
        return SvmlightSource(files, sample_weight=sample_weight, **options)
    if not isinstance(y, str) or not isinstance(sample_weight, str | None):
        raise TypeError(f"{files[0]} is a file: y must be the name of its target column, and sample_weight a name too.")
    opened = ParquetSource if kinds == {"Parquet"} else CsvSource
    return opened(files, y, weight=sample_weight, **options)


def _check_format(file: Path) -> None:
    if format_of(file) is None:
        raise SourceError(
            f"{file} is no Parquet, CSV, SVMlight, .npy or .npz file: its name ends in {file.suffix or 'nothing'!r}. "
            "SvmlightSource and CsvSource open a file of any name."
        )
