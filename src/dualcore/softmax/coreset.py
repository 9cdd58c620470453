"""Softmax models trained on a coreset: drawn by ``h`` as the paper has it, then calibrated and re-anchored."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Certificate
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.samplers import DualCoreset, UniformCoreset, grid_coreset
from dualcore.coresets.samplers.allocate import allocate
from dualcore.coresets.samplers.calibrate import calibrate
from dualcore.coresets.samplers.resolve import resolve_size
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.softmax.problem import ClassData, SoftmaxProblem
from dualcore.softmax.solve import SoftmaxSolution, certify_softmax, solve_softmax

__all__ = ["SoftmaxFit", "check_coreset", "fit_softmax_coreset"]

# Steps of the line search on the full data from one anchor to the next.
_STEPS = (1.0, 0.5, 0.25, 0.125, 0.0625)


class SoftmaxFit(NamedTuple):
    """A softmax model trained on a coreset; value and certificate are about the full data."""

    solution: SoftmaxSolution
    certificate: Certificate
    coreset: Coreset


class _Way(NamedTuple):
    """How to draw: how many rows, by ``h`` or uniformly, calibrated or not, how often, from which seed."""

    size: Any
    by_grid: bool = True
    calibrated: bool = True
    rounds: int = 2
    seed: Any = None


def check_coreset(coreset: Any) -> _Way:
    """Return how to draw; raise for what softmax models do not support."""
    if isinstance(coreset, (int, float, np.integer, np.floating)) and not isinstance(coreset, bool):
        return _Way(coreset)
    if isinstance(coreset, UniformCoreset) and coreset.size is not None:
        return _Way(coreset.size, by_grid=False, calibrated=False, rounds=1, seed=coreset.random_state)
    if isinstance(coreset, DualCoreset):
        unknown = coreset.epsilon is not None or coreset.anchor is not None or coreset.target_gap is not None
        if coreset.size is not None and not unknown:
            return _Way(coreset.size, True, coreset.calibrate, coreset.rounds, coreset.random_state)
    raise ValueError(
        f"multi_class='multinomial' cannot train on {coreset!r}. Use a size (a number of rows or a share), "
        "UniformCoreset(size=...) or DualCoreset(size=...) without epsilon, anchor and target_gap, "
        "or multi_class='ovr', which takes every sampler."
    )


def fit_softmax_coreset(
    problem: SoftmaxProblem,
    X: Any,
    y: Any,
    coreset: Any = 0.05,
    sample_weight: Any = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
    random_state: Any = None,
) -> SoftmaxFit:
    """Train on a coreset and certify the model on the full data.

    A pilot of as many rows, drawn uniformly within the classes, gives the anchor; in each class `grid_coreset` draws
    by the size of ``h`` there (Algorithm 1), or uniformly for a `UniformCoreset`. Every class keeps its mass. Unless
    told otherwise the weights are then calibrated, so that the coreset has the mean and the gradient of ``h`` that the
    full data have at the anchor, and the anchor goes towards the coreset's model as far as the full data say, twice.

    Parameters
    ----------
    problem : SoftmaxProblem
    X, y, sample_weight
        The full data in memory, ``y`` class numbers.
    coreset : float, int, UniformCoreset or DualCoreset
        Of a `DualCoreset` size, rounds, calibrate and random_state count; rows are drawn by ``h``, whatever its focus.
    """
    way = check_coreset(coreset)
    seed = seed_from(random_state if way.seed is None else way.seed)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    rows = resolve_size(way.size, data.rows.n)
    if rows < problem.n_classes:
        raise ValueError(f"A coreset of {rows} rows cannot hold {problem.n_classes} classes: ask for more rows.")
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter}
    drawn = _draw(problem, data, np.ones(data.rows.n), rows, seed_from(seed, 1))
    rounds, reads = way.rounds if way.by_grid and rows < data.rows.n else 0, 0
    pilot = {"tol": max(tol, 1e-3)} if rounds else {}  # an anchor need not be optimal
    found = _train(problem, drawn, settings | pilot)
    for number in range(rounds):
        terms = problem.terms(found.coef, found.intercept, data)
        h = problem.row_h(terms, found.dual_variable)
        drawn = replace(_draw(problem, data, h, rows, seed_from(seed, 2 + number)), method="DualCoreset")
        reads += 1
        if not way.calibrated:
            found = _train(problem, drawn, settings)
            continue
        drawn = _calibrated(problem, data, drawn, found)
        found = _toward(problem, data, found, _train(problem, drawn, settings))
        reads += 2 + len(_STEPS)
    certificate = certify_softmax(problem, found.coef, found.intercept, data.rows, data.code, data.weights)
    multiplier = problem.evaluate(found.coef, found.intercept, data).multiplier
    scored = replace(found, value=certificate.upper, lower_bound=certificate.lower, dual_variable=multiplier)
    return SoftmaxFit(scored, replace(certificate, n_reads=certificate.n_reads + 1 + reads), drawn)


def _train(problem: SoftmaxProblem, coreset: Coreset, settings: dict[str, Any]) -> SoftmaxSolution:
    with warnings.catch_warnings():  # what a coreset's solution is worth is measured on the full data
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve_softmax(problem, coreset.X, coreset.y.astype(np.int64), coreset.weights, **settings)


def _toward(problem: SoftmaxProblem, data: ClassData, start: SoftmaxSolution, end: SoftmaxSolution) -> SoftmaxSolution:
    """Return the best model on the way, by its risk on the full data: it is convex there."""
    risk, multiplier = problem.evaluate(start.coef, start.intercept, data)
    best = replace(start, dual_variable=multiplier)
    for step in _STEPS:
        coef = start.coef + step * (end.coef - start.coef)
        intercept = start.intercept + step * (end.intercept - start.intercept)
        there = problem.evaluate(coef, intercept, data)
        if there.value < risk:
            risk = there.value
            best = replace(end, coef=coef, intercept=intercept, dual_variable=there.multiplier)
    return best


def _calibrated(problem: SoftmaxProblem, data: ClassData, coreset: Coreset, anchor: SoftmaxSolution) -> Coreset:
    """Return the coreset with weights that give class masses, mean and gradient of ``h`` as the full data have them."""
    n_classes, m = problem.n_classes, data.rows.m
    means, moment = np.zeros(2 * n_classes + 2), np.zeros((n_classes, m))
    for part, block in data.rows.blocks():
        terms, pull = _moments(problem, block, data.code[part], anchor)
        means += data.masses[part] @ terms
        moment += np.asarray(block.T @ (data.masses[part, None] * pull)).T
    code = coreset.y.astype(np.int64)
    terms, pull = _moments(problem, coreset.X, code, anchor)
    X = np.asarray(coreset.X.toarray() if hasattr(coreset.X, "toarray") else coreset.X, dtype=np.float64)
    across = (pull[:, :, None] * X[:, None, :]).reshape(len(coreset), -1)
    target = np.append(means, moment.ravel())
    found = calibrate(coreset.weights, np.column_stack([terms, across]), target)
    keep = found.weights > 0.0
    details = {**coreset.details, "calibration_residual": found.residual}
    if np.unique(code[keep]).size < problem.n_classes:
        message = "No weights that match the full data keep all classes: the draw was left uncalibrated."
        return replace(coreset, details={**details, "message": message})
    return replace(
        coreset,
        indices=coreset.indices[keep],
        X=coreset.X[keep],
        y=coreset.y[keep],
        weights=normalised(found.weights[keep]),
        details=details,
    )


def _moments(
    problem: SoftmaxProblem, X: Any, code: npt.NDArray[np.int64], anchor: SoftmaxSolution
) -> tuple[FloatArray, FloatArray]:
    """Return label, ``h`` and its slopes in multiplier and scores, one line a row; those in the scores once more."""
    gamma, labels = problem.base.geometry.label_cost, np.eye(problem.n_classes)
    scores = np.asarray(X @ anchor.coef.T) + anchor.intercept
    own, worst = np.take_along_axis(scores, code[:, None], axis=1)[:, 0], scores.argmin(axis=1)
    extra = own - scores.min(axis=1) - (anchor.dual_variable * gamma if np.isfinite(gamma) else np.inf)
    flips = extra > 0.0
    pull = softmax(scores, axis=1) - labels[np.where(flips, worst, code)]
    h = logsumexp(scores, axis=1) - own + np.maximum(extra, 0.0)
    return np.column_stack([labels[code], h, np.where(flips, -1.0, 0.0), pull]), pull


def _draw(problem: SoftmaxProblem, data: ClassData, h: FloatArray, size: int, seed: int) -> Coreset:
    """Draw by the size of ``h`` within every class; each keeps its mass."""
    masses, order = data.masses, np.argsort(data.code, kind="stable")
    counts = np.bincount(data.code[data.masses > 0.0], minlength=problem.n_classes)
    share = np.bincount(data.code, masses * (h + masses @ h), problem.n_classes).astype(np.float64)
    draws = allocate(size, counts, share)
    rows: list[npt.NDArray[np.int64]] = []
    weights: list[FloatArray] = []
    for k, members in enumerate(np.split(order, np.cumsum(np.bincount(data.code))[:-1])):
        found = grid_coreset(
            h[members],
            h[members],
            size=int(draws[k]),
            slack=float(masses @ h),
            sample_weight=masses[members],
            random_state=seed_from(seed, k),
        )
        rows.append(members[found.indices])
        weights.append(found.weights * masses[members].sum())
    chosen, weight = np.concatenate(rows), np.concatenate(weights)
    order = np.argsort(chosen)
    chosen = chosen[order]
    details = {"seed": seed, "n_classes": problem.n_classes}
    X = data.rows.take(chosen)
    y = data.code[chosen].astype(np.float64)
    return Coreset(chosen, X, y, normalised(weight[order]), data.rows.n, None, "UniformCoreset", details)
