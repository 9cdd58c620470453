"""What a stream keeps of its rows at one anchor: sums, pools of recombined rows, and the rows of smallest keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.calibrate import calibrate, keeps_classes
from dualcore.coresets.coreset import normalised
from dualcore.coresets.exact import CONSTANT
from dualcore.coresets.handout import draw_rows
from dualcore.coresets.matched import At, Matched, centre_of
from dualcore.coresets.recombine import Basis, Pool, in_key_order
from dualcore.coresets.samplers.base import as_anchor
from dualcore.coresets.training import MOST_NUMBERS
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sums import TreeSum, exact_sum, leaf_rows, rounded
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.closed import spread_of
from dualcore.reading.reading import Reading, as_reading
from dualcore.reading.summary import Extent, Pass, Summary, close, merge, summarise
from dualcore.solvers import solve_quietly
from dualcore.solvers.pilot import Pilot

# Rows of smallest keys that are kept, for each row of the coreset. The excess falls as they grow.
KEPT = 4
# Least rows of a leaf, all of which wait for the last one: smaller leaves spend their time on eliminations.
_LEAF = 4096
# More matched numbers than this are summed, but not recombined: an elimination takes O(d^3).
_MOST_MATCHED = 256


class Kept(NamedTuple):
    """Rows and their masses; ``rows`` are global numbers."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    masses: FloatArray

    def pick(self, chosen: npt.NDArray[Any] | slice) -> Kept:
        """Return some of the rows."""
        return Kept(self.rows[chosen], self.X[chosen], self.y[chosen], self.masses[chosen])

    @staticmethod
    def stack(parts: Sequence[Kept]) -> Kept:
        """Return the rows of all parts, one part after the other."""
        rows, X, y, masses = zip(*parts, strict=True)
        return Kept(np.concatenate(rows), stack_rows(X), np.concatenate(y), np.concatenate(masses))

    @staticmethod
    def join(parts: Sequence[Kept]) -> Kept:
        """Return the rows of all parts, ascending; a row that is in several of them has their masses together."""
        found = Kept.stack(parts)
        _, first, place = np.unique(found.rows, return_index=True, return_inverse=True)
        return found.pick(first)._replace(masses=np.bincount(place, found.masses).astype(np.float64))

    @property
    def pilot(self) -> Pilot:
        """The rows by their places, with weights that sum to one."""
        return Pilot(np.arange(self.y.size), self.X, self.y, normalised(self.masses))


@dataclass
class Group:
    """Rows seen at one anchor. Two groups of one plan add up, in any order, to that of all their rows.

    Everything is made in leaves of fixed row numbers: the sums that the risk and the bound of the anchor need, and a
    pool with the sums of what is matched there. Of all rows those of smallest keys are kept.
    """

    task: Pass
    extent: Extent  # its weight is a power of two that makes all masses of a stream sum to less than one
    size: int
    centre: FloatArray
    basis: Basis | None  # None where too much is matched to be recombined
    sample: Kept
    summary: Summary = field(default_factory=lambda: Summary(0, TreeSum(), FlipTail.empty(), [], False))
    pools: TreeSum = field(default_factory=TreeSum)
    masses: tuple[int, ...] = ()  # of the classes, as `exact_sum` has them

    def __post_init__(self) -> None:
        self.masses = self.masses or (0,) * _n_kinds(self.task.problem)

    @cached_property
    def matched(self) -> Matched:
        """What is matched at the anchor."""
        return Matched((At(self.task.problem, self.task.anchor),), self.centre)

    @property
    def n_rows(self) -> int:
        """Rows seen so far."""
        return self.summary.n_rows

    @property
    def mass(self) -> float:
        """Of all rows, in units of the extent."""
        return rounded(sum(self.masses))

    @property
    def state_rows(self) -> int:
        """Rows kept."""
        pools: Any = self.pools.nodes.values()
        return sum(len(pool) for pool in pools) + self.sample.y.size

    def is_wide(self, n_rows: int) -> bool:
        """Whether the matched numbers of so many rows do not fit in memory."""
        return n_rows * self.matched.n_columns > MOST_NUMBERS

    def empty(self) -> Group:
        """Return a group of the same plan that has seen nothing."""
        return Group(self.task, self.extent, self.size, self.centre, self.basis, self.sample.pick(slice(0)))

    def same_plan(self, other: Group) -> bool:
        """Whether both see rows in the same way."""
        mine, theirs = (
            (each.centre, *vars(each.task.anchor).values(), *([] if each.basis is None else each.basis), each.task.seed)
            for each in (self, other)
        )
        same = (self.extent, self.size, self.task.width) == (other.extent, other.size, other.task.width)
        return same and len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))

    # Rows in

    def leaf_of(self, X: Any) -> int:
        """Return the rows of a leaf: at least eight for each matched number, and as many as the sample makes up for."""
        matched = 0 if self.basis is None else self.matched.n_columns
        own = 1 << ((2 * self.size).bit_length() - 1)
        return max(_LEAF, own, leaf_rows(X.shape[1], sparse=sp.issparse(X)), 1 << (8 * matched).bit_length())

    def add(self, chunks: list[Chunk]) -> Group:
        """Return a group that has seen these rows too: whole leaves, or all there will be of a leaf; ascending."""
        leaf, group = self.leaf_of(self.sample.X), self
        pieces = [piece for chunk in chunks for piece in chunk.cut(leaf)]
        with one_blas_thread():
            for number, own in groupby(pieces, lambda piece: piece.start // leaf):
                group = group.join(self._see(number, list(own)))
        return group

    def _see(self, number: int, pieces: list[Chunk]) -> Group:
        """Return the group of rows of one leaf."""
        extent, task = self.extent, self.task
        rows = Kept.stack(
            [
                Kept(np.arange(piece.start, piece.start + piece.y.size), *piece[1:3], piece.masses(extent.total_weight))
                for piece in pieces
            ]
        )
        rows = rows.pick(np.flatnonzero(rows.masses))  # those of no mass stand for nothing
        kinds, pools = _kinds(task.problem, rows.y), {}
        if self.basis is not None and rows.y.size:
            pools[0, number] = self._pool(rows)
        return replace(
            self,
            sample=rows,
            summary=merge([summarise(piece, task, extent) for piece in pieces], task, extent),
            pools=TreeSum(pools),  # type: ignore[arg-type]
            masses=tuple(exact_sum(rows.masses[kinds == kind]) for kind in range(_n_kinds(task.problem))),
        )

    def _pool(self, rows: Kept, most: int = 0) -> Pool:
        """Return a few rows, or ``most``, that have the sums of these at the anchor."""
        rows = Kept(*in_key_order(self.task.seed, *rows))
        values = self.matched.values(rows.X, rows.y)
        return Pool(self.basis, rows.rows, rows.masses, values, rows.X, rows.y).reduced(most)  # type: ignore[arg-type]

    def join(self, other: Group) -> Group:
        """Return two groups of different rows as one."""
        summaries = [each for each in (self.summary, other.summary) if each.n_rows or each.edges]
        with one_blas_thread():
            pools = TreeSum.join([self.pools, other.pools])
        return replace(
            self,
            sample=self._smallest([self.sample, other.sample]),
            summary=merge(summaries, self.task, self.extent) if summaries else self.summary,
            pools=pools,
            masses=tuple(map(sum, zip(self.masses, other.masses, strict=True))),
        )

    def _smallest(self, parts: Sequence[Kept]) -> Kept:
        """Return the rows of smallest keys, of all and some of each class, in any order."""
        problem, rows = self.task.problem, np.concatenate([part.rows for part in parts])
        keys, kinds = row_keys(self.task.seed, rows), _kinds(problem, np.concatenate([part.y for part in parts]))
        order = np.lexsort((keys, kinds))
        rank = np.arange(order.size) - np.searchsorted(kinds[order], kinds[order])
        chosen = np.zeros(rows.size, dtype=bool)
        chosen[np.argsort(keys)[: KEPT * self.size]] = True
        chosen[order[rank < -(-self.size // _n_kinds(problem))]] = True
        ends = np.cumsum([part.rows.size for part in parts[:-1]])
        owned = np.split(chosen, ends)
        return Kept.stack([part.pick(np.flatnonzero(own)) for part, own in zip(parts, owned, strict=True)])

    # What is known of all rows

    def reading(self) -> Reading:
        """Return the reading of all rows."""
        closed, mass = close(self.summary, self.task, self.extent), self.mass
        reading = as_reading(self.task, closed.scaled(1.0 / mass))
        if mass > 4.0 and not reading.is_exact:  # beyond this the counts of a histogram of flips may overflow
            reading.bound_risk()
        return reading

    def kept(self) -> Kept:
        """Return the rows kept, with masses that have the sums of all rows at the anchor and stand for their weight."""
        rows, weight, targets = self._sample(), self.mass * self.extent.total_weight, None
        if rows.y.size < KEPT * self.size:  # all rows are there
            return rows._replace(masses=normalised(rows.masses) * weight)
        if self.pools.nodes:
            nodes: Any = self.pools.nodes
            pool = Pool.join([nodes[place] for place in sorted(nodes)])
            pooled = Kept(pool.rows, pool.X, pool.y, normalised(pool.weights))
            targets = pooled.masses @ pool.values
            # As much of each as makes the masses as even as they can be.
            rows = Kept.join(
                [each._replace(masses=each.masses / float(each.masses @ each.masses)) for each in (rows, pooled)]
            )
            rows = rows._replace(masses=normalised(rows.masses))
        if not self.is_wide(rows.y.size):
            masses = self._calibrated(rows, targets)
            rows = rows._replace(masses=masses).pick(np.flatnonzero(masses > 0.0))
        return rows._replace(masses=normalised(rows.masses) * weight)

    def _calibrated(self, rows: Kept, targets: FloatArray | None) -> FloatArray:
        """Return masses that have these sums at the anchor, those of a pool; without one those of the read."""
        values = self.matched.values(rows.X, rows.y)
        if targets is None or self.basis is None:
            targets, used = self.matched.known_sums(rows.masses @ values, [self.reading()])
            new = calibrate(rows.masses, values[:, used], targets[used]).weights
        else:  # the pool alone has these sums, so that some weights do
            values, targets = self.basis.apply(values)[:, 1:], self.basis.apply(targets[None])[0, 1:]
            varies = np.sqrt(rows.masses @ (values - rows.masses @ values) ** 2) > CONSTANT
            new = calibrate(rows.masses, values[:, varies], targets[varies], softness=1e-14).weights
        loses_class = len(self.masses) > 1 and not keeps_classes(rows.y, rows.masses, new)
        return rows.masses if loses_class else new

    def _sample(self) -> Kept:
        """Return the rows of smallest keys, ascending, their masses scaled to those of their classes, of sum one."""
        rows = self.sample.pick(np.argsort(self.sample.rows))
        kinds = _kinds(self.task.problem, rows.y)
        own = np.bincount(kinds, rows.masses, len(self.masses))
        masses = np.array([rounded(each) for each in self.masses]) / self.mass
        factors = np.divide(masses, own, out=np.zeros(masses.size), where=own > 0.0)
        return rows._replace(masses=rows.masses * factors[kinds])

    def fewer(self, rows: Kept, most: int) -> Kept:
        """Return up to ``most`` rows that stand for others, with their sums at the anchor where rows suffice."""
        if rows.y.size > most and self.basis is not None:
            with one_blas_thread():
                pool = self._pool(rows, most)
            rows = Kept.join([Kept(pool.rows, pool.X, pool.y, pool.weights)])
        if rows.y.size > most:
            few, total = draw_rows(self.task.problem, rows.pilot, most, self.task.seed), rows.masses.sum()
            rows = rows.pick(few.rows)._replace(masses=few.weights * total)
        return rows


def plan_group(problem: Problem, first: Chunk, size: int, seed: int, given: Any) -> Group:
    """Return an empty group: the anchor from the first rows unless it is given, and the scale of what is matched."""
    n, m = first.X.shape
    weights = np.ones(n) if first.weights is None else first.weights
    masses = normalised(weights) if weights.any() else np.full(n, 1.0 / n)
    rows = Pilot(np.arange(n), first.X, first.y, masses)
    if given is not None:
        anchor = as_anchor(given, problem, m)
    elif has_all_classes(problem, first.y[masses > 0.0]):
        anchor = anchor_at(problem, solve_quietly(problem, rows, tol=1e-5))
    else:
        coef, intercept = problem.family.zero_model(m)
        anchor = Anchor(coef, intercept, problem.family.feasible_multiplier(coef, 0.0))
    width = 0.0
    if problem.family.is_closed and problem.loss.kinks:  # kinks are smoothed over it for a second dual candidate
        spread = spread_of(problem.family.signal_at(anchor, rows.X, rows.y), masses)
        width = 0.3 * min(1.0, 2.0 * float(np.sqrt((m + 1) / size))) * spread
    # A trillion rows of the mean weight of these, whatever its magnitude.
    largest = int(np.frexp(weights.max())[1])
    exponent = largest + int(np.frexp(np.ldexp(weights, -largest).mean())[1])
    extent = Extent(None, float(np.ldexp(1.0, min(40 + exponent, 1000))))
    none = Kept(np.empty(0, dtype=np.int64), first.X[:0], np.empty(0), np.empty(0))
    task = Pass(problem, anchor, width, seed, sized=True)
    group = Group(task, extent, size, centre_of(problem, rows.X, masses), None, none)
    if group.matched.n_columns <= _MOST_MATCHED:
        group.basis = _first_basis(group.matched.values(rows.X, rows.y), masses)
    return group


def _first_basis(values: FloatArray, masses: FloatArray) -> Basis:
    """Return a basis in which no direction is lost: rows to come may have those that the first rows do not."""
    mean = masses @ values
    covariance = ((values - mean) * masses[:, None]).T @ (values - mean)
    variances = np.diagonal(covariance)
    varies = variances > 1e-24 * (masses @ values**2)  # rounding leaves that of a constant
    typical = variances[varies].mean() if varies.any() else 1.0
    covariance = np.where(varies & varies[:, None], covariance, 0.0)
    floor = 1e-10 * np.where(varies, variances, typical)
    return Basis.of(np.zeros(mean.size), covariance + np.diag(floor))._replace(centre=mean)


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)


def _n_kinds(problem: Problem) -> int:
    return max(len(problem.family.strata), 1)


def _kinds(problem: Problem, y: FloatArray) -> npt.NDArray[np.intp]:
    """Return the class of every row, 0 in regression."""
    return problem.family.stratum(y) if problem.family.strata else np.zeros(y.size, dtype=np.intp)
