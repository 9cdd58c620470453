"""Many classes at once: the worst-case risk of the softmax loss.

With scores ``s_k = theta_k . x + b_k`` the loss ``l(x, y) = log sum_k exp(s_k) - s_y`` has, in the features, the
Lipschitz constant ``max_{j,k} ||theta_j - theta_k||_*``, and giving a row the label ``y'`` gains ``s_y - s_{y'}``. So

    R = min over lam >= kappa of  sigma lam + sum_i w_i h_i ,      kappa = max_{j,k} ||theta_j - theta_k||_* ,
    h_i = l_i + (s_{i,y_i} - min_k s_{ik} - lam gamma)_+ ,

the dual of the binary logistic loss with the widest margin ``s_y - min_k s_k`` in the place of the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray, plain_array
from dualcore.data.rows import Rows, as_rows, as_weights
from dualcore.problem import Problem
from dualcore.problem.forms import MarginForm, Minimum, weighted_sum
from dualcore.problem.losses import Logistic

__all__ = ["ClassData", "RowTerms", "SoftmaxProblem"]


class ClassData(NamedTuple):
    """Validated rows, class numbers 0 .. K-1, and masses that sum to one (None: equal masses)."""

    rows: Rows
    code: npt.NDArray[np.int64]
    weights: FloatArray | None

    @property
    def masses(self) -> FloatArray:
        """The masses, written out."""
        return np.full(self.rows.n, 1.0 / self.rows.n) if self.weights is None else self.weights


class RowTerms(NamedTuple):
    """What the dual needs of each row, shape (n,) each: the loss and the most that another label gains."""

    loss: FloatArray
    gain: FloatArray


class SoftmaxProblem:
    """The worst-case risk of a softmax model with K classes.

    Parameters
    ----------
    base : Problem
        A logistic problem: its radius, norm, label cost, ridge and intercept are those of the softmax problem. The
        ridge adds ``ridge / 2 * sum_k ||theta_k||^2``.
    n_classes : int
        ``K >= 2``. With two classes and no ridge the risk is that of the logistic problem at ``theta_1 - theta_0``.

    Examples
    --------
    >>> X, y = np.array([[1.0], [0.0], [-1.0]]), np.array([0, 1, 2])
    >>> problem = SoftmaxProblem(Problem("logistic", radius=0.5), n_classes=3)
    >>> round(problem.risk(np.zeros((3, 1)), np.zeros(3), X, y), 12)  # log 3
    1.098612288668
    """

    form: MarginForm

    def __init__(self, base: Problem, n_classes: int) -> None:
        if base.geometry.support is not None:
            raise ValueError(
                "Softmax problems (multi_class='multinomial') take features that can move anywhere: use "
                "multi_class='ovr' with a support."
            )
        if not (type(base.loss) is Logistic and isinstance(base.form, MarginForm)):
            raise TypeError(f"A softmax problem extends a logistic one, got {base!r}.")
        if isinstance(n_classes, bool) or not isinstance(n_classes, (int, np.integer)):
            raise TypeError(f"n_classes must be a whole number, got {n_classes!r}.")
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes!r}.")
        self.base, self.n_classes, self.form = base, int(n_classes), base.form

    def __eq__(self, other: object) -> bool:
        """Whether both state the same problem."""
        if type(other) is not type(self):
            return NotImplemented
        return (self.base, self.n_classes) == (other.base, other.n_classes)

    def __hash__(self) -> int:
        return hash((self.base, self.n_classes))

    def __repr__(self) -> str:
        return f"SoftmaxProblem({self.base!r}, n_classes={self.n_classes})"

    @property
    def flips(self) -> bool:
        """Whether the adversary can afford to change labels."""
        return self.base.radius > 0.0 and bool(np.isfinite(self.base.geometry.label_cost))

    def validate(self, X: Any, y: Any, sample_weight: Any = None) -> ClassData:
        """Check shapes, class numbers and weights; ``X`` is not copied."""
        rows = as_rows(X)
        prices = self.base.geometry.norm.weights
        if prices is not None and prices.size != rows.m:
            raise ValueError(f"feature_weights holds {prices.size} prices but X has {rows.m} features.")
        code = plain_array("y", y)
        if code.shape != (rows.n,):
            raise ValueError(f"y must hold one class number per row ({rows.n}), got shape {code.shape}.")
        if code.dtype.kind not in "iu" or code.min() < 0 or code.max() >= self.n_classes:
            raise ValueError(
                f"y must hold class numbers from 0 to {self.n_classes - 1}. An estimator takes any labels."
            )
        return ClassData(rows, code.astype(np.int64), as_weights(sample_weight, rows.n))

    def size(self, coef: npt.ArrayLike) -> float:
        """Return ``max_{j,k} ||theta_j - theta_k||_*``, which is also `kappa`."""
        theta = np.asarray(coef, dtype=np.float64)
        norm = self.base.geometry.norm
        return max(norm.dual(theta[j] - theta[k]) for j in range(self.n_classes) for k in range(j))

    kappa = size

    def scores(self, coef: FloatArray, intercept: FloatArray, data: ClassData) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, scores)`` block by block, scores of shape (rows, K)."""
        theta, b = np.asarray(coef, dtype=np.float64), np.asarray(intercept, dtype=np.float64)
        if theta.shape != (self.n_classes, data.rows.m) or b.shape != (self.n_classes,):
            raise ValueError(
                f"A model of {self.n_classes} classes and {data.rows.m} features has coef of shape "
                f"{(self.n_classes, data.rows.m)} and as many intercepts as classes, got {theta.shape} and {b.shape}."
            )
        across = np.ascontiguousarray(theta.T)
        for part, block in data.rows.blocks():
            yield part, np.asarray(block @ across) + b

    def terms(self, coef: FloatArray, intercept: FloatArray, data: ClassData) -> RowTerms:
        """Return loss and widest margin of every row."""
        loss, gain = np.empty(data.rows.n), np.empty(data.rows.n)
        for part, scores in self.scores(coef, intercept, data):
            own = np.take_along_axis(scores, data.code[part, None], axis=1)
            gain[part] = own[:, 0] - scores.min(axis=1)
            loss[part] = _losses(scores - own, data.code[part])
        return RowTerms(loss, gain)

    def h(self, coef: FloatArray, intercept: FloatArray, multiplier: float, X: Any, y: Any) -> FloatArray:
        """Return the exact dual loss of every row, shape (n,); ``inf`` for a multiplier below `kappa`."""
        terms = self.terms(coef, intercept, self.validate(X, y))
        if multiplier < self.kappa(coef) * (1.0 - 1e-12):
            return np.full(terms.loss.shape, np.inf)
        return self.row_h(terms, multiplier)

    def row_h(self, terms: RowTerms, multiplier: float) -> FloatArray:
        """Return ``h`` of every row at a multiplier that is at least `kappa`."""
        gamma = self.base.geometry.label_cost
        if np.isinf(gamma):
            return terms.loss
        return terms.loss + np.maximum(terms.gain - multiplier * gamma, 0.0)

    def risk(self, coef: FloatArray, intercept: FloatArray, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the worst-case risk plus ridge: the exact minimum over the multiplier."""
        return self.evaluate(coef, intercept, self.validate(X, y, sample_weight)).value

    def evaluate(self, coef: FloatArray, intercept: FloatArray, data: ClassData) -> Minimum:
        """Return risk (ridge included) and multiplier on validated data."""
        return self.minimise(self.terms(coef, intercept, data), data.weights, coef)

    def minimise(self, terms: RowTerms, weights: FloatArray | None, coef: FloatArray) -> Minimum:
        """Return risk and multiplier from the terms of the rows."""
        size = self.size(coef)
        rows, delta = self.form.candidates(terms.gain, size)  # of the logistic loss a flip gains the margin itself
        masses = np.full(rows.size, 1.0 / terms.gain.size) if weights is None else weights[rows]
        value, multiplier = self.form.minimise_sums(weighted_sum(terms.loss, weights), delta, masses, size)
        return Minimum(value + self.penalty(coef), multiplier)

    def penalty(self, coef: FloatArray) -> float:
        """Return ``ridge / 2 * sum_k ||theta_k||_2^2``."""
        return 0.5 * self.base.ridge * float(np.square(coef).sum())


def _losses(ahead: FloatArray, code: npt.NDArray[np.int64]) -> FloatArray:
    """Return ``log sum_k exp(ahead_k)``, of small losses all digits; ``ahead`` are scores less the row's own."""
    np.put_along_axis(ahead, code[:, None], -np.inf, axis=1)
    top = np.maximum(ahead.max(axis=1), 0.0)
    others = np.exp(ahead - top[:, None]).sum(axis=1)
    return np.asarray(np.where(top > 0.0, top + np.log(np.exp(-top) + others), np.log1p(others)))
