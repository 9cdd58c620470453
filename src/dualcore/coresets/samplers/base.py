"""The interface of samplers: `build` a coreset, or `fit` a model through one.

A fit comes with a certificate about the full data.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dualcore.certificates import Certificate
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.exact import CoresetBuilder, Optima
from dualcore.coresets.samplers.grid import resolve_size
from dualcore.coresets.training import Callback, Round
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.problem import Anchor, Problem
from dualcore.solvers import Solution, solve
from dualcore.solvers.assess import as_source, certify_in_memory, read_model
from dualcore.solvers.overreads import is_small
from dualcore.solvers.pilot import Pilot


@dataclass(frozen=True)
class CoresetFit:
    """A model trained through a coreset, evaluated and certified on the full data.

    Attributes
    ----------
    solution : Solution
        Its ``value``, ``lower_bound`` and ``gap`` are about the full data.
    certificate : Certificate
    coreset : Coreset
    history : tuple of Round

    Examples
    --------
    >>> from dualcore import fit_coreset
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> fit = fit_coreset(Problem("hinge", radius=0.1), X, np.sign(X[:, 0]), coreset=200, random_state=0)
    >>> len(fit.coreset), fit.solution.value == fit.certificate.upper == fit.history[-1].upper
    (200, True)
    """

    solution: Solution
    certificate: Certificate
    coreset: Coreset
    history: tuple[Round, ...]

    def built(self, source: Source) -> CoresetFit:
        """Return the fit with the coreset that its `Optima` make, if it has these in the place of the coreset."""
        optima: Any = self.coreset
        return replace(self, coreset=CoresetBuilder(source, optima).best()) if isinstance(optima, Optima) else self


def as_anchor(anchor: Any, problem: Problem, n_features: int) -> Anchor:
    """Return an Anchor from an Anchor or a Solution; raise an error if it does not suit the problem."""
    if isinstance(anchor, Solution):
        anchor = Anchor(anchor.coef, anchor.intercept, anchor.dual_variable)
    if not isinstance(anchor, Anchor):
        raise TypeError(f"anchor must be an Anchor or a Solution, got {type(anchor).__name__}.")
    wanted = problem.family.model_shape(n_features)
    if anchor.coef.shape != wanted:
        shapes = f"their shape must be {wanted}, not {anchor.coef.shape}"
        raise ValueError(f"The anchor has {anchor.coef.size} coefficients but X has {n_features} features: {shapes}.")
    if not (np.isfinite(anchor.coef).all() and np.isfinite(anchor.intercept).all() and not np.isnan(anchor.multiplier)):
        raise ValueError("The anchor holds NaN or infinite numbers; give a model that was trained.")
    kappa = problem.kappa(anchor.coef)
    if anchor.multiplier < kappa * (1.0 - 1e-9):
        raise ValueError(f"The multiplier {anchor.multiplier!r} is below kappa = {kappa!r}: h is infinite there.")
    return replace(anchor, multiplier=problem.family.feasible_multiplier(anchor.coef, anchor.multiplier))


class Sampler(ABC):
    """A method that chooses and weights rows.

    Subclasses hold settings only; nothing is computed before `build` or `fit`.
    """

    name: ClassVar[str] = ""
    size: float | int | None
    random_state: Any

    @abstractmethod
    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        """Return a coreset of ``size`` rows."""

    def build(self, problem: Problem, X: Any, y: Any = None, sample_weight: Any = None) -> Coreset:
        """Return a coreset of the data.

        Parameters
        ----------
        problem : Problem
        X : array, sparse matrix, data frame, or Source
        y, sample_weight
            Targets and weights; not passed if ``X`` is a source.
        """
        source = as_source(problem, X, y, sample_weight)
        return self.draw(problem, source, self._size(source), seed_from(self.random_state))

    def fit(
        self,
        problem: Problem,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        warm_start: Solution | None = None,
        callback: Callback | None = None,
    ) -> CoresetFit:
        """Train through a coreset, and certify the model on the full data."""
        source = as_source(problem, X, y, sample_weight)
        settings: dict[str, Any] = {"solver": solver, "tol": tol, "max_iter": max_iter, "warm_start": warm_start}
        found = self.train(problem, source, seed_from(self.random_state), callback or (lambda _: None), **settings)
        return found.built(source)

    def train(self, problem: Problem, source: Source, seed: int, callback: Callback, **settings: Any) -> CoresetFit:
        """Train on a coreset, then read the full data once to score and certify the model."""
        before = source.n_reads
        coreset = self.draw(problem, source, self._size(source), seed)
        solution = solve(problem, coreset.X, coreset.y, coreset.weights, **settings)
        reading = read_model(problem, source, solution)
        risk, lower = reading.risk, reading.lower_bound(reading.risk)
        # Few rows are loaded into memory, where repairing a dual point row by row proves a tighter bound.
        if is_small(source) and problem.family.is_closed:
            X, y = source.take(np.arange(source.n_rows))
            lower = max(lower, certify_in_memory(problem, solution, X, y, source.row_masses()).lower)
        done = Round(source.n_reads - before, len(coreset), risk, risk, min(lower, risk))
        callback(done)
        solution = replace(solution, value=risk, lower_bound=done.lower, gap=risk - done.lower, dual=None)
        solution = replace(solution, dual_variable=reading.multiplier, rounding=reading.rounding)
        return CoresetFit(solution, Certificate(risk, done.lower, done.read, reading.rounding), coreset, (done,))

    def _coreset(
        self, source: Source, rows: Pilot, said: str, seed: int, anchor: Anchor | None = None, **details: Any
    ) -> Coreset:
        """Return drawn rows as a coreset; a message about the draw is a warning, and stored in the details."""
        if said:
            warnings.warn(said, UserWarning, stacklevel=5)
            details["message"] = said
        return Coreset(*rows, source.n_rows, anchor, self.name, {"seed": seed} | details)

    def _size(self, source: Source) -> int:
        if self.size is None:
            raise ValueError("size is None: give a number of rows or a fraction of them.")
        return resolve_size(self.size, source.n_rows)
