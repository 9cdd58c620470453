"""Softmax models trained on a coreset: the paper's construction, which needs nothing of a model but its ``h``."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificate import Certificate
from dualcore.coreset import Coreset, normalised
from dualcore.geometry import FloatArray
from dualcore.keys import seed_from
from dualcore.samplers import DualCoreset, UniformCoreset, grid_coreset
from dualcore.samplers.allocate import allocate
from dualcore.samplers.resolve import resolve_size
from dualcore.softmax.problem import ClassData, SoftmaxProblem
from dualcore.softmax.solve import SoftmaxSolution, certify_softmax, solve_softmax

__all__ = ["SoftmaxFit", "check_coreset", "fit_softmax_coreset"]


class SoftmaxFit(NamedTuple):
    """A softmax model trained on a coreset; value and certificate are about the full data."""

    solution: SoftmaxSolution
    certificate: Certificate
    coreset: Coreset


def check_coreset(coreset: Any) -> tuple[float | int, bool, Any]:
    """Return size, whether to draw by the grid, and seed; raise for what softmax models do not support."""
    is_number = isinstance(coreset, (int, float, np.integer, np.floating)) and not isinstance(coreset, bool)
    if is_number:
        return coreset, True, None
    if isinstance(coreset, UniformCoreset) and coreset.size is not None:
        return coreset.size, False, coreset.random_state
    written = isinstance(coreset, DualCoreset) and not (coreset.calibrate or coreset.focus)
    if written and coreset.size is not None and coreset.epsilon is None and coreset.anchor is None:
        return coreset.size, True, coreset.random_state
    raise ValueError(
        f"multi_class='multinomial' cannot train on {coreset!r}. Use a size (a number of rows or a share), "
        "UniformCoreset(size=...) or Algorithm 1, DualCoreset(size=..., calibrate=False, focus=False), "
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
    by the size of ``h`` there (Algorithm 1), or uniformly for a `UniformCoreset`. Every class keeps its mass.

    Parameters
    ----------
    problem : SoftmaxProblem
    X, y, sample_weight
        The full data in memory, ``y`` class numbers.
    coreset : float, int, UniformCoreset, or DualCoreset(calibrate=False, focus=False)
    """
    size, by_grid, own_seed = check_coreset(coreset)
    seed = seed_from(random_state if own_seed is None else own_seed)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    rows = resolve_size(size, data.rows.n)
    if rows < problem.n_classes:
        raise ValueError(f"A coreset of {rows} rows cannot hold {problem.n_classes} classes: ask for more rows.")
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter}
    drawn = _draw(problem, data, np.ones(data.rows.n), rows, seed_from(seed, 1))
    if by_grid:
        with warnings.catch_warnings():  # an anchor need not be optimal
            warnings.simplefilter("ignore", ConvergenceWarning)
            pilot = solve_softmax(problem, drawn.X, drawn.y.astype(np.int64), drawn.weights, **settings)
        h = problem.h(pilot.coef, pilot.intercept, pilot.dual_variable, data.rows, data.code)
        drawn = replace(_draw(problem, data, h, rows, seed_from(seed, 2)), method="DualCoreset")
    found = solve_softmax(problem, drawn.X, drawn.y.astype(np.int64), drawn.weights, **settings)
    certificate = certify_softmax(problem, found.coef, found.intercept, data.rows, data.code, data.weights)
    multiplier = problem.evaluate(found.coef, found.intercept, data).multiplier
    scored = replace(found, value=certificate.upper, lower_bound=certificate.lower, dual_variable=multiplier)
    return SoftmaxFit(scored, replace(certificate, n_reads=certificate.n_reads + 1 + int(by_grid)), drawn)


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
