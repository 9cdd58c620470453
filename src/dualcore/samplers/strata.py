"""From a finished read to a calibrated coreset: plan the cells, draw from them, calibrate the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coreset import Anchor, Coreset, normalised
from dualcore.geometry import FloatArray
from dualcore.problem import Problem
from dualcore.samplers.allocate import allocate, merge_cells
from dualcore.samplers.calibrate import Calibrated, calibrate
from dualcore.summary import CellRule, Reading, Sample

__all__ = ["bend_scores", "cell_masses", "cell_rule", "draw_cells", "keep_fractions", "moment_matrix", "spread_of"]

# Rows kept beyond the planned draws of a cell, so that an underestimated cell can still be served.
_SLACK, _SPARE = 2.0, 32


def cell_rule(mean_h: float, size: int, width: float, *, focused: bool) -> CellRule:
    """Return cells that ``size`` draws can cover: bend levels first (where ``focused``), loss layers if there is room."""
    n_bends = int(np.clip(size // 8, 1, 6)) if focused else 1
    n_layers = int(np.clip(size // (8 * n_bends), 1, 4 if focused else 12))
    return CellRule(mean_h, width, n_bends, n_layers)


def bend_scores(rule: CellRule, mass: FloatArray) -> FloatArray:
    """Return how much of the budget each cell deserves: its mass times how sharply ``h`` bends in it.

    Where ``h`` is linear, calibration reproduces it from a few rows; they still get a tenth of the weight, for the anchor will move.
    """
    level = np.arange(rule.n_cells) // rule.n_layers
    bend = np.where(level == rule.n_bends - 1, 0.0, 0.5**level) if rule.n_bends > 1 else np.ones(rule.n_cells)
    layer = np.arange(rule.n_cells) % rule.n_layers
    return mass * (bend + 0.1 * 2.0**layer / 2.0 ** (rule.n_layers - 1) + 0.02)


def keep_fractions(rule: CellRule, mass: FloatArray, size: int, n_rows: int) -> FloatArray:
    """Return the share of keys to keep in each cell, from estimated masses: the planned draws, twice over and some."""
    seen = np.maximum(mass, 0.3 / size)
    scores = bend_scores(rule, seen)
    planned = size * scores / scores.sum()
    return np.minimum(1.0, (_SLACK * planned + _SPARE) / (n_rows * seen))


def moment_matrix(problem: Problem, sample: Sample) -> FloatArray:
    """Return the moments of each row: ``h``, its slope in the intercept and in theta, and whether it flips."""
    pull = sample.slope * sample.y if problem.is_classification else sample.slope
    X = sample.X.toarray() if sp.issparse(sample.X) else sample.X
    columns = [sample.h[:, None], pull[:, None], X * pull[:, None]]
    if sample.flipped.any():
        columns.append(sample.flipped[:, None].astype(np.float64))
    return np.hstack(columns)


def draw_cells(reading: Reading, size: int, *, calibrated: bool = True) -> Coreset:
    """Draw from the cells of a read, and calibrate the weights at its anchor."""
    problem, sample = reading.problem, reading.sample
    cells, counts, masses = sample.cells, reading.cell_count, reading.cell_mass
    scores = bend_scores(reading.task.cells, masses)
    occupied = np.flatnonzero(counts)
    if occupied.size > size:
        groups = merge_cells(np.repeat(occupied, counts[occupied]), size)
        lookup = np.zeros(counts.size, dtype=np.intp)
        lookup[np.repeat(occupied, counts[occupied])] = groups
        cells = lookup[cells]
        n_groups = int(groups.max()) + 1
        counts, masses, scores = (
            np.bincount(lookup[occupied], part[occupied], n_groups) for part in (counts, masses, scores)
        )
        counts = counts.astype(np.int64)
    available = np.bincount(cells, minlength=counts.size)
    draws = allocate(size, np.minimum(counts, available), scores)
    order = np.lexsort((sample.keys, cells))
    rank = np.arange(order.size) - np.searchsorted(cells[order], cells[order])
    chosen = np.sort(order[rank < draws[cells[order]]])
    chosen = chosen[np.argsort(sample.rows[chosen])]
    picked = Sample(*(part[chosen] for part in sample))
    drawn = np.bincount(cells[chosen], picked.masses, counts.size)
    weights = normalised(picked.masses * (masses / np.where(drawn > 0.0, drawn, 1.0))[cells[chosen]])
    result = Calibrated(weights, float("nan"))
    if calibrated:
        moments = moment_matrix(problem, picked)
        targets = np.concatenate([[reading.mean_h, reading.slope], reading.gradient, [reading.flipped]])
        result = calibrate(weights, moments, targets[: moments.shape[1]])
    keep = result.weights > 0.0
    details: dict[str, Any] = {"cells": int(np.count_nonzero(counts)), "seed": reading.task.seed}
    if calibrated:
        details["calibration_residual"] = result.residual
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
    rule: CellRule, problem: Problem, anchor: Anchor, t: FloatArray, h: FloatArray, weights: FloatArray
) -> FloatArray:
    """Estimate the mass of every cell from weighted rows."""
    cells = rule.assign(problem, anchor.multiplier, t, h, problem.loss.slope(t))
    return np.bincount(cells, weights, rule.n_cells)
