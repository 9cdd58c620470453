"""The flow bound from sums of one read: mean loss and gradient at a model, and the means of the classes.

Row by row the entropy of a model's probabilities is the loss less ``(p - u) . s``, so that its mean is the mean loss
less the product of gradient and model. Probabilities must give every class the mass of its rows. Where they do not, a
share of each row is replaced by its label, some of which goes from classes with too much to the others: what that does
to the moment is known from the class means, and the entropy is concave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from dualcore.certificates.rounding import sum_error
from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flow import SmoothPoint, priced_bound
from dualcore.certificates.softmax.levels import ClassLevelSet
from dualcore.data.arrays import FloatArray

__all__ = ["ClassSums", "ClassTotals", "sums_bound"]


class ClassTotals(NamedTuple):
    """What is known of all rows before any model.

    Attributes
    ----------
    n_rows : int
    masses : ndarray of shape (K,)
    moments : ndarray of shape (K, m)
        ``sum of w x`` over the rows of each class.
    sizes : ndarray of shape (m,)
        Root mean squares of the columns.
    """

    n_rows: int
    masses: FloatArray
    moments: FloatArray
    sizes: FloatArray


class ClassSums(NamedTuple):
    """What one read tells of a model whose labels do not change: mean loss, its derivatives (K,) and (K, m)."""

    loss: float
    slope: FloatArray
    gradient: FloatArray


def sums_bound(
    design: ClassDesign, shift: FloatArray, totals: ClassTotals, sums: ClassSums, point: SmoothPoint, upper: float
) -> Bound:
    """Return a lower bound on the optimal risk of all rows.

    Parameters
    ----------
    design : ClassDesign
        Of any rows: its units are used, not its rows.
    shift : ndarray of shape (m,)
        The centre of the design in units of the data.
    totals : ClassTotals
    sums : ClassSums
        At the model of ``point``, in units of the data.
    point : SmoothPoint
        The model and the smoothed widest difference there; neither scores nor labels are looked at.
    upper : float
        The risk of any model.
    """
    level_set = ClassLevelSet(design, upper)
    if level_set.free.any():
        return Bound(-np.inf, 0.0)
    level_set.error = sum_error(totals.n_rows)
    level_set.moment_error = 2.0 * level_set.error * float(((totals.sizes + np.abs(shift)) / design.scale).max())
    m, theta = design.scale.size, point.W[:, : design.scale.size] / design.scale
    moment = (sums.gradient - sums.slope[:, None] * shift) / design.scale
    product = float((moment * point.W[:, :m]).sum())
    if design.intercept:
        product += float(sums.slope @ point.W[:, -1])
    value = sums.loss - product
    if design.intercept:
        means = (totals.moments - totals.masses[:, None] * shift) / design.scale
        share, moved, gained = _balanced(sums.slope, totals.masses, means)
        moment, value = (1.0 - share) * moment + moved, (1.0 - share) * value + gained
    # The entropy is a difference of sums as large as the scores.
    scores = float(np.abs(theta).max(axis=0) @ (totals.sizes + np.abs(shift)))
    scores += float(np.abs(point.W[:, m:]).max(initial=0.0))
    lost = 4.0 * (level_set.error + sum_error(m)) * scores
    value -= lost
    # A share of the way from labels to probabilities has at least that share of the entropy: it is concave.
    found = priced_bound(level_set, point, moment, value, design.problem.radius, lambda part: part * value)
    return Bound(found.value, found.rounding + lost)


def _balanced(slope: FloatArray, masses: FloatArray, moments: FloatArray) -> tuple[float, FloatArray, float]:
    """Return the share of labels to mix in, what moving some of them adds to the moment (K, m), and their entropy."""
    over, lack = np.maximum(slope, 0.0), np.maximum(-slope, 0.0)
    total = float(lack.sum())
    if not (over.any() and total > 0.0):
        return 0.0, np.zeros_like(moments), 0.0
    ratio = float((over / masses).max())
    share, give = ratio / (1.0 + ratio), lack / total
    out = (1.0 - share) * over
    leaving = (out / masses)[:, None] * moments
    part = np.minimum(out / (share * masses), 1.0)
    spread = -float(xlogy(give, give).sum())
    entropy = -xlogy(part, part) - xlogy(1.0 - part, 1.0 - part) + part * spread
    return share, give[:, None] * leaving.sum(axis=0) - leaving, share * float(masses @ entropy)
