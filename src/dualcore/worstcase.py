"""The distribution that attains the worst-case risk, order 1 on unbounded features.

The adversary spends the radius greedily: first on the label flips that earn most per unit of cost, then, whatever
remains, on moving one row along the steepest direction of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.forms import MarginForm
from dualcore.geometry import FloatArray
from dualcore.problem import Problem

__all__ = ["WorstCase", "worst_case_distribution"]


@dataclass(frozen=True)
class WorstCase:
    """A discrete distribution inside the Wasserstein ball.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_atoms, n_features)
    y : ndarray of shape (n_atoms,)
    weights : ndarray of shape (n_atoms,)
        Masses; they sum to one.
    source : ndarray of shape (n_atoms,)
        Row of the data each atom was moved from.
    transport_cost : float
        What moving the data here costs; at most the radius.
    expected_loss : float
        Mean loss under this distribution.
    gap : float
        Bound on worst-case risk minus ``expected_loss``; 0 where the supremum is attained.
    attained : bool
        Whether the supremum is a maximum.

    Examples
    --------
    >>> X, y = np.array([[0.5], [-0.5]]), np.array([1.0, -1.0])
    >>> worst = worst_case_distribution(Problem("hinge", radius=0.25), [1.0], 0.0, X, y)
    >>> float(worst.expected_loss), float(worst.transport_cost), bool(worst.attained)
    (0.75, 0.25, True)
    """

    X: Any
    y: FloatArray
    weights: FloatArray
    source: npt.NDArray[np.int64]
    transport_cost: float
    expected_loss: float
    gap: float
    attained: bool


def worst_case_distribution(
    problem: Problem,
    coef: npt.ArrayLike,
    intercept: float,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    tol: float = 1e-7,
) -> WorstCase:
    """Return a distribution within the radius whose expected loss is the worst-case risk (ridge excluded).

    Where the supremum is not attained (a logistic adversary wants to send ever less mass ever farther) the distribution
    comes within ``tol * max(1, risk)`` of it and says so in ``gap``.

    Parameters
    ----------
    problem : Problem
        Of order 1.
    coef, intercept
        The model.
    X, y, sample_weight
        The data.
    tol : float, default=1e-7
        How near to come where the supremum is not attained.

    Examples
    --------
    >>> problem = Problem("hinge", radius=0.5, label_cost=0.25)
    >>> worst = worst_case_distribution(problem, [1.0], 0.0, np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))
    >>> float(worst.expected_loss), float(worst.transport_cost)
    (2.25, 0.5)
    """
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive, got {tol!r}.")
    if problem.geometry.order != 1:
        raise ValueError("Worst-case distributions are available for transport order 1; this problem has order 2.")
    theta = np.asarray(coef, dtype=np.float64)
    data = problem.validate(X, y, sample_weight)
    t, size = problem.signal(theta, intercept, data), problem.size(theta)
    value = problem.form.minimise(t, data.weights, size).value

    source, labels, masses = np.arange(data.rows.n), data.y, data.masses
    rest = problem.radius
    if isinstance(problem.form, MarginForm):
        rows, share = problem.form.flip_shares(t, data.weights, size)
        flipped = share * masses[rows]
        left = masses.copy()
        left[rows] = np.where(share >= 1.0, 0.0, masses[rows] - flipped)
        source, labels = np.concatenate([source, rows]), np.concatenate([labels, -labels[rows]])
        masses, t = np.concatenate([left, flipped]), np.concatenate([t, -t[rows]])
        if rows.size:
            rest = max(rest - problem.geometry.label_cost * float(flipped.sum()), 0.0)
    keep = masses > 0.0
    source, labels, masses, t = source[keep], labels[keep], masses[keep], t[keep]
    points = data.rows.take(source)
    cost, gap = problem.radius - rest, 0.0

    push = _best_push(problem, theta, labels, masses, t, rest, tol * max(1.0, value))
    if push is not None:
        atom, mass, shift, target_shift, gap = push
        moved = points[[atom]] + (sp.csr_matrix(shift[None, :]) if sp.issparse(points) else shift)
        masses[atom] -= mass
        stack = sp.vstack if sp.issparse(points) else np.vstack
        points, source = stack([points, moved]), np.append(source, source[atom])
        labels, masses = np.append(labels, labels[atom] + target_shift), np.append(masses, mass)
        if masses[atom] <= 0.0:
            keep = np.arange(masses.size) != atom
            points, source, labels, masses = points[keep], source[keep], labels[keep], masses[keep]
        price = problem.geometry.norm.value(shift)
        if target_shift != 0.0:
            price += 0.5 * problem.geometry.label_cost * abs(target_shift)
        cost += mass * price

    score = np.asarray(points @ theta + intercept, dtype=np.float64)
    losses = problem.loss.value(labels * score if problem.is_classification else score - labels)
    return WorstCase(points, labels, masses, source, float(cost), float(masses @ losses), gap, gap == 0.0)


class _Push(NamedTuple):
    """Move ``mass`` of ``atom`` by ``shift`` (and its target by ``target_shift``).

    ``lost`` is what that falls short.
    """

    atom: int
    mass: float
    shift: FloatArray
    target_shift: float
    lost: float


def _best_push(
    problem: Problem, theta: FloatArray, labels: FloatArray, masses: FloatArray, t: FloatArray, rest: float, tol: float
) -> _Push | None:
    """Spend ``rest`` on the atom where a unit of cost earns most, ``kappa`` if it earns the full slope all the way.

    By convexity an atom farther out on the steep side loses less, so only the outermost atom of each side competes.
    Moving less mass farther loses less too: the mass is halved until the loss is below ``tol``.
    """
    size = problem.size(theta)
    rate = size if problem.is_classification else max(size, problem.geometry.target_slope)
    if rest <= 1e-15 * problem.radius or rate == 0.0:
        return None
    best: _Push | None = None
    for side in (-1.0,) if problem.is_classification else (-1.0, 1.0):
        atom = int(np.argmax(side * t))
        mass = float(masses[atom])
        for _ in range(100):
            distance = rest / mass
            ends = problem.loss.value(np.array([t[atom], t[atom] + side * rate * distance]))
            earned, most = float(ends[1] - ends[0]), problem.loss.lipschitz * rate * distance
            lost = mass * (most - earned)
            if lost <= tol:
                break
            mass *= 0.5
        if lost <= 1e-14 * mass * (most + abs(float(ends[0]))):  # rounding: the full slope was earned
            lost = 0.0
        if best is not None and best.lost <= lost:
            continue
        sign = side * labels[atom] if problem.is_classification else side
        if rate > size:  # cheaper to move the target than the features
            best = _Push(atom, mass, np.zeros_like(theta), -side * rate * distance, lost)
        else:
            best = _Push(atom, mass, sign * distance * problem.geometry.norm.steepest(theta), 0.0, lost)
    return best
