r"""Branches of rows: local maxima of the dual loss over the moves of a row.

A move ``v`` raises the signal ``e`` of a row by ``u.v``; ``l`` is the loss as an increasing function of the signal, and
``G(c, lam) = max over v of c.v - lam ||v||``. The dual loss is

    h = max over v of  l(e + u.v) - lam ||v|| = max over slopes a of  a e - l*(a) + G(a u, lam) .

With linf a row moves until one of its features meets a limit, and every limit is a branch. With l2 and a polyhedral
loss every linear piece is one, with a fixed slope. With l2 and a curved loss a branch is a stationary point: a slope
``a`` that equals the slope of the loss after the best move at ``a``. Up to three are used: the unmoved row, the
smallest stationary slope above it, and the largest one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.solvers.moving.branches.curve import Curve
from dualcore.solvers.moving.branches.rowmoves import L1Moves, L2Moves, LinfMoves, Moved, RowMoves

__all__ = ["STIFF", "Branch", "Direction", "Finder", "L1Finder", "L2Finder", "LinfFinder"]

Rows = npt.NDArray[np.intp]

# A stationary slope is a root of a - l'(e + gain(a)), whose derivative is called stiff. Below STIFF two branches are
# about to meet. Newton's steps use at least the second value, so that they do not step over a root.
STIFF, _SAFE = 0.05, 0.3
# Between STIFF and STIFF plus this, the weight of a branch that is not the best of its row decreases to zero.
_FADING = 0.25
# Largest number of steps for a stationary slope, the number of fixed-point steps before Newton's, and the tolerance.
_MOST_STEPS, _PLAIN, _NEAR = 20, 2, 3e-6
# Stationary slopes that differ by less, relative to the largest slope, count as one branch.
_SAME = 1e-7
# Branches this many widths below the best of their row are left out.
_NEGLIGIBLE = 16.0
# With l1: the sum over features of the widths of smoothed positive parts, in widths of the maximum. At most the second
# number of features is expected to be within these widths at a time.
_SOFT, _TOGETHER = 30.0, 120


class Direction(NamedTuple):
    """A direction of the score for the rows of a block; the signals ``e`` (n,) increase with ``push`` times the score.

    The loss is ``L(sign e)`` and ``price`` the cost of a label flip, or 0. ``stays``: whether the unmoved row is a
    branch of this direction; for residuals it belongs to the first of two.
    """

    number: int
    push: FloatArray
    e: FloatArray
    sign: float
    price: float
    stays: bool


class Branch(NamedTuple):
    """Branches of k rows in one direction: slope of the loss and signal after the move, value of the dual loss, cost.

    ``fade`` multiplies the weight of a branch that is not the best of its row. It falls to 0 before the branch
    vanishes, which keeps the smoothed maximum continuous.
    """

    direction: Direction
    row: Rows
    slope: FloatArray
    signal: FloatArray
    value: FloatArray
    cost: FloatArray
    found: Moved | None = None
    moves: RowMoves | None = None
    fade: FloatArray | float = 1.0


class Finder(ABC):
    """Finds branches, a block at a time.

    Parameters
    ----------
    problem : Problem
    n_rows : int
    widths : ndarray of shape (c,)
        Widths of the box along the movable features, in units of cost.
    """

    #: whether branches are lost where two of them meet, so that the smoothed maximum jumps
    loses_branches = False
    #: the first width, relative to the risk
    first_width = 0.1

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        self.problem, self.loss, self.n_rows = problem, problem.loss, n_rows
        #: the width of the smoothed maximum
        self.mu = 1.0
        #: whether moves are needed, or values alone
        self.moves_rows = True
        #: whether only branches near those of the last sums are searched for
        self.keeps = False

    def along(self, direction: Direction, e: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the loss and its slope as functions of the signal in a direction."""
        value, slope = self.loss.value_and_slope(direction.sign * e)
        return value, direction.sign * slope

    @abstractmethod
    def find(self, direction: Direction, part: slice, u: FloatArray, caps: FloatArray, lam: float) -> Iterator[Branch]:
        """Yield the branches of the rows of a block in a direction; ``u`` (c,) is ``|theta_j| / price_j``."""

    def at_rest(self, direction: Direction, row: Rows, slope: FloatArray, value: FloatArray, lam: float) -> Branch:
        """Return the branches of unmoved rows."""
        value = value - lam * direction.price if direction.price else value
        return Branch(direction, row, slope, direction.e[row], value, np.full(row.size, direction.price))

    def begin(self) -> None:  # noqa: B027  (only finders with a state need it)
        """Called before the sums over all rows."""

    def end(self) -> None:  # noqa: B027
        """Called after the sums over all rows."""

    def place(self, sizes: FloatArray, lam: float) -> bool:
        """Set the nodes, which stay fixed during a minimisation, for a point; return whether there are nodes."""
        return False

    def rounding(self, n_features: int) -> float:
        """Return the width by which ``|theta_j|`` is rounded at zero; it lowers the risk by about ``mu``."""
        return self.mu / (self.problem.radius * max(n_features, 1))


class L1Finder(Finder):
    """Branches with l1: linear pieces of the loss, or intervals of its slopes, as features decouple at a fixed slope.

    On interval ``k`` the worst case of row ``i`` is ``l_k(e + D_ik) - C_ik`` (`Curve`), with ``G`` replaced by its
    chord in the slope. The chord is exact unless a feature begins to pay within the interval. At such a slope ``G`` has
    a convex kink, so it is no local maximum, and with nodes on both sides of it the inexact intervals contain no
    branch. Nodes are fixed during a minimisation, and placed anew at its result.
    """

    first_width = 0.3

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        super().__init__(problem, n_rows, widths)
        #: widths of the smoothed positive parts (c,), in widths of the maximum
        self.soft = _SOFT / (widths * min(max(widths.size, 1), _TOGETHER))
        signs = (-1.0,) if problem.is_classification else (1.0, -1.0)
        self.curves = {} if self.loss.pieces else {sign: Curve(problem, sign) for sign in signs}

    def place(self, sizes: FloatArray, lam: float) -> bool:
        for curve in self.curves.values():
            curve.cut_around(sizes, lam, self.soft * self.mu, self.mu)
        return bool(self.curves)

    def find(self, direction: Direction, part: slice, u: FloatArray, caps: FloatArray, lam: float) -> Iterator[Branch]:
        curve = self.curves.get(direction.sign)
        nodes = curve.nodes if curve else np.array([direction.sign * slope for slope, _ in self.loss.pieces or ()])
        moves = L1Moves(u, caps, lam, self.rounding(u.size), self.soft * self.mu, nodes)
        if curve is None:
            offsets = np.array([offset for _, offset in self.loss.pieces or ()])
            # A piece of negative slope belongs to the other side of the residual, one of slope zero to the first.
            offsets = np.where((nodes > 0.0) | ((nodes == 0.0) & (direction.number == 0)), offsets, -np.inf)
            signal = np.repeat(direction.e[:, None], nodes.size, axis=1)
            value, slope = np.multiply.outer(direction.e, nodes) + offsets, np.broadcast_to(nodes, signal.shape)
            value += moves.earned
            begin, widths = nodes, np.ones(nodes.size)
        else:
            rate = np.diff(moves.earned, axis=1) / curve.widths
            signal, begin, widths = direction.e[:, None] + rate, curve.nodes[:-1], curve.widths
            value, slope = curve.at(signal)
            value += moves.earned[:, :-1] - begin * rate
        value -= lam * direction.price
        least = value.max(axis=1) - _NEGLIGIBLE * self.mu
        at = row, k = np.nonzero((value >= least[:, None]) & np.isfinite(value))
        position = k + np.clip((slope[at] - begin[k]) / widths[k], 0.0, 1.0)
        found, fall = moves.at(position, slope[at], row) if self.moves_rows else (None, np.zeros(row.size))
        yield Branch(direction, row, slope[at], signal[at], value[at], fall + direction.price, found, moves)


class LinfFinder(Finder):
    """Branches with linf: one for every limit of a row; those far below the best one are left out."""

    def find(self, direction: Direction, part: slice, u: FloatArray, caps: FloatArray, lam: float) -> Iterator[Branch]:
        moves = LinfMoves(u, caps, lam, self.rounding(u.size))
        step, gain = moves.steps()
        signal, costs = direction.e[:, None] + gain, lam * (step + direction.price)
        if self.loss.pieces is None:
            value, slope = self.along(direction, signal)
            yield self._near_best(direction, moves, value - costs, slope, signal, step, gain, first=1 - direction.stays)
            return
        for rate, offset in self.loss.pieces:
            rate = direction.sign * rate
            # A piece of slope zero belongs to the first direction, one of negative slope to the other side.
            if rate > 0.0:
                slope = np.broadcast_to(rate, signal.shape)
                yield self._near_best(direction, moves, rate * signal + offset - costs, slope, signal, step, gain)
            elif rate == 0.0 and direction.number == 0:
                every = np.arange(direction.e.size)
                yield self.at_rest(direction, every, np.zeros(every.size), np.full(every.size, offset), lam)

    def _near_best(
        self,
        direction: Direction,
        moves: LinfMoves,
        value: FloatArray,
        slope: FloatArray,
        signal: FloatArray,
        step: FloatArray,
        gain: FloatArray,
        first: int = 0,
    ) -> Branch:
        least = np.nanmax(value, axis=1) - _NEGLIGIBLE * self.mu
        with np.errstate(invalid="ignore"):
            row, k = np.nonzero(value[:, first:] >= least[:, None])
        at = row, k + first
        found = moves.up_to(step[at], gain[at], row) if self.moves_rows else None
        return Branch(direction, row, slope[at], signal[at], value[at], step[at] + direction.price, found, moves)


class L2Finder(Finder):
    """Branches with l2: linear pieces of the loss, or stationary slopes of a curved loss."""

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        super().__init__(problem, n_rows, widths)
        self.loses_branches = self.loss.pieces is None
        # By direction, shape (2, n): smallest and largest stationary slope, at the previous sums and at the current
        # ones.
        self._known: dict[int, FloatArray] = {}
        self._now: dict[int, FloatArray] | None = None
        # By direction and branch, shape (n,): positions of the previous moves, from which the next search starts.
        self._positions: dict[tuple[int, int], FloatArray] = {}

    def begin(self) -> None:
        if not self.keeps:
            self._known = {}
        self._now = {}

    def end(self) -> None:
        if self.keeps and self._now is not None:
            self._known = self._now
        self._now = None

    def find(self, direction: Direction, part: slice, u: FloatArray, caps: FloatArray, lam: float) -> Iterator[Branch]:
        find = self._maxima if self.loss.pieces is None else self._pieces
        return find(direction, L2Moves(u, caps, lam), part)

    def _last_positions(self, direction: Direction, number: int, part: slice) -> FloatArray:
        return self._positions.setdefault((direction.number, number), np.zeros(self.n_rows))[part]

    def _pieces(self, direction: Direction, moves: L2Moves, part: slice) -> Iterator[Branch]:
        """Yield two branches for every linear piece of positive slope: the unmoved row, and the best move."""
        every = np.arange(direction.e.size)
        for number, (slope, offset) in enumerate(self.loss.pieces or ()):
            rate = direction.sign * slope
            if rate < 0.0 or (rate == 0.0 and direction.number):
                continue
            rates = np.full(every.size, rate)
            yield self.at_rest(direction, every, rates, rate * direction.e + offset, moves.lam)
            if rate > 0.0:
                positions = self._last_positions(direction, number, part)
                found = moves.respond(rates, every, positions, at_limits=True)
                positions[:] = found.position
                signal = direction.e + found.gain
                yield self._moving(direction, every, rates, signal, rate * signal + offset, found, moves)

    def _maxima(self, direction: Direction, moves: L2Moves, part: slice) -> Iterator[Branch]:
        """Yield the local maxima of a curved loss."""
        every, same = np.arange(direction.e.size), _SAME * self.loss.lipschitz
        value, slope = self.along(direction, direction.e)
        low, high = np.maximum(slope, 0.0), np.maximum(self.along(direction, direction.e + moves.longest())[1], 0.0)
        known = self._known.get(direction.number)
        if known is not None:
            low, high = known[:, part]
        climbs = (low > 0.0) & moves.pays(low, every)
        rest = every[~climbs & direction.stays]
        yield self.at_rest(direction, rest, slope[rest], value[rest], moves.lam)
        low = np.where(climbs, low, np.maximum(slope, 0.0))
        row = every[climbs]
        if row.size:
            low[row], found = self._stationary(direction, moves, part, row, low[row], 0, sure=known is not None)
            yield self._curved(direction, moves, row, found)
        new, row = low.copy(), np.flatnonzero(moves.pays(high, every) & (high > low + same))
        if row.size:
            new[row], found = self._stationary(direction, moves, part, row, high[row], 1, sure=known is not None)
            apart = (new[row] > low[row] + same) & moves.pays(new[row], row)
            new[row[~apart]] = low[row[~apart]]
            yield self._curved(direction, moves, row[apart], found.some(np.flatnonzero(apart)))
        if self._now is not None:
            self._now.setdefault(direction.number, np.zeros((2, self.n_rows)))[:, part] = low, new

    def _stationary(
        self, direction: Direction, moves: L2Moves, part: slice, row: Rows, slope: FloatArray, k: int, *, sure: bool
    ) -> tuple[FloatArray, Moved]:
        """Return the stationary slopes of some rows and the moves at these slopes.

        Fixed-point steps are monotone. Newton's steps may step over a root; from then on the root is bracketed.
        ``k`` is 0 for the smallest stationary slope, 1 for the largest. ``sure``: the starting slopes are near a root.
        """
        e, positions = direction.e[row], self._last_positions(direction, k, part)
        slope, left = slope.copy(), np.arange(row.size)
        # The bracket of each root; out of range while an end is not known.
        none, most = -1.0, self.loss.lipschitz
        low, high = np.full(row.size, none), np.full(row.size, 2.0 * most)
        out = found = moves.respond(slope, row, positions[row])
        for count in range(_MOST_STEPS):
            here, signal = slope[left], e[left] + found.gain
            off = here - np.maximum(self.along(direction, signal)[1], 0.0)
            far = np.abs(off) > _NEAR * self.loss.lipschitz
            if not far.any():
                break
            low[left], high[left] = np.where(off < 0.0, here, low[left]), np.where(off > 0.0, here, high[left])
            if sure or count >= _PLAIN:
                stiff = 1.0 - self.loss.curvature(direction.sign * signal) * moves.growth(here, found, row[left])
                off = off / np.maximum(stiff, STIFF if sure else _SAFE)
            following = np.clip(here - off, 0.0, most)
            lies_between = (low[left] > none) & (high[left] < 2.0 * most)
            outside = lies_between & ((following <= low[left]) | (following >= high[left]))
            following = np.where(outside, 0.5 * (low[left] + high[left]), following)
            left = left[far]
            slope[left] = following[far]
            found = moves.respond(slope[left], row[left], out.position[left])
            for whole, new in zip(out, found, strict=True):
                whole[left] = new
        positions[row] = out.position
        return slope, out

    def _curved(self, direction: Direction, moves: L2Moves, row: Rows, found: Moved) -> Branch:
        signal = direction.e[row] + found.gain
        value, slope = self.along(direction, signal)
        curvature = self.loss.curvature(direction.sign * signal)
        stiff = 1.0 - curvature * moves.growth(np.maximum(slope, 0.0), found, row)
        fade = np.clip((stiff - STIFF) / _FADING, 0.0, 1.0)
        return self._moving(direction, row, slope, signal, value, found, moves)._replace(fade=fade)

    def _moving(
        self,
        direction: Direction,
        row: Rows,
        slope: FloatArray,
        signal: FloatArray,
        value: FloatArray,
        found: Moved,
        moves: L2Moves,
    ) -> Branch:
        cost = found.cost + direction.price
        return Branch(direction, row, slope, signal, value - moves.lam * cost, cost, found, moves)
