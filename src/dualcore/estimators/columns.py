"""What is wrong with a table or its labels, said by name: columns without numbers, labels that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.sources.tables import is_number
from dualcore.estimators.preparation import column_names, is_table

# How missing values are written.
_GAPS = ("None", "nan", "<NA>", "NaT")
# How the names of types begin that numpy, pandas, polars and Arrow have for dates, times and durations.
_DATES = ("date", "time", "duration", "period")


def names_columns(categories: Any) -> bool:
    """Whether groups of columns hold names, which have to be found; what are no groups is an error.

    Examples
    --------
    >>> names_columns([["b", "c"]]), names_columns([[1, 2]])
    (True, False)
    """
    if isinstance(categories, str) or (
        isinstance(categories, (list, tuple)) and any(isinstance(group, str) for group in categories)
    ):
        takes = "'from_dtype', or a list of groups of one-hot columns, a list each"
        raise TypeError(f"categories must be {takes}, got {categories!r}.")
    return isinstance(categories, (list, tuple)) and any(
        isinstance(name, str) for group in categories if isinstance(group, (list, tuple)) for name in group
    )


def numbered(categories: Any, names: Sequence[Any] | None) -> Any:
    """Return groups of columns by number.

    Examples
    --------
    >>> numbered([["b", "c"]], ["a", "b", "c"])
    [[1, 2]]
    """
    if not names_columns(categories):
        return categories
    if names is None:
        raise TypeError("categories holds column names, and X has none. Give column numbers, or X as a frame.")
    numbers = {str(name): number for number, name in enumerate(names)}
    unknown = [name for group in categories for name in group if isinstance(name, str) and name not in numbers]
    if unknown:
        raise ValueError(f"categories names {unknown[:5]}, which are no columns of X. Columns are {list(numbers)[:5]}.")
    return [[numbers.get(column, column) for column in group] for group in categories]


@contextmanager
def naming_columns(X: Any) -> Iterator[None]:
    """Where the block fails because columns hold text or gaps, raise an error that names them and says what to do."""
    try:
        yield
    except (TypeError, ValueError) as error:
        named, what = _faults(X) if isinstance(error, ValueError) or is_table(X) else ([], "")
        if not named:
            raise
        named = [*named[:5], f"{len(named) - 5} others"] if len(named) > 5 else named
        which = f"Columns {', '.join(named)} hold" if len(named) > 1 else f"Column {named[0]} holds"
        raise ValueError(f"{which} {what}") from error


def _faults(X: Any) -> tuple[list[str], str]:
    """Return the columns that hold text, each with the first one, or else those with gaps; and what to do."""
    columns: Any = ()
    if sp.issparse(X):  # for which there is no fill=
        columns = enumerate(np.split(X.tocsc().data, X.tocsc().indptr[1:-1]))
    elif is_table(X):
        columns = ((name, np.asarray(X[name])) for name in column_names(X))
    elif isinstance(X, (list, tuple, np.ndarray)):
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        columns = enumerate(array.T) if array.ndim == 2 else ()
    texts, gaps = list[str](), list[str]()
    for name, column in columns:
        odd = column[np.isnan(column)] if column.dtype.kind in "fiub" else [value for value in column if _is_odd(value)]
        words = [str(value) for value in odd if str(value) not in _GAPS]
        texts += [f"{name!r} ({words[0]!r})"] if words else []
        gaps += [f"{name!r} ({len(odd):,} missing)"] if len(odd) else []
    if texts:
        return texts, "no numbers. Use categories='from_dtype', which codes text, or leave such columns out."
    fill = "Fill them" if sp.issparse(X) else "Train with fill='mean', 'median' or a number"
    return gaps, f"NaN. {fill}, or leave such rows out."


def refuse_dates(name: str, values: Any) -> None:
    """Raise TypeError where rows or targets hold dates or durations: as numbers they would be counts since 1970.

    Examples
    --------
    >>> refuse_dates("y", np.array(["2024-02-29"], dtype="datetime64[D]"))
    Traceback (most recent call last):
    TypeError: y holds dates or durations. Make them numbers, such as days, or leave them out.
    """
    kinds = {name: getattr(values, "dtype", getattr(values, "type", None))}
    if is_table(values):
        types = values.dtypes if hasattr(values, "dtypes") else values.schema.types
        kinds = {f"{name}[{column!r}]": kind for column, kind in zip(column_names(values), types, strict=True)}
    for where, kind in kinds.items():
        if str(kind).lower().startswith(_DATES):
            raise TypeError(f"{where} holds dates or durations. Make them numbers, such as days, or leave them out.")


def check_target(y: Any) -> None:
    """Raise ValueError where a target has missing values."""
    array = np.asarray(y)
    gaps = [_is_gap(value) for value in array.ravel().tolist()] if array.dtype == object else array != array
    missing = np.flatnonzero(gaps).tolist() if array.ndim == 1 else []
    if missing:
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ValueError(f"The target is missing in row {missing[0]}{others}: y contains NaN. Drop such rows first.")


def check_labels(labels: Any, name: str = "y") -> None:
    """Raise ValueError where a label is missing, or labels are of kinds that have no order.

    Examples
    --------
    >>> check_labels(["a", "b", None])
    Traceback (most recent call last):
    ...
    ValueError: y has no label in row 2: it holds None. Leave such rows out, or label them.
    """
    values = np.asarray(labels)
    if values.dtype != object or values.ndim == 0:  # a missing y has a message of scikit-learn's own
        return
    flat = values.ravel().tolist()
    missing = next((row for row, label in enumerate(flat) if _is_gap(label)), None)
    if missing is not None:
        found = f"it holds {flat[missing]}"
        raise ValueError(f"{name} has no label in row {missing}: {found}. Leave such rows out, or label them.")
    first_of = {type(label): label for label in reversed(flat)}
    try:
        sorted(first_of.values())
    except TypeError:
        found = " and ".join(f"{label!r} ({kind.__name__})" for kind, label in reversed(first_of.items()))
        raise ValueError(f"{name} must hold labels of one kind, found {found}. Make them all text.") from None


def _is_gap(value: Any) -> bool:
    return not isinstance(value, str) and str(value) in _GAPS


def _is_odd(value: Any) -> bool:
    return not isinstance(value, complex) and (not is_number(value) or value != value)  # complex ones have own errors
