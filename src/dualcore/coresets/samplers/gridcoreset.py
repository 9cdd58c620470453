"""`GridCoreset`: Algorithm 1 of the paper, with its guarantee over a region of models."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.coresets.allocate import allocate
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Sampler, whole
from dualcore.coresets.samplers.baselines import draw_layers, drawn_coreset
from dualcore.coresets.samplers.grid import Grid, build_grid, draw_grid, octaves
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


@dataclass(frozen=True)
class Region:
    """Where the guarantee holds: a ball around the anchor in the parameters, an interval around it in lambda.

    ``||(theta, b) - anchor||_2 <= parameter_radius`` and ``|lam - anchor| <= multiplier_radius``.

    ``lipschitz`` and ``flip_lipschitz`` are the constants L and R of ``h`` in the parameters and in lambda;
    ``dimension`` counts the parameters. ``least`` bounds the mean of ``h`` from below over the region; by
    convexity it is at least ``H - ||grad H|| l_p - |dH/dlam| l_d`` at the anchor.
    """

    parameter_radius: float
    multiplier_radius: float
    lipschitz: float
    flip_lipschitz: float
    dimension: int
    least: float

    @property
    def drift(self) -> float:
        """``L l_p + R l_d``: by how much any ``h_i`` can change over the region."""
        return self.lipschitz * self.parameter_radius + self.flip_lipschitz * self.multiplier_radius


@dataclass(frozen=True)
class SampleSizes:
    """What each bound asks for, in rows, and the draws by the smallest.

    ``H~`` is then within ``epsilon`` of ``H``, relatively and everywhere in the region, with probability at
    least ``1 - 1 / n``.
    """

    # By "cells" (Hoeffding in every cell, as in the paper, corrected), "aggregate" (Hoeffding over all strata at once),
    # "ranges" (with each cell's actual range), "bernstein" (with each cell's variance).
    asked: dict[str, int]
    chosen: str  # the smallest
    draws: npt.NDArray[np.int64]  # (n_cells,)
    vacuous: bool  # whether even the smallest bound asks for every row: the guarantee says no more than all rows would

    def report(self, n: int) -> str:
        """Say how many rows each bound asks for, and whether the guarantee means anything for so many rows."""
        asked = ", ".join(f"{name} {count:.3g}" for name, count in self.asked.items())
        if self.vacuous:
            return f"The guarantee is vacuous here: of {n} rows the bounds ask for {asked}. Every cell is taken whole."
        return f"The '{self.chosen}' bound asks for {self.asked[self.chosen]} of {n} rows (all bounds: {asked})."

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"asked": self.asked, "chosen": self.chosen, "vacuous": self.vacuous}


def sample_sizes(
    grid: Grid,
    lower: FloatArray,
    upper: FloatArray,
    epsilon: float,
    region: Region,
    masses: FloatArray | None = None,  # None: equal
) -> SampleSizes:
    """Return the draws of every cell that make a dual ``epsilon``-coreset over ``region``.

    Follows the union bound over a net of the region (``|G| <= (1 + 2/eps3)^d ceil(1/eps2)``) with the
    deviations ``eps H / 9`` in the cells and ``eps H / 3`` in all, ``H`` being the least mean of ``h`` over
    the region. With ``masses`` the groups of the grid must be their `octaves`.
    """
    n, mass = lower.size, grid.masses
    least = region.least
    occupied = grid.counts > 0
    if least <= 0.0:
        asked = dict.fromkeys(("cells", "aggregate", "ranges", "bernstein"), n)
        return SampleSizes(asked, "cells", grid.counts.copy(), True)
    net = 0.0
    if region.lipschitz * region.parameter_radius > 0.0:
        eps3 = epsilon * least / (6.0 * region.lipschitz * region.parameter_radius)
        net += region.dimension * math.log1p(2.0 / eps3)
    if region.flip_lipschitz * region.multiplier_radius > 0.0:
        eps2 = epsilon * least / (6.0 * region.flip_lipschitz * region.multiplier_radius)
        net += math.log(math.ceil(1.0 / eps2))
    i, j = grid.layers_of_cells
    layers = int(max(grid.lower_layer.max(), grid.upper_layer.max())) + 1

    # A cell's estimate is the mean of h weighted by mass. Its error is that of the mean of m_i (h_i - mean) over the
    # least m_i, and masses in a cell differ by less than a factor of two: so does what they add to every range.
    uneven = 1.0 if masses is None else 2.0
    log_cells = math.log(2.0) + math.log(n) + 2.0 * math.log(layers) + math.log(grid.n_groups) + net
    span = 2.0**j * grid.upper_mean - np.where(i > 0, 2.0 ** (i - 1.0) * grid.lower_mean, 0.0) + 2.0 * region.drift
    span *= uneven
    deviation = epsilon * least * (2.0 ** (i - 1.0) + 2.0 ** (j - 1.0)) / 9.0
    per_cell = np.ceil(span**2 * log_cells / (2.0 * deviation**2))
    cells_draws = np.where(occupied, np.minimum(per_cell, grid.counts), 0).astype(np.int64)

    log_all, t = math.log(2.0) + math.log(n) + net, epsilon * least / 3.0
    actual = uneven * (grid.ranges + 2.0 * region.drift)
    deviations = np.zeros(grid.counts.size)
    middle = 0.5 * (lower + upper)
    weights = np.ones(n) if masses is None else masses
    total = np.maximum(np.bincount(grid.cell, weights, grid.counts.size), 1e-300)
    first = np.bincount(grid.cell, weights * middle, grid.counts.size) / total
    second = np.bincount(grid.cell, (middle - first[grid.cell]) ** 2, grid.counts.size) / np.maximum(grid.counts, 1)
    slop = np.zeros(grid.counts.size)
    np.maximum.at(slop, grid.cell, 0.5 * (upper - lower))
    deviations[occupied] = uneven * (np.sqrt(second) + slop + region.drift)[occupied]
    deviations = np.maximum(deviations, 1e-300)
    pooled = float(mass @ np.where(occupied, deviations, 0.0))
    wide = float((actual[occupied] * pooled / deviations[occupied]).max())
    asked_float = {
        "cells": float(np.where(occupied, per_cell, 0.0).sum()),
        "aggregate": float(mass @ np.where(occupied, span, 0.0)) ** 2 * log_all / (2.0 * t * t),
        "ranges": float(mass @ np.where(occupied, actual, 0.0)) ** 2 * log_all / (2.0 * t * t),
        "bernstein": 2.0 * log_all * (pooled**2 / t**2 + wide / (3.0 * t)),
    }
    asked = {name: max(1, math.ceil(min(count, 1e18))) for name, count in asked_float.items()}
    if int(cells_draws.sum()) < n:
        asked["cells"] = int(cells_draws.sum())  # cells that are taken whole spend nothing beyond their rows
    chosen = min(asked, key=lambda name: asked[name])
    if asked[chosen] >= n:
        return SampleSizes(asked, chosen, grid.counts.copy(), True)
    if chosen == "cells":
        return SampleSizes(asked, chosen, cells_draws, False)
    scores = mass * {"aggregate": span, "ranges": actual, "bernstein": deviations}[chosen]
    draws = allocate(max(asked[chosen], grid.n_cells), grid.counts, np.where(occupied, scores, 0.0))
    return SampleSizes(asked, chosen, draws, False)
