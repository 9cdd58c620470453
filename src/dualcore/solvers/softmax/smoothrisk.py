"""The risk of a softmax model with its kinks smoothed: value and gradient in one pass over the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dualcore.certificates.softmax.flow import SmoothPoint, movable_prices
from dualcore.certificates.softmax.products import ClassProducts, empty_scores
from dualcore.certificates.softmax.widest import SmoothedMaximum, widest_for
from dualcore.data.arrays import FloatArray

__all__ = ["SmoothRisk", "SmoothRiskValue"]

# The smoothing width of label flips, in scores, for a relative width of 1 of the widest difference.
_LABEL_WIDTH = 12.0
# The first prior probability that a label does not change.
_STAYS = 0.9


class SmoothRiskValue(NamedTuple):
    """The smoothed risk at a model, its gradient of shape (K, width), and intermediate results.

    ``risk`` is the exact one, up to the precision of the products. ``width`` is that of the widest difference.
    """

    W: FloatArray
    value: float
    gradient: FloatArray
    risk: float
    budget: float
    found: SmoothedMaximum
    scores: FloatArray
    labels: FloatArray | None
    width: float
    label_width: float


class SmoothRisk:
    """The mean loss, the smoothed label flips and the smoothed widest difference.

        F(W) = min over nu >= 0 of  sigma (kappa_mu + nu) + sum_i w_i (l_i + f_i(kappa_mu + nu)) + ridge

    with ``f_i = v log(pi_iy + sum_{k != y} pi_ik exp((s_y - s_k - lam gamma) / v))``, which tends to the gain of the
    best label flip as ``v`` goes to 0. It is convex and smooth in W. The priors ``pi`` are replaced by the shares of
    the last round, as are those of the widest difference.

    Parameters
    ----------
    products : ClassProducts
    """

    def __init__(self, products: ClassProducts) -> None:
        self.products, self.design = products, products.design
        self.problem, self.masses = self.design.problem, self.design.data.masses
        n_classes, m = self.problem.family.n_outputs, self.design.scale.size
        self.widest = widest_for(self.design.norm, n_classes, m)
        self.price, self.inverse = movable_prices(self.design)
        self.every = np.arange(self.design.data.rows.n)
        n_labels = self.every.size if self.problem.family.flips else 0
        #: prior probabilities of labels, shape (n, K); shape (0, K) if labels cannot change
        self.prior = np.full((n_labels, n_classes), (1.0 - _STAYS) / (n_classes - 1), order="F")
        if n_labels:
            self.prior[self.every, self.design.code] = _STAYS
        #: factor on the width of the widest difference, smaller if label flips leave it little of the budget
        self.narrow = 1.0
        self.n_evaluations = 0
        self._multiplier = 0.0

    def unit(self, W: FloatArray) -> FloatArray:
        """Return the coefficients in units without prices, 0 where a feature cannot move."""
        return np.asarray(W[:, : self.price.size] * self.inverse)

    def at(self, W: FloatArray, width: float, scale: float) -> SmoothRiskValue:
        """Return value and gradient.

        Parameters
        ----------
        W : ndarray of shape (K, width)
        width : float
            Relative width of the smoothing.
        scale : float
            Approximate value of the widest difference.
        """
        self.n_evaluations += 1
        U, absolute = self.unit(W), width * scale * self.narrow
        found = self.widest.at(U, absolute)
        size = self.widest.exact(U)
        apart = W - W.mean(axis=0)  # models that differ by the same vector in all classes are equivalent
        penalty = 0.5 * float((self.design.ridge * apart * apart).sum())
        if self.problem.family.flips:
            value, risk, budget, moment, scores, labels = self._with_flips(W, found.value, size, width)
        else:
            loss, moment, scores = self._without(W)
            value, risk = loss + self.problem.radius * found.value, loss + self.problem.radius * size
            budget, labels = self.problem.radius, None
        gradient = moment + self.design.ridge * apart
        gradient[:, : self.price.size] += budget * found.gradient * self.inverse
        return SmoothRiskValue(
            W, value + penalty, gradient, risk + penalty, budget, found, scores, labels, absolute, _LABEL_WIDTH * width
        )

    def point(self, at: SmoothRiskValue) -> SmoothPoint:
        """Return the dual point of a model, with scores in double precision."""
        scores = self.products.scores(at.W) if self.products.single else at.scores
        return SmoothPoint(at.W, scores, at.labels, self.widest, at.width, at.found)

    def renew(self, at: SmoothRiskValue, gap: float) -> None:
        """Set the next priors to the shares at a point; ``gap`` is that of the best model and bound."""
        # If label flips spend the whole radius, the shares of the widest difference are arbitrary and not used. Its
        # width is reduced if flips leave less than a tenth of the radius.
        if at.budget > 1e-6 * self.problem.radius:
            self.widest.renew(at.found.shares, _floor(gap, at.budget * at.width))
        if self.problem.family.flips:
            left = at.budget / (0.1 * self.problem.radius)
            # The factor is at least 0.01.
            self.narrow = float(np.sqrt(self.narrow * np.clip(left, 0.01, 1.0)))
        if at.labels is not None:
            prior = np.maximum(at.labels, _floor(gap, at.label_width) / at.labels.shape[1])
            self.prior = prior / prior.sum(axis=1, keepdims=True)

    def smoothing_gap(self, at: SmoothRiskValue) -> float:
        """Return the error of smoothing: the exact risk minus the dual value of the smoothed risk."""
        U = self.unit(at.W)
        held = float((at.found.gradient * U).sum())
        out = at.budget * (self.widest.exact(U) - held)
        return max(out, at.risk - at.value, 0.0)

    def _without(self, W: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        scores, code, masses = empty_scores(self.every.size, W.shape[0]), self.design.code, self.masses
        loss = 0.0

        def slopes(part: slice, block: FloatArray) -> FloatArray:
            nonlocal loss
            scores[part] = block
            found, chances = _losses(block, code[part])
            loss += float(masses[part] @ found)
            chances[self.every[: len(block)], code[part]] -= 1.0
            chances *= masses[part, None]
            return chances

        moment = self.products.sweep(W, slopes)
        return loss, moment, scores

    def _with_flips(
        self, W: FloatArray, smooth: float, size: float, width: float
    ) -> tuple[float, float, float, FloatArray, FloatArray, FloatArray]:
        """Return smoothed value, exact risk, remaining budget, moment, scores and labels.

        It takes two products, since the multiplier and all slopes depend on the scores of all rows.
        """
        problem, masses, code = self.problem, self.masses, self.design.code
        gamma = problem.geometry.label_cost
        scores = self.products.scores(W, wide=False)
        loss, chances = _losses(scores, code)
        gain = scores[self.every, code] - scores.min(axis=1)
        mean_loss = float(masses @ loss)
        delta = gain / gamma
        beyond = np.flatnonzero(delta > size)
        risk = problem.family.flip_form.minimise_sums(mean_loss, delta[beyond], masses[beyond], size).value
        multiplier, flips, labels = self._flip(scores, gain, smooth, _LABEL_WIDTH * width)
        spent = gamma * float(masses @ (1.0 - labels[self.every, code]))
        value = problem.radius * multiplier + mean_loss + flips
        chances -= labels
        chances *= masses[:, None]
        moment = self.products.moment(chances, wide=False)
        return value, risk, max(problem.radius - spent, 0.0), moment, scores, labels

    def _flip(
        self, scores: FloatArray, gain: FloatArray, least: float, width: float
    ) -> tuple[float, float, FloatArray]:
        """Return the multiplier, the mean gain of label flips, and the probabilities of labels, shape (n, K)."""
        gamma, radius, code = self.problem.geometry.label_cost, self.problem.radius, self.design.code
        near = np.flatnonzero((gain > gamma * least - 30.0 * width) & (self.masses > 0.0))
        if not near.size:
            labels = np.zeros_like(scores)
            labels[self.every, code] = 1.0
            return least, 0.0, labels
        if 2 * near.size > self.every.size:  # using all rows is cheaper than copying most of them
            near, part, prior = self.every, scores, self.prior
        else:
            part, prior = _taken(scores, near), _taken(self.prior, near)
        own, masses, across, most = code[near], self.masses[near], np.arange(near.size), gain[near] / width
        # Gains relative to the largest, to avoid overflow.
        part = (part - (part[across, own] - gain[near])[:, None]) / -width
        np.exp(part, out=part)
        part *= prior
        part[across, own] = 0.0
        total = np.maximum(part.sum(axis=1), 1e-300)
        stay = prior[across, own]
        ahead = np.log(total) + most - np.log(stay)  # log odds of a change at multiplier 0
        steep, multiplier = gamma / width, least
        share = expit(ahead - steep * least)
        if gamma * float(masses @ share) > radius:
            low, high = least, max(float(gain[near].max()) / gamma, least) + 30.0 * width / gamma
            multiplier = self._multiplier if low < self._multiplier < high else 0.5 * (low + high)
            # Safeguarded Newton steps for the multiplier at which flips spend the radius.
            for _ in range(60):
                share = expit(ahead - steep * multiplier)
                over = gamma * float(masses @ share) - radius
                low, high = (multiplier, high) if over > 0.0 else (low, multiplier)
                if abs(over) <= 1e-13 * radius or high - low <= 1e-15 * high:
                    break
                slope = gamma * steep * float(masses @ (share * (1.0 - share)))
                ahead_by = multiplier + over / slope if slope > 0.0 else np.inf
                multiplier = ahead_by if low < ahead_by < high else 0.5 * (low + high)
            self._multiplier = multiplier
        value = float(masses @ (np.log(stay) + np.logaddexp(0.0, ahead - steep * multiplier)))
        part *= (share / total)[:, None]
        part[across, own] = 1.0 - share
        if near.size == self.every.size:
            return multiplier, width * value, part
        labels = np.zeros_like(scores)
        labels[self.every, code] = 1.0
        labels[near] = part
        return multiplier, width * value, labels


def _floor(gap: float, width: float) -> float:
    """Return the weight of a uniform distribution in the next prior."""
    # With probability zero a share could not grow again. The weight times the width is a permanent error of the
    # smoothed risk, so it is at most 0.3 of the gap, and at most 1e-3.
    return min(1e-3, 0.3 * gap / max(width, 1e-300))


def _taken(table: FloatArray, rows: npt.NDArray[np.intp]) -> FloatArray:
    """Return some rows of a table, in Fortran order as the table is."""
    return np.asarray(table.T[:, rows].T)


def _losses(scores: FloatArray, code: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return losses and probabilities."""
    top = scores.max(axis=1)
    chances = np.exp(scores - top[:, None])
    total = chances.sum(axis=1)
    chances /= total[:, None]
    own = scores[np.arange(len(scores)), code]
    return np.log(total) + (top - own), chances
