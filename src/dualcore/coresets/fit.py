"""Training through a coreset: `fit_coreset`, which every estimator with ``coreset=`` calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dualcore.coresets.samplers import CoresetFit, DualCoreset, Sampler
from dualcore.coresets.training import Callback, train_all
from dualcore.problem import Problem
from dualcore.reading.rowdata import rows_in_memory
from dualcore.solvers import Solution
from dualcore.solvers.assess import as_source

# With fewer numbers (rows times features) or more features than these, training on all rows is as fast or faster.
_MANY_NUMBERS, _FEW_FEATURES = 5_000_000, 100


class Choice(NamedTuple):
    """Number of rows of the coreset, or None for training on all rows, and the reason."""

    size: int | None
    reason: str


def choose_rows(problem: Problem, n_rows: int, n_features: int, *, in_memory: bool, tol: float) -> Choice:
    """Return the choice of ``coreset="auto"``, all rows or a coreset, by their expected times.

    A coreset is faster with many rows, few features and a loss with kinks or label flips. Over reads it is chosen if
    ``tol`` is at least the gap at which training through a coreset stops.

    Examples
    --------
    >>> choose_rows(Problem("hinge", radius=0.1), 2_000_000, 20, in_memory=True, tol=1e-6)
    Choice(size=2000, reason='many rows, few features and a loss with kinks: a coreset is quicker')
    >>> choose_rows(Problem("hinge", radius=0.1), 20_000, 20, in_memory=True, tol=1e-6).size is None
    True
    """
    if not problem.family.is_closed:
        return Choice(None, "on a support the certificate of a coreset costs as much as training")
    if n_features > _FEW_FEATURES:
        return Choice(None, f"more than {_FEW_FEATURES} features: products with all rows are cheaper than a coreset")
    if n_rows * n_features < _MANY_NUMBERS:
        return Choice(None, "few rows: all of them are quicker than a coreset, and exact")
    size = max(50 * n_features, 2000)
    flips = problem.family.flips
    if problem.loss.kinks or flips:
        what = "label flips" if flips else "a loss with kinks"
        return Choice(size, f"many rows, few features and {what}: a coreset is quicker")
    if not in_memory and tol >= DualCoreset.target_gap:
        return Choice(size, f"a coreset takes fewer reads to a gap of {DualCoreset.target_gap:g}")
    return Choice(None, "a smooth loss: all rows take about as long as a coreset, and are exact")


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
    stacked: bool = False,
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
    stacked : bool, default=False
        For one of several classes against the rest: ``coreset`` of the fit is then `Optima`, if the sampler is a
        `DualCoreset`. `CoresetBuilder` makes one coreset of those of all classes.

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
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter}
    further: dict[str, Any] = {"warm_start": warm_start, "stacked": stacked, "callback": callback}
    if not is_auto(coreset):
        return as_sampler(coreset, random_state).fit(problem, source, **further, **settings)
    in_memory = rows_in_memory(source) is not None
    choice = choose_rows(problem, source.n_rows, source.n_features, in_memory=in_memory, tol=tol)
    if choice.size is None:
        trained, how = train_all(problem, source, None, callback or (lambda _: None), **settings), "all rows"
        solution = replace(trained.solution, dual=None)
        found = CoresetFit(solution, trained.certificate, None, trained.history)  # type: ignore[arg-type]
    else:
        found = as_sampler(choice.size, random_state).fit(problem, source, **further, **settings)
        how = f"a coreset of {choice.size} rows"
    name = f"{found.solution.solver} on {how} ({choice.reason})"
    return replace(found, solution=replace(found.solution, solver=name))


def is_auto(coreset: Any) -> bool:
    """Whether ``coreset`` is "auto": the choice between all rows and a coreset is left to `choose_rows`."""
    return isinstance(coreset, str) and coreset == "auto"
