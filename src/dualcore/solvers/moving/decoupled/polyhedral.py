r"""The optimum, and a bound on it, where the loss has a few slopes and the moves of a row decouple.

Box supports with l1 and categories, with the hinge and the polyhedral losses of residuals: with the variables of
the module `moves` every row is a maximum of a few linear functions, exactly, and the problem is a linear programme,
with a ridge a quadratic one (module `pieceprogram`). The multipliers of a row's pieces are shares of slopes, those of
the limits shares of moves: together a distribution of moved rows, and its plane (`dualcore.certificates.plane`) bounds
the risk of every model from below.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.plane import Plane, PlaneBound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.problem.geometry import L1Norm, L2Norm
from dualcore.solvers.constant import best_constant
from dualcore.solvers.moving.decoupled.moves import DecoupledMoves, Entries
from dualcore.solvers.moving.decoupled.pieceprogram import PiecePath, PieceProgram
from dualcore.solvers.moving.result import NewtonResult

__all__ = ["can_use_pieces", "run_pieces"]

# More variables than these make too large a Newton matrix.
_MOST_VARIABLES = 3000
_MOST_STEPS, _PATIENCE = 100, 12
# A bound is looked for where the products of slacks and multipliers are this share of the gap that is asked for.
_NEAR = 0.5
# A risk of this share of that of no model at all is nothing but rounding.
_NOTHING = 1e-14
# The first multiplier, as a share of the largest that can pay.
_MULTIPLIER = 0.3


def can_decouple(problem: Problem, data: Data) -> bool:
    """Whether features move on their own at a fixed slope: l1 or categories, no feature with one wall alone.

    Rows that rounding put outside the walls are left to the planes.
    """
    family = problem.family
    if not isinstance(family, BoxFamily) or problem.radius == 0.0 or not data.rows.in_memory:
        return False
    m, norm = data.rows.m, problem.geometry.norm
    low, high = family.support.spread(m)
    movable = np.isfinite(family.prices(m))
    open_sides = np.isinf(low) & np.isinf(high) & movable
    alone = isinstance(family, CategoriesFamily) and not (isinstance(norm, L2Norm) and open_sides.any())
    if not (isinstance(norm, L1Norm) or alone):
        return False
    if (movable & (np.isfinite(low) != np.isfinite(high))).any():
        return False
    walled = movable & np.isfinite(high - low)
    return all(
        bool((block[:, walled] >= low[walled]).all() and (block[:, walled] <= high[walled]).all())
        for _, block in data.rows.dense_blocks()
    )


def can_use_pieces(problem: Problem, data: Data) -> bool:
    """Whether moves decouple, the loss is polyhedral, and the programme has few variables."""
    pieces = problem.loss.pieces
    if pieces is None or not can_decouple(problem, data):
        return False
    sizes = np.unique(np.abs([slope for slope, _ in pieces if slope]))
    return (2 * sizes.size + 1) * data.rows.m <= _MOST_VARIABLES


class _PolyhedralProgram:
    """The programme of a problem: coefficients, ends of groups, moves, sizes of open features, intercept, multiplier.

    Parameters
    ----------
    problem : Problem
    family : BoxFamily
    data : Data
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.m, self.w = data.rows.m, data.masses
        self.below = PlaneBound(problem, family, data)
        self.slopes = np.array([slope for slope, _ in problem.loss.pieces or ()])
        sizes = np.unique(np.abs(self.slopes[self.slopes != 0.0]))
        self.sizes = sizes
        self.moves = DecoupledMoves(family, self.m)
        open_at = np.flatnonzero(self.below.open)
        self.open, self.rates = open_at, problem.loss.lipschitz / family.prices(self.m)[open_at]
        self.is_summed = open_at.size > 0 and not isinstance(problem.geometry.norm, L1Norm)
        #: first variable of the moves at every slope, and of the sizes of open features
        n_moves, n_ends = self.moves.costs.size, 2 * self.moves.n_groups
        self.firsts = [self.m + n_ends + size * n_moves for size in range(sizes.size)]
        self.bounds_at = self.m + n_ends + sizes.size * n_moves
        self.d = self.bounds_at + (open_at.size if self.is_summed else 0) + 2
        self.program = self._program()

    def _program(self) -> PieceProgram:
        problem, data, m, d = self.problem, self.data, self.m, self.d
        forms, self.kinds = [], []
        flips = [0.0, problem.geometry.label_cost] if problem.family.flips else [0.0]
        for price in flips:
            for size in range(self.sizes.size):
                for push in (1, -1):
                    forms.append(self._form(size, push, price))
                    self.kinds.append((size, push, price))
        pieces = problem.loss.pieces or ()
        which, offsets, y = [], [], data.y
        for price in flips:
            for slope, offset in pieces:
                if slope == 0.0 and price:
                    continue  # a label that changes for nothing costs
                size = int(np.searchsorted(self.sizes, abs(slope)))
                first = (int(price > 0.0) * self.sizes.size + size) * 2
                if slope == 0.0:
                    which.append(np.full(y.size, -1))
                elif problem.is_classification:
                    falls = (y > 0.0) != (price > 0.0)  # a margin rises with the score where the label is +1
                    which.append(np.where(falls == (slope < 0.0), first + 1, first))
                else:
                    which.append(np.full(y.size, first + (slope < 0.0)))
                offsets.append(np.full(y.size, offset) - (0.0 if problem.is_classification else slope) * y)
        limits, least = self._limits()
        linear, square = np.zeros(d), np.zeros(d)
        linear[-1] = problem.radius
        square[:m] = problem.ridge
        free = np.ones(d, dtype=bool)
        low, high = self.family.support.spread(m)
        # A constant feature does nothing that an intercept does not.
        free[:m] = (low < high) | (not problem.fit_intercept)
        if problem.ridge == 0.0:
            free[:m] &= ~self.family.pinned(m, fit_intercept=problem.fit_intercept)
        free[-2] = problem.fit_intercept
        masses = np.maximum(self.w, 1e-9 / max(self.w.size, 1))  # a row without mass has multipliers all the same
        return PieceProgram(
            data.rows,
            masses,
            forms,
            np.column_stack(which).astype(np.intp),
            np.column_stack(offsets),
            linear,
            square,
            limits,
            least,
            free,
        )

    def _form(self, size: int, push: int, price: float) -> sp.csr_array:
        """Return the score times a slope, with what moves earn, less the price of another label."""
        slope, m, form = push * float(self.sizes[size]), self.m, Entries()
        form.add(np.arange(m), np.arange(m), slope)
        form.add(m, self.d - 2, slope)
        if price:
            form.add(m, self.d - 1, -price)
        reach = self.moves.reach[push].tocoo()
        form.add(reach.row, self.firsts[size] + reach.col, reach.data)
        return form.matrix((m + 1, self.d))

    def _limits(self) -> tuple[sp.csr_array, FloatArray]:
        limits, last = Entries(), self.d - 1
        limits.add(0, last, 1.0)
        row, moves = 1, self.moves
        number, real = np.arange(moves.column.size), moves.column >= 0
        for turn, side in enumerate((1.0, -1.0)):
            limits.add(row + number, moves.end + turn * moves.n_groups, side)
            limits.add(row + number[real], moves.column[real], -side)
            row += number.size
        gains, number = moves.gains.tocoo(), np.arange(moves.costs.size)
        for first, slope in zip(self.firsts, self.sizes.tolist(), strict=True):
            limits.add(row + number, first + number, 1.0)
            limits.add(row + gains.row, gains.col, -slope * gains.data)
            limits.add(row + number, last, moves.costs)
            limits.add(row + number.size + number, first + number, 1.0)
            row += 2 * number.size
        number = np.arange(self.open.size)
        for side in (1.0, -1.0):
            if not self.open.size:
                break
            limits.add(row + number, self.open, side * self.rates)
            limits.add(row + number, self.bounds_at + number if self.is_summed else last, 1.0)
            row += self.open.size
        if self.is_summed:
            limits.add(row, last, 1.0)
            limits.add(row, self.bounds_at + number, -1.0)
            row += 1
        least = np.zeros(row)
        least[0] = self.family.floor()
        return limits.matrix((row, self.d)), least

    def start(self, unit: float) -> FloatArray:
        """Return a point inside the limits."""
        v = np.zeros(self.d)
        lam = self.family.floor() + _MULTIPLIER * unit / self.problem.radius
        v[-1] = lam
        far = 0.1 * lam * self.moves.costs_of_groups / self.sizes.max()
        v[self.m : self.m + 2 * far.size] = np.append(far, -far)
        for first in self.firsts:
            v[first : first + self.moves.costs.size] = unit / (self.moves.longest * max(self.moves.n_items, 1))
        if self.is_summed:
            v[self.bounds_at : -2] = 0.5 * lam / self.open.size
        return v

    def value(self, v: FloatArray) -> float:
        """Return the risk of a point's model at its multiplier."""
        v = v.copy()
        moves = self.moves
        v[self.m : self.m + 2 * moves.n_groups] = moves.ends(v[: self.m])
        gain, price = moves.gains @ v[: self.m + 2 * moves.n_groups], v[-1] * moves.costs
        for first, slope in zip(self.firsts, self.sizes.tolist(), strict=True):
            v[first : first + price.size] = np.maximum(slope * gain - price, 0.0)
        highest = self.program.heights(v).max(axis=1)
        return float(self.problem.radius * v[-1] + self.w @ highest) + self.problem.penalty(v[: self.m])

    def bound(self, v: FloatArray, z: FloatArray, multipliers: FloatArray, upper: float) -> tuple[float, float]:
        """Return what the multipliers say of every model, and what rounding may have added."""
        problem, program, data = self.problem, self.program, self.data
        z = z * (self.w / z.sum(axis=1))[:, None]
        shares = program.by_form(z)
        moments = np.vstack([data.rows.transpose_dot(shares), shares.sum(axis=0)])
        moves, n_sizes = self.moves, self.sizes.size
        n_categories, n_moves = moves.column.size, moves.costs.size
        ends, rest = multipliers[1 : 1 + 2 * n_categories].reshape(2, -1), multipliers[1 + 2 * n_categories :]
        by_move = rest[: 2 * n_sizes * n_moves].reshape(n_sizes, 2, n_moves)[:, 0]  # not those of p >= 0
        capacity = [
            np.maximum(moment @ moves.reach[push], 0.0)
            for (_, push, _), moment in zip(self.kinds, moments.T, strict=True)
        ]
        total = np.zeros((n_sizes, n_moves))
        for (size, _, _), most in zip(self.kinds, capacity, strict=True):
            total[size] += most
        moved = np.clip(np.divide(by_move, total, out=np.zeros_like(total), where=total > 0.0), 0.0, 1.0)
        moment, steepness, spent = np.zeros(self.m + 1), 0.0, 0.0
        for (size, push, price), most, own in zip(self.kinds, capacity, moments.T, strict=True):
            slope, far = float(self.sizes[size]), moved[size] * most
            moment += slope * (push * own + np.append(moves.fold(moves.gains.T @ far, ends), 0.0))
            steepness += slope * float(own[-1])
            spent += float(moves.costs @ far) + price * float(own[-1])
        terms = z * program.offsets
        if not problem.is_classification and self.below.middle:
            signs = np.array([slope for slope, _ in problem.loss.pieces or ()])
            terms = terms + z * signs * self.below.middle
        low, high = self.family.support.spread(self.m)
        walls = np.where(np.isfinite(high - low), np.maximum(np.abs(low), np.abs(high)), 0.0)
        sizes = np.zeros(self.m)
        for _, block in data.rows.dense_blocks():
            sizes = np.maximum(sizes, np.abs(block).max(axis=0, initial=0.0))
        plane = Plane(
            float(terms.sum()),
            float(np.abs(z * program.offsets).sum()) + abs(self.below.middle) * steepness,
            moment,
            steepness,
            spent,
            np.maximum(walls, sizes),
            z.size,
        )
        return self.below.least(plane, v[: self.m], upper)


def run_pieces(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the gap to ``tol`` (relative), or go as far as this goes; a model at hand bounds the risk at first."""
    family = BoxFamily.of(problem.family)
    pieces = _PolyhedralProgram(problem, family, data)
    at_rest = np.zeros(data.y.size) if problem.is_classification else -data.y
    unit = float(data.masses @ problem.loss.value(at_rest))
    nothing = np.zeros(pieces.d)
    nothing[-1] = family.floor()
    if problem.fit_intercept:
        nothing[-2] = best_constant(problem.loss, data.y, data.masses)
    upper, best, lower, rounding = pieces.value(nothing), nothing, 0.0, 0.0  # losses are not negative
    history: list[tuple[float, float]] = []
    if not unit > 0.0 or not upper > _NOTHING * unit:
        return _result(pieces, best, upper, lower, rounding, history)
    path = PiecePath(pieces.program, pieces.start(unit), unit)
    least, idle = np.inf, 0
    for _ in range(_MOST_STEPS):
        path.advance()
        total = path.total
        v = path.point.v
        value = pieces.value(v)
        if value < upper:
            upper, best = value, v
        if total <= _NEAR * tol * abs(upper):
            known, off = pieces.bound(v, path.point.z, path.point.y, upper)
            if known - off > lower:
                lower, rounding = known - off, off
        history.append((lower, upper))
        if upper - lower <= 0.9 * tol * abs(upper) or upper <= _NOTHING * unit:
            break
        idle = 0 if total < 0.9 * least else idle + 1
        least = min(least, total)
        if idle == _PATIENCE or not np.isfinite(total):
            break
    return _result(pieces, best, upper, lower, rounding, history)


def _result(
    pieces: _PolyhedralProgram,
    best: FloatArray,
    upper: float,
    lower: float,
    rounding: float,
    history: list[tuple[float, float]],
) -> NewtonResult:
    return NewtonResult(best[: pieces.m], float(best[-2]), float(best[-1]), upper, lower, rounding, history)
