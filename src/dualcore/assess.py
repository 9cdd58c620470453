"""A model on the full data, wherever they are: one read."""

from __future__ import annotations

from typing import Any

from dualcore.certificate import Certificate
from dualcore.problem import Problem
from dualcore.samplers.base import as_source, evaluate

__all__ = ["assess"]


def assess(problem: Problem, model: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
    """Return the worst-case risk of a model on the full data and a lower bound on the best possible one, in one read.

    Parameters
    ----------
    problem : Problem
    model : Solution, or anything with ``coef`` and ``intercept``
    X, y, sample_weight
        Whatever `open_source` takes: arrays, a source, a path and the name of its target, a Dask collection.

    Notes
    -----
    ``upper`` is the exact risk, but for classifiers with label flips where more than 65,536 rows gain by one: then it
    is an upper bound, a fraction of a per mille above (see `FlipTail`). ``lower`` comes from sums alone; `certify`,
    which needs all rows in memory, can repair a dual point and finds a tighter one. Squared hinges that may flip are
    settled by a dozen reads and one number a row instead: sums tell too little of them.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    >>> assess(Problem("hinge", radius=0.5), SimpleNamespace(coef=np.array([1.0]), intercept=0.0), X, y).upper
    0.5
    """
    source = as_source(problem, X, y, sample_weight)
    before = source.n_reads
    reading = evaluate(problem, source, model)
    return Certificate(reading.risk, min(reading.lower_bound(reading.risk), reading.risk), source.n_reads - before)
