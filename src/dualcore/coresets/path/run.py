"""Radius paths: one model per radius, a few coresets for all of them, every model certified on the full data.

A coreset built at radius ``sigma_0`` serves every radius in ``[sigma_0, 2 sigma_0]``: the multiplier, and with it the
bounds that shape the grid, moves by at most a factor of two there. The next coreset is built just beyond, so a path
over ``[a, b]`` costs about ``log2(b / a)`` builds whatever its number of radii. All models are then scored together,
in one read of the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates import Certificate, trivial_bound
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.path.points import PathPoint, PathStep, RadiusPath
from dualcore.coresets.refine import as_sampler
from dualcore.coresets.samplers import DualCoreset, Sampler
from dualcore.coresets.samplers.anchors import pilot_sample
from dualcore.coresets.samplers.base import as_anchor, finish
from dualcore.coresets.samplers.calibrate import calibrate, keeps_classes
from dualcore.coresets.samplers.resolve import resolve_size
from dualcore.coresets.samplers.strata import draw_cells, keep_fractions
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import ClassError, Source, is_source_like, open_labelled, open_source
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import first_reach, spread_of
from dualcore.reading.models import read_models
from dualcore.reading.reading import read
from dualcore.reading.summary import Pass, WeightedRows, plan_cells
from dualcore.solvers import Solution, solve, solve_quietly
from dualcore.solvers.assess import as_source, read_model
from dualcore.solvers.base import able_solver

# Radii within this factor of one that is trained may lie between two of them.
_NEAR = 1.5


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
        None trains every model on the whole data. Otherwise a coreset built at ``sigma_0`` serves the radii from
        ``sigma_0`` to ``2 sigma_0``; of radii that are close (within a factor of 1.5) some models lie on the line
        between their neighbours, and are scored and certified as all others are. On a support every radius has a
        coreset of its own, anchored at the model before.
    target_gap : float, default=1e-2
        Models whose certified relative gap is larger are trained again, on a coreset anchored at the worst of
        them. Coresets are solved to a tenth of it, or to ``tol`` if that is larger.
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
    (8, 3, True)
    """
    began = time.perf_counter()
    order = _check_radii(radii)
    if not target_gap > 0.0:
        raise ValueError(f"target_gap must be positive, got {target_gap!r}.")
    settings: dict[str, Any] = {"solver": solver, "max_iter": max_iter}
    if is_source_like(X):
        X, y, sample_weight = open_targets(problem, X, y, sample_weight), None, None
    if coreset is not None:
        sampler = as_sampler(coreset, random_state)
        source = as_source(problem, X, y, sample_weight)
        if sampler.size is None or resolve_size(sampler.size, source.n_rows) < source.n_rows:
            if not problem.family.is_closed:
                return _one_by_one(problem, source, sampler, order, settings | {"tol": tol}, callback, began)
            run = _CoresetPath(problem, source, sampler, order, target_gap, settings | {"tol": tol}, callback)
            return run.run(rounds, began)
    points: list[PathPoint] = []
    reads = 0
    last: Solution | None = None
    # From the largest radius down: its model is the simplest, and a start that is too small does not stall the solver.
    for number, radius in enumerate(reversed(order)):
        last = solve(problem.replace(radius=radius), X, y, sample_weight, tol=tol, warm_start=last, **settings)
        passes = last.n_reads or last.iterations + 1  # in memory each iteration and the final score read all rows once
        reads += passes
        certificate = Certificate(last.value, last.lower_bound, passes, last.rounding)
        points.append(PathPoint(radius, replace(last, dual=None), certificate, None))
        if callback is not None:
            worst = max(point.certificate.relative_gap for point in points)
            callback(PathStep("solve", number + 1, len(order), 0, reads, worst))
    return RadiusPath(tuple(reversed(points)), (), reads, time.perf_counter() - began)


def open_targets(problem: Problem, X: Any, y: Any, sample_weight: Any) -> Source:
    """Return a source whose targets are those of the problem: two labels, if there are any, are -1 and +1."""
    if isinstance(X, Source) or not problem.is_classification or problem.family.n_outputs > 1:
        return open_source(X, y, sample_weight)
    source, labels = open_labelled(X, y, sample_weight)
    if len(labels) > 2:
        raise ClassError(
            f"The target holds {len(labels)} classes, and {problem!r} tells two apart: use Problem('softmax', ...)."
        )
    return source


def _one_by_one(
    problem: Problem,
    source: Source,
    sampler: Sampler,
    radii: list[float],
    settings: dict[str, Any],
    callback: Callable[[PathStep], None] | None,
    began: float,
) -> RadiusPath:
    """Train a model per radius, each anchored at the last: sums of one model's moves say nothing of other radii."""
    points: list[PathPoint] = []
    coresets: list[Coreset] = []
    before, given = source.n_reads, getattr(sampler, "anchor", None)
    for number, radius in enumerate(radii):
        at = problem.replace(radius=radius)
        if isinstance(sampler, DualCoreset) and given is None and points:
            model = points[-1].solution
            multiplier = at.family.feasible_multiplier(model.coef, model.dual_variable)
            sampler = replace(sampler, anchor=Anchor(model.coef, model.intercept, multiplier))
        fit = sampler.fit(at, source, **settings)
        points.append(PathPoint(radius, fit.solution, fit.certificate, number))
        coresets.append(fit.coreset)
        if callback is not None:
            worst = max(point.certificate.relative_gap for point in points)
            callback(PathStep("certify", number + 1, len(radii), number + 1, source.n_reads - before, worst))
    return RadiusPath(tuple(points), tuple(coresets), source.n_reads - before, time.perf_counter() - began)


def _check_radii(radii: npt.ArrayLike) -> list[float]:
    values = np.asarray(radii, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"radii must be a non-empty sequence of numbers, got shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0.0).any():
        raise ValueError("radii must be finite and non-negative.")
    ordered: list[float] = np.sort(values).tolist()
    if len(set(ordered)) < len(ordered):
        raise ValueError("radii must be different from each other.")
    return ordered


def _doubling(radii: Sequence[float]) -> Iterator[list[int]]:
    """Yield the positions that one coreset serves: from ``sigma_0`` to ``2 sigma_0``."""
    group: list[int] = []
    for position, radius in enumerate(radii):
        if group and radius > 2.0 * radii[group[0]] * (1.0 + 1e-12):
            yield group
            group = []
        group.append(position)
    yield group


class _Candidate(NamedTuple):
    """A model, the coreset it was trained on, and whether it lies between two that were."""

    solution: Solution
    build: int
    between: bool = False


class _Scored(NamedTuple):
    """A model as it was scored, its moments on the full data (none if in between), its coreset."""

    model: Solution
    moments: FloatArray
    build: int


class _CoresetPath:
    """One run through coresets: build and solve group by group, score everything, train again what is not tight."""

    def __init__(
        self,
        problem: Problem,
        source: Source,
        sampler: Sampler,
        radii: list[float],
        target_gap: float,
        settings: dict[str, Any],
        callback: Callable[[PathStep], None] | None,
    ) -> None:
        self.problems = [problem.replace(radius=radius) for radius in radii]
        self.source, self.sampler, self.radii, self.target_gap = source, sampler, radii, target_gap
        self.settings = dict(settings)
        if able_solver(problem) == "structured":  # which ends well below its tolerance
            self.settings["tol"] = max(settings["tol"], 0.1 * target_gap)
        self.callback = callback
        self.seed = seed_from(sampler.random_state)
        self.refines = isinstance(sampler, DualCoreset) and sampler.epsilon is None
        self.refines = self.refines and (getattr(sampler, "calibrate", True) or getattr(sampler, "focus", True))
        self.size = 0 if sampler.size is None else resolve_size(sampler.size, source.n_rows)
        self.reach = first_reach(source.n_features + 1, self.size)
        self.first_read = source.n_reads
        self.coresets: list[Coreset] = []
        self.best: list[PathPoint | None] = [None] * len(radii)
        self.lower = [trivial_bound(at) for at in self.problems]
        self.scored: dict[int, _Scored] = {}
        self.column_sizes: FloatArray | None = None
        self.rounding: dict[int, float] = {}

    def run(self, rounds: int, began: float) -> RadiusPath:
        """Return the path."""
        self._certify(self._first())
        problem = self.problems[-1]
        # Where the slope jumps a coreset must hold the rows near the jump of the new model: only a new draw has them.
        flips = problem.is_classification and np.isfinite(problem.geometry.label_cost)
        smooth = not (problem.loss.kinks or flips)
        before = [np.inf] * len(self.radii)
        for _ in range(rounds if self.refines else 0):
            gaps = [np.inf if point is None else point.certificate.relative_gap for point in self.best]
            loose = [k for k, gap in enumerate(gaps) if gap > self.target_gap]
            if not loose:
                break
            falling = [k for k in loose if smooth and gaps[k] < 0.9 * before[k]]
            stuck = [k for k in loose if k not in falling]
            self._certify(self._again(falling) | self._redraw(stuck))
            before = gaps
        points = tuple(point for point in self.best if point is not None)
        reads = self.source.n_reads - self.first_read
        points = tuple(replace(p, certificate=replace(p.certificate, n_reads=reads)) for p in points)
        return RadiusPath(points, tuple(self.coresets), reads, time.perf_counter() - began)

    def _first(self) -> dict[int, _Candidate]:
        """Train a model per radius, group by group."""
        found: dict[int, _Candidate] = {}
        trail: list[tuple[float, Solution]] = []
        for group in _doubling(self.radii):
            begin, rows = self._pilot(group[0]) if not trail else (self._ahead(trail, group[0]), self.coresets[-1])
            coreset = self._build(group[0], begin, rows)
            knots = self._knots(group)
            for k in knots:
                begin = self._ahead(trail, k) if trail else begin
                trail.append((self.radii[k], self._solve(k, coreset, begin)))
                found[k] = _Candidate(trail[-1][1], len(self.coresets) - 1)
                self._tell("solve", len(found))
            for left, right in pairwise(knots):
                for k in range(left + 1, right):
                    found[k] = self._between(k, left, right, found)
            self._tell("solve", len(found))
        return found

    def _knots(self, group: list[int]) -> list[int]:
        """Return the radii to train at: all, but for those within a short factor of two that are."""
        knots = [group[0]]
        for k, after in pairwise(group):
            if k > knots[-1] and self.radii[after] > _NEAR * self.radii[knots[-1]]:
                knots.append(k)
        return knots if len(group) == 1 else [*knots, group[-1]]

    def _between(self, k: int, left: int, right: int, found: dict[int, _Candidate]) -> _Candidate:
        """Return the model on the line between two: near solutions of near radii it is all but the solution."""
        a, b = found[left].solution, found[right].solution
        share = (self.radii[k] - self.radii[left]) / (self.radii[right] - self.radii[left])
        mixed = replace(
            a,
            coef=a.coef + share * (b.coef - a.coef),
            intercept=a.intercept + share * (b.intercept - a.intercept),
            dual_variable=a.dual_variable + share * (b.dual_variable - a.dual_variable),
            solver="interpolation",
            iterations=0,
            history=(),
            dual=None,
        )
        return _Candidate(mixed, found[left].build, between=True)

    def _ahead(self, trail: list[tuple[float, Solution]], position: int) -> Solution:
        """Return the last model, moved on along the line through the last two."""
        at, last = trail[-1]
        if len(trail) < 2:
            return last
        before, previous = trail[-2]
        step = min(1.0, (self.radii[position] - at) / (at - before))
        coef = last.coef + step * (last.coef - previous.coef)
        return replace(last, coef=coef, intercept=last.intercept + step * (last.intercept - previous.intercept))

    def _again(self, loose: list[int]) -> dict[int, _Candidate]:
        """Train loose models again: each on its coreset, the weights calibrated at the model itself.

        The read that scored a model knows its gradient on the full data, so this takes no draw and no read.
        """
        found: dict[int, _Candidate] = {}
        for k in loose:
            model, moments, build = self.scored[k]
            rows = self.coresets[build]
            if moments.size:
                basis = _moment_matrix(self.problems[k], rows, model)
                weights = calibrate(rows.weights, basis, moments).weights
                if not self.problems[k].is_classification or keeps_classes(rows.y, rows.weights, weights):
                    rows = replace(rows, weights=weights)
            found[k] = _Candidate(self._solve(k, rows, model), build)
        return found

    def _redraw(self, loose: list[int]) -> dict[int, _Candidate]:
        """Train loose models again: for radii within a factor of two, on a new draw around the worst of them."""
        found: dict[int, _Candidate] = {}
        self.reach = max(0.5 * self.reach, 1e-3)
        for group in _doubling([self.radii[k] for k in loose]) if loose else ():
            known = {loose[k]: point for k in group if (point := self.best[loose[k]]) is not None}
            worst = max(known, key=lambda k: known[k].certificate.relative_gap)
            coreset = self._build(worst, known[worst].solution, self.coresets[self.scored[worst].build])
            for k, point in known.items():
                found[k] = _Candidate(self._solve(k, coreset, point.solution), len(self.coresets) - 1)
        return found

    def _solve(self, position: int, rows: WeightedRows, start: Solution | None) -> Solution:
        return solve_quietly(self.problems[position], rows, warm_start=start, **self.settings)

    def _pilot(self, position: int) -> tuple[Solution | None, WeightedRows | None]:
        """Return a model to start from, and rows to estimate cells from; None where the sampler draws its own."""
        if not self.refines:
            return None, None
        rows = pilot_sample(self.problems[position], self.source, self.size, seed_from(self.seed, 1))
        return self._solve(position, rows, None), rows

    def _build(self, position: int, model: Solution | None, rows: WeightedRows | None) -> Coreset:
        """Build a coreset around a model; rows that are already known price it and estimate the cells beforehand."""
        problem, sampler, seed = self.problems[position], self.sampler, seed_from(self.seed, 2 + len(self.coresets))
        anchor = None
        if model is not None and rows is not None:
            t, size = problem.family.signal_at(model, rows.X, rows.y), problem.size(model.coef)
            multiplier = problem.form.minimise(t, rows.weights, size).multiplier
            anchor = Anchor(model.coef, model.intercept, problem.family.feasible_multiplier(model.coef, multiplier))
        if isinstance(sampler, DualCoreset) and self.refines and anchor is not None and rows is not None:
            if not self.coresets and sampler.anchor is not None:
                anchor = as_anchor(sampler.anchor, problem, self.source.n_features)
            coreset = self._draw(problem, sampler, anchor, rows, seed)
        else:
            if isinstance(sampler, DualCoreset) and anchor is not None:
                sampler = replace(sampler, anchor=anchor)
            coreset = sampler.draw(problem, self.source, self.size or self.source.n_rows, seed)
        self.coresets.append(coreset)
        self._tell("build", len(self.coresets))
        return coreset

    def _draw(self, problem: Problem, sampler: DualCoreset, anchor: Anchor, rows: WeightedRows, seed: int) -> Coreset:
        plan = plan_cells(problem, anchor, rows, self.size, self.reach, focused=sampler.focus)
        keep = keep_fractions(plan.rule, plan.mass, self.size, self.source.n_rows)
        reading = read(self.source, Pass(problem, anchor, plan.rule, seed, keep))
        return draw_cells(reading, self.size, calibrated=sampler.calibrate)

    def _certify(self, found: dict[int, _Candidate]) -> None:
        """Score models on the full data in one read; keep the best of each radius, and the best lower bounds."""
        positions = sorted(found)
        problem = self.problems[positions[-1]]
        if problem.family.flips and not problem.form.sums_decide:
            self.refines, moments, scores = False, dict.fromkeys(positions, np.empty(0)), {}
            for k in positions:  # flips of order 2 cannot be told from sums of several models: a read each
                reading = read_model(self.problems[k], self.source, found[k].solution)
                scores[k] = (reading.risk, reading.multiplier)
                self.rounding[k] = reading.rounding
                self.lower[k] = max(self.lower[k], reading.lower_bound(reading.risk))
        else:
            scores, moments = self._score(problem, found)
        self._lift_bounds()
        for k in positions:
            (risk, multiplier), old, solution = scores[k], self.best[k], found[k].solution
            build, rounding = found[k].build, self.rounding[k]
            # Near the optimum risks differ by less than the gap: a fresh model is then worth more than the last digit.
            if old is None or risk <= old.certificate.upper + 0.5 * old.certificate.gap:
                self.scored[k] = _Scored(solution, moments[k], build)
            if old is not None and old.certificate.upper <= risk:
                risk, multiplier = old.certificate.upper, old.solution.dual_variable
                solution, build = old.solution, old.build if old.build is not None else build
                rounding = old.certificate.rounding  # of the model that is kept
            known = (self.lower[k], self.coresets[build], (), self.source.n_reads, rounding)
            fit = finish(solution, risk, multiplier, *known)
            self.best[k] = PathPoint(self.radii[k], fit.solution, fit.certificate, build)
        self._tell("certify", sum(point is not None for point in self.best))

    def _score(
        self, problem: Problem, found: dict[int, _Candidate]
    ) -> tuple[dict[int, tuple[float, float]], dict[int, FloatArray]]:
        """Read the data once; return risks and multipliers, and the moments of the models that were trained."""
        trained = [k for k in sorted(found) if not found[k].between]
        others = [k for k in sorted(found) if found[k].between]
        share = 0.3 * self.reach if problem.loss.kinks else 0.0
        widths = [share * self._spread(found[k]) if share else 0.0 for k in trained]
        models = [found[k].solution for k in trained]
        mixed, largest = [found[k].solution for k in others], self.radii[-1]
        scores = read_models(self.source, problem, models, widths, largest, mixed, self.column_sizes)
        self.column_sizes = scores.column_sizes
        numbered = dict(enumerate([*trained, *others]))
        risks = {k: scores.risk(self.problems[k], j) for j, k in numbered.items()}
        self.rounding |= {k: scores.rounding(self.problems[k], j) for j, k in numbered.items()}
        for j, k in enumerate(trained):
            for near in range(max(j - 1, 0), min(j + 2, len(trained))):  # a neighbour's slopes may fit better
                self.lower[k] = max(self.lower[k], scores.lower_bound(self.problems[k], near, risks[k][0]))
        return risks, {k: scores.moments(j) if j < len(trained) else np.empty(0) for j, k in numbered.items()}

    def _lift_bounds(self) -> None:
        """Lift lower bounds to their concave hull: the optimum is concave in ``sigma^p``, being a minimum of lines."""
        prices = [at.price for at in self.problems]
        hull: list[int] = []
        for k in range(len(prices)):
            while len(hull) > 1 and _is_below(prices, self.lower, hull[-2], hull[-1], k):
                hull.pop()
            hull.append(k)
        for left, right in pairwise(hull):
            for k in range(left + 1, right):
                share = (prices[k] - prices[left]) / (prices[right] - prices[left])
                # Rounded down: what is interpolated must not exceed what is known.
                line = self.lower[left] + share * (self.lower[right] - self.lower[left])
                self.lower[k] = max(self.lower[k], line * (1.0 - 1e-14))

    def _spread(self, candidate: _Candidate) -> float:
        rows = self.coresets[candidate.build]
        return spread_of(self.problems[0].family.signal_at(candidate.solution, rows.X, rows.y), rows.weights)

    def _tell(self, stage: str, done: int) -> None:
        if self.callback is not None:
            gaps = [point.certificate.relative_gap for point in self.best if point is not None]
            reads = self.source.n_reads - self.first_read
            worst = max(gaps, default=None)
            self.callback(PathStep(stage, done, len(self.radii), len(self.coresets), reads, worst))


def _is_below(x: list[float], y: list[float], left: int, middle: int, right: int) -> bool:
    """Whether the middle point lies on or below the line through the other two."""
    return (y[middle] - y[left]) * (x[right] - x[left]) <= (y[right] - y[left]) * (x[middle] - x[left])


def _moment_matrix(problem: Problem, rows: WeightedRows, model: Solution) -> FloatArray:
    """Return of every row what `ModelReadings.moments` sums over the full data, shape (size, n_moments)."""
    t = problem.family.signal_at(model, rows.X, rows.y)
    value, slope = problem.loss.value_and_slope(t)
    gains, flipped = problem.form.flip_gains(t), np.zeros(t.size, dtype=bool)
    if gains is not None:
        flipped = gains > max(model.dual_variable, problem.kappa(model.coef)) * problem.geometry.label_cost
        slope = np.where(flipped, -problem.loss.slope(-t), slope)
    score_slope = slope * rows.y if problem.is_classification else slope
    positive = rows.y > 0.0 if problem.is_classification else np.zeros(t.size)
    X = rows.X.toarray() if sp.issparse(rows.X) else rows.X
    return np.column_stack([positive, value, score_slope, X * score_slope[:, None], flipped]).astype(np.float64)
