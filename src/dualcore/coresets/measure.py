"""Measured epsilon: how far the coreset's objective is from the full data's, over models near the anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Anchor, Data, Problem
from dualcore.problem.forms import weighted_sum


@dataclass(frozen=True)
class Measured:
    """The largest relative error found.

    Attributes
    ----------
    epsilon : float
        ``sup |H~ / H - 1|`` over everything tried.
    random_epsilon : float
        The largest among the random queries alone, before any was pushed uphill.
    coef, intercept, multiplier
        Where it was found.
    n_queries : int
        How many models were tried in all.
    """

    epsilon: float
    random_epsilon: float
    coef: FloatArray
    intercept: Any
    multiplier: float
    n_queries: int


def measure_epsilon(
    problem: Problem,
    full: Data,
    part: Data,
    centre: tuple[FloatArray, Any, float],
    *,
    radius: float,
    queries: int,
    ascents: int,
    seed: int,
) -> Measured:
    """Return ``sup |H~/H - 1|`` over random queries in a ball, the worst of them pushed further uphill.

    Parameters
    ----------
    full, part : Data
        The full data and the coreset, validated.
    centre : (coef, intercept, multiplier)
    radius : float
        Of the ball, in the Euclidean norm of (coef, intercept).
    queries : int
        Random models; multipliers are drawn from the interval that holds the optimum of each.
    ascents : int
        How many of the worst are maximised locally, so that the figure is not flattered.
    """
    rng = np.random.default_rng(seed)
    home = np.append(centre[0], centre[1])
    n_numbers = home.size
    tried = 0

    def error(point: FloatArray, share: float) -> float:
        nonlocal tried
        tried += 1
        coef, intercept = _model(problem, point, centre)
        multiplier = _multiplier(problem, full, coef, intercept, share)
        whole = _mean_h(problem, full, coef, intercept, multiplier)
        few = _mean_h(problem, part, coef, intercept, multiplier)
        return abs(few / whole - 1.0) if whole > 0.0 else (0.0 if few == 0.0 else np.inf)

    points, shares, errors = [], [], []
    for _ in range(queries):
        step = rng.normal(size=n_numbers)
        step *= radius * rng.random() ** (1.0 / n_numbers) / np.linalg.norm(step)
        points.append(home + step)
        shares.append(float(rng.random()))
        errors.append(error(points[-1], shares[-1]))
    worst_random = max(errors, default=0.0)
    best, best_point, best_share = worst_random, points[int(np.argmax(errors))], shares[int(np.argmax(errors))]
    for k in np.argsort(errors)[::-1][:ascents]:
        point, share, value, length = points[k], shares[k], errors[k], 0.5 * radius
        while length > 1e-3 * radius:  # a random-direction pattern search that stays in the ball
            improved = False
            for _ in range(8):
                direction = rng.normal(size=n_numbers)
                trial = point + length * direction / np.linalg.norm(direction)
                away = trial - home
                trial = home + away * min(1.0, radius / float(np.linalg.norm(away)))
                trial_share = float(np.clip(share + 0.3 * rng.normal(), 0.0, 1.0))
                found = error(trial, trial_share)
                if found > value:
                    point, share, value, improved = trial, trial_share, found, True
            if not improved:
                length *= 0.5
        if value > best:
            best, best_point, best_share = value, point, share
    coef, intercept = _model(problem, best_point, centre)
    multiplier = _multiplier(problem, full, coef, intercept, best_share)
    return Measured(best, worst_random, coef, intercept, multiplier, tried)


def _model(problem: Problem, point: FloatArray, centre: tuple[FloatArray, Any, float]) -> tuple[FloatArray, Any]:
    """Return coefficients and intercept from all their numbers in a row."""
    coef = point[: centre[0].size].reshape(centre[0].shape)
    if not problem.fit_intercept:
        return coef, centre[1]
    rest = point[centre[0].size :]
    return coef, rest if np.ndim(centre[1]) else float(rest[0])


def _multiplier(problem: Problem, data: Data, coef: FloatArray, intercept: Any, share: float) -> float:
    family = problem.family
    low, high = family.kappa(coef), family.largest_multiplier(data.rows, data.y, coef, intercept)
    if not np.isfinite(high):
        high = 2.0 * low + 1.0
    if not family.finite_at_kappa:
        low += 1e-3 * (high - low)
    return low + share * (high - low)


def _mean_h(problem: Problem, data: Data, coef: FloatArray, intercept: Any, multiplier: float) -> float:
    h = problem.family.bounds(Anchor(coef, intercept, multiplier), data.rows, data.y)[1]
    return weighted_sum(h, data.weights)
