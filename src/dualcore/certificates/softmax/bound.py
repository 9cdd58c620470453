"""Rigorous lower bounds on the optimal softmax risk, from any dual point.

Row by row, for probabilities ``p`` and labels ``u`` after flips, both in the simplex,

    h_i(s, lam) >= (p - u) . s + H(p) - lam gamma (1 - u_y) ,        H the entropy,

so the sum over rows bounds the optimum once it is minimised over the model. That minimum is finite only if every class
keeps its mass, ``sum w (p - u) = 0`` (an intercept), and if the moment ``V_k = sum_i w_i (p_ik - u_ik) x_i`` is the
divergence of a flow between classes of cost at most ``sigma - gamma sum w (1 - u_y)``; see the module `transport`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax, xlogy

from dualcore.certificates.rounding import sum_error
from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.certificates.softmax.levels import ClassLevelSet
from dualcore.certificates.softmax.transport import Transport, routing_cost
from dualcore.data.arrays import FloatArray

__all__ = ["NewtonStep", "balance", "lower_bound", "spread_bound"]

# Dual points this close to the risk are worth another price for what is left of their moment, if the price so far
# takes more than this share of the risk.
_NEAR, _DIGITS = 1e-3, 1e-8


class NewtonStep(NamedTuple):
    """A Newton step and the dual point that comes with it.

    Attributes
    ----------
    change : ndarray of shape (K, width)
        Leads to the next model.
    correction : ndarray of shape (K, width)
        Moves the probabilities of the dual point, to first order; the change, freed of what the cone program left over.
    flips : Flips
        Labels of the dual point.
    transport : Transport
        The moment of the dual point that the radius holds.
    """

    change: FloatArray
    correction: FloatArray
    flips: Flips
    transport: Transport


def lower_bound(design: ClassDesign, W: FloatArray, step: NewtonStep, upper: float) -> Bound:
    """Return a lower bound on the optimal risk, from a model and the Newton step taken from it; reads the data twice.

    The probabilities of the model are moved by the step's correction to first order, which makes their moment that of
    the step's transport. They are balanced between the classes, then mixed with the labels until the flow that explains
    their moment fits the radius. ``upper`` is the risk of any model: it bounds the multiplier, and so prices what does
    not fit. The allowance for rounding is subtracted; where rounding decides the optimum the bound is minus infinity
    and its allowance infinity.
    """
    problem, m = design.problem, design.scale.size
    flipped = step.flips.mass(design.data)
    budget = problem.radius - (problem.geometry.label_cost * flipped if flipped else 0.0)
    mean_chance, mean_label, moment_chance, moment_label = _sums(design, W, step)
    keep, give = np.ones(W.shape[0]), np.zeros(W.shape[0])
    if problem.fit_intercept:
        keep, give = balance(mean_chance, mean_label)
    freed = (1.0 - keep) @ moment_chance
    moment = keep[:, None] * moment_chance + give[:, None] * freed - moment_label
    point = _ClassDualPoint(W, step, keep, give, moment, _entropy(design, W, step, keep, give, 1.0), budget)
    level_set = ClassLevelSet(design, upper)
    priced = _priced_apart(design, level_set, point)
    if problem.radius == 0.0 and problem.ridge == 0.0:
        return priced
    # What is left of the moment after all but rounding is priced by the radius or the ridge above, by the rows here.
    held = min(1.0, budget / step.transport.cost) if step.transport.cost > 0.0 else 1.0
    if held < 1.0 and problem.ridge == 0.0:
        held = 1.0
    reference = W + step.change
    reference = reference - reference.mean(axis=0)
    rest = moment + design.ridge * reference
    rest[:, :m] -= held * step.transport.moment
    cost = held * step.transport.cost
    value = point.entropy - 0.5 * float((design.ridge * reference**2).sum())
    if cost > budget:
        value -= (cost - budget) * upper / problem.radius
    if value < (1.0 - _NEAR) * upper or priced.value > value - _DIGITS * upper:
        return priced
    rounding = level_set.error * point.entropy * (1.0 + np.log(W.shape[0]))
    rounding += level_set.common_price(rest, point.chances, step.flips, cost, reference)
    return max(priced, Bound(value - rounding, rounding)) if np.isfinite(rounding) else priced


def spread_bound(design: ClassDesign) -> Bound:
    """Return the bound of labels spread evenly over the classes as far as the radius pays, probabilities the same.

    Probabilities that equal the labels have no moment. Where the radius pays for all of it no model beats chance.
    """
    problem, n_classes = design.problem, design.problem.family.n_outputs
    if not problem.family.flips:
        return Bound(0.0, 0.0)
    spread = min(1.0, problem.radius / (problem.geometry.label_cost * (1.0 - 1.0 / n_classes)))
    label = np.full(n_classes, spread / n_classes)
    label[0] += 1.0 - spread
    value = -float(xlogy(label, label).sum())
    rounding = sum_error(n_classes) * (1.0 + value)
    return Bound(max(value - rounding, 0.0), rounding)


class _ClassDualPoint(NamedTuple):
    """A dual point: how its probabilities come about, their moment (K, width), entropy, and what they may cost."""

    W: FloatArray
    step: NewtonStep
    keep: FloatArray
    give: FloatArray
    moment: FloatArray
    entropy: float
    budget: float

    def chances(self, block: FloatArray) -> FloatArray:
        """Return the probabilities of some rows, shape (rows, K)."""
        return _balanced_chances(block, W=self.W, step=self.step, keep=self.keep, give=self.give)


def _priced_apart(design: ClassDesign, level_set: ClassLevelSet, point: _ClassDualPoint) -> Bound:
    """Return the bound in which radius, ridge, free features and intercept each price their part of the moment."""
    problem, m, upper = design.problem, design.scale.size, level_set.upper
    W, step, moment, budget, value = point.W, point.step, point.moment, point.budget, point.entropy
    cost = step.transport.cost
    rounding = level_set.error * value * (1.0 + np.log(W.shape[0])) + level_set.intercept_price()
    if problem.ridge > 0.0:
        # What the radius does not hold the ridge does, at a price.
        held = min(1.0, budget / cost) if cost > 0.0 else 1.0
        rest = np.abs(moment[:, :m] - held * step.transport.moment)
        exact = 0.5 * float((rest**2 / design.ridge[:, :m]).sum())
        price = 0.5 * float(((rest + level_set.moment_error) ** 2 / design.ridge[:, :m]).sum())
        rounding += price - exact
        return Bound(value - exact - rounding, rounding)
    rest = moment[:, :m] - step.transport.moment
    free = level_set.free
    if free.any():
        rounding += level_set.free_price(moment, point.chances, step.flips, cost)
        if np.isinf(rounding):
            return Bound(-np.inf, np.inf if level_set.withheld else 0.0)
        rest[:, free] = 0.0
    if problem.radius == 0.0:
        return Bound(value - rounding, rounding)
    total, error = cost + routing_cost(design.norm, rest), level_set.routing_error()
    if total + error <= budget * (1.0 + 1e-14):
        return Bound(value - rounding, rounding)
    best = value - (total + error - budget) * upper / problem.radius
    if budget > 0.0:
        best = max(best, _entropy(design, W, step, point.keep, point.give, budget / (total + error)))
    # Without the error, which is subtracted already, the bound would be better by no more than this.
    subtracted = rounding
    rounding += min(error * upper / problem.radius, max(value - best, 0.0))
    return Bound(best - subtracted, rounding)


def _balanced_chances(
    block: FloatArray, *, W: FloatArray, step: NewtonStep, keep: FloatArray, give: FloatArray
) -> FloatArray:
    chance = _chances(block, W, step.correction)
    return np.asarray(chance * keep + (chance @ (1.0 - keep))[:, None] * give)


def _chances(block: FloatArray, W: FloatArray, correction: FloatArray) -> FloatArray:
    """Return probabilities moved by the correction to first order, shape (rows, K)."""
    chance = softmax(block @ W.T, axis=1)
    push = block @ correction.T
    moved = chance * np.maximum(1.0 + (push - (chance * push).sum(axis=1, keepdims=True)), 0.0)
    total = moved.sum(axis=1, keepdims=True)
    # A correction so long that nothing is left of a row moves it not at all: any probabilities make a bound.
    usable = np.isfinite(total) & (total > 0.0)
    return np.asarray(np.where(usable, moved, chance) / np.where(usable, total, 1.0))


def _sums(
    design: ClassDesign, W: FloatArray, step: NewtonStep
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return mean probabilities and labels (K,) and their moments (K, width)."""
    masses, n_classes = design.data.masses, W.shape[0]
    chances, labels = np.zeros(n_classes), np.zeros(n_classes)
    moment_chance, moment_label = np.zeros(W.shape), np.zeros(W.shape)
    for part, block in design.blocks():
        chance = masses[part, None] * _chances(block, W, step.correction)
        label = masses[part, None] * step.flips.labels(design.code, part, n_classes)
        chances += chance.sum(axis=0)
        labels += label.sum(axis=0)
        moment_chance += chance.T @ block
        moment_label += label.T @ block
    return chances, labels, moment_chance, moment_label


def balance(found: FloatArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return which share of each class's probability to keep, and which share of the rest each class gets.

    Classes with too much keep ``wanted / found`` of it in every row; the others share the rest.
    """
    lack = np.maximum(wanted - found, 0.0)
    keep = np.where(found > wanted, wanted / np.where(found > 0.0, found, 1.0), 1.0)
    total = float(lack.sum())
    return (keep, lack / total) if total > 0.0 else (np.ones(found.size), np.zeros(found.size))


def _entropy(
    design: ClassDesign, W: FloatArray, step: NewtonStep, keep: FloatArray, give: FloatArray, share: float
) -> float:
    """Return ``sum_i w_i H(u_i + share (p_i - u_i))`` with the balanced probabilities."""
    total = 0.0
    for part, block in design.blocks():
        chance = _balanced_chances(block, W=W, step=step, keep=keep, give=give)
        if share < 1.0:
            label = step.flips.labels(design.code, part, W.shape[0])
            chance = label + share * (chance - label)
        total -= float(design.data.masses[part] @ xlogy(chance, chance).sum(axis=1))
    return total
