"""The model file: a linear model as JSON, with its classes, its scaling, its certificate and where it came from.

Loading reads numbers and text; nothing in a file is ever run. Numbers are written with every digit, so a loaded model
decides exactly as the estimator it was saved from.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate
from dualcore.cli.coding import check_coding, coded_groups, coded_names
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources.transform import scale_rows
from dualcore.data.storage import ArchiveError, Record, check_number, check_whole, read_json, write_atomically
from dualcore.estimators.units import Units
from dualcore.problem import Problem
from dualcore.problem.losses import LOSSES, MarginLoss

_FORMAT = 1
_KIND = "dualcore-model"


class ModelError(ValueError):
    """A file is not a model that can be used; the message names it."""


@dataclass(frozen=True)
class Scaling:
    """Standardisation ``(x - centre) / scale`` of each feature, shape (n_features,) each.

    Examples
    --------
    >>> scaling = Scaling.fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> scaling.apply(np.array([[4.0, 5.0]]))
    array([[3., 0.]])
    """

    centre: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, X: FloatArray) -> Scaling:
        """Return the scaling to mean 0 and standard deviation 1; a constant feature is only centred."""
        return cls.of(Units.of(X, None))

    @classmethod
    def of(cls, units: Units) -> Scaling:
        """Return the scaling of columns in units of their deviations; sparse features are not centred."""
        return cls(np.zeros(units.scale.size) if units.centre is None else units.centre, 1.0 / units.prices)

    def apply(self, X: Any) -> Any:
        """Return the scaled features."""
        return scale_rows(X, self.centre, self.scale)


@dataclass(frozen=True)
class Model:
    """A trained linear model, apart from the library that trained it.

    There is one score in regression and for two classes, else one for each class. ``fill`` holds what was put for
    missing values of features in training, and is put for them in prediction. ``coding`` holds the columns of text with
    their values: each is a 0/1 feature, and a value that is not among them is a row of zeros.

    Examples
    --------
    >>> model = Model(np.array([[1.0, -1.0]]), np.zeros(1), ("no", "yes"), ("a", "b"), "t", None,
    ...               {"loss": "logistic", "radius": 0.1}, (Certificate(0.5, 0.4),))
    >>> model.predict(np.array([[2.0, 1.0], [0.0, 3.0]]))
    array(['yes', 'no'], dtype='<U3')
    """

    coef: FloatArray  # shape (n_scores, n_features)
    intercept: FloatArray  # shape (n_scores,)
    classes: tuple[Any, ...] | None  # labels, None in regression
    feature_names: tuple[str, ...]  # of the columns; `coef_names` has one name for each coefficient
    target: str  # name of the column that was learned
    scaling: Scaling | None
    settings: dict[str, Any]  # arguments of `Problem`
    certificates: tuple[Certificate, ...]  # one for each score: what is known on the training data
    provenance: dict[str, Any] = field(default_factory=dict)  # where the model came from, JSON values only
    fill: dict[str, float] = field(default_factory=dict)
    coding: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def from_estimator(cls, estimator: Any, **others: Any) -> Model:
        """Return the model of a fitted estimator of this package; what an estimator does not know is given by name."""
        classes = getattr(estimator, "classes_", None)
        return cls(
            coef=np.atleast_2d(estimator.coef_),
            intercept=np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
            classes=None if classes is None else tuple(classes.tolist()),
            certificates=tuple(estimator.certificates_),
            **{"scaling": None} | others,
        )

    @property
    def coef_names(self) -> tuple[str, ...]:
        """Names of the coefficients: those of the columns, and one for each value of a coded column."""
        return coded_names(self.feature_names, self.coding)

    @property
    def problem(self) -> Problem:
        """The problem the model was trained for."""
        return Problem(**self.settings)

    @property
    def is_classifier(self) -> bool:
        """Whether `predict` returns labels."""
        return self.classes is not None

    def scale(self, X: Any) -> Any:
        """Return features as the model saw them in training."""
        if X.shape[1] != self.coef.shape[1]:
            raise ModelError(f"The model takes {self.coef.shape[1]} features, the data have {X.shape[1]}.")
        return X if self.scaling is None else self.scaling.apply(X)

    def scores(self, X: Any) -> FloatArray:
        """Return ``X coef + intercept``, shape (n_rows, n_scores), by the operations of the estimators."""
        rows = as_rows(self.scale(X))
        if not self.is_classifier:
            return np.asarray(rows.dot(self.coef[0]) + self.intercept[0], dtype=np.float64)[:, None]
        return np.asarray(rows.dot(np.ascontiguousarray(self.coef.T)) + self.intercept, dtype=np.float64)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return labels, or values in regression, shape (n_rows,)."""
        scores = self.scores(X)
        if self.classes is None:
            return scores[:, 0]
        chosen = (scores[:, 0] > 0.0).astype(np.int64) if len(self.classes) == 2 else scores.argmax(axis=1)
        return np.asarray(np.array(self.classes)[chosen])

    def encode(self, labels: npt.NDArray[Any], positive: int = 1) -> FloatArray:
        """Return labels as -1 and +1, +1 for class number ``positive``; in regression the targets themselves."""
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)
        unknown = sorted(set(labels.tolist()) - set(self.classes), key=str)
        if unknown:
            raise ModelError(
                f"Column {self.target!r} holds labels the model does not know: {unknown[:5]}. "
                f"Known: {list(self.classes[:5])}."
            )
        return np.where(labels == self.classes[positive], 1.0, -1.0)

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, atomically."""
        content = {
            "kind": _KIND,
            "format": _FORMAT,
            "coef": self.coef.tolist(),
            "intercept": self.intercept.tolist(),
            "classes": None if self.classes is None else list(self.classes),
            "feature_names": list(self.feature_names),
            "target": self.target,
            "scaling": None
            if self.scaling is None
            else {"centre": self.scaling.centre.tolist(), "scale": self.scaling.scale.tolist()},
            "problem": {name: _to_json(value) for name, value in self.settings.items()},
            "certificates": [
                {"upper": _to_json(c.upper), "lower": _to_json(c.lower), "n_reads": c.n_reads, "rounding": c.rounding}
                for c in self.certificates
            ],
            "fill": self.fill,
            "coding": {name: list(values) for name, values in self.coding.items()},
            "provenance": self.provenance,
        }
        write_atomically(Path(path), (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a model that `save` wrote, after checking every part of it."""
        name = Path(path).name
        try:
            content = read_json(Path(path).read_bytes())
        except FileNotFoundError:
            raise ModelError(f"There is no file {path}.") from None
        except (OSError, ArchiveError) as error:
            raise ModelError(f"{name} is not a model file: {error}.") from None
        if content.get("kind") != _KIND:
            raise ModelError(f"{name} is not a model file written by dualcore fit.")
        if content.get("format") != _FORMAT:
            raise ModelError(f"{name} has format {content.get('format')!r}; this version reads {_FORMAT}.")
        try:
            model = cls._of(Record(content, {}))
            model._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            kind = "" if isinstance(error, ArchiveError) else f"{type(error).__name__}: "
            raise ModelError(f"{name} is a damaged model file: {kind}{error}.") from None
        return model

    @classmethod
    def _of(cls, record: Record) -> Model:
        classes, scaling = record.value("classes"), record.value("scaling")
        names = [_text("feature_names", name) for name in record.items("feature_names")]
        if scaling is not None:
            parts = record.within(scaling, "")
            scaling = Scaling(_numbers("centre", parts.items("centre")), _numbers("scale", parts.items("scale")))
        return cls(
            np.array([_numbers("coef", row) for row in record.items("coef")]),
            _numbers("intercept", record.items("intercept")),
            None if classes is None else tuple(record.items("classes")),
            tuple(names),
            record.text("target"),
            scaling,
            {name: _from_json(value) for name, value in record.mapping("problem").items()},
            tuple(_certificate(record.within(entry, "")) for entry in record.items("certificates")),
            record.mapping("provenance"),
            {name: check_number("fill", number) for name, number in record.mapping("fill", optional=True).items()},
            check_coding(record.values.get("coding", {})),  # not in files of the first edition
        )

    def _check(self) -> None:
        """See that the parts fit together."""
        for what, named in (("coding", self.coding), ("fill", self.fill)):
            strangers = sorted(set(named) - set(self.feature_names))
            if strangers:
                raise ValueError(f"{what} names {strangers[:5]}, which are no features")
        groups = coded_groups(self.feature_names, self.coding)
        if self.coding and [list(group) for group in self.settings.get("categories") or ()] != groups:
            raise ValueError("coding and the categories of the problem do not fit together")
        m = len(self.coef_names)
        wanted = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        shapes = {"coef": (self.coef.shape, (wanted, m)), "intercept": (self.intercept.shape, (wanted,))}
        if self.scaling is not None:
            shapes |= {"centre": (self.scaling.centre.shape, (m,)), "scale": (self.scaling.scale.shape, (m,))}
        for name, (found, expected) in shapes.items():
            if found != expected:
                raise ValueError(f"{name} has shape {found}, expected {expected}")
        if len(set(self.coef_names)) < m:
            raise ValueError("two features have the same name")
        if self.scaling is not None and not (self.scaling.scale > 0.0).all():
            raise ValueError("every scale must be positive")
        if len(self.certificates) != wanted:
            raise ValueError(f"there are {len(self.certificates)} certificates, expected {wanted}")
        for certificate in self.certificates:
            if certificate.lower > certificate.upper + 1e-6 * max(abs(certificate.upper), 1.0):
                raise ValueError(f"a certificate has its lower bound above its risk: {certificate!r}")
        if self.classes is not None:
            if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
                raise ValueError(f"classes must be two or more different labels, found {list(self.classes)[:5]!r}")
            if not all(isinstance(label, (str, int, float)) for label in self.classes):
                raise ValueError("classes must be texts or numbers")
        if self.settings.get("loss") not in LOSSES:
            raise ValueError(f"unknown loss {self.settings.get('loss')!r}")
        if issubclass(LOSSES[self.settings["loss"]], MarginLoss) != self.is_classifier:
            raise ValueError("loss and classes do not fit together")
        self.problem.check_width(m)  # the settings must make a problem, and one of these features


def _to_json(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_json(part) for part in value]
    return ("inf" if value > 0.0 else "-inf") if isinstance(value, float) and math.isinf(value) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    return {"inf": math.inf, "-inf": -math.inf}[value] if value in ("inf", "-inf") else value


def _certificate(record: Record) -> Certificate:
    upper, lower = (_from_json(record.value(name)) for name in ("upper", "lower"))
    for name, bound, open_end in (("upper", upper, math.inf), ("lower", lower, -math.inf)):
        if bound != open_end:
            check_number(name, bound)
    rounding = record.values.get("rounding", 0.0)  # files of the first edition do not have it
    check_number("rounding", rounding, 0.0)
    return Certificate(float(upper), float(lower), check_whole("n_reads", record.value("n_reads")), float(rounding))


def _numbers(name: str, found: Any) -> FloatArray:
    """Return a list of finite numbers as an array."""
    if not isinstance(found, list):
        raise ArchiveError(f"{name!r} must hold lists of numbers, found {type(found).__name__}")
    return np.array([check_number(name, number) for number in found], dtype=np.float64)


def _text(name: str, found: Any) -> str:
    if not isinstance(found, str):
        raise ArchiveError(f"{name!r} must hold texts, found {type(found).__name__}")
    return found
