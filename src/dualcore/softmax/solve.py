"""Training and certifying softmax models."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Bound, Certificate
from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm
from dualcore.problem.normal import CentredRows, exact_dot, far_centre
from dualcore.softmax.bound import lower_bound, spread_bound
from dualcore.softmax.cones import bound_differences
from dualcore.softmax.design import ClassDesign
from dualcore.softmax.newton import FLAT, newton_step
from dualcore.softmax.problem import ClassData, SoftmaxProblem
from dualcore.solvers import IncompatibleError
from dualcore.solvers.base import Iterate, Status
from dualcore.solvers.cones import ConeProgram

__all__ = ["READS_PER_STEP", "SoftmaxSolution", "certify_softmax", "check_solvable", "solve_softmax"]

# A Newton matrix of this size is factored densely, some dozen times in each of a few cone programs.
_MOST_NUMBERS = 2500
# One for the risk and two to measure the columns; then, a step: itself, at most three for its bound, one for the risk.
_READS_TO_START, READS_PER_STEP = 3, 5
_STEPS_TO_CERTIFY = 4
# Steps that do not narrow the gap by a tenth after which rounding is to blame.
_PATIENCE = 20
# What counts as no curvature, tried in turn while the gap does not narrow: where rows are all but certain the best
# correction of the dual point is between none and one that drowns in rounding.
_FLAT = (FLAT, 1e-10, 1e-7, 1e-5)
# Largest factor on the objective of a cone program, for risks that are small against its absolute tolerance.
_MOST_STRETCH = 1e5
# Steps as `_PATIENCE`, where this share of the gap is the stated allowance for rounding.
_PATIENCE_AT_ROUNDING, _ROUNDED = 4, 0.9


@dataclass(frozen=True)
class SoftmaxSolution:
    """The answer of `solve_softmax`; as `dualcore.Solution`, with one row of coefficients for every class.

    Attributes
    ----------
    coef : ndarray of shape (n_classes, n_features)
        They sum to zero over the classes: only differences between classes count.
    intercept : ndarray of shape (n_classes,)
    dual_variable, value, lower_bound, gap, status, solver, iterations, history, seconds, rounding
        As in `dualcore.Solution`.
    """

    coef: FloatArray
    intercept: FloatArray
    dual_variable: float
    value: float
    lower_bound: float
    status: Status
    solver: str
    iterations: int
    history: tuple[Iterate, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    rounding: float = 0.0

    @property
    def gap(self) -> float:
        """``value - lower_bound``."""
        return self.value - self.lower_bound

    @property
    def relative_gap(self) -> float:
        """``gap / max(|value|, tiny)``."""
        return self.gap / max(abs(self.value), np.finfo(float).tiny)

    @property
    def converged(self) -> bool:
        """Whether the gap met the tolerance."""
        return self.status is Status.OPTIMAL


def solve_softmax(
    problem: SoftmaxProblem,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
) -> SoftmaxSolution:
    """Train on all rows: minimise the worst-case risk of the softmax loss.

    Parameters
    ----------
    problem : SoftmaxProblem
    X : array, memory map, sparse matrix or data frame of shape (n_samples, n_features)
    y : array of int of shape (n_samples,)
        Class numbers; every class needs a row of positive weight.
    sample_weight : array of shape (n_samples,), optional
    solver : {"auto", "structured", "conic"}, default="auto"
        "structured" (and "auto") is Newton's method: one pass over the rows an iteration. "conic" hands all rows to
        Clarabel with an exponential cone for each row and class: a reference for small data.
    tol : float, default=1e-6
        Relative gap between the risk and its certified lower bound.
    max_iter : int, default=200

    Examples
    --------
    >>> from dualcore import Problem
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 2)), rng.integers(3, size=60)
    >>> solution = solve_softmax(SoftmaxProblem(Problem("logistic", radius=0.1), 3), X, y)
    >>> solution.coef.shape, solution.converged
    ((3, 2), True)
    """
    began = time.perf_counter()
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    check_solvable(problem, data.rows.m, solver)
    masses = np.bincount(data.code, data.masses, problem.n_classes)
    if not (masses > 0.0).all():
        raise ValueError(f"Class {int(np.argmin(masses))} has no row of positive weight; every class needs one.")
    far = _FarColumns.of(problem, data)
    design = ClassDesign.of(problem, far.data)
    run = _run_conic if solver == "conic" else _run_newton
    with np.errstate(under="ignore"):
        done = run(design, tol, max_iter)
        # The model is rounded to the units of the user before it is evaluated: what is said holds for what is returned.
        coef, intercept = far.outside(*design.model(done.W))
        value, multiplier = problem.evaluate(coef, far.inside(coef, intercept), far.data)
    error = design.risk_error(coef, far.inside(coef, intercept), value)
    lower = min(max(done.lower.value, 0.0), value)
    status = Status.OPTIMAL
    if _runs_away(problem, far.data, coef, far.inside(coef, intercept)):
        status = Status.UNBOUNDED
    elif value - lower > max(tol * abs(value), error):
        status = Status.MAX_ITER if done.iterations >= max_iter else Status.INACCURATE
        if max(done.lower.rounding, done.last.rounding) > 0.5 * (value - lower):
            status = Status.UNCERTIFIED
    found = SoftmaxSolution(
        coef,
        intercept,
        multiplier,
        value,
        lower,
        status,
        "conic" if solver == "conic" else "structured",
        done.iterations,
        tuple(done.history),
        time.perf_counter() - began,
        (0.0 if np.isinf(done.lower.rounding) else done.lower.rounding) + error,
    )
    if not found.converged:
        message = f"{status.value} Relative gap {found.relative_gap:.2e}, asked for {tol:.0e}."
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return found


def certify_softmax(
    problem: SoftmaxProblem, coef: FloatArray, intercept: FloatArray, X: Any, y: Any, sample_weight: Any = None
) -> Certificate:
    """Return the exact worst-case risk of a model on these data, and a lower bound on the best possible one.

    The bound is the dual point of a Newton step from the model, or of one from where that step leads: the nearer the
    model is to the optimum, the sooner the bound is tight.
    """
    data = problem.validate(X, y, sample_weight)
    check_solvable(problem, data.rows.m, "structured")
    far = _FarColumns.of(problem, data)
    theta = np.asarray(coef, dtype=np.float64)
    levels = far.inside(theta, np.asarray(intercept, dtype=np.float64))
    upper, multiplier = problem.evaluate(theta, levels, far.data)
    design = ClassDesign.of(problem, far.data)
    best, value, reads = max(Bound(0.0, 0.0), spread_bound(design)), upper, _READS_TO_START
    with np.errstate(under="ignore"):
        W = design.weights(theta, levels)
        for _ in range(_STEPS_TO_CERTIFY):
            step = newton_step(design, W, multiplier, 1e-7)
            best = max(best, lower_bound(design, W, step, value))
            W = W + step.change
            ahead, multiplier = problem.evaluate(*design.model(W), far.data)
            value, reads = min(value, ahead), reads + READS_PER_STEP
            if value - best.value <= 0.1 * (upper - best.value):  # no bound can be much better than this one
                break
    rounding = best.rounding + design.risk_error(theta, levels, upper)
    return Certificate(upper, min(best.value, upper), n_reads=reads, rounding=rounding)


class _FarColumns(NamedTuple):
    """The data with columns far from the origin centred, and the way of the intercepts there and back."""

    data: ClassData
    centre: FloatArray | None

    @classmethod
    def of(cls, problem: SoftmaxProblem, data: ClassData) -> _FarColumns:
        centre = far_centre(data.rows, data.weights) if problem.base.fit_intercept else None
        return cls(data if centre is None else data._replace(rows=CentredRows(data.rows, centre)), centre)

    def inside(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the intercepts on the centred data."""
        if self.centre is None:
            return intercept
        shifts = [exact_dot(self.centre, theta) for theta in coef]
        return np.array([float(Fraction(float(b)) + shift) for b, shift in zip(intercept, shifts, strict=True)])

    def outside(self, coef: FloatArray, intercept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a model on the centred data in the units of the user.

        What an intercept far from the origin has no digits for goes to a coefficient, as in `Normal`.
        """
        if self.centre is None:
            return coef, intercept
        coef, outer = coef.copy(), np.empty(len(intercept))
        for k, theta in enumerate(coef):
            goal = Fraction(float(intercept[k]))
            exact = goal - exact_dot(self.centre, theta)
            outer[k] = float(exact)
            missing = float(exact - Fraction(float(outer[k])))
            able = np.flatnonzero((self.centre != 0.0) & (theta != 0.0))
            able = able[np.spacing(np.abs(theta[able])) * np.abs(self.centre[able]) < 0.1 * abs(missing)]
            if able.size:
                farthest = able[np.abs(self.centre[able]).argmax()]
                theta[farthest] += missing / self.centre[farthest]
        return coef, outer


def check_solvable(problem: SoftmaxProblem, n_features: int, solver: str) -> None:
    """Raise, before any work, where the solvers cannot take a problem."""
    if solver not in ("auto", "structured", "conic"):
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto', 'structured' or 'conic'.")
    norm = problem.base.geometry.norm
    if type(norm) not in (L1Norm, L2Norm, LinfNorm):
        raise IncompatibleError(
            f"Softmax problems know no cone for the norm {type(norm).__name__}: use l1, l2 or linf."
        )
    size = problem.n_classes * (n_features + int(problem.base.fit_intercept))
    if size > _MOST_NUMBERS and solver != "conic":
        raise IncompatibleError(
            f"A softmax model of {problem.n_classes} classes and {n_features} features has {size} numbers, too many "
            f"for Newton's method beyond {_MOST_NUMBERS}. Use multi_class='ovr', or reduce the features first."
        )


class _Progress:
    """Where a run stands: the best model, the best lower bound and the last one, and how it came there."""

    def __init__(self, design: ClassDesign) -> None:
        self.W, self.iterations = np.zeros(design.shape), 0
        self.lower = self.last = Bound(-np.inf, 0.0)
        self.history: list[Iterate] = []


def _run_newton(design: ClassDesign, tol: float, max_iter: int) -> _Progress:
    """Newton's method without changes of label first; where some would pay, again with them from there.

    Forbidding them only lowers the risk, so the bound found without them holds with them.
    """
    run = _Progress(design)
    run.lower = max(run.lower, spread_bound(design))
    chance = design.problem.evaluate(*design.model(run.W), design.data).value
    if chance - run.lower.value <= tol * chance:
        run.history.append(Iterate(0, chance, chance - run.lower.value))
        return run
    if design.problem.flips:
        fixed = SoftmaxProblem(design.problem.base.replace(label_cost=np.inf), design.problem.n_classes)
        _descend(replace(design, problem=fixed), run, tol, max_iter)
        if design.problem.evaluate(*design.model(run.W), design.data).value > chance:
            run.W = np.zeros(design.shape)
    _descend(design, run, tol, max_iter)
    return run


def _descend(design: ClassDesign, run: _Progress, tol: float, max_iter: int) -> None:
    """Take Newton steps until the certified gap is within tolerance, and one more.

    A gap of 1e-6 leaves the coefficients with three digits, the last step doubles them.
    """
    value, multiplier = design.problem.evaluate(*design.model(run.W), design.data)
    done, least, since = False, np.inf, 0
    while not done and since < _PATIENCE and run.iterations < max_iter:
        done = value - run.lower.value <= tol * value
        flat, stretch = _FLAT[since % len(_FLAT)], float(np.clip(1.0 / max(value, 1e-300), 1.0, _MOST_STRETCH))
        step = newton_step(design, run.W, multiplier, tol, flat=flat, stretch=stretch)
        run.last = lower_bound(design, run.W, step, value)
        run.lower = max(run.lower, run.last)
        run.iterations += 1
        moved = False
        for length in 0.5 ** np.arange(12):
            ahead = run.W + length * step.change
            there = design.problem.evaluate(*design.model(ahead), design.data)
            if there.value < value * (1.0 + 1e-13):
                run.W, (value, multiplier), moved = ahead, there, True
                break
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
    base, n, m = problem.base, data.rows.n, design.scale.size
    rows = np.vstack([block for _, block in design.blocks()])
    program = ConeProgram()
    W, lam, t = program.variables(n_classes * width), program.variables(1), program.variables(n)
    signed = []
    for k in range(n_classes):
        sign = np.zeros((n, n_classes))
        sign[:, k] += 1.0
        sign[np.arange(n), data.code] -= 1.0
        signed.append(sp.csr_array(np.einsum("ik,ij->ikj", sign, rows).reshape(n, n_classes * width)))
    bounds = [program.variables(n) for _ in range(n_classes)]
    for k in range(n_classes):
        ahead = program.variables(n)
        program.zero(W.mapped(signed[k]) - ahead)
        program.exponential(ahead - t, bounds[k])
    program.nonnegative(1.0 - sum(bounds[1:], bounds[0]))
    program.minimise(t.mapped(data.masses[None, :]))
    if problem.flips:
        extra = program.variables(n)
        program.nonnegative(extra)
        program.minimise(extra.mapped(data.masses[None, :]))
        for k in range(n_classes):
            others = np.flatnonzero(data.code != k)
            gain = W.mapped(-signed[k][others])
            program.nonnegative(
                extra.mapped(sp.eye_array(n, format="csr")[others])
                + base.geometry.label_cost * lam.spread(others.size)
                - gain
            )
    program.minimise_squares(design.ridge.ravel(), W)
    program.nonnegative(lam)
    if base.radius > 0.0:
        program.minimise(base.radius * lam)
        coef = W.mapped(sp.csr_array(sp.kron(sp.eye_array(n_classes), sp.eye_array(m, width))))
        bound_differences(program, design.norm, lam, coef, n_classes, m)
    found = program.solve(tol=max(1e-4 * tol, 1e-10), loose_tol=tol, max_iter=max_iter, stretch=10.0 * np.sqrt(n))
    run = _Progress(design)
    run.W, run.iterations = found.value(W).reshape(design.shape), found.iterations
    run.history = [Iterate(k, cost, gap) for k, cost, gap in found.trace]
    value, multiplier = problem.evaluate(*design.model(run.W), data)
    model, least = run.W, value
    for _ in range(_STEPS_TO_CERTIFY):  # a program solved to a tolerance is a good start for the bound, no more
        step = newton_step(design, model, multiplier, tol)
        run.last = lower_bound(design, model, step, least)
        run.lower = max(run.lower, run.last)
        if least - run.lower.value <= tol * least:
            break
        model = model + step.change
        risk, multiplier = problem.evaluate(*design.model(model), data)
        least = min(least, float(risk))
    return run


def _runs_away(problem: SoftmaxProblem, data: ClassData, coef: FloatArray, intercept: FloatArray) -> bool:
    """Whether scaling the model up only helps: separable data with nothing that penalises large coefficients."""
    if problem.base.radius > 0.0 or problem.base.ridge > 0.0:
        return False
    for part, scores in problem.scores(coef, intercept, data):
        own = np.take_along_axis(scores, data.code[part, None], axis=1)
        ahead = np.where(np.arange(problem.n_classes) == data.code[part, None], np.inf, own - scores).min(axis=1)
        if not (ahead[data.masses[part] > 0.0] > 0.0).all():
            return False
    return True
