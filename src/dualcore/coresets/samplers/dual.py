"""`DualCoreset`: calibrated, re-anchored coresets whose answer comes with a certificate about the full data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Callback, CoresetFit, Sampler, as_anchor
from dualcore.coresets.samplers.baselines import drawn_coreset, row_masses
from dualcore.coresets.samplers.byclass import draw_layers
from dualcore.coresets.samplers.grid import build_grid, draw_grid
from dualcore.coresets.samplers.refinement import Refinement
from dualcore.coresets.samplers.sizes import Region, sample_sizes
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk, Source
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import CellRule
from dualcore.reading.reading import read
from dualcore.reading.summary import Pass
from dualcore.solvers.assess import as_source


@dataclass
class DualCoreset(Sampler):
    r"""A dual coreset: rows drawn where ``h`` needs them, weighted so that the full data's objective is reproduced.

    Around an anchor (theta, lambda) every row is put in a cell by how large ``h_i`` and its
    curvature are; rows are drawn from each cell by keys that belong to them, and the weights are moved as little as
    possible so that mass, mean ``h`` and mean gradient at the anchor equal those of the full data. Solving on
    the coreset gives the next anchor; a read of the data a round certifies where it stands.

    With fewer than three rows a parameter no weights match the full data; with fewer than forty the optimum of a
    coreset is a poor step where the loss has kinks. `fit` then takes quasi-Newton steps along the
    gradients that the reads give, and the rows of the coreset decide how long a step is; ``details["message"]`` of the
    coreset says so, and ``solution.solver`` is "tilted". A softmax model whose labels stay is found on a larger sample
    (at most half of the rows, and 64 MB), whose gradient every read corrects to that of all rows.

    With ``calibrate=False, focus=False`` this is Algorithm 1 of the paper as written.

    Parameters
    ----------
    size : int or float, default=0.05
        Number of rows, or fraction of them.
    epsilon : float, optional
        Instead of ``size``: draw what a rigorous bound asks for so that ``|H~ - H| <= epsilon H`` over a
        region with probability ``1 - 1/n``. Uses Algorithm 1; needs ``parameter_radius``.
        ``details["sizes"]`` of the coreset reports what every bound asks for.
    parameter_radius : float, optional
        Radius of that region around the anchor, in the Euclidean norm of (coef, intercept).
    rounds : int, default=1
        How many coresets to draw, each anchored at the solution on the last.
    target_gap : float, optional
        Stop earlier, as soon as the certified relative gap is below this. On a support the gap is known at the end
        only: a certificate costs about as much as training there.
    calibrate : bool, default=True
        Whether to calibrate the weights.
    focus : bool, default=True
        Whether to draw by curvature as well as by size of ``h``.
    bounds : {"exact", "paper"}, default="exact"
        Which bounds ``a_i <= h_i <= b_i`` span the grid of Algorithm 1. "paper" takes those of the paper's appendix on
        a support, the loss and a feasible point; elsewhere ``h`` is known exactly and both are the same.
    anchor : Anchor, Solution or None
        Where to begin; None trains on a keyed pilot sample of ``size`` rows.
    random_state : int, Generator or None
        The same seed gives the same coreset however the data are chunked.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=2000) > 0, 1.0, -1.0)
    >>> sampler = DualCoreset(size=200, rounds=4, target_gap=1e-2, random_state=0)
    >>> fit = sampler.fit(Problem("logistic", radius=0.1), X, y)
    >>> len(fit.coreset), fit.certificate.relative_gap < 1e-2
    (200, True)
    """

    name = "DualCoreset"
    size: float | int | None = 0.05
    epsilon: float | None = None
    parameter_radius: float | None = None
    rounds: int = 1
    target_gap: float | None = None
    calibrate: bool = True
    focus: bool = True
    bounds: str = "exact"
    anchor: Any = None
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        self._check()
        if size >= source.n_rows and self.epsilon is None:
            return whole(source, self.name)
        if self._as_written:
            return self._algorithm_one(problem, source, size, seed)
        return self._refinement(problem, source, size, seed).build()

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
        callback: Callback | None = None,
    ) -> CoresetFit:
        """Train through coresets: ``rounds`` of them, a read each, and a last one to certify."""
        self._check()
        source = as_source(problem, X, y, sample_weight)
        size = self._size(source)
        if self._as_written or size >= source.n_rows:
            return super().fit(problem, source, solver=solver, tol=tol, max_iter=max_iter, callback=callback)
        settings = {"solver": solver, "tol": tol, "max_iter": max_iter, "callback": callback}
        return self._refinement(problem, source, size, seed_from(self.random_state), **settings).fit()

    @property
    def _as_written(self) -> bool:
        return self.epsilon is not None or not (self.calibrate or self.focus)

    def _check(self) -> None:
        rounds: Any = self.rounds
        if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or rounds < 1:
            raise ValueError(f"rounds must be a whole number of at least 1, got {rounds!r}.")
        if self.target_gap is not None and not self.target_gap > 0.0:
            raise ValueError(f"target_gap must be positive, got {self.target_gap!r}.")
        if self.epsilon is not None and not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must lie strictly between 0 and 1, got {self.epsilon!r}.")
        if self.epsilon is not None and not (self.parameter_radius is not None and self.parameter_radius > 0.0):
            raise ValueError(
                "epsilon needs a positive parameter_radius: the guarantee holds in a ball around the anchor."
            )
        if self.bounds not in ("exact", "paper"):
            raise ValueError(f"bounds must be 'exact' or 'paper', got {self.bounds!r}.")
        if self.bounds == "paper" and not self._as_written:
            raise ValueError("bounds='paper' belongs to Algorithm 1: use calibrate=False and focus=False with it.")
        if self._as_written and self.rounds > 1:
            raise ValueError("Algorithm 1 draws once: use rounds=1, or calibrate=True to refine.")

    def _refinement(self, problem: Problem, source: Source, size: int, seed: int, **settings: Any) -> Refinement:
        return Refinement(
            problem,
            source,
            size,
            seed,
            rounds=self.rounds,
            target_gap=self.target_gap,
            anchor=None if self.anchor is None else as_anchor(self.anchor, problem, source.n_features),
            calibrated=self.calibrate,
            focused=self.focus,
            **settings,
        )

    def _size(self, source: Source) -> int:
        if self.epsilon is not None and self.size is None:
            return max(1, min(source.n_rows, 20 * (source.n_features + 2)))  # of the pilot; the draw follows the bound
        return super()._size(source)

    def _algorithm_one(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        anchor = self._anchor(problem, source, size, seed_from(seed, 1), self.anchor)
        lower, upper = row_bounds(problem, source, anchor, self.bounds)
        masses = row_masses(source)
        if self.epsilon is None:
            draw = draw_layers(problem, source, np.minimum(lower, upper), upper, masses, size, seed_from(seed, 2))
            found = {"seed": seed, "cells": draw.n_cells, "bounds": self.bounds, "merged": draw.merged}
            return drawn_coreset(problem, source, draw, seed, anchor, self.name, found)
        grid = build_grid(np.minimum(lower, upper), upper, masses, by_mass=True)
        sizes = sample_sizes(grid, lower, upper, self.epsilon, self._region(problem, source, anchor, upper), masses)
        drawn = draw_grid(grid, sizes.draws, seed_from(seed, 2), slack=grid.upper_mean, masses=masses)
        details: dict[str, Any] = {"seed": seed, "cells": grid.n_cells, "bounds": self.bounds}
        details |= {"sizes": sizes.as_dict(), "message": sizes.report(source.n_rows), "merged": drawn.merged}
        return drawn_coreset(problem, source, drawn, seed, anchor, self.name, details)

    def _region(self, problem: Problem, source: Source, anchor: Anchor, h: FloatArray) -> Region:
        """Return the region of the guarantee with the Lipschitz constants of ``h`` over it."""
        if not problem.family.is_closed:
            raise ValueError(
                f"epsilon mode knows no constants for the {problem.family.name!r} family. Give a size instead."
            )
        if not problem.loss.is_lipschitz:
            raise ValueError(
                "epsilon mode needs a loss of order 1: squared losses and higher powers are not Lipschitz."
            )
        radius = float(self.parameter_radius or 0.0)
        longest = max(source.map(lambda chunk: longest_row(chunk.X)))
        if problem.fit_intercept:
            longest = float(np.hypot(longest, 1.0))
        lipschitz, flips, span = problem.loss.lipschitz * longest, 0.0, 0.0
        if problem.is_classification and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0:
            flips = problem.geometry.label_cost
            # lam* lies in [kappa, max Delta]; over the ball both ends move by at most this much.
            top = 2.0 * (float(h.max()) + lipschitz * radius) / flips
            span = max(top, anchor.multiplier) - min(problem.kappa(anchor.coef), anchor.multiplier) + lipschitz * radius
        rule = Pass(problem, anchor, CellRule(0.0, 1.0, 1, 1), 0, np.zeros(1))
        reading = read(source, rule)
        climb = float(np.hypot(np.linalg.norm(reading.gradient), reading.slope if problem.fit_intercept else 0.0))
        least = float(reading.mean_h) - climb * radius - reading.spent * span
        return Region(radius, span, lipschitz, flips, source.n_features + int(problem.fit_intercept), least)


def row_bounds(problem: Problem, source: Source, anchor: Anchor, rule: str) -> tuple[FloatArray, FloatArray]:
    """Return ``a_i <= h_i <= b_i`` of all rows at the anchor: one read, two numbers a row."""
    parts = list(source.map(partial(_chunk_bounds, problem=problem, anchor=anchor, rule=rule)))
    return np.concatenate([lower for lower, _ in parts]), np.concatenate([upper for _, upper in parts])


def _chunk_bounds(chunk: Chunk, problem: Problem, anchor: Anchor, rule: str) -> tuple[FloatArray, FloatArray]:
    rows = as_rows(chunk.X)
    problem.family.check_rows(rows, first=chunk.start)
    return problem.family.bounds(anchor, rows, chunk.y, rule=rule)


def longest_row(X: Any) -> float:
    """Return the largest Euclidean norm of a row."""
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.einsum("ij,ij->i", X, X)
    return float(np.sqrt(np.max(squares)))


def whole(source: Source, method: str) -> Coreset:
    """Return all rows as a coreset: the full data, exactly."""
    rows = np.arange(source.n_rows)
    X, y = source.take(rows)
    masses = row_masses(source)
    weights = np.full(rows.size, 1.0 / rows.size) if masses is None else masses
    return Coreset(rows, X, y, weights, source.n_rows, None, method, {"message": "size covers all rows"})
