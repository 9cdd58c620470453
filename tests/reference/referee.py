"""The referee of torture, which shares no code with the package, asked about a problem and rows at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from torture.parts.boxrisk import Table
from torture.parts.boxsearch import descend_box
from torture.parts.cases import Case
from torture.parts.categories import EveryMove
from torture.parts.families import PARTIES
from torture.parts.referees import Referee
from torture.parts.risks import LOSSES
from torture.parts.search import best_known

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
PARAMETERS = {"huber": "delta", "pinball": "quantile", "epsilon_insensitive": "epsilon", "power": "power"}


def parameters_of(loss: Any) -> dict[str, float]:
    return {PARAMETERS[loss.name]: getattr(loss, PARAMETERS[loss.name])} if loss.name in PARAMETERS else {}


def plain_loss(problem: Any, score: Any, y: Any) -> np.ndarray:
    """Return losses of scores, written from their definitions."""
    if problem.family.n_outputs > 1:
        return logsumexp(score, axis=1) - score[np.arange(len(y)), y.astype(int)]
    t = y * score if problem.is_classification else score - y
    with np.errstate(under="ignore"):
        return np.asarray(LOSSES[problem.loss.name](t, **parameters_of(problem.loss)), dtype=np.float64)


def referee_of(problem: Any, X: Any, y: Any, sample_weight: Any = None) -> Referee:
    """Return the referee of a problem of the package; nothing but the attributes that define it is read."""
    geometry, loss = problem.geometry, problem.loss
    boxed = "plain" if geometry.support is None else "box"
    case = Case(
        "softmax" if loss.name == "softmax" else boxed if geometry.categories is None else "categories",
        "logistic" if loss.name == "softmax" else loss.name,
        parameters_of(loss),
        X,
        radius=problem.radius,
        ridge=problem.ridge,
        norm=geometry.norm.name,
        label_cost=geometry.label_cost,
        prices=geometry.norm.weights,
        fit_intercept=problem.fit_intercept,
        support=None if geometry.support is None else geometry.support.spread(X.shape[1]),
        categories=None if geometry.categories is None else geometry.categories.groups,
        category_cost=None if geometry.categories is None else geometry.categories.costs,
        n_classes=getattr(loss, "n_classes", 2),
        y=y,
        weights=sample_weight,
    )
    return PARTIES[case.family].referee(case)


def dual_loss(problem: Any, coef: Any, intercept: float, multiplier: float, X: Any, y: Any) -> np.ndarray:
    """Return ``h`` of every row, on a box or with categories, by the moves that the referee knows."""
    referee = referee_of(problem, X, y)
    point = referee.point(coef, intercept)
    with np.errstate(all="ignore"):
        if problem.geometry.categories is not None:
            table: Any = EveryMove(referee, point)
        else:
            table = Table(referee, referee.ways(point))
            if referee.case.norm == "l2":
                table.refine(multiplier)
        return table.h(multiplier)[0].astype(np.float64)


def least_risk(problem: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the exact risk of the best model that CVXPY finds, or a direct search where it cannot state the loss."""
    referee = referee_of(problem, X, y, sample_weight)
    case, zero = referee.case, referee.zero()
    curved_box = case.support is not None and case.loss in ("logistic", "smooth_hinge", "huber")
    with np.errstate(all="ignore"):
        found = list(PARTIES[case.family].cones(referee, 10**6))
        if curved_box or (case.loss == "squared_hinge" and np.isfinite(case.label_cost)):
            found += descend_box(referee, [zero, *(point for _, point in found)], seconds=60.0)  # it ends by itself
        return float(best_known(referee, [*found, ("zero", zero)], seconds=10.0)[0].risk)
