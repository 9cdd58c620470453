"""Certificates of models with one score a row, on data that are in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualcore.certificates import (
    Bound,
    Certificate,
    DualPoint,
    LinearModel,
    RowBounds,
    RowLevelSet,
    dual_point,
    smoothing_widths,
    trivial_bound,
)
from dualcore.certificates.region import unbounded_features
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.normal import Normal
from dualcore.solvers.moving.methods import choose_newton
from dualcore.solvers.moving.narrow import Narrow

__all__ = ["certify_one_score"]

# Relative gap at which training for a bound on a support ends.
_TIGHT = 1e-6


def certify_one_score(
    problem: Problem, solution: LinearModel, X: Any, y: Any, sample_weight: Any = None
) -> Certificate:
    """Return the exact worst-case risk of ``solution`` on these data and a lower bound on the best possible one.

    Parameters
    ----------
    problem : Problem
        With one score a row; `dualcore.certify` takes many classes too.
    solution : Solution, or anything with ``coef`` and ``intercept``
        It may come from other data, a coreset for example: the bound holds for these data all the same. Its dual point
        is used where it was made for this problem.
    X, y, sample_weight
        The data the certificate is about.

    Notes
    -----
    On a support the lower bound is that of training from this model on: ``n_reads`` counts its iterations.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> problem = Problem("hinge", radius=0.5)
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> round(certify_one_score(problem, SimpleNamespace(coef=np.array([1.0]), intercept=0.0), X, y).gap, 12)
    0.0
    """
    data = problem.validate(X, y, sample_weight)
    coef = np.asarray(solution.coef, dtype=np.float64)
    problem = problem.reduced().with_intercept()
    normal = Normal.of(problem, data)
    theta, intercept = normal.inside(coef, float(solution.intercept))
    upper = normal.problem.evaluate(theta, intercept, normal.data).value
    known = getattr(solution, "dual", None) if getattr(solution, "problem", None) == problem else None
    inside = _CERTIFIERS[problem.family.name](normal, theta, intercept, upper, known)
    return Certificate(
        normal.factor * inside.upper, normal.factor * inside.lower, inside.n_reads, normal.factor * inside.rounding
    )


def _certify_rows(normal: Normal, coef: FloatArray, intercept: float, upper: float, known: Any) -> Certificate:
    """Return the best bound of the known dual point and of those from smoothed losses at the model.

    Everything is in the units of ``normal``.
    """
    problem, data = normal.problem, normal.data
    bounds = RowBounds(problem, data, upper)
    best = Bound(trivial_bound(problem), 0.0)
    if isinstance(known, DualPoint) and known.stay.shape == data.y.shape:
        best = max(best, bounds.bound(known.times(1.0 / normal.slope_unit)))
    t = problem.signal(coef, intercept, data)
    for width in smoothing_widths(problem, t):
        # A smaller relative gap is not worth another dual point.
        if upper - best.value <= 1e-10 * abs(upper):
            break
        point = dual_point(problem, t, data, problem.size(coef), width)
        best = max(best, bounds.bound(point, width=width, t=t, coef=coef))
    rounding = best.rounding + bounds.level_set.risk_error(coef, intercept)
    return Certificate(upper, min(best.value, upper), rounding=rounding)


def _certify_on_box(normal: Normal, coef: FloatArray, intercept: float, upper: float, known: Any) -> Certificate:
    """Train from this model and return the lower bound that training proves.

    The worst-case distribution of one model proves no tight bound where the risk has kinks: a saddle point may need a
    mixture of moves. So the bound takes about as much work as training.
    """
    problem, data = normal.problem, normal.data
    lone = any(not data.masses[data.y == label].any() for label in problem.family.strata)
    if lone or unbounded_features(problem, data.rows.m).any():  # no region is known to hold the optimum
        return Certificate(upper, min(trivial_bound(problem), upper))
    rounding = problem.family.enclosure + RowLevelSet(problem.without_limits(), data, upper).risk_error(coef, intercept)
    problem, data, *_ = narrow = Narrow.of(problem, data)
    coef, intercept = narrow.inside(coef, intercept)
    found = choose_newton(problem, data).run(problem, data, coef, intercept, _TIGHT)
    lower = max(trivial_bound(problem), found.lower)
    return Certificate(upper, min(lower, upper), n_reads=len(found.history) + 1, rounding=rounding + found.rounding)


# By the name of the family. Only closed forms use a known dual point.
_CERTIFIERS: dict[str, Callable[[Normal, FloatArray, float, float, Any], Certificate]] = {
    "closed": _certify_rows,
    "box": _certify_on_box,
    "categories": _certify_on_box,
}
