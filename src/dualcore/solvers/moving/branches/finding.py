r"""Branches of rows: the moves that earn more than all others near them.

Where the signal ``e`` of a row may gain ``u.v`` by a move ``v``, its dual loss is

    h = max over v of  l(e + u.v) - lam ||v|| = max over slopes a of  a e - l*(a) + G(a u, lam) .

With linf a row moves until one of its features meets a limit, and every limit is a branch. With l2 and a polyhedral
loss every linear piece is one, with a fixed slope. With l2 and a curved loss a branch is a stationary point: a slope
``a`` that the loss has after the best move at this slope. There are up to three: the row stays, the first stationary
point from there, and the last one.
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

# The least slope of the equation for a stationary slope: where it is less two branches are about to meet. From the
# second on a step with the derivative does not pass a solution for another one.
STIFF, _SAFE = 0.05, 0.3
# Over this range above it, a branch that is not the best of its row loses its weight gradually.
_FADING = 0.25
# Steps that find a stationary slope, the first of them without derivative, and the tolerance.
_MOST_STEPS, _PLAIN, _NEAR = 20, 2, 3e-6
# Slopes that differ by less, relative to the largest, are one branch.
_SAME = 1e-7
# Branches this many widths below the best of their row have no share.
_NEGLIGIBLE = 16.0
# Widths of the positive parts with l1, all features of a row together, in widths of the maximum; of many features no
# more than these are near their price together.
_SOFT, _TOGETHER = 30.0, 120


class Direction(NamedTuple):
    """A direction for the rows of a block: ``e`` rises along ``push``, the loss is ``L(sign e)``, and its price.

    ``stays``: whether a row that goes nowhere belongs to it; both sides of a residual stay alike.
    """

    number: int
    push: FloatArray
    e: FloatArray
    sign: float
    price: float
    stays: bool


class Branch(NamedTuple):
    """Branches of rows of a block in one direction: slope and signal after the move, its cost and its value.

    ``fade``: a factor of the weight where another branch of the row is better: it is 0 before a branch ceases to exist.
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
        Of the box along the features that move, in units of cost.
    """

    #: whether branches are lost where two of them meet, so that the smoothed maximum jumps
    loses_branches = False
    #: the first width, relative to the risk
    first_width = 0.1

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        self.problem, self.loss, self.n_rows = problem, problem.loss, n_rows
        #: the width of the smoothed maximum
        self.mu = 1.0
        #: whether moves are asked for, or values alone
        self.moves_rows = True
        #: whether only branches near those of the last sums are searched for
        self.keeps = False

    def along(self, direction: Direction, e: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the loss and its slope as functions of the signal in a direction."""
        value, slope = self.loss.value_and_slope(direction.sign * e)
        return value, direction.sign * slope

    @abstractmethod
    def find(self, direction: Direction, part: slice, u: FloatArray, caps: FloatArray, lam: float) -> Iterator[Branch]:
        """Yield the branches of the rows of a block in a direction; ``u``: sizes of coefficients per unit of cost."""

    def at_rest(self, direction: Direction, row: Rows, slope: FloatArray, value: FloatArray, lam: float) -> Branch:
        """Return the branches of rows that stay where they are."""
        value = value - lam * direction.price if direction.price else value
        return Branch(direction, row, slope, direction.e[row], value, np.full(row.size, direction.price))

    def begin(self) -> None:  # noqa: B027  (nothing to note where nothing is remembered)
        """Take note that sums over all rows begin."""

    def end(self) -> None:  # noqa: B027
        """Take note that they are complete."""

    def place(self, sizes: FloatArray, lam: float) -> bool:
        """Choose for a point what stays fixed while a minimiser is looked for; say whether there is such a thing."""
        return False

    def rounding(self, n_features: int) -> float:
        """Return how far sizes of coefficients are rounded at zero: that takes about a width from the risk."""
        return self.mu / (self.problem.radius * max(n_features, 1))


class L1Finder(Finder):
    """At a fixed slope features move on their own: linear pieces of the loss, or intervals of its slopes.

    On an interval the worst case of a row is a loss again, ``l_k(e + D_ik) - C_ik`` (`Curve`). Chords are exact but
    where a feature begins to pay. There the worst case is convex in the slope, so that its best slope is elsewhere:
    nodes on both sides of such slopes leave the error of chords to intervals without rows. Nodes are fixed during a
    minimisation, and placed anew at its result.
    """

    first_width = 0.3

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        super().__init__(problem, n_rows, widths)
        #: widths of the positive parts, in widths of the maximum
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
            # A falling piece belongs to the other side of the residual; a flat one to the first direction.
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
    """Every limit of a row is a branch; those far below the best one are left out."""

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
            # A flat piece belongs to the first direction, a falling one to the other side of the residual.
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
    """Linear pieces of the loss, or slopes that it has after the best moves at these slopes."""

    def __init__(self, problem: Problem, n_rows: int, widths: FloatArray) -> None:
        super().__init__(problem, n_rows, widths)
        self.loses_branches = self.loss.pieces is None
        # By direction, shape (2, n): slopes of the first and the last stationary point, of the last sums and of these.
        self._known: dict[int, FloatArray] = {}
        self._now: dict[int, FloatArray] | None = None
        # By direction and branch, shape (n,): positions of the last moves, from which the next search starts.
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
        """Yield two branches for every rising linear piece: the row stays, or makes its best move."""
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
        """Return stationary slopes, each that of the loss after the best move at this slope, and these moves.

        Fixed-point steps are monotone. Newton's steps may pass a solution; from then on the slope is bracketed.
        ``k``: 0 for the first stationary point, 1 for the last. ``sure``: the starting slopes are near a solution.
        """
        e, positions = direction.e[row], self._last_positions(direction, k, part)
        slope, left = slope.copy(), np.arange(row.size)
        # Slopes on either side of a solution; below 0 and above the largest where none is known.
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
