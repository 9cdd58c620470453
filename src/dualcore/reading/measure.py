"""Measured epsilon: the largest relative error of a coreset's objective over models near the anchor."""

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
        Largest ``|H~ / H - 1|`` over all models tried.
    random_epsilon : float
        The largest among the random queries alone, before any was improved by local search.
    coef, intercept, multiplier
        The model at which it was found.
    n_queries : int
        Number of models tried.
    """

    epsilon: float
    random_epsilon: float
    coef: FloatArray
    intercept: Any
    multiplier: float
    n_queries: int


def measure_epsilon(
    problem: Problem, full: Data, part: Data, centre: Anchor, *, radius: float, queries: int, ascents: int, seed: int
) -> Measured:
    """Return ``sup |H~/H - 1|`` over random queries in a ball, the worst of them improved by local search.

    ``full`` and ``part`` are the full data and the coreset; the rest is as in `Coreset.measure`. Multipliers are drawn
    from the interval that holds the optimum of each model.
    """
    rng, origin, tried = np.random.default_rng(seed), np.append(centre.coef, centre.intercept), 0

    def query(away: FloatArray, share: float) -> tuple[float, FloatArray, float]:
        nonlocal tried
        tried += 1
        away = away * min(1.0, radius / max(float(np.linalg.norm(away)), 1e-300))
        model = _model(problem, full, origin + away, share, centre)
        whole, few = (
            weighted_sum(problem.family.bounds(model, data.rows, data.y)[1], data.weights) for data in (full, part)
        )
        error = abs(few / whole - 1.0) if whole > 0.0 else (0.0 if few == 0.0 else np.inf)
        return error, away, share

    found = []
    for _ in range(queries):
        step = rng.normal(size=origin.size)
        length = radius * rng.random() ** (1.0 / origin.size) / np.linalg.norm(step)
        found.append(query(length * step, float(rng.random())))
    found.sort(key=lambda each: -each[0])
    random_epsilon = found[0][0]
    for k in range(min(ascents, queries)):
        length = 0.5 * radius
        while length > 1e-3 * radius:  # a random-direction pattern search that stays in the ball
            before = found[k][0]
            for _ in range(8):
                step = rng.normal(size=origin.size)
                share = float(np.clip(found[k][2] + 0.3 * rng.normal(), 0.0, 1.0))
                trial = query(found[k][1] + length * step / np.linalg.norm(step), share)
                found[k] = max(found[k], trial, key=lambda each: each[0])
            if found[k][0] == before:
                length *= 0.5
    epsilon, away, share = max(found, key=lambda each: each[0])
    at = _model(problem, full, origin + away, share, centre)
    return Measured(epsilon, random_epsilon, at.coef, at.intercept, at.multiplier, tried)


def _model(problem: Problem, data: Data, point: FloatArray, share: float, centre: Anchor) -> Anchor:
    """Return the model of a parameter vector, with the multiplier ``low + share (high - low)`` of its interval."""
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
