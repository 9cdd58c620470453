"""A lower bound whose flow between classes is that of a smoothed maximum: no cone program, one pass over the rows.

The dual point is as in the module `bound`: probabilities ``p`` and labels ``u``. Where a model minimises the risk with
the widest difference smoothed, the moment of its probabilities is the divergence of a flow of exactly the cost that is
allowed; elsewhere what is left is the gradient, which is routed and priced.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax, xlogy

from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.bound import balance
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.levels import ClassLevelSet
from dualcore.certificates.softmax.products import ClassProducts
from dualcore.certificates.softmax.widest import SmoothedMaximum, Widest
from dualcore.data.arrays import FloatArray

__all__ = ["SmoothPoint", "flow_bound", "movable_prices"]


class SmoothPoint(NamedTuple):
    """A model and what belongs to it: wide scores, labels after flips (None where none change), the smoothed maximum.

    Shapes: W (K, width), scores and labels (n, K).
    """

    W: FloatArray
    scores: FloatArray
    labels: FloatArray | None
    widest: Widest
    width: float
    found: SmoothedMaximum


def movable_prices(design: ClassDesign) -> tuple[FloatArray, FloatArray]:
    """Return the price of every feature in units of the design, 0 where it cannot move, and its inverse."""
    prices = np.ones(design.scale.size) if design.norm.weights is None else design.norm.weights
    finite = np.isfinite(prices)
    return np.where(finite, prices, 0.0), np.where(finite, 1.0 / np.where(finite, prices, 1.0), 0.0)


def flow_bound(products: ClassProducts, point: SmoothPoint, upper: float) -> Bound:
    """Return a lower bound on the optimal risk; ``upper`` is the risk of any model.

    What rounding can have done is subtracted. Where a coefficient is held by nothing the bound is minus infinity.
    """
    design = products.design
    problem, data, m = design.problem, design.data, design.scale.size
    level_set = ClassLevelSet(design, upper)
    if level_set.free.any():
        return Bound(-np.inf, 0.0)
    # Columns are centred in the sums, not in the rows: their errors are those of the rows as they are.
    level_set.moment_error *= 1.0 + float(np.abs(design.shift / design.scale).max())
    masses = data.masses
    own = np.arange(data.rows.n), design.code
    labels = np.zeros(point.scores.shape) if point.labels is None else point.labels
    if point.labels is None:
        labels[own] = 1.0
    flipped = 0.0 if point.labels is None else float(masses @ (1.0 - labels[own]))
    budget = problem.radius - (problem.geometry.label_cost * flipped if flipped else 0.0)
    chances = _chances(point.scores, labels, masses, balanced=problem.fit_intercept)
    moment = products.moment(masses[:, None] * (chances - labels))[:, :m]
    value = -float(masses @ xlogy(chances, chances).sum(axis=1))

    def entropy(share: float, start: FloatArray) -> float:
        """Return the mean entropy with this share of the way from labels to the probabilities."""
        drawn = start + share * (chances - start)
        return -float(masses @ xlogy(drawn, drawn).sum(axis=1))

    spent = problem.radius - budget
    if budget < 0.0:  # the multiplier is at most the risk over the radius
        value, budget = value + budget * upper / problem.radius, 0.0
    rounding = level_set.error * abs(value) * (1.0 + np.log(level_set.n_classes)) + level_set.intercept_price()
    ridge, W = design.ridge[:, :m], point.W[:, :m] - point.W[:, :m].mean(axis=0)
    price, inverse = movable_prices(design)
    bounds = []
    if problem.ridge > 0.0:  # what the flow does not hold the ridge does
        left = np.abs(moment + _held(point, W * inverse, budget) * inverse)
        exact = 0.5 * float((left**2 / ridge).sum())
        error = 0.5 * float(((left + level_set.moment_error) ** 2 / ridge).sum()) - exact
        bounds.append(Bound(value - exact - rounding - error, rounding + error))
    if problem.radius > 0.0:
        held = price > 0.0
        kept = value - 0.5 * float((ridge * W**2)[:, held].sum())
        if not held.all():  # only the ridge holds what cannot move
            fixed = np.abs(moment[:, ~held]) + level_set.moment_error
            kept -= 0.5 * float((fixed**2 / ridge[:, ~held]).sum())
        wanted = -(moment + ridge * W) * price
        wanted -= wanted.mean(axis=0)  # moments of classes sum to nothing, but for rounding
        rest = wanted - budget * point.found.gradient
        total = point.widest.cost(W * inverse, point.width, point.found, budget, rest)
        error = level_set.routing_error() + level_set.error * total
        over = max(total + error - budget, 0.0)
        priced = kept - over * upper / problem.radius
        if over > 0.0 and budget > 0.0 and problem.ridge == 0.0:
            share = budget / (total + error)
            priced = max(priced, entropy(share, labels))
        if over > 0.0 and problem.ridge == 0.0 and flipped:
            # From the labels before any of them changed the costs of flow and labels shrink alike with the share.
            before = np.zeros_like(labels)
            before[own] = 1.0
            share = problem.radius / (total + error + spent * (1.0 + level_set.error))
            priced = max(priced, entropy(share, before))
        allowed = rounding + min(error * upper / problem.radius, max(kept - priced, 0.0))
        bounds.append(Bound(priced - rounding, allowed))
    return max(bounds, default=Bound(-np.inf, 0.0))


def _held(point: SmoothPoint, U: FloatArray, budget: float) -> FloatArray:
    """Return the divergence of a flow whose cost is within the budget, shape (K, m), near that of the smoothed maximum.

    Away from a minimiser the gradient of the l1 norm's maximum is no divergence: what enters a feature does not leave.
    """
    if not budget > 0.0:
        return np.zeros_like(U)
    surplus = point.found.gradient.mean(axis=0)
    cost = point.widest.cost(U, point.width, point.found, budget, np.tile(-budget * surplus, (len(U), 1)))
    factor = min(1.0, budget / (cost * (1.0 + 1e-12))) if cost > 0.0 else 0.0
    return np.asarray(factor * budget * (point.found.gradient - surplus))


def _chances(scores: FloatArray, labels: FloatArray, masses: FloatArray, *, balanced: bool) -> FloatArray:
    """Return the probabilities of a model whose intercepts are best, every class with the mass of its labels."""
    if not balanced:
        return np.asarray(softmax(scores, axis=1))
    wanted = masses @ labels
    intercept = np.zeros(scores.shape[1])
    # Newton steps on the intercepts alone.
    for _ in range(4):
        chances = softmax(scores + intercept, axis=1)
        found = masses @ chances
        if np.abs(found - wanted).max() <= 1e-12:
            break
        curvature = np.diag(found) - chances.T @ (masses[:, None] * chances)
        step = np.linalg.lstsq(curvature, wanted - found, rcond=1e-12)[0]
        intercept += np.clip(step, -1.0, 1.0)
    chances = np.asarray(softmax(scores + intercept, axis=1))
    keep, give = balance(masses @ chances, wanted)
    return np.asarray(chances * keep + (chances @ (1.0 - keep))[:, None] * give)
