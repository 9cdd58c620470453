"""Training softmax models: descent, Newton's method through small cone programs, or one cone program of all rows."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Bound
from dualcore.certificates.rounding import free_features
from dualcore.certificates.softmax.bound import lower_bound, spread_bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L1Norm
from dualcore.problem.normal import Normal
from dualcore.solvers.base import IncompatibleError, Iterate, Solution, Status
from dualcore.solvers.coneprogram import ConeProgram
from dualcore.solvers.softmax.certify import STEPS_TO_CERTIFY, size_fault, suits_newton
from dualcore.solvers.softmax.classnewton import FLAT, newton_step
from dualcore.solvers.softmax.curvedprogram import bound_differences
from dualcore.solvers.softmax.descent import ClassDescent

__all__ = ["solve_classes"]

# Steps that do not narrow the gap by a tenth after which rounding is to blame.
_PATIENCE, _PATIENCE_WITH_MANY, _PATIENCE_WITHOUT = 20, 6, 4
# What counts as no curvature, tried in turn while the gap does not narrow: where rows are all but certain the best
# correction of the dual point is between none and one that drowns in rounding.
_FLAT = (FLAT, 1e-10, 1e-7, 1e-5)
# Largest factor on the objective of a cone program, for risks that are small against its absolute tolerance.
_MOST_STRETCH = 1e5
# Steps as `_PATIENCE`, where this share of the gap is the stated allowance for rounding.
_PATIENCE_AT_ROUNDING, _ROUNDED = 4, 0.9
_SOLVERS = ("auto", "structured", "descent", "conic")
# Up to this many numbers Newton's method needs no start.
_TINY = 100
# Relative gap after which Newton's method takes over where it can, and where descent smooths nothing; evaluations that
# make an iteration of descent.
_FINISH, _FINISH_EXACT, _EVALUATIONS = 1e-4, 1e-5, 10
# Evaluations after which Newton's method takes over in any case: without a bound nothing says earlier that it may.
_BEFORE_NEWTON, _BEFORE_NEWTON_FREE = 600, 2000
# The share of the iterations, one over this, that Newton's method has left however many descent took.
_LEFT = 10
# A step that lowers the risk by more than this share is far from the optimum: its bound is not worth its time.
_FAR = 0.02


def solve_classes(
    problem: Problem,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
    warm_start: Solution | None = None,
) -> Solution:
    """Train on all rows; as `dualcore.solve`, which calls this for problems of many classes.

    Parameters
    ----------
    problem : Problem
        With the softmax loss.
    X : array, memory map, sparse matrix or data frame of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Class numbers; every class needs a row of positive weight.
    sample_weight : array of shape (n_samples,), optional
    solver : {"auto", "structured", "descent", "conic"}, default="auto"
        "structured" is Newton's method for models of few numbers, one pass over the rows and a cone program an
        iteration. "descent" takes quasi-Newton steps on the smoothed risk, a pass each. "auto" is Newton's method for
        very few numbers, else descent, which Newton's method finishes where it can. "conic" hands all rows to Clarabel
        with an exponential cone for each row and class: a reference for small data.
    tol : float, default=1e-6
        Relative gap between the risk and its certified lower bound.
    max_iter : int, default=200
    warm_start : Solution, optional
        Where to set out from, if that is better than scores that are all zero.
    """
    began = time.perf_counter()
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    _check_solvable(problem, data.rows.m, solver)
    masses = np.bincount(data.y.astype(np.int64), data.masses, problem.family.n_outputs)
    if not (masses > 0.0).all():
        raise ValueError(f"Class {int(np.argmin(masses))} has no row of positive weight; every class needs one.")
    normal = Normal.of(problem, data)
    design = ClassDesign.of(problem, normal.data)
    start = None if warm_start is None else _start(normal, design, warm_start)
    with np.errstate(under="ignore"):
        if solver == "conic":
            done = _run_conic(design, tol, max_iter)
        else:
            done = _run(design, solver, tol, max_iter, start)
        # The model is rounded to the units of the user before it is evaluated: what is said holds for what is returned.
        coef, intercept = normal.outside(*design.model(done.W))
        inside = normal.inside(coef, intercept)
        value, multiplier = problem.evaluate(*inside, normal.data)
    error = design.risk_error(*inside, value)
    lower = min(max(done.lower.value, 0.0), value)
    status = Status.OPTIMAL
    if _runs_away(problem, normal.data, *inside):
        status = Status.UNBOUNDED
    elif value - lower > max(tol * abs(value), error):
        status = Status.MAX_ITER if done.exhausted else Status.INACCURATE
        if max(done.lower.rounding, done.last.rounding) > 0.5 * (value - lower):
            status = Status.UNCERTIFIED
    found = Solution(
        coef=coef,
        intercept=intercept,
        dual_variable=multiplier,
        value=value,
        lower_bound=lower,
        gap=value - lower,
        status=status,
        solver=done.solver,
        iterations=done.iterations,
        history=tuple(done.history),
        seconds=time.perf_counter() - began,
        rounding=(0.0 if np.isinf(done.lower.rounding) else done.lower.rounding) + error,
        problem=problem,
    )
    if not found.converged:
        message = f"{status.value} Relative gap {found.relative_gap:.2e}, asked for {tol:.0e}."
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return found


def _start(normal: Normal, design: ClassDesign, warm_start: Solution) -> FloatArray:
    coef, intercept = normal.problem.family.as_model(warm_start.coef, warm_start.intercept)
    if coef.shape[1] != normal.data.rows.m:
        raise ValueError(
            f"warm_start has {coef.shape[1]} coefficients a class but X has {normal.data.rows.m} features."
        )
    return design.weights(*normal.inside(coef, intercept))


def _check_solvable(problem: Problem, n_features: int, solver: str) -> None:
    """Raise, before any work, where the solvers cannot take a problem."""
    if solver not in _SOLVERS:
        raise ValueError(f"Unknown solver {solver!r}. Use one of {list(_SOLVERS)} for a softmax problem.")
    fault = size_fault(problem, n_features, by_newton=solver == "structured")
    if fault is not None:
        raise IncompatibleError(fault)


class _Progress:
    """Where a run stands: the best model, the best lower bound and the last one, and how it came there."""

    solver = "structured"

    def __init__(self, design: ClassDesign) -> None:
        self.W, self.iterations, self.exhausted = np.zeros(design.shape), 0, False
        self.lower = self.last = Bound(-np.inf, 0.0)
        self.history: list[Iterate] = []


def _run(design: ClassDesign, solver: str, tol: float, max_iter: int, start: FloatArray | None) -> _Progress:
    """Descend where numbers are many, take Newton's steps where they are few, or to finish."""
    run, problem = _Progress(design), design.problem
    run.lower = max(run.lower, spread_bound(design))
    chance = problem.evaluate(*design.model(run.W), design.data).value
    if chance - run.lower.value <= tol * chance:
        run.history.append(Iterate(0, chance, chance - run.lower.value))
        return run
    if start is not None and problem.evaluate(*design.model(start), design.data).value < chance:
        run.W = start
    finishes = solver == "auto" and suits_newton(problem, design.scale.size)
    if solver == "descent" or (solver == "auto" and not (finishes and _newton_first(design))):
        exact = isinstance(design.norm, L1Norm) and not problem.family.flips
        rough = max(tol, _FINISH_EXACT if exact else _FINISH) if finishes else tol
        value = _run_descent(design, run, rough, max_iter, finishes=finishes)
        if value > chance:
            run.W, value = np.zeros(design.shape), chance
        max_iter = max(max_iter - -(-run.iterations // _EVALUATIONS), max_iter // _LEFT)
        if not finishes or max_iter < 1 or value - run.lower.value <= tol * value:
            return run
    _run_newton(design, run, chance, tol, max_iter)
    return run


def _newton_first(design: ClassDesign) -> bool:
    """Whether Newton's method needs no start: its matrix is tiny, or without a penalty there is no cone program."""
    return design.shape[0] * design.shape[1] <= _TINY or (design.problem.radius == 0.0 and design.problem.ridge == 0.0)


def _run_descent(design: ClassDesign, run: _Progress, tol: float, max_iter: int, *, finishes: bool) -> float:
    """Descend and return the risk; of a source every evaluation is a read, and so an iteration."""
    most = max_iter * (_EVALUATIONS if design.data.rows.in_memory else 1)
    if finishes:
        free = bool(free_features(design.problem, design.scale.size).any())
        most = min(most, _BEFORE_NEWTON_FREE if free else _BEFORE_NEWTON)
    descent = ClassDescent(design, tol, most, run.W if run.W.any() else None)
    descent.run()
    run.solver, run.W, run.iterations, run.exhausted = "descent", descent.W, descent.iterations, descent.exhausted
    run.history += [Iterate(*line) for line in descent.history]
    run.last, run.lower = descent.last, max(run.lower, descent.lower)
    return descent.upper


def _run_newton(design: ClassDesign, run: _Progress, chance: float, tol: float, max_iter: int) -> None:
    """Newton's method without changes of label first; where some would pay, again with them from there.

    Forbidding them only lowers the risk, so the bound found without them holds with them.
    """
    before, most = run.iterations, run.iterations + max_iter
    if design.problem.family.flips and not before:
        fixed = design.problem.replace(label_cost=np.inf)
        _descend(replace(design, problem=fixed), run, tol, most)
        if design.problem.evaluate(*design.model(run.W), design.data).value > chance:
            run.W = np.zeros(design.shape)
    _descend(design, run, tol, most)
    run.exhausted = run.iterations >= most


def _descend(design: ClassDesign, run: _Progress, tol: float, max_iter: int) -> None:
    """Take Newton steps until the certified gap is within tolerance, and one more.

    A gap of 1e-6 leaves the coefficients with three digits; the last step doubles them.
    """
    more = 1
    value, multiplier = design.problem.evaluate(*design.model(run.W), design.data)
    least, since = np.inf, 0
    patience = _PATIENCE if run.W.size <= _TINY else _PATIENCE_WITH_MANY
    if run.iterations and np.isinf(run.last.value):  # free coefficients: descent had its time, and bounds none
        patience = _PATIENCE_WITHOUT
    while more and since < patience and run.iterations < max_iter:
        more -= int(value - run.lower.value <= tol * value)
        flat, stretch = _FLAT[since % len(_FLAT)], float(np.clip(1.0 / max(value, 1e-300), 1.0, _MOST_STRETCH))
        here, before = run.W, value
        step = newton_step(design, here, multiplier, tol, flat=flat, stretch=stretch)
        run.iterations += 1
        moved = False
        for length in 0.5 ** np.arange(12):
            ahead = here + length * step.change
            there = design.problem.evaluate(*design.model(ahead), design.data)
            if there.value < value * (1.0 + 1e-13):
                run.W, (value, multiplier), moved = ahead, there, True
                break
        near = before - value <= _FAR * before or run.iterations == max_iter
        if near and not _runs_away(design.problem, design.data, *design.model(here)):  # else the infimum is 0
            run.last = lower_bound(design, here, step, value)
            run.lower = max(run.lower, run.last)
        run.history.append(Iterate(run.iterations, value, value - max(run.lower.value, 0.0)))
        gap = value - run.lower.value
        least, since = (gap, 0) if gap < 0.9 * least else (least, since + 1)
        if since >= _PATIENCE_AT_ROUNDING and run.lower.rounding > _ROUNDED * gap:
            break
        if not moved:
            break


def _run_conic(design: ClassDesign, tol: float, max_iter: int) -> _Progress:
    """Hand all rows to Clarabel: ``sum_k exp(s_k - s_y - t) <= 1`` says that ``t`` is at least the loss."""
    problem, data, (n_classes, width) = design.problem, design.data, design.shape
    code, n, m = design.code, data.rows.n, design.scale.size
    rows = np.vstack([block for _, block in design.blocks()])
    program = ConeProgram()
    W, lam, t = program.variables(n_classes * width), program.variables(1), program.variables(n)
    signed = []
    for k in range(n_classes):
        sign = np.zeros((n, n_classes))
        sign[:, k] += 1.0
        sign[np.arange(n), code] -= 1.0
        signed.append(sp.csr_array(np.einsum("ik,ij->ikj", sign, rows).reshape(n, n_classes * width)))
    bounds = [program.variables(n) for _ in range(n_classes)]
    for k in range(n_classes):
        ahead = program.variables(n)
        program.zero(W.mapped(signed[k]) - ahead)
        program.exponential(ahead - t, bounds[k])
    program.nonnegative(1.0 - sum(bounds[1:], bounds[0]))
    program.minimise(t.mapped(data.masses[None, :]))
    if problem.family.flips:
        extra = program.variables(n)
        program.nonnegative(extra)
        program.minimise(extra.mapped(data.masses[None, :]))
        for k in range(n_classes):
            others = np.flatnonzero(code != k)
            gain = W.mapped(-signed[k][others])
            program.nonnegative(
                extra.mapped(sp.eye_array(n, format="csr")[others])
                + problem.geometry.label_cost * lam.spread(others.size)
                - gain
            )
    program.minimise_squares(design.ridge.ravel(), W)
    program.nonnegative(lam)
    if problem.radius > 0.0:
        program.minimise(problem.radius * lam)
        coef = W.mapped(sp.csr_array(sp.kron(sp.eye_array(n_classes), sp.eye_array(m, width))))
        bound_differences(program, design.norm, lam, coef, n_classes, m)
    found = program.solve(tol=max(1e-4 * tol, 1e-10), loose_tol=tol, max_iter=max_iter, stretch=10.0 * np.sqrt(n))
    run = _Progress(design)
    run.solver = "conic"
    run.W, run.iterations = found.value(W).reshape(design.shape), found.iterations
    run.history = [Iterate(k, cost, gap) for k, cost, gap in found.trace]
    value, multiplier = problem.evaluate(*design.model(run.W), data)
    model, least = run.W, value
    for _ in range(STEPS_TO_CERTIFY):  # a program solved to a tolerance is a good start for the bound, no more
        step = newton_step(design, model, multiplier, tol)
        run.last = lower_bound(design, model, step, least)
        run.lower = max(run.lower, run.last)
        if least - run.lower.value <= tol * least:
            break
        model = model + step.change
        risk, multiplier = problem.evaluate(*design.model(model), data)
        least = min(least, float(risk))
    return run


def _runs_away(problem: Problem, data: Data, coef: FloatArray, intercept: FloatArray) -> bool:
    """Whether scaling the model up only helps: separable data with nothing that penalises large coefficients."""
    if problem.radius > 0.0 or problem.ridge > 0.0:
        return False
    for part, block in data.rows.blocks():
        scores, code = np.asarray(block @ coef.T) + intercept, data.y[part].astype(np.int64)
        own = np.take_along_axis(scores, code[:, None], axis=1)
        ahead = np.where(np.arange(len(coef)) == code[:, None], np.inf, own - scores).min(axis=1)
        if not (ahead[data.masses[part] > 0.0] > 0.0).all():
            return False
    return True
