"""One read at a model: its risk on the full data, and a lower bound on the best possible one."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.data.sources import ArraySource, Source, is_source_like, open_source
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import CellRule
from dualcore.reading.reading import Reading, read
from dualcore.reading.rowdata import certify_rows
from dualcore.reading.summary import Pass

__all__ = ["as_source", "evaluate"]


def as_source(problem: Problem, X: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """Return what `open_source` makes of a source, a path, a Dask collection or parts; else the validated arrays."""
    if is_source_like(X):
        return open_source(X, y, sample_weight)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    return ArraySource(data.rows, data.y, sample_weight, checked=True)


def evaluate(problem: Problem, source: Source, solution: Any) -> Reading:
    """Read the data once at a model, drawing nothing: its risk, and a lower bound on the best possible one.

    The model is a Solution, an Anchor, or anything with ``coef`` and ``intercept``.
    """
    coef, intercept = problem.family.as_model(solution.coef, solution.intercept)
    lowest = problem.kappa(coef) if problem.family.finite_at_kappa else np.inf
    multiplier = getattr(solution, "dual_variable", getattr(solution, "multiplier", lowest))
    anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, float(multiplier)))
    width = 0.05 if problem.loss.kinks else 0.0
    reading = read(source, Pass(problem, anchor, CellRule(0.0, 1.0, 1, 1), 0, np.zeros(1), width, sized=True))
    if reading.needs_rows:
        known, multiplier = certify_rows(problem, source, anchor)
        reading.settle(known, multiplier)
    return reading
