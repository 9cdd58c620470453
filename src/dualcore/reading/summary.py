"""One read of the data: everything a round needs, as sums that merge.

A `Pass` says what to compute: at which model, with which cells and keys. `summarise` runs it on a chunk, `merge` joins
the parts into a `Summary`: what the exact risk, a lower bound on the optimum and the mean gradient need, and a keyed
sample of every cell. Nothing in it grows with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates import mean_slope, slope_power
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk, RowError
from dualcore.data.sources.pilot import stack_rows
from dualcore.data.sums import FlipTail, Leaves, TreeSum, complete_leaves, edge_spans, leaf_rows, split_rows
from dualcore.problem import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.forms import MarginForm, SquaredForm, SquaredHingeForm
from dualcore.reading.cells import CellRule

__all__ = ["CellRule", "Extent", "Pass", "Sample", "Summary", "close", "in_range", "merge", "stack_chunks", "summarise"]

# Weights that sum to less than 2**-900, or to more than 2**900, are brought nearer to one.
_FAR_EXPONENT = 900


class Pass(NamedTuple):
    """What a read computes.

    Attributes
    ----------
    problem, anchor
        Where ``h`` and its gradient are evaluated.
    cells : CellRule
    seed : int
        Of the row keys.
    keep : ndarray of shape (n_cells,)
        A row is kept if its key is below this; the row of smallest key in a cell always is.
    width : float
        Smoothing of the second dual candidate, for losses with kinks; 0 for none.
    origin : Anchor or None
        Where a line search starts; its risk and that at ``steps`` towards ``anchor`` are summed too.
    steps : tuple of float
    certified : bool
        Whether to sum what a lower bound needs; a read that only draws does without.
    sized : bool
        Whether to sum the squares of the columns, from which the allowance for rounding of a lower bound is made. Once
        for some data is enough.
    """

    problem: Problem
    anchor: Anchor
    cells: CellRule
    seed: int
    keep: FloatArray
    width: float = 0.0
    origin: Anchor | None = None
    steps: tuple[float, ...] = ()
    certified: bool = True
    sized: bool = False


class Sample(NamedTuple):
    """Rows that were kept, with what calibration needs of them."""

    rows: npt.NDArray[np.int64]
    keys: FloatArray
    cells: npt.NDArray[np.intp]
    X: Any
    y: FloatArray
    masses: FloatArray
    h: FloatArray
    slope: FloatArray
    flipped: npt.NDArray[np.bool_]

    def pick(self, chosen: npt.NDArray[np.intp]) -> Sample:
        """Return the chosen rows of the sample."""
        return Sample(
            self.rows[chosen], self.keys[chosen], self.cells[chosen], self.X[chosen], self.y[chosen],
            self.masses[chosen], self.h[chosen], self.slope[chosen], self.flipped[chosen],
        )  # fmt: skip

    def in_row_order(self) -> Sample:
        """Return the sample, ascending by row number."""
        ascending = bool((np.diff(self.rows) > 0).all())
        return self if ascending else self.pick(np.argsort(self.rows, kind="stable"))

    @classmethod
    def join(cls, parts: list[Sample]) -> Sample:
        """Return the rows of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.cells for part in parts]),
            stack_rows([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.masses for part in parts]),
            np.concatenate([part.h for part in parts]),
            np.concatenate([part.slope for part in parts]),
            np.concatenate([part.flipped for part in parts]),
        )


class Extent(NamedTuple):
    """What a chunk has to know of the whole: how many rows (None: not known yet), of what weight in all."""

    n_rows: int | None
    total_weight: float


@dataclass
class Summary:
    """The merged result of a read. `merge` takes parts in any order and gives the same to the last bit.

    Rows of leaves that are not complete yet travel as they are, in ``edges``: less than a leaf at either end of a part.
    """

    n_rows: int
    sums: TreeSum  # of vectors laid out as `Layout` says
    cell_count: npt.NDArray[np.int64]
    tails: list[FlipTail]  # of the anchor, then of each step of the line search
    sample: Sample | None
    edges: list[Chunk]
    weighted: bool

    def scaled(self, factor: float) -> Summary:
        """Return the summary with all masses multiplied; it is to be read, not to be merged."""
        sample = None if self.sample is None else self.sample._replace(masses=self.sample.masses * factor)
        sums = TreeSum({place: value * factor for place, value in self.sums.nodes.items()})
        return replace(self, sums=sums, tails=[tail.scaled(factor) for tail in self.tails], sample=sample)


class Layout:
    """Where the sums of a pass are in a vector: 5 totals, the line search, the dual candidates, the cells' masses."""

    def __init__(self, task: Pass, n_features: int, weighted: bool) -> None:
        self.m, self.n_line = n_features, len(task.steps) if task.origin is not None else 0
        self.n_duals = 2 if task.width > 0.0 else 1
        self.n_masses = task.cells.n_cells if weighted else 0
        self.n_squares = n_features if task.sized else 0

    @property
    def width(self) -> int:
        """Length of a vector."""
        return 5 + self.n_line + self.n_duals * (6 + 2 * self.m) + self.n_squares + self.n_masses

    def split(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray], FloatArray, FloatArray]:
        """Return views of totals, line, duals (each 6 + 2 m), column squares, masses of cells, on the last axis."""
        lengths = [5, self.n_line, *[6 + 2 * self.m] * self.n_duals, self.n_squares]
        totals, line, *duals, squares, masses = np.split(vectors, np.cumsum(lengths), axis=-1)
        return totals, line, duals, squares, masses


def summarise(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise the complete leaves of a chunk; its other rows wait for theirs."""
    start, stop = chunk.start, chunk.start + chunk.y.size
    leaf = leaf_rows(chunk.X.shape[1], sparse=sp.issparse(chunk.X))
    first, last = split_rows(start, stop, leaf, extent.n_rows)
    summary = _empty(task, chunk.weights is not None)
    if first < last:
        whole = first == start and last == stop
        summary = _summarise_leaves(chunk if whole else _cut(chunk, first, last), task, extent)
    # An edge is copied: a view of it would keep the chunk alive.
    summary.edges = [_cut(chunk, *span, copy=True) for span in edge_spans(start, stop, leaf, extent.n_rows)]
    return summary


def _cut(chunk: Chunk, start: int, stop: int, *, copy: bool = False) -> Chunk:
    part = slice(start - chunk.start, stop - chunk.start)
    weights = None if chunk.weights is None else chunk.weights[part]
    if copy:
        return Chunk(start, chunk.X[part].copy(), chunk.y[part].copy(), None if weights is None else weights.copy())
    return Chunk(start, chunk.X[part], chunk.y[part], weights)


def merge(parts: list[Summary], task: Pass, extent: Extent) -> Summary:
    """Return the summary of all parts together, whatever their order."""
    edges = [edge for part in parts for edge in part.edges]
    if edges and len(parts) > 1:
        X = edges[0].X
        leaf = leaf_rows(X.shape[1], sparse=sp.issparse(X))
        spans = [(edge.start, edge.start + edge.y.size) for edge in edges]
        complete, left = complete_leaves(spans, leaf, extent.n_rows)
        whole = _runs([edges[place] for group in complete for place in group])
        parts = parts + [_summarise_leaves(chunk, task, extent) for chunk in whole]
        edges = _runs([edges[place] for place in left], leaf)
    samples = [part.sample for part in parts if part.sample is not None]
    return Summary(
        sum(part.n_rows for part in parts),
        TreeSum.join([part.sums for part in parts]),
        np.sum([part.cell_count for part in parts], axis=0),
        [FlipTail.join(tails) for tails in zip(*(part.tails for part in parts), strict=True)],
        _trim(Sample.join(samples), task) if samples else None,
        edges,
        parts[0].weighted,
    )


def _runs(chunks: list[Chunk], leaf: int | None = None) -> list[Chunk]:
    """Return ascending chunks with neighbours put together; with ``leaf``, only neighbours in the same leaf."""
    runs: list[list[Chunk]] = []
    for chunk in chunks:
        stop = runs[-1][-1].start + runs[-1][-1].y.size if runs else -1
        if stop == chunk.start and (leaf is None or stop % leaf):
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [stack_chunks(run) for run in runs]


def stack_chunks(chunks: list[Chunk]) -> Chunk:
    """Return consecutive chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
    return Chunk(
        chunks[0].start,
        stack_rows([chunk.X for chunk in chunks]),
        np.concatenate([chunk.y for chunk in chunks]),
        np.concatenate(weights) if weights else None,
    )


def close(summary: Summary, task: Pass, extent: Extent) -> Summary:
    """Return the summary with the rows of incomplete leaves counted in: for data that are not over, or have gaps."""
    parts = [replace(summary, edges=[])]
    for edge in sorted(summary.edges, key=lambda edge: edge.start):
        part = _summarise_leaves(edge, task, extent)
        [(place, value)] = part.sums.nodes.items()
        last = parts[-1].sums.nodes
        if len(parts) > 1 and place in last:  # two fragments of one leaf, with rows missing between them
            last[place] = last[place] + value
            part.sums = TreeSum()
            parts.insert(1, part)
        else:
            parts.append(part)
    return merge(parts, task, extent)


def _empty(task: Pass, weighted: bool) -> Summary:
    n_tails = 1 + (len(task.steps) if task.origin is not None else 0)
    counts = np.zeros(task.cells.n_cells, dtype=np.int64)
    return Summary(0, TreeSum(), counts, [FlipTail.empty()] * n_tails, None, [], weighted)


def _trim(sample: Sample, task: Pass) -> Sample:
    """Drop rows that were kept only as the smallest key of their cell in one part."""
    first = np.full(task.cells.n_cells, np.inf)
    np.minimum.at(first, sample.cells, sample.keys)
    wanted = (sample.keys < task.keep[sample.cells]) | (sample.keys <= first[sample.cells])
    return sample if wanted.all() else sample.pick(np.flatnonzero(wanted))


def _summarise_leaves(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise whole leaves. This is the hot path: one product with X, two with its transpose, O(rows) besides."""
    chunk, extent = in_range(chunk, extent)
    problem, anchor, form = task.problem, task.anchor, task.problem.form
    n, size, y = chunk.y.size, problem.size(anchor.coef), chunk.y
    leaves, unit, weights = Leaves(chunk.X), 1.0 / extent.total_weight, chunk.weights
    is_margin = problem.is_classification
    if is_margin and not (np.abs(y) == 1.0).all():
        row = int(np.flatnonzero(np.abs(y) != 1.0)[0])
        raise RowError(chunk.start + row, f"A classifier needs the labels -1 and +1, found {float(y[row])!r}")
    score = leaves.dot(anchor.coef)
    score += anchor.intercept
    t = score * y if is_margin else score - y
    gamma = problem.geometry.label_cost

    flipped: npt.NDArray[np.bool_] | None = None
    tail = FlipTail.empty()
    if isinstance(form, SquaredForm):
        value = problem.loss.value(t)
        # Without a radius nothing moves, whatever multiplier a model of another problem brings along.
        multiplier = anchor.multiplier if problem.radius > 0.0 else np.inf
        h, slope = form.h(t, multiplier, size), form.partials(t, multiplier, size).t
        flipped = slope > 0.0 if is_margin else None
        tail = _squared_tail(problem, t, size, weights, extent)
    else:
        value, slope = problem.loss.value_and_slope(t)
        h = value
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            gain = form.loss.flip_gain(t)
            flipped = gain > anchor.multiplier * gamma
            if flipped.any():
                h = value + np.maximum(gain - anchor.multiplier * gamma, 0.0)
                slope = slope.copy()
                slope[flipped] = -problem.loss.slope(-t[flipped])
            tail = _tail(gain, form.kappa(size), gamma, weights, extent)
    if flipped is not None and not flipped.any():
        flipped = None

    pull = slope * y if is_margin else slope
    layout = Layout(task, leaves.m, weights is not None)
    table = np.zeros((leaves.n_leaves, layout.width))
    totals, line, duals, squares, masses = layout.split(table)
    if task.sized:
        squares[:] = leaves.squares(weights)
    if task.certified:
        # Fenchel equality at an exact slope: -L*(s) = h - s t + q gamma lam, less s y for a residual.
        dual_value = h - slope * (t if is_margin else score)
        if flipped is not None and problem.geometry.order == 1:
            dual_value += np.where(flipped, anchor.multiplier * gamma, 0.0)
        if problem.geometry.order > 1:  # the squared losses need lin and quad apart, see `squared_bound`
            dual_value = -slope if is_margin else -slope * y
        _dual_sums(duals[0], leaves, weights, pull, dual_value)
    else:
        given = _weigh(pull, weights)
        duals[0][:, 3], duals[0][:, 6 : 6 + leaves.m] = leaves.sums(given), leaves.moments(given)
    totals[:, 0] = leaves.counts() if weights is None else leaves.sums(weights)
    totals[:, 1] = leaves.sums(_weigh(value, weights))
    totals[:, 2] = totals[:, 1] if h is value else leaves.sums(_weigh(h, weights))
    totals[:, 3] = duals[0][:, 3] - duals[0][:, 2]
    if flipped is not None:
        totals[:, 4] = duals[0][:, 4] = leaves.sums(_weigh(flipped, weights))
    if problem.geometry.order > 1 and task.certified:
        _by_side(duals[0][:, 4:6], leaves, _weigh(slope_power(problem, slope), weights), pull > 0.0)
    tails = [tail, *_along(line, task, leaves, chunk, t, extent)]
    if task.width > 0.0:
        _smooth_dual(duals[1], task, leaves, chunk, t)

    rows = np.arange(chunk.start, chunk.start + n)
    cells = task.cells.assign(problem, anchor.multiplier, t, h, slope, y)
    keys = row_keys(task.seed, rows)
    count = np.bincount(cells, minlength=task.cells.n_cells)
    if weights is not None:
        masses[:] = leaves.bins(cells, weights, task.cells.n_cells)
        if not weights.all():  # rows of no mass stand for nothing, and are never drawn
            count = np.bincount(cells[weights > 0.0], minlength=task.cells.n_cells)
            keys = np.where(weights > 0.0, keys, np.inf)
    chosen = np.flatnonzero(keys < task.keep[cells])
    missing = (count > 0) & (np.bincount(cells[chosen], minlength=task.cells.n_cells) == 0)
    if missing.any():  # every cell of a part sends at least the row of its smallest key
        lone = np.flatnonzero(missing[cells])
        lone = lone[np.lexsort((keys[lone], cells[lone]))]
        chosen = np.sort(np.concatenate([chosen, lone[np.unique(cells[lone], return_index=True)[1]]]))
    kept = np.full(chosen.size, unit) if weights is None else weights[chosen] / extent.total_weight
    turned = np.zeros(chosen.size, dtype=bool) if flipped is None else flipped[chosen]
    sample = Sample(
        rows[chosen], keys[chosen], cells[chosen], chunk.X[chosen], y[chosen], kept, h[chosen], slope[chosen], turned
    )
    table *= unit
    tree = TreeSum.of_leaves(chunk.start // leaves.rows, table)
    return Summary(n, tree, count, tails, sample, [], weights is not None)


def in_range(chunk: Chunk, extent: Extent) -> tuple[Chunk, Extent]:
    """Return both with weights whose sums and quotients are finite; a power of two changes no other bit."""
    exponent = int(np.frexp(extent.total_weight)[1])
    if chunk.weights is None or abs(exponent) < _FAR_EXPONENT:
        return chunk, extent
    weights = np.ldexp(chunk.weights, -exponent)
    return chunk._replace(weights=weights), extent._replace(total_weight=np.ldexp(extent.total_weight, -exponent))


def _weigh(values: npt.NDArray[Any], weights: FloatArray | None) -> npt.NDArray[Any]:
    return values if weights is None else values * weights


def _tail(gain: FloatArray, kappa: float, gamma: float, weights: FloatArray | None, extent: Extent) -> FlipTail:
    """Return the rows whose flip gain per unit of label cost exceeds ``kappa``."""
    beyond = np.flatnonzero(gain > kappa * gamma)
    equal = np.full(beyond.size, 1.0 / extent.total_weight)
    return FlipTail(gain[beyond] / gamma, equal if weights is None else weights[beyond] / extent.total_weight)


def _squared_tail(problem: Problem, t: FloatArray, size: float, weights: FloatArray | None, extent: Extent) -> FlipTail:
    """Return ``1 + z`` of the rows of a squared hinge that gain by a flip at some multiplier.

    A row that stays at one multiplier stays at all larger ones, and close to ``K^2`` it flips if
    ``1 + z - K gamma > [1 - z]_+``.
    """
    form, gamma = problem.form, problem.geometry.label_cost
    if not isinstance(form, SquaredHingeForm) or np.isinf(gamma) or problem.radius == 0.0:
        return FlipTail.empty()
    may = 1.0 + t - size * gamma > form.shortfall(t)
    beyond = np.flatnonzero(may if weights is None else may & (weights > 0.0))
    equal = np.full(beyond.size, 1.0 / extent.total_weight)
    return FlipTail(1.0 + t[beyond], equal if weights is None else weights[beyond] / extent.total_weight)


def _by_side(out: FloatArray, leaves: Leaves, values: FloatArray, is_up: npt.NDArray[np.bool_]) -> None:
    """Write the sums of ``values`` over the rows that pull down and over those that pull up, shape (n_leaves, 2).

    Each is summed by itself: a side may be so light that it would be lost in a difference of sums.
    """
    out[:, 0], out[:, 1] = leaves.sums(values * ~is_up), leaves.sums(values * is_up)


def _dual_sums(
    out: FloatArray, leaves: Leaves, weights: FloatArray | None, pull: FloatArray, value: FloatArray
) -> None:
    """Write value (2), balance (2), room for two more, and moment (2 m) of a dual candidate over every leaf.

    Each is apart by the side a row pulls to.
    """
    _by_side(out[:, :2], leaves, _weigh(value, weights), pull > 0.0)
    pull = _weigh(pull, weights)
    up = np.maximum(pull, 0.0)
    down = pull - up
    out[:, 2], out[:, 3] = -leaves.sums(down), leaves.sums(up)
    out[:, 6 : 6 + leaves.m], out[:, 6 + leaves.m :] = leaves.moments(down), leaves.moments(up)


def _smooth_dual(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray) -> None:
    """Write the dual sums for slopes averaged over ``[t - width, t + width]``; flips set in as gradually."""
    problem, width = task.problem, task.width
    slope = mean_slope(problem.loss, t, width)
    value = -problem.loss.conjugate(slope)
    gamma, form = problem.geometry.label_cost, problem.form
    if isinstance(form, MarginForm) and np.isfinite(gamma):
        ahead = 2.0 * width * problem.loss.lipschitz
        gain = form.loss.flip_gain(t) - task.anchor.multiplier * gamma
        rows = np.flatnonzero(gain > -ahead)
        share = np.minimum(0.5 + 0.5 * gain[rows] / ahead, 1.0)
        turned = mean_slope(problem.loss, -t[rows], width)
        slope[rows] = (1.0 - share) * slope[rows] - share * turned
        value[rows] = (1.0 - share) * value[rows] - share * problem.loss.conjugate(turned)
        everywhere = np.zeros(t.size)
        everywhere[rows] = share
        out[:, 4] = leaves.sums(_weigh(everywhere, chunk.weights))
    if not problem.is_classification:
        value = value - slope * chunk.y
    pull = slope * chunk.y if problem.is_classification else slope
    _dual_sums(out, leaves, chunk.weights, pull, value)


def _along(out: FloatArray, task: Pass, leaves: Leaves, chunk: Chunk, t: FloatArray, extent: Extent) -> list[FlipTail]:
    """Write the sums of the loss at each step of the line search to ``anchor``; return the flip tails."""
    problem, origin = task.problem, task.origin
    if origin is None:
        return []
    start = leaves.dot(origin.coef)
    start += origin.intercept
    start = start * chunk.y if problem.is_classification else start - chunk.y
    gamma, form = problem.geometry.label_cost, problem.form
    tails = []
    for place, step in enumerate(task.steps):
        at = start + step * (t - start)
        out[:, place] = leaves.sums(_weigh(problem.loss.value(at), chunk.weights))
        size = problem.size(origin.coef + step * (task.anchor.coef - origin.coef))
        tail = _squared_tail(problem, at, size, chunk.weights, extent)
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            tail = _tail(form.loss.flip_gain(at), form.kappa(size), gamma, chunk.weights, extent)
        tails.append(tail)
    return tails
