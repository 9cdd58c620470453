"""From a finished read to a calibrated coreset: plan the cells, draw from them, calibrate the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.coresets.allocate import allocate, merge_cells
from dualcore.coresets.calibrate import Calibrated, calibrate, keeps_classes
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.reading.cells import CellRule
from dualcore.reading.reading import Reading

# Rows kept beyond the planned draws of a cell, so that an underestimated cell can still be served.
_SLACK, _SPARE = 2.0, 32


def cell_scores(rule: CellRule, mass: FloatArray) -> FloatArray:
    """Return how much of the budget each cell deserves: its mass times the curvature of ``h`` in it.

    Where ``h`` is linear, calibration reproduces it from a few rows; they still get a tenth of the weight,
    for the anchor will move.
    """
    layer = np.arange(rule.n_cells) % rule.n_layers
    if rule.width == 0.0:  # nothing is known of curvature: by the size of h and its mean, as Algorithm 1 draws
        return np.asarray(mass * (1.0 + 2.0 ** (layer - 1)), dtype=np.float64)
    level = np.arange(rule.n_cells) // rule.n_layers % rule.n_curvatures
    curvature = (
        np.where(level == rule.n_curvatures - 1, 0.0, 0.5**level) if rule.n_curvatures > 1 else np.ones(rule.n_cells)
    )
    share = curvature + 0.1 * 2.0**layer / 2.0 ** (rule.n_layers - 1) + 0.02
    return np.asarray(mass * share, dtype=np.float64)


def keep_fractions(rule: CellRule, mass: FloatArray, size: int, n_rows: int) -> FloatArray:
    """Return the share of keys to keep in each cell, from estimated masses: the planned draws, twice over and some."""
    seen = np.maximum(mass, 0.3 / size)
    scores = cell_scores(rule, seen)
    planned = size * scores / scores.sum()
    kept = np.minimum(1.0, (_SLACK * planned + _SPARE) / (n_rows * seen))
    return np.asarray(kept, dtype=np.float64)


def draw_cells(reading: Reading, size: int, *, calibrated: bool = True, redraw: int = 0) -> Coreset:
    """Draw from the cells of a read, and calibrate the weights at its anchor.

    A read keeps more rows than one draw needs; ``redraw`` chooses others of them.
    """
    problem, sample = reading.problem, reading.sample
    cells, counts, masses = sample.cells, reading.cell_count, reading.cell_mass
    scores = cell_scores(reading.task.cells, masses)
    occupied = np.flatnonzero(counts)
    if occupied.size > size:
        groups = merge_cells(np.repeat(occupied, counts[occupied]), size, counts.size // reading.task.cells.n_strata)
        lookup = np.zeros(counts.size, dtype=np.intp)
        lookup[np.repeat(occupied, counts[occupied])] = groups
        cells = lookup[cells]
        n_groups = int(groups.max()) + 1
        group = lookup[occupied]
        counts = np.bincount(group, counts[occupied], n_groups).astype(np.int64)
        masses, scores = (np.bincount(group, part[occupied], n_groups).astype(np.float64) for part in (masses, scores))
    available = np.bincount(cells, minlength=counts.size)
    draws = allocate(size, np.minimum(counts, available), scores)
    keys = row_keys(seed_from(reading.task.seed, redraw), sample.rows) if redraw else sample.keys
    order = np.lexsort((keys, cells))
    rank = np.arange(order.size) - np.searchsorted(cells[order], cells[order])
    chosen = np.sort(order[rank < draws[cells[order]]])
    chosen = chosen[np.argsort(sample.rows[chosen])]
    picked = sample.draw(chosen)
    drawn = np.bincount(cells[chosen], picked.masses, counts.size)
    # Shares of their cell first: they are at most one, however small the masses.
    share = picked.masses / np.where(drawn > 0.0, drawn, 1.0)[cells[chosen]]
    weights = normalised(masses[cells[chosen]] * share)
    result = Calibrated(weights, float("nan"))
    if calibrated:
        result = calibrate(weights, *reading.moments(picked))
    details: dict[str, Any] = {"cells": int(np.count_nonzero(counts)), "seed": reading.task.seed}
    if calibrated:
        details["calibration_residual"] = result.residual
    if problem.is_classification and not keeps_classes(picked.y, weights, result.weights):
        result = result._replace(weights=weights)
        details["message"] = "No weights that match the full data keep all classes: the draw was left uncalibrated."
    result = result._replace(weights=reading.balanced(picked, result.weights))
    keep = result.weights > 0.0
    return Coreset(
        picked.rows[keep],
        picked.X[keep],
        picked.y[keep],
        normalised(result.weights[keep]),
        reading.summary.n_rows,
        reading.anchor,
        "DualCoreset",
        details,
    )
