"""Lower bounds on the optimal worst-case risk from a few sums over the rows of a dual point.

The bound is the sum of the conjugates plus the minimum, over all models, of a function of the moment
``v = sum_i w_i s_i y_i x_i`` of the slopes. Neither needs the rows again, so one read of any source is enough; see
`dualcore.certificates.points` for the points themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem

# No scale of slopes beyond this is tried, and no root of a loss: products of a few of them are finite.
_FARTHEST = 1e100


def trivial_bound(problem: Problem) -> float:
    """Return a lower bound for any data: losses are non-negative, and in regression the target can be moved.

    An adversary that can afford to give every row each of K labels with the same probability, which takes a share
    ``1 - 1 / K`` of flips, leaves nothing to learn: by convexity no model is better than that of zeros.
    """
    if problem.is_classification:
        classes = max(problem.family.n_outputs, 2)
        if problem.geometry.label_cost**problem.geometry.order * (1.0 - 1.0 / classes) > problem.price:
            return 0.0
        zeros = np.zeros((1, classes) if problem.family.n_outputs > 1 else 1)
        return float(problem.loss.value(zeros)[0] * (1.0 - 4.0 * np.finfo(np.float64).eps))
    least = problem.radius * problem.loss.root_lipschitz * problem.geometry.target_slope
    return float(least**problem.geometry.order)


def inner_minimum(problem: Problem, moment: FloatArray, budget: float, floor: float, limit: float) -> float:
    """Bound ``min_theta budget * max(||theta||_*, floor) + v . theta + ridge / 2 ||theta||^2`` from below.

    ``limit`` bounds ``||theta*||_*``; it prices what the budget does not cover where no ridge does. A moment of
    features that cannot move (infinite price) has to be zero unless there is a ridge.
    """
    norm = problem.geometry.norm
    by_ridge = 0.0
    held = moment
    if norm.weights is not None and np.isinf(norm.weights).any():
        immovable = np.isinf(norm.weights)
        held = np.where(immovable, 0.0, moment)
        rest = moment[immovable]
        if rest.any():
            if problem.ridge == 0.0:
                return -np.inf
            by_ridge = -0.5 * float(rest @ rest) / problem.ridge
    length = norm.value(held)
    priced = floor * (budget - length) if length <= budget else limit * (budget - length)
    priced = -np.inf if np.isnan(priced) else priced + by_ridge
    if problem.ridge == 0.0:
        return priced

    def bound_at(part: float) -> float:
        excess = held - norm.project(held, part)
        return (budget - part) * floor - 0.5 * float(excess @ excess) / problem.ridge + by_ridge

    if budget < 0.0:  # the multiplier itself is worth raising, up to its limit; the ridge holds theta
        raised = limit * budget - 0.5 * float(moment @ moment) / problem.ridge
        return max(priced, -np.inf if np.isnan(raised) else raised)

    def shortfall(part: float) -> float:
        """Return by how much the model that ``part`` leaves falls short of the floor; `bound_at` falls at this rate.

        The rate of half the squared distance to a growing ball is the dual norm of what lies outside.
        """
        return floor - norm.dual(held - norm.project(held, part)) / problem.ridge

    part = budget
    if budget > 0.0 and shortfall(budget) > 0.0:
        # The tolerance is relative to the budget: an error in the part counts times a floor that may be large.
        part = float(brentq(shortfall, 0.0, budget, xtol=1e-10 * budget)) if shortfall(0.0) < 0.0 else 0.0
    return max(bound_at(part), priced)


def first_order_bound(
    problem: Problem,
    value: Callable[[float], float],
    moment: FloatArray,
    flipped: float,
    upper: float,
    *,
    closely: bool = True,
) -> float:
    """Bound for order 1: scale all slopes until their moment fits the budget, or pay for what does not fit.

    Parameters
    ----------
    value : callable
        Conjugate sum of the rows when every slope is multiplied by a scale in (0, 1]; concave in it.
    moment : ndarray of shape (n_features,)
        ``v`` at scale 1, the slopes being balanced.
    flipped : float
        Mass that flips.
    upper : float
        Risk of any model.
    closely : bool, default=True
        Whether to search for the best scale where a ridge makes it worth while; any scale gives a bound.
    """
    lipschitz, floor = problem.loss.lipschitz, 0.0 if problem.is_classification else problem.geometry.target_slope
    budget = lipschitz * (problem.radius - (problem.geometry.label_cost * flipped if flipped else 0.0))
    limit = upper / (lipschitz * problem.radius) if problem.radius > 0.0 else np.inf

    def bound(scale: float) -> float:
        return value(scale) + inner_minimum(problem, scale * moment, budget, floor, limit)

    best = bound(1.0)
    length = problem.geometry.norm.value(moment)
    if 0.0 < budget < length:
        fit = budget / length * (1.0 - 1e-15)
        best = max(best, bound(fit))
        if problem.ridge > 0.0 and closely:
            found = minimize_scalar(lambda f: -bound(f), bounds=(fit, 1.0), method="bounded", options={"maxiter": 20})
            best = max(best, -float(found.fun))
    return best


def _power(base: float, exponent: float) -> float:
    """Return a power, infinite where it overflows: exponents are large near order 1 and of large orders."""
    with np.errstate(over="ignore"):
        return float(np.float_power(base, exponent))


def squared_bound(
    problem: Problem, linear: float, power_sum: float, moment: FloatArray, upper: float, *, rounding: float = 0.0
) -> float:
    """Bound for the squared losses without flips: ``R >= lin + inner(2 s sigma) - s^2`` for ``s >= ||g|| / 2``.

    ``linear`` is ``-sum w g y`` (residuals) or ``-sum w g`` (margins), ``power_sum`` is ``sum w g^2 / 4``. Any common
    scale of the slopes ``g`` gives a bound; the best is taken. Of order p the tangent of ``u^p`` at ``s`` makes it
    ``lin + inner(p s^(p-1) sigma) - (p - 1) s^p`` for ``s^p >= sum w (|g| / p)^q``, ``1/p + 1/q = 1``. ``rounding``
    is the allowance at scale 1; it grows with the scale.
    """
    sigma, p = problem.radius, problem.geometry.order
    movable = moment
    if problem.geometry.norm.weights is not None:
        movable = np.where(np.isinf(problem.geometry.norm.weights), 0.0, moment)
    length = problem.geometry.norm.value(movable)
    floor = 0.0 if problem.is_classification else problem.geometry.target_slope
    limit = max(upper, 0.0) ** (1.0 / p) / sigma if sigma > 0.0 else np.inf

    def worth(root: float, scale: float) -> float:
        """Return the bound with slopes times ``scale``, so that the least ``s`` is ``root * scale^(1/(p-1))``."""
        price = scale * p * root ** (p - 1.0) * sigma
        inner = inner_minimum(problem, scale * moment, price, floor, limit)
        last = scale * (_power(scale, 1.0 / (p - 1.0)) * root**p)  # the one may be huge where the other is tiny
        return float(scale * (linear - rounding) + inner - (p - 1.0) * last)

    least, most = power_sum ** (1.0 / p), max(upper, 0.0) ** (1.0 / p)
    roots = [least]
    if sigma > 0.0 and length > 0.0:
        fit = _power(length / (p * sigma), 1.0 / (p - 1.0)) * (1.0 + 1e-15)
        roots.append(max(least, min(fit, _FARTHEST ** (1.0 / p))))
    if problem.ridge > 0.0 and sigma > 0.0 and most > least:
        # With a ridge the best s lies in between, and is the root of the risk without its penalty where the
        # loss vanishes.
        found = minimize_scalar(
            lambda root: -worth(root, 1.0), bounds=(least, most), method="bounded", options={"xatol": 1e-12 * most}
        )
        roots.append(float(found.x))
    best = -np.inf
    for root in roots:
        at_one = worth(root, 1.0)
        best = max(best, at_one)
        if root**p > 0.0 and np.isfinite(at_one):
            # Beyond this scale the last term is larger than the others together.
            gain = max(linear, 0.0) + p * floor * root ** (p - 1.0) * sigma
            top = min(_power(min(gain / ((p - 1.0) * root**p), _FARTHEST), p - 1.0), _FARTHEST) + 1e-12
            options = {"xatol": 1e-12 * top}
            found = minimize_scalar(
                lambda f, root=root: -worth(root, f), bounds=(0.0, top), method="bounded", options=options
            )
            best = max(best, -float(found.fun))
    return best
