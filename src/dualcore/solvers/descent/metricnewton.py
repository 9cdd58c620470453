"""Quasi-Newton where a pass is dear: full steps in a sample's metric, several lengths from one pass.

`scipy.optimize` begins with a step of unit length, whatever the metric says, and tries one length a pass. Over reads
both cost more than all the arithmetic; here the first step is the metric's own, and a pass evaluates a few lengths.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.metric import Hessian
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.quasinewton import Variables

# Pairs of steps and gradients that the method remembers.
_MEMORY = 20
# Lengths that one pass tries; where none lowers the risk all are multiplied by the factor.
_LENGTHS, _SHORTER = (1.0, 0.5), 0.1
# Passes in a row that lower nothing before the method gives up.
_FAILURES = 5
# The risk is the same but for rounding.
_ROUNDING = 4e-16


def metric_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    hessian: Hessian,
) -> Valued:
    """Minimise from a point off the origin until ``enough`` says so, or no step lowers the risk any more."""
    variables, metric = Variables(objective), hessian.metric(objective, start)
    pairs: list[tuple[FloatArray, FloatArray]] = []
    here, factor, failures = start, 1.0, 0
    if enough(here):
        return here
    for _ in range(max_evaluations):
        x, slope = variables.vector(here.point), variables.gradient(here)
        gradient = metric.gradient(slope)
        step = metric.outward(_direction(gradient, pairs))
        trials = objective.at([variables.point(x + factor * length * step) for length in _LENGTHS])
        best = min(trials, key=lambda trial: trial.value)
        moved = metric.inward(variables.vector(best.point) - x)
        change = metric.gradient(variables.gradient(best)) - gradient
        if float(moved @ change) > 1e-10 * float(np.linalg.norm(moved) * np.linalg.norm(change)):
            pairs = [*pairs, (moved, change)][-_MEMORY:]
        if best.value < here.value - _ROUNDING * abs(here.value):
            here, factor, failures = best, min(1.0, factor / _SHORTER), 0
            if enough(here):
                break
            continue
        failures += 1
        factor *= _SHORTER
        if failures >= _FAILURES:
            break
    return here


def _direction(gradient: FloatArray, pairs: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the step of limited-memory BFGS that begins from the metric itself."""
    out, shares = -gradient, []
    for step, change in reversed(pairs):
        share = float(step @ out) / float(step @ change)
        out = out - share * change
        shares.append(share)
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        out = out + (share - float(change @ out) / float(step @ change)) * step
    return out
