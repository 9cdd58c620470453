"""Calibration: move the weights as little as possible so that the coreset reproduces what is known of the full data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.coreset import normalised
from dualcore.data.arrays import FloatArray

# Softness of a calibration that meets the means exactly.
_EXACT = 1e-14
# Share of the mass of a class that calibration must leave.
_LEAST_CLASS = 1e-3
# A mean beyond this many times the largest value in the coreset is not approached.
_FAR = 1000.0
# How often all rows change sides although no fewer are wrong, and how many systems are solved in all.
_CHANCES, _PIVOTS = 3, 200
# The total mass is met this much more closely than other moments where these outnumber the rows.
_MASS_SOFTNESS = 1e-3
# A column of sparse moments with a larger share of entries is multiplied as a dense one.
_FULL = 0.2
# Numbers of a matrix of moments copied at a time.
_NUMBERS = 1 << 20


class Calibrated(NamedTuple):
    """New weights, and by how much the moments are still off, relative to their spread over the coreset."""

    weights: FloatArray
    residual: float


def calibrate(weights: FloatArray, moments: Any, targets: FloatArray, *, softness: float = 1e-5) -> Calibrated:
    r"""Return ``u >= 0`` with ``sum u = 1`` nearest to ``weights`` whose moments match.

    .. math:: \min_{u \ge 0} \sum_i \frac{(u_i - w_i)^2}{2 w_i} \quad \text{subject to} \quad M^T u = \mu

    The dual has one variable per moment and ``u_i = w_i \max(0, 1 + (M \nu)_i)``; a semismooth Newton method
    solves it, in the rows instead where there are fewer of them. ``softness`` bounds the multipliers, so that moments
    which no weights can match are approached instead (fewer rows than moments, targets outside the hull).

    Parameters
    ----------
    weights : ndarray of shape (size,)
        Positive, sum to one.
    moments : ndarray or sparse matrix of shape (size, k)
    targets : ndarray of shape (k,)
        The same moments on the full data.

    Examples
    --------
    >>> u = calibrate(np.full(4, 0.25), np.arange(4.0)[:, None], np.array([2.0])).weights
    >>> round(float(u @ np.arange(4.0)), 9), round(float(u.sum()), 12)
    (2.0, 1.0)
    """
    if not sp.issparse(moments):  # the last digit of a product depends on the layout, which differs between sources
        moments = np.ascontiguousarray(moments)
    squares, centre, low, high = _column_facts(weights, moments)
    spread = np.sqrt(np.maximum(squares - centre**2, 0.0))
    width = np.maximum(high - centre, centre - low)
    # Both, because the spread of a constant is what rounding leaves of the squares.
    kept = np.minimum(spread, width) > 1e-12 * np.maximum(np.maximum(high, -low), 1e-300)
    # A moment far beyond that of any row comes from rows that were not drawn: to approach it, all weight would go to a
    # row or two.
    goal = targets - centre
    far = kept & (np.abs(goal) > _FAR * width)
    missed = float((np.abs(goal[far]) / spread[far]).max(initial=0.0))
    kept &= ~far
    if not kept.all():
        moments, goal, centre, spread = moments[:, kept], goal[kept], centre[kept], spread[kept]
    goal = goal / spread
    if 1 + goal.size > weights.size:
        lift = _lift_by_rows(weights, *_row_products(moments, centre, spread, goal), softness)
    else:
        basis = np.empty((weights.size, 1 + goal.size))  # written in place: it may be large
        basis[:, 0] = 1.0
        np.subtract(moments.toarray() if sp.issparse(moments) else moments, centre, out=basis[:, 1:])
        basis[:, 1:] /= spread
        lift = _lift_by_moments(weights, basis, np.concatenate([[1.0], goal]), softness)
    new = weights * lift
    if not new.sum() > 0.0 or not np.isfinite(new).all():
        return Calibrated(weights, max(missed, float(np.abs(goal).max(initial=0.0))))
    new = normalised(new)
    return Calibrated(new, max(missed, float(np.abs((new @ moments - centre) / spread - goal).max(initial=0.0))))


def _column_facts(weights: FloatArray, moments: Any) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the weighted mean square and mean of every column, its least and its largest value."""
    if sp.issparse(moments):
        low, high = (side(axis=0).toarray().ravel() for side in (moments.min, moments.max))
        squares = weights @ moments.multiply(moments)
    else:
        low, high = moments.min(axis=0), moments.max(axis=0)
        squares = sum(weights[part] @ moments[part] ** 2 for part in _parts(moments.shape))
    return np.asarray(squares), np.asarray(weights @ moments), low, high


def _row_products(
    moments: Any, centre: FloatArray, spread: FloatArray, goal: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ``B B'`` and ``B goal`` with ``B = (moments - centre) / spread``, which is not formed where it is sparse.

    There ``B = P - 1 q'`` with sparse ``P``. Columns of which most is taken away again are multiplied as they are.
    """
    if not sp.issparse(moments):
        basis = (moments - centre) / spread
        return basis @ basis.T, basis @ goal
    full = (moments.getnnz(axis=0) > _FULL * moments.shape[0]) | (np.abs(centre) > spread)
    basis = (moments[:, full].toarray() - centre[full]) / spread[full]
    columns = sp.csr_matrix(moments[:, ~full] @ sp.diags(1.0 / spread[~full]))
    shift = centre[~full] / spread[~full]
    across = columns @ shift
    gram = basis @ basis.T + (columns @ columns.T).toarray()
    gram += float(shift @ shift) - across[:, None] - across
    return gram, basis @ goal[full] + columns @ goal[~full] - float(shift @ goal[~full])


def _parts(shape: tuple[int, ...]) -> list[slice]:
    """Return slices of rows of at most `_NUMBERS` numbers each."""
    step = max(1, _NUMBERS // max(shape[1], 1))
    return [slice(first, first + step) for first in range(0, shape[0], step)]


def keeps_classes(y: FloatArray, before: FloatArray, after: FloatArray) -> bool:
    """Whether new weights leave each class a mass worth the name: a thousandth of what it was at least.

    Examples
    --------
    >>> keeps_classes(np.array([-1.0, 1.0]), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    False
    """
    classes = [y == label for label in np.unique(y)]
    return all(float(after[own].sum()) >= _LEAST_CLASS * float(before[own].sum()) for own in classes)


def _softnesses(n_moments: int, n_rows: int, softness: float) -> FloatArray:
    """Return the softness of every moment: the total mass is met almost exactly, the others only up to ``softness``."""
    soft = np.full(n_moments, softness)
    soft[0] = _EXACT if n_moments < n_rows else _MASS_SOFTNESS * softness
    return soft


def _lift_by_moments(weights: FloatArray, basis: FloatArray, goal: FloatArray, softness: float) -> FloatArray:
    """Return the weights' factors where rows are at least as many as moments."""
    nu, lift, _ = _dual_newton(weights, basis, goal, np.zeros(goal.size), softness)
    if goal.size < weights.size:
        exact_nu, exact_lift, off = _dual_newton(weights, basis, goal, nu, _EXACT)
        # With large multipliers the exact match depends on a few rows: the soft one is then the better estimate.
        if off <= 1e-10 and np.linalg.norm(exact_nu[1:]) <= 1.1 * np.linalg.norm(nu[1:]) + 1e-6:
            lift = exact_lift
    return lift


def _lift_by_rows(weights: FloatArray, gram: FloatArray, by_goal: FloatArray, softness: float) -> FloatArray:
    r"""Return the weights' factors where moments outnumber rows: the same optimum by systems of the rows alone.

    Without the multipliers, which are ``nu = S^{-1} (goal - B^T u)`` at the optimum with ``S`` the softness, it is

    .. math:: \min_{v \ge 0} \tfrac12 v^T (I + R B S^{-1} B^T R) v - v^T R (1 + B S^{-1} goal),
              \qquad u = R v, \quad R = \mathrm{diag}(\sqrt{w})

    where the first column of ``B`` is that of the total mass, and ``gram`` and ``by_goal`` are `_row_products` of the
    others. Block principal pivoting: all rows of the wrong sign change sides at once. Where that stops to help the last
    of them alone does, which ends (Murty); a run that does not end in time gives its last point, clipped.
    """
    root, total = np.sqrt(weights), _MASS_SOFTNESS * softness
    matrix = (gram / softness + 1.0 / total) * root[:, None] * root
    matrix.flat[:: root.size + 1] += 1.0
    right = root * (1.0 + 1.0 / total + by_goal / softness)
    small = 1e-10 * float(np.abs(right).max())
    free, v = np.ones(root.size, dtype=bool), np.zeros(root.size)
    least, chances = root.size + 1, _CHANCES
    for _ in range(_PIVOTS):
        v = np.zeros(root.size)
        v[free] = np.linalg.solve(matrix[np.ix_(free, free)], right[free])
        wrong = np.where(free, v < 0.0, matrix @ v < right - small)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            break
        if count < least:
            least, chances = count, _CHANCES
        else:
            chances -= 1
        if chances < 0:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return np.divide(np.maximum(v, 0.0), root, out=np.ones(root.size), where=root > 0.0)


def _dual_newton(
    weights: FloatArray, basis: FloatArray, goal: FloatArray, nu: FloatArray, softness: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimise the dual by semismooth Newton from ``nu``; return it, the weights' factors, the gradient's size."""
    soft = _softnesses(goal.size, weights.size, softness)

    def dual(nu: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        lift = np.maximum(1.0 + basis @ nu, 0.0)
        value = 0.5 * float(weights @ (lift * lift)) - float(goal @ nu) + 0.5 * float(soft @ (nu * nu))
        return value, lift, basis.T @ (weights * lift) - goal + soft * nu

    value, lift, gradient = dual(nu)
    for _ in range(50):
        if np.abs(gradient).max() <= 1e-13:
            break
        step = -_solve(basis, np.where(lift > 0.0, weights, 0.0), soft + 1e-14, gradient)
        slope, share = float(gradient @ step), 1.0
        trial = dual(nu + step)
        while trial[0] > value + 1e-4 * share * slope + 1e-15 and share > 1e-6:
            share *= 0.5
            trial = dual(nu + share * step)
        if share <= 1e-6:  # rounding is all that is left
            break
        nu = nu + share * step
        value, lift, gradient = trial
    return nu, lift, float(np.abs(gradient).max())


def _solve(basis: FloatArray, weights: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """Solve ``(basis' W basis + diag(diagonal)) x = right``, by the smaller of the two Gram matrices."""
    active = np.flatnonzero(weights)
    root = np.sqrt(weights[active])[:, None]
    n, k = active.size, right.size
    if n < k:  # Woodbury
        rows = basis[active] * root
        scaled = rows / diagonal
        inner = scaled @ rows.T
        inner.flat[:: n + 1] += 1.0
        return np.asarray(right / diagonal - scaled.T @ np.linalg.solve(inner, scaled @ right))
    gram = np.zeros((k, k))
    for part in _parts((n, k)):
        rows = basis[active[part]]
        rows *= root[part]
        gram += rows.T @ rows
    gram.flat[:: k + 1] += diagonal
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
