"""The methods that are compared, under one interface: data in, a model and its CPU time out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from dualcore.coresets.samplers import (
    CoresetFit,
    DualCoreset,
    GridCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    Sampler,
    UniformCoreset,
)
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.solvers import Solution, solve

WHOLE, WHOLE_CONIC = "Whole", "Whole (conic)"
ALONE, FIT = "Coreset alone", "Fit"


@dataclass(frozen=True, eq=False)
class Job:
    """What a method is given."""

    problem: Problem
    X: FloatArray  # shape (n, m)
    y: FloatArray  # shape (n,)
    size: int  # rows of the coreset
    seed: int  # methods that need an anchor train it on the same pilot rows if their seeds are the same
    tol: float  # relative gap asked of every solve


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, the rows it was trained on, what its method knows about the optimum, and the CPU time it took."""

    coef: FloatArray
    intercept: float
    size: int
    lower: float | None
    seconds: float


Method = Callable[[Job], Trained]


# A model, the rows it was trained on, and what is known about the optimum.
Found = tuple[Solution, int, float | None]


def _timed(train: Callable[[Job], Found]) -> Method:
    def run(job: Job) -> Trained:
        began = time.process_time()
        found, size, lower = train(job)
        return Trained(found.coef, found.intercept, size, lower, time.process_time() - began)

    return run


def _whole(solver: str) -> Method:
    def train(job: Job) -> Found:
        found = solve(job.problem, job.X, job.y, solver=solver, tol=job.tol)
        return found, len(job.y), found.lower_bound

    return _timed(train)


def _once(make: Callable[[Job], Sampler]) -> Method:
    """Draw a coreset and train on it; the full data are not read again, for this yields no certificate."""

    def train(job: Job) -> Found:
        coreset = make(job).build(job.problem, job.X, job.y)
        return solve(job.problem, coreset.X, coreset.y, coreset.weights, tol=job.tol), len(coreset), None

    return _timed(train)


@lru_cache(maxsize=1)
def _fitted(job: Job) -> tuple[CoresetFit, float]:
    """Return the fit that both of our methods look at, and its CPU time: reads, certificate, coreset and its check."""
    began = time.process_time()
    fit = DualCoreset(size=job.size, random_state=job.seed).fit(job.problem, job.X, job.y, tol=job.tol)
    return fit, time.process_time() - began


def _fit(job: Job) -> Trained:
    """The model of the fit."""
    fit, seconds = _fitted(job)
    return Trained(fit.solution.coef, fit.solution.intercept, len(job.y), fit.certificate.lower, seconds)


def _alone(job: Job) -> Trained:
    """The model that the coreset of the fit trains without any other row."""
    fit, seconds = _fitted(job)
    coreset = fit.coreset
    began = time.process_time()
    found = solve(job.problem, coreset.X, coreset.y, coreset.weights, tol=job.tol)
    return Trained(found.coef, found.intercept, len(coreset), None, seconds + time.process_time() - began)


def _algorithm_one(job: Job) -> Sampler:
    """The paper's own bounds where they differ from ``h``: on a support."""
    bounds = "exact" if job.problem.family.is_closed else "paper"
    return GridCoreset(job.size, bounds=bounds, random_state=job.seed)


METHODS: dict[str, Method] = {
    WHOLE: _whole("auto"),
    WHOLE_CONIC: _whole("conic"),
    "UniSamp": _once(lambda job: UniformCoreset(size=job.size, random_state=job.seed)),
    "ImpSamp": _once(lambda job: ImportanceCoreset(size=job.size, random_state=job.seed)),
    "LayerSamp": _once(lambda job: LayeredCoreset(size=job.size, random_state=job.seed)),
    "DualCore": _once(_algorithm_one),
    ALONE: _alone,
    FIT: _fit,
}
