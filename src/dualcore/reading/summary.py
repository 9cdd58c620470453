"""One read of the data, as sums that can be merged.

A `Pass` says what to compute, and at which model. `SummaryRead` runs it on chunks and joins the parts into a `Summary`:
what the exact risk, a lower bound on the optimum and the mean gradient need. Nothing in it grows with the number of
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, RowError
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.leaves import LeafRead, Leaves

# Filled by the modules that hold them.
KERNELS: dict[str, Kernel] = {}

# Weights that sum to less than 2**-900, or to more than 2**900, are brought nearer to one.
_FAR_EXPONENT = 900


class Pass(NamedTuple):
    """What a read computes."""

    problem: Problem
    anchor: Anchor  # where h and its gradient are evaluated
    width: float = 0.0  # smoothing of the second dual candidate, for losses with kinks; 0 for none
    seed: int = 0  # of the keys of rows; only streams, which keep some rows, use it
    certified: bool = True  # whether to sum what a lower bound needs
    # Whether to sum the squares of the columns, from which the allowance for rounding of a lower bound is made. Once
    # for some data is enough.
    sized: bool = False

    @property
    def kernel(self) -> Kernel:
        """What to compute of a block of rows."""
        return KERNELS[self.problem.family.kernel]


@dataclass
class Summary:
    """The merged result of a read."""

    n_rows: int
    sums: TreeSum  # of vectors laid out as the kernel says
    tail: FlipTail

    def scaled(self, factor: float) -> Summary:
        """Return the summary with all masses multiplied; it is to be read, not to be merged."""
        sums = TreeSum({place: value * factor for place, value in self.sums.nodes.items()})
        return replace(self, sums=sums, tail=self.tail.scaled(factor))


def in_range(chunk: Chunk, total: float) -> tuple[Chunk, float]:
    """Return both with weights whose sums and quotients are finite; a power of two changes no other bit."""
    exponent = int(np.frexp(total)[1])
    if chunk.weights is None or abs(exponent) < _FAR_EXPONENT:
        return chunk, total
    return chunk._replace(weights=np.ldexp(chunk.weights, -exponent)), float(np.ldexp(total, -exponent))


class BlockRead(NamedTuple):
    """What a kernel says of the rows of whole leaves."""

    table: FloatArray  # (n_leaves, kernel width): sums over every leaf, not yet divided by the weight of all rows
    tail: FlipTail


class Kernel(Protocol):
    """What a read computes of a block of rows; one for every kind of family."""

    def block(self, chunk: Chunk, task: Pass, total: float, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves; ``total`` is the weight of all rows."""


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


@dataclass(frozen=True)
class SummaryRead(LeafRead[Summary]):
    """Runs a pass; parts that are joined in any order give the same to the last bit."""

    task: Pass

    def sums_of(self, chunk: Chunk) -> Summary:
        """Return the summary of whole leaves."""
        chunk, total = in_range(chunk, self.total)
        family, y = self.task.problem.family, chunk.y
        wrong = family.first_wrong_label(y)
        if wrong is not None:
            raise RowError(chunk.start + wrong, family.label_fault(float(y[wrong])))
        leaves = Leaves(chunk.X)
        found = self.task.kernel.block(chunk, self.task, total, leaves)
        return Summary(y.size, TreeSum.of_leaves(chunk.start // leaves.rows, found.table * (1.0 / total)), found.tail)

    def join(self, found: list[Summary]) -> Summary:
        """Return the summary of all parts together."""
        return Summary(
            sum(part.n_rows for part in found),
            TreeSum.join(part.sums for part in found),
            FlipTail.join(part.tail for part in found),
        )
