"""The hypercube programme: the exact cone program of a polyhedral loss on a box, with its n x m auxiliary variables.

For a piece ``q t + o`` of the loss and ``c = q y theta`` conic duality turns the inner supremum into

    sup_v  c . v - lam ||v||  =  min  z+ . (high - x) + z- . (x - low)   s. t.   ||c - z+ + z-||_* <= lam,  z >= 0 .

A reference for small data: a curved loss has no such description, and `BoxSolver` is far faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from dualcore.boxform import BoxForm
from dualcore.geometry import FloatArray, L1Norm, L2Norm, LinfNorm, Norm
from dualcore.problem import Data, Problem
from dualcore.solvers.cones import Affine, ConeProgram

__all__ = ["hypercube_model"]


def hypercube_model(
    problem: Problem, box: BoxForm, data: Data, tol: float, max_iter: int
) -> tuple[FloatArray, float, int]:
    """Return coefficients, intercept and iterations of Clarabel on the programme of the whole data."""
    kept = np.flatnonzero(data.masses)
    block = data.rows.take(kept)
    X = np.asarray(block.toarray() if sp.issparse(block) else block)
    y, w, m = data.y[kept], data.masses[kept], data.rows.m
    program = ConeProgram()
    coef, level, lam = program.variables(m), program.variables(1), program.variables(1)
    epigraph = program.variables(kept.size)
    program.minimise(epigraph.mapped(w) + problem.radius * lam)
    program.nonnegative(lam - box.floor())
    if not problem.fit_intercept:
        program.zero(level)
    if problem.ridge > 0.0:
        program.minimise_squares(np.full(m, problem.ridge), coef)
    score = coef.mapped(X) + level.spread(kept.size)
    gamma = problem.geometry.label_cost
    for slope, offset in problem.loss.pieces or ():
        ways = [(y, 0.0)] if problem.is_classification else [(np.ones(kept.size), 0.0)]
        if problem.is_classification and np.isfinite(gamma):
            ways.append((-y, gamma))
        for sign, price in ways:
            push = slope * sign
            value = push * score + offset - (0.0 if problem.is_classification else slope * y)
            if price:
                value = value - price * lam.spread(kept.size)
            if slope != 0.0:
                value = value + _escape(program, problem, box, X, push, coef, lam)
            program.nonnegative(epigraph - value)
    found = program.solve(tol=tol, loose_tol=1e3 * tol, max_iter=max_iter)
    return found.value(coef), float(found.value(level)[0]), found.iterations


def _escape(
    program: ConeProgram, problem: Problem, box: BoxForm, X: FloatArray, push: FloatArray, coef: Affine, lam: Affine
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
        pick = sp.csr_array((np.ones(m), (np.arange(m), np.arange(row * m, (row + 1) * m))), (m, n * m))
        program.second_order(lam, moment.mapped(pick))


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
