"""Radius paths: one model per radius, one coreset for all of them, every model certified on the full data.

A coreset that meets the optimality conditions of the models of a few radii, its *anchors*, has these models as optima,
and between them its error is of second order. So every radius is trained on it, and one read of the data scores all
models. Models whose certified gap is too large are trained again on a larger sample, whose weights are corrected to the
sums of all rows at these models.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.exact import CoresetBuilder, Optima, columns_of
from dualcore.coresets.fit import as_sampler
from dualcore.coresets.radii import check_radii, evenly, open_targets
from dualcore.coresets.sample import WorkingSample
from dualcore.coresets.samplers import DualCoreset, Sampler
from dualcore.coresets.samplers.grid import resolve_size
from dualcore.coresets.training import CertifiedModels
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source, is_source_like
from dualcore.problem import Problem
from dualcore.reading.rowdata import source_data
from dualcore.solvers import Solution, solve
from dualcore.solvers.assess import as_source
from dualcore.solvers.choose import choose_solver, fold_tolerance
from dualcore.solvers.softmax import ClassDescentSolver, class_models

# Limit on the matched numbers d of all anchors, because recombination takes O(d^3).
_MATCHED = 500


@dataclass(frozen=True)
class PathPoint:
    """The model of one radius."""

    radius: float
    solution: Solution  # its ``value``, ``lower_bound`` and ``gap`` are about the full data
    certificate: Certificate
    build: int | None  # index of the coreset that it was trained on; None for all rows, or a sample of them


@dataclass(frozen=True)
class PathStep:
    """Progress of a path: ``stage`` is "build", "solve" or "certify"; ``worst_gap`` is None before any certificate."""

    stage: str
    done: int
    total: int
    n_builds: int
    n_reads: int
    worst_gap: float | None


Told = Callable[[PathStep], None]


@dataclass(frozen=True)
class RadiusPath:
    """Models for a range of radii, ascending.

    Attributes
    ----------
    points : tuple of PathPoint
    coresets : tuple of Coreset
        In the order they were built; empty where every model was trained on the whole data.
    n_reads : int
        Number of reads of the whole data, for all points together.
    seconds : float

    Examples
    --------
    >>> from dualcore import Problem, radius_path
    >>> path = radius_path(Problem("hinge"), [[2.0], [1.0], [-1.0], [-2.0]], [1.0, 1.0, -1.0, -1.0], [0.5, 0.25])
    >>> path.radii, path.risk.round(4)
    (array([0.25, 0.5 ]), array([0.25, 0.5 ]))
    """

    points: tuple[PathPoint, ...]
    coresets: tuple[Coreset, ...]
    n_reads: int
    seconds: float

    @property
    def n_builds(self) -> int:
        """How many coresets were built."""
        return len(self.coresets)

    @property
    def radii(self) -> FloatArray:
        """The radii, shape (n_radii,)."""
        return np.array([point.radius for point in self.points])

    @property
    def coef(self) -> FloatArray:
        """The coefficients, shape (n_radii, n_features)."""
        return np.stack([point.solution.coef for point in self.points])

    @property
    def intercept(self) -> FloatArray:
        """The intercepts, shape (n_radii,)."""
        return np.array([point.solution.intercept for point in self.points])

    @property
    def risk(self) -> FloatArray:
        """The worst-case risks on the full data, each at its own radius, shape (n_radii,)."""
        return np.array([point.certificate.upper for point in self.points])

    @property
    def relative_gap(self) -> FloatArray:
        """The certified relative gaps, shape (n_radii,)."""
        return np.array([point.certificate.relative_gap for point in self.points])

    def __repr__(self) -> str:
        return (
            f"<RadiusPath of {len(self.points)} radii from {self.points[0].radius:g} to {self.points[-1].radius:g}: "
            f"{self.n_builds} coreset{'s' * (self.n_builds != 1)}, {self.n_reads} reads, largest certified gap "
            f"{self.relative_gap.max():.2e}>"
        )


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
    callback: Told | None = None,
) -> RadiusPath:
    """Train one model per radius, each from the solution of the previous one, and certify all on the full data.

    Parameters
    ----------
    problem : Problem
        Its own radius is not used.
    X, y, sample_weight
        The full data, as arrays or frames, or anything that `open_source` takes: a source for ``X`` with ``y=None``, a
        path and the name of its target. Two other labels in a path or a collection become -1 and +1; the larger is +1.
    radii : array-like of shape (n_radii,)
        Non-negative and different, in any order.
    coreset : None, float, int or sampler, default=None
        None trains every model on the whole data. Otherwise it is the size of a coreset that reproduces the models of a
        few radii, and approximately those between. Every radius is trained on it, or, if it is too small for that, on a
        sample of at least a dozen rows per parameter. Samplers other than `DualCoreset` draw rows for every radius.
    target_gap : float, default=1e-2
        Models whose certified relative gap is larger are trained again on the sample, with weights corrected by a read
        at some of them.
    rounds : int, default=5
        Limit on these corrections.
    solver, tol, max_iter
        Passed to `solve`.
    random_state : int, Generator or None
    callback : callable, optional
        Called with a `PathStep` after every build, solve and certifying read.

    Returns
    -------
    RadiusPath
        ``n_builds`` is the number of coresets.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = np.where(X @ np.ones(3) + rng.normal(size=4000) > 0, 1.0, -1.0)
    >>> path = radius_path(Problem("logistic"), X, y, np.geomspace(0.01, 0.1, 8), coreset=0.1, random_state=0)
    >>> len(path.points), path.n_builds, bool((path.relative_gap < 1e-2).all())
    (8, 1, True)
    """
    order = check_radii(radii)
    if not target_gap > 0.0:
        raise ValueError(f"target_gap must be positive, got {target_gap!r}.")
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter}
    if is_source_like(X, y):
        X, y, sample_weight = open_targets(problem, X, y, sample_weight), None, None
    tell = callback or (lambda _: None)
    if coreset is not None:
        source, sampler = as_source(problem, X, y, sample_weight), as_sampler(coreset, random_state)
        seed = seed_from(sampler.random_state)
        size = None if sampler.size is None else resolve_size(sampler.size, source.n_rows)
        if size is None or size < source.n_rows:
            if isinstance(sampler, DualCoreset):
                sample = WorkingSample.of(problem.replace(radius=order[-1]), source, seed, settings)
                if not sample.is_thin:
                    return _on_coreset(sample, order, size, seed, target_gap, rounds, tell)
            sampler = replace(sampler, random_state=seed)  # type: ignore[type-var]
            return _one_by_one(problem, (source,), order, sampler, settings, tell)
    return _one_by_one(problem, (X, y, sample_weight), order, None, settings, tell)


def _on_coreset(
    sample: WorkingSample, radii: list[float], size: int | None, seed: int, target_gap: float, rounds: int, told: Told
) -> RadiusPath:
    """Train every radius on a coreset that is exact at a few of them; train again on the sample if a gap is large."""
    began, coresets = time.perf_counter(), list[Coreset]()

    def tell(stage: str, done: int) -> None:
        gaps = models.gaps()[sorted(models.models)]
        worst = float(gaps.max()) if gaps.size else None
        told(PathStep(stage, done, len(radii), len(coresets), models.n_reads, worst))

    models, anchors = CertifiedModels(sample, radii, target_gap, tell), [radii[k] for k in evenly(radii)]
    fixed, own = columns_of(sample.problem, sample.source.n_features)
    most = (_MATCHED if size is None else min(size, _MATCHED)) - fixed
    is_exact = most >= len(anchors) * own and not sample.problem.family.moves_rows
    count = min(max(most // own, 1), len(anchors))
    # The middle one comes first: `CoresetBuilder` measures the excess at the first model.
    kept = np.roll(((np.arange(count) + 0.5) * len(anchors) / count).astype(int), -(count // 2))
    found = sample.train_corrected(anchors, 2)
    chosen = [(sample.problem.replace(radius=anchors[k]), found[k]) for k in kept]
    coreset = CoresetBuilder(sample.source, Optima(chosen, sample.working, seed, size)).best()
    coresets.append(coreset)
    tell("build", 1)
    models.train(list(range(len(radii))), coreset if is_exact else None)
    alone = models.risk.copy()
    models.improve(rounds)
    models.tighten(rounds)
    if is_exact:
        falls = (alone - models.risk) / np.maximum(np.abs(models.risk), np.finfo(float).tiny)
        coresets = [replace(coreset, excess=max(coreset.excess or 0.0, float(falls.max())))]
    builds = [0 if models.trained_on[k][0] is coreset else None for k in range(len(radii))]
    points = [PathPoint(radius, *models.found(k), builds[k]) for k, radius in enumerate(radii)]
    return RadiusPath(tuple(points), tuple(coresets), models.n_reads, time.perf_counter() - began)


def _one_by_one(
    problem: Problem, data: tuple[Any, ...], radii: list[float], sampler: Sampler | None, settings: Any, told: Told
) -> RadiusPath:
    """Train every radius separately, on all rows or on those that a sampler draws for it.

    The model of the largest radius comes first, because it is the simplest; each other model starts from the previous.
    """
    began, reads, points, coresets = time.perf_counter(), 0, list[PathPoint](), list[Coreset]()
    for number, radius in enumerate(reversed(radii), 1):
        at, start = problem.replace(radius=radius), points[-1].solution if points else None
        if start and problem.family.moves_rows and points[-1].radius * start.dual_variable < 0.05 * start.value:
            start = None  # near the zero model, where the norm is not smooth, steps are short
        if sampler is None:
            model = solve(at, *data, warm_start=start, **settings)
            passes = model.n_reads or model.iterations + 1  # in memory every iteration and the score read all rows
            certificate = Certificate(model.value, model.lower_bound, passes, model.rounding)
        else:
            before, fit = data[0].n_reads, sampler.fit(at, *data, warm_start=start, **settings)
            model, certificate, passes = fit.solution, fit.certificate, data[0].n_reads - before
            coresets.append(fit.coreset)
        reads += passes
        points.append(PathPoint(radius, replace(model, dual=None), certificate, number - 1 if sampler else None))
        worst = max(point.certificate.relative_gap for point in points)
        for stage in ("build", "certify") if sampler else ("solve",):
            told(PathStep(stage, number, len(radii), len(coresets), reads, worst))
    return RadiusPath(tuple(reversed(points)), tuple(coresets), reads, time.perf_counter() - began)


def path_models(
    problem: Problem, X: Any, y: Any, sample_weight: Any, radii: npt.ArrayLike, coreset: Any = None, **settings: Any
) -> list[Any]:
    """Return a model for every radius, ascending, for comparison on held-out rows, without certificates.

    A model has the attributes ``coef`` and ``intercept``.
    Parameters are those of `radius_path`. With ``coreset`` all models are trained on one sample, whose weights match
    the sums of all rows at the models of a few radii. On all rows the tolerance is that of `fold_tolerance`.
    """
    order, random_state = check_radii(radii), settings.pop("random_state", None)
    problem, solver = problem.replace(radius=order[-1]), settings.get("solver", "auto")
    if coreset is None:
        data = source_data(X) if isinstance(X, Source) else problem.validate(X, y, sample_weight)
        settings["tol"] = fold_tolerance(problem, data, solver, settings.get("tol", 1e-6))
        if isinstance(choose_solver(problem, data, solver), ClassDescentSolver):
            return class_models(problem, data, order, 0.2 * settings["tol"], settings.get("max_iter", 200))
    elif isinstance(sampler := as_sampler(coreset, random_state), DualCoreset):
        source = as_source(problem, X, y, sample_weight)
        sample = WorkingSample.of(problem, source, seed_from(sampler.random_state), settings)
        if not sample.is_thin:
            if not sample.is_whole:
                sample.train_corrected([order[k] for k in evenly(order)], 1)
            return sample.train(order)
    path = radius_path(problem, X, y, order, coreset, sample_weight, random_state=random_state, **settings)
    return [point.solution for point in path.points]
