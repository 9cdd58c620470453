r"""Moves of rows within their limits, and the derivatives of moves in the model: one class for each norm.

With ``u_j = |theta_j| / price_j`` a row whose loss has the slope ``a`` gains

    G(c, lam) = max over 0 <= v <= cap of  c.v - lam ||v|| ,    c = a u ,

``v`` in units in which every feature costs one. Every feasible ``v`` yields a valid bound, so errors here slow the
method down but do not make a bound false. The second derivatives in (c, lam) are

    G'' = sum_j D_j (e_j - t_j e_lam) (e_j - t_j e_lam)' + rho (F, -phi) (F, -phi)' .
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxpath import running_sums

__all__ = ["Diagonal", "Follow", "L1Moves", "L2Moves", "LinfMoves", "Moved", "RowMoves"]

Rows = npt.NDArray[np.intp]

# Largest number of Newton steps for a position with l2, their relative tolerance, and the share of rows that must have
# converged before the others are continued without them.
_MOST_TANGENTS, _STILL, _FEW = 20, 2e-5, 0.3
# Limit on positions, whose squares must be finite in single precision.
_FARTHEST = 1e18
# Smaller slopes of the loss count as zero.
_FLAT = 1e-100
# Steps that differ by less, relatively, count as equal.
_SAME_STEP = 1e-9


class Moved(NamedTuple):
    """Moves of k rows: ``move`` (k, c), and (k,) each: ``cost``, ``gain`` (``u.v``), ``position`` on the row's path."""

    move: FloatArray
    cost: FloatArray
    gain: FloatArray
    position: FloatArray

    def some(self, which: Rows) -> Moved:
        """Return those of some rows."""
        return Moved(*(part[which] for part in self))


class Diagonal(NamedTuple):
    """Sums over rows, weighted by shares, of second derivatives of ``G``: ``own`` (c,) in ``u_j`` and ``u_j``.

    ``across`` (c,): in ``u_j`` and the multiplier; ``last``: in the multiplier twice.
    """

    own: FloatArray
    across: FloatArray | float = 0.0
    last: float = 0.0


class Follow(NamedTuple):
    """``G''`` of k rows: ``single`` D, ``shift`` t and ``together`` F (k, c), ``fixed`` phi and ``weight`` rho (k,)."""

    single: FloatArray
    shift: FloatArray
    together: FloatArray
    fixed: FloatArray
    weight: FloatArray


class RowMoves(ABC):
    """Moves of the rows of a block in one direction of the score.

    Parameters
    ----------
    sizes : ndarray of shape (c,)
        ``u_j = |theta_j| / price_j``.
    caps : ndarray of shape (n_rows, c)
        Distance of each feature to its limit, in units of cost.
    lam : float
        The multiplier.
    """

    def __init__(self, sizes: FloatArray, caps: FloatArray, lam: float) -> None:
        self.sizes, self.caps, self.lam = sizes, caps, lam

    @abstractmethod
    def diagonal(self, slope: FloatArray, found: Moved, row: Rows, share: FloatArray) -> Diagonal:
        """Return the part of the second derivatives that is diagonal in the features."""


class L2Moves(RowMoves):
    """Feature ``j`` moves by ``min(cap_j, position u_j)``, and the cost is ``lam / a`` times the position.

    The best move is zero or goes at least to the first limit; the unmoved row is a separate branch.
    """

    def __init__(self, sizes: FloatArray, caps: FloatArray, lam: float) -> None:
        super().__init__(sizes, caps, lam)
        most = np.vecdot(caps, caps)
        # Scaled by the largest u_j and the largest distance, so that squares of positions do not overflow in single
        # precision.
        self._size, width = float(sizes.max(initial=0.0)) or 1.0, sqrt(float(most.max(initial=0.0))) or 1.0
        self._unit, self._most = width / self._size, most / width**2
        with np.errstate(over="ignore"):
            ratio = caps / np.where(sizes > 0.0, sizes * self._unit, np.inf)
        self._ratio = np.minimum(ratio, _FARTHEST, out=ratio).astype(np.float32)
        self._squares = np.square(sizes / self._size).astype(np.float32)
        #: how fast the first part of a move changes the score, per unit of cost
        self.steepest = self._size * np.sqrt(_product(self._ratio > 0.0, self._squares))

    def pays(self, slope: FloatArray, row: Rows) -> npt.NDArray[np.bool_]:
        """Whether moves of rows pay at given slopes of the loss."""
        return slope * self.steepest[row] > self.lam

    def longest(self) -> FloatArray:
        """Return the gain of the longest moves, shape (n_rows,)."""
        return np.asarray(self.caps @ self.sizes)

    def respond(self, slope: FloatArray, row: Rows, near: FloatArray, *, at_limits: bool = False) -> Moved:
        """Return the best moves of some rows at slopes of the loss; ``near`` are starting values of their positions.

        With ``at_limits`` rows move to their first limit at least.
        """
        position = self._first_limit(row) if at_limits else np.zeros(slope.size)
        at = np.flatnonzero(self.pays(slope, row))
        if at.size:
            position[at] = np.maximum(self._positions(slope[at], row[at], near[at]), position[at])
        move = np.multiply.outer(position, self.sizes)
        np.minimum(move, self.caps[row], out=move)
        return Moved(move, np.sqrt(np.vecdot(move, move)), move @ self.sizes, position)

    def _first_limit(self, row: Rows) -> FloatArray:
        """Return the smallest positive position at which a feature meets its limit, 0 if there is none."""
        ratio = self._ratio[row]
        least = np.where(ratio > 0.0, ratio, np.float32(np.inf)).min(axis=1, initial=np.inf).astype(np.float64)
        return np.where(np.isfinite(least), least * self._unit, 0.0)

    def _in_units(self, position: FloatArray) -> npt.NDArray[np.float32]:
        """Return positions in the units of ``_ratio``, shape (k, 1)."""
        return np.minimum(position / self._unit, _FARTHEST).astype(np.float32)[:, None]

    def _positions(self, slope: FloatArray, row: Rows, near: FloatArray) -> FloatArray:
        """Solve ``sum_j min(cap_j, position u_j)^2 = (lam / a)^2 position^2``, by Newton's method in ``position^2``.

        The left side is concave in ``position^2``. Single precision suffices, because the value is stationary in the
        position: an error has only a second-order effect.
        """
        bars = np.maximum(self.lam / (slope * self._size), 1.0 / _FARTHEST) ** 2
        last = np.minimum(self._most[row] / bars, _FARTHEST**2)
        square = np.minimum(np.square(np.minimum(near / self._unit, _FARTHEST)), last)
        square = np.where(square > 0.0, square, last)
        ratio = self._ratio if row.size == len(self._ratio) else self._ratio[row]
        out, left = np.empty(slope.size), np.arange(slope.size)
        for _ in range(_MOST_TANGENTS):
            position = np.sqrt(square).astype(np.float32)[:, None]
            free = _product(ratio > position, self._squares)
            held = np.minimum(ratio, position)
            held *= held
            met = np.maximum(_product(held, self._squares) - square * free, 0.0)
            # A Newton step from below the root ends above it.
            following = np.where(free < (1.0 - 1e-6) * bars, met / np.maximum(bars - free, 1e-6 * bars), last)
            following = np.minimum(following, last)
            done = np.abs(following - square) <= _STILL * square
            out[left] = np.sqrt(following)
            square = following
            if np.count_nonzero(done) > _FEW * done.size:
                rest = np.flatnonzero(~done)
                if not rest.size:
                    break
                left, ratio, bars, square, last = left[rest], ratio[rest], bars[rest], square[rest], last[rest]
        return self._unit * out

    def growth(self, slope: FloatArray, found: Moved, row: Rows) -> FloatArray:
        """Return the derivative of the gain in the slope, ``u' G_cc u``, shape (k,)."""
        free = _product(self._ratio[row] > self._in_units(found.position), self._squares) * self._size**2
        excess = self.lam**2 - slope * slope * free
        moves = (found.position > 0.0) & (excess > 0.0) & (slope > _FLAT)
        return np.divide(found.position * free * self.lam**2, slope * excess, out=np.zeros(slope.size), where=moves)

    def diagonal(self, slope: FloatArray, found: Moved, row: Rows, share: FloatArray) -> Diagonal:
        follow = self.follow(slope, found, row)
        shifted = follow.single * follow.shift
        last = float(share @ np.vecdot(shifted, follow.shift))
        return Diagonal((share * slope * slope) @ follow.single, -((share * slope) @ shifted), last)

    def follow(self, slope: FloatArray, found: Moved, row: Rows) -> Follow:
        """Return the second derivatives of ``G`` for some rows."""
        free = self._ratio[row] > self._in_units(found.position * (1.0 + 1e-6))
        free &= self.sizes > 0.0
        steep = free * self.sizes * slope[:, None]
        square = np.vecdot(steep, steep)
        with np.errstate(over="ignore"):
            k = np.divide(found.position, slope, out=np.zeros(slope.size), where=slope > _FLAT)
        k = np.minimum(k, 1.0 / _FLAT)  # the curvature is unbounded where a coefficient vanishes
        excess = np.maximum(self.lam**2 - square, max(1e-12 * self.lam**2, _FLAT))
        return Follow(np.where(free, k[:, None], 0.0), steep / self.lam, steep, square / self.lam, k / excess)


def _product(table: npt.NDArray[Any], vector: npt.NDArray[np.float32]) -> FloatArray:
    """Return a product computed in single precision.

    OpenBLAS reads beyond the end of its buffers, so numbers that are not used may set floating-point flags.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(table.astype(np.float32, copy=False) @ vector, dtype=np.float64)


class _RoundedMoves(RowMoves):
    """Moves for norms with which the risk has a kink at a coefficient of zero.

    ``u_j`` is replaced by ``s(u) = sqrt(u^2 + w^2) - w``, and a feature moves by ``s'(u)`` times the distance that it
    would move otherwise.

    Parameters
    ----------
    width : float
        ``w``; the others as of `RowMoves`.
    """

    def __init__(self, sizes: FloatArray, caps: FloatArray, lam: float, width: float) -> None:
        longer = np.sqrt(sizes * sizes + width * width)
        super().__init__(longer - width, caps, lam)
        self._share, self._curvature = sizes / longer, width * width / longer**3


class L1Moves(_RoundedMoves):
    """``G = sum_j cap_j (a u_j - lam)_+``: at slope ``a`` feature ``j`` moves to its limit if ``a u_j > lam``.

    The positive parts are smoothed, ``nu log(1 + exp(. / nu))``, and between two nodes replaced by their chords. At a
    node a feature moves by the logistic function of ``(a u_j - lam) / nu`` times the distance to its limit. Between
    nodes the move is the mean of those at both nodes, weighted by slope, so that the gradient is that of the chord. The
    position of a move is that of its slope among the nodes.

    Parameters
    ----------
    soft : ndarray of shape (c,)
        ``nu``.
    nodes : ndarray of shape (K,)
        Slopes; the other parameters are those of `LinfMoves`.
    """

    def __init__(
        self, sizes: FloatArray, caps: FloatArray, lam: float, width: float, soft: FloatArray, nodes: FloatArray
    ) -> None:
        super().__init__(sizes, caps, lam, width)
        pays = np.multiply.outer(nodes, self.sizes) - lam
        far = np.exp(-np.abs(pays) / soft)
        self._nodes, self._logistic = nodes, np.where(pays >= 0.0, 1.0, far) / (1.0 + far)
        self._stiff = far / (1.0 + far) ** 2 / soft
        #: G of every row at every node, shape (n_rows, K)
        self.earned = caps @ (np.maximum(pays, 0.0) + soft * np.log1p(far)).T

    def _at_nodes(self, position: FloatArray) -> Any:
        """Return the interpolation weights of the nodes at some positions, a sparse matrix of shape (k, K)."""
        number, last = np.arange(position.size), self._nodes.size - 1
        low = position.astype(np.intp)
        entries = np.concatenate([1.0 - (position - low), position - low])
        place = np.tile(number, 2), np.concatenate([low, np.minimum(low + 1, last)])
        return sp.csr_array((entries, place), shape=(position.size, last + 1))

    def at(self, position: FloatArray, slope: FloatArray, row: Rows) -> tuple[Moved, FloatArray]:
        """Return the moves of some rows at positions, and minus the derivative of ``G`` in the multiplier, (k,)."""
        by_node, costs = self._at_nodes(position), self.caps @ self._logistic.T
        per_slope = np.divide(1.0, slope, out=np.zeros(slope.size), where=slope > _FLAT)
        steep = sp.diags_array(per_slope) @ by_node @ sp.diags_array(self._nodes)
        move = steep @ (self._logistic * self._share)
        move *= self.caps[row]
        cost, fall = (np.asarray(part.multiply(costs[row]).sum(axis=1)) for part in (steep, by_node))
        return Moved(move, cost, move @ self.sizes, position), fall

    def diagonal(self, slope: FloatArray, found: Moved, row: Rows, share: FloatArray) -> Diagonal:
        stiff = (self._at_nodes(found.position).T @ (share[:, None] * self.caps[row])) * self._stiff
        own = self._nodes**2 @ stiff * self._share**2
        edge = np.divide(self._curvature, self._share, out=np.zeros_like(self._curvature), where=self._share > 0.0)
        own += (share * slope) @ found.move * edge
        return Diagonal(own, -(self._nodes @ stiff) * self._share, float(stiff.sum()))

    def drift(self, found: Moved, row: Rows) -> FloatArray:
        """Return the derivatives of ``u.v`` in ``u`` and the multiplier, less those at a fixed move, (k, c + 1)."""
        low = np.minimum(found.position.astype(np.intp), self._nodes.size - 2)
        widths = np.maximum(np.diff(self._nodes), 1e-12)[:, None]
        gained = np.diff(self._logistic * self._nodes[:, None], axis=0) / widths * self._share
        paid = self.caps @ (np.diff(self._logistic, axis=0) / widths).T
        return np.column_stack([self.caps[row] * gained[low] - found.move, -paid[row, low]])


class LinfMoves(_RoundedMoves):
    """All features move by a common step: ``v_j = min(cap_j, step)``. The best step is one of the ``cap_j``.

    The steps do not depend on the model, so every step is a branch.
    """

    def steps(self) -> tuple[FloatArray, FloatArray]:
        """Return the steps of every row and their gains, shape (n_rows, c + 1), the first 0; NaN where they repeat."""
        n, c = self.caps.shape
        order = np.argsort(self.caps, axis=1)
        step = np.zeros((n, c + 1))
        step[:, 1:] = np.take_along_axis(self.caps, order, 1)
        steep = self.sizes[order]
        gain = running_sums(step[:, 1:] * steep) + step * running_sums(steep[:, ::-1])[:, ::-1]
        repeated = step[:, 1:] <= step[:, :-1] * (1.0 + _SAME_STEP)
        step[:, 1:][repeated] = np.nan
        return step, gain

    def up_to(self, step: FloatArray, gain: FloatArray, row: Rows) -> Moved:
        """Return the moves of rows by steps whose gains are known; a row may occur several times."""
        move = np.minimum(self.caps[row], step[:, None])
        move *= self._share
        return Moved(move, step, gain, step)

    def diagonal(self, slope: FloatArray, found: Moved, row: Rows, share: FloatArray) -> Diagonal:
        return Diagonal((share * slope) @ np.minimum(self.caps[row], found.cost[:, None]) * self._curvature)
