"""Which rows a command is about: what an estimator is given for a path and the names of some of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.cli.outcome import FileError, OptionError
from dualcore.data.sources import list_tables
from dualcore.data.sources.memory import MATRIX, as_table, read_arrays
from dualcore.estimators.preparation import Preparation


class Given(NamedTuple):
    """What the methods of an estimator take; ``options`` are its ``source_options``."""

    X: Any
    y: Any = None
    weights: Any = None
    options: dict[str, Any] | None = None  # None where rows have their target on every line


def find_rows(
    path: str,
    target: str | None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    *,
    optional: bool = False,
    **options: Any,
) -> Given:
    """Return the rows of a file or folder with their targets; where the target is ``optional``, also without.

    Columns are named, or numbered where none has that name. ``options`` are those of `open_source`.
    """
    options = {name: value for name, value in options.items() if value}
    kind = list_tables(path).kind
    X, vectors = _find_arrays(path, target) if kind == "numpy" else (path, {})
    if kind == "SVMlight":
        if target is not None or weight is not None or drop or options:
            raise OptionError(f"{path} has its target on every line and no named columns: give the path alone.")
        return Given(path)
    if vectors:
        y, weights = (None if name is None else _vector(path, vectors, name) for name in (target, weight or None))
        return Given(X, y, weights, {})
    names = Preparation.learn(X, separator=options.get("separator")).names
    if target is None or (optional and target not in names):
        if not optional:
            raise OptionError("--target is missing: which column is to be learned, by name or position?")
        return Given(X, options=options)
    target, *others = (find_column(path, names, name) for name in (target, *drop))
    weight = find_column(path, names, weight) if weight else None
    if drop:
        options["features"] = [name for name in names if name not in (target, weight, *others)]
    return Given(X, target, weight, options)


def find_column(path: str, names: Sequence[str], name: str) -> str:
    """Return the name of a column, given by name or, where there is none of that name, by position.

    Examples
    --------
    >>> find_column("t.csv", ["a", "b"], "b"), find_column("t.csv", ["a", "b"], "0")
    ('b', 'a')
    """
    if name in names:
        return name
    try:
        return names[int(name)]
    except (ValueError, IndexError):
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        near = get_close_matches(name, names, 1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise FileError(f"{Path(path).name} has no column {name!r}.{guess} It has: {shown}.") from None


def _find_arrays(path: str, target: str | None) -> tuple[Any, dict[str, Any]]:
    """Return a matrix and the vectors beside it; or a table, of columns x0, x1, ... where they come from a matrix."""
    arrays = read_arrays(path)
    matrices = [array for array in arrays.values() if array.ndim == 2]
    vectors = {name: array for name, array in arrays.items() if array.ndim == 1}
    if len(matrices) > 1 or len(matrices) + len(vectors) < len(arrays):
        raise FileError(f"{Path(path).name} must hold one matrix of features at most, and vectors.")
    if matrices and (vectors or (target or "").endswith(".npy")):
        X = matrices[0] if sp.issparse(matrices[0]) else np.array(matrices[0])  # a map rounds products otherwise
        return X, vectors or {"": None}
    columns = {f"x{j}": matrices[0][:, j] for j in range(matrices[0].shape[1])} if matrices else vectors
    return as_table(columns, path), {}


def _vector(path: str, vectors: dict[str, Any], name: str) -> Any:
    """Return a vector of an archive, or that of a file of its own."""
    if name.endswith(".npy") and name not in vectors:
        return read_arrays(name)[MATRIX]
    return vectors[find_column(path, [known for known in vectors if known], name)]
