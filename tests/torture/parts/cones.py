"""CVXPY as a source of models: the problem stated in centred, scaled or orthonormal columns, solved by Clarabel.

Only the model is taken from the answer, and judged by its exact risk: tolerances of the solver do not matter.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .cases import Case
from .exact import Long
from .referees import Point, Referee
from .risks import lipschitz, order_of
from .search import coordinates

_DUAL = {"l1": "inf", "l2": 2, "linf": 1}


def _pinball(cp: Any, r: Any, quantile: float) -> Any:
    return quantile * cp.pos(-r) + (1.0 - quantile) * cp.pos(r)


def _loss(cp: Any, case: Case, t: Any) -> Any:
    parameters = case.parameters
    if case.loss == "smooth_hinge":  # the least of this over f is the loss; huber(pos(.)) stalls Clarabel
        f = cp.Variable(t.shape, nonneg=True)
        return 0.5 * cp.square(cp.pos(1 - t - f)) + f
    return {
        "logistic": lambda: cp.logistic(-t),
        "hinge": lambda: cp.pos(1 - t),
        "huber": lambda: 0.5 * cp.huber(t, parameters["delta"]),
        "pinball": lambda: _pinball(cp, t, parameters["quantile"]),
        "epsilon_insensitive": lambda: cp.pos(cp.abs(t) - parameters["epsilon"]),
        "absolute": lambda: cp.abs(t),
    }[case.loss]()


def _cost(cp: Any, case: Case, referee: Referee, score: Any, theta: Any, unit: float) -> tuple[Any, list[Any]]:
    """Return the risk, in units of the targets' spread for regression, and constraints."""
    w = referee.w.astype(np.float64)
    prices = np.ones(theta.shape[0]) if case.prices is None else case.prices
    size = cp.norm(cp.multiply(1.0 / prices, theta), _DUAL[case.norm])
    order, sigma, gamma = order_of(case.loss, case.parameters), case.radius, case.label_cost
    if case.is_classification:
        z = cp.multiply(referee.y.astype(np.float64), score)
        if order == 2.0:
            root = cp.norm(cp.multiply(np.sqrt(w), cp.pos(1 - z)), 2) + sigma * size
            return (cp.square(root) if case.ridge else root), []
        lam = cp.Variable()
        h = _loss(cp, case, z)
        if np.isfinite(gamma) and sigma > 0.0:
            h = cp.maximum(h, _loss(cp, case, -z) - gamma * lam)
        return sigma * lam + w @ h, [lam >= size]
    r = score - referee.target.astype(np.float64)
    steep = cp.maximum(size, 2.0 / gamma) if np.isfinite(gamma) else size
    if order == 1.0:
        return (w @ _loss(cp, case, r) + sigma * lipschitz(case.loss, case.parameters) * steep) / unit, []
    root = cp.pnorm(cp.multiply(w ** (1.0 / order), r / unit), order) + sigma / unit * steep
    return (cp.power(root, order) if case.ridge else root), []


def solve_plain(referee: Referee, most_numbers: int) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model in each of the coordinates; nothing where it finds none."""
    import cvxpy as cp

    case = referee.case
    if referee.rows.size > most_numbers:
        return
    unit = 1.0
    if not case.is_classification:
        unit = float(np.abs(referee.target).mean()) or 1.0
    order = order_of(case.loss, case.parameters)
    for space in coordinates(referee):
        basis, into = space.basis.astype(np.float64), space.map.astype(np.float64)
        beta = cp.Variable(basis.shape[1])
        with np.errstate(all="ignore"), warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # whatever CVXPY says: its model is judged, not its word
            cost, constraints = _cost(cp, case, referee, basis @ (unit * beta), into @ (unit * beta), unit)
            if case.ridge:
                factor = unit**order if not case.is_classification and order > 1.0 else unit
                cost = cost + case.ridge / 2 * unit**2 / factor * cp.sum_squares(into @ beta)
            cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL, max_iter=100)
        if beta.value is not None and np.isfinite(beta.value).all():
            long = Long(unit) * beta.value.astype(Long)
            yield f"cvxpy {space.name}", referee.centred(space.map @ long, space.shift @ long)
