"""`GridCoreset`: Algorithm 1 of the paper, with its guarantee over a region of models; `LayeredCoreset`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.coresets.anchors import anchor_at, check_size, drawn_rows
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Sampler, as_anchor
from dualcore.coresets.samplers.grid import Grid, allocate, build_grid, draw_grid, octaves
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.products import target_and_masses
from dualcore.problem import Anchor, Problem
from dualcore.solvers import solve_quietly
from dualcore.solvers.assess import read_model
from dualcore.solvers.pilot import draw_pilot


class AnchoredSampler(Sampler):
    """Draws from cells of rows with similar bounds of ``h`` at an anchor."""

    anchor: Any

    def _bounds(
        self, problem: Problem, source: Source, size: int, seed: int, rule: str
    ) -> tuple[Anchor, FloatArray, FloatArray]:
        """Return the anchor, trained on a pilot sample unless given, and bounds (n,) of all rows by one read."""
        if self.anchor is None:
            rows = draw_pilot(problem, source, size, seed_from(seed, 1))
            anchor = anchor_at(problem, solve_quietly(problem, rows, tol=1e-5))
        else:
            anchor = as_anchor(self.anchor, problem, source.n_features)
        parts = list(source.map(partial(_chunk_bounds, problem=problem, anchor=anchor, rule=rule)))
        lower, upper = (np.concatenate(bound) for bound in zip(*parts, strict=True))
        return anchor, np.minimum(lower, upper), upper

    def _drawn(
        self, problem: Problem, source: Source, grid: Grid, size: Any, seed: int, anchor: Anchor, **details: Any
    ) -> Coreset:
        drawn = draw_grid(grid, size, seed_from(seed, 2), slack=grid.upper_mean)
        details = {"cells": grid.counts.size, "merged": drawn.merged} | details
        rows, message = drawn_rows(problem, source, drawn.indices, drawn.weights, seed)
        return self._coreset(source, rows, message, seed, anchor, **details)


def _classes(problem: Problem, source: Source, size: int, masses: FloatArray) -> npt.NDArray[np.intp] | None:
    """Return the class (n,) of every row, within which rows are drawn, for softmax problems; else None."""
    if problem.family.n_outputs == 1:
        return None
    check_size(problem, size)
    groups = problem.family.stratum(target_and_masses(source)[0])
    empty = np.setdiff1d(np.arange(len(problem.family.strata)), groups[masses > 0.0])
    if empty.size:
        raise ValueError(f"No row of class {empty[0]} has weight; a classifier needs rows of every class.")
    return groups


@dataclass
class LayeredCoreset(AnchoredSampler):
    """LayerSamp: layers of doubling loss at the anchor, uniform draws from each (Huang et al. 2021).

    Parameters
    ----------
    size : int or float
    anchor : Anchor, Solution or None
        None trains one on a pilot sample.
    random_state : int, Generator or None

    Examples
    --------
    >>> X, y = np.arange(40.0)[:, None], np.tile([-1.0, 1.0], 20)
    >>> coreset = LayeredCoreset(size=10, random_state=0).build(Problem("logistic", radius=0.1), X, y)
    >>> coreset.method, round(float(coreset.weights.sum()), 9)
    ('LayeredCoreset', 1.0)
    """

    name = "LayeredCoreset"
    size: float | int | None = 0.05
    anchor: Any = None
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        anchor, lower, upper = self._bounds(problem, source, size, seed, "loss")
        masses = source.row_masses()
        grid = build_grid(lower, upper, masses, _classes(problem, source, size, masses))
        return self._drawn(problem, source, grid, size, seed, anchor)


@dataclass
class GridCoreset(AnchoredSampler):
    r"""Algorithm 1 of the paper: rows drawn uniformly from the cells of a grid over bounds of ``h_i`` at an anchor.

    Cells hold rows whose lower bounds ``a_i`` and upper bounds ``b_i`` lie between the same powers of two of their
    means; a row drawn from cell ``C`` has the weight ``|C| / (n |Q|)``. With ``epsilon`` the number of draws follows
    from a bound that holds with probability ``1 - 1/n`` for every model and multiplier in a region around the anchor.

    Parameters
    ----------
    size : int or float, default=0.05
        Number of rows, or fraction of them.
    epsilon : float, optional
        Instead of ``size``: draw as many rows as a rigorous bound requires so that ``|H~ - H| <= epsilon H`` over a
        region with probability ``1 - 1/n``. Needs ``parameter_radius``. ``details["sizes"]`` reports the sizes that the
        bounds require.
    parameter_radius : float, optional
        Radius of that region around the anchor, in the Euclidean norm of (coef, intercept).
    bounds : {"exact", "paper"}, default="exact"
        Which bounds ``a_i <= h_i <= b_i`` define the grid. "paper" uses those of the paper's appendix on a support, the
        loss and a feasible point; without a support ``h`` is known exactly and both are the same.
    anchor : Anchor, Solution or None
        The model at which ``h`` is bounded; None trains one on a pilot sample of ``size`` rows.
    random_state : int, Generator or None
        The same seed yields the same coreset for any chunks of the data.

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
        if self.epsilon is not None and not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must lie strictly between 0 and 1, got {self.epsilon!r}.")
        if self.epsilon is not None and not (self.parameter_radius or 0.0) > 0.0:
            raise ValueError("epsilon needs a positive parameter_radius: it holds in a ball around the anchor.")
        if self.bounds not in ("exact", "paper"):
            raise ValueError(f"bounds must be 'exact' or 'paper', got {self.bounds!r}.")
        anchor, lower, upper = self._bounds(problem, source, size, seed, self.bounds)
        masses, details = source.row_masses(), dict[str, Any](bounds=self.bounds)
        draws: Any = size
        groups = _classes(problem, source, size, masses) if self.epsilon is None else octaves(masses)
        grid = build_grid(lower, upper, masses, groups)
        if self.epsilon is not None:
            found = sample_sizes(grid, self.epsilon, self._region(problem, source, anchor, float(upper.max())))
            draws, sizes = found.draws, {"asked": found.asked, "chosen": found.chosen, "vacuous": found.vacuous}
            details |= {"sizes": sizes, "message": found.report(source.n_rows)}
        return self._drawn(problem, source, grid, draws, seed, anchor, **details)

    def _size(self, source: Source) -> int:
        if self.epsilon is not None and self.size is None:
            return max(1, min(source.n_rows, 20 * (source.n_features + 2)))  # size of the pilot only
        return super()._size(source)

    def _region(self, problem: Problem, source: Source, anchor: Anchor, largest: float) -> Region:
        """Return the region of the guarantee with the Lipschitz constants of ``h`` over it."""
        if not problem.family.is_closed:
            raise ValueError(f"epsilon mode knows no constants for the {problem.family.name!r} family: give a size.")
        if not problem.loss.is_lipschitz:
            raise ValueError("epsilon mode needs a loss of order 1: squares and higher powers are not Lipschitz.")
        radius = float(self.parameter_radius or 0.0)
        longest = max(source.map(lambda chunk: float(as_rows(chunk.X).row_norms().max())))
        if problem.fit_intercept:
            longest = float(np.hypot(longest, 1.0))
        moved, flipped, span = problem.loss.lipschitz * longest * radius, 0.0, 0.0
        if problem.is_classification and np.isfinite(problem.geometry.label_cost) and problem.radius > 0.0:
            # lam* lies in [kappa, max Delta]; over the ball both ends change by at most `moved`.
            top = 2.0 * (largest + moved) / problem.geometry.label_cost
            span = max(top, anchor.multiplier) - min(problem.kappa(anchor.coef), anchor.multiplier) + moved
            flipped = problem.geometry.label_cost * span
        reading = read_model(problem, source, anchor)
        climb = float(np.hypot(np.linalg.norm(reading.gradient), reading.slope if problem.fit_intercept else 0.0))
        least = float(reading.mean_h) - climb * radius - reading.spent * span
        return Region(moved, flipped, source.n_features + int(problem.fit_intercept), least)


def _chunk_bounds(chunk: Chunk, problem: Problem, anchor: Anchor, rule: str) -> tuple[FloatArray, FloatArray]:
    rows, family = as_rows(chunk.X), problem.family
    family.check_rows(rows, first=chunk.start)
    if rule != "loss":
        return family.bounds(anchor, rows, chunk.y, rule=rule)
    if family.n_outputs == 1:
        loss = problem.loss.value(family.signal_at(anchor, chunk.X, chunk.y))
    else:
        found = family.rows(anchor, chunk.X, chunk.y)
        loss = found.upper if found.loss is None else found.loss
    return loss, loss


class Region(NamedTuple):
    """The region of the guarantee: a ball around the anchor and an interval around its multiplier.

    ``||(theta, b) - anchor||_2 <= l_p`` and ``|lam - anchor| <= l_d``. By convexity the mean of ``h`` is at least
    ``H - ||grad H|| l_p - |dH/dlam| l_d`` there, with ``H`` and its derivatives at the anchor.
    """

    moved: float  # L l_p: bound on the change of any h_i with the parameters
    flipped: float  # R l_d: bound on its change with the multiplier
    dimension: int  # number of parameters
    least: float  # lower bound on the mean of h


class SampleSizes(NamedTuple):
    """The number of rows that each bound requires, and the draws of every cell by the smallest.

    ``H~`` is then within ``epsilon`` of ``H``, relatively and everywhere in the region, with probability at
    least ``1 - 1 / n``.
    """

    # Keys: "cells" (Hoeffding in every cell, as in the paper, corrected), "ranges" (Hoeffding over all cells at once,
    # with each cell's actual range), "bernstein" (with each cell's variance).
    asked: dict[str, int]
    chosen: str  # the smallest
    draws: npt.NDArray[np.int64]  # (n_cells,)
    vacuous: bool  # whether even the smallest bound requires all rows

    def report(self, n: int) -> str:
        """Return a message: how many rows each bound requires, and whether the guarantee is vacuous."""
        asked = ", ".join(f"{name} {count:.3g}" for name, count in self.asked.items())
        if self.vacuous:
            return f"The guarantee is vacuous here: of {n} rows the bounds ask for {asked}. Every cell is taken whole."
        return f"The '{self.chosen}' bound asks for {self.asked[self.chosen]} of {n} rows (all bounds: {asked})."


def sample_sizes(grid: Grid, epsilon: float, region: Region) -> SampleSizes:
    """Return the draws of every cell that make a dual ``epsilon``-coreset over ``region``.

    By a union bound over a net of the region (``|G| <= (1 + 2/eps3)^d ceil(1/eps2)``) with the deviations ``eps H / 9``
    in the cells and ``eps H / 3`` in total, where ``H`` is a lower bound on the mean of ``h`` over the region. The
    groups of the grid must be the `octaves` of the masses.
    """
    n, mass = grid.rows.size, grid.masses
    if region.least <= 0.0:
        return SampleSizes(dict.fromkeys(("cells", "ranges", "bernstein"), n), "cells", grid.counts, True)
    error = epsilon * region.least
    drift = region.moved + region.flipped
    net = region.dimension * math.log1p(12.0 * region.moved / error)
    net += math.log(max(math.ceil(6.0 * region.flipped / error), 1))
    log_all = math.log(2.0 * n) + net

    # The estimate of a cell is the mean of h weighted by mass. Its error is at most that of the mean of m_i (h_i -
    # mean) divided by the smallest m_i. Masses in a cell differ by less than a factor of two, so ranges grow by at most
    # that.
    uneven = 1.0 if np.ptp(grid.row_masses) == 0.0 else 2.0
    i, j = grid.lower_layer, grid.upper_layer
    n_layers = int(max(i.max(), j.max())) + 1
    span = 2.0**j * grid.upper_mean - np.where(i > 0, 2.0 ** (i - 1.0) * grid.lower_mean, 0.0) + 2.0 * drift
    deviation = error * (2.0 ** (i - 1.0) + 2.0 ** (j - 1.0)) / 9.0
    log_cells = log_all + 2.0 * math.log(n_layers) + math.log(int(grid.group.max()) + 1)
    per_cell = np.ceil((uneven * span) ** 2 * log_cells / (2.0 * deviation**2))
    draws = np.minimum(per_cell, grid.counts).astype(np.int64)

    ranges, t = uneven * (grid.ranges + 2.0 * drift), error / 3.0
    middle, half = 0.5 * (grid.lower + grid.upper), np.zeros(grid.counts.size)
    mean = np.bincount(grid.cell, grid.row_masses * middle) / mass
    variance = np.bincount(grid.cell, (middle - mean[grid.cell]) ** 2) / grid.counts
    np.maximum.at(half, grid.cell, 0.5 * (grid.upper - grid.lower))
    deviations = np.maximum(uneven * (np.sqrt(variance) + half + drift), 1e-300)
    pooled = float(mass @ deviations)
    wide = float((ranges * pooled / deviations).max())
    # For "cells", a cell that is taken whole needs no more draws than it has rows.
    wanted = {
        "cells": float(draws.sum() if draws.sum() < n else per_cell.sum()),
        "ranges": float(mass @ ranges) ** 2 * log_all / (2.0 * t * t),
        "bernstein": 2.0 * log_all * (pooled**2 / t**2 + wide / (3.0 * t)),
    }
    asked = {name: max(1, math.ceil(min(count, 1e18))) for name, count in wanted.items()}
    chosen = min(asked, key=lambda name: asked[name])
    if asked[chosen] >= n:
        return SampleSizes(asked, chosen, grid.counts, True)
    if chosen != "cells":
        scores = mass * (ranges if chosen == "ranges" else deviations)
        draws = allocate(max(asked[chosen], grid.counts.size), grid.counts, scores)
    return SampleSizes(asked, chosen, draws, False)
