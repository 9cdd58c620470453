"""Objects as plain arrays and JSON, in files without pickle: one ``.npz`` archive with a digest of all that is in it.

The JSON has the structure of the object, with arrays replaced by their names in the archive. Only classes passed by the
reader are constructed.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.storage import ArchiveError, Arrays, read_signed, write_signed
from dualcore.problem import Problem


def pack(value: Any, arrays: Arrays) -> Any:
    """Return a value as JSON. Arrays are stored in ``arrays`` and replaced by their names."""
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if sp.issparse(value):
        value = value.tocsr()
        return {"sparse": [pack(part, arrays) for part in (value.data, value.indices, value.indptr, value.shape)]}
    if isinstance(value, Problem):
        return {"problem": None}
    if isinstance(value, dict):
        return {"dict": [[pack(key, arrays), pack(each, arrays)] for key, each in value.items()]}
    if is_dataclass(value):
        return {type(value).__name__: [pack(getattr(value, each.name), arrays) for each in fields(value)]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [pack(each, arrays) for each in value]}
    return value.item() if isinstance(value, np.generic) else value


def unpack(packed: Any, arrays: Arrays, classes: tuple[type[Any], ...] = (), problem: Problem | None = None) -> Any:
    """Return the value that `pack` converted; a problem is not stored, and is passed by the caller."""
    if not isinstance(packed, dict):
        return packed
    [(kind, content)] = packed.items()
    if kind == "array":
        return arrays[content]
    if kind == "problem":
        return problem
    if kind == "dict":
        return {unpack(key, arrays): unpack(each, arrays, classes, problem) for key, each in content}
    parts = [unpack(each, arrays, classes, problem) for each in content]
    if kind == "sparse":
        return sp.csr_matrix(tuple(parts[:3]), shape=parts[3])
    if kind in ("list", "tuple"):
        return parts if kind == "list" else tuple(parts)
    return {each.__name__: each for each in classes}[kind](*parts)


def write_packed(path: str | Path, form: int, value: Any) -> None:
    """Write an object to a file of this format, atomically."""
    arrays: Arrays = {}
    write_signed(path, {"format": form, "content": pack(value, arrays)}, arrays)


def read_packed(
    path: str | Path, form: int, kind: str, classes: tuple[type[Any], ...], problem: Problem | None = None
) -> Any:
    """Return the object in a file; raise ValueError, which names ``kind``, if `write_packed` did not write the file."""
    try:
        header, arrays = read_signed(path, form)
    except ArchiveError as error:
        raise ValueError(f"{Path(path).name} is not a {kind}: {error}.") from None
    return unpack(header["content"], arrays, classes, problem)
