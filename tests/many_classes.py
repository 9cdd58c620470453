"""Softmax problems for tests: those of a logistic problem, and certificates of models given by their numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dualcore import Certificate, Problem, certify
from dualcore.problem.losses import Softmax


def softmax_of(base: Problem, n_classes: int) -> Problem:
    """The softmax problem with the radius, norm, label cost, ridge and intercept of a logistic one."""
    return base.replace(loss=Softmax(n_classes))


def certify_model(problem: Problem, coef: Any, intercept: Any, X: Any, y: Any, weights: Any = None) -> Certificate:
    return certify(problem, SimpleNamespace(coef=coef, intercept=intercept), X, y, weights)
