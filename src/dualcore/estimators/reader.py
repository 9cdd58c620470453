"""From what a user passes to rows of numbers: columns by name, coded and filled as `fit` learned it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_X_y, validate_data

from dualcore.data.arrays import plain_array
from dualcore.data.rows import as_weights, refuse_lazy
from dualcore.data.sources import ArrowSource, Source, TransformedSource, is_paths, is_source_like
from dualcore.data.sources.dask import is_dask
from dualcore.estimators.columns import check_labels, naming_columns
from dualcore.estimators.opening import Opened, has_names, open_data, table_kind
from dualcore.estimators.preparation import (
    FROM_DTYPE,
    Preparation,
    as_table,
    check_target,
    column_names,
    is_table,
    select_columns,
    take_columns,
)

# float32 data stay float32: rows are widened block by block where they are used.
_CONTAINERS: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": [np.float64, np.float32]}


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

    def _open(self, X: Any, y: Any, sample_weight: Any, *, learn: bool, classes: Any = None) -> Opened:
        """Return rows with targets: arrays where they are in memory, else a source; ``classes`` as in `open_data`.

        With ``learn`` columns, coding and fill are learned, else they are those of the fit.
        """
        refuse_lazy(X)
        if learn:
            self._forget()
        elif y is None and (is_table(X) or (is_source_like(X) and has_names(X))):
            y = getattr(self, "target_", None)
        if is_source_like(X) or (self.source_options and is_table(X) and isinstance(y, str)):
            return self._open_source(X, y, sample_weight, learn=learn, classes=classes)
        if is_table(X) and isinstance(y, str):
            target = y
            X, y, sample_weight = take_columns(X, y, sample_weight)
            if learn:
                self.target_ = target
        X, y = self._read(X, y, learn=learn, y_numeric=classes is None)
        weights = as_weights(sample_weight, X.shape[0])
        return Opened(
            X, y, weights, 1.0 if weights is None else float(np.asarray(sample_weight, dtype=np.float64).sum())
        )

    def _read(self, X: Any, y: Any = None, *, learn: bool = False, **targets: Any) -> Any:
        """Return rows in memory as numbers, and ``y`` where ``targets`` says what is asked of it."""
        for name, values in (("X", X), ("y", y)):
            if isinstance(values, np.ma.MaskedArray):  # scikit-learn would keep what is under the mask
                plain_array(name, values)
        if is_table(X):
            column_names(X)
            if not learn and hasattr(self, "target_"):
                X = select_columns(X, list(self.feature_names_in_))
        if targets:
            check_target(y)
            if not targets["y_numeric"]:
                check_labels(y)
        if learn and (self.fill is not None or (self._codes_text and not _is_numeric(X))):
            self._keep_preparation(Preparation.learn(as_table(X), fill=self.fill, coded=self._codes_text))
        if self._preparation is None:
            with naming_columns(X):
                return validate_data(self, X, **({"y": y} | targets if targets else {}), reset=learn, **_CONTAINERS)
        validate_data(self, X, reset=learn, skip_check_array=True)
        X = self._preparation.rows(X)
        return check_X_y(X, y, **targets, **_CONTAINERS) if targets else check_array(X, **_CONTAINERS)

    def _open_source(self, X: Any, y: Any, sample_weight: Any, *, learn: bool, classes: Any) -> Opened:
        if learn and (self.fill is not None or self._codes_text):
            named = is_table(X) or has_names(X)
            if named:
                columns = {"target": y, "weight": sample_weight, "fill": self.fill, "coded": self._codes_text}
                self._keep_preparation(Preparation.learn(X, **columns, **(self.source_options or {})))
            elif self.fill is not None:
                raise TypeError("fill= is for rows whose columns have names, and for arrays: the source has none.")
        if learn and isinstance(X, ArrowSource):  # what it codes and fills itself is not forgotten
            self._keep_preparation(Preparation.of(X))
            y = X.columns.target
        data = open_data(X, None if isinstance(X, Source) else y, sample_weight, classes, self._options_for(X))
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
        """Return what a source is told: which columns, coded and filled as in the fit, and what the user gave."""
        if isinstance(X, Source) or (callable(X) and not is_dask(X)):
            return {}
        given = dict(self.source_options or {})
        if not targets:
            given.pop("drop_missing", None)
        known, names = self._preparation, getattr(self, "feature_names_in_", ())
        if is_paths(X) and hasattr(self, "n_features_in_") and table_kind(X) == "SVMlight":
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

    def _forget(self) -> None:
        """Drop everything that was learned."""
        for name in [name for name in vars(self) if name.endswith("_") or name == "_streams"]:
            del self.__dict__[name]
        self._units = self._preparation = self._zero_based = None

    def _match_features(self, source: Source) -> None:
        """See that a source has the features of the fit."""
        wanted = len(self.coef_names_)
        if source.n_features != wanted:
            raise ValueError(
                f"The source has {source.n_features} features, {type(self).__name__} was trained on {wanted}."
            )
        known = getattr(self, "feature_names_in_", None)
        if known is not None and source.feature_names is not None and tuple(known) != source.feature_names:
            raise ValueError(
                "The features of the source are not those of the training data, in their order: "
                f"{list(source.feature_names[:5])} instead of {list(known[:5])}."
            )


def innermost(source: Any) -> Any:
    """Return the source that reads, without what changes its rows on their way."""
    return innermost(source.inner) if isinstance(source, TransformedSource) else source


def _is_numeric(X: Any) -> bool:
    """Whether rows in memory hold numbers alone, so that there is nothing to code."""
    return sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "fiub")
