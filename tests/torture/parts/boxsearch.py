"""Models on a box from elsewhere: the robust counterpart in CVXPY for piecewise linear losses, and descent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .boxrisk import BoxReferee
from .cones import DUAL, minimiser, signals
from .exact import Long
from .referees import Point
from .risks import POLYHEDRAL, lines
from .search import coordinates


def solve_box(referee: BoxReferee, most_numbers: int) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model of the exact robust counterpart, where there is one and it is small.

    For a piece of slope ``a`` and a row with room ``v`` in ``[-down, up]``,
    ``sup c.v - lam ||v|| = min { up.p + down.q : ||c - p + q||_* <= lam, p, q >= 0 }`` with ``c = a theta``.
    """
    import cvxpy as cp

    case = referee.case
    if case.loss not in POLYHEDRAL or referee.rows.size > min(most_numbers, 300) or case.radius == 0.0:
        return
    scale = np.sqrt((referee.w[:, None] * referee.rows**2).sum(axis=0)).astype(np.float64)
    scale[scale == 0.0] = 1.0
    rows = referee.rows.astype(np.float64) / scale
    prices = (np.ones(scale.size) if case.prices is None else case.prices) * scale
    up, down = (side.astype(np.float64) / scale for side in (referee.up, referee.down))
    n, m = rows.shape
    beta, lam, h = cp.Variable(m), cp.Variable(nonneg=True), cp.Variable(n)
    shift = cp.Variable() if case.fit_intercept else 0.0
    score = rows @ beta + shift
    constraints = [lam >= float(referee.kappa(np.zeros(m, dtype=Long)))]
    for signal, sign, price in signals(referee, score):
        for slope, constant in np.array(lines(case.loss, case.parameters), dtype=np.float64):
            bound = slope * signal + constant - lam * price
            if slope == 0.0:
                constraints.append(h >= bound)
                continue
            p, q = cp.Variable((n, m), nonneg=True), cp.Variable((n, m), nonneg=True)
            constraints += [
                each[~np.isfinite(room)] == 0.0 for each, room in ((p, up), (q, down)) if np.isinf(room).any()
            ]
            left = cp.multiply(slope * sign[:, None] @ np.ones((1, m)), np.ones((n, 1)) @ cp.reshape(beta, (1, m), "C"))
            left = cp.multiply(np.ones((n, 1)) @ (1.0 / prices)[None, :], left - p + q)
            constraints.append(cp.norm(left, DUAL[case.norm], axis=1) <= lam)
            room_up, room_down = np.where(np.isfinite(up), up, 0.0), np.where(np.isfinite(down), down, 0.0)
            gain = cp.sum(cp.multiply(room_up, p) + cp.multiply(room_down, q), axis=1)
            constraints.append(h >= bound + gain)
    cost = case.radius * lam + referee.w.astype(np.float64) @ h
    if case.ridge:
        cost = cost + case.ridge / 2 * cp.sum_squares(cp.multiply(1.0 / scale, beta))
    found = minimiser(beta, lambda: (cost, constraints))
    if found is not None:
        yield "cvxpy", referee.centred(found / scale, Long(float(shift.value)) if case.fit_intercept else Long(0))


class _TimeIsUpError(Exception):
    """Descent has used its time."""


def descend_box(referee: BoxReferee, starts: list[Point], seconds: float) -> Iterator[tuple[str, Point]]:
    """Yield the best points that quasi-Newton steps with differences for slopes pass through."""
    began = time.process_time()
    for space in coordinates(referee):
        basis = space.basis.astype(np.float64)
        for number, start in enumerate(starts):
            beta = np.linalg.lstsq(basis, start.score.astype(np.float64), rcond=1e-12)[0]
            best = [np.inf, beta]

            def value(beta: Any, space: Any = space, best: list[Any] = best) -> float:
                if time.process_time() - began > seconds:
                    raise _TimeIsUpError
                risk = float(referee.risk(referee.at(space, beta)))
                if risk < best[0]:
                    best[:] = [risk, beta.copy()]
                return risk

            with contextlib.suppress(_TimeIsUpError):
                minimize(value, beta, method="L-BFGS-B", options={"maxiter": 40})
                minimize(value, best[1], method="Nelder-Mead", options={"maxfev": 60 * beta.size, "fatol": 1e-12})
            yield f"descent {space.name} {number}", referee.at(space, best[1])
            if time.process_time() - began > seconds:
                return
