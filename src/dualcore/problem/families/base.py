"""The interface of families of problems: the worst-case moves of rows, their costs and their gains.

A family is one class in one file. The rest of the package uses what is declared here and does not depend on which
family it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import LARGEST, FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.anchor import Anchor
from dualcore.problem.forms import DualForm, MarginForm, Minimum
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss


class Data(NamedTuple):
    """Validated training data: row access, targets, and masses that sum to one (None: equal masses)."""

    rows: Rows
    y: FloatArray
    weights: FloatArray | None

    @property
    def masses(self) -> FloatArray:
        """The masses, written out."""
        return np.full(self.rows.n, 1.0 / self.rows.n) if self.weights is None else self.weights


class RowDual(NamedTuple):
    """The worst-case moves of the rows of a block at a model and a multiplier; shape (n_rows,) unless stated.

    ``lower <= h <= upper``, equal wherever ``h`` has a closed form; ``lower`` is attained by the move. Where the family
    has ``flips_only``, ``h = loss + max(gain - multiplier * label_cost, 0)``.
    """

    lower: FloatArray
    upper: FloatArray
    slope: FloatArray  # or (n_rows, n_outputs): of h in the scores ``coef . x' + intercept`` of the moved row
    spent: FloatArray  # transport that the move costs, to the order of the distance: minus the slope in the multiplier
    moved: Any  # (n_rows, n_features), dense or sparse: the features after the move; the block itself where they stay
    loss: FloatArray | None = None
    gain: FloatArray | None = None


class Gradient(NamedTuple):
    """A (sub)gradient in the coefficients, the intercept and the multiplier."""

    coef: FloatArray
    intercept: Any
    multiplier: float


class Family(ABC):
    """How the adversary of a problem acts on rows."""

    # What solvers and readers are registered by.
    name: ClassVar[str] = ""
    # How a block of rows is read: "closed" from margins or residuals alone, "rowwise" from `rows`.
    kernel: ClassVar[str] = "rowwise"
    # Whether ``h`` is a function of a row's margin or residual and of ``||coef||_*`` alone; then `form` has it.
    is_closed: ClassVar[bool] = False
    # Whether `rows` may return moved features.
    moves_rows: ClassVar[bool] = False
    # Whether some change of the coefficients shifts all scores, moved or not, as the intercept does: `folded`.
    holds_intercept: bool = False
    # Whether ``h`` depends on the multiplier through changes of label alone: `rows` then gives ``loss`` and ``gain``.
    flips_only: ClassVar[bool] = False
    # Name of a row's target in messages.
    target_name: ClassVar[str] = "target"
    # Whether ``h`` is piecewise linear in the multiplier: moving twice as far costs twice as much.
    linear_in_multiplier: bool = True
    # Whether ``h`` is finite at the smallest multiplier itself, and not only above it.
    finite_at_kappa: bool = True
    # Columns that contain only ones and zeros.
    one_hot: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    # Scores of a row: 1, or one for each of many classes.
    n_outputs: int = 1
    # The minimum over the multiplier, from losses and gains; only where the family has ``flips_only``.
    flip_form: MarginForm

    def __init__(self, loss: Loss, geometry: Geometry, radius: float) -> None:
        self.loss, self.geometry, self.radius = loss, geometry, radius

    @property
    def form(self) -> DualForm:
        """The closed form; only where `is_closed`."""
        raise ValueError(
            f"This needs a closed form, and of the {self.name!r} family the dual loss of a row is no function of its "
            "margin or residual alone. Use solve, certify, a sampler's build or fit, or support=None."
        )

    @property
    def is_classification(self) -> bool:
        """Whether rows carry labels rather than a real target."""
        return self.loss.has_labels

    @property
    def strata(self) -> tuple[float, ...]:
        """Labels of which no draw may lose one; none in regression."""
        return (-1.0, 1.0) if self.is_classification else ()

    @property
    def flips(self) -> bool:
        """Whether the adversary may change labels, and has a budget for it."""
        return self.is_classification and self.radius > 0.0 and bool(np.isfinite(self.geometry.label_cost))

    @property
    def enclosure(self) -> float:
        """Largest difference of ``lower`` and ``upper`` of a row, relative for values above one."""
        return 0.0

    # Data in

    def check_target(self, y: FloatArray) -> None:
        """Raise ValueError where the targets of all rows cannot be learned from."""
        if self.first_wrong_label(y) is not None:
            found = np.unique(y[:100000]).tolist()
            raise ValueError(
                f"{self.label_fault(found[:5])}{' and more' if len(found) > 5 else ''} in y. "
                "Map your classes to these, or use an estimator, which does."
            )
        if self.strata and self.n_outputs == 1 and y.min() == y.max():
            raise ValueError(f"y holds one class only ({y[0]:+g}); a classifier needs rows of both classes.")

    def first_wrong_label(self, y: FloatArray) -> int | None:
        """Return the number of the first row with a target that no row may have; a chunk may hold one class only."""
        if not self.strata:
            return None
        wrong = np.flatnonzero(np.array(self.strata)[np.minimum(self.stratum(y), len(self.strata) - 1)] != y)
        return int(wrong[0]) if wrong.size else None

    def label_fault(self, label: Any) -> str:
        """Return a description of an invalid target, or of several, for an error message."""
        if self.n_outputs == 1:
            return f"A classifier needs the labels -1 and +1, found {label!r}"
        return f"The classes have the numbers 0 to {self.n_outputs - 1}, found {label!r}"

    def stratum(self, y: FloatArray) -> npt.NDArray[np.intp]:
        """Return the number of every row's stratum."""
        return np.searchsorted(self.strata, y)

    def check_width(self, n_features: int) -> None:
        """Raise ValueError where the family names a feature that is not there."""
        return

    def check_rows(self, rows: Rows, first: int = 0) -> None:
        """Raise ValueError if a row has invalid features; ``first`` is the number of the first row."""
        return

    # Models

    def model_shape(self, n_features: int) -> tuple[int, ...]:
        """Return the shape of the coefficients."""
        return (n_features,) if self.n_outputs == 1 else (self.n_outputs, n_features)

    def folded(self, coef: FloatArray, intercept: float) -> FloatArray:
        """Return the coefficients that hold the intercept too; only where `holds_intercept`."""
        raise ValueError(f"The coefficients of the {self.name!r} family hold no intercept.")

    def as_model(self, coef: npt.ArrayLike, intercept: Any) -> tuple[FloatArray, Any]:
        """Return coefficients and intercept as numbers of the family's kind."""
        return np.asarray(coef, dtype=np.float64), float(intercept)

    def check_model(self, coef: FloatArray, intercept: Any, n_features: int) -> None:
        """Raise ValueError where a model is not one of so many features, or not finite."""
        if coef.shape != self.model_shape(n_features):
            classes = "" if self.n_outputs == 1 else f" and class ({self.n_outputs})"
            raise ValueError(f"coef must hold one number per feature ({n_features}){classes}, got shape {coef.shape}.")
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError("coef and intercept must be finite.")

    def zero_model(self, n_features: int) -> tuple[FloatArray, Any]:
        """Return the model whose scores are all zero."""
        return np.zeros(self.model_shape(n_features)), 0.0 if self.n_outputs == 1 else np.zeros(self.n_outputs)

    def size(self, coef: FloatArray) -> float:
        """Return the Lipschitz constant of the scores in the features: ``||coef||_*``."""
        return self.geometry.norm.dual(coef)

    def signal(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> FloatArray:
        """Return the margins ``y (X coef + b)`` or the residuals ``X coef + b - y`` of all rows, shape (n,)."""
        self.check_model(coef, intercept, rows.m)
        with np.errstate(invalid="ignore", over="ignore"):  # checked below, by name
            t = rows.dot(coef)
        t += intercept
        if self.is_classification:
            t *= y
        else:
            t -= y
        with np.errstate(invalid="ignore", over="ignore"):
            total = t.sum()
        if not abs(total) <= LARGEST:
            rows.check_finite()
        return t

    def signal_at(self, model: Any, X: Any, y: FloatArray) -> FloatArray:
        """Return the margins or the residuals of a block of rows at a model with ``coef`` and ``intercept``."""
        score: FloatArray = np.asarray(X @ model.coef, dtype=np.float64) + model.intercept
        return score * y if self.is_classification else score - y

    def losses(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: Any) -> FloatArray:
        """Return the losses of all rows, with no adversary, shape (n,)."""
        return np.asarray(self.loss.value(self.signal(rows, y, coef, intercept)))

    def errors(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: Any) -> FloatArray:
        """Return 1 for every row whose label is not the one predicted, or the absolute residuals, shape (n,)."""
        t = self.signal(rows, y, coef, intercept)
        # A score of exactly 0 is predicted as the negative class.
        return np.where(y > 0.0, t <= 0.0, t < 0.0).astype(np.float64) if self.loss.has_labels else np.abs(t)

    def require_one_score(self, what: str) -> None:
        """Raise ValueError where rows have several scores and ``what`` is about one."""
        return

    # Multipliers

    @abstractmethod
    def kappa(self, coef: FloatArray) -> float:
        """Return the smallest multiplier for which every ``h_i`` is finite."""

    @abstractmethod
    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> float:
        """Return an upper bound on the minimising multiplier for any masses."""

    def feasible_multiplier(self, coef: FloatArray, multiplier: float) -> float:
        """Return the multiplier, raised to where ``h`` of every row is finite at these coefficients."""
        return max(multiplier, self.kappa(coef))

    def multiplier_face(self, coef: FloatArray, target: FloatArray, budget: float) -> FloatArray:
        """Return the point nearest to ``target`` among the subgradients of ``budget`` times the least multiplier.

        Of orders above 1 it is that of ``budget`` times the dual norm, on which ``h`` itself depends.
        """
        return np.zeros_like(coef)

    # Rows

    @abstractmethod
    def rows(self, model: Anchor, X: Any, y: FloatArray) -> RowDual:
        """Return the worst-case moves of the rows of a block."""

    @abstractmethod
    def bounds(self, model: Anchor, rows: Rows, y: FloatArray, *, rule: str = "exact") -> tuple[FloatArray, FloatArray]:
        """Return ``a_i <= h_i <= b_i`` of all rows, infinite below `kappa`."""

    @abstractmethod
    def minimise(self, data: Data, coef: FloatArray, intercept: Any) -> Minimum:
        """Return the minimum of ``sigma^p lam + sum_i w_i h_i`` over the multiplier."""

    @abstractmethod
    def gradient(self, data: Data, coef: FloatArray, intercept: Any, multiplier: float | None = None) -> Gradient:
        """Return a subgradient of ``sum_i w_i h_i`` at a multiplier, or at the best one of that of the minimum.

        In the multiplier it is minus the mean transport that is spent.
        """

    def extremes(self, n_features: int, longest: float, *, fit_intercept: bool) -> tuple[float, float]:
        """Return the length of the longest row after a move, a one for the intercept included, and the largest cost."""
        return longest, self.geometry.label_cost if self.is_classification and self._has_label_cost else 0.0

    def unbounded_features(self, n_features: int, *, fit_intercept: bool) -> npt.NDArray[np.bool_]:
        """Return which coefficients are unbounded without a ridge, so that no region must contain the optimum."""
        return np.zeros(n_features, dtype=bool)

    @property
    def _has_label_cost(self) -> bool:
        return bool(np.isfinite(self.geometry.label_cost))
