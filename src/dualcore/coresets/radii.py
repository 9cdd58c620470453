"""Grids of radii, up to the largest at which the model is not constant."""

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

# Length of a trial step from the constant model, as the change of scores in units of a margin or of the standard
# deviation of the target; and how often a radius is doubled at most.
_SHORT, _DOUBLINGS = 1e-4, 10


def check_radii(radii: npt.ArrayLike) -> list[float]:
    """Return the radii of a path as a list, ascending; raise ValueError if they are invalid."""
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
    """Return radii, ascending, from a list, or from the size of a grid; its range is computed from ``rows``."""
    if isinstance(radii, (int, np.integer)) and not isinstance(radii, bool):
        if problem.family.n_outputs > 1:
            raise TypeError("How far radii reach is known for one score a row: give a list of radii.")
        return [float(radius) for radius in radius_grid(problem, rows.X, rows.y, int(radii), rows.weights)]
    return check_radii(radii)


def open_targets(problem: Problem, X: Any, y: Any, sample_weight: Any) -> Source:
    """Return a source with the targets of the problem: two labels of any kind become -1 and +1."""
    if isinstance(X, Source) or not problem.is_classification or problem.family.n_outputs > 1:
        return open_source(X, y, sample_weight)
    source, labels = open_labelled(X, y, sample_weight)
    if len(labels) > 2:
        raise ClassError(
            f"The target holds {len(labels)} classes, and {problem!r} tells two apart: use Problem('softmax', ...)."
        )
    return source


def as_data(problem: Problem, X: Any, y: Any, sample_weight: Any) -> Data:
    """Return validated rows; those of a source are read on demand."""
    if is_source_like(X, y):
        return source_data(open_targets(problem, X, y, sample_weight))
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    return data


def largest_radius(problem: Problem, X: Any, y: Any, sample_weight: Any = None) -> float:
    r"""Return the radius from which on every coefficient is zero.

    .. math:: \sigma_{\max} = \frac{1}{\mathrm{Lip}} \Bigl\| \sum_i w_i s_i x_i \Bigr\|

    with ``s_i`` the slope of the loss at the best constant model: at this radius the penalty ``sigma Lip ||theta||_*``
    balances the gradient of the mean loss. It is exact for smooth losses without flips. If the loss has kinks or labels
    move, coefficients may be zero at smaller radii. The radius of ``problem`` itself is not used.

    Examples
    --------
    >>> X, y = np.array([[3.0], [1.0], [-1.0], [-3.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> largest_radius(Problem("logistic"), X, y)
    1.0
    """
    return _largest_radius(problem, as_data(problem, X, y, sample_weight))


def _largest_radius(problem: Problem, data: Data) -> float:
    slope, bar = slopes(problem, data, constant_signal(problem, data))
    weighted = data.masses * slope * (data.y if problem.is_classification else 1.0)
    if problem.is_classification and problem.fit_intercept:
        # At a kink the slope is not unique: take the one that balances the classes, as the best intercept requires.
        ups, downs = float(np.maximum(weighted, 0.0).sum()), float(np.maximum(-weighted, 0.0).sum())
        share = np.where(data.y > 0.0, data.masses / data.masses[data.y > 0.0].sum(), 0.0)
        share -= np.where(data.y < 0.0, data.masses / data.masses[data.y < 0.0].sum(), 0.0)
        weighted = share * max(ups, downs)
    return problem.geometry.norm.value(data.rows.transpose_dot(weighted)) / bar if bar > 0.0 else 0.0


def radius_grid(
    problem: Problem, X: Any, y: Any, size: int, sample_weight: Any = None, *, reach: float = 1e-3
) -> FloatArray:
    """Return radii, evenly spaced in logarithm, up to one at which all coefficients are zero.

    The grid goes from ``reach`` times `largest_radius` to `largest_radius`, like that of scikit-learn's lasso, so it
    adapts to the scale of the features. On a box and with categories the adversary is weaker: the largest radius is
    doubled as long as a step from the constant model along the gradient lowers the risk.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The data.
    size : int
        Number of radii.
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
    # If the optimum is constant at every radius, any grid will do.
    largest = largest if np.isfinite(largest) and largest > 0.0 else 1.0
    return np.geomspace(reach * largest, largest, size) if size > 1 else np.array([np.sqrt(reach) * largest])


def _while_steps_pay(problem: Problem, data: Data, radius: float) -> float:
    """Return ``radius``, doubled until no short step from the best constant model lowers the worst-case risk."""
    slope, _ = slopes(problem, data, constant_signal(problem, data))
    down = -data.rows.transpose_dot(data.masses * slope * (data.y if problem.is_classification else 1.0))
    # The direction of steepest descent depends on the norm: the gradient, its signs, or its largest entry.
    one = np.where(np.abs(down) == np.abs(down).max(), down, 0.0)
    steps = [down, np.sign(down), one]
    length = _SHORT * (1.0 if problem.is_classification else float(np.std(data.y)))
    steps = [step * (length / max(float(np.abs(data.rows.dot(step)).max()), 1e-300)) for step in steps]
    intercept = best_constant(problem.loss, data.y, data.masses) if problem.fit_intercept else 0.0
    for _ in range(_DOUBLINGS):
        at = problem.replace(radius=radius)
        still = at.minimum(np.zeros(data.rows.m), intercept, data).value
        # A hundredth of the decrease without an adversary; less may be rounding.
        if all(still - at.minimum(step, intercept, data).value <= 0.01 * float(down @ step) for step in steps):
            break
        radius *= 2.0
    return radius


def constant_signal(problem: Problem, data: Data) -> FloatArray:
    """Return the margins or residuals of the best constant score, which is 0 without an intercept."""
    constant = best_constant(problem.loss, data.y, data.masses) if problem.fit_intercept else 0.0
    return np.asarray(data.y * constant if problem.is_classification else constant - data.y)


def slopes(problem: Problem, data: Data, t: FloatArray) -> tuple[FloatArray, float]:
    """Return the slope of every row (n,), and the factor of ``sigma ||theta||_*``; 0 if the fit is exact."""
    loss, order = problem.loss, problem.geometry.order
    slope = np.asarray(loss.slope(t), dtype=np.float64)
    if loss.is_lipschitz:
        return slope, loss.lipschitz
    # For order p the risk is (N + sigma ||theta||_*)^p with N the mean of order p: return the slopes of N.
    root = float((data.masses @ loss.value(t)) ** (1.0 / order))
    return (slope / (order * root ** (order - 1.0)), 1.0) if root > 0.0 else (slope, 0.0)


def evenly(radii: Sequence[float], factor: float = 4.0) -> list[int]:
    """Return indices of some of the ascending radii, about a ``factor`` apart, including both ends.

    Examples
    --------
    >>> evenly([0.0, 0.01, 0.02, 0.03, 0.05, 0.1], 3.0)
    [0, 1, 2, 4, 5]
    """
    values = np.asarray(radii)
    first = int(values[0] == 0.0)  # radius 0 is always included
    if first == values.size:
        return [0]
    logs = np.log(values[first:])
    count = 1 + math.ceil((logs[-1] - logs[0]) / math.log(factor) - 1e-9)
    nearest = [first + int(np.argmin(np.abs(logs - goal))) for goal in np.linspace(logs[0], logs[-1], count)]
    return sorted({*range(first), *nearest})
