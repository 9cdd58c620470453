"""Rigorous lower bounds on the optimal worst-case risk, from any dual point.

Fenchel duality row by row: for a share ``q`` of flipped mass and slopes ``s`` (staying) and ``s'`` (flipped),

    h_i(t, lam) >= ((1-q) s - q s') t - (1-q) L*(s) - q L*(s') - q gamma lam ,

so every choice bounds the optimum once the right-hand side is minimised over (theta, b, lam). That minimum is
finite only if the slopes balance (an intercept) and their moment ``v = sum_i w_i s_i y_i x_i`` is short in
the feature norm. A `DualPoint` holds a choice; `lower_bound` repairs it to feasibility and evaluates it on
every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dualcore.bundle import Bundle, unbounded_features
from dualcore.forms import MarginForm, SquaredForm, SquaredHingeForm, weighted_sum
from dualcore.geometry import FloatArray
from dualcore.losses import MarginLoss
from dualcore.problem import Data, Problem
from dualcore.sumbounds import first_order_bound, inner_minimum, mean_slope, slope_power, squared_bound, trivial_bound

__all__ = ["Certificate", "DualPoint", "certify", "column_sizes", "dual_point", "lower_bound"]

# Smoothing widths tried for losses with kinks, as shares of the typical size of t near a kink.
_WIDTHS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
# Passes that a certificate on a support may take.
_BUNDLE_PASSES = 500
# Above this many features the repair, which needs an m x m system, is left out.
_REPAIR_FEATURES = 2000


class DualPoint(NamedTuple):
    """A dual choice per row.

    ``stay`` (n,): slope of the loss in ``t`` times the share that stays, ``(1-q) s``: non-positive for margins, signed
    for residuals. ``flip`` (n,): ``-q s'`` at the flipped margin, non-negative. ``share`` (n,): ``q`` in [0, 1].
    ``flip`` and ``share`` are None where no row flips.
    """

    stay: FloatArray
    flip: FloatArray | None = None
    share: FloatArray | None = None


@dataclass(frozen=True)
class Certificate:
    """What is known about a model on the full data.

    Attributes
    ----------
    upper : float
        Exact worst-case risk of the model, ridge included.
    lower : float
        No model has a smaller one.
    n_reads : int
        How many times the data were read to find the model and this certificate.

    Examples
    --------
    >>> print(Certificate(upper=0.5, lower=0.499))
    The worst-case risk of this model on the full data is 0.5; no model can have less than 0.499, so it is within
    0.2 % of the best possible.
    """

    upper: float
    lower: float
    n_reads: int = 1

    @property
    def gap(self) -> float:
        """``upper - lower``: how far the model can possibly be from the optimum."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        """``gap / upper``."""
        return self.gap / max(abs(self.upper), np.finfo(float).tiny)

    @property
    def is_weak(self) -> bool:
        """Whether it leaves open how good the model is: the best possible risk may be half of this one, or less."""
        return self.relative_gap > 0.5

    def __str__(self) -> str:
        risks = (
            f"The worst-case risk of this model on the full data is {self.upper:.6g}; no model can have less than "
            f"{self.lower:.6g}, "
        )
        if self.is_weak:
            return risks + "which leaves open how near to the best possible it is."
        return risks + f"so it is within {100 * self.relative_gap:.3g} % of the best possible."


class LinearModel(Protocol):
    """Anything with coefficients and an intercept: a Solution, an anchor."""

    @property
    def coef(self) -> FloatArray: ...
    @property
    def intercept(self) -> float: ...


def certify(problem: Problem, solution: LinearModel, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
    """Return the exact worst-case risk of ``solution`` on these data and a lower bound on the best possible one.

    Parameters
    ----------
    problem : Problem
    solution : Solution, or anything with ``coef`` and ``intercept``
        It may come from other data, a coreset for example: the bound holds for these data all the same.
    X, y, sample_weight
        The data the certificate is about.

    Notes
    -----
    On a support the lower bound is the minimum of a bundle of planes, a pass over the data each: ``n_reads`` counts
    them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> problem = Problem("hinge", radius=0.5)
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> certify(problem, SimpleNamespace(coef=np.array([1.0]), intercept=0.0), X, y).gap
    0.0
    """
    data = problem.validate(X, y, sample_weight)
    theta = np.asarray(solution.coef, dtype=np.float64)
    upper = problem.evaluate(theta, solution.intercept, data).value
    if problem.box is not None and problem.radius > 0.0:
        return _certify_on_box(problem, theta, float(solution.intercept), data, upper)
    if problem.box is not None:  # without a budget nothing moves, walls or not
        problem = problem.replace(support=None)
    known = getattr(solution, "dual", None)
    lower = trivial_bound(problem)
    if isinstance(known, DualPoint) and known.stay.shape == data.y.shape:
        lower = max(lower, lower_bound(problem, data, known, upper))
    t, size = problem.signal(theta, solution.intercept, data), problem.size(theta)
    for width in _widths(problem, t):
        if upper - lower <= 1e-10 * abs(upper):
            break
        point = dual_point(problem, t, data, size, width)
        lower = max(lower, lower_bound(problem, data, point, upper, width=width, t=t, coef=theta))
    return Certificate(upper, min(lower, upper))


def _certify_on_box(problem: Problem, coef: FloatArray, intercept: float, data: Data, upper: float) -> Certificate:
    """Raise planes below the risk from this model on until they meet it, or their own optimum.

    A single worst case is no saddle point where the risk has kinks, so the bound costs about as much as training.
    """
    classes = (-1.0, 1.0) if problem.is_classification else ()
    lone = any(not data.masses[data.y == label].any() for label in classes)
    if lone or unbounded_features(problem, data.rows.m).any():  # no region is known to hold the optimum
        return Certificate(upper, min(trivial_bound(problem), upper))
    bundle = Bundle(problem, data, coef, intercept)
    passes = bundle.run(1e-7, _BUNDLE_PASSES, enough=upper * (1.0 - 1e-7))
    lower = max(trivial_bound(problem), bundle.lower)
    return Certificate(upper, min(lower, upper), n_reads=passes + 1)


def dual_point(problem: Problem, t: FloatArray, data: Data, size: float, width: float = 0.0) -> DualPoint:
    """Return the dual point that the primal point suggests: the slopes of ``h`` at ``t``.

    A positive ``width`` replaces each slope by the mean slope over ``[t - width, t + width]``: near a kink
    the right slope lies strictly between its two sides, and the mean is a far better guess than either.
    """
    form, loss = problem.form, problem.loss
    if isinstance(form, SquaredHingeForm) and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0:
        return _squared_hinge_point(form, t, data.weights, size)
    if isinstance(form, SquaredForm):
        return DualPoint(form.subgradient(t, data.weights, size).t)
    if not isinstance(form, MarginForm):
        return DualPoint(mean_slope(loss, t, width))
    stay = mean_slope(loss, t, width)
    share = _flip_share(form, t, data, size, width)
    if share is None:
        return DualPoint(stay)
    return DualPoint((1.0 - share) * stay, -share * mean_slope(loss, -t, width), share)


def _flip_share(form: MarginForm, t: FloatArray, data: Data, size: float, width: float) -> FloatArray | None:
    rows, exact = form.flip_shares(t, data.weights, size)
    if not rows.size:
        return None
    share = np.zeros(t.size)
    share[rows] = exact
    if width > 0.0:
        gamma, lam = form.geometry.label_cost, form.minimise(t, data.weights, size).multiplier
        gain = form.loss.flip_gain(t) - lam * gamma
        share = np.clip(0.5 + gain / (4.0 * width * form.loss.lipschitz), 0.0, 1.0)
        spent = gamma * weighted_sum(share, data.weights)
        if spent > form.radius:
            share *= form.radius / spent
    return share


def _squared_hinge_point(form: SquaredHingeForm, t: FloatArray, weights: FloatArray | None, size: float) -> DualPoint:
    lam = form.minimise(t, weights, size).multiplier
    above, below = form.partials(t, lam * (1.0 + 1e-9), size), form.partials(t, lam * (1.0 - 1e-9), size)
    budget = form.radius**2
    up, down = (budget + weighted_sum(side.multiplier, weights) for side in (above, below))
    mix = float(np.clip(up / (up - down), 0.0, 1.0)) if up > down else 0.0
    stay = (1.0 - mix) * np.minimum(above.t, 0.0) + mix * np.minimum(below.t, 0.0)
    flip = (1.0 - mix) * np.maximum(above.t, 0.0) + mix * np.maximum(below.t, 0.0)
    share = (1.0 - mix) * (above.t > 0.0) + mix * (below.t > 0.0)
    return DualPoint(stay, flip, share)


def _widths(problem: Problem, t: FloatArray) -> tuple[float, ...]:
    """Return the smoothing widths worth trying: none for smooth losses without flips."""
    flips = problem.is_classification and np.isfinite(problem.geometry.label_cost)
    if problem.geometry.order > 1 or not (problem.loss.kinks or flips):
        return (0.0,)
    spread = max(float(np.median(np.abs(t - np.median(t)))), 1e-12)
    return (0.0, *(share * spread for share in _WIDTHS))


def lower_bound(
    problem: Problem,
    data: Data,
    point: DualPoint,
    upper: float,
    *,
    repair: bool = True,
    width: float = 0.0,
    t: FloatArray | None = None,
    coef: FloatArray | None = None,
) -> float:
    """Return a lower bound on the optimal worst-case risk on ``data``, from any dual point.

    Parameters
    ----------
    point : DualPoint
        Need not be feasible. It is moved (where ``repair``), balanced, scaled, or paid for.
    upper : float
        Worst-case risk of any model: it bounds the multiplier, ``lam* <= upper / sigma``, and so prices what
        infeasibility is left.
    repair : bool, default=True
        Whether to try the nearest feasible point as well, at the cost of one weighted Gram matrix.
    width, t
        How the point was made by `dual_point`, if it was; tells the repair which rows can give.
    coef : ndarray of shape (m,), optional
        The model the point was made at: tells the repair which moment would make that model optimal.
    """
    form = problem.form
    bound = _bound_squared if isinstance(form, SquaredForm) else _bound_first_order
    if isinstance(form, SquaredHingeForm) and point.share is not None:
        bound = _bound_squared_flips
    best = max(trivial_bound(problem), bound(problem, data, _balanced(problem, data, point), upper))
    if repair and data.rows.m <= _REPAIR_FEATURES and upper - best > 1e-10 * abs(upper):
        for _ in range(2):
            moved = _repaired(problem, data, point, width, t, coef)
            if moved is None:
                break
            point = moved
            best = max(best, bound(problem, data, _balanced(problem, data, point), upper))
    return best


def _signs(problem: Problem, data: Data) -> FloatArray | float:
    """Return ``dt_i / d(theta . x_i + b)``: the labels for margins, 1 for residuals."""
    return data.y if problem.is_classification else 1.0


def _balanced(problem: Problem, data: Data, point: DualPoint) -> DualPoint:
    """Scale one side down so that the slopes sum to zero: with an intercept nothing else is bounded below."""
    if not problem.fit_intercept:
        return point
    sign, w = _signs(problem, data), data.masses
    stay, flip = w * point.stay * sign, None if point.flip is None else w * point.flip * sign
    parts = [stay] if flip is None else [stay, flip]
    plus = sum(float(np.maximum(part, 0.0).sum()) for part in parts)
    minus = sum(float(np.maximum(-part, 0.0).sum()) for part in parts)
    if plus == minus:
        return point
    ratio, side = (minus / plus, 1.0) if plus > minus else (plus / minus, -1.0)
    new_stay = np.where(stay * side > 0.0, ratio * point.stay, point.stay)
    if point.flip is None or flip is None:
        return DualPoint(new_stay)
    return DualPoint(new_stay, np.where(flip * side > 0.0, ratio * point.flip, point.flip), point.share)


def _moment(problem: Problem, data: Data, point: DualPoint) -> FloatArray:
    """Return ``v = sum_i w_i s_i y_i x_i``, the gradient in theta of the linear part."""
    slope = point.stay if point.flip is None else point.stay + point.flip
    moment = data.rows.transpose_dot(data.masses * slope * _signs(problem, data))
    prices = problem.geometry.norm.weights
    free = problem.ridge == 0.0 and (problem.radius == 0.0 or (prices is not None and bool(np.isinf(prices).any())))
    if free:
        # Nothing bounds these coefficients, so their moment must vanish; what rounding leaves of it is not held
        # against it.
        size = np.sqrt(float(data.masses @ (slope * slope))) * column_sizes(data)
        unheld = np.ones(moment.size, dtype=bool) if problem.radius == 0.0 or prices is None else np.isinf(prices)
        moment = np.where(unheld & (np.abs(moment) <= 1e-11 * size), 0.0, moment)
    return moment


def column_sizes(data: Data) -> FloatArray:
    """Return the root mean square of every column."""
    squares = np.zeros(data.rows.m)
    for part, block in data.rows.blocks():
        square = block.multiply(block) if hasattr(block, "multiply") else block * block
        squares += np.asarray(square.T @ data.masses[part]).ravel()
    return np.sqrt(squares)


def _conjugate_sum(problem: Problem, data: Data, point: DualPoint, scale: float) -> float:
    """Return ``-sum_i w_i [(1-q) L*(s) + q L*(s')]`` (less ``s y`` for residuals) with all slopes times ``scale``."""
    loss, w = problem.loss, data.masses
    low, high = loss.slope_range
    if point.share is None or point.flip is None:
        terms = -loss.conjugate(np.clip(scale * point.stay, low, high))
    else:
        stays, flips = 1.0 - point.share, point.share
        stay = np.divide(scale * point.stay, stays, out=np.zeros_like(stays), where=stays > 0.0)
        flip = np.divide(-scale * point.flip, flips, out=np.zeros_like(flips), where=flips > 0.0)
        terms = -stays * loss.conjugate(np.clip(stay, low, high)) - flips * loss.conjugate(np.clip(flip, low, high))
    value = float(w @ terms)
    if not isinstance(loss, MarginLoss):
        value -= scale * float(w @ (point.stay * data.y))
    return value


def _bound_first_order(problem: Problem, data: Data, point: DualPoint, upper: float) -> float:
    flipped = 0.0 if point.share is None else float(data.masses @ point.share)
    moment = _moment(problem, data, point)
    return first_order_bound(problem, lambda f: _conjugate_sum(problem, data, point, f), moment, flipped, upper)


def _bound_squared(problem: Problem, data: Data, point: DualPoint, upper: float) -> float:
    slopes, w = point.stay, data.masses
    linear = -float(w @ slopes) if problem.is_classification else -float(w @ (slopes * data.y))
    steepness = float(w @ slope_power(problem, slopes))
    return squared_bound(problem, linear, steepness, _moment(problem, data, point), upper)


def _bound_squared_flips(problem: Problem, data: Data, point: DualPoint, upper: float) -> float:
    """Bound for the squared hinge with flips: let the moved mass cancel the moment, pay for what it cannot reach."""
    q, stay, flip = _apart(point)
    w, sigma = data.masses, problem.radius
    if problem.geometry.label_cost**2 * float(w @ q) > sigma**2:
        return -np.inf
    reach = _reach(problem, data, point)
    inner = inner_minimum(problem, _moment(problem, data, point), reach, 0.0, np.sqrt(max(upper, 0.0)) / sigma)
    linear = float(w @ ((1.0 - q) * stay + q * flip))
    quadratic = 0.25 * float(w @ ((1.0 - q) * stay**2 + q * flip**2))
    best = linear + inner - quadratic
    if problem.ridge == 0.0 and quadratic > 0.0:  # everything but the quadratic term is linear in a common scale
        best = max(best, 0.25 * max(linear + inner, 0.0) ** 2 / quadratic)
    return float(best)


def _apart(point: DualPoint) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the flipped share of every row and the sizes of its two slopes, free of the shares."""
    if point.flip is None or point.share is None:
        raise ValueError("a dual point with flips is needed here")
    q = point.share
    stay = np.divide(-point.stay, 1.0 - q, out=np.zeros_like(q), where=q < 1.0)
    return q, stay, np.divide(point.flip, q, out=np.zeros_like(q), where=q > 0.0)


def _reach(problem: Problem, data: Data, point: DualPoint) -> float:
    """Return how long a moment the radius holds: what rows gain, moved where that gains most for its price."""
    q, stay, flip = _apart(point)
    w, gamma, sigma = data.masses, problem.geometry.label_cost, problem.radius

    def cost_and_reach(tau: float) -> tuple[float, float]:
        near, far = tau * stay, np.maximum(tau * flip - gamma, 0.0)
        cost = float(w @ ((1.0 - q) * near**2 + q * (far + gamma) ** 2))
        return cost, float(w @ ((1.0 - q) * stay * near + q * flip * far))

    low, high = 0.0, 1.0
    while cost_and_reach(high)[0] < sigma**2 and high < 1e12:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cost_and_reach(middle)[0] <= sigma**2 else (low, middle)
    return cost_and_reach(low)[1]


def _repaired(
    problem: Problem, data: Data, point: DualPoint, width: float, t: FloatArray | None, coef: FloatArray | None
) -> DualPoint | None:
    """Move the slopes as little as possible (in the metric of their room to move) so that the moment fits.

    Minimises ``sum_i w_i d_i^2 / (2 D_i)`` subject to ``sum_i w_i d_i y_i (x_i, 1) = target``; then clips to
    the domain.
    """
    loss, w, sign = problem.loss, data.masses, _signs(problem, data)
    low, high = loss.slope_range
    stays = 1.0 if point.share is None else 1.0 - point.share
    if not np.isfinite(low):
        room = np.ones_like(point.stay) * stays
    elif width > 0.0 and t is not None:
        room = np.maximum(loss.slope(t + width) - loss.slope(t - width), 0.0) / (2.0 * width)
    else:
        span = high - low
        room = np.maximum(point.stay - low * stays, 0.0) * np.maximum(high * stays - point.stay, 0.0) / span**2
    if not room.any():
        return None
    moment = _moment(problem, data, point)
    slope = point.stay if point.flip is None else point.stay + point.flip
    excess = float((w * slope * sign).sum()) if problem.fit_intercept else 0.0
    if isinstance(problem.form, SquaredForm) and point.share is not None:
        budget = _reach(problem, data, point)
    elif isinstance(problem.form, SquaredForm):
        dual = problem.geometry.order / (problem.geometry.order - 1.0)
        budget = problem.radius * float(w @ np.abs(slope) ** dual) ** (1.0 / dual)
    else:
        spent = 0.0 if point.share is None else problem.geometry.label_cost * weighted_sum(point.share, w)
        budget = loss.lipschitz * max(problem.radius - spent, 0.0)
    goal = _goal(problem, moment, budget * (1.0 - 1e-13), coef)
    if not np.any(goal != moment) and excess == 0.0:
        return None
    weights = w * room
    gram, first = data.rows.gram(weights), data.rows.transpose_dot(weights)
    system = np.block([[gram, first[:, None]], [first[None, :], np.array([[float(weights.sum())]])]])
    right = np.append(goal - moment, -excess)
    if not problem.fit_intercept:
        system, right = system[:-1, :-1], right[:-1]
    change = _solve_psd(system, right)
    along = data.rows.dot(change[: data.rows.m])
    if problem.fit_intercept:
        along += change[-1]
    least = low * stays if np.isfinite(low) else low
    new = np.clip(point.stay + room * sign * along, least, high * stays)
    return DualPoint(new, point.flip, point.share)


def _goal(problem: Problem, moment: FloatArray, budget: float, coef: FloatArray | None) -> FloatArray:
    """Return the moment to aim at: the one that makes ``coef`` optimal, or the nearest that the budget covers."""
    norm, ridge = problem.geometry.norm, problem.ridge
    if coef is None:
        return moment if ridge > 0.0 else norm.project(moment, budget)
    floor = 0.0 if problem.is_classification else problem.geometry.target_slope
    if problem.size(coef) < floor * (1.0 - 1e-9):  # the norm is not felt below the price of the target
        return -ridge * coef
    return -(norm.face(coef, -moment - ridge * coef, budget) + ridge * coef)


def _solve_psd(system: FloatArray, right: FloatArray) -> npt.NDArray[np.float64]:
    """Solve a positive semidefinite system by its eigenvectors, after equilibration.

    Null directions are left at rest.
    """
    scale = np.sqrt(np.maximum(np.diag(system), 0.0))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(system / np.outer(scale, scale))
    keep = values > 1e-13 * values.max(initial=0.0)
    part = vectors[:, keep].T @ (right / scale)
    return np.asarray(vectors[:, keep] @ (part / values[keep]) / scale)
