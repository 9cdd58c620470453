"""CVXPY as a source of models: the problem stated in centred, scaled or orthonormal columns, solved by Clarabel.

Only the model is taken from the answer, and judged by its exact risk: tolerances of the solver do not matter.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import Case
from .exact import Long
from .referees import Point, Referee
from .risks import POLYHEDRAL, lines, lipschitz, order_of
from .search import coordinates

DUAL = {"l1": "inf", "l2": 2, "linf": 1}


def loss_in_cvxpy(case: Case, t: Any) -> Any:
    """Return the loss as a modelling language states it."""
    import cvxpy as cp

    if case.loss in POLYHEDRAL:
        pieces = np.array(lines(case.loss, case.parameters), dtype=np.float64)
        return cp.maximum(*(slope * t + constant for slope, constant in pieces))
    if case.loss == "smooth_hinge":  # the least of this over f is the loss; huber(pos(.)) stalls Clarabel
        f = cp.Variable(t.shape, nonneg=True)
        return 0.5 * cp.square(cp.pos(1 - t - f)) + f
    return cp.logistic(-t) if case.loss == "logistic" else 0.5 * cp.huber(t, case.parameters["delta"])


def dual_norm_in_cvxpy(case: Case, theta: Any) -> Any:
    """Return ``||theta / prices||_*``."""
    import cvxpy as cp

    prices = np.ones(theta.shape[0]) if case.prices is None else case.prices
    return cp.norm(cp.multiply(1.0 / prices, theta), DUAL[case.norm])


def minimiser(variable: Any, state: Callable[[], tuple[Any, list[Any]]]) -> Any:
    """Return the value of a variable where the cost that ``state`` returns, with its constraints, is least; or None.

    Whatever CVXPY says is ignored: its model is judged, not its word.
    """
    import cvxpy as cp

    with np.errstate(all="ignore"), warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        cost, constraints = state()
        cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL, max_iter=100)
    found = variable.value
    return found.astype(Long) if found is not None and np.isfinite(found).all() else None


def in_coordinates(
    referee: Referee, classes: tuple[int, ...], state: Callable[[Any, Any], tuple[Any, list[Any]]], unit: float = 1.0
) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model in each of the coordinates, given the cost of scores and coefficients in a unit."""
    import cvxpy as cp

    for space in coordinates(referee):
        basis, into = space.basis.astype(np.float64), space.map.astype(np.float64)
        beta = cp.Variable((basis.shape[1], *classes))
        found = minimiser(beta, partial(state, basis @ (unit * beta), into @ (unit * beta)))
        if found is not None:
            yield f"cvxpy {space.name}", referee.at(space, Long(unit) * found)


def signals(referee: Referee, score: Any, rows: Any = slice(None)) -> list[tuple[Any, Any, float]]:
    """Return margins or residuals with every label that a row can have, their slopes in the score, and its price."""
    import cvxpy as cp

    case = referee.case
    if not case.is_classification:
        target = referee.target[rows].astype(np.float64)
        return [(score - target, np.ones(target.size), 0.0)]
    y = referee.y[rows].astype(np.float64)
    both = [(cp.multiply(y, score), y, 0.0), (cp.multiply(-y, score), -y, case.label_cost)]
    return both if np.isfinite(case.label_cost) else both[:1]


def _cost(referee: Referee, score: Any, theta: Any, unit: float) -> tuple[Any, list[Any]]:
    """Return the risk, in units of the targets' spread for regression, and constraints."""
    import cvxpy as cp

    case, w = referee.case, referee.w.astype(np.float64)
    size = dual_norm_in_cvxpy(case, theta)
    order, sigma, gamma = order_of(case.loss, case.parameters), case.radius, case.label_cost
    if case.is_classification:
        z = cp.multiply(referee.y.astype(np.float64), score)
        if order == 2.0:
            root = cp.norm(cp.multiply(np.sqrt(w), cp.pos(1 - z)), 2) + sigma * size
            return (cp.square(root) if case.ridge else root), []
        lam = cp.Variable()
        h = loss_in_cvxpy(case, z)
        if np.isfinite(gamma) and sigma > 0.0:
            h = cp.maximum(h, loss_in_cvxpy(case, -z) - gamma * lam)
        return sigma * lam + w @ h, [lam >= size]
    r = score - referee.target.astype(np.float64)
    steep = cp.maximum(size, 2.0 / gamma) if np.isfinite(gamma) else size
    if order == 1.0:
        return (w @ loss_in_cvxpy(case, r) + sigma * lipschitz(case.loss, case.parameters) * steep) / unit, []
    root = cp.pnorm(cp.multiply(w ** (1.0 / order), r / unit), order) + sigma / unit * steep
    return (cp.power(root, order) if case.ridge else root), []


def solve_plain(referee: Referee, most_numbers: int) -> Iterator[tuple[str, Point]]:
    """Yield CVXPY's model in each of the coordinates; nothing where it finds none."""
    import cvxpy as cp

    case = referee.case
    if referee.rows.size > most_numbers:
        return
    unit = 1.0 if case.is_classification else float(np.abs(referee.target).mean()) or 1.0
    order = order_of(case.loss, case.parameters)

    def state(score: Any, theta: Any) -> tuple[Any, list[Any]]:
        cost, constraints = _cost(referee, score, theta, unit)
        if case.ridge:
            factor = unit**order if not case.is_classification and order > 1.0 else unit
            cost = cost + case.ridge / 2 / factor * cp.sum_squares(theta)
        return cost, constraints

    yield from in_coordinates(referee, (), state, unit)
