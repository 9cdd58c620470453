"""The scores of the study, the same for every method: errors on the test rows, and worst-case risks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualcore import Problem
from dualcore.data.arrays import FloatArray
from experiments.study.models import QUANTILE, LinearModel
from experiments.study.tables import Loss
from experiments.study.troubles import ATTACK

# What the worst-case risks are about: the radius of the attack, and with it one label in ten.
LABEL_COST = ATTACK / 0.1


class Score(NamedTuple):
    """How one model does on test rows."""

    error: float  # percent of wrong labels; of real targets, loss in percent of that of the best constant
    loss: float  # mean loss
    worst: float  # worst-case risk at the stated radius, features move
    flips: float  # the same, labels may flip too


def problem_of(loss: Loss, radius: float = 0.0, label_cost: float = np.inf) -> Problem:
    """Return the problem of a loss; real targets have deviation one."""
    more: dict[Loss, dict[str, Any]] = {"huber": {"delta": 1.0}, "pinball": {"quantile": QUANTILE}}
    return Problem(loss, radius=radius, label_cost=label_cost, **more.get(loss, {}))


def score(loss: Loss, model: LinearModel, X: FloatArray, y: FloatArray, attack: float = 0.0) -> Score:
    """Score a model on test rows, each moved by ``attack`` in the direction that hurts this model most."""
    problem = problem_of(loss)
    reach = attack * float(np.linalg.norm(model.coef))
    predicted = X @ model.coef + model.intercept
    sides = [_losses(problem, predicted + way * reach, y) for way in (-1.0, 1.0)]
    losses = np.maximum(*sides)
    if problem.is_classification:
        margin = y * predicted - reach
        error = 100.0 * float(np.mean(margin < 0.0) + 0.5 * np.mean(margin == 0.0))  # a constant 0 predicts nothing
    else:
        error = 100.0 * float(np.mean(losses) / _constant(problem, y))
    risks = [problem_of(loss, ATTACK, cost).risk(model.coef, model.intercept, X, y) for cost in (np.inf, LABEL_COST)]
    return Score(error, float(np.mean(losses)), *risks)


def _losses(problem: Problem, predicted: FloatArray, y: FloatArray) -> FloatArray:
    argument = y * predicted if problem.is_classification else predicted - y
    return np.asarray(problem.loss.value(argument), dtype=np.float64)


def _constant(problem: Problem, y: FloatArray) -> float:
    """Return the least mean loss of a constant prediction."""
    candidates = np.quantile(y, np.linspace(0.0, 1.0, 201))
    return min(float(np.mean(_losses(problem, np.full_like(y, c), y))) for c in candidates)
