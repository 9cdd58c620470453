"""The structured solver: an interior point method that eliminates the variables of the rows."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import scipy.linalg

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L2Norm
from dualcore.solvers.base import RawSolution, Solver, able_solver
from dualcore.solvers.interior import InteriorPoint
from dualcore.solvers.working_set import has_working_set, sample_rows, solve_working_set, worth_a_working_set

# With more features the dense Newton matrix would take more than 0.8 GB.
_MOST_FEATURES = 10000


class StructuredSolver(Solver):
    """Interior point with the rows eliminated: one weighted Gram matrix and O(n) work per iteration.

    It takes every loss of order 1, custom losses included; losses of a higher order are for `DescentSolver`.
    """

    name = "structured"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if not problem.family.is_closed:
            return (
                f"StructuredSolver cannot solve {type(problem.loss).__name__} on a support or with categories. "
                "Use solver='box'."
            )
        if not problem.family.linear_in_multiplier:
            return (
                f"StructuredSolver cannot solve {type(problem.loss).__name__}: it takes losses of order 1. "
                f"Use solver='{able_solver(problem)}'."
            )
        if min(data.rows.m, data.rows.n) > _MOST_FEATURES:
            return (
                f"StructuredSolver factors a matrix of {data.rows.m} x {data.rows.m} numbers "
                f"for {data.rows.m} features, "
                f"too many beyond {_MOST_FEATURES}. Use solver='descent', or 'auto', which takes it."
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        # With fewer features the blocks are too small for several BLAS threads.
        threads = one_blas_thread() if data.rows.m <= 256 else nullcontext()
        # Steps that overflow are detected and rejected.
        with np.errstate(under="ignore", over="ignore", invalid="ignore"), threads:
            norm = problem.geometry.norm
            if isinstance(norm, L2Norm) and norm.weights is None and data.rows.n < data.rows.m:
                return _in_row_space(problem, data, tol, max_iter, start)
            return _run(problem, data, tol, max_iter, start)


def _run(
    problem: Problem, data: Data, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
) -> RawSolution:
    # From a start with rows at kinks only the interior point on all rows yields slopes strictly between those of both
    # sides of a kink, which a tight lower bound needs.
    if (start is None or not problem.loss.kinks) and worth_a_working_set(problem, data):
        guess = None if start is None else RawSolution(*start, None, 0)
        found = guess and solve_working_set(problem, data, tol, max_iter, guess)
        if not found and (sample := sample_rows(problem, data)):  # the start was too far from the optimum, or missing
            found = solve_working_set(problem, data, tol, max_iter, _run(problem, sample, tol, max_iter, None))
        if found:
            return found
    whole = InteriorPoint(problem, data, start).run(tol, max_iter)
    if start is not None and whole.stopped_early:  # a start near the boundary can stall: solve again without it
        whole = InteriorPoint(problem, data).run(tol, max_iter)
    if whole.stopped_early and has_working_set(problem):  # Newton with a line search is slower, but stalls less often
        whole = solve_working_set(problem, data, tol, max_iter, whole, most=1.0) or whole
    return whole


def _in_row_space(
    problem: Problem, data: Data, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
) -> RawSolution:
    """Solve in the span of the rows, which contains the optimum if norm and ridge are Euclidean; for n < m."""
    X = data.rows.take(np.arange(data.rows.n))
    basis, inner = _row_space(np.asarray(X.toarray() if hasattr(X, "toarray") else X), data.masses)
    inside = None if start is None else (basis.T @ start[0], start[1])
    found = _run(problem, data._replace(rows=as_rows(inner)), tol, max_iter, inside)
    return replace(found, coef=basis @ found.coef)


def _row_space(X: FloatArray, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an orthonormal basis of the rows, shape (n_features, rank), and the rows in it, shape (n_rows, rank).

    The basis are the principal axes of the weighted rows, so repeated rows and rows of larger weight lead to the same
    solution. Directions in which the rows vary by rounding only are left out; the solver would scale them to unit
    columns.
    """
    has_mass = masses > 0.0
    span, factor = np.linalg.qr((np.sqrt(masses[has_mass])[:, None] * X[has_mass]).T)
    sizes, axes = scipy.linalg.svd(factor.T)[1:]
    rank = max(int(np.count_nonzero(sizes > max(X.shape) * np.finfo(np.float64).eps * sizes[0])), 1)
    basis = span @ axes[:rank].T
    return basis, X @ basis
