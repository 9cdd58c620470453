"""Many classes at once: the worst-case risk of the softmax loss.

With scores ``s_k = theta_k . x + b_k`` the loss ``l(x, y) = log sum_k exp(s_k) - s_y`` has, in the features, the
Lipschitz constant ``max_{j,k} ||theta_j - theta_k||_*``, and giving a row the label ``y'`` gains ``s_y - s_{y'}``. So

    R = min over lam >= kappa of  sigma lam + sum_i w_i h_i ,      kappa = max_{j,k} ||theta_j - theta_k||_* ,
    h_i = l_i + (s_{i,y_i} - min_k s_{ik} - lam gamma)_+ ,

the dual of the binary logistic loss with the widest margin ``s_y - min_k s_k`` in the place of the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from dualcore.data.arrays import LARGEST, FloatArray
from dualcore.data.rows import Rows
from dualcore.problem.anchor import Anchor
from dualcore.problem.families.base import Data, Family, Gradient, RowDual
from dualcore.problem.forms import DualForm, MarginForm, Minimum, weighted_sum
from dualcore.problem.forms.base import masses_of
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Logistic, Softmax

Codes = npt.NDArray[np.int64]


class RowTerms(NamedTuple):
    """The loss and the largest gain of another label for each row, shape (n,) each."""

    loss: FloatArray
    gain: FloatArray


class SoftmaxFamily(Family):
    """A softmax model of K classes: ``coef`` of shape (K, n_features), ``intercept`` of shape (K,).

    Targets are class numbers 0 to K - 1. Only differences between classes count.

    Examples
    --------
    >>> from dualcore import Problem
    >>> X, y = np.array([[1.0], [0.0], [-1.0]]), np.array([0, 1, 2])
    >>> problem = Problem("softmax", n_classes=3, radius=0.5)
    >>> round(problem.risk(np.zeros((3, 1)), np.zeros(3), X, y), 12)  # log 3
    1.098612288668
    """

    name = "softmax"
    flips_only = True
    target_name = "class number"

    def __init__(self, loss: Softmax, geometry: Geometry, radius: float) -> None:
        if geometry.support is not None:
            raise ValueError(
                "Softmax problems (multi_class='multinomial') take features that can move anywhere: use "
                "multi_class='ovr' with a support."
            )
        super().__init__(loss, geometry, radius)
        self.n_outputs = loss.n_classes
        # In the multiplier the risk is that of the logistic loss: a change of label gains the margin itself there.
        self.flip_form = MarginForm(Logistic(), geometry, radius)

    @property
    def form(self) -> DualForm:
        self.require_one_score("A closed form in one margin")

    def require_one_score(self, what: str) -> NoReturn:
        raise ValueError(
            f"{what} is about problems of one score, and a softmax problem has {self.n_outputs} scores a row. Use "
            "solve, certify, risk or a sampler, or one class against the rest."
        )

    @property
    def strata(self) -> tuple[float, ...]:
        return tuple(float(k) for k in range(self.n_outputs))

    # Models

    def as_model(self, coef: npt.ArrayLike, intercept: Any) -> tuple[FloatArray, FloatArray]:
        theta, b = np.asarray(coef, dtype=np.float64), np.asarray(intercept, dtype=np.float64)
        if theta.ndim != 2 or theta.shape[0] != self.n_outputs or b.shape != (self.n_outputs,):
            raise ValueError(
                f"A model of {self.n_outputs} classes has one row of coefficients and one intercept for each, got "
                f"shapes {theta.shape} and {b.shape}."
            )
        return theta, b

    def size(self, coef: FloatArray) -> float:
        """Return ``max_{j,k} ||theta_j - theta_k||_*``, which is also `kappa`."""
        return self.widest(coef)[0]

    def widest(self, coef: FloatArray) -> tuple[float, int, int]:
        """Return the largest difference of two classes' coefficients, and which two they are."""
        dual = self.geometry.norm.dual
        return max((dual(coef[j] - coef[k]), j, k) for k, j in combinations(range(self.n_outputs), 2))

    def signal(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: float) -> FloatArray:
        self.require_one_score("The margin or residual of a row")

    def losses(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: Any) -> FloatArray:
        return self.terms(rows, y, coef, intercept).loss

    def errors(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: Any) -> FloatArray:
        out = np.empty(rows.n)
        for part, scores in self.scores(rows, coef, intercept):
            out[part] = scores.argmax(axis=1) != y[part]
        return out

    def kappa(self, coef: FloatArray) -> float:
        return self.size(coef)

    def feasible_multiplier(self, coef: FloatArray, multiplier: float) -> float:
        return self.flip_form.feasible_multiplier(self.size(coef), multiplier)

    def largest_multiplier(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: Any) -> float:
        return self.flip_form.largest_multiplier(self.terms(rows, y, coef, intercept).gain, self.size(coef))

    # Rows

    def rows(self, model: Anchor, X: Any, y: FloatArray) -> RowDual:
        scores, code = np.asarray(X @ model.coef.T, dtype=np.float64) + model.intercept, y.astype(np.int64)
        loss, gain = row_terms(scores, code)
        flips = self._flips(gain, model.multiplier)
        h, spent = loss, np.zeros(loss.size)
        if flips.any():
            h = np.where(flips, loss + (gain - model.multiplier * self.geometry.label_cost), loss)
            spent[flips] = self.geometry.label_cost
        slope = _slopes(scores, np.where(flips, scores.argmin(axis=1), code))
        return RowDual(h, h, slope, spent, X, loss, gain)

    def _flips(self, gain: FloatArray, multiplier: float) -> npt.NDArray[np.bool_]:
        """Return which rows gain more by another label than it costs."""
        if not self._has_label_cost:
            return np.zeros(gain.size, dtype=bool)
        return np.asarray(gain > multiplier * self.geometry.label_cost)

    def scores(self, rows: Rows, coef: FloatArray, intercept: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, scores)`` block by block, scores of shape (rows, K)."""
        self.check_model(coef, intercept, rows.m)
        across = np.ascontiguousarray(coef.T)
        for part, block in rows.blocks():
            with np.errstate(invalid="ignore", over="ignore"):  # checked below, by name
                scores = np.asarray(block @ across) + intercept
                total = scores.sum()
            if not abs(total) <= LARGEST:
                rows.check_finite()
            yield part, scores

    def terms(self, rows: Rows, y: FloatArray, coef: FloatArray, intercept: FloatArray) -> RowTerms:
        """Return loss and widest margin of every row."""
        loss, gain = np.empty(rows.n), np.empty(rows.n)
        for part, scores in self.scores(rows, coef, intercept):
            loss[part], gain[part] = row_terms(scores, y[part].astype(np.int64))
        return RowTerms(loss, gain)

    def bounds(self, model: Anchor, rows: Rows, y: FloatArray, *, rule: str = "exact") -> tuple[FloatArray, FloatArray]:
        terms = self.terms(rows, y, model.coef, model.intercept)
        h = np.full(rows.n, np.inf)
        if model.multiplier >= self.kappa(model.coef) * (1.0 - 1e-12):
            h = terms.loss
            if self._has_label_cost:
                h = h + np.maximum(terms.gain - model.multiplier * self.geometry.label_cost, 0.0)
        return h, h

    def minimise(self, data: Data, coef: FloatArray, intercept: Any) -> Minimum:
        rows, y, weights = data
        loss, gain = self.terms(rows, y, coef, intercept)
        size = self.size(coef)
        chosen, delta = self.flip_form.flip_candidates(gain, size)
        masses = masses_of(chosen, gain.size, weights)
        return self.flip_form.minimise_sums(weighted_sum(loss, weights), delta, masses, size)

    def gradient(self, data: Data, coef: FloatArray, intercept: Any, multiplier: float | None = None) -> Gradient:
        """Return a subgradient; of the minimum over the multiplier the last row that flips does so in part."""
        rows, y, weights = data
        gain, size = self.terms(rows, y, coef, intercept).gain, self.size(coef)
        share = np.zeros(rows.n)
        if multiplier is None:
            flipped, part_of = self.flip_form.flip_shares(gain, weights, size)
            share[flipped] = part_of
        else:
            share[self._flips(gain, multiplier)] = 1.0
        masses = data.masses
        in_coef, in_intercept = np.zeros(coef.shape), np.zeros(self.n_outputs)
        for (part, scores), (_, block) in zip(self.scores(rows, coef, intercept), rows.blocks(), strict=True):
            code, worst = y[part].astype(np.int64), scores.argmin(axis=1)
            slope = _slopes(scores, code)
            across = np.arange(code.size)
            slope[across, code] += share[part]
            slope[across, worst] -= share[part]
            slope *= masses[part, None]
            in_coef += np.asarray(block.T @ slope).T
            in_intercept += slope.sum(axis=0)
        spent = self.geometry.label_cost * float(masses @ share) if share.any() else 0.0
        if multiplier is None:  # what flips leave of the budget moves rows along the widest difference
            width, j, k = self.widest(coef)
            if width > 0.0:
                direction = max(self.radius - spent, 0.0) * self.geometry.norm.steepest(coef[j] - coef[k])
                in_coef[j] += direction
                in_coef[k] -= direction
        return Gradient(in_coef, in_intercept, -spent)

    def extremes(self, n_features: int, longest: float, *, fit_intercept: bool) -> tuple[float, float]:
        # Probabilities less a label have at most the length of a row that is all wrong, the square root of two.
        longest, largest = super().extremes(n_features, longest, fit_intercept=fit_intercept)
        return float(np.sqrt(2.0)) * longest, largest


def row_terms(scores: FloatArray, code: Codes) -> RowTerms:
    """Return loss and widest margin from the scores of rows, shape (n, K)."""
    own = np.take_along_axis(scores, code[:, None], axis=1)
    return RowTerms(_losses(scores - own, code), own[:, 0] - scores.min(axis=1))


def _slopes(scores: FloatArray, label: Codes) -> FloatArray:
    """Return the derivative of the loss in every score: probabilities less the label."""
    slope = np.asarray(softmax(scores, axis=1))
    slope[np.arange(label.size), label] -= 1.0
    return slope


def _losses(ahead: FloatArray, code: Codes) -> FloatArray:
    """Return ``log sum_k exp(ahead_k)``, of small losses all digits; ``ahead`` are scores less the row's own."""
    np.put_along_axis(ahead, code[:, None], -np.inf, axis=1)
    top = np.maximum(ahead.max(axis=1), 0.0)
    others = np.exp(ahead - top[:, None]).sum(axis=1)
    return np.asarray(np.where(top > 0.0, top + np.log(np.exp(-top) + others), np.log1p(others)))
