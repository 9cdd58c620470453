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
    centre: Anchor,
    *,
    radius: float,
    queries: int,
    ascents: int,
    seed: int,
) -> Measured:
    """Return ``sup |H~/H - 1|`` over random queries in a ball, the worst of them pushed further uphill.

    ``full`` and ``part`` are the full data and the coreset; the rest is as in `Coreset.measure`. Multipliers are drawn
    from the interval that holds the optimum of each model.
    """
    rng = np.random.default_rng(seed)
    home = np.append(centre.coef, centre.intercept)
    n_numbers = home.size
    tried = 0

    def error(point: FloatArray, share: float) -> float:
        nonlocal tried
        tried += 1
        model = _model(problem, full, point, share, centre)
        whole, few = (_mean_h(problem, data, model) for data in (full, part))
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
    found_at = _model(problem, full, best_point, best_share, centre)
    return Measured(best, worst_random, found_at.coef, found_at.intercept, found_at.multiplier, tried)


def _model(problem: Problem, data: Data, point: FloatArray, share: float, centre: Anchor) -> Anchor:
    """Return the model of all its numbers in a row, with a share of the way through the interval of its multiplier."""
    family, coef = problem.family, point[: centre.coef.size].reshape(centre.coef.shape)
    intercept = centre.intercept
    if problem.fit_intercept:
        rest = point[coef.size :]
        intercept = rest if np.ndim(intercept) else float(rest[0])
    low, high = family.kappa(coef), family.largest_multiplier(data.rows, data.y, coef, intercept)
    if not np.isfinite(high):
        high = 2.0 * low + 1.0
    if not family.finite_at_kappa:
        low += 1e-3 * (high - low)
    return Anchor(coef, intercept, low + share * (high - low))


def _mean_h(problem: Problem, data: Data, model: Anchor) -> float:
    return weighted_sum(problem.family.bounds(model, data.rows, data.y)[1], data.weights)
