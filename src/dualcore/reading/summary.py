"""One read of the data, as sums that can be merged.

A `Pass` states what to compute, and at which model. `SummaryRead` runs it on chunks and joins the parts into a
`Summary`: the sums for exact risk, lower bound on the optimum and mean gradient. Its memory does not grow with the
number of rows.
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

# By name; filled by the modules `closed` and `rowwise`.
KERNELS: dict[str, Kernel] = {}

# Weights that sum to less than 2**-900, or to more than 2**900, are rescaled.
_FAR_EXPONENT = 900


class Pass(NamedTuple):
    """The task of a read: the model and the sums to compute."""

    problem: Problem
    anchor: Anchor  # where h and its gradient are evaluated
    width: float = 0.0  # smoothing of the second dual candidate, for losses with kinks; 0 for none
    seed: int = 0  # of the keys of rows; used by streams only
    certified: bool = True  # whether to compute the sums for a lower bound
    # Whether to sum the squares of the columns, from which the allowance for rounding in a lower bound is computed.
    # One read of the data with it suffices.
    sized: bool = False

    @property
    def kernel(self) -> Kernel:
        """The kernel of the problem's family."""
        return KERNELS[self.problem.family.kernel]


@dataclass
class Summary:
    """The merged result of a read."""

    n_rows: int
    sums: TreeSum  # of vectors in the layout of the kernel
    tail: FlipTail

    def scaled(self, factor: float) -> Summary:
        """Return the summary with all masses multiplied by a factor; it must not be merged afterwards."""
        sums = TreeSum({place: value * factor for place, value in self.sums.nodes.items()})
        return replace(self, sums=sums, tail=self.tail.scaled(factor))


def in_range(chunk: Chunk, total: float) -> tuple[Chunk, float]:
    """Return both with weights rescaled, by an exact power of two, so that sums and quotients are finite."""
    exponent = int(np.frexp(total)[1])
    if chunk.weights is None or abs(exponent) < _FAR_EXPONENT:
        return chunk, total
    return chunk._replace(weights=np.ldexp(chunk.weights, -exponent)), float(np.ldexp(total, -exponent))


class BlockRead(NamedTuple):
    """Result of a kernel for the rows of whole leaves."""

    table: FloatArray  # (n_leaves, kernel width): sums over every leaf, not yet divided by the weight of all rows
    tail: FlipTail


class Kernel(Protocol):
    """Computes the sums over a block of rows; one for every kind of family."""

    def block(self, chunk: Chunk, task: Pass, total: float, leaves: Leaves) -> BlockRead:
        """Return the sums over whole leaves; ``total`` is the weight of all rows."""


class WeightedRows(Protocol):
    """Weighted rows that represent all rows: a coreset, a pilot sample."""

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
    """Runs a pass. The result is the same, to the last bit, for any order in which parts are joined."""

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
