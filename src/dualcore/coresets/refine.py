"""Training through a coreset: the one call behind every estimator's ``coreset=``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.certificates import Certificate
from dualcore.coresets.auto import AUTO, Choice, choose_rows
from dualcore.coresets.samplers import CoresetFit, DualCoreset, Round, Sampler
from dualcore.coresets.training import Callback
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.rowdata import rows_in_memory
from dualcore.solvers import Iterate, Solution, solve
from dualcore.solvers.assess import as_source, certify_in_memory

# Data of so many numbers (16 MB) are certified once more, all rows at hand, where sums left a gap above this. Of fewer
# numbers than the last it costs little beside the fit, and is done wherever the tolerance is not certified.
_SMALL, _LOOSE, _TINY = 2_000_000, 1e-3, 400_000


def as_sampler(coreset: Any, random_state: Any = None) -> Sampler:
    """Return a sampler from what a user gave for ``coreset``.

    A number is the size of a `DualCoreset`. A sampler without a seed of its own takes ``random_state``.
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
    """Train on a coreset and certify the model on the full data.

    Parameters
    ----------
    problem : Problem
    X, y, sample_weight
        The full data, as arrays or frames, or one source for ``X``.
    coreset : float, int, sampler or "auto", default=0.05
        "auto" trains on all rows where that is quicker, by measurement (`dualcore.coresets.auto`): then ``coreset`` of
        the fit is None. ``solution.solver`` says what was chosen, and why.
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
    source, choice = None, None
    if is_auto(coreset):
        source = as_source(problem, X, y, sample_weight)
        choice = choose_rows(
            problem, source.n_rows, source.n_features, in_memory=rows_in_memory(source) is not None, tol=tol
        )
        if choice.size is None:
            return _fit_all(problem, source, choice, solver=solver, tol=tol, max_iter=max_iter, callback=callback)
        coreset = choice.size
    sampler = as_sampler(coreset, random_state)
    source = as_source(problem, X, y, sample_weight) if source is None else source
    settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "callback": callback}
    found = sampler.fit(problem, source, warm_start=warm_start, **settings)
    # Where a closer look was taken already it was one at all rows.
    numbers = source.n_rows * source.n_features
    loose = found.certificate.relative_gap > (tol if numbers <= _TINY else _LOOSE)
    if loose and numbers <= _SMALL and problem.family.is_closed:
        found = _tightened(problem, found, source)
    if choice is None:
        return found
    name = f"{found.solution.solver} on a coreset of {len(found.coreset)} rows ({choice.reason})"
    return replace(found, solution=replace(found.solution, solver=name))


def is_auto(coreset: Any) -> bool:
    """Whether the choice between all rows and a coreset is left to us."""
    return isinstance(coreset, str) and coreset == AUTO


def _fit_all(
    problem: Problem,
    source: Source,
    choice: Choice,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> CoresetFit:
    """Return the fit on all rows, in memory or over reads."""
    history: list[Round] = []

    def tell(done: Iterate) -> None:
        lower = done.value - done.gap
        history.append(Round(done.iteration, source.n_rows, done.value, done.value, lower))
        if callback is not None:
            callback(history[-1])

    solution = solve(problem, source, solver=solver, tol=tol, max_iter=max_iter, callback=tell)
    if not history:
        tell(Iterate(solution.iterations + 1, solution.value, solution.gap))
    reads = solution.n_reads or solution.iterations + 1
    certificate = Certificate(solution.value, solution.lower_bound, reads, solution.rounding)
    solution = replace(solution, solver=f"{solution.solver} on all rows ({choice.reason})", dual=None)
    return CoresetFit(solution, certificate, None, tuple(history))  # type: ignore[arg-type]


def _tightened(problem: Problem, found: CoresetFit, source: Source) -> CoresetFit:
    """Return the fit with the bound that rows in memory give: a dual point can be repaired there, row by row."""
    X, y = source.take(np.arange(source.n_rows))
    model, masses = found.solution, source.row_masses()
    lower = max(found.certificate.lower, certify_in_memory(problem, model, X, y, masses).lower)
    lower = min(lower, found.certificate.upper)
    return replace(
        found,
        certificate=replace(found.certificate, lower=lower, n_reads=found.certificate.n_reads + 1),
        solution=replace(model, lower_bound=lower, gap=model.value - lower),
    )
