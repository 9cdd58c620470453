"""The model file: an estimator as JSON, with everything that predicts or explains.

Loading reads numbers and text and runs nothing; a digest shows whether a file was changed. Numbers are written with
every digit, so a loaded model decides exactly as the one that was saved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import Certificate
from dualcore.coresets import samplers
from dualcore.coresets.coreset import Coreset
from dualcore.data.storage import ArchiveError, read_json, write_atomically
from dualcore.estimators.preparation import Preparation
from dualcore.estimators.units import Units
from dualcore.problem import Anchor
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.losses import Softmax
from dualcore.solvers import Iterate, Solution
from dualcore.solvers.base import Status

_FORMAT = 4
_KIND = "dualcore-model"
# What a file may hold besides numbers, texts, lists and arrays; each is made of its fields.
_TYPES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (Anchor, Certificate, Coreset, Iterate, L1Norm, L2Norm, LinfNorm, Preparation, Solution, Units)
} | {name: getattr(samplers, name) for name in samplers.__all__ if is_dataclass(getattr(samplers, name))}
# What is learned has a name that ends in _, but for these; and these are made again from the rest.
_KEPT, _MADE_AGAIN = ("_units", "_preparation", "_zero_based"), ("problem_", "feature_weights_")


class ModelFileError(ValueError):
    """A file is not a model that can be used; the message names it."""


class Saved:
    """What can be written to a JSON file by `save` and read by `dualcore.load`."""

    _kinds: ClassVar[dict[str, type[Any]]] = {}

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if cls.__module__.startswith("dualcore."):
            Saved._kinds[cls.__name__] = cls

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a JSON file, atomically and without pickle; `dualcore.load` reads it.

        Parameters that are no numbers, texts, arrays or samplers (a callback, a RandomState, a splitter) are left out,
        and so is what `partial_fit` keeps: a loaded model has their defaults, and begins a new stream. A dict
        ``notes_`` of texts and numbers, if you set one, is kept with the model.
        """
        if not hasattr(self, "coef_") or type(self).__name__ not in Saved._kinds:
            raise ModelFileError(f"This {type(self).__name__} has no model to save: fit it first.")
        content = as_json(self)
        write_atomically(
            Path(path), (json.dumps(content | {"digest": _digest(content)}, allow_nan=False) + "\n").encode()
        )


def _digest(content: dict[str, Any]) -> str:
    """Return a checksum of everything that a file holds, by which damage and changes are found."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def as_json(model: Any) -> dict[str, Any]:
    """Return an estimator that has learned something, if only its columns, as JSON values."""
    known = {name: value for name, value in vars(model).items() if name.endswith("_") or name in _KEPT}
    return {
        "kind": _KIND,
        "format": _FORMAT,
        "estimator": type(model).__name__,
        "parameters": encode_plain(model.get_params(deep=False)),
        "joint": model.problem_.family.n_outputs > 1,
        "learned": encode_plain({name: value for name, value in known.items() if name not in _MADE_AGAIN}),
    }


def load(path: str | Path) -> Any:
    """Return the estimator that `save` wrote to a file. One that was damaged, or changed by hand, is refused.

    Examples
    --------
    >>> import dualcore, tempfile
    >>> from pathlib import Path
    >>> model = dualcore.WassersteinHuberRegressor().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(Path(folder) / "model.json")
    ...     again = dualcore.load(Path(folder) / "model.json")
    >>> bool((again.predict([[3.0]]) == model.predict([[3.0]])).all())
    True
    """
    name = Path(path).name
    try:
        content = read_json(Path(path).read_bytes())
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.") from None
    except (OSError, ArchiveError) as error:
        raise ModelFileError(f"{name} is not a model file: {error}.") from None
    if content.get("kind") != _KIND:
        raise ModelFileError(f"{name} is not a model file written by save or by dualcore fit.")
    if content.get("format") != _FORMAT:
        raise ModelFileError(f"{name} has format {content.get('format')!r}; this version reads {_FORMAT}.")
    if content.pop("digest", None) != _digest(content):
        raise ModelFileError(f"{name} is a damaged model file, or was changed after it was written.")
    return from_json(content)


def from_json(content: dict[str, Any]) -> Any:
    """Return the estimator that `as_json` described."""
    kind = Saved._kinds[content["estimator"]]
    model = kind(**{name: _decode(value) for name, value in content["parameters"].items()})
    vars(model).update({name: _decode(value) for name, value in content["learned"].items()})
    problem = model._with_columns(model.make_problem())
    if content["joint"]:
        problem = problem.replace(loss=Softmax(int(model.classes_.size)))
    model._state(problem)
    return model


def encode_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return those values that can be written as JSON."""
    found = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError):
            found[name] = _encode(value)
    return found


def _encode(value: Any) -> Any:
    """Return a value as JSON; objects have one key that says what they are."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [_encode(part) for part in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    if isinstance(value, np.ndarray):
        kind = value.dtype.str if value.dtype.kind in "fiub" else "O" if value.dtype.kind == "O" else "U"
        return {"array": _encode(value.tolist()), "dtype": kind}
    if sp.issparse(value):
        value = value.tocsr()
        return {"sparse": [_encode(part) for part in (value.data, value.indices, value.indptr, list(value.shape))]}
    if isinstance(value, dict):
        return {"dict": [[_encode(key), _encode(part)] for key, part in value.items()]}
    if isinstance(value, Status):
        return {"status": value.name}
    if _TYPES.get(type(value).__name__) is type(value):
        left_out = {"problem", "dual"} if isinstance(value, Solution) else set()
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in left_out}
        return {"type": type(value).__name__, "fields": {name: _encode(part) for name, part in parts.items()}}
    raise TypeError(f"{type(value).__name__} is not written to model files.")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), None)
    if kind == "float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[value["float"]]
    if kind == "tuple":
        return tuple(_decode(value["tuple"]))
    if kind == "array":
        return np.array(_decode(value["array"]), dtype=value["dtype"])
    if kind == "sparse":
        *parts, shape = _decode(value["sparse"])
        return sp.csr_matrix(tuple(parts), shape=shape)
    if kind == "dict":
        return {_decode(key): _decode(part) for key, part in value["dict"]}
    if kind == "status":
        return Status[value["status"]]
    made = {name: _decode(part) for name, part in value["fields"].items()}
    return _TYPES[value["type"]](**(made | ({"dual": None} if value["type"] == "Solution" else {})))
