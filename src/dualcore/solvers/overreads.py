"""Exact training over reads: the rows of a source are never all in memory.

Targets, masses, scores and a dual point are kept in memory, a few numbers per row, and so are the rows of a pilot
sample. The optimum of the pilot is the starting point, and its Hessian the metric. Every further step is one read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import trivial_bound
from dualcore.certificates.rounding import free_features
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows, as_rows
from dualcore.data.sources import Chunk, Source, TransformedSource
from dualcore.data.sources.base import LocalSource
from dualcore.data.sources.products import target_and_masses
from dualcore.problem import Data, Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.base import IncompatibleError, Iterate, RawSolution, Solution, observed
from dualcore.solvers.box import BoxSolver
from dualcore.solvers.capacity import check_classes, check_reads_capacity
from dualcore.solvers.choose import SOLVERS, choose_solver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.descent.continuation import Continuation
from dualcore.solvers.descent.objective import Objective
from dualcore.solvers.descent.reads import ReadsOracle
from dualcore.solvers.descent.solver import best_of, descend, shrunk
from dualcore.solvers.pilot import draw_pilot, pilot_size
from dualcore.solvers.remembered import RememberedRows
from dualcore.solvers.scoring import score
from dualcore.solvers.structured import StructuredSolver
from dualcore.solvers.working_set import LARGEST_SHARE, has_working_set, solve_working_set, working_share

# A source of at most this many numbers (16 MB) is loaded into memory: its pilot would be about as large.
_FEW_NUMBERS = 2_000_000
# Rows near a kink are kept in memory, at most this many numbers (128 MB). With more features than the second number
# an interior point on these rows takes longer than further reads.
_ACTIVE_NUMBERS, _WORKING_FEATURES = 16_000_000, 500


def is_small(X: Any) -> bool:
    """Whether the rows of a source are few enough numbers to be loaded into memory."""
    rows, columns = (X.n_rows, X.n_features) if isinstance(X, Source) else X.shape
    return bool(rows * columns <= _FEW_NUMBERS)


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
    """Train on all rows of a source; see `solve`. ``max_iter`` is the number of reads."""
    began, before = time.perf_counter(), source.n_reads
    check_reads_capacity(source.n_rows)
    data = _all_but_features(problem, source)
    chosen = _choose(problem, data, solver)
    pilot = draw_pilot(problem, source, pilot_size(source.n_rows, source.n_features)).data
    normal, pilot = _normalise(problem, source, data, pilot)

    def report(done: Iterate) -> None:
        if callback is not None:
            factor = normal.factor
            callback(Iterate(source.n_reads - before, factor * done.value, factor * done.gap))

    def scored(raw: RawSolution, name: str) -> Solution:
        return score(problem, normal, raw, name, tol, max_iter, began)

    guess = None if warm_start is not None else _solve_pilot(normal.problem, pilot)
    start = start_from(warm_start, normal) if guess is None else (guess.coef, guess.intercept)
    loop = _ReadsLoop(normal, pilot, source.total_weight, tol, max_iter, report)
    found = None
    if isinstance(chosen, BoxSolver):
        all(source.map(partial(_lies_inside, problem)))  # every chunk, unless one raises
        with observed(report):
            raw = chosen.run(normal.problem, normal.data, tol=tol, max_iter=max_iter, start=start)
        found = scored(raw, chosen.name)
    elif solver == "auto" and guess is not None:
        solved = _run_working_set(loop, guess)
        found = None if solved is None else scored(solved, StructuredSolver.name)
    if found is None:
        found = scored(_run_descent(loop, start, shrink=guess is not None), chosen.name)
    elif not found.converged and not isinstance(chosen, BoxSolver):
        here = normal.inside(found.coef, found.intercept)
        again = scored(_run_descent(loop, here, shrink=False), chosen.name)
        found = again if again.gap < found.gap else found
    report(Iterate(0, found.value / normal.factor, found.gap / normal.factor))
    return replace(found, n_reads=source.n_reads - before)


class _ReadsLoop(NamedTuple):
    """Arguments common to the methods: the problem on all rows, the pilot, tolerance, limit of reads, callback."""

    normal: Normal
    pilot: Data
    total_weight: float
    tol: float
    max_iter: int
    report: Callable[[Iterate], None]


def _lies_inside(problem: Problem, chunk: Chunk) -> bool:
    """Return True, or raise the error that names the first row outside of the support."""
    problem.family.check_rows(as_rows(chunk.X), first=chunk.start)
    return True


def start_from(solution: Any, normal: Normal) -> tuple[FloatArray, Any]:
    """Return the model of an earlier solution in the units of the solver."""
    family, n_features = normal.problem.family, normal.data.rows.m
    coef, intercept = family.as_model(solution.coef, solution.intercept)
    if coef.shape != family.model_shape(n_features):
        raise ValueError(f"warm_start has {coef.shape[-1]} coefficients but the rows have {n_features} features.")
    return normal.inside(coef, intercept)


def _all_but_features(problem: Problem, source: Source) -> Data:
    """Return the data with targets and masses in memory, checked, and rows that are read on demand."""
    prices = problem.geometry.norm.weights
    if prices is not None and prices.size != source.n_features:
        raise ValueError(f"feature_weights holds {prices.size} prices but the source has {source.n_features} features.")
    y, weights = target_and_masses(source)
    problem.family.check_target(y)
    data = Data(RememberedRows(source), y, weights)
    check_classes(problem, data)
    return data


def _choose(problem: Problem, data: Data, solver: str) -> Any:
    if solver not in ("auto", *SOLVERS):
        raise ValueError(f"Unknown solver {solver!r}. Use 'auto' or one of {sorted(SOLVERS)}.")
    able = BoxSolver() if not problem.family.is_closed else DescentSolver()
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
    """Return the problem on all rows in units computed from the pilot, and the pilot in the same units."""
    normal = Normal.of(problem, pilot)
    if normal.centre is not None:
        source = TransformedSource(source, centre=normal.centre, scale=np.ones(data.rows.m))
    reads = RememberedRows(source)
    # A coefficient without a penalty is bounded by further passes over the rows, about ten reads. `in_memory` permits
    # them. With more than 2,000 features such a problem is not certified.
    reads.in_memory = bool(free_features(normal.problem, data.rows.m).any()) and data.rows.m <= 2000
    y = data.y if problem.is_classification else (data.y - normal.target_shift) / normal.unit
    return replace(normal, data=Data(reads, y, data.weights)), normal.data


def _solve_pilot(problem: Problem, pilot: Data) -> RawSolution:
    chosen = choose_solver(problem, pilot, "auto")
    # A smaller gap is not needed: the optimum of the pilot differs from that of all rows by more.
    return chosen.run(problem, pilot, tol=1e-4, max_iter=100, start=None)


def _run_working_set(loop: _ReadsLoop, guess: RawSolution) -> RawSolution | None:
    """Solve on the rows near a kink, with the others fixed to linear pieces; None where that does not apply."""
    problem, data, rows = loop.normal.problem, loop.normal.data, loop.normal.data.rows
    if (
        not problem.family.linear_in_multiplier
        or not (problem.loss.kinks or problem.family.flips)
        or not has_working_set(problem)
    ):
        return None
    share = working_share(data, loop.pilot.rows.n)
    held = share * rows.n * rows.m
    if rows.m > _WORKING_FEATURES or share > LARGEST_SHARE or held > _ACTIVE_NUMBERS or not _is_local(rows):
        return None

    def tell(risk: float) -> None:  # the lower bound is computed at the end
        loop.report(Iterate(0, risk, risk - trivial_bound(problem)))

    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        return solve_working_set(
            problem,
            data,
            loop.tol,
            loop.max_iter,
            guess,
            sample=loop.pilot.rows.n,
            report=tell,
        )


def _is_local(rows: Rows) -> bool:
    """Whether chunks are read in this process: vectors with one entry per row are not sent to workers."""
    source = rows.source if isinstance(rows, RememberedRows) else None
    while isinstance(source, TransformedSource):
        source = source.inner
    return isinstance(source, LocalSource)


def _run_descent(given: _ReadsLoop, start: tuple[FloatArray, float], *, shrink: bool) -> RawSolution:
    """Run `descend` with the metric of the pilot; with ``shrink`` from the best of a few multiples of the start."""
    normal, problem = given.normal, given.normal.problem
    oracle = ReadsOracle(
        problem, normal.data, given.pilot, total_weight=given.total_weight, level=normal.target_shift, unit=normal.unit
    )
    with np.errstate(under="ignore"):
        try:
            loop = Continuation(oracle, given.tol, given.max_iter, given.report)
            point = oracle.columns.point(*start)
            if shrink:
                point = shrunk(Objective(oracle, loop.first_width()), point)
            descend(oracle, loop, point, np.random.default_rng(0))
        finally:
            oracle.close()
    return best_of(loop, oracle.n_evaluations)
