"""How many rows a guarantee asks for: the explicit sample sizes of the theory.

Each bound is rigorous; the smallest is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.coresets.allocate import allocate
from dualcore.coresets.samplers.grid import Grid
from dualcore.data.arrays import FloatArray


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
