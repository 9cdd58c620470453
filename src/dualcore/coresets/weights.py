r"""New weights with given sums: most of them zero, or all of them moved as little as possible.

**Recombination.** A mean of vectors in ``R^d`` is a convex combination of at most ``d + 1`` of them (Caratheodory). The
proof is an algorithm: more vectors than that are affinely dependent, so weights can move along the dependence, without
a change of any sum, until one of them is zero. `eliminate` does this for a few vectors. Many are cut into
``2 (d + 1)`` groups; eliminating half of the *group means* halves the number of rows (Litterer and Lyons 2012;
Tchernychova 2015; Maalouf, Jubran and Feldman 2019), which costs O(n d + d^3 log(n / d)) in all.

Two sets that were reduced separately can be put together and reduced again: their sums are still those of all rows.

**Calibration.** The weights of a sample are moved so that it reproduces what is known of the full data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from dualcore.coresets.coreset import normalised
from dualcore.data.arrays import FloatArray

# Directions of an elimination that are updated at a time; the others follow in one product.
_PANEL = 32
# Softness of a calibration that meets its targets but for rounding.
_EXACT = 1e-14


class Basis(NamedTuple):
    """An affine map of the matched numbers to uncorrelated ones of variance 1, the same for all rows.

    Deciding group by group which numbers are dependent would lose digits where several anchors are stacked.
    """

    centre: FloatArray  # (d,)
    transform: FloatArray  # (d, rank)

    @classmethod
    def of(cls, values: FloatArray, weights: FloatArray) -> Basis:
        """Return the basis from the numbers of all rows, shape (n, d), and their weights, which sum to one."""
        mean, second = weights @ values, (weighted := np.sqrt(weights)[:, None] * values).T @ weighted
        covariance = second - np.outer(mean, mean)
        deviation = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        varies = deviation > 1e-7 * np.sqrt(np.maximum(np.diagonal(second), 1e-300))
        scale = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        variances, vectors = np.linalg.eigh(covariance * scale * scale[:, None])
        # Less cannot be told from rounding of the second moments.
        kept = variances > 1e-14 * max(float(variances[-1]), 1e-300)
        return cls(mean, scale[:, None] * vectors[:, kept] / np.sqrt(variances[kept]))

    @property
    def rank(self) -> int:
        """How many independent numbers there are; one row more than that is always enough."""
        return int(self.transform.shape[1])

    def apply(self, values: FloatArray) -> FloatArray:
        """Return the uncorrelated numbers, after a leading one for the mass; shape (n, 1 + rank)."""
        out = np.empty((len(values), 1 + self.rank))
        out[:, 0] = 1.0
        np.matmul(values - self.centre, self.transform, out=out[:, 1:])
        return out


def eliminate(values: FloatArray, weights: FloatArray, most: FloatArray | float = np.inf) -> FloatArray:
    """Return weights with the same sums ``values.T @ weights``, all but ``rank(values)`` of them at a limit.

    Parameters
    ----------
    values : ndarray of shape (n, d)
    weights : ndarray of shape (n,)
        Positive, at most ``most``.
    most : ndarray of shape (n,) or float
        Largest new weights; the smallest is 0.

    Examples
    --------
    >>> values = np.column_stack([np.ones(5), np.arange(5.0)])
    >>> new = eliminate(values, np.full(5, 0.2))
    >>> int(np.count_nonzero(new)), round(float(new @ values[:, 1]), 12)
    (2, 2.0)
    """
    below, above = weights.copy(), most - weights
    null = _null_space(values)
    while len(null):
        panel, null = null[:_PANEL], null[_PANEL:]
        used, fixed = [], []
        for k in range(len(panel)):
            row = _to_limit(panel[k], below, above)
            if row is None:
                continue
            used.append(k)
            fixed.append(row)
            # The other directions leave this weight where it is.
            panel[k + 1 :] -= panel[k + 1 :, row, None] * (panel[k] / panel[k, row])
            panel[k + 1 :, row] = 0.0
        if fixed and len(null):
            pivots = panel[used]
            null = null - scipy.linalg.solve_triangular(pivots[:, fixed], null[:, fixed].T, trans=1).T @ pivots
            null[:, fixed] = 0.0
    return np.clip(below, 0.0, most)


def _null_space(values: FloatArray) -> FloatArray:
    """Return orthonormal directions along which weights leave the sums as they are, shape (n - rank, n)."""
    q, r = np.linalg.qr(values, mode="complete")
    diagonal, dependent = np.abs(np.diagonal(r)), 1e-11  # in standard deviations, after the change of basis
    if not diagonal.min(initial=np.inf) > dependent * diagonal.max(initial=0.0):
        q, r, _ = scipy.linalg.qr(values, pivoting=True)
        diagonal = np.abs(np.diagonal(r))
    rank = int(np.count_nonzero(diagonal > dependent * diagonal.max(initial=0.0)))
    return np.ascontiguousarray(q[:, rank:].T)


def _to_limit(direction: FloatArray, below: FloatArray, above: FloatArray) -> int | None:
    """Move weights, in place, along a direction to the nearest limit of one of them; return which that is.

    ``below`` and ``above`` are the distances of each weight from its two limits.
    """
    size = np.abs(direction)
    size[size <= 1e-12 * size.max(initial=0.0)] = 0.0  # rounding
    distance = np.maximum(np.minimum(below, above), 1e-154)  # the square root of the least number
    row = int((size / distance).argmax())
    if not size[row]:
        return None
    to_zero = below[row] <= above[row]
    step = direction * ((-below[row] if to_zero else above[row]) / direction[row])
    below += step
    above -= step
    (below if to_zero else above)[row] = 0.0
    return row


def recombine(values: FloatArray, weights: FloatArray, most: int = 0) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Return some rows, and weights with which they have the sums ``values.T @ weights`` of all.

    They are about four for each number, or ``most`` if these are more: more than are needed, so that weights can still
    move to a new target.

    Parameters
    ----------
    values : ndarray of shape (n, d)
        Uncorrelated numbers, the first of them 1: see `Basis`.
    weights : ndarray of shape (n,)
        Positive.

    Examples
    --------
    >>> values = np.column_stack([np.ones(1000), np.arange(1000.0) % 7])
    >>> rows, new = recombine(values, np.full(1000, 0.001))
    >>> rows.size, bool(np.allclose(new @ values[rows], values.mean(axis=0)))
    (8, True)
    """
    rows, n_groups = np.arange(weights.size), 2 * values.shape[1]
    while rows.size > max(2 * n_groups, most):
        group = np.arange(rows.size) % n_groups
        even = rows.size // n_groups * n_groups
        weighted = values[rows] * weights[:, None]
        sums = weighted[:even].reshape(-1, n_groups, values.shape[1]).sum(axis=0)
        sums[: rows.size - even] += weighted[even:]
        masses = np.bincount(group, weights, n_groups).astype(np.float64)
        # Groups that are left keep their rows and the proportions of these.
        factors = (eliminate(sums / masses[:, None], masses) / masses)[group]
        kept = np.flatnonzero(factors > 0.0)
        rows, weights = rows[kept], weights[kept] * factors[kept]
    return rows, weights


def calibrate(weights: FloatArray, moments: FloatArray, targets: FloatArray) -> FloatArray:
    r"""Return ``u >= 0`` with ``sum u = 1`` nearest to ``weights`` whose moments match.

    .. math:: \min_{u \ge 0} \sum_i \frac{(u_i - w_i)^2}{2 w_i} \quad \text{subject to} \quad M^T u = \mu

    The dual has one variable per moment and ``u_i = w_i \max(0, 1 + (M \nu)_i)``; a semismooth Newton method solves it.
    A little softness bounds the multipliers, so that moments which no weights can match are approached instead (fewer
    rows than moments, targets outside the hull).

    Parameters
    ----------
    weights : ndarray of shape (size,)
        Positive, sum to one.
    moments : ndarray of shape (size, k)
    targets : ndarray of shape (k,)
        The same moments on the full data.

    Examples
    --------
    >>> u = calibrate(np.full(4, 0.25), np.arange(4.0)[:, None], np.array([2.0]))
    >>> round(float(u @ np.arange(4.0)), 9), round(float(u.sum()), 12)
    (2.0, 1.0)
    """
    if moments.shape[1] > weights.size:  # no more of them vary than there are rows
        rows = np.sqrt(weights)[:, None] * (moments - weights @ moments)
        spread = np.sqrt((rows**2).sum(axis=0))
        spread[spread <= 1e-7 * np.abs(moments).max(axis=0)] = np.inf  # of a constant rounding is left
        directions = np.linalg.svd(rows / spread, full_matrices=False)[2].T / spread[:, None]
        moments, targets = moments @ directions, targets @ directions
    # Models of close radii have nearly the same moments: weights are soon found in a basis of uncorrelated ones.
    basis = Basis.of(moments, weights)
    design, asked = basis.apply(np.ascontiguousarray(moments)), basis.apply(targets[None])[0]
    # A moment far beyond that of any row comes from rows that were not drawn: to approach it, all weight would go to a
    # row or two.
    near = np.abs(asked) <= 1000.0 * np.maximum(design.max(axis=0), -design.min(axis=0))
    if not near.all():
        design, asked = np.ascontiguousarray(design[:, near]), asked[near]
    nu, lift, _ = _minimise_dual(weights, design, asked, np.zeros(asked.size), 1e-5)
    if asked.size < weights.size:
        exact_nu, exact_lift, off = _minimise_dual(weights, design, asked, nu, _EXACT)
        # With large multipliers the exact match depends on a few rows: the soft one is then the better estimate.
        if off <= 1e-10 and np.linalg.norm(exact_nu[1:]) <= 1.1 * np.linalg.norm(nu[1:]) + 1e-6:
            lift = exact_lift
    new = weights * lift
    return normalised(new) if new.sum() > 0.0 and np.isfinite(new).all() else weights


def _minimise_dual(
    weights: FloatArray, basis: FloatArray, goal: FloatArray, nu: FloatArray, softness: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimise the dual by semismooth Newton from ``nu``; return it, the factors of the weights, what is missed.

    The total mass, whose moment comes first, is met more closely than the others.
    """
    soft = np.full(goal.size, softness)
    soft[0] = _EXACT if goal.size < weights.size else 1e-3 * softness

    def dual(nu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        lift = np.maximum(1.0 + basis @ nu, 0.0)
        value = 0.5 * float(weights @ (lift * lift)) - float(goal @ nu) + 0.5 * float(soft @ (nu * nu))
        return value, lift, basis.T @ (weights * lift) - goal + soft * nu

    (value, lift, gradient), same, off = dual(nu), 0, np.inf
    for _ in range(50):
        active = lift > 0.0
        step = -_solve(basis, np.where(active, 0.0, weights), soft + _EXACT, gradient)
        slope, share = float(gradient @ step), 1.0
        trial = dual(nu + step)
        while trial[0] > value + 1e-4 * share * slope + 1e-15 and share > 1e-6:
            share *= 0.5
            trial = dual(nu + share * step)
        if share <= 1e-6:  # rounding is all that is left
            break
        nu = nu + share * step
        value, lift, gradient = trial
        # The dual is quadratic as long as the same rows have weight: a second step there refines the first.
        same, off = same + 1 if np.array_equal(active, lift > 0.0) else 0, float(np.abs(gradient).max())
        if off <= 1e-13 or (same > 1 and off <= 1e-9):
            break
    return nu, lift, off


def _solve(basis: FloatArray, lost: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """Solve ``(basis' W basis + diag(diagonal)) x = right`` for weights of which some were set to zero.

    With all of them the matrix is the identity but for rounding, see `Basis`: ``lost`` are those that were not zero.
    """
    rows = basis[lost > 0.0] * np.sqrt(lost[lost > 0.0])[:, None]
    gram = np.eye(right.size) - rows.T @ rows
    gram.flat[:: right.size + 1] += diagonal
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
