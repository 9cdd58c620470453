"""`GridCoreset`: Algorithm 1 of the paper, with its guarantee over a region of models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Sampler, whole
from dualcore.coresets.samplers.baselines import draw_layers, drawn_coreset
from dualcore.coresets.samplers.grid import build_grid, draw_grid, octaves
from dualcore.coresets.samplers.sizes import Region, sample_sizes
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk, Source
from dualcore.problem import Anchor, Problem
from dualcore.solvers.assess import read_model


@dataclass
class GridCoreset(Sampler):
    r"""Algorithm 1 of the paper: rows drawn uniformly from the cells of a grid over bounds of ``h_i`` at an anchor.

    Cells hold rows whose lower bounds ``a_i`` and upper bounds ``b_i`` lie between the same powers of two of their
    means; a row drawn from cell ``C`` has the weight ``|C| / (n |Q|)``. With ``epsilon`` the number of draws follows
    from a bound that holds with probability ``1 - 1/n`` for every model and multiplier in a region around the anchor.

    Parameters
    ----------
    size : int or float, default=0.05
        Number of rows, or fraction of them.
    epsilon : float, optional
        Instead of ``size``: draw what a rigorous bound asks for so that ``|H~ - H| <= epsilon H`` over a region with
        probability ``1 - 1/n``. Needs ``parameter_radius``. ``details["sizes"]`` reports what every bound asks for.
    parameter_radius : float, optional
        Radius of that region around the anchor, in the Euclidean norm of (coef, intercept).
    bounds : {"exact", "paper"}, default="exact"
        Which bounds ``a_i <= h_i <= b_i`` span the grid. "paper" takes those of the paper's appendix on a support, the
        loss and a feasible point; elsewhere ``h`` is known exactly and both are the same.
    anchor : Anchor, Solution or None
        Where ``h`` is bounded; None trains on a keyed pilot sample of ``size`` rows.
    random_state : int, Generator or None
        The same seed gives the same coreset however the data are chunked.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=2000) > 0, 1.0, -1.0)
    >>> len(GridCoreset(size=200, random_state=0).build(Problem("logistic", radius=0.1), X, y))
    200
    """

    name = "GridCoreset"
    size: float | int | None = 0.05
    epsilon: float | None = None
    parameter_radius: float | None = None
    bounds: str = "exact"
    anchor: Any = None
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        self._check()
        if size >= source.n_rows and self.epsilon is None:
            return whole(source, self.name)
        return self._algorithm_one(problem, source, size, seed)

    def _check(self) -> None:
        if self.epsilon is not None and not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must lie strictly between 0 and 1, got {self.epsilon!r}.")
        if self.epsilon is not None and not (self.parameter_radius is not None and self.parameter_radius > 0.0):
            raise ValueError(
                "epsilon needs a positive parameter_radius: the guarantee holds in a ball around the anchor."
            )
        if self.bounds not in ("exact", "paper"):
            raise ValueError(f"bounds must be 'exact' or 'paper', got {self.bounds!r}.")

    def _size(self, source: Source) -> int:
        if self.epsilon is not None and self.size is None:
            return max(1, min(source.n_rows, 20 * (source.n_features + 2)))  # of the pilot; the draw follows the bound
        return super()._size(source)

    def _algorithm_one(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        anchor = self._anchor(problem, source, size, seed_from(seed, 1), self.anchor)
        lower, upper = row_bounds(problem, source, anchor, self.bounds)
        if self.epsilon is None:
            found = draw_layers(problem, source, np.minimum(lower, upper), upper, size, seed, anchor, self.name)
            return replace(found, details=found.details | {"bounds": self.bounds})
        masses = source.row_masses()
        grid = build_grid(np.minimum(lower, upper), upper, masses, octaves(masses))
        region = self._region(problem, source, anchor, upper)
        sizes = sample_sizes(grid, lower, upper, self.epsilon, region, masses if source.is_weighted else None)
        drawn = draw_grid(grid, sizes.draws, seed_from(seed, 2), slack=grid.upper_mean, masses=masses)
        details = {"bounds": self.bounds, "sizes": sizes.as_dict(), "message": sizes.report(source.n_rows)}
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
        reading = read_model(problem, source, anchor)
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
