"""Rows merged into groups: fewer rows, of which the optimum is a lower bound on that of all.

``h`` is convex in the score of a row of a given label, so by Jensen's inequality the mean row of a group, with the mass
of the group, has at most its mean ``h``, at every model and multiplier. For a loss of linear pieces nothing is lost as
long as a group lies on one piece. Here rows within some distance of a kink at a model are kept as they are, those
farther away are grouped by their piece and their distance: at that model and near it the bound is tight. Groups by
several models at once are tight near each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sources.leafread import LeafRead
from dualcore.data.sums import Leaves, TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import Levels, binary_level
from dualcore.reading.closed import ClosedReading, kink_distance

# Beyond this many features a problem of so many rows costs more than reads do.
_MOST_FEATURES = 300
# Rows that are kept as they are, and numbers in them.
_MOST_ROWS, _MOST_NUMBERS = 20_000, 2_000_000
# Levels of distance on a piece; each is twice as wide as the one before, and the last has no end.
_LEVELS = 4


def can_merge(problem: Problem, n_features: int) -> bool:
    """Whether merged rows bound the optimum well: labels, order 1, one score a row, a loss of linear pieces."""
    closed = problem.family.is_closed and problem.family.n_outputs == 1 and problem.family.linear_in_multiplier
    linear = problem.loss.pieces is not None and len(problem.loss.kinks) > 0
    return closed and problem.is_classification and linear and n_features <= _MOST_FEATURES


class MergedRows(NamedTuple):
    """Rows kept as they are, then the means of groups; ``weights`` sum to one."""

    X: Any
    y: FloatArray
    weights: FloatArray


class NearRows(NamedTuple):
    """Which rows are kept as they are, for each class: within ``widths`` of a kink, and of these a share, by keys."""

    widths: FloatArray
    shares: FloatArray
    seed: int


class _Near(NamedTuple):
    """Rows that are kept as they are; ``rows`` are their global numbers."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    masses: FloatArray


class _Found(NamedTuple):
    """Rows that are kept, and the sums of the groups: of masses, and of masses times rows."""

    near: _Near
    groups: TreeSum


@dataclass(frozen=True)
class _Read(LeafRead[_Found]):
    """Keeps rows near a kink at the first model, and sums the others."""

    problem: Problem
    models: tuple[Anchor, ...]
    kept: NearRows

    @property
    def n_states(self) -> int:
        """Return how many pieces and levels a row can be on at one model."""
        return (len(self.problem.loss.kinks) + 1) * (2 if self.problem.family.flips else 1) * _LEVELS

    @property
    def n_groups(self) -> int:
        """Return how many groups there can be."""
        return int(self.kept.widths.size * self.n_states ** len(self.models))

    def leaf_of(self, chunk: Chunk) -> int:
        """Return at least twice the groups, or their sums would cost more to add than to make."""
        return max(super().leaf_of(chunk), 1 << (2 * self.n_groups - 1).bit_length())

    def join(self, found: list[_Found]) -> _Found:
        """Return all rows and all sums."""
        rows, X, y, masses = zip(*(each.near for each in found), strict=True)
        near = _Near(np.concatenate(rows), stack_rows(list(X)), np.concatenate(y), np.concatenate(masses))
        return _Found(near, TreeSum.join(each.groups for each in found))

    def sums_of(self, chunk: Chunk) -> _Found:
        """Return rows and sums of whole leaves."""
        leaves, y, n_groups = Leaves(chunk.X, self.leaf_of(chunk)), chunk.y, self.n_groups
        masses = chunk.masses(self.total)
        group = self.problem.family.stratum(y)
        width, share = self.kept.widths[group], self.kept.shares[group]
        keep = masses > 0.0
        if (share < 1.0).any():
            keep &= row_keys(self.kept.seed, np.arange(chunk.start, chunk.start + y.size)) < share
        for place, model in enumerate(self.models):
            t = y * (leaves.dot(model.coef) + model.intercept)
            distance = np.asarray(kink_distance(self.problem, model.multiplier, t))
            if place == 0:
                keep &= distance < width
            group = group * self.n_states + self._state(t, model.multiplier, distance / width)
        far = np.flatnonzero(~keep)
        # A row of this matrix for every group of every leaf; its products add up rows in their order.
        shape = (leaves.n_leaves * n_groups, y.size)
        picks = sp.csr_matrix((masses[far], (far // leaves.rows * n_groups + group[far], far)), shape=shape)
        moments = picks @ chunk.X
        moments = moments.toarray() if sp.issparse(moments) else np.asarray(moments)
        table = np.column_stack([picks @ np.ones(y.size), moments]).reshape(leaves.n_leaves, -1)
        near = np.flatnonzero(keep)
        kept = _Near(near + chunk.start, chunk.X[near], y[near], masses[near])
        return _Found(kept, TreeSum.of_leaves(chunk.start // leaves.rows, table))

    def _state(self, t: FloatArray, multiplier: float, distance: FloatArray) -> Levels:
        """Return the piece of ``h`` that every row is on and the level of its distance, as one number."""
        problem = self.problem
        piece = np.searchsorted(np.sort(problem.loss.kinks), t)
        gains = problem.form.flip_gains(t)
        if gains is not None:
            piece = 2 * piece + (gains > multiplier * problem.geometry.label_cost)
        return np.asarray(piece * _LEVELS + np.clip(binary_level(distance), 0, _LEVELS - 1), dtype=np.intp)


def near_rows(reading: ClosedReading) -> NearRows:
    """Return which rows to keep at the anchor of a read: as many of each class as memory allows.

    A class of few rows counts as much as the other where they weigh more, so each has its own distance. It follows from
    the numbers of rows that the read found on the levels of curvature, and from the rows it has drawn there.
    """
    rule, n_strata, problem = reading.task.cells, reading.task.cells.n_strata, reading.problem
    most = min(_MOST_ROWS, _MOST_NUMBERS // max(reading.anchor.coef.size, 1)) // n_strata
    counts = reading.cell_count.reshape(n_strata, rule.n_curvatures, rule.n_layers).sum(axis=2)
    below = np.cumsum(counts, axis=1)
    # The last level has no end: it is taken to be as wide as those before it together.
    edges = np.append(0.0, rule.width * 2.0 ** np.arange(rule.n_curvatures))
    widths = np.array([np.interp(most, np.append(0, each), edges) for each in below])
    widths = np.where(below[:, -1] <= most, np.inf, np.maximum(widths, np.finfo(np.float64).tiny))
    sample, stratum = reading.sample, problem.family.stratum(reading.sample.y)
    t = problem.family.signal_at(reading.anchor, sample.X, sample.y)
    near = np.asarray(kink_distance(problem, reading.multiplier, t)) < widths[stratum]
    stands_for = reading.cell_count / np.maximum(np.bincount(sample.cells, minlength=rule.n_cells), 1)
    expected = np.bincount(stratum[near], stands_for[sample.cells[near]], n_strata)
    # Many rows may lie on a kink itself, where all have one margin: no distance leaves few of them.
    shares = np.where(expected > 2 * most, most / np.maximum(expected, 1.0), 1.0)
    return NearRows(widths, shares, reading.task.seed)


def merge_rows(source: Source, problem: Problem, models: tuple[Anchor, ...], kept: NearRows) -> MergedRows:
    """Return fewer rows whose optimum is at most that of all rows, for a problem that `can_merge` accepts; one read.

    Pieces and distances are looked at at the models, two at most; rows near a kink at the first are kept.
    """
    read = _Read(source.n_rows, source.total_weight, problem, models, kept)
    near, groups = read.over(source)
    order = np.argsort(near.rows, kind="stable")
    table = groups.total().reshape(read.n_groups, -1)
    filled = np.flatnonzero(table[:, 0] > 0.0)
    masses = table[filled, 0]
    means = table[filled, 1:] / masses[:, None]
    strata = np.array(problem.family.strata, dtype=np.float64)
    labels = strata[filled // read.n_states ** len(models)]
    X = near.X[order]
    X = sp.vstack([X, sp.csr_matrix(means)], format="csr") if sp.issparse(X) else np.vstack([X, means])
    return MergedRows(X, np.concatenate([near.y[order], labels]), np.concatenate([near.masses[order], masses]))
