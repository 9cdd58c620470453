"""From what a user passes to what is trained on: rows in memory as arrays, all others as sources."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import (
    Chunk,
    Source,
    TransformedSource,
    format_of,
    is_paths,
    list_tables,
    open_labelled,
    open_npy,
    open_source,
)
from dualcore.data.sources.chunk import stack_weights
from dualcore.data.sources.dask import is_dask
from dualcore.data.sources.survey import BOTH
from dualcore.estimators.units import Units
from dualcore.problem import Problem
from dualcore.solvers.overreads import is_small


class Opened(NamedTuple):
    """Rows in memory with targets and weights; or a source, which has its own, and the labels of its classes.

    Weights sum to one; ``total`` is what they were divided by.
    """

    X: Any
    y: Any = None
    weights: FloatArray | None = None
    total: float = 1.0
    labels: tuple[Any, ...] | None = None


class Task(NamedTuple):
    """Rows of one problem; ``name`` is that of the class which is told from the rest, else empty."""

    X: Any
    y: Any
    weights: Any
    name: str = ""

    def in_memory(self) -> Task:
        """Return the rows of a small source in memory; others as they are."""
        if not isinstance(self.X, Source) or not is_small(self.X):
            return self
        X, y = self.X.take(np.arange(self.X.n_rows))
        return Task(X, y, self.X.row_masses() if self.X.is_weighted else None, self.name)


class Prepared(NamedTuple):
    """A problem, and its rows as training takes them: arrays, or a source, which has its own targets.

    ``units`` are those of the features, None where they are raw.
    """

    problem: Problem
    X: Any
    y: Any
    weights: Any
    units: Units | None = None

    def in_memory(self) -> Prepared:
        """Return the rows of a source, however many, in memory."""
        if not isinstance(self.X, Source):
            return self
        X, y = self.X.take(np.arange(self.X.n_rows))
        return self._replace(X=X, y=y, weights=self.X.row_masses() if self.X.is_weighted else None)

    def raw(self, model: Any) -> Any:
        """Return a model of these rows for raw ones: anything with ``coef`` and ``intercept``, a `Solution` say."""
        return model if self.units is None else self.units.outside(model)

    def inside(self, coef: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """Return a model of raw rows for these ones."""
        return (coef, intercept) if self.units is None else self.units.inside(coef, intercept)


class Scored(NamedTuple):
    """Scores of all rows, shape (n_rows,) or (n_rows, n_outputs), their targets, and their weights or None."""

    scores: FloatArray
    y: FloatArray
    weights: FloatArray | None


def has_names(X: Any) -> bool:
    """Whether a source-like thing has columns with names, of which some may be chosen."""
    if isinstance(X, Source) or (callable(X) and not is_dask(X)):
        return False
    if is_dask(X):
        return hasattr(X, "columns")
    return hasattr(X, "get_fragments") or table_kind(X) in ("Parquet", "CSV", "Feather")


def table_kind(X: Any) -> str | None:
    """Return the format of paths; None for numpy's files."""
    if isinstance(X, (str, Path)) and Path(X).suffix.lower() in (".npy", ".npz"):
        return None
    found = list_tables(X)[0]
    return format_of(found.files[0], found.filesystem)


def open_features(X: Any, options: dict[str, Any]) -> Source:
    """Open rows of which only the features are wanted; the targets of the source mean nothing."""
    if isinstance(X, Source):
        return X
    if "features" in options:
        return open_source(X, str(options["features"][0]), **options)
    if is_dask(X):
        return open_source(X, str(X.columns[0]), features=list(X.columns)) if has_names(X) else open_source(X, X[:, 0])
    if isinstance(X, (str, Path)) and Path(X).suffix.lower() == ".npy":
        return open_npy(X, np.zeros(np.load(X, mmap_mode="r").shape[0]))
    if not is_paths(X) or table_kind(X) == "SVMlight":
        return open_source(X, **options)
    raise TypeError(
        f"Which columns of {X} are the features is not known: the model was trained on rows without names. Pass "
        "open_source(path, target)."
    )


def open_data(X: Any, y: Any, sample_weight: Any, classes: Any, options: dict[str, Any]) -> Opened:
    """Open rows with targets that are not in memory.

    ``classes`` is None in regression, "find" where they are to be found, else those of the model.
    """
    if classes is None:
        return Opened(open_source(X, y, sample_weight, **options))
    known = None if isinstance(classes, str) else classes
    source, labels = open_labelled(X, y, sample_weight, classes=known, **options)
    return Opened(source, labels=labels)


def by_class(source: Source, n_classes: int, weights: FloatArray, *, joint: bool) -> list[Source]:
    """Return a source for every problem: one for two classes and for one model of all, else each against the rest."""
    factors = None if bool((weights == 1.0).all()) else weights
    codes = BOTH if n_classes == 2 else tuple(range(n_classes))
    if n_classes == 2 or joint:
        return [source if factors is None else TransformedSource(source, classes=codes, factors=factors)]
    return [TransformedSource(source, classes=codes, positive=code, factors=factors) for code in range(n_classes)]


def class_masses(source: Source, n_classes: int) -> FloatArray:
    """Return the weight of every class of a source."""
    survey = source.survey()
    return np.array([survey.mass(target) for target in (BOTH if n_classes == 2 else range(n_classes))])


def score_chunks(source: Source, coef: FloatArray, intercept: Any) -> Scored:
    """Return ``X coef + intercept`` of all rows, in one read; the features are never all in memory."""
    parts = list(source.map(partial(_score, coef=coef, intercept=intercept)))
    scores, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return Scored(scores, y, stack_weights(part.weights for part in parts))


def _score(chunk: Chunk, coef: FloatArray, intercept: Any) -> Scored:
    return Scored(np.asarray(chunk.X @ coef) + intercept, chunk.y, chunk.weights)
