"""Coresets on a box support: the grid of lower and upper bounds, drawn at an anchor, calibrated and refined there."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.samplers.baselines import drawn_coreset, row_masses
from dualcore.coresets.samplers.calibrate import calibrate, keeps_classes
from dualcore.coresets.samplers.grid import build_grid, draw_grid
from dualcore.coresets.samplers.refinement import between
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk, Source
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.families import BoxFamily
from dualcore.solvers import Solution, solve

__all__ = ["BoxRefinement", "draw_on_box"]

# Steps of the line search on the full data from one anchor to the next.
_STEPS = (1.0, 0.5, 0.25, 0.125, 0.0625)


class BoxRefinement:
    """Draw at an anchor, train on the draw, go as far towards that model as the full data say, and draw again.

    Parameters
    ----------
    problem : Problem
        With a support.
    source : Source
    size, rounds, seed : int
    anchor : Anchor
        Where to begin.
    rule, calibrated, name
        As `draw_on_box` takes them.
    training : dict
        Options of `solve` on the coresets.

    Attributes
    ----------
    anchor : Anchor
        The best model so far.
    value : float
        Its objective on the full data at its multiplier; infinite before the first look.
    """

    def __init__(
        self,
        problem: Problem,
        source: Source,
        size: int,
        seed: int,
        anchor: Anchor,
        *,
        rounds: int,
        rule: str,
        calibrated: bool,
        name: str,
        training: dict[str, Any] | None = None,
    ) -> None:
        self.problem, self.source, self.size, self.seed = problem, source, size, seed
        self.anchor, self.rounds, self.value = anchor, rounds, np.inf
        self.settings: dict[str, Any] = {"rule": rule, "calibrated": calibrated, "name": name}
        self.training = {"tol": 1e-4} if training is None else training

    def build(self) -> Coreset:
        """Return the last coreset."""
        coreset = self._draw(0)
        for number in range(1, self.rounds):
            self._advance(coreset)
            coreset = self._draw(number)
        return coreset

    def fit(self) -> tuple[Coreset, Solution]:
        """Return the last coreset, and its solution at the best model seen."""
        coreset = self.build()
        found = self._advance(coreset)
        best = self.anchor
        return coreset, replace(found, coef=best.coef, intercept=best.intercept)

    def _draw(self, number: int) -> Coreset:
        seed = self.seed if number == 0 else seed_from(self.seed, 1 + number)
        return draw_on_box(self.problem, self.source, self.size, seed, self.anchor, **self.settings)

    def _advance(self, coreset: Coreset) -> Solution:
        """Train on a coreset, and move the anchor along the line to its model: the objective is convex on it."""
        with warnings.catch_warnings():  # what a coreset's solution is worth is measured on the full data
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = solve(self.problem, coreset.X, coreset.y, coreset.weights, **self.training)
        start, end = self.anchor, Anchor(found.coef, found.intercept, found.dual_variable)
        steps = _STEPS if np.isfinite(self.value) else (*_STEPS, 0.0)
        trials = [between(self.problem, start, end, step) for step in steps]
        values = _objectives(self.problem, self.source, trials)
        best = int(np.argmin(values))
        if values[best] < self.value:
            self.anchor, self.value = trials[best], float(values[best])
        return found


def _objectives(problem: Problem, source: Source, anchors: list[Anchor]) -> FloatArray:
    """Return the objective of several models on the full data, in one read."""

    def look(chunk: Chunk) -> FloatArray:
        masses = np.ones(chunk.y.size) if chunk.weights is None else chunk.weights
        models = [(anchor.coef, anchor.intercept, anchor.multiplier) for anchor in anchors]
        return np.array([masses @ problem.h(*model, chunk.X, chunk.y) for model in models])

    means = np.sum(list(source.map(look)), axis=0) / source.total_weight
    rest = [problem.radius * anchor.multiplier + problem.penalty(anchor.coef) for anchor in anchors]
    return np.asarray(means + np.array(rest))


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
        box.check_rows(rows, first=chunk.start)
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
    if problem.is_classification and not keeps_classes(coreset.y, coreset.weights, result.weights):
        details["message"] = "No weights that match the full data keep both classes: the draw was left uncalibrated."
        return coreset
    weights = normalised(result.weights[keep])
    return Coreset(
        coreset.indices[keep], coreset.X[keep], coreset.y[keep], weights, source.n_rows, anchor, name, details
    )


def _moments(box: BoxFamily, X: Any, y: FloatArray, anchor: Anchor) -> FloatArray:
    """Return value and gradient of every row's ``h`` at the anchor, shape (n, m + 3)."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    found = box.moves(X, y, anchor.coef, anchor.intercept, anchor.multiplier, points=True)
    slope = box.loss.slope(found.signal) * (found.label if box.is_classification else 1.0)
    return np.column_stack([found.lower, slope, -found.cost, slope[:, None] * found.X])
