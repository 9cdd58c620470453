"""What is wrong with a table or its labels, said by name: columns without numbers, labels that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# So many columns are named in an error.
_NAMED = 5
_ENCODE = (
    "with OneHotEncoder in a ColumnTransformer, and give categories=find_categories(transformer) where the adversary "
    "may change categories"
)


def numbered(categories: Any, X: Any) -> Any:
    """Return groups of columns by number: names are looked up in a frame.

    Examples
    --------
    >>> import pandas as pd
    >>> numbered([["b", "c"]], pd.DataFrame(np.eye(3), columns=["a", "b", "c"]))
    [[1, 2]]
    """
    if isinstance(categories, str) or (
        isinstance(categories, (list, tuple)) and any(isinstance(group, str) for group in categories)
    ):
        raise TypeError(
            f"categories must be a list of groups of one-hot columns, a list each, got {categories!r}. Encode a column "
            f"of categories {_ENCODE}."
        )
    if not isinstance(categories, (list, tuple)) or not any(
        isinstance(name, str) for group in categories if isinstance(group, (list, tuple)) for name in group
    ):
        return categories
    names = [str(name) for name in getattr(X, "columns", [])]
    if not names:
        raise TypeError(
            f"categories holds column names, and {type(X).__name__} has none. Give column numbers, or X as a frame."
        )
    places = {name: place for place, name in enumerate(names)}
    unknown = [name for group in categories for name in group if isinstance(name, str) and name not in places]
    if unknown:
        raise ValueError(f"categories names {unknown[:5]}, which are no columns of X. Columns are {names[:5]}.")
    return [[places.get(column, column) for column in group] for group in categories]


@contextmanager
def naming_columns(X: Any) -> Iterator[None]:
    """Where the block fails because of the columns, raise an error that names them and says what to do."""
    try:
        yield
    except (TypeError, ValueError) as error:
        found = _without_numbers(X) if isinstance(error, ValueError) or hasattr(X, "columns") else []
        if not found:
            repeated = _repeated_names(X)
            if not repeated:
                raise
            raise ValueError(
                f"X has several columns of the name {repeated[0]!r}. Names must differ: rename the columns, or pass "
                "X.to_numpy()."
            ) from error
        named = [f"{name!r} ({value!r})" for name, value in found[:_NAMED]]
        named += [f"{len(found) - _NAMED} others"] if len(found) > _NAMED else []
        which, them = f"Column {named[0]} holds", "it"
        if len(named) > 1:
            which, them = f"Columns {', '.join(named[:-1])} and {named[-1]} hold", "them"
        raise ValueError(f"{which} no numbers. Leave {them} out, or encode {them} {_ENCODE}.") from error


def _without_numbers(X: Any) -> list[tuple[Any, Any]]:
    """Return the columns with values that are no numbers, by name or else number, each with the first such value."""
    if hasattr(X, "columns"):
        columns = [(name, X.iloc[:, j] if hasattr(X, "iloc") else X[name]) for j, name in enumerate(X.columns)]
    elif isinstance(X, (list, tuple, np.ndarray)):
        array = np.asarray(X, dtype=object)
        columns = list(enumerate(array.T)) if array.ndim == 2 else []
    else:
        return []
    found = []
    for name, column in columns:
        values = [value for value in np.asarray(column).astype(object) if not _is_number(value)]
        found += [(name, str(values[0]))] if values else []
    return found


def _repeated_names(X: Any) -> list[Any]:
    """Return the names that several columns of a frame have."""
    names = list(getattr(X, "columns", []))
    return [name for name, count in Counter(names).items() if count > 1]


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
    if values.dtype != object:
        return
    flat = values.ravel().tolist()
    missing = next((row for row, label in enumerate(flat) if label is None or _is_nan(label)), None)
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


def _is_nan(label: Any) -> bool:
    return isinstance(label, float) and label != label


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None or isinstance(value, complex)  # which have errors of their own
    return True
