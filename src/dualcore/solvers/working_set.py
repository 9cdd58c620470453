"""Solve a large problem on a working set: the rows near a kink, which may change from one linear piece to another.

``h`` is a smooth part plus a maximum of linear pieces. A row far from kinks stays on its piece while the model changes
little. So the pieces of such rows add up to one linear function of the model, and the smooth parts of all rows are
approximated by one quadratic. The small problem consists of these two functions, the rows near a kink and the norm. It
is set up at the solution on a sample, then at its own solution, until its value agrees with the risk of all rows.

Without a smooth part it is a relaxation, because a piece never exceeds the maximum. With one it is a Newton step, which
is shortened until the risk falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates import DualPoint, column_sizes
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, as_rows
from dualcore.problem import Data, Problem
from dualcore.solvers.base import RawSolution
from dualcore.solvers.design import gram_with_ones
from dualcore.solvers.interior import FixedRows, InteriorPoint
from dualcore.solvers.rowmodel import Pieces

# One row in this many is in the sample whose solution is the first guess.
_SAMPLE = 8
# If a larger share of the rows is near a kink, solving the whole problem is as fast.
LARGEST_SHARE = 0.4
# Largest difference between the value of the small problem and the risk of all rows, as a share of the tolerance.
_MISS = 0.05


class _WorkingModel(NamedTuple):
    """A model with its signals ``z`` (n,), multiplier and risk; for every row the largest piece and its lead, (n,)."""

    coef: FloatArray
    intercept: float
    z: FloatArray
    lam: float
    value: float
    top: npt.NDArray[np.int64] | None
    lead: FloatArray | None


def worth_a_working_set(problem: Problem, data: Data) -> bool:
    """Whether there are many rows, and most of them can be fixed to a linear piece."""
    # With fewer rows the whole problem is fast enough; the first limit is for losses with a smooth part.
    many = 5000 if Pieces(problem, envelopes=False).smooth else 20000
    return has_working_set(problem) and data.rows.n >= many and working_share(data) < LARGEST_SHARE


def has_working_set(problem: Problem) -> bool:
    """Whether ``h`` is a smooth function plus a maximum of linear pieces."""
    pieces = Pieces(problem, envelopes=False)
    return pieces.smooth or pieces.polyhedral is not None


def working_share(data: Data, sample: int | None = None) -> float:
    """Return the share of rows that may change piece after a guess from ``sample`` rows, by default one in eight."""
    rows = data.rows.n / _SAMPLE if sample is None else sample
    # The margins of a sample's model have errors of about sqrt(m / rows of the sample). Rows within 1.5 times this
    # distance of a kink are active at first. Since the density of margins is of order one, their share is about this
    # distance.
    return min(1.0, float(1.5 * np.sqrt(data.rows.m / rows)))


def sample_rows(problem: Problem, data: Data) -> Data | None:
    """Return one row in eight, with normalised weights, for a first guess; None if a class would be missing."""
    chosen = np.sort(np.random.default_rng(0).permutation(data.rows.n)[: data.rows.n // _SAMPLE])
    y, masses = data.y[chosen], data.masses[chosen]
    total = float(masses.sum())
    if total <= 0.0:
        return None
    if problem.is_classification and not all((masses[y == label] > 0.0).any() for label in (-1.0, 1.0)):
        return None
    return Data(as_rows(data.rows.take(chosen)), y, masses / total)


def solve_working_set(
    problem: Problem,
    data: Data,
    tol: float,
    max_iter: int,
    guess: RawSolution,
    *,
    most: float = LARGEST_SHARE,
    sample: int | None = None,
    report: Callable[[float], None] | None = None,
) -> RawSolution | None:
    """Return the solution, or None if more than a share ``most`` of the rows is in the working set.

    ``sample`` is the number of rows that the guess was trained on; ``report`` is called with the risk of every model.
    """
    found, spent, history = guess, guess.iterations, guess.history
    pieces, scales = Pieces(problem, envelopes=False), column_sizes(data)
    here = _evaluate(problem, pieces, data, found.coef, found.intercept)
    active, share = np.zeros(data.rows.n, dtype=bool), working_share(data, sample)
    width = _width(here, share)
    last_gain = np.inf
    if pieces.smooth:
        # Largest decrease of the risk by the last Newton step. Newton's method converges quadratically: after a
        # decrease of order sqrt(tol) the next one is of order tol. Where the curvature of the loss jumps convergence is
        # slower, and steps continue until the decrease is below the tolerance.
        last_gain = _MISS * tol if problem.loss.curvature_jumps else 0.1 * np.sqrt(tol)
    # After 12 small problems the whole problem is solved instead.
    for _ in range(12):
        if here.lead is not None:
            active |= (here.lead <= width) & (data.masses > 0.0)
            if np.count_nonzero(active) > most * data.rows.n:
                return None
        small, part, rest = _small_problem(problem, pieces, data, here, active, scales)
        trial = InteriorPoint(small, part, fixed=rest).run(tol, max_iter)
        spent, history = spent + trial.iterations, history + trial.history
        if trial.stopped_early:  # with too few rows near kinks the small problem may be unbounded
            if share >= most:
                return None
            share = min(2.0 * share, most)
            width = _width(here, share)
            continue
        found, before = trial, here
        explained = found.history[-1].value
        here = _evaluate(problem, pieces, data, found.coef, found.intercept)
        if report is not None:
            report(here.value)
        size = max(abs(here.value), 1e-300)
        miss, gain = (abs(value - explained) / size for value in (here.value, before.value))
        if miss <= _MISS * tol and gain <= last_gain:
            dual = _dual(problem, pieces, found, before, here, active)
            return replace(found, dual=dual, iterations=spent, history=history)
        if pieces.smooth:
            shorter = _shorten(problem, pieces, data, before, here)
            if shorter is None:
                return None
            here = shorter
        if before.top is not None and here.top is not None:
            active |= (before.top != here.top) & (data.masses > 0.0)
    return None


def _width(here: _WorkingModel, share: float) -> float:
    """Return the ``share`` quantile of the leads."""
    if here.lead is None:
        return 0.0
    nearest = min(int(share * here.lead.size), here.lead.size - 1)
    return float(np.partition(here.lead, nearest)[nearest])


def _evaluate(problem: Problem, pieces: Pieces, data: Data, coef: FloatArray, intercept: float) -> _WorkingModel:
    z, size = problem.signal(coef, intercept, data), problem.size(coef)
    value, lam = problem.form.minimise(z, data.weights, size)
    now = pieces(z)
    if not now:
        return _WorkingModel(coef, intercept, z, lam, value + problem.penalty(coef), None, None)
    heights = np.stack([piece.value - piece.price * lam for piece in now])
    top = heights.argmax(axis=0)
    heights.partition(len(now) - 2, axis=0)
    return _WorkingModel(coef, intercept, z, lam, value + problem.penalty(coef), top, heights[-1] - heights[-2])


def _shorten(
    problem: Problem, pieces: Pieces, data: Data, before: _WorkingModel, after: _WorkingModel
) -> _WorkingModel | None:
    """Return ``after`` if its risk is lower, else a point between the two with lower risk; None if there is none."""
    step, here = 1.0, after
    while here.value > before.value:
        step *= 0.5
        if step < 1e-3:
            return None
        coef = before.coef + step * (after.coef - before.coef)
        intercept = before.intercept + step * (after.intercept - before.intercept)
        here = _evaluate(problem, pieces, data, coef, intercept)
    return here


def _small_problem(
    problem: Problem, pieces: Pieces, data: Data, here: _WorkingModel, active: npt.NDArray[np.bool_], scales: FloatArray
) -> tuple[Problem, Data, FixedRows]:
    """Return the active rows, and the terms of the others: their pieces, and the quadratic of all smooth parts."""
    z, masses, fixed = here.z, data.masses, ~active
    slope, value, multiplier = np.zeros_like(z), 0.0, 0.0
    now = pieces(z)
    if here.top is not None:
        for k, piece in enumerate(now):
            held = fixed & (here.top == k)
            slope[held] = piece.slope[held]
            mass = float(masses[held].sum())
            multiplier -= piece.price * mass
            value += float(masses[held] @ piece.value[held]) - piece.price * mass * here.lam
    hessian = None
    model = np.append(here.coef, here.intercept)
    if pieces.smooth:
        smooth, rate = problem.loss.value_and_slope(z)
        slope += rate
        value += float(masses @ smooth)
        hessian = gram_with_ones(data.rows, problem.loss.curvature(z) * masses)
    slope *= masses
    if problem.is_classification:
        slope *= data.y
    gradient = np.append(data.rows.transpose_dot(slope), slope.sum())
    constant = value - float(gradient @ model) - multiplier * here.lam
    if hessian is not None:
        constant += 0.5 * float(model @ hessian @ model)
        gradient -= hessian @ model
    rest = FixedRows(gradient[:-1], float(gradient[-1]), multiplier, constant, hessian, scales)
    rows = np.flatnonzero(active)
    if not rows.size:
        nothing = Data(DenseRows(np.zeros((0, data.rows.m))), np.zeros(0), np.zeros(0))
        return problem.replace(label_cost=np.inf) if problem.is_classification else problem, nothing, rest
    return problem, Data(as_rows(data.rows.take(rows)), data.y[rows], masses[rows]), rest


def _dual(
    problem: Problem,
    pieces: Pieces,
    found: RawSolution,
    before: _WorkingModel,
    after: _WorkingModel,
    active: npt.NDArray[np.bool_],
) -> DualPoint | None:
    """Return the dual point of the small problem, completed with the pieces and slopes of the fixed rows."""
    if found.dual is None:
        return None
    if not pieces.smooth:
        assert before.top is not None
        shares = before.top == np.arange(len(pieces(before.z[:1])))[:, None]
        dual = pieces.dual(before.z, shares.astype(np.float64))
        for whole, part in zip(dual, found.dual, strict=True):
            if whole is not None and part is not None:
                whole[active] = part
        return dual
    # The slopes with which the Newton step is stationary, clipped to the domain of the conjugate.
    slope = problem.loss.slope(before.z) + problem.loss.curvature(before.z) * (after.z - before.z)
    slope = np.clip(slope, -problem.loss.lipschitz, 0.0 if problem.is_classification else problem.loss.lipschitz)
    if before.top is None:
        return DualPoint(slope)
    share = (before.top == 1).astype(np.float64)
    if found.dual.share is not None:
        share[active] = found.dual.share
    return DualPoint((1.0 - share) * slope, share * (1.0 + slope), share)
