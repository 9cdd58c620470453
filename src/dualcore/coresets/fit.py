"""Training through a coreset: `fit_coreset`, and `train_sampler`, which every estimator with ``coreset=`` calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.coresets.samplers import CoresetFit, DualCoreset, Sampler
from dualcore.coresets.training import Callback, train_all
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.rowdata import rows_in_memory
from dualcore.solvers import Solution
from dualcore.solvers.assess import as_source

# With fewer numbers (rows times features) or more features than these, training on all rows is as fast or faster.
_MANY_NUMBERS, _FEW_FEATURES = 5_000_000, 100


def choose_rows(problem: Problem, n_rows: int, n_features: int, *, in_memory: bool, tol: float) -> tuple[Any, str]:
    """Return the choice of ``coreset="auto"``, all rows or a coreset, by their expected times.

    It is the number of rows of the coreset, or None for all rows, and the reason. A coreset is faster with many rows,
    few features and a loss with kinks or label flips. Over reads it is chosen if ``tol`` is at least the gap at which
    training through a coreset stops.

    Examples
    --------
    >>> choose_rows(Problem("hinge", radius=0.1), 2_000_000, 20, in_memory=True, tol=1e-6)
    (2000, 'many rows, few features and a loss with kinks: a coreset is quicker')
    >>> choose_rows(Problem("hinge", radius=0.1), 20_000, 20, in_memory=True, tol=1e-6)[0] is None
    True
    """
    if not problem.family.is_closed:
        return None, "on a support the certificate of a coreset costs as much as training"
    if n_features > _FEW_FEATURES:
        return None, f"more than {_FEW_FEATURES} features: products with all rows are cheaper than a coreset"
    if n_rows * n_features < _MANY_NUMBERS:
        return None, "few rows: all of them are quicker than a coreset, and exact"
    size, flips = max(50 * n_features, 2000), problem.family.flips
    if problem.loss.kinks or flips:
        what = "label flips" if flips else "a loss with kinks"
        return size, f"many rows, few features and {what}: a coreset is quicker"
    if not in_memory and tol >= DualCoreset.target_gap:
        return size, f"a coreset takes fewer reads to a gap of {DualCoreset.target_gap:g}"
    return None, "a smooth loss: all rows take about as long as a coreset, and are exact"


def as_sampler(coreset: Any, random_state: Any = None) -> Sampler:
    """Return a sampler from the user's ``coreset``.

    A number is the size of a `DualCoreset`. A sampler without a seed gets ``random_state``.
    """
    if isinstance(coreset, Sampler):
        if coreset.random_state is None and random_state is not None:
            return replace(coreset, random_state=random_state)  # type: ignore[type-var]
        return coreset
    is_number = isinstance(coreset, (int, float, np.integer, np.floating)) and not isinstance(coreset, bool)
    if is_number:
        return DualCoreset(size=coreset, random_state=random_state)
    raise TypeError(
        f"coreset must be a size (a number of rows or a fraction) or a sampler, got {type(coreset).__name__}. "
        "For example coreset=0.05, or coreset=DualCoreset(size=0.05, rounds=3); fit and fit_coreset also take 'auto'."
    )


def fit_coreset(
    problem: Problem,
    X: Any,
    y: Any = None,
    coreset: float | int | Sampler | str = 0.05,
    sample_weight: Any = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 200,
    warm_start: Solution | None = None,
    random_state: Any = None,
    callback: Callback | None = None,
) -> CoresetFit:
    """Train through a coreset and certify the model on the full data.

    `DualCoreset`, the default, trains on a working sample and then chooses rows that reproduce the model. The other
    samplers draw rows first and train on them.

    Parameters
    ----------
    problem : Problem
    X, y, sample_weight
        The full data, as arrays or frames, or one source for ``X``.
    coreset : float, int, sampler or "auto", default=0.05
        A number is the size of a `DualCoreset`. "auto" trains on all rows where that is expected to be faster
        (`choose_rows`); ``coreset`` of the fit is then None. ``solution.solver`` states the choice and its reason.
    solver, tol, max_iter
        Passed to `solve` on the coreset, or on all rows.
    warm_start : Solution, optional
        A model to begin with.
    random_state : int, Generator or None
    callback : callable, optional
        Called with a `Round` after every read of the data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 4))
    >>> y = np.where(X @ np.ones(4) + rng.normal(size=5000) > 0, 1.0, -1.0)
    >>> fit = fit_coreset(Problem("logistic", radius=0.1), X, y, coreset=0.1, random_state=0)
    >>> fit.certificate.relative_gap < 1e-3
    True
    """
    source = as_source(problem, X, y, sample_weight)
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "warm_start": warm_start}
    return train_sampler(problem, source, coreset, random_state, callback, **settings).built(source)


def train_sampler(
    problem: Problem, source: Source, coreset: Any, random_state: Any, callback: Callback | None, **settings: Any
) -> CoresetFit:
    """Train as `fit_coreset`, but choose no rows: a fit by `DualCoreset` has `Optima` in the place of its coreset.

    `CoresetBuilder` makes one coreset of the `Optima` of several classes, each against the rest.
    """
    callback = callback or (lambda _: None)
    if not is_auto(coreset):
        sampler = as_sampler(coreset, random_state)
        return sampler.train(problem, source, seed_from(sampler.random_state), callback, **settings)
    in_memory = rows_in_memory(source) is not None
    size, reason = choose_rows(problem, source.n_rows, source.n_features, in_memory=in_memory, tol=settings["tol"])
    if size is None:
        trained = train_all(problem, source, None, callback, **settings)
        found = CoresetFit(trained.solution, trained.certificate, None, trained.history)  # type: ignore[arg-type]
    else:
        found = as_sampler(size).train(problem, source, seed_from(random_state), callback, **settings)
    how = "all rows" if size is None else f"a coreset of {size} rows"
    name = f"{found.solution.solver} on {how} ({reason})"
    return replace(found, solution=replace(found.solution, solver=name, dual=None))


def is_auto(coreset: Any) -> bool:
    """Whether ``coreset`` is "auto": the choice between all rows and a coreset is left to `choose_rows`."""
    return isinstance(coreset, str) and coreset == "auto"
