"""Radii worth trying: how far they reach, and grids of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import ClassError, Source, is_source_like, open_labelled, open_source
from dualcore.problem import Data, Problem
from dualcore.reading.rowdata import source_data
from dualcore.solvers.constant import best_constant
from dualcore.solvers.pilot import Pilot

# Change of the scores, in units of a margin or of the deviation of the target, by a step that shows whether something
# can be learned, and how often a radius is doubled for it.
_SHORT, _DOUBLINGS = 1e-4, 10


def check_radii(radii: npt.ArrayLike) -> list[float]:
    """Return the radii of a path, ascending, or say what is wrong with them."""
    values = np.asarray(radii, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"radii must be a non-empty sequence of numbers, got shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0.0).any():
        raise ValueError("radii must be finite and non-negative.")
    ordered: list[float] = np.sort(values).tolist()
    if len(set(ordered)) < len(ordered):
        raise ValueError("radii must be different from each other.")
    return ordered


def radius_list(problem: Problem, rows: Pilot, radii: Any) -> list[float]:
    """Return radii from a list of them, or from how many a grid shall have; ``rows`` say how far that reaches."""
    if isinstance(radii, (int, np.integer)) and not isinstance(radii, bool):
        if problem.family.n_outputs > 1:
            raise TypeError("How far radii reach is known for one score a row: give a list of radii.")
        return [float(radius) for radius in radius_grid(problem, rows.X, rows.y, int(radii), rows.weights)]
    return check_radii(radii)


def open_targets(problem: Problem, X: Any, y: Any, sample_weight: Any) -> Source:
    """Return a source whose targets are those of the problem: two labels, if there are any, are -1 and +1."""
    if isinstance(X, Source) or not problem.is_classification or problem.family.n_outputs > 1:
        return open_source(X, y, sample_weight)
    source, labels = open_labelled(X, y, sample_weight)
    if len(labels) > 2:
        raise ClassError(
            f"The target holds {len(labels)} classes, and {problem!r} tells two apart: use Problem('softmax', ...)."
        )
    return source


def as_data(problem: Problem, X: Any, y: Any, sample_weight: Any) -> Data:
    """Return validated rows, those of a source through reads."""
    if is_source_like(X):
        return source_data(open_targets(problem, X, y, sample_weight))
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    return data


def largest_radius(problem: Problem, X: Any, y: Any, sample_weight: Any = None) -> float:
    r"""Return the radius from which on every coefficient is zero.

    .. math:: \sigma_{\max} = \frac{1}{\mathrm{Lip}} \Bigl\| \sum_i w_i s_i x_i \Bigr\|

    with ``s_i`` the slope of the loss at the best constant model: the gradient of the mean loss there is within what
    the penalty ``sigma Lip ||theta||_*`` balances. It is exact for smooth losses without flips. Where the loss has
    kinks or labels move coefficients are zero sooner. The radius of ``problem`` itself is not used.

    Examples
    --------
    >>> X, y = np.array([[3.0], [1.0], [-1.0], [-3.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> largest_radius(Problem("logistic"), X, y)
    1.0
    """
    return _largest_radius(problem, as_data(problem, X, y, sample_weight))


def _largest_radius(problem: Problem, data: Data) -> float:
    t = constant_signal(problem, data)
    slope, bar = slopes(problem, data, t)
    weighted = data.masses * slope * (data.y if problem.is_classification else 1.0)
    if problem.is_classification and problem.fit_intercept:
        # At a kink the slope is a choice: that which balances the classes, as the optimum of the intercept asks.
        ups, downs = float(np.maximum(weighted, 0.0).sum()), float(np.maximum(-weighted, 0.0).sum())
        share = np.where(data.y > 0.0, data.masses / data.masses[data.y > 0.0].sum(), 0.0)
        share -= np.where(data.y < 0.0, data.masses / data.masses[data.y < 0.0].sum(), 0.0)
        weighted = share * max(ups, downs)
    return problem.geometry.norm.value(data.rows.transpose_dot(weighted)) / bar if bar > 0.0 else 0.0


def radius_grid(
    problem: Problem, X: Any, y: Any, size: int, sample_weight: Any = None, *, reach: float = 1e-3
) -> FloatArray:
    """Return radii worth trying, evenly spaced in logarithm up to the one at which nothing is learned any more.

    The grid goes from ``reach`` times `largest_radius` up to it, as the grids of scikit-learn's lasso do, so it knows
    the scale of the features. An adversary within walls, or who changes categories, can do less: there the end is
    doubled as long as a step from the constant model along the gradient pays.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The data.
    size : int
        How many radii.
    reach : float, default=1e-3

    Examples
    --------
    >>> X, y = np.array([[3.0], [1.0], [-1.0], [-3.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> radius_grid(Problem("hinge"), X, y, 4).round(3)
    array([0.002, 0.02 , 0.2  , 2.   ])
    """
    if size < 1:
        raise ValueError(f"A grid needs at least one radius, got {size!r}.")
    data = as_data(problem, X, y, sample_weight)
    largest = _largest_radius(problem, data)
    if not problem.family.is_closed:
        largest = _while_steps_pay(problem, data, largest)
    # Where nothing can be learned at any radius the grid does not matter, but it must be one.
    largest = largest if np.isfinite(largest) and largest > 0.0 else 1.0
    return np.geomspace(reach * largest, largest, size) if size > 1 else np.array([np.sqrt(reach) * largest])


def _while_steps_pay(problem: Problem, data: Data, radius: float) -> float:
    """Return ``radius``, doubled until no short step from the best constant model lowers the worst-case risk."""
    t = constant_signal(problem, data)
    slope, _ = slopes(problem, data, t)
    sign = data.y if problem.is_classification else 1.0
    down = -data.rows.transpose_dot(data.masses * slope * sign)
    # What is steepest depends on the norm: all coefficients alike, by the gradient, or one.
    one = np.where(np.abs(down) == np.abs(down).max(), down, 0.0)
    steps = [down, np.sign(down), one]
    length = _SHORT * (1.0 if problem.is_classification else float(np.std(data.y)))
    steps = [step * (length / max(float(np.abs(data.rows.dot(step)).max()), 1e-300)) for step in steps]
    intercept = best_constant(problem.loss, data.y, data.masses) if problem.fit_intercept else 0.0
    for _ in range(_DOUBLINGS):
        at = problem.replace(radius=radius)
        still = at.minimum(np.zeros(data.rows.m), intercept, data).value
        # A hundredth of what the step earns without an adversary: less may be rounding.
        if all(still - at.minimum(step, intercept, data).value <= 0.01 * float(down @ step) for step in steps):
            break
        radius *= 2.0
    return radius


def constant_signal(problem: Problem, data: Data) -> FloatArray:
    """Return the margins or residuals of the best constant score, which is 0 without an intercept."""
    constant = best_constant(problem.loss, data.y, data.masses) if problem.fit_intercept else 0.0
    return np.asarray(data.y * constant if problem.is_classification else constant - data.y)


def slopes(problem: Problem, data: Data, t: FloatArray) -> tuple[FloatArray, float]:
    """Return the slope of every row, and what ``sigma ||theta||_*`` is multiplied by; 0 where no slope is left."""
    loss, order = problem.loss, problem.geometry.order
    slope = np.asarray(loss.slope(t), dtype=np.float64)
    if loss.is_lipschitz:
        return slope, loss.lipschitz
    # sigma stands beside the mean of order p of the residuals: slopes of that mean
    root = float((data.masses @ loss.value(t)) ** (1.0 / order))
    return (slope / (order * root ** (order - 1.0)), 1.0) if root > 0.0 else (slope, 0.0)


def evenly(radii: Sequence[float], factor: float = 4.0) -> list[int]:
    """Return positions of some ascending radii, evenly spaced in logarithm and about ``factor`` apart, with both ends.

    Examples
    --------
    >>> evenly([0.0, 0.01, 0.02, 0.03, 0.05, 0.1], 3.0)
    [0, 1, 2, 4, 5]
    """
    values = np.asarray(radii)
    first = int(values[0] == 0.0)  # no radius is a place of its own
    if first == values.size:
        return [0]
    logs = np.log(values[first:])
    count = 1 + math.ceil((logs[-1] - logs[0]) / math.log(factor) - 1e-9)
    nearest = [first + int(np.argmin(np.abs(logs - goal))) for goal in np.linspace(logs[0], logs[-1], count)]
    return sorted({*range(first), *nearest})
