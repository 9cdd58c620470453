"""All classes in one softmax model: what ``multi_class="multinomial"`` does."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Certificate
from dualcore.coresets.refine import fit_coreset, is_auto
from dualcore.data.arrays import FloatArray
from dualcore.estimators.base import Training, anchored, print_outcome, print_round
from dualcore.problem import Problem
from dualcore.problem.losses import Softmax
from dualcore.solvers import solve

MULTI_CLASS = ("ovr", "multinomial")
# Reads of all rows: three to begin with; then, for a step of Newton's method, itself, at most three for its bound and
# one for the risk.
_READS_TO_START, _READS_PER_STEP = 3, 5


def check_multi_class(estimator: Any) -> None:
    """Raise ValueError for a value of ``multi_class`` that is not known."""
    if estimator.multi_class not in MULTI_CLASS:
        raise ValueError(f"multi_class must be one of {list(MULTI_CLASS)}, got {estimator.multi_class!r}.")


def fit_multinomial(
    estimator: Any, problem: Problem, X: Any, code: npt.NDArray[np.int64] | None, weights: FloatArray | None
) -> None:
    """Train a softmax model of all classes and store it; what is not supported raises before any work.

    ``X`` is rows, or a source with class numbers as targets; then ``code`` and ``weights`` are None.
    """
    joint = joint_problem(problem, estimator)
    settings: dict[str, Any] = {"solver": estimator.solver, "tol": estimator.tol, "max_iter": estimator.max_iter}
    title = type(estimator).__name__
    [start] = estimator._earlier(estimator.classes_.size, estimator.n_features_in_)
    if estimator.coreset is None or is_auto(estimator.coreset):
        with warnings.catch_warnings():  # `_remark` says it
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(joint, X, code, weights, warm_start=start, **settings)
        passes = _READS_PER_STEP if solution.solver == "structured" else 1
        reads = solution.n_reads or passes * solution.iterations + _READS_TO_START
        certificate, coreset = Certificate(solution.value, solution.lower_bound, reads, solution.rounding), None
    else:
        seed = settings["random_state"] = estimator._seed()
        if estimator.verbose:
            settings["callback"] = partial(print_round, title)
        size = estimator.coreset if start is None else anchored(estimator.coreset, joint, start, seed)
        found = fit_coreset(joint, X, code, size, weights, **settings)
        named = estimator._name_features(Training(found.solution, found.certificate, found.coreset))
        solution, certificate, coreset = named
    if estimator.verbose:
        print_outcome(title, solution, certificate, history=estimator.verbose > 1)
    estimator._keep(solution, certificate, coreset)
    estimator._remark(joint, [Training(solution, certificate, coreset)], X, [code], weights)


def multinomial_risk(estimator: Any, X: Any, code: npt.NDArray[np.int64], weights: FloatArray | None) -> float:
    """Return the worst-case risk of a fitted softmax model on other data, ridge included."""
    return joint_problem(estimator.problem_, estimator).risk(estimator.coef_, estimator.intercept_, X, code, weights)


def joint_problem(problem: Problem, estimator: Any) -> Problem:
    """Return the softmax problem with the radius, norm, label cost, ridge and intercept of a logistic one."""
    return problem.replace(loss=Softmax(int(estimator.classes_.size)))
