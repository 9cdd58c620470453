"""The hypercube programme: the exact cone program of a polyhedral loss on a box, with its n x m auxiliary variables.

For a piece ``q t + o`` of the loss and ``c = q y theta`` conic duality turns the inner supremum into

    sup_v  c . v - lam ||v||  =  min  z+ . (high - x) + z- . (x - low)   s. t.   ||c - z+ + z-||_* <= lam,  z >= 0 .

A curved loss is the supremum of its tangents, ``o = -L*(q)``. Its relative of the programme has a few tangents for
each row, and is solved again with those that the best moves at its solution touch, until they are the loss to within
the tolerance: a tangent is off by the square of how far the next one lies, so about a dozen rounds do.

A reference for small data: `BoxSolver` is far faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.problem.losses import Loss
from dualcore.solvers.coneprogram import Affine, ConeProgram

__all__ = ["hypercube_model"]

# Rounds of tangents; ten to fifteen are usual. No further round where the steps so far, each times the numbers in its
# programme, come to this: some seconds. Where rounding decides, Clarabel takes many steps and more rounds do not help.
_MOST_ROUNDS, _MOST_WORK = 30, 8e5
# Rounds without a better model after which rounding is to blame.
_PATIENCE = 4
# Pieces that lie this many times further below the solution than the loss lies above it are dropped.
_FAR = 100.0


class _LossPieces(NamedTuple):
    """Linear pieces of the loss, each for one row: ``slope * t + offset`` under a label that stays or flips."""

    rows: npt.NDArray[np.intp]
    slope: FloatArray
    offset: FloatArray
    flipped: npt.NDArray[np.bool_]

    def joined(self, other: _LossPieces) -> _LossPieces:
        rows = np.concatenate([self.rows, other.rows])
        slope, offset = np.concatenate([self.slope, other.slope]), np.concatenate([self.offset, other.offset])
        return _LossPieces(rows, slope, offset, np.concatenate([self.flipped, other.flipped]))

    def kept(self, keep: npt.NDArray[np.bool_ | np.intp]) -> _LossPieces:
        return _LossPieces(self.rows[keep], self.slope[keep], self.offset[keep], self.flipped[keep])


class _Small(NamedTuple):
    """The rows of the programme, those without mass left out."""

    X: FloatArray
    y: FloatArray
    masses: FloatArray


class _HypercubeModel(NamedTuple):
    """A model, what the programme promises for it, how far below that each piece lies, and how long Clarabel took."""

    coef: FloatArray
    intercept: float
    multiplier: float
    epigraph: FloatArray
    slack: FloatArray
    iterations: int


def hypercube_model(
    problem: Problem, box: BoxFamily, data: Data, tol: float, max_iter: int
) -> tuple[FloatArray, float, int]:
    """Return coefficients, intercept and iterations of Clarabel on the programme of the whole data."""
    kept = np.flatnonzero(data.masses)
    block = data.rows.take(kept)
    X = np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
    small = _Small(X, data.y[kept], data.masses[kept])
    pieces = _first_pieces(problem, kept.size)
    found = _solve(problem, box, small, pieces, tol, max_iter)
    best, least, count, work = found, np.inf, found.iterations, found.iterations * pieces.rows.size * X.shape[1]
    since = 0
    for _ in range(0 if problem.loss.pieces is not None else _MOST_ROUNDS):
        moves = box.moves(X, small.y, found.coef, found.intercept, found.multiplier)
        risk = problem.radius * found.multiplier + float(small.masses @ moves.upper) + problem.penalty(found.coef)
        since = 0 if risk < least * (1.0 - 0.01 * tol) else since + 1
        if risk < least:  # a round that Clarabel did not finish may be worse than those before
            best, least = found, risk
        short = moves.upper - found.epigraph
        missing = float(small.masses @ np.maximum(short, 0.0))
        if (
            missing <= 0.1 * tol * max(float(small.masses @ moves.upper), 1e-3)
            or work > _MOST_WORK
            or since > _PATIENCE
        ):
            break
        # A piece far below, compared with what is still missing, has had its day; the next rounds bring nearer ones.
        pieces = pieces.kept(found.slack <= _FAR * float(short.max()))
        rows = np.flatnonzero(short > 0.01 * tol * np.maximum(moves.upper, 1e-3))
        flipped = (moves.label != small.y)[rows] if problem.is_classification else np.zeros(rows.size, dtype=bool)
        slope = np.asarray(problem.loss.slope(moves.signal[rows]))
        pieces = pieces.joined(_LossPieces(rows, slope, _offsets(problem.loss, slope), flipped))
        found = _solve(problem, box, small, pieces, tol, max_iter)
        count += found.iterations
        work += found.iterations * pieces.rows.size * X.shape[1]
    return best.coef, best.intercept, count


def _first_pieces(problem: Problem, n: int) -> _LossPieces:
    """Return all pieces of a polyhedral loss, or tangents that hold a curved one at both ends and between."""
    loss = problem.loss
    slopes = np.linspace(*loss.slope_range, 3)
    lines = loss.pieces or tuple(zip(slopes, _offsets(loss, slopes), strict=True))
    flips = (False, True) if problem.is_classification and np.isfinite(problem.geometry.label_cost) else (False,)
    ways = [(slope, offset, flip) for slope, offset in lines for flip in flips]
    slope, offset, flipped = (np.repeat(np.array(column), n) for column in zip(*ways, strict=True))
    return _LossPieces(np.tile(np.arange(n), len(ways)), slope, offset, flipped.astype(bool))


def _offsets(loss: Loss, slope: FloatArray) -> FloatArray:
    return -np.asarray(loss.conjugate(slope))


def _solve(
    problem: Problem, box: BoxFamily, small: _Small, pieces: _LossPieces, tol: float, max_iter: int
) -> _HypercubeModel:
    X, y, n = small.X, small.y, small.y.size
    program = ConeProgram()
    coef, level, lam = program.variables(X.shape[1]), program.variables(1), program.variables(1)
    epigraph = program.variables(n)
    program.minimise(epigraph.mapped(small.masses) + problem.radius * lam)
    program.nonnegative(lam - box.floor())
    if not problem.fit_intercept:
        program.zero(level)
    if problem.ridge > 0.0:
        program.minimise_squares(np.full(X.shape[1], problem.ridge), coef)
    score = coef.mapped(X) + level.spread(n)
    spare: list[tuple[npt.NDArray[np.intp], Affine]] = []
    for steep in (True, False):  # where the loss is flat no move pays
        at = np.flatnonzero((pieces.slope != 0.0) == steep)
        if at.size == 0:
            continue
        rows, slope, offset, flipped = pieces.kept(at)
        choose = sp.csr_array((np.ones(at.size), (np.arange(at.size), rows)), shape=(at.size, n))
        push = slope * np.where(flipped, -y[rows], y[rows]) if problem.is_classification else slope
        value = push * score.mapped(choose) + offset - (0.0 if problem.is_classification else slope * y[rows])
        if flipped.any():
            value = value - lam.mapped(np.where(flipped, problem.geometry.label_cost, 0.0)[:, None])
        if steep:
            value = value + _escape(program, problem, box, X[rows], push, coef, lam)
        spare.append((at, epigraph.mapped(choose) - value))
        program.nonnegative(spare[-1][1])
    found = program.solve(tol=tol, loose_tol=1e3 * tol, max_iter=max_iter)
    multiplier = max(float(found.value(lam)[0]), box.kappa(found.value(coef)))
    slack = np.empty(pieces.rows.size)
    for at, room in spare:
        slack[at] = found.value(room)
    return _HypercubeModel(
        found.value(coef), float(found.value(level)[0]), multiplier, found.value(epigraph), slack, found.iterations
    )


def _escape(
    program: ConeProgram, problem: Problem, box: BoxFamily, X: FloatArray, push: FloatArray, coef: Affine, lam: Affine
) -> Affine:
    """Return what moving earns each row, by the dual of the move."""
    n, m = X.shape
    low, high = box.support.spread(m)
    moment = coef.mapped(sp.kron(push[:, None], sp.eye_array(m), format="csr"))
    earned = Affine(np.zeros(n))
    for room, sign in ((high - X, -1.0), (X - low, 1.0)):
        finite = np.isfinite(room.ravel())
        if not finite.any():
            continue
        z = program.variables(int(finite.sum()))
        program.nonnegative(z)
        place = np.flatnonzero(finite)
        moment = moment + z.mapped(
            sp.csr_array((np.full(place.size, sign), (place, np.arange(place.size))), (n * m, place.size))
        )
        rows = sp.csr_array((room.ravel()[place], (place // m, np.arange(place.size))), (n, place.size))
        earned = earned + z.mapped(rows)
    prices = problem.geometry.norm.weights
    if prices is not None:
        moment = np.tile(1.0 / prices, n) * moment  # a feature of infinite price never moves
    _DUAL_ROWS[type(problem.geometry.norm)](program, lam, moment, n, m)
    return earned


def _largest_rows(program: ConeProgram, lam: Affine, moment: Affine, n: int, m: int) -> None:
    program.nonnegative(lam.spread(n * m) - moment)
    program.nonnegative(lam.spread(n * m) + moment)


def _long_rows(program: ConeProgram, lam: Affine, moment: Affine, n: int, m: int) -> None:
    for row in range(n):
        picked = sp.csr_array((np.ones(m), (np.arange(m), row * m + np.arange(m))), (m, n * m))
        program.second_order(lam, moment.mapped(picked))


def _summed_rows(program: ConeProgram, lam: Affine, moment: Affine, n: int, m: int) -> None:
    size = program.variables(n * m)
    program.nonnegative(size - moment)
    program.nonnegative(size + moment)
    program.nonnegative(lam.spread(n) - size.mapped(sp.kron(sp.eye_array(n), np.ones((1, m)), format="csr")))


_DUAL_ROWS: dict[type[Norm], Callable[[ConeProgram, Affine, Affine, int, int], None]] = {
    L1Norm: _largest_rows,
    L2Norm: _long_rows,
    LinfNorm: _summed_rows,
}
