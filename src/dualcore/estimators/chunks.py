"""Scores of the rows of a source, chunk by chunk: what `predict` and `score` do where rows are not in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, Source, SvmlightSource, format_of, is_paths, list_tables, open_npy, open_source
from dualcore.data.sources.chunk import stack_weights
from dualcore.data.sources.dask import is_dask


class Scored(NamedTuple):
    """Scores of all rows, shape (n_rows,) or (n_rows, n_outputs), their targets, and their weights or None."""

    scores: FloatArray
    y: FloatArray
    weights: FloatArray | None


def open_features(X: Any, estimator: Any) -> Source:
    """Open rows of which only the features are wanted; the targets of the source mean nothing."""
    names = getattr(estimator, "feature_names_in_", None)
    if isinstance(X, Source):
        return X
    if is_dask(X):
        if not hasattr(X, "columns"):
            return open_source(X, X[:, 0])
        columns = list(X.columns) if names is None else list(names)
        return open_source(X, str(columns[0]), features=columns)
    if not is_paths(X):
        return open_source(X)
    if isinstance(X, (str, Path)) and Path(X).suffix.lower() == ".npy":
        rows = np.load(X, mmap_mode="r")
        return open_npy(X, np.zeros(rows.shape[0]))
    kind = _table_kind(X)
    if kind == "SVMlight":
        return SvmlightSource(X, n_features=estimator.n_features_in_)
    if kind is None or names is None:
        raise TypeError(
            f"Which columns of {X} are the features is not known: {type(estimator).__name__} was trained on rows "
            "without names. Pass open_source(path, target)."
        )
    return open_source(X, str(names[0]), features=list(names))


def named_features(X: Any, estimator: Any) -> dict[str, Any]:
    """Return the option that picks the features of the fit from the columns of a file or a Dask frame."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or isinstance(X, Source) or callable(X):
        return {}
    named = hasattr(X, "columns") if is_dask(X) else _table_kind(X) in ("Parquet", "CSV", "Feather")
    return {"features": list(names)} if named else {}


def _table_kind(X: Any) -> str | None:
    """Return the format of paths; None for numpy's files."""
    if isinstance(X, (str, Path)) and Path(X).suffix.lower() in (".npy", ".npz"):
        return None
    found = list_tables(X)[0]
    return format_of(found.files[0], found.filesystem)


def score_chunks(source: Source, coef: FloatArray, intercept: Any) -> Scored:
    """Return ``X coef + intercept`` of all rows, in one read; the features are never all in memory."""
    parts = list(source.map(partial(_score, coef=coef, intercept=intercept)))
    scores, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return Scored(scores, y, stack_weights(part.weights for part in parts))


def _score(chunk: Chunk, coef: FloatArray, intercept: Any) -> Scored:
    return Scored(np.asarray(chunk.X @ coef) + intercept, chunk.y, chunk.weights)
