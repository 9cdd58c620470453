"""Softmax problems by the names they had before they were problems like any other: ``dualcore.softmax``.

Deprecated: use ``Problem("softmax", n_classes=K)`` with `solve`, `certify` and `fit_coreset`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dualcore.certificates import Certificate
from dualcore.coresets.refine import fit_coreset
from dualcore.coresets.samplers import CoresetFit as SoftmaxFit
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.losses import Logistic, Softmax
from dualcore.solvers import Solution as SoftmaxSolution
from dualcore.solvers import solve
from dualcore.solvers.assess import certify_in_memory


def SoftmaxProblem(base: Problem, n_classes: int) -> Problem:  # noqa: N802  (it was a class)
    """Return the softmax problem with the radius, norm, label cost, ridge and intercept of a logistic one.

    Examples
    --------
    >>> SoftmaxProblem(Problem("logistic", radius=0.5), 3) == Problem("softmax", n_classes=3, radius=0.5)
    True
    """
    if type(base.loss) is not Logistic:
        raise TypeError(f"A softmax problem extends a logistic one, got {base!r}.")
    return base.replace(loss=Softmax(n_classes))


def solve_softmax(problem: Problem, X: Any, y: Any, sample_weight: Any = None, **settings: Any) -> SoftmaxSolution:
    """Train on all rows: `solve`."""
    return solve(problem, X, y, sample_weight, **settings)


def certify_softmax(
    problem: Problem, coef: FloatArray, intercept: FloatArray, X: Any, y: Any, sample_weight: Any = None
) -> Certificate:
    """Return the risk of a model and a lower bound on the best possible one: `certify`."""
    return certify_in_memory(problem, SimpleNamespace(coef=coef, intercept=intercept), X, y, sample_weight)


def fit_softmax_coreset(
    problem: Problem, X: Any, y: Any = None, coreset: Any = 0.05, sample_weight: Any = None, **settings: Any
) -> SoftmaxFit:
    """Train on a coreset and certify the model on the full data: `fit_coreset`."""
    return fit_coreset(problem, X, y, coreset, sample_weight, **settings)
