"""Certify a model on the full data, whether they are in memory or in a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.certificates import Certificate
from dualcore.data.sources import ArraySource, Source, is_source_like, open_source
from dualcore.problem import Anchor, Problem
from dualcore.problem.normal import Normal
from dualcore.reading.reading import Reading, read
from dualcore.reading.rowdata import source_data
from dualcore.reading.summary import Pass
from dualcore.solvers.certifiers import certify_one_score
from dualcore.solvers.softmax.classsolvers import certify_classes


def certify(problem: Problem, solution: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
    """Return the worst-case risk of a model on these data and a lower bound on the best possible one.

    Parameters
    ----------
    problem : Problem
    solution : Solution, or anything with ``coef`` and ``intercept``
        It may come from other data, a coreset for example: the bound holds for these data all the same.
    X, y, sample_weight
        The data the certificate is about: arrays or frames, or anything that `open_source` takes (a source, a path and
        the names of its columns, a Dask collection, a function that returns parts), targets -1 and +1 in
        classification.

    Notes
    -----
    With rows in memory a dual point is corrected, which takes a few passes over the rows and gives a tighter bound. A
    source is read once, by `assess`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualcore import open_source, solve
    >>> problem = Problem("hinge", radius=0.5)
    >>> X, y = np.array([[2.0], [1.0], [-1.0], [-2.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> model = solve(problem, X, y)
    >>> round(certify(problem, model, X, y).upper, 6), round(certify(problem, model, open_source(X, y)).upper, 6)
    (0.5, 0.5)
    """
    if not hasattr(solution, "coef"):
        raise TypeError(f"{type(solution).__name__} has no coef; for an estimator use estimator.certify(X, y).")
    certified = assess if is_source_like(X, y) else certify_in_memory
    return certified(problem, solution, X, y, sample_weight)


def certify_in_memory(problem: Problem, solution: Any, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
    """As `certify`, for rows in memory or an object with the same interface.

    With one score per row the slopes of the loss at the model yield a dual point. For softmax the dual point comes from
    descent steps that start at the model.
    """
    if problem.family.n_outputs == 1:
        return certify_one_score(problem, solution, X, y, sample_weight)
    normal = Normal.of(problem, problem.validate(X, y, sample_weight))
    model = normal.inside(*problem.family.as_model(solution.coef, solution.intercept))
    upper, lower, n_passes = certify_classes(problem, *model, normal.data)
    return Certificate(upper, lower.value, n_passes, lower.rounding)


def assess(problem: Problem, model: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
    """Return the worst-case risk of a model on the full data and a lower bound on the best possible one, in one read.

    Parameters
    ----------
    problem : Problem
    model : Solution, or anything with ``coef`` and ``intercept``
    X, y, sample_weight
        Anything that `open_source` takes: arrays, a source, a path and the name of its target, a Dask collection.

    Notes
    -----
    This is `Problem.risk` for data that are not in memory. ``upper`` is the exact risk, but for classifiers with label
    flips where more than 65,536 rows gain by one: then it is an upper bound, a fraction of a per mille above (see
    `FlipTail`). ``lower`` comes from sums alone; with all rows in memory `certify` can repair a dual point and finds a
    tighter one. For squared hinges with label flips, sums do not determine the risk: it takes a dozen reads, and one
    number per row is kept in memory.

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
    reading = read_model(problem, source, model)
    lower = min(reading.lower_bound(reading.risk), reading.risk)
    return Certificate(reading.risk, lower, source.n_reads - before, reading.rounding)


def as_source(problem: Problem, X: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """Return ``X`` opened by `open_source` if it is a source, a path, a Dask collection or parts; else as arrays."""
    if is_source_like(X, y):
        return open_source(X, y, sample_weight)
    data = problem.validate(X, y, sample_weight)
    data.rows.check_finite()
    return ArraySource(data.rows, data.y, sample_weight, checked=True)


def read_model(problem: Problem, source: Source, solution: Any) -> Reading:
    """Read the data once at a model: its risk, and a lower bound on the best possible one.

    The model is a Solution, an Anchor, or anything with ``coef`` and ``intercept``.
    """
    coef, intercept = problem.family.as_model(solution.coef, solution.intercept)
    lowest = problem.kappa(coef) if problem.family.finite_at_kappa else np.inf
    multiplier = getattr(solution, "dual_variable", getattr(solution, "multiplier", lowest))
    anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, float(multiplier)))
    reading = read(source, Pass(problem, anchor, 0.05 if problem.loss.kinks else 0.0, sized=True))
    if reading.needs_rows:
        known, multiplier = certify_rows(problem, source, anchor)
        reading.replace_risk(known, multiplier)
    return reading


def certify_rows(problem: Problem, source: Source, model: Any) -> tuple[Certificate, float]:
    """Return the certificate of a model on the full data, and the multiplier at which its risk is attained.

    For problems whose bound cannot be computed from sums over rows. With label flips of order 2 every row has its own
    nonlinear function of the multiplier, and on a support the lower bound comes from training. A few numbers per row
    are kept in memory, never the rows.
    """
    before = source.n_reads
    data = source_data(source)
    known = certify_in_memory(problem, model, data.rows, data.y, data.weights)
    multiplier = problem.minimum(model.coef, model.intercept, data).multiplier
    return Certificate(known.upper, known.lower, source.n_reads - before, known.rounding), multiplier
