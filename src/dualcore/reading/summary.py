"""One read of the data: everything a round needs, as sums that merge.

A `Pass` says what to compute: at which model, with which cells and keys. `summarise` runs it on a chunk, `merge` joins
the parts into a `Summary`: what the exact risk, a lower bound on the optimum and the mean gradient need, and a keyed
sample of every cell. Nothing in it grows with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys
from dualcore.data.sources import Chunk, RowError
from dualcore.data.sources.chunk import complete_edges, stack_rows
from dualcore.data.sums import Leaves, TreeSum, edge_spans, leaf_rows, split_rows
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.cells import CellPlan, CellRule

# Filled by the modules that hold them.
KERNELS: dict[str, Kernel] = {}

# Weights that sum to less than 2**-900, or to more than 2**900, are brought nearer to one.
_FAR_EXPONENT = 900


class Pass(NamedTuple):
    """What a read computes."""

    problem: Problem
    anchor: Anchor  # where h and its gradient are evaluated
    cells: CellRule
    seed: int  # of the row keys
    keep: FloatArray  # (n_cells,): a row is kept if its key is below; the row of smallest key in a cell always is
    width: float = 0.0  # smoothing of the second dual candidate, for losses with kinks; 0 for none
    origin: Anchor | None = None  # where a line search starts; its risk and those at `steps` to the anchor are summed
    steps: tuple[float, ...] = ()
    certified: bool = True  # whether to sum what a lower bound needs; a read that only draws does without
    # Whether to sum the squares of the columns, from which the allowance for rounding of a lower bound is made. Once
    # for some data is enough.
    sized: bool = False

    @property
    def kernel(self) -> Kernel:
        """What to compute of a block of rows."""
        return KERNELS[self.problem.family.kernel]


class Sample(NamedTuple):
    """Rows that were kept, with what calibration needs of them.

    ``X`` may be of single precision where that is exact: samples of several parts and reads are held at a time.
    """

    rows: npt.NDArray[np.int64]
    keys: FloatArray
    cells: npt.NDArray[np.intp]
    X: Any
    y: FloatArray
    masses: FloatArray
    h: FloatArray
    slope: FloatArray  # of h in the score, or in each of several scores
    spent: FloatArray  # transport, in units of the family
    moved: Any = None  # the features after the move; None where they stay

    def pick(self, chosen: npt.NDArray[np.intp]) -> Sample:
        """Return the chosen rows of the sample."""
        parts: list[Any] = [None if part is None else part[chosen] for part in self]
        return Sample(*parts)

    def draw(self, chosen: npt.NDArray[np.intp]) -> Sample:
        """Return the chosen rows of the sample, their features in double precision."""
        picked = self.pick(chosen)
        return picked if sp.issparse(picked.X) else picked._replace(X=np.asarray(picked.X, dtype=np.float64))

    def in_row_order(self) -> Sample:
        """Return the sample, ascending by row number."""
        ascending = bool((np.diff(self.rows) > 0).all())
        return self if ascending else self.pick(np.argsort(self.rows, kind="stable"))

    @classmethod
    def join(cls, parts: list[Sample], wanted: list[npt.NDArray[np.bool_]]) -> Sample:
        """Return the rows of all parts that are wanted."""
        if len(parts) == 1 and wanted[0].all():
            return parts[0]
        columns = [list(column) for column in zip(*parts, strict=True)]
        joined: list[Any] = [None if column[0] is None else _stack(column, wanted) for column in columns]
        return cls(*joined)


def _stack(parts: list[Any], wanted: list[npt.NDArray[np.bool_]]) -> Any:
    """Stack the wanted rows of arrays, or of CSR matrices; of arrays nothing else is ever copied."""
    if any(sp.issparse(part) for part in parts):
        return stack_rows([part[rows] for part, rows in zip(parts, wanted, strict=True)])
    ends = np.cumsum([0, *(np.count_nonzero(rows) for rows in wanted)])
    out = np.empty((ends[-1], *parts[0].shape[1:]), dtype=np.result_type(*parts))
    for part, rows, first, last in zip(parts, wanted, ends[:-1], ends[1:], strict=True):
        np.compress(rows, part, axis=0, out=out[first:last])
    return out


def _shortened(X: Any) -> Any:
    """Return dense features in single precision if all of them are such numbers, else as they are."""
    if sp.issparse(X):
        return X
    with np.errstate(over="ignore", under="ignore"):
        short = X.astype(np.float32)
    return short if np.array_equal(short, X) else X


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
    sums: TreeSum  # of vectors laid out as the kernel says
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


def summarise(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise the complete leaves of a chunk; its other rows wait for theirs."""
    start, stop = chunk.start, chunk.start + chunk.y.size
    leaf = leaf_rows(chunk.X.shape[1], sparse=sp.issparse(chunk.X))
    first, last = split_rows(start, stop, leaf, extent.n_rows)
    summary = _empty(task, chunk.weights is not None)
    if first < last:
        whole = first == start and last == stop
        summary = _summarise_leaves(chunk if whole else chunk.part(first, last), task, extent)
    summary.edges = [chunk.part(*span).copy() for span in edge_spans(start, stop, leaf, extent.n_rows)]
    return summary


def merge(parts: list[Summary], task: Pass, extent: Extent) -> Summary:
    """Return the summary of all parts together, whatever their order."""
    edges = [edge for part in parts for edge in part.edges]
    if edges and len(parts) > 1:
        X = edges[0].X
        whole, edges = complete_edges(edges, leaf_rows(X.shape[1], sparse=sp.issparse(X)), extent.n_rows)
        parts = parts + [_summarise_leaves(chunk, task, extent) for chunk in whole]
    samples = [part.sample for part in parts if part.sample is not None]
    return Summary(
        sum(part.n_rows for part in parts),
        TreeSum.join([part.sums for part in parts]),
        np.sum([part.cell_count for part in parts], axis=0),
        [FlipTail.join(tails) for tails in zip(*(part.tails for part in parts), strict=True)],
        _trimmed(samples, task) if samples else None,
        edges,
        parts[0].weighted,
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


def _trimmed(samples: list[Sample], task: Pass) -> Sample:
    """Return samples as one, without rows that were kept only as the smallest key of their cell in one part."""
    first = np.full(task.cells.n_cells, np.inf)
    for sample in samples:
        np.minimum.at(first, sample.cells, sample.keys)
    return Sample.join(
        samples, [(each.keys < task.keep[each.cells]) | (each.keys <= first[each.cells]) for each in samples]
    )


def in_range(chunk: Chunk, extent: Extent) -> tuple[Chunk, Extent]:
    """Return both with weights whose sums and quotients are finite; a power of two changes no other bit."""
    exponent = int(np.frexp(extent.total_weight)[1])
    if chunk.weights is None or abs(exponent) < _FAR_EXPONENT:
        return chunk, extent
    weights = np.ldexp(chunk.weights, -exponent)
    return chunk._replace(weights=weights), extent._replace(total_weight=np.ldexp(extent.total_weight, -exponent))


class BlockRead(NamedTuple):
    """What a kernel says of the rows of whole leaves; all but the first two are as `Sample` keeps them."""

    table: FloatArray  # (n_leaves, kernel width): sums over every leaf, not yet divided by the weight of all rows
    tails: list[FlipTail]
    cells: npt.NDArray[np.intp]
    h: FloatArray
    slope: FloatArray
    spent: FloatArray
    moved: Any = None


class Kernel(Protocol):
    """What a read computes of a block of rows; one for every kind of family."""

    def width(self, task: Pass, n_features: int) -> int:
        """Return how many sums there are."""

    def block(self, chunk: Chunk, task: Pass, extent: Extent, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves, and what is known of every row."""

    def plan(
        self, problem: Problem, anchor: Anchor, rows: WeightedRows, size: int, reach: float, *, focused: bool
    ) -> CellPlan:
        """Return cells for ``size`` draws, from rows that are at hand.

        ``reach`` is how far scores may still move, in units of their spread: rows nearer to a kink count as curved.
        """


class WeightedRows(Protocol):
    """Rows that stand for others: a coreset, a pilot sample."""

    @property
    def X(self) -> Any:  # noqa: N802
        """Features."""

    @property
    def y(self) -> FloatArray:
        """Targets."""

    @property
    def weights(self) -> FloatArray:
        """Masses that sum to one."""


def plan_cells(
    problem: Problem, anchor: Anchor, rows: WeightedRows, size: int, reach: float, *, focused: bool
) -> CellPlan:
    """Return cells for ``size`` draws at a model, from rows that are at hand."""
    return KERNELS[problem.family.kernel].plan(problem, anchor, rows, size, reach, focused=focused)


def _summarise_leaves(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise whole leaves: the kernel's sums, the masses of the cells, and the rows whose keys are small."""
    chunk, extent = in_range(chunk, extent)
    family, weights, y = task.problem.family, chunk.weights, chunk.y
    wrong = family.first_wrong_label(y)
    if wrong is not None:
        raise RowError(chunk.start + wrong, family.label_fault(float(y[wrong])))
    leaves = Leaves(chunk.X)
    found = task.kernel.block(chunk, task, extent, leaves)
    cells, n_cells = found.cells, task.cells.n_cells
    rows = np.arange(chunk.start, chunk.start + y.size)
    keys = row_keys(task.seed, rows)
    count = np.bincount(cells, minlength=n_cells)
    table, unit = found.table, 1.0 / extent.total_weight
    if weights is not None:
        table = np.concatenate([table, leaves.bins(cells, weights, n_cells)], axis=1)
        if not weights.all():  # rows of no mass stand for nothing, and are never drawn
            count = np.bincount(cells[weights > 0.0], minlength=n_cells)
            keys = np.where(weights > 0.0, keys, np.inf)
    chosen = np.flatnonzero(keys < task.keep[cells])
    missing = (count > 0) & (np.bincount(cells[chosen], minlength=n_cells) == 0)
    if missing.any():  # every cell of a part sends at least the row of its smallest key
        lone = np.flatnonzero(missing[cells])
        lone = lone[np.lexsort((keys[lone], cells[lone]))]
        chosen = np.sort(np.concatenate([chosen, lone[np.unique(cells[lone], return_index=True)[1]]]))
    kept = np.full(chosen.size, unit) if weights is None else weights[chosen] / extent.total_weight
    moved = None if found.moved is None else found.moved[chosen]
    sample = Sample(
        rows[chosen], keys[chosen], cells[chosen], _shortened(chunk.X[chosen]), y[chosen], kept,
        found.h[chosen], found.slope[chosen], found.spent[chosen], moved,
    )  # fmt: skip
    table *= unit
    tree = TreeSum.of_leaves(chunk.start // leaves.rows, table)
    return Summary(y.size, tree, count, found.tails, sample, [], weights is not None)
