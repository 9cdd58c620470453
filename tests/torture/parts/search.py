"""The least risk that is known: models of the package, of CVXPY, of descent, and what lies on lines between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from .exact import Long, orthonormal
from .referees import Point, Referee

_WIDTHS = (1e-1, 1e-2, 1e-4, 1e-7)
_RAYS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2.0, 10.0, 1e2, 1e4, 1e8)
_SEGMENT_STEPS = 40


class Known(NamedTuple):
    """A model, its exact risk and who found it."""

    risk: Any
    point: Point
    source: str


class Coordinates(NamedTuple):
    """Scores are ``basis @ beta``, coefficients ``map @ beta``, the constant ``shift @ beta``."""

    basis: Any
    map: Any
    shift: Any
    name: str


def coordinates(referee: Referee) -> Iterator[Coordinates]:
    """Yield scaled columns, and columns that are orthonormal in the masses.

    Where no coefficient has a price every direction counts, however short; else those that are clearly there.
    """
    case, rows, w = referee.case, referee.rows, referee.w
    scale = np.sqrt((w[:, None] * rows * rows).sum(axis=0))
    scale = np.where(scale > 0, scale, Long(1))
    free = case.radius == 0.0 and case.ridge == 0.0
    mean = (w[:, None] * rows).sum(axis=0) if case.fit_intercept else np.zeros(rows.shape[1], dtype=Long)
    if not free:
        yield _with_constant(referee, (rows - mean) / scale, np.diag(1 / scale), mean, "scaled")
    if not free and case.prices is None and rows.shape[1] > 20:
        return
    Q, T, _ = orthonormal(rows - mean, w, 1e-16 if free else 1e-7)
    yield _with_constant(referee, Q, T, mean, "orthonormal")


def _with_constant(referee: Referee, basis: Any, into: Any, mean: Any, name: str) -> Coordinates:
    shift = -(mean @ into)
    if referee.case.fit_intercept:
        basis = np.column_stack([np.ones(basis.shape[0], dtype=Long), basis])
        into = np.column_stack([np.zeros(into.shape[0], dtype=Long), into])
        shift = np.append(Long(1), shift)
    return Coordinates(basis, into, shift, name)


def descend(referee: Referee, objective: Any, starts: list[Point], seconds: float) -> Iterator[tuple[str, Point]]:
    """Yield what quasi-Newton steps on smoother and sharper risks lead to, from each start in each coordinates."""
    began = time.process_time()
    for space in coordinates(referee):
        basis, into = space.basis.astype(np.float64), space.map.astype(np.float64)
        for number, start in enumerate(starts):
            goal = start.score.astype(np.float64)
            beta = np.zeros((basis.shape[1], *goal.shape[1:]))
            if goal.any():
                beta = np.linalg.lstsq(basis, goal, rcond=1e-14)[0]
            unit = objective.typical(basis @ beta)
            for width in _WIDTHS:
                beta = _sharpened(objective, basis, into, beta, width * unit)
                yield f"descent {space.name} {number}", referee.at(space, beta)
                if time.process_time() - began > seconds:
                    return


def _sharpened(objective: Any, basis: Any, into: Any, beta: Any, width: float) -> Any:
    """Return where quasi-Newton steps on the risk with corners of this width lead to."""
    scale = max(abs(objective(basis @ beta, into @ beta, width)[0]), 1e-300)

    def value(flat: Any) -> tuple[float, Any]:
        each = flat.reshape(beta.shape)
        total, in_score, in_theta = objective(basis @ each, into @ each, width)
        return total / scale, ((basis.T @ in_score + into.T @ in_theta) / scale).ravel()

    options = {"maxiter": 300, "maxfun": 400, "ftol": 1e-15, "gtol": 1e-13, "maxcor": 20}
    found = minimize(value, beta.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(beta.shape) if np.isfinite(found.x).all() else beta


def best_known(
    referee: Referee, found: list[tuple[str, Point]], *, seconds: float = np.inf, radius: float | None = None
) -> tuple[Known, list[Any]]:
    """Return the best of these models, of their multiples and of segments between the best; and all risks.

    Lines are searched for about ``seconds`` of processor time, not at all for 0.
    """
    known = [Known(referee.risk(point, radius), point, source) for source, point in found]
    known = [each if np.isfinite(each.risk) else each._replace(risk=Long(np.inf)) for each in known]
    best = min(known, key=_by)
    began = time.process_time()
    if seconds > 0.0:
        zero = referee.zero()
        for each in sorted(known, key=_by)[:3]:
            if each.point is not best.point:
                best = min(best, _segment(referee, best, each, radius, began + seconds), key=_by)
            for step in _RAYS:
                point = referee.mix(zero, each.point, step)
                best = min(best, Known(referee.risk(point, radius), point, f"{each.source} times {step:g}"), key=_by)
                if time.process_time() - began > seconds:
                    break
    exact = referee.again(best.point)
    return best._replace(risk=referee.risk(exact, radius), point=exact), [each.risk for each in known]


def _by(known: Known) -> Any:
    return known.risk if np.isfinite(known.risk) else Long(np.inf)


def _segment(referee: Referee, first: Known, second: Known, radius: float | None, until: float) -> Known:
    """Return the best point near the segment between two; the risk is convex there."""
    low, high, best = Long(-0.5), Long(1.5), first
    for _ in range(_SEGMENT_STEPS):
        a, b = low + (high - low) * Long(0.382), low + (high - low) * Long(0.618)
        points = [referee.mix(first.point, second.point, share) for share in (a, b)]
        values = [referee.risk(point, radius) for point in points]
        for value, point in zip(values, points, strict=True):
            best = min(best, Known(value, point, f"between {first.source} and {second.source}"), key=_by)
        low, high = (low, b) if values[0] <= values[1] else (a, high)
        if time.process_time() > until:
            break
    return best
