r"""Training on a sample that is corrected by reads of all rows.

A *working sample* of a dozen rows or more for each parameter stays in memory. The model that it trains is read on all
rows: its risk, gradient and certificate. If the certificate is not tight enough, the weights of the sample are moved as
little as possible so that it has the mean ``h``, gradient and transport of all rows at every model read so far. Then it
trains the next model. Data that fit the working sample are trained on as they are. Where features are so many that it
would not fit in memory, gradients of reads train the model (`solve` on a source).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import Certificate
from dualcore.coresets.anchors import anchor_at, pilot_sample
from dualcore.coresets.calibrate import keeps_classes, match_means
from dualcore.coresets.matched import At, Matched, centre_of, read_means
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.closed import ClosedReading, spread_of
from dualcore.reading.reading import Reading, read
from dualcore.reading.repair import can_repair, repaired_bounds
from dualcore.reading.rowdata import rows_in_memory
from dualcore.reading.summary import Pass, WeightedRows
from dualcore.solvers import Iterate, Solution, Status, solve, solve_quietly
from dualcore.solvers.assess import certify_rows
from dualcore.solvers.pilot import Pilot

# Rows that cost next to nothing, and most numbers (256 MB) of the sample.
_CHEAP_ROWS, MOST_NUMBERS = 20_000, 32_000_000


@dataclass(frozen=True)
class Round:
    """One read of the data: how many rows training works on, and what is known about the full data after it."""

    read: int
    rows: int
    risk: float
    upper: float
    lower: float

    @property
    def relative_gap(self) -> float:
        """``(upper - lower) / upper``."""
        return (self.upper - self.lower) / max(abs(self.upper), np.finfo(float).tiny)


Callback = Callable[[Round], None]


class Trained(NamedTuple):
    """A model, what is known of it on all rows, and the weighted rows in memory that it was trained on."""

    solution: Solution
    certificate: Certificate
    history: tuple[Round, ...]
    rows: Any


def working_rows(problem: Problem, n_features: int) -> int:
    """Return how many rows are trained on as they are; of more a sample is taken.

    Hundreds for each parameter as long as they are cheap: to correct a sample would take longer.

    Examples
    --------
    >>> working_rows(Problem("logistic", radius=0.1), 20), working_rows(Problem("hinge", radius=0.1), 784)
    (20000, 31400)
    """
    cheap = MOST_NUMBERS // (6 * n_features)
    rows = max(300 * (n_features + 1), _CHEAP_ROWS) if problem.family.is_closed else _CHEAP_ROWS
    return max(_least_rows(problem, n_features), min(rows, cheap))


def _least_rows(problem: Problem, n_features: int) -> int:
    """Return a dozen rows for each parameter; more where ``h`` has kinks, near which only few of them lie."""
    kinks = problem.family.is_closed and problem.form.has_kinks
    return (40 if kinks else 12) * problem.family.n_outputs * (n_features + 1)


def working_sample(problem: Problem, source: Source, seed: int) -> Pilot:
    """Return the working sample: all rows of positive weight where they are few, fewer where features are many.

    Of more rows it is an eighth as long as these are few: a sample must cost less than its reads.
    """
    size = working_rows(problem, source.n_features)
    if source.n_rows > size:
        enough = max(source.n_rows // 8, 128 * source.n_features)
        size = max(_least_rows(problem, source.n_features), min(size, enough))
    size = min(max(min(size, MOST_NUMBERS // source.n_features), len(problem.family.strata), 1), source.n_rows)
    return pilot_sample(problem, source, size, seed_from(seed, 1))


def is_whole(problem: Problem, source: Source) -> bool:
    """Whether the working sample has all rows."""
    few = source.n_rows <= working_rows(problem, source.n_features)
    return few and source.n_rows * source.n_features <= MOST_NUMBERS


def train(
    problem: Problem,
    source: Source,
    *,
    rounds: int,
    target_gap: float,
    seed: int,
    callback: Callback | None = None,
    warm_start: Solution | None = None,
    **settings: Any,
) -> Trained:
    """Return a model whose certified relative gap on all rows is at most ``target_gap``, where that is reached.

    ``rounds`` is how often the working sample trains a model after the first, which is ``warm_start`` if there is one.
    ``settings`` are those of `solve`.
    """
    rows, size = working_sample(problem, source, seed), working_rows(problem, source.n_features)
    if is_whole(problem, source):
        return train_all(problem, source, rows, callback, warm_start=warm_start, **settings)
    if min(size, source.n_rows) * source.n_features <= MOST_NUMBERS:
        return _SampleLoop(problem, source, rows, settings, target_gap, callback).run(rounds, warm_start)
    if rows_in_memory(source) is None:  # every digit beyond the gap that was asked for costs reads
        settings |= {"tol": max(settings.get("tol", 0.0), target_gap)}
    return train_all(problem, source, None, callback, warm_start=warm_start, **settings)._replace(rows=rows)


def train_all(
    problem: Problem, source: Source, rows: Pilot | None, callback: Callback | None, **settings: Any
) -> Trained:
    """Train on all rows: on those that were loaded, or through the source."""
    before, last = source.n_reads, list[Round]()

    def tell(done: Iterate) -> None:
        reads = max(source.n_reads - before, 1)
        last[:] = [Round(reads, source.n_rows, done.value, done.value, done.value - done.gap)]
        if callback is not None:
            callback(last[0])

    if rows is None:
        solution = solve(problem, source, callback=tell, **settings)
    else:  # every kind of source gives the same model
        solution = solve(problem, rows.X, rows.y, rows.weights, callback=tell, **settings)
    tell(Iterate(solution.iterations, solution.value, solution.gap))
    certificate = Certificate(solution.value, solution.lower_bound, last[0].read, solution.rounding)
    return Trained(solution, certificate, tuple(last), rows)


def corrected(problem: Problem, rows: Pilot, values: FloatArray, means: FloatArray) -> Pilot:
    """Return rows with weights that are moved, as little as possible, so that ``values`` have these means.

    Weights that would leave a class next to no mass are not taken.
    """
    found = match_means(rows.weights, values, means).weights
    if problem.is_classification and not keeps_classes(rows.y, rows.weights, found):
        return rows
    kept = found > 0.0
    return Pilot(rows.rows[kept], rows.X[kept], rows.y[kept], found[kept])


class _SampleLoop:
    """Models of the working sample, each read on all rows, until the certificate is tight."""

    def __init__(
        self,
        problem: Problem,
        source: Source,
        rows: Pilot,
        settings: dict[str, Any],
        target_gap: float,
        callback: Callback | None,
    ) -> None:
        self.problem, self.source, self.target_gap, self.callback = problem, source, target_gap, callback
        self.settings = dict(settings)
        if not problem.family.is_closed:  # there a certificate takes as long as training
            self.settings["tol"] = max(settings.get("tol", 0.0), 1e-4)
        self.before = source.n_reads
        self.rows, self.centre = rows, centre_of(problem, rows.X, rows.weights)
        self.readings: list[Reading] = []
        self.history: list[Round] = []
        self.upper, self.lower = np.inf, -np.inf

    def run(self, rounds: int, start: Solution | None) -> Trained:
        """Return the best model."""
        rows, solution = self.rows, self._solve(self.rows, None) if start is None else start
        best = solution, self._read(solution), rows
        for _ in range(rounds):
            if self._tight():
                break
            rows, before = self._corrected(), self.upper
            solution = self._solve(rows, solution)
            reading = self._read(solution)
            if reading.risk < best[1].risk:
                best = solution, reading, rows
            # Where the risk no longer falls the model is good, and only its bound is not: `_finish` looks for another.
            if before - self.upper <= 0.1 * self.target_gap * abs(self.upper):
                break
        return self._finish(*best)

    def _solve(self, rows: Pilot, start: Solution | None) -> Solution:
        return solve_quietly(self.problem, rows, warm_start=start, **self.settings)

    def _read(self, solution: Solution) -> Reading:
        problem, anchor = self.problem, anchor_at(self.problem, solution)
        width, sizes = 0.0, self.readings[-1].column_sizes if self.readings else None
        if problem.family.is_closed and problem.loss.kinks:
            t = problem.family.signal_at(anchor, self.rows.X, self.rows.y)
            width = 0.05 * spread_of(t, self.rows.weights)
        task = Pass(problem, anchor, width, sized=sizes is None)
        reading = read(self.source, task, sizes)
        self.upper = min(self.upper, reading.risk)
        earlier = [dual for each in self.readings for dual in each.duals]
        self.lower = min(max(self.lower, reading.lower_bound(self.upper, earlier)), self.upper)
        self.readings.append(reading)
        self._tell(reading.risk)
        return reading

    def _tell(self, risk: float) -> None:
        done = Round(self.source.n_reads - self.before, len(self.rows.y), risk, self.upper, self.lower)
        self.history.append(done)
        if self.callback is not None:
            self.callback(done)

    def _tight(self) -> bool:
        return self.history[-1].relative_gap <= self.target_gap

    def _corrected(self) -> Pilot:
        """Return the sample with weights that have the sums of all rows at every model read so far."""
        rows = self.rows
        models = tuple(At(self.problem, reading.anchor) for reading in self.readings)
        matched = Matched(models, self.centre)
        values = matched.values(rows.X, rows.y)
        targets, used = matched.known_sums(rows.weights @ values, self.readings)
        return corrected(self.problem, rows, values[:, used], targets[used])

    def _finish(self, solution: Solution, best: Reading, rows: Pilot) -> Trained:
        """Return the model with everything about all rows; further reads look for a tighter bound where it is loose."""
        rounding, multiplier = best.rounding, best.multiplier
        if best.needs_rows:
            known, multiplier = certify_rows(self.problem, self.source, best.anchor)
            self.upper, self.lower = known.upper, min(max(self.lower, known.lower), known.upper)
            rounding = known.rounding
            self._tell(self.upper)
        elif not self._tight():
            for bound in closer_bounds(self.source, best, self.rows):
                self.lower = min(max(self.lower, bound), self.upper)
                self._tell(self.upper)
                if self._tight():
                    break
        risk, lower = self.upper, self.lower
        status = Status.OPTIMAL if self._tight() else Status.MAX_ITER
        solution = replace(
            solution, value=risk, dual_variable=multiplier, lower_bound=lower, gap=risk - lower, dual=None,
            rounding=rounding, status=status, n_reads=self.history[-1].read,
        )  # fmt: skip
        certificate = Certificate(risk, lower, self.history[-1].read, rounding)
        return Trained(solution, certificate, tuple(self.history), rows)


def closer_bounds(source: Source, best: Reading, rows: WeightedRows) -> Iterator[float]:
    """Return bounds on the optimum that take a read each, as far as there are any for the problem."""
    problem = best.problem
    if not isinstance(best, ClosedReading) or not can_repair(problem, source.n_features):
        return iter(())
    anchor = replace(best.anchor, multiplier=best.multiplier)
    spread = spread_of(problem.family.signal_at(anchor, rows.X, rows.y), rows.weights)
    return repaired_bounds(source, problem, anchor, spread, best.level_set(best.risk))


class RadiusModels:
    """A sample in memory that trains a model of any radius.

    Every correction moves the weights of the sample, as little as possible, so that it has the sums of all rows at the
    last model that was read of every radius. The radii of a path are close to each other: sums at a few of them correct
    the others too.

    Parameters
    ----------
    problem : Problem
        Its radius is not used.
    source : Source
    rows : Pilot
        A uniform sample of the rows.
    is_whole : bool
        Whether ``rows`` are all rows of positive mass; then there is nothing to correct.
    settings : dict
        Of `solve`.
    """

    def __init__(
        self, problem: Problem, source: Source, rows: Pilot, settings: dict[str, Any], *, is_whole: bool
    ) -> None:
        self.problem, self.source, self.rows, self.is_whole = problem, source, rows, is_whole
        self.settings = settings
        self.working = rows
        self._centre = centre_of(problem, rows.X, rows.weights)
        self._known: dict[float, tuple[At, FloatArray]] = {}  # by radius: the last model that was read, and its sums

    @classmethod
    def of(cls, problem: Problem, source: Source, seed: int, settings: dict[str, Any]) -> RadiusModels | None:
        """Return the models of a sample of the source, of all rows if they are few; None where they are too wide."""
        if min(working_rows(problem, source.n_features), source.n_rows) * source.n_features > MOST_NUMBERS:
            return None
        rows = working_sample(problem, source, seed)
        return cls(problem, source, rows, settings, is_whole=is_whole(problem, source))

    def train(
        self,
        radii: Sequence[float],
        rows: Any = None,
        starts: Sequence[Solution] | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> list[Solution]:
        """Return the model of every radius, trained on the corrected sample or on other rows.

        Radii are ascending. Without ``starts`` each model sets out from that of the next larger radius. ``tell`` is
        called with the number of models that are done.
        """
        found: list[Solution] = []
        for number in reversed(range(len(radii))):
            start = (found[-1] if found else None) if starts is None else starts[number]
            at = self.problem.replace(radius=radii[number])
            given = self.working if rows is None else rows
            found.append(solve_quietly(at, given, warm_start=start, **self.settings))
            if tell is not None:
                tell(len(found))
        return found[::-1]

    def settle(self, radii: Sequence[float], rounds: int) -> list[Solution]:
        """Return models of these radii that are close to the optima on all rows: a read for each correction."""
        found = self.train(radii)
        for _ in range(0 if self.is_whole else rounds):
            self.correct(radii, found)
            before, found = found, self.train(radii, starts=found)
            steps = [np.abs(new.coef - old.coef).max() for new, old in zip(found, before, strict=True)]
            if all(step <= 1e-5 * np.abs(new.coef).max() for step, new in zip(steps, found, strict=True)):
                break  # the next step would be about the square of that
        return found

    def correct(self, radii: Sequence[float], found: Sequence[Solution]) -> None:
        """Move the weights to the sums of all rows at these models too: one read."""
        models = stack(self.problem, radii, found)
        matched = Matched(models, self._centre)
        means = read_means(self.source, matched)
        strata, blocks = means[: matched.n_strata], means[matched.n_strata :].reshape(len(models), -1)
        self._known |= {at.problem.radius: (at, block) for at, block in zip(models, blocks, strict=True)}
        known, sums = zip(*self._known.values(), strict=True)
        self.calibrate(Matched(known, self._centre), np.concatenate([strata, *sums]))

    def calibrate(self, matched: Matched, means: FloatArray) -> None:
        """Move the weights to these means of all rows, unless a class were lost by that."""
        self.working = corrected(self.problem, self.rows, matched.values(self.rows.X, self.rows.y), means)


def stack(problem: Problem, radii: Sequence[float], found: Sequence[Solution]) -> tuple[At, ...]:
    """Return problems of these radii, each with its model."""
    problems = [problem.replace(radius=radius) for radius in radii]
    return tuple(At(at, anchor_at(at, model)) for at, model in zip(problems, found, strict=True))
