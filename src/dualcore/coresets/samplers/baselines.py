"""The baselines: uniform, importance and layered sampling, under the interface of `DualCoreset`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.anchors import check_classes, check_size, drawn_rows, uniform_sample
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Sampler
from dualcore.coresets.samplers.grid import GridDraw, build_grid, draw_grid
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sources.products import target_and_masses, whole_chunk
from dualcore.problem import Anchor, Problem
from dualcore.problem.losses import Hinge, MarginLoss, SmoothHinge
from dualcore.solvers.pilot import Pilot

# Rows that the importance sampler works on at a time.
_BLOCK_ROWS = 4096


@dataclass
class UniformCoreset(Sampler):
    """UniSamp: ``size`` rows without replacement, each of weight ``1 / size`` (times its own weight, if rows have one).

    Of more than two classes each gives rows in proportion to its mass, at least one, and keeps its mass.

    Parameters
    ----------
    size : int or float
        Number of rows, or fraction of them.
    random_state : int, Generator or None

    Examples
    --------
    >>> X, y = np.arange(20.0)[:, None], np.tile([-1.0, 1.0], 10)
    >>> len(UniformCoreset(size=5, random_state=0).build(Problem("hinge", radius=0.1), X, y))
    5
    """

    name = "UniformCoreset"
    size: float | int | None = 0.05
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        return _told(source, *uniform_sample(problem, source, size, seed), seed, self.name)


def _as_coreset(problem: Problem, source: Source, rows: Any, weights: FloatArray, seed: int, method: str) -> Coreset:
    """Return drawn rows as a coreset; a class that was missed is put back, and that is said."""
    return _told(source, *drawn_rows(problem, source, rows, weights, seed), seed, method)


def _told(source: Source, rows: Pilot, message: str, seed: int, method: str) -> Coreset:
    if message:
        warnings.warn(message, UserWarning, stacklevel=5)
    details = {"seed": seed} | ({"message": message} if message else {})
    return Coreset(*rows, source.n_rows, None, method, details)


@dataclass
class ImportanceCoreset(Sampler):
    """ImpSamp: draws with replacement in proportion to sensitivity bounds from leverage scores (Tukan et al. 2020).

    ``s_i ~ 2 + n_c l_i`` for the logistic loss, ``l_i + 1/n`` for the SVM, with ``l_i`` the leverage of
    ``(x, 1)`` inside its class; ``sqrt(l_i)`` with the leverage of ``(x, 1, -y)`` in regression. Weights
    ``count_i / (n s p_i)``, self-normalised. For one score a row: softmax problems are refused.

    Parameters
    ----------
    size : int or float
    random_state : int, Generator or None

    Examples
    --------
    >>> X, y = np.arange(20.0)[:, None], np.tile([-1.0, 1.0], 10)
    >>> coreset = ImportanceCoreset(size=8, random_state=0).build(Problem("logistic", radius=0.1), X, y)
    >>> len(coreset) <= 8, round(float(coreset.weights.sum()), 9)
    (True, 1.0)
    """

    name = "ImportanceCoreset"
    size: float | int | None = 0.05
    random_state: Any = None

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        if problem.family.n_outputs > 1:
            raise ValueError(
                "ImportanceCoreset knows no sensitivity bounds for softmax problems (multi_class='multinomial'): the "
                "leverage scores it draws by are derived for one score a row. Use DualCoreset, LayeredCoreset or "
                "UniformCoreset."
            )
        mass = source.row_masses()
        chances = _sensitivities(problem, source) * mass
        chances /= chances.sum()
        rng = np.random.Generator(np.random.Philox(key=seed))
        picks = rng.choice(source.n_rows, size=size, replace=True, p=chances)
        rows, counts = np.unique(picks, return_counts=True)
        weights = counts * mass[rows] / (size * chances[rows])
        return _as_coreset(problem, source, rows, weights, seed, self.name)


def _sensitivities(problem: Problem, source: Source) -> FloatArray:
    """Return sensitivity bounds, two reads: a Gram matrix a group, then the leverage of every row."""
    groups: tuple[float | None, ...] = (-1.0, 1.0) if problem.is_classification else (None,)
    n_columns = source.n_features + (1 if problem.is_classification else 2)
    grams, counts = [np.zeros((n_columns, n_columns)) for _ in groups], [0 for _ in groups]
    for Z, y in _designs(problem, source):
        for k, label in enumerate(groups):
            part = Z if label is None else Z[y == label]
            grams[k] += part.T @ part
            counts[k] += len(part)
    inverses = [np.linalg.pinv(gram, hermitian=True) for gram in grams]
    scores = []
    for Z, y in _designs(problem, source):
        out = np.empty(len(Z))
        for label, inverse, count in zip(groups, inverses, counts, strict=True):
            chosen = slice(None) if label is None else y == label
            part = Z[chosen]
            leverage = np.clip(np.einsum("ij,ij->i", part @ inverse, part), 0.0, 1.0)
            if not isinstance(problem.loss, MarginLoss):
                out[chosen] = np.sqrt(leverage) + 1e-12
            elif isinstance(problem.loss, (Hinge, SmoothHinge)):
                out[chosen] = leverage + 1.0 / source.n_rows
            else:
                out[chosen] = 2.0 + count * leverage
        scores.append(out)
    return np.concatenate(scores)


def _designs(problem: Problem, source: Source) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield features, a one, in regression the target; and the targets, in blocks of a fixed number of rows.

    Products of blocks of another height round differently, so the blocks must not depend on the chunks.
    """
    for X, y in _fixed_blocks(source):
        columns = [X.toarray() if sp.issparse(X) else X, np.ones((len(y), 1))]
        yield np.hstack(columns if problem.is_classification else [*columns, -y[:, None]]), y


def _fixed_blocks(source: Source) -> Iterator[tuple[Any, FloatArray]]:
    """Yield features and targets of consecutive rows, always as many of them: one read."""
    waiting: list[Chunk] = []
    for chunk in source.map(whole_chunk):
        waiting.append(chunk)
        while sum(part.y.size for part in waiting) >= _BLOCK_ROWS:
            X, y = stack_rows([part.X for part in waiting]), np.concatenate([part.y for part in waiting])
            yield X[:_BLOCK_ROWS], y[:_BLOCK_ROWS]
            waiting = [Chunk(0, X[_BLOCK_ROWS:], y[_BLOCK_ROWS:], None)] if y.size > _BLOCK_ROWS else []
    if waiting:
        yield stack_rows([part.X for part in waiting]), np.concatenate([part.y for part in waiting])


@dataclass
class LayeredCoreset(Sampler):
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
        anchor = self._anchor(problem, source, size, seed_from(seed, 1), self.anchor)
        losses = np.concatenate(list(source.map(partial(_chunk_losses, problem=problem, anchor=anchor))))
        return draw_layers(problem, source, losses, losses, size, seed, anchor, self.name)


def draw_layers(
    problem: Problem,
    source: Source,
    lower: FloatArray,
    upper: FloatArray,
    size: int,
    seed: int,
    anchor: Anchor,
    method: str,
) -> Coreset:
    """Draw by bounds of ``h`` as Algorithm 1 does: over all rows, or within every class where there are many."""
    groups, masses = None, source.row_masses()
    if problem.family.n_outputs > 1:
        check_size(problem, size)
        groups = problem.family.stratum(target_and_masses(source)[0])
        check_classes(problem, np.bincount(groups[masses > 0.0], minlength=len(problem.family.strata)))
    grid = build_grid(lower, upper, masses, groups)
    draw = draw_grid(grid, size, seed_from(seed, 2), slack=grid.upper_mean, masses=masses)
    return drawn_coreset(problem, source, draw, seed, anchor, method, {})


def drawn_coreset(
    problem: Problem, source: Source, draw: GridDraw, seed: int, anchor: Anchor, method: str, details: dict[str, Any]
) -> Coreset:
    """Return the coreset of a grid draw; a class that no cell stood for is put back, and that is said."""
    found = _as_coreset(problem, source, draw.indices, draw.weights, seed, method)
    details = {"cells": draw.grid.n_cells, "merged": draw.merged} | details | found.details
    return replace(found, anchor=anchor, details=details)


def _chunk_losses(chunk: Chunk, problem: Problem, anchor: Anchor) -> FloatArray:
    """Return the losses of a chunk at the anchor, nothing moved."""
    if problem.family.n_outputs > 1:
        found = problem.family.rows(anchor, chunk.X, chunk.y)
        return found.upper if found.loss is None else found.loss
    return problem.loss.value(problem.family.signal_at(anchor, chunk.X, chunk.y))
