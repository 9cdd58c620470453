r"""New weights with given sums: most of them zero (recombination), or all changed as little as possible (calibration).

**Recombination.** A mean of vectors in ``R^d`` is a convex combination of at most ``d + 1`` of them (Caratheodory). The
proof is an algorithm: more vectors than that are affinely dependent, so weights can move along the dependence, without
a change of any sum, until one of them is zero. `eliminate` does this for a few vectors. Many are divided into
``2 (d + 1)`` groups; eliminating half of the *group means* halves the number of rows (Litterer and Lyons 2012;
Tchernychova 2015; Maalouf, Jubran and Feldman 2019), which costs O(n d + d^3 log(n / d)) in all.

Two sets that were reduced separately can be joined and reduced again: their sums are still those of all rows.

**Calibration.** The weights of a sample are changed so that it has the known sums of the full data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from dualcore.coresets.coreset import normalised
from dualcore.data.arrays import FloatArray

# Number of directions of an elimination that are updated one by one; the others follow in one product.
_PANEL = 32
# Regularisation of a calibration that meets its targets up to rounding.
_EXACT = 1e-14


class Basis(NamedTuple):
    """An affine map of the matched numbers to uncorrelated ones of variance 1, the same for all rows.

    If dependence were decided group by group, several anchors would lose digits.
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
        # Smaller variances may be rounding of the second moments.
        kept = variances > 1e-14 * max(float(variances[-1]), 1e-300)
        return cls(mean, scale[:, None] * vectors[:, kept] / np.sqrt(variances[kept]))

    @property
    def rank(self) -> int:
        """Number of independent numbers; ``rank + 1`` rows always suffice."""
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
            # Make the other directions zero at this weight.
            panel[k + 1 :] -= panel[k + 1 :, row, None] * (panel[k] / panel[k, row])
            panel[k + 1 :, row] = 0.0
        if fixed and len(null):
            pivots = panel[used]
            null = null - scipy.linalg.solve_triangular(pivots[:, fixed], null[:, fixed].T, trans=1).T @ pivots
            null[:, fixed] = 0.0
    return np.clip(below, 0.0, most)


def _null_space(values: FloatArray) -> FloatArray:
    """Return orthonormal directions of weights that do not change the sums, shape (n - rank, n)."""
    q, r = np.linalg.qr(values, mode="complete")
    diagonal, dependent = np.abs(np.diagonal(r)), 1e-11  # in standard deviations, after the change of basis
    if not diagonal.min(initial=np.inf) > dependent * diagonal.max(initial=0.0):
        q, r, _ = scipy.linalg.qr(values, pivoting=True)
        diagonal = np.abs(np.diagonal(r))
    rank = int(np.count_nonzero(diagonal > dependent * diagonal.max(initial=0.0)))
    return np.ascontiguousarray(q[:, rank:].T)


def _to_limit(direction: FloatArray, below: FloatArray, above: FloatArray) -> int | None:
    """Move weights, in place, along a direction until one of them reaches a limit; return its index.

    ``below`` and ``above`` are the distances of each weight from its two limits.
    """
    size = np.abs(direction)
    size[size <= 1e-12 * size.max(initial=0.0)] = 0.0  # rounding
    distance = np.maximum(np.minimum(below, above), 1e-154)  # avoids overflow of the quotient
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
    """Return some rows (k,), and weights (k,) with the same sums ``values.T @ weights`` as all rows.

    There are about four rows per matched number, or ``most`` if that is more. That is more than necessary, so that the
    weights can still be corrected to a new target.

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
        # The remaining groups keep their rows, with the same proportions.
        factors = (eliminate(sums / masses[:, None], masses) / masses)[group]
        kept = np.flatnonzero(factors > 0.0)
        rows, weights = rows[kept], weights[kept] * factors[kept]
    return rows, weights


def calibrate(weights: FloatArray, moments: FloatArray, targets: FloatArray) -> FloatArray:
    r"""Return ``u >= 0`` with ``sum u = 1`` nearest to ``weights`` whose moments match.

    .. math:: \min_{u \ge 0} \sum_i \frac{(u_i - w_i)^2}{2 w_i} \quad \text{subject to} \quad M^T u = \mu

    The dual has one variable per moment and ``u_i = w_i \max(0, 1 + (M \nu)_i)``; a semismooth Newton method solves it.
    A small regularisation bounds the multipliers, so that moments that no weights can match are approximated (fewer
    rows than moments, targets outside the convex hull).

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
    if moments.shape[1] > weights.size:  # reduce the moments to as many as there are rows
        rows = np.sqrt(weights)[:, None] * (moments - weights @ moments)
        spread = np.sqrt((rows**2).sum(axis=0))
        spread[spread <= 1e-7 * np.abs(moments).max(axis=0)] = np.inf  # constant up to rounding
        directions = np.linalg.svd(rows / spread, full_matrices=False)[2].T / spread[:, None]
        moments, targets = moments @ directions, targets @ directions
    # Models of similar radii have nearly dependent moments: Newton's method converges fast in an uncorrelated basis.
    basis = Basis.of(moments, weights)
    design, asked = basis.apply(np.ascontiguousarray(moments)), basis.apply(targets[None])[0]
    # A target far beyond the values of all rows is due to rows that were not drawn. Approximating it would put all
    # weight on one or two rows, so it is ignored.
    near = np.abs(asked) <= 1000.0 * np.maximum(design.max(axis=0), -design.min(axis=0))
    if not near.all():
        design, asked = np.ascontiguousarray(design[:, near]), asked[near]
    nu, lift, _ = _minimise_dual(weights, design, asked, np.zeros(asked.size), 1e-5)
    if asked.size < weights.size:
        exact_nu, exact_lift, off = _minimise_dual(weights, design, asked, nu, _EXACT)
        # If the exact match needs large multipliers, it depends on a few rows, and the regularised one is better.
        if off <= 1e-10 and np.linalg.norm(exact_nu[1:]) <= 1.1 * np.linalg.norm(nu[1:]) + 1e-6:
            lift = exact_lift
    new = weights * lift
    return normalised(new) if new.sum() > 0.0 and np.isfinite(new).all() else weights


def _minimise_dual(
    weights: FloatArray, basis: FloatArray, goal: FloatArray, nu: FloatArray, softness: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimise the dual by semismooth Newton from ``nu`` (k,); return the minimiser, factors (n,) and largest error.

    The total mass, the first moment, is matched more accurately than the others.
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
        if share <= 1e-6:  # no decrease beyond rounding is possible
            break
        nu = nu + share * step
        value, lift, gradient = trial
        # The dual is quadratic while the set of positive weights does not change: a second step refines the first.
        same, off = same + 1 if np.array_equal(active, lift > 0.0) else 0, float(np.abs(gradient).max())
        if off <= 1e-13 or (same > 1 and off <= 1e-9):
            break
    return nu, lift, off


def _solve(basis: FloatArray, lost: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """Solve ``(basis' W basis + diag(diagonal)) x = right``, where some of the weights are zero.

    With all weights ``basis' W basis`` is the identity up to rounding (see `Basis`); ``lost`` (n,) are the weights set
    to zero.
    """
    rows = basis[lost > 0.0] * np.sqrt(lost[lost > 0.0])[:, None]
    gram = np.eye(right.size) - rows.T @ rows
    gram.flat[:: right.size + 1] += diagonal
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
