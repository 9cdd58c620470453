"""One read of the data: everything a round needs, as sums that merge.

A `Pass` says what to compute, and at which model. `summarise` runs it on a chunk, `merge` joins the parts into a
`Summary`: what the exact risk, a lower bound on the optimum and the mean gradient need. Nothing in it grows with the
number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, RowError
from dualcore.data.sources.chunk import complete_edges
from dualcore.data.sums import Leaves, TreeSum, leaf_rows
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail

# Filled by the modules that hold them.
KERNELS: dict[str, Kernel] = {}

# Weights that sum to less than 2**-900, or to more than 2**900, are brought nearer to one.
_FAR_EXPONENT = 900


class Pass(NamedTuple):
    """What a read computes."""

    problem: Problem
    anchor: Anchor  # where h and its gradient are evaluated
    width: float = 0.0  # smoothing of the second dual candidate, for losses with kinks; 0 for none
    seed: int = 0  # of the keys of rows, where some are kept beside the sums
    certified: bool = True  # whether to sum what a lower bound needs
    # Whether to sum the squares of the columns, from which the allowance for rounding of a lower bound is made. Once
    # for some data is enough.
    sized: bool = False

    @property
    def kernel(self) -> Kernel:
        """What to compute of a block of rows."""
        return KERNELS[self.problem.family.kernel]


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
    tail: FlipTail
    edges: list[Chunk]
    weighted: bool

    def scaled(self, factor: float) -> Summary:
        """Return the summary with all masses multiplied; it is to be read, not to be merged."""
        sums = TreeSum({place: value * factor for place, value in self.sums.nodes.items()})
        return replace(self, sums=sums, tail=self.tail.scaled(factor))


def summarise(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise the complete leaves of a chunk; its other rows wait for theirs."""
    leaf = leaf_rows(chunk.X.shape[1], sparse=sp.issparse(chunk.X))
    whole, edges = chunk.leaves(leaf, extent.n_rows)
    summary = _empty(chunk.weights is not None) if whole is None else _summarise_leaves(whole, task, extent)
    summary.edges = edges
    return summary


def merge(parts: list[Summary], task: Pass, extent: Extent) -> Summary:
    """Return the summary of all parts together, whatever their order."""
    edges = [edge for part in parts for edge in part.edges]
    if edges and len(parts) > 1:
        X = edges[0].X
        whole, edges = complete_edges(edges, leaf_rows(X.shape[1], sparse=sp.issparse(X)), extent.n_rows)
        parts = parts + [_summarise_leaves(chunk, task, extent) for chunk in whole]
    return Summary(
        sum(part.n_rows for part in parts),
        TreeSum.join([part.sums for part in parts]),
        FlipTail.join([part.tail for part in parts]),
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


def _empty(weighted: bool) -> Summary:
    return Summary(0, TreeSum(), FlipTail.empty(), [], weighted)


def in_range(chunk: Chunk, extent: Extent) -> tuple[Chunk, Extent]:
    """Return both with weights whose sums and quotients are finite; a power of two changes no other bit."""
    exponent = int(np.frexp(extent.total_weight)[1])
    if chunk.weights is None or abs(exponent) < _FAR_EXPONENT:
        return chunk, extent
    weights = np.ldexp(chunk.weights, -exponent)
    return chunk._replace(weights=weights), extent._replace(total_weight=np.ldexp(extent.total_weight, -exponent))


class BlockRead(NamedTuple):
    """What a kernel says of the rows of whole leaves."""

    table: FloatArray  # (n_leaves, kernel width): sums over every leaf, not yet divided by the weight of all rows
    tail: FlipTail


class Kernel(Protocol):
    """What a read computes of a block of rows; one for every kind of family."""

    def width(self, task: Pass, n_features: int) -> int:
        """Return how many sums there are."""

    def block(self, chunk: Chunk, task: Pass, extent: Extent, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves."""


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


def _summarise_leaves(chunk: Chunk, task: Pass, extent: Extent) -> Summary:
    """Summarise whole leaves."""
    chunk, extent = in_range(chunk, extent)
    family, weights, y = task.problem.family, chunk.weights, chunk.y
    wrong = family.first_wrong_label(y)
    if wrong is not None:
        raise RowError(chunk.start + wrong, family.label_fault(float(y[wrong])))
    leaves = Leaves(chunk.X)
    found = task.kernel.block(chunk, task, extent, leaves)
    tree = TreeSum.of_leaves(chunk.start // leaves.rows, found.table * (1.0 / extent.total_weight))
    return Summary(y.size, tree, found.tail, [], weights is not None)
