"""From what a user passes to rows of numbers: columns by name, coded and filled as `fit` learned it.

Rows in memory become arrays, all others a source.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_X_y, validate_data

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import as_weights, refuse_lazy
from dualcore.data.sources import (
    ArrowSource,
    Chunk,
    Source,
    TransformedSource,
    is_paths,
    is_source_like,
    list_tables,
    open_arrays,
    open_labelled,
    open_source,
)
from dualcore.data.sources.base import BOTH
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.sources.dask import is_dask
from dualcore.data.sources.memory import MATRIX, read_arrays
from dualcore.estimators.columns import check_labels, check_target, naming_columns, refuse_dates
from dualcore.estimators.preparation import (
    FROM_DTYPE,
    Preparation,
    as_table,
    column_names,
    is_table,
    select_columns,
    take_columns,
)
from dualcore.estimators.units import Units
from dualcore.problem import Problem
from dualcore.solvers.overreads import is_small

# float32 data stay float32: rows are widened block by block where they are used.
_CONTAINERS: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": [np.float64, np.float32]}


class Opened(NamedTuple):
    """Rows in memory with targets and weights; or a source, which has its own, and the labels of its classes.

    Weights sum to one; ``total`` is what they were divided by.
    """

    X: Any
    y: Any = None
    weights: FloatArray | None = None
    total: float = 1.0
    labels: tuple[Any, ...] | None = None

    def in_memory(self) -> Opened:
        """Return the rows of a small source, with labels as they are; others unchanged."""
        if not isinstance(self.X, Source) or not is_small(self.X):
            return self
        X, y, weights = loaded(self.X)
        return Opened(X, self.decoded(y), weights)

    def decoded(self, y: Any) -> Any:
        """Return the targets of the rows with the labels that they stand for."""
        labels = self.labels
        return y if labels is None else np.array(labels)[(y > 0.0 if len(labels) == 2 else y).astype(np.intp)]


class Task(NamedTuple):
    """Rows of one problem; ``name`` is that of the class which is told from the rest, else empty."""

    X: Any
    y: Any
    weights: Any
    name: str = ""

    def in_memory(self) -> Task:
        """Return the rows of a small source in memory; others as they are."""
        return Task(*loaded(self.X), self.name) if isinstance(self.X, Source) and is_small(self.X) else self


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
        return Prepared(self.problem, *loaded(self.X), self.units) if isinstance(self.X, Source) else self

    def raw(self, model: Any) -> Any:
        """Return a model of these rows for raw ones: anything with ``coef`` and ``intercept``, a `Solution` say."""
        return model if self.units is None else self.units.outside(model)

    def inside(self, coef: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """Return a model of raw rows for these ones."""
        return (coef, intercept) if self.units is None else self.units.inside(coef, intercept)


def loaded(source: Source) -> tuple[Any, Any, Any]:
    """Return the rows, targets and weights of a source."""
    return *source.take(np.arange(source.n_rows)), source.row_masses() if source.is_weighted else None


def has_names(X: Any) -> bool:
    """Whether data that are read in chunks have named columns, of which some may be chosen."""
    if is_dask(X):
        return hasattr(X, "columns")
    in_turn = isinstance(X, Source) or callable(X)
    return not in_turn and (hasattr(X, "get_fragments") or list_tables(X).kind in ("Parquet", "CSV", "Feather"))


def open_features(X: Any, options: dict[str, Any]) -> Source:
    """Open rows of which only the features are wanted; the targets of the source mean nothing."""
    if isinstance(X, Source):
        return X
    if "features" in options:
        return open_source(X, str(options["features"][0]), **options)
    if is_dask(X):
        return open_source(X, str(X.columns[0]), features=list(X.columns)) if has_names(X) else open_source(X, X[:, 0])
    files = list_tables(X) if is_paths(X) else None
    if files is not None and files.kind == "numpy":
        path = files.files[0].path
        return open_arrays(path, np.zeros(len(read_arrays(path)[MATRIX])))
    if files is None or files.kind == "SVMlight":
        return open_source(X, **options)
    raise TypeError(f"{X} has names, and the model was trained on rows without names: pass open_source(path, target).")


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


def score_chunks(source: Source, coef: FloatArray, intercept: Any) -> Chunk:
    """Return ``X coef + intercept`` of all rows as their ``X``, in one read; the features are never all in memory."""
    return stack_chunks(list(source.map(partial(_score, coef=coef, intercept=intercept))))


def _score(chunk: Chunk, coef: FloatArray, intercept: Any) -> Chunk:
    return chunk._replace(X=np.asarray(chunk.X @ coef) + intercept)


class RowReader:
    """The part of an estimator that reads: it learns the columns, their coding and fill, and reads others alike."""

    categories: Any
    fill: Any
    source_options: Any
    n_features_in_: int
    feature_names_in_: npt.NDArray[Any]
    target_: str
    categories_: dict[str, tuple[Any, ...]]
    fill_: dict[str, float]
    _classes: Any
    _units: Any
    _preparation: Preparation | None
    _zero_based: bool | None  # whether the first feature of SVMlight text has the index 0

    @property
    def _codes_text(self) -> bool:
        return isinstance(self.categories, str) and self.categories == FROM_DTYPE

    @property
    def coef_names_(self) -> tuple[str, ...]:
        """Names of the coefficients: those of the columns, one for each value of a coded column, else x0, x1, ..."""
        if self._preparation is not None:
            return self._preparation.coded_names
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return tuple(str(name) for name in names)

    def _open(self, X: Any, y: Any, sample_weight: Any, *, learn: bool = False) -> Opened:
        """Return rows with targets: arrays where they are in memory, else a source.

        With ``learn`` columns, coding and fill are learned, else they are those of the fit.
        """
        refuse_lazy(X)
        X = list_tables(X) if is_paths(X) else X  # once: a listing of many files takes a while
        if learn:
            self._discard()
            if self.source_options and not (isinstance(y, str) or is_paths(X) or is_dask(X)):
                raise TypeError(
                    "source_options is for fit(frame_or_path, 'column'): choose the columns of arrays before."
                )
            if isinstance(y, str) and y in ((self.source_options or {}).get("features") or ()):
                raise ValueError(f"{y!r} is the target and cannot be a feature: leave it out of features.")
        elif y is None and (is_table(X) or (is_source_like(X) and has_names(X))):
            y = getattr(self, "target_", None)
        if is_source_like(X) or (self.source_options and is_table(X) and isinstance(y, str)):
            return self._open_source(X, y, sample_weight, learn=learn)
        if is_table(X) and isinstance(y, str):
            if learn:
                self.target_ = y
            X, y, sample_weight = take_columns(X, y, sample_weight)
        elif is_table(X) and isinstance(y, (int, np.integer)):
            raise TypeError(f"y={y} is no name: rename columns first, by frame.columns = frame.columns.astype(str).")
        X, y = self._read(X, y, learn=learn, y_numeric=self._classes is None)
        weights = as_weights(sample_weight, X.shape[0])
        total = 1.0 if weights is None else float(np.asarray(sample_weight, dtype=np.float64).sum())
        return Opened(X, y, weights, total)

    def _read(self, X: Any, y: Any = None, *, learn: bool = False, **targets: Any) -> Any:
        """Return rows in memory as numbers, and ``y`` where ``targets`` says what is asked of it."""
        if is_table(X):
            column_names(X)
            if not learn and hasattr(self, "target_"):
                X = select_columns(X, list(self.feature_names_in_))
        for name, values in (("X", X), ("y", y)):
            refuse_dates(name, values)
            if isinstance(values, np.ma.MaskedArray):  # scikit-learn would keep what is under the mask
                plain_array(name, values)
        if targets:
            if not targets["y_numeric"]:
                check_labels(y)
            check_target(y)
        numeric = sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "fiub")  # nothing to code
        if learn and (self.fill is not None or (self._codes_text and not numeric)):
            self._keep_preparation(Preparation.learn(as_table(X), fill=self.fill, coded=self._codes_text))
        if self._preparation is None:
            with naming_columns(X):
                return validate_data(self, X, **({"y": y} | targets if targets else {}), reset=learn, **_CONTAINERS)
        validate_data(self, X, reset=learn, skip_check_array=True)
        X = self._preparation.rows(X)
        return check_X_y(X, y, **targets, **_CONTAINERS) if targets else check_array(X, **_CONTAINERS)

    def _open_source(self, X: Any, y: Any, sample_weight: Any, *, learn: bool) -> Opened:
        if learn and (self.fill is not None or self._codes_text):
            if is_dask(X):
                raise TypeError("fill= and categories='from_dtype' are not for Dask: code and fill its columns first.")
            if is_table(X) or has_names(X):
                columns = {"target": y, "weight": sample_weight, "fill": self.fill, "coded": self._codes_text}
                self._keep_preparation(Preparation.learn(X, **columns, **(self.source_options or {})))
            elif self.fill is not None:
                raise TypeError("fill= is for rows whose columns have names, and for arrays: the source has none.")
        read = innermost(X)
        if learn and isinstance(read, ArrowSource):  # what it codes and fills itself is kept
            self._keep_preparation(Preparation.of(read))
            y = read.columns.target
        given, options = (X, None if isinstance(X, Source) else y, sample_weight), self._options_for(X)
        if self._classes is None:
            data = Opened(open_source(*given, **options))
        else:
            source, labels = open_labelled(*given, classes=self._classes or None, **options)
            data = Opened(source, labels=labels)
        if not learn:
            self._match_features(data.X)
            return data
        names = data.X.feature_names if self._preparation is None else self._preparation.names
        self.n_features_in_ = data.X.n_features if names is None else len(names)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
            if isinstance(y, str):
                self.target_ = y
        self._zero_based = getattr(innermost(data.X), "zero_based", None)
        return data

    def _options_for(self, X: Any, *, targets: bool = True) -> dict[str, Any]:
        """Return the options of a source: which columns, coded and filled as in the fit, and those of the user."""
        if isinstance(X, Source) or (callable(X) and not is_dask(X)):
            return {}
        given = dict(self.source_options or {})
        if not targets:
            given.pop("drop_missing", None)
        known, names = self._preparation, getattr(self, "feature_names_in_", ())
        if is_paths(X) and hasattr(self, "n_features_in_") and list_tables(X).kind == "SVMlight":
            begins = "auto" if self._zero_based is None else self._zero_based
            return given | {"n_features": self.n_features_in_, "zero_based": begins}
        if not (is_table(X) or has_names(X)):
            return given
        if known is not None and not is_dask(X):
            return given | known.options
        return given | ({"features": list(names)} if len(names) else {})

    def _keep_preparation(self, found: Preparation) -> None:
        self._preparation = found if found.coding or found.fill else None
        self.categories_, self.fill_ = found.coding, found.fill

    def _discard(self) -> None:
        """Drop everything that was learned."""
        for name in [name for name in vars(self) if name.endswith("_") or name == "_streams"]:
            del self.__dict__[name]
        self._units = self._preparation = self._zero_based = None

    def _match_features(self, source: Source) -> None:
        """See that a source has the features of the fit."""
        wanted, known = len(self.coef_names_), list(getattr(self, "feature_names_in_", ()))
        names = list(source.feature_names or known) if known else []
        if source.n_features != wanted or names != known:
            found = f"The source has {source.n_features} features, {type(self).__name__} was trained on {wanted}"
            raise ValueError(f"{found}. Names and order count: {names[:5]} instead of {known[:5]}.")


def innermost(source: Any) -> Any:
    """Return the source that reads, without the transforms of its rows."""
    return innermost(source.inner) if isinstance(source, TransformedSource) else source
