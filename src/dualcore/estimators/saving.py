"""The model file: an estimator as JSON, with everything that predicts or explains.

Loading reads numbers and text, checks them, and runs nothing. Numbers are written with every digit, so a loaded model
decides exactly as the one that was saved.
"""

from __future__ import annotations

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

_FORMAT = 2
_KIND = "dualcore-model"
# What a file may hold besides numbers, texts, lists and arrays; each is made of its fields.
_TYPES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (Anchor, Certificate, Coreset, Iterate, L1Norm, L2Norm, LinfNorm, Preparation, Solution, Units)
} | {name: getattr(samplers, name) for name in samplers.__all__ if is_dataclass(getattr(samplers, name))}
# What is learned and kept, with the types it may have.
_ARRAYS = ("coef_", "classes_", "class_weight_", "feature_names_in_", "radii_", "scores_")
_LEARNED: dict[str, Any] = dict.fromkeys(_ARRAYS, np.ndarray) | {
    **dict.fromkeys(("intercept_", "dual_variable_"), float | np.ndarray),
    **dict.fromkeys(("worst_case_risk_", "radius_"), float),
    **dict.fromkeys(("categories_", "fill_", "notes_"), dict),
    **dict.fromkeys(("n_features_in_", "n_rows_", "n_dropped_"), int),
    "n_iter_": int | np.ndarray,
    "target_": str,
    "certificate_": Certificate | None,
    "certificates_": list | None,
    "solution_": Solution,
    "coreset_": Coreset | list | None,
    "_units": Units | None,
    "_preparation": Preparation | None,
    "_zero_based": bool | None,
}


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
        write_atomically(Path(path), (json.dumps(as_json(self), allow_nan=False) + "\n").encode())


def as_json(model: Any) -> dict[str, Any]:
    """Return an estimator that has learned something, if only its columns, as JSON values."""
    return {
        "kind": _KIND,
        "format": _FORMAT,
        "estimator": type(model).__name__,
        "parameters": parameters_as_json(model),
        "joint": model.problem_.family.n_outputs > 1,
        "learned": {name: _encode(vars(model)[name]) for name in _LEARNED if name in vars(model)},
    }


def parameters_as_json(model: Any) -> dict[str, Any]:
    """Return those parameters of an estimator that can be written."""
    return {name: _encode(value) for name, value in model.get_params(deep=False).items() if _is_plain(value)}


def load(path: str | Path) -> Any:
    """Return the estimator that `save` wrote to a file, after checking every part of it.

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
    model = from_json(content, name)
    if not hasattr(model, "coef_"):
        raise ModelFileError(f"{name} is a damaged model file: it has no coefficients.")
    return model


def from_json(content: dict[str, Any], name: str) -> Any:
    """Return the estimator that `as_json` described, after checking every part; ``name`` is that of the file."""
    try:
        return _restore(content)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError, RecursionError) as error:
        raise ModelFileError(f"{name} is a damaged model file: {type(error).__name__}: {error}.") from None


def _restore(content: dict[str, Any]) -> Any:
    kind = Saved._kinds[content["estimator"]]
    model = kind(**{name: _decode(value) for name, value in content["parameters"].items()})
    learned = {name: _decode(value) for name, value in content["learned"].items()}
    for name, value in learned.items():
        odd = isinstance(value, bool) and name != "_zero_based"
        if odd or name not in _LEARNED or not isinstance(value, _LEARNED[name]):
            raise ValueError(f"{name} is not something that a model learns, or of another type")
    vars(model).update({"_units": None, "_preparation": None, "_zero_based": None} | learned)
    problem = model._with_columns(model.make_problem())
    if content["joint"] is True:
        problem = problem.replace(loss=Softmax(int(model.classes_.size)))
    model._state(problem)
    _check(model)
    return model


def _check(model: Any) -> None:
    """See that the parts fit together."""
    width = len(model.coef_names_)
    coef = {"coef_": (width,), "intercept_": ()}
    if hasattr(model, "classes_"):
        classes = model.classes_.tolist()
        if model.classes_.ndim != 1 or len(set(classes)) < max(len(classes), 2):
            raise ValueError(f"classes_ must be two or more different labels, found {classes[:5]!r}")
        n_scores = 1 if len(classes) == 2 else len(classes)
        coef = {"coef_": (n_scores, width), "intercept_": (n_scores,), "class_weight_": (len(classes),)}
    elif model.problem_.is_classification:
        raise ValueError("a classifier needs classes_")
    for name, shape in coef.items() if hasattr(model, "coef_") else ():
        found = np.asarray(getattr(model, name))
        if found.shape != shape or found.dtype.kind not in "fi" or not np.isfinite(found).all():
            raise ValueError(f"{name} must hold finite numbers of shape {shape}, found {found.dtype} of {found.shape}")
    if len(set(model.coef_names_)) < width:
        raise ValueError("two features have the same name")
    names = getattr(model, "feature_names_in_", None)
    if names is not None and (names.shape != (model.n_features_in_,) or not all(isinstance(one, str) for one in names)):
        raise ValueError("feature_names_in_ must hold a text for every feature")
    known = model._preparation
    if known is not None and (len(known.names) != model.n_features_in_ or not set(known.coding) <= set(known.names)):
        raise ValueError("the coded columns are no features")
    units = model._units
    sizes = set() if units is None else {part.shape for part in (units.scale, units.centre) if part is not None}
    if not (sizes <= {(width,)} and (units is None or (units.scale > 0.0).all())):
        raise ValueError("the units of the features must be positive numbers, one for each")
    for certificate in [getattr(model, "certificate_", None), *(getattr(model, "certificates_", None) or ())]:
        if not isinstance(certificate, Certificate | None):
            raise TypeError("certificates_ must hold certificates")
        if certificate is not None and certificate.lower > certificate.upper + 1e-6 * max(abs(certificate.upper), 1.0):
            raise ValueError(f"a certificate has its lower bound above its risk: {certificate!r}")
    model.problem_.check_width(width)


def _is_plain(value: Any) -> bool:
    """Whether a parameter can be written."""
    try:
        _encode(value)
    except TypeError:
        return False
    return True


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
        if np.dtype(value["dtype"]).kind not in "fiubOU":
            raise ValueError(f"an array of {value['dtype']!r}")
        return np.array(_decode(value["array"]), dtype=value["dtype"])
    if kind == "sparse":
        *parts, shape = _decode(value["sparse"])
        matrix = sp.csr_matrix(tuple(parts), shape=shape)
        matrix.check_format(full_check=True)
        return matrix
    if kind == "dict":
        return {_decode(key): _decode(part) for key, part in value["dict"]}
    if kind == "status":
        return Status[value["status"]]
    if kind == "type":
        made = {name: _decode(part) for name, part in value["fields"].items()}
        return _TYPES[value["type"]](**(made | ({"dual": None} if value["type"] == "Solution" else {})))
    raise ValueError(f"an object of no known kind: {kind!r}")
