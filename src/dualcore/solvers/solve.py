"""`solve`: choose a solver, run it, and evaluate and certify its result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore.data.rows import DenseRows, Rows, SparseRows
from dualcore.data.sources import Source, is_source_like, open_source
from dualcore.data.sources.products import target_and_masses
from dualcore.problem import Problem
from dualcore.problem.normal import Normal
from dualcore.reading.rowdata import rows_in_memory, source_data
from dualcore.reading.summary import WeightedRows
from dualcore.solvers.base import Iterate, RawSolution, Solution, Status, observed
from dualcore.solvers.capacity import check_capacity, check_classes
from dualcore.solvers.choose import choose_solver, solvers_for
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.overreads import is_small, solve_over_reads, start_from
from dualcore.solvers.scoring import score

# Up to this many rows a problem that one solver does not solve is passed to another.
_SECOND_OPINION = 20_000


def solve(
    problem: Problem,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
    warm_start: Solution | None = None,
    callback: Callable[[Iterate], None] | None = None,
) -> Solution:
    r"""Train on all rows: minimise the worst-case risk.

    .. math:: \min_{\theta, b} \min_{\lambda \ge \kappa(\theta)} \sigma^p \lambda + \sum_i w_i h_i(\theta, b, \lambda)
              + \tfrac{\rho}{2} \|\theta\|_2^2

    Parameters
    ----------
    problem : Problem
    X : array, memory map, sparse matrix or data frame of shape (n_samples, n_features), or a source
        Anything that `open_source` takes: a source, the path of a Parquet, CSV or ``.npy`` file or of a folder, a Dask
        collection, a function that returns parts. Its rows are read several times, and loaded only if they are few.
    y : array of shape (n_samples,)
        Labels -1 and +1, or targets. With a source what `open_source` takes for it: the name of a column, or None.
    sample_weight : array of shape (n_samples,), optional
        Masses; normalised to sum to one. With a source as ``y``.
    solver : {"auto", "structured", "descent", "conic", "box"}, default="auto"
        "auto" uses "structured", an interior point, if there are few features; "descent", whose work is products with
        ``X``, if there are many and for losses of order above 1; "conic" for such losses on few rows and for the
        squared hinge with label flips; "box" if there is a support or categories. ``Solution.solver`` is the one that
        ran.
    tol : float, default=1e-6
        Relative gap between the risk and its certified lower bound.
    max_iter : int, default=200
        Limit on iterations, or on reads of a source. Newton's methods on a support or with categories have their own
        limits.
    warm_start : Solution, optional
        An earlier solution to start from (another radius, another draw of rows).
    callback : callable, optional
        Over a source: called after every read with an `Iterate`, whose ``iteration`` is the number of reads so far,
        ``value`` the best risk and ``gap`` its certified gap. On rows in memory: called after every iteration of the
        solver. The structured solver includes iterations on a sample of the rows. Clarabel and the methods for a
        support count from 0 again if they run several times.

    Returns
    -------
    Solution
        If the solver does not converge, a ConvergenceWarning is issued and the best point found is returned.
        ``Solution.n_reads`` is the number of reads of a source.

    Notes
    -----
    Over a source memory holds a few numbers per row, a sample of the rows (at most a quarter, at least five for each
    feature) and a chunk. Kinks and label flips take more reads than smooth losses, and more if there are many features.
    On a support a step of Newton's method is a read. Coefficients without a penalty (radius 0, ridge 0) take more reads
    to be certified. Rows that are in memory already, or take less than 16 MB, are solved in memory.

    On a support, data of more than 10,000 numbers (rows times features) in memory may end with a relative gap above
    ``tol``, of at most 1e-9 for each number and at most 1e-4: a smaller gap would take minutes and does not change
    predictions. The solution states its gap.

    Examples
    --------
    >>> X, y = np.array([[2.0], [1.0], [-1.0], [-2.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> solution = solve(Problem("hinge", radius=0.5), X, y)
    >>> round(solution.value, 6), solution.status.name
    (0.5, 'OPTIMAL')
    """
    if not tol > 0.0:
        raise ValueError(f"tol must be positive, got {tol!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if problem.reduced() is not problem:
        problem, solver = problem.reduced(), "auto" if solver == "box" else solver
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "warm_start": warm_start}
    if is_source_like(X, y):
        found = _solve_source(problem, open_source(X, y, sample_weight), settings, callback)
    else:
        found = _solve_rows(problem, X, y, sample_weight, callback=callback, **settings)
    if not found.converged:
        gap = found.gap / max(abs(found.value), 1e-300)
        message = f"{found.status.value} Relative gap {gap:.2e}, asked for {tol:.0e}."
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return found


def solve_quietly(problem: Problem, rows: WeightedRows, **settings: Any) -> Solution:
    """Train on weighted rows of a sample, without a warning if the tolerance is not met.

    The gap that matters is certified on all rows later. Settings are those of `solve`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, rows.X, rows.y, rows.weights, **settings)


def _solve_source(
    problem: Problem, source: Source, settings: dict[str, Any], callback: Callable[[Iterate], None] | None
) -> Solution:
    """Solve in memory if the rows are there already or are few, else over reads."""
    before, rows = source.n_reads, rows_in_memory(source)
    if problem.family.n_outputs > 1:  # every pass of the solver is a read
        data = source_data(source)
        found = _solve_rows(problem, data.rows, data.y, data.weights, callback=callback, **settings)
        return replace(found, n_reads=source.n_reads - before)
    if rows is not None:
        return _solve_rows(problem, rows, *target_and_masses(source), **settings)
    if not is_small(source):
        return solve_over_reads(problem, source, callback=callback, **settings)
    weights = source.row_masses() if source.is_weighted else None
    X, y = source.take(np.arange(source.n_rows))
    return replace(_solve_rows(problem, X, y, weights, **settings), n_reads=source.n_reads - before)


def _solve_rows(
    problem: Problem,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    warm_start: Solution | None,
    callback: Callable[[Iterate], None] | None = None,
) -> Solution:
    """Solve on rows in memory."""
    began = time.perf_counter()
    if problem.with_intercept() is not problem:
        settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "warm_start": warm_start}
        found = _solve_rows(problem.with_intercept(), X, y, sample_weight, callback=callback, **settings)
        return _folded(problem, found, X, y, sample_weight, tol, max_iter, began)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    check_classes(problem, data)
    data = data._replace(rows=dense_if_small(data.rows))
    chosen = choose_solver(problem, data, solver)
    check_capacity(problem, data, chosen.name)
    normal = Normal.of(problem, data)
    start = None if warm_start is None else start_from(warm_start, normal)
    with observed(None if callback is None else lambda done: callback(_in_units(done, normal))):
        raw = chosen.run(normal.problem, normal.data, tol=tol, max_iter=max_iter, start=start)
    found = score(problem, normal, raw, chosen.name, tol, max_iter, began)
    unsure = solver == "auto" and found.status in (Status.INACCURATE, Status.MAX_ITER, Status.UNCERTIFIED)
    # A second solver is not tried where its Newton matrix takes more than about a second per iteration.
    if unsure and data.rows.n <= _SECOND_OPINION and data.rows.n * data.rows.m**2 <= 1e10:
        # For order 1 descent would take long where the interior point failed.
        barred = (chosen.name, DescentSolver.name) if problem.family.linear_in_multiplier else (chosen.name,)
        others = (cls() for cls in solvers_for(problem).values() if cls.name not in barred)
        other = next((each for each in others if each.obstacle(problem, data) is None), None)
        if other is not None:
            here = normal.inside(found.coef, found.intercept)
            again = other.run(normal.problem, normal.data, tol=tol, max_iter=max_iter, start=here)
            second = score(problem, normal, again, other.name, tol, max_iter, began)
            found = _merged(found, second, tol)
    return found


def _merged(first: Solution, second: Solution, tol: float) -> Solution:
    """Return the better of two models with the better of two bounds."""
    best, other = (first, second) if first.value <= second.value else (second, first)
    if best.lower_bound >= other.lower_bound:
        return best
    gap = best.value - other.lower_bound
    status = Status.OPTIMAL if gap <= tol * abs(best.value) else best.status
    rounding = max(best.rounding, other.rounding)
    return replace(best, lower_bound=other.lower_bound, gap=gap, dual=other.dual, status=status, rounding=rounding)


def _folded(
    problem: Problem, found: Solution, X: Any, y: Any, sample_weight: Any, tol: float, max_iter: int, began: float
) -> Solution:
    """Return a solution with an intercept as one without, where the columns of a category group sum to one.

    The intercept is added to the coefficients of such a group.
    """
    normal = Normal.of(problem, problem.validate(X, y, sample_weight))
    theta, _ = normal.inside(problem.family.folded(found.coef, found.intercept), 0.0)
    risk = normal.problem.evaluate(theta, 0.0, normal.data)
    # The increase of the risk by this conversion is due to rounding in large coefficients.
    lost = max(normal.factor * risk.value - found.value, found.rounding)
    raw = RawSolution(
        theta,
        0.0,
        None,
        found.iterations,
        tuple(replace(each, value=each.value / normal.factor, gap=each.gap / normal.factor) for each in found.history),
        lower=found.lower_bound / normal.factor,
        rounding=lost / normal.factor,
        risk=risk,
    )
    return score(problem, normal, raw, found.solver, tol, max_iter, began)


def _in_units(done: Iterate, normal: Normal) -> Iterate:
    """Return a line of the history in the units of the data."""
    return replace(done, value=normal.factor * done.value, gap=normal.factor * done.gap)


def dense_if_small(rows: Rows) -> Rows:
    """Return small sparse rows as dense ones, whose products are faster.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> type(dense_if_small(SparseRows(sp.eye_array(3, format="csr")))).__name__
    'DenseRows'
    """
    # Sparse rows of at most this many numbers, zeros included, become dense.
    if isinstance(rows, SparseRows) and rows.n * rows.m <= 100_000:
        return DenseRows(rows.by_row.toarray().astype(np.float64))
    return rows
