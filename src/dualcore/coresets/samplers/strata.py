"""From a finished read to a calibrated coreset: plan the cells, draw from them, calibrate the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.samplers.allocate import allocate, merge_cells
from dualcore.coresets.samplers.calibrate import Calibrated, calibrate, keeps_classes
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.reading.reading import Reading
from dualcore.reading.summary import CellRule, Sample

__all__ = ["bend_scores", "cell_masses", "cell_rule", "draw_cells", "keep_fractions", "moment_matrix", "spread_of"]

# Rows kept beyond the planned draws of a cell, so that an underestimated cell can still be served.
_SLACK, _SPARE = 2.0, 32


def cell_rule(problem: Problem, mean_h: float, size: int, width: float, *, focused: bool) -> CellRule:
    """Return cells that ``size`` draws can cover: by class, by bend (where ``focused``), by loss if there is room."""
    n_bends = int(np.clip(size // 8, 1, 6)) if focused else 1
    n_layers = int(np.clip(size // (8 * n_bends), 1, 4 if focused else 12))
    return CellRule(mean_h, width, n_bends, n_layers, problem.is_classification)


def bend_scores(rule: CellRule, mass: FloatArray) -> FloatArray:
    """Return how much of the budget each cell deserves: its mass times how sharply ``h`` bends in it.

    Where ``h`` is linear, calibration reproduces it from a few rows; they still get a tenth of the weight,
    for the anchor will move.
    """
    level = np.arange(rule.n_cells) // rule.n_layers % rule.n_bends
    bend = np.where(level == rule.n_bends - 1, 0.0, 0.5**level) if rule.n_bends > 1 else np.ones(rule.n_cells)
    layer = np.arange(rule.n_cells) % rule.n_layers
    share = bend + 0.1 * 2.0**layer / 2.0 ** (rule.n_layers - 1) + 0.02
    return np.asarray(mass * share, dtype=np.float64)


def keep_fractions(rule: CellRule, mass: FloatArray, size: int, n_rows: int) -> FloatArray:
    """Return the share of keys to keep in each cell, from estimated masses: the planned draws, twice over and some."""
    seen = np.maximum(mass, 0.3 / size)
    scores = bend_scores(rule, seen)
    planned = size * scores / scores.sum()
    kept = np.minimum(1.0, (_SLACK * planned + _SPARE) / (n_rows * seen))
    return np.asarray(kept, dtype=np.float64)


def moment_matrix(problem: Problem, sample: Sample) -> FloatArray:
    """Return the moments of each row: its class, ``h``, its slope in the intercept and in theta, whether it flips."""
    pull = sample.slope * sample.y if problem.is_classification else sample.slope
    X = sample.X.toarray() if sp.issparse(sample.X) else sample.X
    columns = [sample.h[:, None], pull[:, None], X * pull[:, None]]
    if problem.is_classification:
        columns.insert(0, (sample.y > 0.0)[:, None].astype(np.float64))
    if sample.flipped.any():
        columns.append(sample.flipped[:, None].astype(np.float64))
    return np.hstack(columns)


def draw_cells(reading: Reading, size: int, *, calibrated: bool = True, redraw: int = 0) -> Coreset:
    """Draw from the cells of a read, and calibrate the weights at its anchor.

    A read keeps more rows than one draw needs; ``redraw`` chooses others of them.
    """
    problem, sample = reading.problem, reading.sample
    cells, counts, masses = sample.cells, reading.cell_count, reading.cell_mass
    scores = bend_scores(reading.task.cells, masses)
    occupied = np.flatnonzero(counts)
    if occupied.size > size:
        border = counts.size // 2 if reading.task.cells.by_class else None
        groups = merge_cells(np.repeat(occupied, counts[occupied]), size, border)
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
    picked = sample.pick(chosen)
    drawn = np.bincount(cells[chosen], picked.masses, counts.size)
    # Shares of their cell first: they are at most one, however small the masses.
    share = picked.masses / np.where(drawn > 0.0, drawn, 1.0)[cells[chosen]]
    weights = normalised(masses[cells[chosen]] * share)
    result = Calibrated(weights, float("nan"))
    if calibrated:
        moments = moment_matrix(problem, picked)
        first = [reading.cell_mass.reshape(2, -1)[1].sum()] if reading.task.cells.by_class else []
        targets = np.concatenate([first, [reading.mean_h, reading.slope], reading.gradient, [reading.flipped]])
        result = calibrate(weights, moments, targets[: moments.shape[1]])
    details: dict[str, Any] = {"cells": int(np.count_nonzero(counts)), "seed": reading.task.seed}
    if calibrated:
        details["calibration_residual"] = result.residual
    if problem.is_classification and not keeps_classes(picked.y, weights, result.weights):
        result = result._replace(weights=weights)
        details["message"] = "No weights that match the full data keep both classes: the draw was left uncalibrated."
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


def spread_of(t: FloatArray, weights: FloatArray) -> float:
    """Return the standard deviation of ``t``, at least a tiny positive number."""
    mean = float(weights @ t)
    return max(float(np.sqrt(weights @ (t - mean) ** 2)), 1e-12)


def cell_masses(
    rule: CellRule, problem: Problem, anchor: Anchor, t: FloatArray, h: FloatArray, y: FloatArray, weights: FloatArray
) -> FloatArray:
    """Estimate the mass of every cell from weighted rows."""
    cells = rule.assign(problem, anchor.multiplier, t, h, problem.loss.slope(t), y)
    return np.bincount(cells, weights, rule.n_cells).astype(np.float64)
