"""Layers within classes: where there are many classes, none is left to the luck of a draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.coresets.allocate import allocate
from dualcore.coresets.anchors import check_classes, check_size
from dualcore.coresets.coreset import normalised
from dualcore.coresets.samplers.grid import build_grid, draw_grid
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.data.sources.products import source_target
from dualcore.problem import Problem


class LayerDraw(NamedTuple):
    """Rows drawn from a grid, or from one in every class: ascending numbers, weights that sum to one, cells."""

    indices: npt.NDArray[np.int64]
    weights: FloatArray
    n_cells: int
    merged: bool


def draw_layers(
    problem: Problem,
    source: Source,
    lower: FloatArray,
    upper: FloatArray,
    masses: FloatArray | None,
    size: int,
    seed: int,
) -> LayerDraw:
    """Draw by the size of ``h`` as Algorithm 1 does: over all rows, or within every class where there are many.

    Each of many classes keeps its mass. They share the rows by their mass and their part in the mean of ``upper``.
    """
    if problem.family.n_outputs == 1:
        grid = build_grid(lower, upper, masses)
        drawn = draw_grid(grid, size, seed, slack=grid.upper_mean, masses=masses)
        return LayerDraw(drawn.indices, drawn.weights, grid.n_cells, drawn.merged)
    check_size(problem, size)
    n_strata = len(problem.family.strata)
    code = problem.family.stratum(source_target(source))
    mass = np.full(code.size, 1.0 / code.size) if masses is None else masses
    counts = np.bincount(code[mass > 0.0], minlength=n_strata)
    check_classes(problem, counts)
    mean = float(mass @ upper)
    draws = allocate(size, counts, np.bincount(code, mass * (upper + mean), n_strata).astype(np.float64))
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code, minlength=n_strata))
    rows, weights, n_cells, merged = [], [], 0, False
    for k, members in enumerate(np.split(order, ends[:-1])):
        own = mass[members]
        inside = None if masses is None else own / own.sum()
        grid = build_grid(lower[members], upper[members], inside)
        found = draw_grid(grid, int(draws[k]), seed_from(seed, k), slack=mean, masses=inside)
        rows.append(members[found.indices])
        weights.append(found.weights * own.sum())
        n_cells, merged = n_cells + grid.n_cells, merged or found.merged
    chosen, weight = np.concatenate(rows), np.concatenate(weights)
    ascending = np.argsort(chosen)
    return LayerDraw(chosen[ascending].astype(np.int64), normalised(weight[ascending]), n_cells, merged)
