r"""The worst case of a row as a mixture of its near-optimal moves, by a smoothed maximum.

At an optimum many rows have several best moves. The optimality conditions hold for a mixture of them, not for one
chosen move a row. Let the tangents of the loss have slopes ``q_k``, and let ``G_k`` be what the best move earns at a
slope of size ``|q_k|``. Then

    h = max_k  q_k t - L*(q_k) + G_k ,          smoothed:  mu log sum_k exp(. / mu) .

``G_k`` is smoothed as well: with l1 and categories features move on their own at a fixed slope, each with a logistic
share; with linf levels have shares; with l2 the move is unique, unless staying is as good. The smoothed value is convex
and differentiable in (theta, b, lam), and its derivatives are means over the mixture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxl2 import L2Path
from dualcore.problem.families.boxmoves import LinfPath
from dualcore.problem.losses import Loss

__all__ = ["GroupResponse", "L2Response", "LinfResponse", "MixedRows", "NumberResponse", "Response", "mix", "tangents"]

# Distance of tangents of a curved loss, in roots of the width, and how many there are at most.
_APART, _MOST_TANGENTS = 2.0, 400
# Shares below this are none.
_NEGLIGIBLE = 1e-9


class MixedRows(NamedTuple):
    """Means over the near-optimal moves of every row of a block; shape (n_rows,) unless it is said.

    ``moment``, ``slope`` and ``-spent`` are the derivatives of ``value`` in (coef, intercept, multiplier).
    """

    value: FloatArray  # the smoothed h, at least h less the error of tangents
    slope: FloatArray  # of h in the score of the moved row: the derivative in the intercept
    moment: FloatArray  # (n_rows, n_features): slope times moved row, the derivative in the coefficients
    spent: FloatArray  # transport; of l2 as a rounded norm has it
    cost: FloatArray  # transport, exactly
    offset: FloatArray  # mean of the tangents' values at a signal of zero: minus the conjugate of the loss


class Response(ABC):
    """The moves of the rows of a block that push the score one way, at several sizes of slopes."""

    earned: FloatArray  # (n_rows, n_sizes)

    @abstractmethod
    def add(self, weights: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Add ``sum_k weights_k |q_k| move_k`` to ``moment``; return ``sum_k weights_k cost_k``, rounded and exact."""


def soft_parts(gain: FloatArray, width: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Return ``width log(1 + exp(gain / width))`` and its derivative."""
    far = np.exp(-np.abs(gain / width))
    return np.maximum(gain, 0.0) + width * np.log1p(far), np.where(gain >= 0.0, 1.0, far) / (1.0 + far)


class NumberResponse(Response):
    """With l1 every feature moves to its wall, with a logistic share of its own.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    coef, low, high, prices : ndarray of shape (n_features,)
        Features that cannot move, or have no wall, have ``low = high = 0`` and ``prices = inf``.
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
        moves = [np.isfinite(prices) & np.isfinite(limit) for limit in (high, low)]
        room = np.where(moves[0] & moves[1], high - low, 1.0)
        soft = width / (room * max(int((moves[0] | moves[1]).sum()), 1))
        price = np.where(np.isfinite(prices), prices, 0.0)
        self.sizes, self.earned, self._parts = sizes, np.zeros((len(X), sizes.size)), []
        for sign, wall, may in zip((1.0, -1.0), (high, low), moves, strict=True):
            caps = np.where(may, sign * (np.where(may, wall, 0.0) - X), 0.0)
            np.maximum(caps, 0.0, out=caps)
            gain = sign * push * sizes[:, None] * coef - multiplier * price
            part, share = soft_parts(gain, soft)
            self.earned += caps @ part.T
            self._parts.append((sign, caps, share, price))

    def add(self, weights: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        spent = np.zeros(len(weights))
        for sign, caps, share, price in self._parts:
            moment += sign * caps * ((weights * self.sizes) @ share)
            spent += (caps * (weights @ share)) @ price
        return spent, spent


class L2Response(Response):
    """With l2 the move at a slope is unique where the norm is rounded to ``sqrt(||v||^2 + eps^2) - eps``."""

    def __init__(
        self,
        path: L2Path,
        signs: FloatArray,
        columns: npt.NDArray[np.intp],
        sizes: FloatArray,
        lam: float,
        eps: float,
    ) -> None:
        self.path, self.signs, self.columns, self.sizes = path, signs, columns, sizes
        n = path.caps.shape[0]
        self.keys, self.costs, self.rounded, self.earned = (np.zeros((n, sizes.size)) for _ in range(4))
        if not columns.size:
            return
        path.order()
        path.T += eps * eps
        rows = np.arange(n)
        for k, size in enumerate(sizes.tolist()):
            if size == 0.0:
                continue
            key, _, _ = path.stationary(rows, lam / size)
            gain, length = path.at_key(rows, key)
            self.keys[:, k], self.rounded[:, k] = key, length - eps
            self.costs[:, k] = np.sqrt(np.maximum(length * length - eps * eps, 0.0))
            self.earned[:, k] = size * gain - lam * self.rounded[:, k]

    def add(self, weights: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        for k, size in enumerate(self.sizes.tolist()):
            rows = np.flatnonzero(weights[:, k] * self.keys[:, k] > 0.0)
            if rows.size:
                moves = np.minimum(self.path.caps[rows], self.keys[rows, k][:, None] * self.path.slopes)
                moment[np.ix_(rows, self.columns)] += size * weights[rows, k][:, None] * moves * self.signs
        return np.vecdot(weights, self.rounded), np.vecdot(weights, self.costs)


class LinfResponse(Response):
    """With linf all features move up to a step; the steps at which features meet their limits have shares."""

    def __init__(
        self,
        path: LinfPath,
        signs: FloatArray,
        columns: npt.NDArray[np.intp],
        sizes: FloatArray,
        lam: float,
        mu: float,
    ) -> None:
        self.path, self.signs, self.columns, self.sizes, self.lam, self.mu = path, signs, columns, sizes, lam, mu
        self.earned = np.zeros((path.caps.shape[0], sizes.size))
        if not columns.size:
            return
        path.order()
        self.steps = path.met[:, : path.m + 1]
        self.gains = path.gained[:, : path.m + 1] + self.steps * path.free[:, : path.m + 1]
        for k, size in enumerate(sizes.tolist()):
            value = size * self.gains - lam * self.steps
            best = value.max(axis=1)
            self.earned[:, k] = best + mu * np.log(np.exp((value - best[:, None]) / mu).sum(axis=1))

    def add(self, weights: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        spent = np.zeros(len(weights))
        if not self.columns.size:
            return spent, spent
        for k, size in enumerate(self.sizes.tolist()):
            rows = np.flatnonzero(weights[:, k] > _NEGLIGIBLE)
            if not rows.size:
                continue
            steps, mass = self.steps[rows], weights[rows, k]
            share = np.exp((size * self.gains[rows] - self.lam * steps - self.earned[rows, k][:, None]) / self.mu)
            share *= (mass / share.sum(axis=1))[:, None]
            part = share * steps
            spent[rows] += part.sum(axis=1)
            # A feature goes to the step where that is nearer than its limit, else to the limit.
            beyond = np.cumsum(share[:, ::-1], axis=1)[:, ::-1][:, 1:]
            before = np.cumsum(part, axis=1)[:, :-1]
            sorted_moves = before + steps[:, 1:] * beyond
            moves = np.empty(sorted_moves.shape)
            np.put_along_axis(moves, self.path.sorted_columns[rows], sorted_moves, axis=1)
            moment[np.ix_(rows, self.columns)] += size * moves * self.signs
        return spent, spent


class GroupResponse(Response):
    """Every group of categories changes on its own; the categories that it changes to have shares.

    A group of category ``z`` earns ``nu log(1 + sum_l exp((a (theta_l - theta_z) - lam c) / nu))``, ``nu`` the width.

    Parameters
    ----------
    groups : list of (columns, is_dropped, cost)
    numbers : Response
        The moves of the other columns.
    """

    def __init__(
        self,
        X: FloatArray,
        coef: FloatArray,
        groups: list[tuple[npt.NDArray[np.intp], bool, float]],
        numbers: Response,
        push: float,
        sizes: FloatArray,
        lam: float,
        width: float,
    ) -> None:
        self.sizes, self.numbers, self.groups = sizes, numbers, groups
        self.earned, self._shares = numbers.earned.copy(), []
        nu = width / max(len(groups), 1)
        for columns, dropped, cost in groups:
            gains = push * np.multiply.outer(sizes, np.append(coef[columns], [0.0] if dropped else []))
            # exp(gain / nu), the largest as 1, and what staying and the cost are worth beside it: shares of any change.
            top = gains.max(axis=1, keepdims=True)
            to = np.exp((gains - top) / nu)
            to /= to.sum(axis=1, keepdims=True)
            best = top + nu * np.log(np.exp((gains - top) / nu).sum(axis=1, keepdims=True))
            part, share = soft_parts(best - gains - lam * cost, nu)
            here = X[:, columns]
            if dropped:
                here = np.column_stack([here, 1.0 - here.sum(axis=1)])
            self.earned += here @ part.T
            self._shares.append((here, to, share))

    def add(self, weights: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        spent, _ = self.numbers.add(weights, moment)
        for (columns, _, cost), (here, to, share) in zip(self.groups, self._shares, strict=True):
            leaves = here @ share.T
            spent += cost * np.vecdot(weights, leaves)
            steep = weights * self.sizes
            change = (steep * leaves) @ to - here * (steep @ share)
            moment[:, columns] += change[:, : columns.size]
        return spent, spent


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


class _Way(NamedTuple):
    rows: npt.NDArray[np.intp]
    columns: slice  # of the table of values
    push: float
    sizes: FloatArray
    offsets: FloatArray
    price: float
    response: Response


def mix(
    ways: Iterator[tuple[npt.NDArray[np.intp], FloatArray, FloatArray, float, FloatArray, float, Response]],
    X: FloatArray,
    multiplier: float,
    width: float,
) -> MixedRows:
    """Return the mixture over ways ``(rows, signal, offsets, push, sizes, price, response)``.

    ``signal`` is the score in the direction of the push, less the target; ``offsets`` the tangents' values at zero.
    """
    n, kept, tables = len(X), list[_Way](), list[FloatArray]()
    first = 0
    for rows, signal, offsets, push, sizes, price, response in ways:
        table = np.full((n, sizes.size), -np.inf)
        table[rows] = signal[:, None] * sizes + offsets + response.earned - price * multiplier
        tables.append(table)
        kept.append(_Way(rows, slice(first, first + sizes.size), push, sizes, offsets, price, response))
        first += sizes.size
    values = np.hstack(tables)
    best = values.max(axis=1)
    shares = np.exp((values - best[:, None]) / width)
    total = shares.sum(axis=1)
    shares /= total[:, None]
    (slope, spent, cost, offset), moment = np.zeros((4, n)), np.zeros(X.shape)
    for rows, columns, push, sizes, offsets, price, response in kept:
        weights, part = shares[rows, columns], np.zeros((rows.size, X.shape[1]))
        slope[rows] += push * (weights @ sizes)
        offset[rows] += weights @ offsets
        label = price * weights.sum(axis=1)
        rounded, exact = response.add(weights, part)
        spent[rows] += rounded + label
        cost[rows] += exact + label
        moment[rows] += push * part
    moment += slope[:, None] * X
    return MixedRows(best + width * np.log(total), slope, moment, spent, cost, offset)
