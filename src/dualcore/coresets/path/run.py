"""Radius paths: one model per radius, one coreset for all of them, every model certified on the full data.

A coreset that meets the optimality conditions of the models of a few radii, its *anchors*, has them as its optima, and
between them its error is of second order. So every radius is trained on it, and one read of the data scores all models.
What is not tight enough is trained again on a larger sample, whose weights are moved to the sums of all rows there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate, trivial_bound
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.exact import plan_rows, rows_for
from dualcore.coresets.handout import HandOut
from dualcore.coresets.path.points import PathPoint, PathStep, RadiusPath
from dualcore.coresets.radii import check_radii, open_targets
from dualcore.coresets.refine import as_sampler
from dualcore.coresets.samplers import DualCoreset, Sampler
from dualcore.coresets.samplers.grid import resolve_size
from dualcore.coresets.training import RadiusModels, closer_bounds, stack
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source, is_source_like
from dualcore.problem import Data, Problem
from dualcore.reading.closed import spread_of
from dualcore.reading.models import read_models
from dualcore.reading.rowdata import source_data
from dualcore.solvers import Solution, solve
from dualcore.solvers.assess import as_source, read_model
from dualcore.solvers.choose import choose_solver
from dualcore.solvers.descent import DescentSolver
from dualcore.solvers.pilot import Pilot

# Anchors are at most this factor apart, and match no more numbers than this: an elimination takes the cube of it.
_APART, _MATCHED = 4.0, 500
# Lower bounds come from models this factor apart: between two of them the optimum is all but a line.
_BOUNDED = 1.2
# A path ends when no gap that is too large has come down to this share of itself.
_STALLED = 0.8
# Relative gap asked of the models of folds where every digit takes descent several times as long as the one before. The
# folds themselves differ by per cents.
_FOLD_TOL = 1e-3
# Width over which slopes are averaged for a second dual point near kinks, in standard deviations of the scores.
_WIDTH = 0.05


def radius_path(
    problem: Problem,
    X: Any,
    y: Any,
    radii: npt.ArrayLike,
    coreset: float | int | Sampler | None = None,
    sample_weight: Any = None,
    *,
    target_gap: float = 1e-2,
    rounds: int = 5,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
    random_state: Any = None,
    callback: Callable[[PathStep], None] | None = None,
) -> RadiusPath:
    """Train one model per radius, each from the last one's solution, and certify all of them on the full data.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The full data, as arrays or frames; or whatever `open_source` takes: a source for ``X`` with ``y=None``, a path
        and the name of its target. Labels that are not -1 and +1 are found while a path or a collection is read; the
        larger is +1.
    radii : array-like of shape (n_radii,)
        Non-negative and different, in any order.
    coreset : None, float, int or sampler, default=None
        None trains every model on the whole data. Otherwise it is the size of the one coreset of the path, which
        reproduces the models of a few radii and all but reproduces those between; every radius is trained on it, or
        on a sample of at least a dozen rows for each parameter where so few rows cannot reproduce them. Samplers other
        than `DualCoreset` draw rows for every radius.
    target_gap : float, default=1e-2
        Models whose certified relative gap is larger are trained again, on the sample, its weights corrected by a
        read of some of them.
    rounds : int, default=5
        How often at most.
    solver, tol, max_iter
        Passed to `solve`.
    random_state : int, Generator or None
    callback : callable, optional
        Called with a `PathStep` after every build, solve and certifying read.

    Returns
    -------
    RadiusPath
        ``n_builds`` says how many coresets were built.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = np.where(X @ np.ones(3) + rng.normal(size=4000) > 0, 1.0, -1.0)
    >>> path = radius_path(Problem("logistic"), X, y, np.geomspace(0.01, 0.1, 8), coreset=0.1, random_state=0)
    >>> len(path.points), path.n_builds, bool((path.relative_gap < 1e-2).all())
    (8, 1, True)
    """
    began = time.perf_counter()
    order = check_radii(radii)
    if not target_gap > 0.0:
        raise ValueError(f"target_gap must be positive, got {target_gap!r}.")
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter}
    if is_source_like(X):
        X, y, sample_weight = open_targets(problem, X, y, sample_weight), None, None
    if coreset is not None:
        sampler = as_sampler(coreset, random_state)
        source = as_source(problem, X, y, sample_weight)
        if sampler.size is None or resolve_size(sampler.size, source.n_rows) < source.n_rows:
            return _CoresetPath(problem, source, order, target_gap, settings, callback).run(sampler, rounds)
    points: list[PathPoint] = []
    reads = 0
    for number, last in enumerate(descend(problem, X, y, sample_weight, order, **settings), 1):
        passes = last.n_reads or last.iterations + 1  # in memory each iteration and the final score read all rows once
        reads += passes
        certificate = Certificate(last.value, last.lower_bound, passes, last.rounding)
        points.append(PathPoint(order[-number], replace(last, dual=None), certificate, None))
        if callback is not None:
            worst = max(point.certificate.relative_gap for point in points)
            callback(PathStep("solve", number, len(order), 0, reads, worst))
    return RadiusPath(tuple(reversed(points)), (), reads, time.perf_counter() - began)


class _CoresetPath:
    """One run: models trained on a coreset or the sample behind it, scored together, trained again if not tight."""

    def __init__(
        self,
        problem: Problem,
        source: Source,
        radii: list[float],
        target_gap: float,
        settings: dict[str, Any],
        callback: Callable[[PathStep], None] | None,
    ) -> None:
        self.began, self.first_read = time.perf_counter(), source.n_reads
        self.problem, self.problems = problem, [problem.replace(radius=radius) for radius in radii]
        self.source, self.radii, self.target_gap, self.callback = source, radii, target_gap, callback
        self.settings = settings
        self.coresets: list[Coreset] = []
        # Of every radius: the best model so far, which coreset it was trained on, its risk, and the best lower bound.
        self.models: dict[int, Solution] = {}
        self.builds: dict[int, int | None] = {}
        self.risk = np.full(len(radii), np.inf)
        self.lower = np.array([trivial_bound(at) for at in self.problems])
        self.column_sizes: FloatArray | None = None

    def run(self, sampler: Sampler, rounds: int) -> RadiusPath:
        """Return the path, trained on the rows of a sampler, or on the sample behind them."""
        seed, sample = seed_from(sampler.random_state), None
        if isinstance(sampler, DualCoreset):
            sample = RadiusModels.of(self.problem, self.source, seed, self.settings)
        if sample is None:
            self._one_by_one(replace(sampler, random_state=seed))  # type: ignore[type-var]
        else:
            size = None if sampler.size is None else resolve_size(sampler.size, self.source.n_rows)
            self._by_sample(sample, size, seed, rounds)
        points, reads = [], self.source.n_reads - self.first_read
        for k, (upper, lower) in enumerate(zip(self.risk.tolist(), self.lower.tolist(), strict=True)):
            model = replace(self.models[k], value=upper, lower_bound=lower, gap=upper - lower)
            certificate = Certificate(upper, lower, reads, model.rounding)
            points.append(PathPoint(self.radii[k], model, certificate, self.builds[k]))
        return RadiusPath(tuple(points), tuple(self.coresets), reads, time.perf_counter() - self.began)

    def _one_by_one(self, sampler: Sampler) -> None:
        """Train every radius by itself: a sampler draws for one, and so many features leave no sample for all."""
        for k, at in enumerate(self.problems):
            fit = sampler.fit(at, self.source, warm_start=self.models.get(k - 1), **self.settings)
            self.coresets.append(fit.coreset)
            self._tell("build", k + 1)
            self.models[k], self.builds[k] = fit.solution, k
            self.risk[k], self.lower[k] = fit.certificate.upper, fit.certificate.lower
            self._tell("certify", len(self.models))

    def _by_sample(self, sample: RadiusModels, size: int | None, seed: int, rounds: int) -> None:
        """Train every radius on a coreset that is exact at a few of them, and those that are loose on the sample."""
        anchors = evenly(self.radii)
        models = sample.settle([self.radii[k] for k in anchors], 1)
        coreset, is_exact = self._handout(sample, anchors, models, size, seed)
        self.coresets.append(coreset)
        self._tell("build", 1)
        self._train(sample, list(range(len(self.radii))), coreset if is_exact else None)
        alone, on_sample = self.risk.copy(), not is_exact
        for _ in range(rounds):
            gaps = self._gaps()
            loose = np.flatnonzero(gaps > self.target_gap).tolist()
            if not loose or (sample.is_whole and on_sample):
                break
            if not sample.is_whole:
                some = [loose[k] for k in evenly([self.radii[k] for k in loose])]
                sample.correct([self.radii[k] for k in some], [self.models[k] for k in some])
            self._train(sample, loose, None)
            on_sample = True
            if (self._gaps()[loose] > _STALLED * gaps[loose]).all():
                break
        for _ in range(rounds):
            k = int(np.argmax(self._gaps()))
            if self._gaps()[k] <= self.target_gap or not self._repair(k, sample.rows):
                break
        if is_exact:
            falls = (alone - self.risk) / np.maximum(np.abs(self.risk), np.finfo(float).tiny)
            self.coresets[0] = replace(coreset, excess=max(coreset.excess or 0.0, float(falls.max())))

    def _handout(
        self, sample: RadiusModels, anchors: list[int], models: list[Solution], size: int | None, seed: int
    ) -> tuple[Coreset, bool]:
        """Return the coreset of the path, and whether it reproduces the models of all anchors."""
        known = self.problem, self.source.n_features
        fitting = [n for n in range(1, len(anchors) + 1) if plan_rows(*known, size, n) is not None]
        count = min(max(fitting, default=1), max(_MATCHED // rows_for(*known, near=False), 1))
        kept = ((np.arange(count) + 0.5) * len(anchors) / count).astype(int)
        kept = np.roll(kept, -(count // 2))  # the middle one comes first, and counts most
        at, *others = stack(self.problem, [self.radii[anchors[k]] for k in kept], [models[k] for k in kept])
        coreset = HandOut(at.problem, self.source, models[kept[0]], sample.working, seed, others=others).best(size)
        return coreset, bool(fitting) and count == len(anchors)

    def _train(self, sample: RadiusModels, positions: list[int], coreset: Coreset | None) -> None:
        """Train some radii and score them; a solver's own bound holds for all rows where it saw them all."""
        starts = [self.models[k] for k in positions] if self.models else None
        radii, done = [self.radii[k] for k in positions], len(self.radii) - len(positions)
        found = sample.train(radii, coreset, starts, lambda count: self._tell("solve", done + count))
        if sample.is_whole and coreset is None:
            self.lower[positions] = np.maximum(self.lower[positions], [model.lower_bound for model in found])
        rows, build = (sample.working, None) if coreset is None else (coreset, 0)
        family = self.problem.family
        if family.is_closed and (self.problem.form.sums_decide or not family.flips):
            self._score(dict(zip(positions, found, strict=True)), rows, build)
        else:  # sums of several models say nothing of rows that are moved: a read each, or more
            for k, model in zip(positions, found, strict=True):
                reading = read_model(self.problems[k], self.source, model)
                self._note(k, model, build, reading.risk, reading.multiplier, reading.rounding)
                self.lower[k] = max(self.lower[k], reading.lower_bound(reading.risk))
        self.lower = np.minimum(self._lifted(), self.risk)
        self._tell("certify", len(self.models))

    def _score(self, found: dict[int, Solution], rows: Any, build: int | None) -> None:
        """Read the data once, and note the risks of the models and what they say of the optima."""
        bounding = [list(found)[k] for k in evenly([self.radii[k] for k in found], _BOUNDED)]
        order = [*bounding, *(k for k in found if k not in bounding)]
        models, widths = [found[k] for k in order], [0.0] * len(bounding)
        if self.problem.loss.kinks:
            signals = [self.problem.family.signal_at(found[k], rows.X, rows.y) for k in bounding]
            widths = [_WIDTH * spread_of(signal, rows.weights) for signal in signals]
        asked = models[: len(bounding)], widths, self.radii[-1], models[len(bounding) :], self.column_sizes
        read = read_models(self.source, self.problems[-1], *asked)
        self.column_sizes = read.column_sizes
        for j, k in enumerate(order):
            at = self.problems[k]
            risk, multiplier = read.risk(at, j)
            self._note(k, found[k], build, risk, multiplier, read.rounding(at, j))
            for near in range(max(j - 2, 0), min(j + 3, len(bounding))):  # a neighbour's slopes may fit better
                if j < len(bounding):
                    self.lower[k] = max(self.lower[k], read.lower_bound(at, near, risk))

    def _repair(self, k: int, rows: Pilot) -> bool:
        """Look for a closer bound at a radius, which lifts those beside it; return whether there was one."""
        before, reading = self.lower[k], read_model(self.problems[k], self.source, self.models[k])
        for bound in closer_bounds(self.source, reading, rows):
            self.lower[k] = max(self.lower[k], min(bound, self.risk[k]))
            if self._gaps()[k] <= 0.5 * self.target_gap:
                break
        self.lower = np.minimum(self._lifted(), self.risk)
        self._tell("certify", len(self.models))
        return bool(self.lower[k] > before)

    def _note(
        self, k: int, model: Solution, build: int | None, risk: float, multiplier: float, rounding: float
    ) -> None:
        """Keep a model if it is the best of its radius."""
        if risk < self.risk[k]:
            self.models[k] = replace(model, dual_variable=multiplier, dual=None, rounding=rounding)
            self.risk[k], self.builds[k] = risk, build

    def _lifted(self) -> FloatArray:
        """Return the concave hull of the lower bounds: the optimum is concave in ``sigma^p``, a minimum of lines."""
        x, y = np.array([at.price for at in self.problems]), self.lower
        hull: list[int] = []
        for k in range(x.size):
            while len(hull) > 1 and _is_below(x[[*hull[-2:], k]], y[[*hull[-2:], k]]):
                hull.pop()
            hull.append(k)
        # Rounded down: what is interpolated must not exceed what is known.
        return np.asarray(np.maximum(y, np.interp(x, x[hull], y[hull]) * (1.0 - 1e-14)))

    def _gaps(self) -> FloatArray:
        pairs = zip(self.risk.tolist(), self.lower.tolist(), strict=True)
        return np.array([Certificate(upper, lower, 0).relative_gap for upper, lower in pairs])

    def _tell(self, stage: str, done: int) -> None:
        if self.callback is not None:
            gaps = self._gaps()[sorted(self.models)]
            worst = float(gaps.max()) if gaps.size else None
            reads = self.source.n_reads - self.first_read
            self.callback(PathStep(stage, done, len(self.radii), len(self.coresets), reads, worst))


def _is_below(x: FloatArray, y: FloatArray) -> bool:
    """Whether the second of three points lies on or below the line through the other two."""
    return bool((y[1] - y[0]) * (x[2] - x[0]) <= (y[2] - y[0]) * (x[1] - x[0]))


def descend(
    problem: Problem, X: Any, y: Any, sample_weight: Any, radii: Sequence[float], **settings: Any
) -> Iterator[Solution]:
    """Yield the models of ascending radii, trained on all rows, the last one first; each sets out from the one before.

    The model of the largest radius is the simplest, and a start that is too small does not stall the solver.
    """
    last: Solution | None = None
    for radius in reversed(radii):
        last = solve(problem.replace(radius=radius), X, y, sample_weight, warm_start=last, **settings)
        yield last


def path_models(
    problem: Problem,
    X: Any,
    y: Any,
    sample_weight: Any,
    radii: npt.ArrayLike,
    coreset: Any = None,
    *,
    random_state: Any = None,
    **settings: Any,
) -> list[Solution]:
    """Return a model for every radius, ascending, to be compared with others on rows left out: without certificates.

    Parameters are those of `radius_path`. With ``coreset`` all models are trained on one sample, whose weights have
    the sums of all rows at the models of a few radii. On all rows ``tol`` is taken as `fold_tolerance` says.
    """
    order = check_radii(radii)
    if coreset is None:
        data = source_data(X) if isinstance(X, Source) else problem.validate(X, y, sample_weight)
        tol = fold_tolerance(problem, data, settings.get("solver", "auto"), settings.pop("tol", 1e-6))
        return list(descend(problem, X, y, sample_weight, order, tol=tol, **settings))[::-1]
    source, sampler = as_source(problem, X, y, sample_weight), as_sampler(coreset, random_state)
    if isinstance(sampler, DualCoreset):
        sample = RadiusModels.of(problem, source, seed_from(sampler.random_state), settings)
        if sample is not None:
            if not sample.is_whole:
                sample.settle([order[k] for k in evenly(order)], 1)
            return sample.train(order)
    path = radius_path(problem, source, None, order, sampler, **settings)
    return [point.solution for point in path.points]


def fold_tolerance(problem: Problem, data: Data, solver: str, tol: float) -> float:
    """Return the relative gap to ask of models that are only compared on rows left out, or asked for their slopes.

    It is ``tol``, but at least a thousandth where features are so many that the solver is "descent", and where rows are
    moved one by one. That moves a held-out loss by far less than folds differ by, and near zero risk, at small radii,
    saves most of the time.

    Examples
    --------
    >>> data = Problem("logistic").validate(np.eye(4), np.array([1.0, 1.0, -1.0, -1.0]))
    >>> fold_tolerance(Problem("logistic"), data, "auto", 1e-6)
    1e-06
    >>> fold_tolerance(Problem("logistic"), data, "descent", 1e-6)
    0.001
    """
    is_slow = problem.family.moves_rows or choose_solver(problem, data, solver).name == DescentSolver.name
    return max(tol, _FOLD_TOL) if is_slow else tol


def evenly(radii: Sequence[float], factor: float = _APART) -> list[int]:
    """Return positions of some ascending radii, evenly spaced in logarithm and about ``factor`` apart, with both ends.

    Examples
    --------
    >>> evenly([0.0, 0.01, 0.02, 0.03, 0.05, 0.1], 3.0)
    [0, 1, 2, 4, 5]
    """
    values = np.asarray(radii)
    first = int(np.searchsorted(values, 0.0, side="right"))  # no radius is a place of its own
    zero = [0] if first else []
    if first == values.size:
        return zero
    logs = np.log(values[first:])
    count = 1 + math.ceil((logs[-1] - logs[0]) / math.log(factor) - 1e-9)
    nearest = [int(np.argmin(np.abs(logs - goal))) for goal in np.linspace(logs[0], logs[-1], count)]
    return zero + sorted({first + k for k in nearest})
