"""Coresets on a box support: the grid of lower and upper bounds, drawn at an anchor, and calibrated there."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.boxform import BoxForm
from dualcore.coreset import Anchor, Coreset, normalised
from dualcore.geometry import FloatArray
from dualcore.keys import seed_from
from dualcore.problem import Problem
from dualcore.rows import as_rows
from dualcore.samplers.baselines import drawn_coreset, row_masses
from dualcore.samplers.calibrate import calibrate
from dualcore.samplers.grid import build_grid, draw_grid
from dualcore.sources import Chunk, Source

__all__ = ["draw_on_box"]


def draw_on_box(
    problem: Problem, source: Source, size: int, seed: int, anchor: Anchor, *, rule: str, calibrated: bool, name: str
) -> Coreset:
    """Draw from the cells of ``a_i <= h_i <= b_i`` at the anchor, one read; if asked, match the full data there.

    What is matched is the mass, the mean of ``h`` and its mean gradient in coefficients, intercept and multiplier.
    """
    box = problem.box
    if box is None:
        raise ValueError("draw_on_box is for problems with a support")

    def look(chunk: Chunk) -> tuple[FloatArray, FloatArray, FloatArray]:
        rows = as_rows(chunk.X)
        box.check(rows, first=chunk.start)
        model = (anchor.coef, anchor.intercept, anchor.multiplier)
        lower, upper = (box.paper_bounds if rule == "paper" else box.bounds)(rows, chunk.y, *model)
        masses = np.ones(chunk.y.size) if chunk.weights is None else chunk.weights
        sums = np.zeros(rows.m + 3)
        if calibrated:
            for part, _ in rows.blocks():
                sums += masses[part] @ _moments(box, rows.take(np.arange(part.start, part.stop)), chunk.y[part], anchor)
        return lower, upper, sums / source.total_weight

    parts = list(source.map(look))
    lower, upper = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    masses = row_masses(source)
    grid = build_grid(np.minimum(lower, upper), upper, masses)
    drawn = draw_grid(grid, size, seed_from(seed, 2), slack=float(grid.upper_mean), masses=masses)
    details: dict[str, Any] = {"seed": seed, "cells": grid.n_cells, "merged": drawn.merged, "bounds": rule}
    coreset = drawn_coreset(problem, source, drawn, seed, anchor, name, details)
    if not calibrated:
        return coreset
    moments = _moments(box, coreset.X, coreset.y, anchor)
    result = calibrate(coreset.weights, moments, np.sum([part[2] for part in parts], axis=0))
    details["calibration_residual"] = result.residual
    keep = result.weights > 0.0
    labels = (-1.0, 1.0) if problem.is_classification else ()
    if any(not (coreset.y[keep] == label).any() for label in labels):
        details["message"] = "No weights that match the full data keep both classes: the draw was left uncalibrated."
        return coreset
    weights = normalised(result.weights[keep])
    return Coreset(
        coreset.indices[keep], coreset.X[keep], coreset.y[keep], weights, source.n_rows, anchor, name, details
    )


def _moments(box: BoxForm, X: Any, y: FloatArray, anchor: Anchor) -> FloatArray:
    """Return value and gradient of every row's ``h`` at the anchor, shape (n, m + 3)."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    found = box.moves(X, y, anchor.coef, anchor.intercept, anchor.multiplier, points=True)
    slope = box.loss.slope(found.signal) * (found.label if box.is_classification else 1.0)
    return np.column_stack([found.lower, slope, -found.cost, slope[:, None] * found.X])
