r"""The worst case of a row as a mixture of its near-optimal moves, by a smoothed maximum.

At an optimum many rows have several best moves. The optimality conditions hold for a mixture of them, not for one
chosen move a row. Let the tangents of the loss have slopes ``q_k``, and let ``G_k`` be what the best move earns at a
slope of size ``|q_k|``. Then

    h = max_k  q_k t - L*(q_k) + G_k ,          smoothed:  mu log sum_k exp(. / mu) .

``G_k`` is smoothed as well. With l1 and categories features move on their own at a fixed slope, each with a logistic
share. With l2 the norm is rounded to ``sqrt(||v||^2 + eps^2)``, with linf ``kappa s^2 / 2`` is added to the cost of the
step ``s``: the best move is then unique. The smoothed value is convex and differentiable in (theta, b, lam), and its
derivatives are means over the mixture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxl2 import L2Path
from dualcore.problem.families.boxmoves import LinfPath
from dualcore.problem.losses import Loss

__all__ = [
    "GroupResponse",
    "L2Response",
    "LinfResponse",
    "Means",
    "MixedRows",
    "Mixture",
    "NumberResponse",
    "Response",
    "Way",
    "part_of",
    "tangents",
]

# Distance of tangents of a curved loss, in roots of the width, and how many there are at most.
_APART, _MOST_TANGENTS = 2.0, 500
# Shares below this are none.
_NEGLIGIBLE = 1e-7
# Moves of a row that are undecided at a time, of up to so many.
_UNDECIDED, _TOGETHER = 30.0, 120
# A slope of this size is none.
_LEAST = 1e-100

Places = npt.NDArray[np.intp]


class MixedRows(NamedTuple):
    """Means over the near-optimal moves of every row of a block; shape (n_rows,) unless it is said.

    ``moment``, ``slope`` and ``-spent`` are the derivatives of ``value`` in (coef, intercept, multiplier).
    """

    value: FloatArray  # the smoothed h
    slope: FloatArray  # of h in the score of the moved row: the derivative in the intercept
    moment: FloatArray  # (n_rows, n_features): slope times moved row, the derivative in the coefficients
    spent: FloatArray  # transport; with l2 as a rounded norm has it, which is larger
    cost: FloatArray  # transport, exactly
    offset: FloatArray  # mean of the tangents' values at a signal of zero: minus the conjugate of the loss


class Means(NamedTuple):
    """Weighted sums over the sizes of slopes: of size times move (n_rows, n_features), and of costs, rounded."""

    moves: FloatArray
    spent: FloatArray


class Response(ABC):
    """The moves of the rows of a block that push the score one way, at several sizes of slopes.

    ``earned`` (n_rows, n_sizes): what they earn, smoothed. Moves have the sign with which features move.
    """

    earned: FloatArray

    @abstractmethod
    def means(self, weights: FloatArray) -> Means:
        """Return sums with weights of shape (n_rows, n_sizes)."""

    @abstractmethod
    def cost(self, weights: FloatArray) -> FloatArray:
        """Return weighted sums of the exact costs, shape (n_rows,)."""


def part_of(count: int) -> float:
    """Return the width of each of so many moves of a row, in widths: few of them are undecided at a time."""
    return 1.0 / max(min(count, _TOGETHER) / _UNDECIDED, 1.0)


def soft_parts(gain: FloatArray, width: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Return ``width log(1 + exp(gain / width))`` and its derivative."""
    far = np.exp(-np.abs(gain / width))
    return np.maximum(gain, 0.0) + width * np.log1p(far), np.where(gain >= 0.0, 1.0, far) / (1.0 + far)


class NumberResponse(Response):
    """With l1 every feature moves to its limit, with a logistic share of its own.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    coef, prices : ndarray of shape (n_features,)
    limits : tuple of two ndarrays of shape (n_features,)
        Where a limit or a price is infinite the feature does not move that way.
    push : float
    sizes : ndarray of shape (n_sizes,)
    multiplier, width : float
    """

    def __init__(
        self,
        X: FloatArray,
        coef: FloatArray,
        limits: tuple[FloatArray, FloatArray],
        prices: FloatArray,
        push: float,
        sizes: FloatArray,
        multiplier: float,
        width: float,
    ) -> None:
        low, high = limits
        can = [np.isfinite(prices) & np.isfinite(limit) & (low < high) for limit in (high, low)]
        self.columns = np.flatnonzero(can[0] | can[1])
        at = self.columns
        room = np.where(can[0] & can[1], high - low, 1.0)[at]
        self.soft = width * part_of(at.size) / room
        self.sizes, self.X, self.price, self.m = sizes, X, prices[at], X.shape[1]
        self.earned, self.parts = np.zeros((len(X), sizes.size)), []
        # Rows that rounding put outside the limits have less than no room, a little.
        for sign, limit, may in zip((1.0, -1.0), (high, low), can, strict=True):
            gain = sign * push * sizes[:, None] * coef[at] - multiplier * self.price
            part, share = soft_parts(gain, self.soft)
            part, share = part * may[at], share * may[at]
            wall = np.where(may[at], limit[at], 0.0)
            self.earned += sign * (part @ wall - X[:, at] @ part.T)
            self.parts.append((sign, wall, share))

    def _room(self, sign: float, wall: FloatArray) -> FloatArray:
        return sign * (wall - self.X[:, self.columns])

    def means(self, weights: FloatArray) -> Means:
        moves = np.zeros(self.X.shape)
        for sign, wall, share in self.parts:
            moves[:, self.columns] += sign * self._room(sign, wall) * ((weights * self.sizes) @ share)
        return Means(moves, self.cost(weights))

    def cost(self, weights: FloatArray) -> FloatArray:
        out = np.zeros(len(weights))
        for sign, wall, share in self.parts:
            paid = share * self.price
            # By node: what all rows pay is linear in the row.
            out += sign * np.vecdot(weights, paid @ wall - self.X[:, self.columns] @ paid.T)
        return out


class PathResponse(Response):
    """Moves along the path of a norm: ``min(cap_j, key d_j)``, with one key for every row and size.

    Parameters
    ----------
    path : Path
        In order.
    signs : ndarray of shape (n_columns,)
        How far a unit of cost moves a feature, with its sign.
    columns : ndarray of shape (n_columns,)
        The features that move.
    sizes : ndarray of shape (n_sizes,)
    multiplier : float
    n_features : int
    """

    direction: FloatArray | float = 0.0
    shares: FloatArray | float = 1.0

    def __init__(
        self,
        path: L2Path | LinfPath,
        signs: FloatArray,
        columns: Places,
        sizes: FloatArray,
        multiplier: float,
        n_features: int,
    ) -> None:
        self.path, self.signs, self.columns, self.sizes = path, signs, columns, sizes
        self.multiplier, self.m = multiplier, n_features
        self.keys, self.costs, self.spent, self.earned = (np.zeros((path.caps.shape[0], sizes.size)) for _ in range(4))
        if columns.size:
            path.order()
            self.answer()

    @abstractmethod
    def answer(self) -> None:
        """Find keys, costs and what is earned."""

    def means(self, weights: FloatArray) -> Means:
        rows, k = np.nonzero((weights > 0.0) & (self.keys > 0.0))
        moves = np.multiply.outer(self.keys[rows, k], np.broadcast_to(self.direction, self.columns.size))
        np.minimum(self.path.caps[rows], moves, out=moves)
        first = np.append(0, np.cumsum(np.bincount(rows, minlength=len(weights))))
        weight = weights[rows, k] * self.sizes[k]
        each = sp.csr_array((weight, np.arange(rows.size), first), shape=(len(weights), rows.size))
        out = np.zeros((len(weights), self.m))
        out[:, self.columns] = (each @ moves) * (self.signs * self.shares)
        return Means(out, np.vecdot(weights, self.spent))

    def cost(self, weights: FloatArray) -> FloatArray:
        return np.asarray(np.vecdot(weights, self.costs))


class L2Response(PathResponse):
    """With l2, where the norm is rounded by ``eps``."""

    def __init__(self, eps: float, *given: object) -> None:
        self.eps = eps
        super().__init__(*given)  # type: ignore[arg-type]

    def answer(self) -> None:
        path, lam = self.path, self.multiplier
        if not isinstance(path, L2Path):
            raise TypeError("moves of l2 follow a path of l2")
        path.T += self.eps**2
        self.direction, (n, count) = path.slopes, self.keys.shape
        rows, size = np.repeat(np.arange(n), count), np.tile(np.maximum(self.sizes, _LEAST), n)
        key, _, _ = path.stationary(rows, lam / size)
        gain, length = path.at_key(rows, key)
        flat = key, length, np.sqrt(np.maximum(length**2 - self.eps**2, 0.0))
        self.keys, self.spent, self.costs = (part.reshape(n, count) for part in flat)
        self.earned = self.sizes * gain.reshape(n, count) - lam * self.spent


class LinfResponse(PathResponse):
    """With linf, where a step ``s`` costs ``s + kappa s^2 / (2 lam)`` in units of the multiplier."""

    direction = 1.0

    def __init__(self, stiff: float, shares: FloatArray, *given: object) -> None:
        self.stiff, self.shares = stiff, shares
        super().__init__(*given)  # type: ignore[arg-type]

    def answer(self) -> None:
        path, lam, n = self.path, self.multiplier, len(self.keys)
        if not isinstance(path, LinfPath):
            raise TypeError("moves of linf follow a path of linf")
        m, count = path.m, self.sizes.size
        width = path.met.shape[1], path.free.shape[1], path.gained.shape[1]
        rows, size = np.repeat(np.arange(n), count), np.tile(self.sizes, n)
        tables = [table.reshape(-1) for table in (path.met, path.free, path.gained)]

        def entry(table: int, at: Places) -> FloatArray:
            return np.asarray(tables[table].take(rows * width[table] + at))

        # Behind limit j the step pays while size free_j > lam + stiff step: by bisection over the limits.
        first, last = np.zeros(rows.size, dtype=np.intp), np.full(rows.size, m + 1)
        for _ in range(m.bit_length() + 1):
            middle = np.minimum((first + last) // 2, m)
            pays = (first < last) & (size * entry(1, middle) - self.stiff * entry(0, middle) > lam)
            last = np.where(pays, last, np.minimum(last, middle))
            first = np.where(pays, middle + 1, first)
        below = np.maximum(first - 1, 0)
        free, near = entry(1, below), entry(0, below)
        step = np.minimum((size * free - lam) / self.stiff, entry(0, np.minimum(first, m)))
        step = np.where(first > 0, np.maximum(step, near), 0.0)
        gain = entry(2, below) + step * free
        self.keys = self.spent = self.costs = step.reshape(n, count)
        self.earned = (size * gain - lam * step - 0.5 * self.stiff * step * step).reshape(n, count)


class GroupResponse(Response):
    """Every group of categories changes on its own; the categories that it changes to have shares.

    A group of category ``z`` earns ``nu log(1 + sum_l exp((a (theta_l - theta_z) - lam c) / nu))``, ``nu`` a width.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    coef : ndarray of shape (n_features,)
    groups : list of (columns, is_dropped, cost)
    numbers : Response
        The moves of the other columns.
    push : float
    sizes : ndarray of shape (n_sizes,)
    multiplier, width : float
    """

    def __init__(
        self,
        X: FloatArray,
        coef: FloatArray,
        groups: list[tuple[Places, bool, float]],
        numbers: Response,
        push: float,
        sizes: FloatArray,
        multiplier: float,
        width: float,
    ) -> None:
        self.sizes, self.numbers, self.groups, self.X = sizes, numbers, groups, X
        self.earned, self.shares = numbers.earned.copy(), []
        self.soft = width * part_of(len(groups))
        table = np.zeros((X.shape[1], sizes.size))
        for columns, dropped, cost in groups:
            gains = push * np.multiply.outer(sizes, np.append(coef[columns], [0.0] if dropped else []))
            top = gains.max(axis=1, keepdims=True)
            to = np.exp((gains - top) / self.soft)
            total = to.sum(axis=1, keepdims=True)
            to /= total
            part, share = soft_parts(top + self.soft * np.log(total) - gains - multiplier * cost, self.soft)
            table[columns] = part[:, : columns.size].T
            if dropped:
                table[columns] -= part[:, -1]
                self.earned += part[:, -1]
            self.shares.append((to, share))
        self.earned += X @ table

    def _here(self, columns: Places, dropped: bool) -> FloatArray:
        here = self.X[:, columns]
        return np.column_stack([here, 1.0 - here.sum(axis=1)]) if dropped else here

    def means(self, weights: FloatArray) -> Means:
        moves, _ = self.numbers.means(weights)
        used = np.flatnonzero(np.abs(weights).max(axis=0, initial=0.0) > 0.0)
        steep = weights[:, used] * self.sizes[used]
        for (columns, dropped, _), (to, share) in zip(self.groups, self.shares, strict=True):
            to, share = to[used], share[used]
            here = self._here(columns, dropped)
            change = (steep * (here @ share.T)) @ to - here * (steep @ share)
            moves[:, columns] += change[:, : columns.size]
        return Means(moves, self.cost(weights))

    def cost(self, weights: FloatArray) -> FloatArray:
        table, constant = np.zeros((self.X.shape[1], self.sizes.size)), np.zeros(self.sizes.size)
        for (columns, dropped, cost), (_, share) in zip(self.groups, self.shares, strict=True):
            table[columns] = cost * share[:, : columns.size].T
            if dropped:
                table[columns] -= cost * share[:, -1]
                constant += cost * share[:, -1]
        return np.asarray(self.numbers.cost(weights) + np.vecdot(weights, self.X @ table + constant))


def tangents(loss: Loss, width: float) -> tuple[FloatArray, FloatArray]:
    """Return slopes and values at zero of tangents of a loss, near enough to each other for a smoothed maximum.

    Of a quadratic, tangents whose slopes are two roots of the width apart have a smoothed maximum without visible
    ripples; slopes are placed in the metric of the curvature.

    Examples
    --------
    >>> from dualcore.problem.losses import Hinge
    >>> tangents(Hinge(), 0.1)
    (array([ 0., -1.]), array([0., 1.]))
    """
    if loss.pieces is not None:
        slopes, offsets = np.array(loss.pieces, dtype=np.float64).T
        return slopes, offsets
    t = np.sinh(np.linspace(-9.0, 9.0, 4001))
    slopes = np.maximum.accumulate(np.clip(loss.slope(t), *loss.slope_range))
    length = np.append(0.0, np.cumsum(np.sqrt(np.diff(slopes) * np.diff(t))))
    count = int(np.clip(np.ceil(length[-1] / (_APART * np.sqrt(width))), 4, _MOST_TANGENTS))
    distinct = np.append(True, np.diff(length) > 0.0)
    t = np.interp(np.linspace(0.0, length[-1], count + 1), length[distinct], t[distinct])
    value, slope = loss.value_and_slope(t)
    slope = np.clip(slope, *loss.slope_range)
    return slope, value - slope * t


class Way(NamedTuple):
    """One way for all rows of a block: the score is pushed along ``push``, at slopes of some sizes, for a price.

    ``signal`` (n_rows,) is the score in the direction of the push, less the target; ``offsets`` (n_sizes,) are the
    tangents' values at zero.
    """

    push: float
    sizes: FloatArray
    offsets: FloatArray
    signal: FloatArray
    price: float
    multiplier: float
    response: Response


class Mixture:
    """The smoothed maximum over the ways and tangents of the rows of a block.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    ways : list of Way
    width : float
    """

    def __init__(self, X: FloatArray, ways: list[Way], width: float) -> None:
        self.X, self.ways = X, ways
        tables = [
            way.signal[:, None] * way.sizes + way.offsets + way.response.earned - way.price * way.multiplier
            for way in ways
        ]
        best = np.max([table.max(axis=1) for table in tables], axis=0)
        self.shares = [np.exp((table - best[:, None]) / width) for table in tables]
        total = np.sum([share.sum(axis=1) for share in self.shares], axis=0)
        for share in self.shares:
            share /= total[:, None]
            share[share < _NEGLIGIBLE] = 0.0  # it is far below what the sums round away
        self.value: FloatArray = best + width * np.log(total)

    def rows(self) -> MixedRows:
        """Return the means over the mixture."""
        (slope, spent, cost, offset), moment = np.zeros((4, len(self.X))), np.zeros(self.X.shape)
        for way, share in zip(self.ways, self.shares, strict=True):
            found, label = way.response.means(share), way.price * share.sum(axis=1)
            slope += way.push * (share @ way.sizes)
            offset += share @ way.offsets
            spent += found.spent + label
            cost += way.response.cost(share) + label
            moment += way.push * found.moves
        moment += slope[:, None] * self.X
        return MixedRows(self.value, slope, moment, spent, cost, offset)
