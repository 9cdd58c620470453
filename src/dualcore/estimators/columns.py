"""What is wrong with a table or its labels, said by name: columns without numbers, labels that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dualcore.data.sources.tables import is_number
from dualcore.estimators.preparation import column_names, is_table


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
        raise TypeError(
            f"categories must be 'from_dtype', or a list of groups of one-hot columns, a list each, got {categories!r}."
        )
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
    """Where the block fails because columns hold no numbers, raise an error that names them and says what to do."""
    try:
        yield
    except (TypeError, ValueError) as error:
        found = _without_numbers(X) if isinstance(error, ValueError) or is_table(X) else []
        if not found:
            raise
        named = [f"{name!r} ({value!r})" for name, value in found[:5]]
        named += [f"{len(found) - 5} others"] if len(found) > 5 else []
        which = f"Columns {', '.join(named)} hold" if len(named) > 1 else f"Column {named[0]} holds"
        raise ValueError(
            f"{which} no numbers. Use categories='from_dtype', which codes text, or leave such columns out."
        ) from error


def _without_numbers(X: Any) -> list[tuple[Any, Any]]:
    """Return the columns with values that are no numbers, by name or else number, each with the first such value."""
    if is_table(X):
        columns = [(name, X[name]) for name in column_names(X)]
    elif isinstance(X, (list, tuple, np.ndarray)):
        array = np.asarray(X, dtype=object)
        columns = list(enumerate(array.T)) if array.ndim == 2 else []
    else:
        return []
    texts = [(name, [v for v in np.asarray(column).astype(object) if _is_text(v)]) for name, column in columns]
    return [(name, str(values[0])) for name, values in texts if values]


def refuse_dates(name: str, values: Any) -> None:
    """Raise TypeError where rows or targets are dates or durations: as numbers they would be counts since 1970."""
    dtypes = np.ravel(np.asarray(getattr(values, "dtypes", getattr(values, "dtype", None)), dtype=object))
    if dtypes.size and all(getattr(dtype, "kind", "") in ("m", "M") for dtype in dtypes):
        raise TypeError(f"{name} holds dates or durations. Turn them into numbers, such as days, or leave them out.")


def check_target(y: Any) -> None:
    """Raise ValueError where a target of numbers has missing values."""
    array = np.asarray(y)
    missing = np.flatnonzero(np.isnan(array)).tolist() if array.dtype.kind == "f" and array.ndim == 1 else []
    if len(missing):
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ValueError(f"The target is missing in row {missing[0]}{others}: y contains NaN. Drop such rows first.")


def check_labels(labels: Any, name: str = "y") -> None:
    """Raise ValueError where a label is missing, or labels are of kinds that have no order.

    Examples
    --------
    >>> check_labels(["a", "b", None])
    Traceback (most recent call last):
    ...
    ValueError: y has no label in row 2: it holds None. Leave such rows out, or give them a label of their own.
    """
    values = np.asarray(labels)
    if values.dtype != object or values.ndim == 0:  # a missing y has a message of scikit-learn's own
        return
    flat = values.ravel().tolist()
    missing = next(
        (row for row, label in enumerate(flat) if label is None or (isinstance(label, float) and label != label)), None
    )
    if missing is not None:
        raise ValueError(
            f"{name} has no label in row {missing}: it holds {flat[missing]}. Leave such rows out, or give them a "
            "label of their own."
        )
    first_of = {type(label): label for label in reversed(flat)}
    try:
        sorted(first_of.values())
    except TypeError:
        found = " and ".join(f"{label!r} ({kind.__name__})" for kind, label in reversed(first_of.items()))
        raise ValueError(
            f"{name} must hold labels of one kind, found {found}. Make them all text, for example with y.astype(str)."
        ) from None


def _is_text(value: Any) -> bool:
    return not is_number(value) and value is not None and not isinstance(value, complex)  # which have own errors
