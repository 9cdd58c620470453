"""Exact training over reads: the rows of a source are never all in memory.

One number a row is kept for targets, masses, scores and a dual point, and the rows of a pilot sample. The model of the
pilot is the start, its curvature the metric; every step after that is one read of all rows, and so is its certificate.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows, SparseRows
from dualcore.data.sources import PreparedSource, Source
from dualcore.data.sources.rows import RememberedRows, source_target
from dualcore.problem import Data, Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.base import IncompatibleError, Iterate, RawSolution, Solution
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.boxreads import run_box, start_on
from dualcore.solvers.choose import SOLVERS, check_classes, choose_solver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.descent.continuation import Continuation
from dualcore.solvers.descent.metricnewton import metric_newton
from dualcore.solvers.descent.objective import Objective
from dualcore.solvers.descent.reads import ReadsOracle
from dualcore.solvers.descent.rowsums import Point
from dualcore.solvers.descent.solver import descend, shrunk
from dualcore.solvers.pilot import draw_pilot, pilot_size
from dualcore.solvers.scoring import score

__all__ = ["FEW_NUMBERS", "solve_over_reads"]

# A source of at most this many numbers (4 MB) is one chunk: it is loaded.
FEW_NUMBERS = 524_288
# Relative gap asked of the pilot: its optimum is no nearer to that of all rows.
_PILOT_TOL, _PILOT_ITERATIONS = 1e-4, 100
# With more features than this a coefficient that nothing holds is not certified.
_MOST_FREE = 2000


class _Glance(Rows):
    """As many rows as the source has, of which a look at some shows those of the pilot."""

    def __init__(self, pilot: Rows, n_rows: int) -> None:
        self.n, self.m, self._pilot = n_rows, pilot.m, pilot

    def block(self, part: slice) -> Any:
        return self._pilot.block(part)

    def take(self, indices: Any) -> Any:
        if isinstance(self._pilot, SparseRows):  # sparse rows are never centred: they would be dense
            return sp.csr_matrix((1, self.m))
        return self._pilot.take(np.arange(self._pilot.n))


def solve_over_reads(
    problem: Problem,
    source: Source,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    warm_start: Solution | None,
    callback: Callable[[Iterate], None] | None,
) -> Solution:
    """Train on all rows of a source; see `solve`. ``max_iter`` is the number of reads, on a support of passes in 5."""
    began, before = time.perf_counter(), source.n_reads
    data = _all_but_features(problem, source)
    chosen = _choose(problem, data, solver)
    pilot = draw_pilot(problem, source, pilot_size(source.n_rows, source.n_features))
    normal, pilot = _normalise(problem, source, data, pilot)
    start = None
    if warm_start is not None:
        start = normal.inside(np.asarray(warm_start.coef, dtype=np.float64), float(warm_start.intercept))

    def report(done: Iterate) -> None:
        if callback is not None:
            factor = normal.factor
            callback(Iterate(source.n_reads - before, factor * done.value, factor * done.gap))

    if isinstance(chosen, BoxSolver):
        first = start_on(normal.problem, pilot, _pilot_model(normal.problem, pilot) if start is None else start)
        raw = run_box(normal, source.total_weight, tol, max_iter, first, report)
    else:
        raw = _run_descent(normal, pilot, source.total_weight, tol, max_iter, start, report)
    found = score(problem, normal, raw, chosen.name, tol, max_iter, began)
    return replace(found, n_reads=source.n_reads - before)


def _all_but_features(problem: Problem, source: Source) -> Data:
    """Return targets and masses of all rows, checked, and the rows as reads."""
    prices = problem.geometry.norm.weights
    if prices is not None and prices.size != source.n_features:
        raise ValueError(f"feature_weights holds {prices.size} prices but the source has {source.n_features} features.")
    y = source_target(source)
    problem.family.check_target(y)
    weights = source.row_masses() if source.is_weighted else None
    data = Data(RememberedRows(source), y, weights)
    check_classes(problem, data)
    return data


def _choose(problem: Problem, data: Data, solver: str) -> Any:
    if solver not in ("auto", *SOLVERS):
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(SOLVERS)}.")
    able = BoxSolver() if problem.box is not None else DescentSolver()
    if solver not in ("auto", able.name):
        raise IncompatibleError(
            f"solver={solver!r} needs rows in memory; the rows of a source are read by solver={able.name!r}. "
            "Use solver='auto', a coreset, or pass the rows as arrays."
        )
    obstacle = able.obstacle(problem, data)
    if obstacle is not None:
        raise IncompatibleError(
            f"{problem!r} cannot be trained over reads of a source. {obstacle} That needs rows in memory: use a "
            "coreset, or pass the rows as arrays."
        )
    return able


def _normalise(problem: Problem, source: Source, data: Data, pilot: Data) -> tuple[Normal, Data]:
    """Return the problem in normalised units, its rows as reads, and the pilot in the same units."""
    normal = Normal.of(problem, data._replace(rows=_Glance(pilot.rows, data.rows.n)))
    rows = pilot.rows
    if normal.centre is not None:
        source = PreparedSource(source, centre=normal.centre, scale=np.ones(rows.m))
        rows = DenseRows(rows.take(np.arange(rows.n)) - normal.centre)
    y = pilot.y if problem.is_classification else (pilot.y - normal.level) / normal.unit
    reads = RememberedRows(source)
    # Where nothing holds a coefficient, only a closer look at the rows, of about ten reads, can bound it.
    reads.in_memory = bool(free_features(normal.problem, rows.m).any()) and rows.m <= _MOST_FREE
    inside = normal.data._replace(rows=reads)
    return replace(normal, data=inside), Data(rows, y, pilot.weights)


def _pilot_model(problem: Problem, pilot: Data) -> tuple[FloatArray, float]:
    with warnings.catch_warnings():  # a start need not be optimal: what it is worth is measured on all rows
        warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = choose_solver(problem, pilot, "auto")
        found = chosen.run(problem, pilot, tol=_PILOT_TOL, max_iter=_PILOT_ITERATIONS, start=None)
    return found.coef, found.intercept


def _run_descent(
    normal: Normal,
    pilot: Data,
    total_weight: float,
    tol: float,
    max_iter: int,
    start: tuple[FloatArray, float] | None,
    report: Callable[[Iterate], None],
) -> RawSolution:
    problem = normal.problem
    oracle = ReadsOracle(problem, normal.data, pilot, total_weight=total_weight, level=normal.level, unit=normal.unit)
    with np.errstate(under="ignore"):
        try:
            loop = Continuation(oracle, tol, max_iter, report)
            first = oracle.columns.point(*(_pilot_model(problem, pilot) if start is None else start))
            point: Point | None = first
            if start is None:
                point = shrunk(Objective(oracle, loop.first_width()), first)
            descend(oracle, loop, point, np.random.default_rng(0), metric_newton)
        finally:
            oracle.close()
    best = loop.best
    coef, intercept = oracle.columns.model(best.point)
    return RawSolution(
        coef=coef,
        intercept=intercept if problem.fit_intercept else 0.0,
        dual=best.dual,
        iterations=oracle.n_evaluations,
        history=tuple(loop.history),
        stopped_early=not loop.is_done(),
    )
