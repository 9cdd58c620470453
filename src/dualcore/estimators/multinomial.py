"""All classes in one softmax model: what ``multi_class="multinomial"`` does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate
from dualcore.coresets.refine import is_auto
from dualcore.data.arrays import FloatArray
from dualcore.estimators.base import print_outcome, warn_if_weak
from dualcore.problem import Problem
from dualcore.softmax import (
    READS_PER_STEP,
    SoftmaxProblem,
    check_coreset,
    check_solvable,
    fit_softmax_coreset,
    solve_softmax,
)

__all__ = ["MULTI_CLASS", "check_multi_class", "fit_multinomial", "multinomial_risk"]

MULTI_CLASS = ("ovr", "multinomial")


def check_multi_class(estimator: Any) -> None:
    """Raise ValueError for a value of ``multi_class`` that is not known."""
    if estimator.multi_class not in MULTI_CLASS:
        raise ValueError(f"multi_class must be one of {list(MULTI_CLASS)}, got {estimator.multi_class!r}.")


def fit_multinomial(
    estimator: Any, problem: Problem, X: Any, code: npt.NDArray[np.int64], weights: FloatArray | None
) -> None:
    """Train a softmax model of all classes and store it; what is not supported raises before any work."""
    joint = SoftmaxProblem(problem, estimator.classes_.size)
    check_solvable(joint, X.shape[1], estimator.solver)
    settings: dict[str, Any] = {
        "solver": estimator.solver,
        "tol": estimator.tol,
        "max_iter": estimator.max_iter,
    }
    if estimator.coreset is None or is_auto(estimator.coreset):
        solution = solve_softmax(joint, X, code, weights, **settings)
        reads = READS_PER_STEP * solution.iterations + 3
        certificate, coreset = Certificate(solution.value, solution.lower_bound, reads, solution.rounding), None
    else:
        check_coreset(estimator.coreset)
        settings["random_state"] = estimator._seed()
        solution, certificate, coreset = fit_softmax_coreset(joint, X, code, estimator.coreset, weights, **settings)
        warn_if_weak(type(estimator).__name__, certificate)
    if estimator.verbose:
        print_outcome(type(estimator).__name__, solution, certificate, history=estimator.verbose > 1)
    estimator.coef_, estimator.intercept_ = solution.coef, solution.intercept
    estimator.solution_, estimator.certificate_, estimator.coreset_ = solution, certificate, coreset
    estimator.dual_variable_, estimator.n_iter_ = solution.dual_variable, solution.iterations
    estimator.worst_case_risk_ = certificate.upper


def multinomial_risk(estimator: Any, X: Any, code: npt.NDArray[np.int64], weights: FloatArray | None) -> float:
    """Return the worst-case risk of a fitted softmax model on other data, ridge included."""
    joint = SoftmaxProblem(estimator.problem_, estimator.classes_.size)
    return joint.risk(estimator.coef_, estimator.intercept_, X, code, weights)
