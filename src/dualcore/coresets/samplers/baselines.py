"""The baselines: uniform and importance sampling, under the interface of `DualCoreset`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.coresets.anchors import drawn_rows, uniform_sample
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.base import Sampler
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.products import whole_chunk
from dualcore.problem import Problem
from dualcore.problem.losses import Hinge, MarginLoss, SmoothHinge
from dualcore.reading.leaves import complete_edges, cut_leaves


@dataclass
class UniformCoreset(Sampler):
    """UniSamp: ``size`` rows without replacement, each of weight ``1 / size`` (times its own weight, if rows have one).

    With more than two classes, rows are drawn from each in proportion to its mass, at least one, and each class keeps
    its mass.

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
        return self._coreset(source, *uniform_sample(problem, source, size, seed), seed)


@dataclass
class ImportanceCoreset(Sampler):
    """ImpSamp: draws with replacement in proportion to sensitivity bounds from leverage scores (Tukan et al. 2020).

    ``s_i ~ 2 + n_c l_i`` for the logistic loss, ``l_i + 1/n`` for the SVM, with ``l_i`` the leverage of
    ``(x, 1)`` inside its class; ``sqrt(l_i)`` with the leverage of ``(x, 1, -y)`` in regression. Weights
    ``count_i / (n s p_i)``, self-normalised. Softmax problems are not supported.

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
            others = "Use DualCoreset, GridCoreset, LayeredCoreset or UniformCoreset"
            raise ValueError(f"ImportanceCoreset knows no bounds for softmax (multi_class='multinomial'). {others}.")
        mass = source.row_masses()
        chances = _sensitivities(problem, source) * mass
        chances /= chances.sum()
        rng = np.random.Generator(np.random.Philox(key=seed))
        rows, counts = np.unique(rng.choice(source.n_rows, size=size, replace=True, p=chances), return_counts=True)
        weights = counts * mass[rows] / (size * chances[rows])
        return self._coreset(source, *drawn_rows(problem, source, rows, weights, seed), seed)


def _sensitivities(problem: Problem, source: Source) -> FloatArray:
    """Return sensitivity bounds (n,) by two reads: a Gram matrix per class, then the leverage of every row."""
    n_columns, n_kinds = source.n_features + (1 if problem.is_classification else 2), max(len(problem.family.strata), 1)
    grams, kinds, leverages = np.zeros((n_kinds, n_columns, n_columns)), [], []
    for Z, kind in _designs(problem, source):
        kinds.append(kind)
        for k in range(n_kinds):
            grams[k] += Z[kind == k].T @ Z[kind == k]
    inverses = np.linalg.pinv(grams, hermitian=True)
    for Z, kind in _designs(problem, source):
        leverages.append(np.empty(len(Z)))
        for k in range(n_kinds):
            part = Z[kind == k]
            leverages[-1][kind == k] = np.einsum("ij,ij->i", part @ inverses[k], part)
    leverage, kind = np.clip(np.concatenate(leverages), 0.0, 1.0), np.concatenate(kinds)
    if not isinstance(problem.loss, MarginLoss):
        return np.sqrt(leverage) + 1e-12
    if isinstance(problem.loss, (Hinge, SmoothHinge)):
        return leverage + 1.0 / source.n_rows
    return 2.0 + np.bincount(kind)[kind] * leverage


def _designs(problem: Problem, source: Source) -> Iterator[tuple[FloatArray, npt.NDArray[np.intp]]]:
    """Yield blocks ``[X, 1]``, in regression ``[X, 1, -y]``, and the classes, with a fixed number of rows each.

    Rounding depends on the number of rows of a block, so blocks must not depend on the chunks.
    """
    edges, height = list[Chunk](), 4096
    for chunk in source.map(whole_chunk):
        whole, left = cut_leaves(chunk, height, source.n_rows)
        done, edges = complete_edges([*edges, *left], height, source.n_rows)
        for part in [*done, *([] if whole is None else whole.cut(height))]:
            columns = [part.X.toarray() if sp.issparse(part.X) else part.X, np.ones((part.y.size, 1))]
            columns += [] if problem.is_classification else [-part.y[:, None]]
            yield np.hstack(columns), problem.family.stratum(part.y)
