"""Training on a support over reads: planes from the pilot's optimum on, every look at all rows one read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk
from dualcore.problem import Data, Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.forms import Minimum
from dualcore.problem.normal import Normal
from dualcore.solvers.base import Iterate, RawSolution
from dualcore.solvers.moving.bundle import Bundle
from dualcore.solvers.remembered import RememberedRows

__all__ = ["run_box", "start_on"]

# A step of the bundle is worth less than one of an interior point: allow this many for one.
_STEPS = 5
# Multiples of the bundle's multiplier that the first read of the risk tries, and reads at most.
_TRIALS, _MOST_READS = (0.8, 0.95, 1.0, 1.05, 1.25), 12
# By how much, relatively, the risk may exceed the minimum over the multiplier.
_SHARPNESS = 1e-9


class _Sizes(NamedTuple):
    """Means of the rows of either class, or of all, times their masses, and the mean squares of the columns."""

    moments: FloatArray
    squares: FloatArray


@dataclass(frozen=True)
class _SizesTask:
    """Sees that rows lie in the support and sums what the planes need of them; small, for it travels."""

    problem: Problem
    total_weight: float

    def __call__(self, chunk: Chunk) -> _Sizes:
        self.problem.family.check_rows(as_rows(chunk.X), first=chunk.start)
        masses = (np.ones(chunk.y.size) if chunk.weights is None else chunk.weights) / self.total_weight
        X = np.asarray(chunk.X.toarray() if hasattr(chunk.X, "toarray") else chunk.X, dtype=np.float64)
        return _Sizes(_by_class(self.problem, chunk.y, masses) @ X, masses @ (X * X))


@dataclass(frozen=True)
class _RiskTask:
    """Sums ``h`` and what its moves cost at a few multipliers."""

    problem: Problem
    coef: FloatArray
    intercept: float
    multipliers: tuple[float, ...]
    total_weight: float
    level: float
    unit: float

    def __call__(self, chunk: Chunk) -> FloatArray:
        masses = (np.ones(chunk.y.size) if chunk.weights is None else chunk.weights) / self.total_weight
        y = chunk.y if self.problem.is_classification else (chunk.y - self.level) / self.unit
        out = np.empty((len(self.multipliers), 2))
        for k, multiplier in enumerate(self.multipliers):
            found = self.problem.family.rows(Anchor(self.coef, self.intercept, multiplier), chunk.X, y)
            out[k] = masses @ found.upper, masses @ found.spent
        return out


def _by_class(problem: Problem, y: FloatArray, masses: FloatArray) -> FloatArray:
    """Return the masses of the rows of either class, shape (2, n); of all where there are none, shape (1, n)."""
    if not problem.is_classification:
        return masses[None, :]
    return np.stack([np.where(y < 0.0, masses, 0.0), np.where(y > 0.0, masses, 0.0)])


class _Reported(Bundle):
    """A bundle that says what is known after every look at the rows."""

    def __init__(self, report: Callable[[Iterate], None], *given: Any, **settings: Any) -> None:
        self._report, self.looks = report, 0
        super().__init__(*given, **settings)

    def look(self, x: FloatArray) -> float:
        value = super().look(x)
        self.looks += 1
        self._report(Iterate(self.looks, self.upper, self.upper - self.lower))
        return value


def run_box(
    normal: Normal,
    total_weight: float,
    tol: float,
    max_iter: int,
    start: tuple[FloatArray, float, float],
    report: Callable[[Iterate], None],
) -> RawSolution:
    """Raise planes from a start (coefficients, intercept, multiplier) on."""
    problem, data = normal.problem, normal.data
    rows = data.rows
    if not isinstance(rows, RememberedRows):
        raise TypeError("training over reads needs the rows of a source")
    parts = list(rows.source.map(_SizesTask(problem, total_weight)))
    rows.remember_moments(_by_class(problem, data.y, data.masses), np.sum([part.moments for part in parts], axis=0))
    rows.remember_squares(data.masses, np.sum([part.squares for part in parts], axis=0))
    coef, intercept, multiplier = start
    bundle = _Reported(report, problem, data, coef, intercept, multiplier=multiplier)
    count = bundle.run(0.9 * tol, _STEPS * max_iter)
    coef, intercept, multiplier = bundle.best
    risk = _least(normal, rows, coef, intercept, multiplier, total_weight)
    history = tuple(Iterate(k, upper, upper - lower) for k, (lower, upper) in enumerate(bundle.history))
    return RawSolution(
        coef,
        intercept,
        None,
        count,
        history,
        count == _STEPS * max_iter,
        bundle.lower,
        bundle.rounding,
        risk=risk,
    )


def _least(
    normal: Normal, rows: RememberedRows, coef: FloatArray, intercept: float, near: float, total_weight: float
) -> Minimum:
    """Return the risk of a model: the least value over the multiplier, a few of them from every read.

    The objective is convex in the multiplier, its slope the radius less what the moves cost. Tangents of either side
    bound the minimum from below.
    """
    problem = normal.problem
    lowest = problem.family.feasible_multiplier(coef, problem.kappa(coef))
    known: dict[float, tuple[float, float]] = {}
    near = max(near, lowest)
    trials = sorted({lowest, *(max(share * near, lowest) for share in _TRIALS)})
    for _ in range(_MOST_READS):
        task = _RiskTask(problem, coef, intercept, tuple(trials), total_weight, normal.level, normal.unit)
        sums = np.sum(list(rows.source.map(task)), axis=0)
        for multiplier, (mean, spent) in zip(trials, sums.tolist(), strict=True):
            known[multiplier] = (problem.radius * multiplier + float(mean), problem.radius - float(spent))
        best = min(known, key=lambda each: known[each][0])
        falling = [each for each, (_, slope) in known.items() if slope < 0.0]
        rising = [each for each, (_, slope) in known.items() if slope >= 0.0]
        if not falling:  # the least multiplier is the best
            best = lowest
            break
        if not rising:
            trials = [share * max(known) for share in (1.5, 3.0, 10.0)] if max(known) > 0.0 else [1e-3, 1.0, 1e3]
            continue
        low, high = max(falling), min(rising)
        (low_value, low_slope), (high_value, high_slope) = known[low], known[high]
        meet = low + (high_value - low_value - high_slope * (high - low)) / (low_slope - high_slope)
        floor = low_value + low_slope * (meet - low)
        trials = sorted({each for each in (0.5 * (low + meet), meet, 0.5 * (meet + high)) if low < each < high})
        if known[best][0] - floor <= _SHARPNESS * abs(known[best][0]) or not trials:
            break
    return Minimum(known[best][0] + problem.penalty(coef), best)


def start_on(problem: Problem, pilot: Data, model: tuple[FloatArray, float]) -> tuple[FloatArray, float, float]:
    """Return a model with the multiplier of its risk on the pilot."""
    return *model, problem.evaluate(*model, pilot).multiplier
