"""Which of two ways of a row may earn more, from products with the rows alone.

Lines below the cost ``phi`` of a way bound what it earns. One is ``s / ||u||_*``. For every ``w`` with dual norm 1

    phi(s) >= min { w . v : u . v = s, 0 <= v <= cap } >= s / price - psi ,   psi = sum_j (u_j / price - w_j)_+ cap_j ,

by duality. With ``price = lam / Lip`` a convex loss less this line falls behind the gain where the two lines meet, and
less the other line it is largest at an end. So the way earns at most

    max { L(t), L(t + d s) - lam s / ||u||_* }   at   s = psi / (1 / price - 1 / ||u||_*) .

``psi`` is linear in the row. The bound is good where ``w`` is near to the gradient of the norm at the best move; here
all rows have the ``w`` of their mean.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxl2walls import guess_share
from dualcore.problem.families.boxsearch import Best
from dualcore.problem.families.boxsums import Places
from dualcore.problem.geometry import L1Norm, LinfNorm, Norm
from dualcore.problem.losses import Loss

__all__ = ["bound_ways", "has_bounds", "search_ways"]

# What finds the best moves of some rows, or of all, along their pushes, if they earn enough.
Search = Callable[[Places | None, FloatArray, FloatArray | None], Best]

_ROUNDING = 1e-14
# As near to zero or to the largest multiplier, relatively, bounds have no digits.
_LEAST = 1e-6
# Bounds that are as near to each other say little: those of l1 are exact where the loss is linear, those of linf the
# loosest.
_CLOSE = {"l1": 1.0, "l2": 0.78, "linf": 0.54}
# Share of the rows up to which they go both ways in one search.
_FEW = 0.4


def has_bounds(loss: Loss, norm: Norm, coef: FloatArray, multiplier: float) -> bool:
    """Whether `bound_ways` may be asked: of a loss without pieces, and of a norm without weights."""
    largest = loss.lipschitz * norm.dual(coef)
    return loss.pieces is None and norm.weights is None and _LEAST * largest < multiplier < (1.0 - _LEAST) * largest


def bound_ways(
    loss: Loss,
    norm: Norm,
    walls: tuple[FloatArray, FloatArray],
    X: FloatArray,
    coef: FloatArray,
    residual: FloatArray,
    multiplier: float,
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of what rows earn whose score is pushed up, and down, those that stay apart.

    Parameters
    ----------
    loss : Loss
        Of the residual.
    norm : Norm
        Without weights.
    walls : tuple of two ndarrays of shape (n_features,)
        All of them finite, and no row outside them.
    X : ndarray of shape (n_rows, n_features)
    coef : ndarray of shape (n_features,)
    residual : ndarray of shape (n_rows,)
    multiplier : float
        Positive, and below ``Lip ||coef||_*``.
    """
    low, high = walls
    slopes, length, price = np.abs(coef), norm.dual(coef), multiplier / loss.lipschitz
    mean = np.full(len(X), 1.0 / len(X)) @ X
    steep, unit, rising = slopes / price, np.sign(coef) / (1.0 / price - 1.0 / length), coef > 0.0
    rounding = _ROUNDING * float(np.abs(unit) * steep @ np.maximum(np.abs(low), np.abs(high)))

    def bound(push: float) -> FloatArray:
        ahead = np.where(rising == (push > 0.0), high, low)
        weights = np.maximum(steep - _gradient(norm, np.abs(ahead - mean), slopes, length, price), 0.0)
        weights *= push * unit
        gain = (float(weights @ ahead) + rounding) - X @ weights  # where the lines meet
        earned = loss.value(residual + push * gain)
        gain *= multiplier / length
        earned -= gain
        return earned

    return bound(1.0), bound(-1.0)


def search_ways(up: FloatArray, down: FloatArray, norm: Norm, search: Search) -> tuple[Best, FloatArray]:
    """Return the best move of every row and its push: the way with the higher bound, the other where it may be better.

    Rows whose bounds are close to each other, if they are few, go both ways in one search: a second one takes
    longer.
    """
    n, push, less = up.size, np.where(up >= down, 1.0, -1.0), np.minimum(up, down)
    twice = (less > _CLOSE[norm.name] * np.maximum(up, down)).nonzero()[0]
    if 0 < twice.size <= _FEW * n:
        both = search(np.concatenate([np.arange(n), twice]), np.concatenate([push, -push[twice]]), None)
        best, push = _put_better(Best(*(part[:n] for part in both)), push, twice, Best(*(part[n:] for part in both)))
        less[twice] = -np.inf
    else:
        best = search(None, push, None)
    rest = (less > best.lower).nonzero()[0]
    if rest.size:
        best, push = _put_better(best, push, rest, search(rest, -push[rest], best.lower[rest]))
    return best, push


def _put_better(best: Best, push: FloatArray, rows: Places, other: Best) -> tuple[Best, FloatArray]:
    """Return what is best and its push, those of some rows replaced where the other way earns more than rounding."""
    wins = other.lower > best.lower[rows] * (1.0 + 1e-15)
    upper = best.upper.copy()
    upper[rows] = np.maximum(upper[rows], other.upper)
    if np.count_nonzero(wins):
        best, push, rows = Best(*(part.copy() for part in best)), push.copy(), rows[wins]
        for whole, part in zip(best, other, strict=True):
            whole[rows] = part[wins]
        push[rows] = -push[rows]
    return best._replace(upper=upper), push


def _gradient(norm: Norm, caps: FloatArray, slopes: FloatArray, length: float, price: float) -> FloatArray:
    """Return a vector of dual norm 1, the gradient of the norm at about the best move of a row with this room."""
    if isinstance(norm, L1Norm):
        return np.ones(caps.size)
    if isinstance(norm, LinfNorm):
        # The features that meet their walls last share the weight one.
        order = np.argsort(-caps)
        part = slopes[order]
        left = price - np.cumsum(part) + part
        out = np.empty(caps.size)
        out[order] = np.minimum(np.maximum(left, 0.0), part)
        return out / price
    most, gain = float(caps @ caps), float(caps @ slopes)
    if most == 0.0:
        return np.zeros(caps.size)
    share = float(guess_share(price / length, gain * gain / (length * length * most)))
    moves = np.minimum(caps, sqrt(share * most) / price * slopes)
    return moves / sqrt(moves @ moves)
