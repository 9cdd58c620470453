"""The front door: choose a solver, run it, score what it returns on the data."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Bound, RowBounds, RowLevelSet, dual_point, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.base import IncompatibleError, RawSolution, Solution, Solver, Status
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.conic import ConicSolver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.power import PowerSolver
from dualcore.solvers.softmax import solve_classes
from dualcore.solvers.structured import StructuredSolver

__all__ = ["SOLVERS", "solve"]

# Up to this many rows a problem that one solver leaves unfinished is handed to the other.
_SECOND_OPINION = 20_000

# From this many features on, and this much work for a Newton matrix (rows times features squared, of the smaller of the
# two), descent is the quicker way: `benchmarks/bench_wide.py`. Kinks and flips cost it more steps.
_MANY_FEATURES = 150
_WIDE_SMOOTH, _WIDE = 2e8, 1.5e9
# A Newton matrix that takes more work than this is no second opinion.
_TOO_WIDE = 1e11

# Data of at most this many numbers may be fitted exactly at the end.
_FEW_NUMBERS = 1_000_000

SOLVERS: dict[str, type[Solver]] = {
    cls.name: cls for cls in (StructuredSolver, BoxSolver, PowerSolver, ConicSolver, DescentSolver)
}


def solve(
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
    r"""Train on all rows: minimise the worst-case risk.

    .. math:: \min_{\theta, b} \min_{\lambda \ge \kappa(\theta)} \sigma^p \lambda + \sum_i w_i h_i(\theta, b, \lambda)
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Parameters
    ----------
    problem : Problem
    X : array, memory map, sparse matrix or data frame of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Labels -1 and +1, or targets.
    sample_weight : array of shape (n_samples,), optional
        Masses; normalised to sum to one.
    solver : {"auto", "structured", "descent", "conic", "box", "power"}, default="auto"
        "auto" takes the structured solver, an interior point, where features are few; "descent", whose cost is products
        with ``X``, where they are many; the box solver where there is a support; "power" for orders above 1.
        ``Solution.solver`` says which ran.
    tol : float, default=1e-6
        Relative gap between the risk and its certified lower bound.
    max_iter : int, default=200
    warm_start : Solution, optional
        An earlier solution to start from (another radius, another draw of rows).

    Returns
    -------
    Solution
        Not converged is a ConvergenceWarning and the best point found, never an exception.

    Examples
    --------
    >>> X, y = np.array([[2.0], [1.0], [-1.0], [-2.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> solution = solve(Problem("hinge", radius=0.5), X, y)
    >>> round(solution.value, 6), solution.status.name
    (0.5, 'OPTIMAL')
    """
    began = time.perf_counter()
    if not tol > 0.0:
        raise ValueError(f"tol must be positive, got {tol!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if problem.family.n_outputs > 1:
        settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "warm_start": warm_start}
        return solve_classes(problem, X, y, sample_weight, **settings)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    _check_classes(problem, data)
    if problem.box is not None and problem.radius == 0.0:  # without a budget nothing moves, walls or not
        problem, solver = problem.replace(support=None), "auto" if solver == "box" else solver
    chosen = _choose(problem, data, solver)
    normal = Normal.of(problem, data)
    start = None if warm_start is None else _start(normal, warm_start)
    raw = chosen.run(normal.problem, normal.data, tol=tol, max_iter=max_iter, start=start)
    found = _score(problem, normal, raw, chosen.name, tol, max_iter, began)
    unsure = solver == "auto" and found.status in (Status.INACCURATE, Status.MAX_ITER, Status.UNCERTIFIED)
    if (
        unsure
        and data.rows.n <= _SECOND_OPINION
        and data.rows.n * data.rows.m * min(data.rows.n, data.rows.m) <= _TOO_WIDE
    ):
        # Descent is for many features: as a second opinion it would take long where another solver failed.
        others = (cls() for cls in SOLVERS.values() if cls.name not in (chosen.name, DescentSolver.name))
        other = next((each for each in others if each.obstacle(problem, data) is None), None)
        if other is not None:
            again = other.run(
                normal.problem,
                normal.data,
                tol=tol,
                max_iter=max_iter,
                start=normal.inside(found.coef, found.intercept),
            )
            second = _score(problem, normal, again, other.name, tol, max_iter, began)
            found = second if second.gap < found.gap else found
    few = problem.box is None and data.rows.n <= _SECOND_OPINION
    if few and found.status is Status.UNCERTIFIED and normal.level != 0.0:
        found = _with_digits(problem, normal, found, chosen, tol, max_iter, began)
    if not found.converged:
        gap = found.gap / max(abs(found.value), 1e-300)
        message = f"{found.status.value} Relative gap {gap:.2e}, asked for {tol:.0e}."
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return found


def _start(normal: Normal, warm_start: Solution) -> tuple[FloatArray, float]:
    coef, n_features = np.asarray(warm_start.coef, dtype=np.float64), normal.data.rows.m
    if coef.shape != (n_features,):
        raise ValueError(f"warm_start has {coef.size} coefficients but X has {n_features} features.")
    return normal.inside(coef, float(warm_start.intercept))


def _check_classes(problem: Problem, data: Data) -> None:
    """Weights of zero can empty a class that the labels alone do not."""
    if problem.is_classification and data.weights is not None:
        for label in (-1.0, 1.0):
            if not (data.weights[data.y == label] > 0.0).any():
                raise ValueError(f"Every row of class {label:+g} has zero weight; a classifier needs both classes.")


def _choose(problem: Problem, data: Data, solver: str) -> Solver:
    if solver == "auto":
        descent = DescentSolver()
        if _is_wide(problem, data) and descent.obstacle(problem, data) is None:
            return descent
        for cls in SOLVERS.values():
            candidate = cls()
            if candidate.obstacle(problem, data) is None:
                return candidate
        reason = BoxSolver().obstacle(problem, data) if problem.box is not None else None
        raise IncompatibleError(reason or f"No solver can take {problem!r}.")
    if solver not in SOLVERS:
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(SOLVERS)}.")
    chosen = SOLVERS[solver]()
    obstacle = chosen.obstacle(problem, data)
    if obstacle is not None:
        raise IncompatibleError(obstacle)
    return chosen


def _is_wide(problem: Problem, data: Data) -> bool:
    """Whether products with the data are cheaper than a few Newton matrices of them; by measurement."""
    n, m = data.rows.n, data.rows.m
    if problem.box is not None or problem.geometry.order != 1 or m < _MANY_FEATURES:
        return False
    flips = problem.is_classification and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0
    smooth = not (problem.loss.kinks or flips)
    return float(n) * m * min(n, m) >= (_WIDE_SMOOTH if smooth else _WIDE)


def _score(
    problem: Problem, normal: Normal, raw: RawSolution, solver: str, tol: float, max_iter: int, began: float
) -> Solution:
    """Evaluate the point exactly, certify it, and put the outcome in words.

    The model is rounded to the units of the user before it is evaluated: what is said holds for what is returned.
    """
    inner, data = normal.problem, normal.data
    exact = _fitted(inner, data, raw)
    coef, intercept = normal.outside(*exact)
    theta, level = normal.inside(coef, intercept)
    value, multiplier = inner.evaluate(theta, level, data)
    best, dual, error = Bound(max(trivial_bound(inner), raw.lower), raw.rounding), raw.dual, raw.rounding
    withheld, bounds = False, None
    if inner.box is None:
        bounds = RowBounds(inner, data, value)
        error = bounds.level_set.risk_error(theta, level)
        # A gap below the rounding of the risk itself cannot be told from none.
        goal = max(tol * abs(value), error)
        t = inner.signal(theta, level, data)
        guess = dual_point(inner, t, data, inner.size(theta))
        for point, repair in ((raw.dual, False), (raw.dual, True), (guess, True)):
            if point is not None and value - best.value > goal:
                bound = bounds.bound(point, repair=repair)
                if bound > best:
                    best, dual = bound, point
        withheld = bounds.level_set.withheld
    else:
        plain = RowLevelSet(inner.replace(support=None), data, value)
        error = plain.risk_error(theta, level) + inner.family.enclosure
        goal = max(tol * abs(value), plain.risk_error(theta, level))
    lower = min(best.value, value)
    status = Status.OPTIMAL
    if _runs_away(inner, data, theta, level):
        status = Status.UNBOUNDED
    elif value - lower > goal:
        status = Status.MAX_ITER if raw.iterations >= max_iter else Status.INACCURATE
        # The allowance for rounding is most of the gap, or no bound is possible for rounding, or the digits that the
        # user's units leave to the model are too few.
        lost = 0.0
        if normal.centre is not None or normal.level != 0.0:
            lost = value - inner.evaluate(*exact, data).value
        withheld = withheld or max(best.rounding, lost) > 0.5 * (value - lower)
        if withheld or (bounds is not None and bounds.level_set.lacks_digits()):
            status = Status.UNCERTIFIED
    factor = normal.factor
    history = raw.history
    if factor != 1.0:
        history = tuple(replace(each, value=factor * each.value, gap=factor * each.gap) for each in history)
    return Solution(
        coef=coef,
        intercept=intercept,
        dual_variable=multiplier * normal.multiplier_unit,
        value=factor * value,
        lower_bound=factor * lower,
        gap=factor * (value - lower),
        status=status,
        solver=solver,
        iterations=raw.iterations,
        history=history,
        seconds=time.perf_counter() - began,
        dual=None if dual is None else dual.times(normal.slope_unit),
        rounding=factor * (best.rounding + error),
        problem=problem,
    )


def _with_digits(
    problem: Problem, normal: Normal, found: Solution, solver: Solver, tol: float, max_iter: int, began: float
) -> Solution:
    """Return the coefficients that are best for the intercept as it was rounded, where that is better.

    A target far from the origin leaves few digits to the intercept; the coefficients make up for some of them.
    """
    coef, level = normal.inside(found.coef, found.intercept)
    fixed, data = normal.problem.replace(fit_intercept=False), normal.data._replace(y=normal.data.y - level)
    if solver.obstacle(fixed, data) is not None:
        return found
    again = solver.run(fixed, data, tol=tol, max_iter=max_iter, start=(coef, 0.0))
    dual = None if found.dual is None else found.dual.times(1.0 / normal.slope_unit)
    # What bounds the risk with this intercept does not bound it with every other: the bound is the one that is known.
    raw = RawSolution(
        again.coef,
        level,
        dual,
        found.iterations + again.iterations,
        lower=found.lower_bound / normal.factor,
        rounding=found.rounding / normal.factor,
    )
    better = _score(problem, normal, raw, solver.name, tol, max_iter, began)
    if not better.value < found.value:
        return found
    return replace(better, history=found.history, status=better.status if better.converged else found.status)


def _fitted(problem: Problem, data: Data, raw: RawSolution) -> tuple[FloatArray, float]:
    """Return the model, with what is left of the residuals fitted where next to nothing is left and all of it can be.

    Where nothing penalises the model an exact fit is the optimum, and an interior point leaves some digits of it.
    """
    free = problem.radius == 0.0 and problem.ridge == 0.0
    if problem.is_classification or not free or data.rows.n * data.rows.m > _FEW_NUMBERS:
        return raw.coef, raw.intercept
    left = problem.signal(raw.coef, raw.intercept, data)
    held = data.masses > 0.0
    if not data.y[held].any():
        nothing = np.zeros(data.rows.m), 0.0
        kept = problem.evaluate(raw.coef, raw.intercept, data).value < problem.evaluate(*nothing, data).value
        return (raw.coef, raw.intercept) if kept else nothing
    if np.abs(left[held]).max() > 1e-6 * np.abs(data.y[held]).max():
        return raw.coef, raw.intercept
    X = np.vstack([block for _, block in data.rows.dense_blocks()])[held]
    columns = np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X
    change = np.linalg.lstsq(columns, -left[held], rcond=None)[0]
    coef = raw.coef + change[: data.rows.m]
    intercept = raw.intercept + float(change[-1]) if problem.fit_intercept else raw.intercept
    better = problem.evaluate(coef, intercept, data).value < problem.evaluate(raw.coef, raw.intercept, data).value
    return (coef, intercept) if better else (raw.coef, raw.intercept)


def _runs_away(problem: Problem, data: Data, coef: FloatArray, intercept: float) -> bool:
    """Whether scaling the model up only helps: separable data with nothing that penalises large coefficients."""
    if not problem.is_classification or problem.radius > 0.0 or problem.ridge > 0.0:
        return False
    margins = problem.signal(coef, intercept, data)[data.masses > 0.0]
    return bool((margins > 0.0).all() and (problem.loss.slope(margins) < 0.0).any())
