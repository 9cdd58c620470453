"""What an estimator says of a fit that its user should look at: one sentence, with what to do."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore.certificates import Certificate
from dualcore.coresets.path import largest_radius
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source
from dualcore.problem import Problem

# Scores that vary by less than this, in units of a margin or of the deviation of the target, are one constant.
_CONSTANT = 1e-6
# Scores of the first rows that vary by more are no constant, whatever was asked of the solver.
_FEW, _LEARNED = 1000, 0.1
_WHAT_TO_DO = "Use a larger coreset or more rounds, or coreset=None where the rows are few."


def warn_if_loose(title: str, certificate: Certificate, target: float | None) -> None:
    """Warn where a certificate is not as tight as asked for, or says next to nothing."""
    gap = certificate.relative_gap
    if certificate.is_weak:
        warnings.warn(
            f"{title}: the certificate leaves open how good the model is (relative gap {gap:.2g}). {_WHAT_TO_DO}",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif target is not None and gap > target:
        warnings.warn(
            f"{title}: the certified relative gap is {gap:.2g}, more than the target_gap of {target:.2g}. "
            f"{_WHAT_TO_DO}",
            ConvergenceWarning,
            stacklevel=4,
        )


def warn_if_nothing_learned(title: str, problem: Problem, coef: Any, X: Any, y: Any, weights: Any) -> None:
    """Warn where the radius leaves no coefficient, and name the largest that would; ``X`` is rows, or a coreset's."""
    if problem.radius == 0.0 or problem.family.n_outputs > 1:
        return
    if isinstance(X, Source):  # rows are not read again for a remark
        if np.abs(coef).max(initial=0.0) > 1e-9 or not np.size(coef):
            return
        largest = ""
    else:
        rows, scale = as_rows(X), 1.0 if problem.is_classification else float(np.std(y))
        few = as_rows(X[:_FEW]) if rows.n > _FEW else rows
        if float(np.ptp(few.dot(coef))) > _LEARNED * scale:  # the usual case, at the price of a few rows
            return
        bound = largest_radius(problem, rows, y, weights)
        if not 0.0 < bound < np.inf:  # no radius would help
            return
        # Near the bound coefficients that are optimal to within tol need not be small.
        if problem.radius < bound and float(np.ptp(rows.dot(coef))) > _CONSTANT * scale:
            return
        exact = not problem.loss.kinks and problem.family.is_closed and np.isinf(problem.geometry.label_cost)
        bound = bound if exact else min(bound, problem.radius)
        largest = f" The largest useful radius is {'' if exact else 'below '}{bound:.3g}."
    advice = "Use a smaller one; suggest_radius and the estimators whose names end in CV choose one."
    if title.split()[0].endswith("CV"):
        advice = "Cross-validation chose it: look at scores_, and try smaller radii or another scoring."
    warnings.warn(
        f"{title}: radius={problem.radius:g} leaves nothing to learn: all coefficients are 0, and every row gets the "
        f"same prediction.{largest} {advice}",
        UserWarning,
        stacklevel=4,
    )
