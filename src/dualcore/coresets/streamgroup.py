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
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_rows
from dualcore.data.sums import TreeSum, leaf_rows
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Anchor, Problem
from dualcore.reading.reading import Reading, as_reading
from dualcore.reading.summary import Extent, Pass, Summary, close, merge, summarise
from dualcore.solvers import solve_quietly
from dualcore.solvers.pilot import Pilot

# Beyond this mass, in units of 2**40 weights of the first rows, the counts of a histogram of flips may overflow.
_MOST_MASS = 4.0
# Rows of smallest keys that are kept, for each row of the coreset.
_KEPT = 4
# Rows of a leaf, and its rows for each matched number. Rows of a leaf wait until all have come.
_LEAF, _LEAF_FACTOR = 4096, 8
# Leaves seen before rows beyond the smallest keys are forgotten.
_BATCH = 16
# More matched numbers than this are summed, but not recombined: an elimination takes O(d^3).
_MOST_MATCHED = 256
# Largest matrix of matched numbers (512 MB); wider rows are kept with their own masses.
_MOST_NUMBERS = 1 << 26
# Softness of a calibration whose targets can be met.
_EXACT = 1e-14
# Share of a variance below which a direction is not told from one that the first rows do not have.
_NO_VARIANCE = 1e-10
# Share of a mean square that rounding leaves as the variance of a constant.
_ROUNDING = 1e-24


class Kept(NamedTuple):
    """Rows and their masses; ``rows`` are global numbers."""

    rows: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    masses: FloatArray

    def pick(self, chosen: npt.NDArray[Any]) -> Kept:
        """Return some of the rows."""
        return Kept(self.rows[chosen], self.X[chosen], self.y[chosen], self.masses[chosen])

    @staticmethod
    def join(parts: Sequence[Kept]) -> Kept:
        """Return the rows of all parts, ascending; a row that is in several of them has their masses together."""
        rows, y, masses = (np.concatenate([getattr(each, name) for each in parts]) for name in ("rows", "y", "masses"))
        numbers, first, place = np.unique(rows, return_index=True, return_inverse=True)
        return Kept(
            numbers,
            stack_rows([each.X for each in parts])[first],
            y[first],
            np.bincount(place, masses).astype(np.float64),
        )

    @property
    def pilot(self) -> Pilot:
        """The rows by their places, with weights that sum to one."""
        return Pilot(np.arange(self.y.size), self.X, self.y, normalised(self.masses))


@dataclass
class Group:
    """Rows seen at one anchor. Two groups of one plan add up, in any order, to that of all their rows.

    Everything is made in leaves of fixed row numbers: the sums that the risk and the bound of the anchor need, a pool
    with the sums of what is matched there, and the masses of the classes. Of all rows those of smallest keys are kept.
    """

    task: Pass
    extent: Extent  # its weight is a power of two that makes all masses of a stream sum to less than one
    size: int
    centre: FloatArray
    basis: Basis | None  # None where too much is matched to be recombined
    summary: Summary | None = None
    pools: TreeSum = field(default_factory=TreeSum)
    masses: TreeSum = field(default_factory=TreeSum)  # of the classes
    sample: Kept | None = None

    @property
    def at(self) -> At:
        """The problem and the anchor."""
        return At(self.task.problem, self.task.anchor)

    @cached_property
    def matched(self) -> Matched:
        """What is matched at the anchor."""
        return Matched((self.at,), self.centre)

    @property
    def n_rows(self) -> int:
        """Rows seen so far."""
        return 0 if self.summary is None else self.summary.n_rows

    @property
    def state_rows(self) -> int:
        """Rows kept."""
        pools: Any = self.pools.nodes.values()
        return sum(len(pool) for pool in pools) + (0 if self.sample is None else self.sample.y.size)

    def is_wide(self, n_rows: int) -> bool:
        """Whether the matched numbers of so many rows do not fit in memory."""
        return n_rows * self.matched.n_columns > _MOST_NUMBERS

    def empty(self) -> Group:
        """Return a group of the same plan that has seen nothing."""
        return Group(self.task, self.extent, self.size, self.centre, self.basis)

    def same_plan(self, other: Group) -> bool:
        """Whether both see rows in the same way."""
        mine, theirs = (
            (each.centre, *vars(each.task.anchor).values(), *([] if each.basis is None else each.basis), each.task.seed)
            for each in (self, other)
        )
        same = (self.extent, self.size, self.task.width) == (other.extent, other.size, other.task.width)
        return same and len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))

    def leaf_of(self, X: Any) -> int:
        """Return the rows of a leaf: whole leaves of sums, and enough for each matched number."""
        matched = 0 if self.basis is None else self.matched.n_columns
        return max(_LEAF, leaf_rows(X.shape[1], sparse=sp.issparse(X)), 1 << (_LEAF_FACTOR * matched).bit_length())

    def add(self, chunks: list[Chunk]) -> Group:
        """Return a group that has seen these rows too: whole leaves, or all there will be of a leaf; ascending."""
        if not chunks:
            return self
        leaf, group = self.leaf_of(chunks[0].X), self
        pieces = [piece for chunk in chunks for piece in chunk.cut(leaf)]
        leaves = [list(own) for _, own in groupby(pieces, lambda piece: piece.start // leaf)]
        with one_blas_thread():
            for first in range(0, len(leaves), _BATCH):
                group = group.join([group, *(self._see(leaf, own) for own in leaves[first : first + _BATCH])])
        return group

    def _see(self, leaf: int, pieces: list[Chunk]) -> Group:
        """Return the group of rows of one leaf."""
        number, task = pieces[0].start // leaf, self.task
        extent, family = self.extent, task.problem.family
        sums = [summarise(piece, task, extent) for piece in pieces]
        rows = np.concatenate([np.arange(piece.start, piece.start + piece.y.size) for piece in pieces])
        X, y = stack_rows([piece.X for piece in pieces]), np.concatenate([piece.y for piece in pieces])
        masses = np.concatenate([piece.masses(extent.total_weight) for piece in pieces])
        kinds = family.stratum(y) if family.strata else np.zeros(y.size, dtype=np.intp)
        by_class = np.bincount(kinds, masses, max(len(family.strata), 1)).astype(np.float64)
        kept, pools = Kept(*in_key_order(task.seed, rows, X, y, masses)), {}
        if self.basis is not None and kept.y.size:
            values = self.matched.values(kept.X, kept.y)
            pools[0, number] = Pool(self.basis, kept.rows, kept.masses, values, kept.X, kept.y).reduced()
        return replace(
            self,
            summary=merge(sums, task, extent),
            pools=TreeSum(pools),  # type: ignore[arg-type]
            masses=TreeSum({(0, number): by_class}),
            sample=self._smallest(kept),
        )

    def join(self, parts: Sequence[Group]) -> Group:
        """Return groups of different rows as one."""
        summaries = [part.summary for part in parts if part.summary is not None]
        samples = [part.sample for part in parts if part.sample is not None]
        if not summaries:
            return self
        with one_blas_thread():
            pools = TreeSum.join(part.pools for part in parts)
        return replace(
            self,
            summary=merge(summaries, self.task, self.extent),
            pools=pools,
            masses=TreeSum.join(part.masses for part in parts),
            sample=self._smallest(Kept.join(samples)),
        )

    def _smallest(self, rows: Kept) -> Kept:
        """Return the rows of smallest keys, ascending by number: of all, and some of each class."""
        family, keys = self.task.problem.family, row_keys(self.task.seed, rows.rows)
        kinds = family.stratum(rows.y) if family.strata else np.zeros(rows.y.size, dtype=np.intp)
        chosen = np.zeros(rows.y.size, dtype=bool)
        chosen[np.argsort(keys)[: _KEPT * self.size]] = True
        order = np.lexsort((keys, kinds))
        rank = np.arange(order.size) - np.searchsorted(kinds[order], kinds[order])
        chosen[order[rank < -(-self.size // max(len(family.strata), 1))]] = True
        return rows.pick(np.flatnonzero(chosen)[np.argsort(rows.rows[chosen])])

    def fewer(self, rows: Kept, most: int) -> Kept:
        """Return up to ``most`` rows that stand for others, with their sums at the anchor where rows suffice."""
        if rows.y.size > most and self.basis is not None:
            rows = Kept(*in_key_order(self.task.seed, *rows))
            with one_blas_thread():
                values = self.matched.values(rows.X, rows.y)
                pool = Pool(self.basis, rows.rows, rows.masses, values, rows.X, rows.y).reduced(most)
            rows = Kept.join([Kept(pool.rows, pool.X, pool.y, pool.weights)])
        if rows.y.size > most:
            few, total = draw_rows(self.task.problem, rows.pilot, most, self.task.seed), rows.masses.sum()
            rows = rows.pick(few.rows)._replace(masses=few.weights * total)
        return rows

    # What is known of all rows

    @property
    def mass(self) -> float:
        """Of all rows, in units of the extent."""
        return float(self.masses.total().sum()) if self.masses.nodes else 0.0

    def reading(self) -> Reading:
        """Return the reading of all rows."""
        if self.summary is None:
            raise ValueError("No row has arrived yet.")
        closed, mass = close(self.summary, self.task, self.extent), self.mass
        reading = as_reading(self.task, closed.scaled(1.0 / mass))
        if mass > _MOST_MASS and not reading.is_exact:
            reading.bound_risk()
        return reading

    def kept(self) -> Kept:
        """Return the rows kept, with masses that have the sums of all rows at the anchor and stand for their weight."""
        rows, masses = self._sample(), self.masses.total()
        weight = self.mass * self.extent.total_weight
        if rows.y.size < _KEPT * self.size:  # all rows are there
            return rows._replace(masses=normalised(rows.masses) * weight)
        wide, targets = self.is_wide(rows.y.size), None
        if self.pools.nodes:
            nodes: list[Any] = [self.pools.nodes[place] for place in sorted(self.pools.nodes)]
            pool = Pool.join(nodes)
            pooled = Kept(pool.rows, pool.X, pool.y, normalised(pool.weights))
            targets = pooled.masses @ pool.values
            # As much of each as makes the masses as even as they can be.
            shares = [1.0 / float(each.masses @ each.masses) for each in (rows, pooled)]
            parts = [
                each._replace(masses=each.masses * share / sum(shares))
                for each, share in zip((rows, pooled), shares, strict=True)
            ]
            rows = Kept.join(parts)
            rows = rows._replace(masses=normalised(rows.masses))
        if not wide:
            values = self.matched.values(rows.X, rows.y)
            if targets is None or self.basis is None:
                targets, used = self.matched.known_sums(rows.masses @ values, [self.reading()])
                new = calibrate(rows.masses, values[:, used], targets[used]).weights
            else:  # the pool alone has these sums, so that some weights do
                values, targets = self.basis.apply(values)[:, 1:], self.basis.apply(targets[None])[0, 1:]
                varies = np.sqrt(rows.masses @ (values - rows.masses @ values) ** 2) > CONSTANT
                new = calibrate(rows.masses, values[:, varies], targets[varies], softness=_EXACT).weights
            if masses.size == 1 or keeps_classes(rows.y, rows.masses, new):
                rows = rows._replace(masses=new).pick(np.flatnonzero(new > 0.0))
        return rows._replace(masses=normalised(rows.masses) * weight)

    def _sample(self) -> Kept:
        """Return the rows of smallest keys, their masses scaled to those of their classes, which sum to one."""
        if self.sample is None:
            raise ValueError("No row has arrived yet.")
        rows, family, masses = self.sample, self.task.problem.family, self.masses.total() / self.mass
        kinds = family.stratum(rows.y) if family.strata else np.zeros(rows.y.size, dtype=np.intp)
        own = np.bincount(kinds, rows.masses, masses.size)
        factors = np.divide(masses, own, out=np.zeros(masses.size), where=own > 0.0)
        return rows._replace(masses=rows.masses * factors[kinds])


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
    if problem.family.is_closed and problem.loss.kinks:
        t = problem.family.signal_at(anchor, rows.X, rows.y)
        reach = min(1.0, 2.0 * float(np.sqrt((m + 1) / size)))
        width = 0.3 * reach * max(float(np.sqrt(masses @ (t - masses @ t) ** 2)), 1e-12)
    extent = Extent(None, float(np.ldexp(1.0, min(40 + _typical_exponent(weights), 1000))))
    group = Group(sums_at(problem, anchor, seed, width), extent, size, centre_of(problem, rows.X, masses), None)
    if group.matched.n_columns <= _MOST_MATCHED:
        group.basis = _first_basis(group.matched.values(rows.X, rows.y), masses)
    return group


def sums_at(problem: Problem, anchor: Anchor, seed: int, width: float) -> Pass:
    """Return what is summed at an anchor; kinks are smoothed over ``width`` for a second dual candidate."""
    return Pass(problem, anchor, width, seed, sized=True)


def _first_basis(values: FloatArray, masses: FloatArray) -> Basis:
    """Return a basis in which no direction is lost: rows to come may have those that the first rows do not."""
    mean = masses @ values
    covariance = ((values - mean) * masses[:, None]).T @ (values - mean)
    variances = np.diagonal(covariance)
    varies = variances > _ROUNDING * (masses @ values**2)
    typical = variances[varies].mean() if varies.any() else 1.0
    covariance = np.where(varies & varies[:, None], covariance, 0.0)
    floor = _NO_VARIANCE * np.where(varies, variances, typical)
    return Basis.of(np.zeros(mean.size), covariance + np.diag(floor))._replace(centre=mean)


def has_all_classes(problem: Problem, y: FloatArray) -> bool:
    """Whether every class has a row; nothing is missing in regression."""
    return np.unique(y).size >= len(problem.family.strata)


def _typical_exponent(weights: FloatArray) -> int:
    """Return the power of two nearest to the mean of the positive weights, of any magnitude."""
    if not weights.any():
        return 0
    top = int(np.frexp(weights.max())[1])
    scaled = np.ldexp(weights, -top)
    return top + round(float(np.log2(scaled[scaled > 0.0].mean())))
