"""Sums over rows that are the same, to the last bit, for any split of the rows into chunks.

Floating-point addition is not associative, so a sum taken chunk by chunk depends on the chunks. Here it does not:
rows are grouped in *leaves* by their global number (rows ``[k L, (k + 1) L)`` are leaf ``k``), a leaf is always
summed by the same operations, and leaves are added along one binary tree over their numbers. A part of the data is a
few complete nodes of that tree; parts merge in any order. For one number per row there is an exact sum (`exact_sum`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dualcore.data.arrays import FloatArray

# Numbers in a leaf: enough to hide the overhead of a BLAS call, and too few for BLAS to use several threads.
_LEAF_NUMBERS = 8192
# Rows of a sparse leaf: many, because its sums are dense vectors of m numbers.
_SPARSE_ROWS = 4096


def leaf_rows(n_features: int, *, sparse: bool = False) -> int:
    """Return ``L``, the number of rows of a leaf: a power of two that depends only on the number of features.

    Examples
    --------
    >>> leaf_rows(20), leaf_rows(785), leaf_rows(3)
    (256, 16, 1024)
    """
    if sparse:
        return _SPARSE_ROWS
    wanted = max(_LEAF_NUMBERS // max(n_features, 1), 1)
    return min(max(1 << (wanted.bit_length() - 1), 16), 1024)  # fewer or more rows are not faster


@dataclass
class TreeSum:
    """Sums of vectors over leaves, as the nodes of a binary tree.

    ``nodes`` maps (level, number) to the sum over leaves ``[number 2**level, (number + 1) 2**level)``. It never has two
    siblings, because these are added at once.

    Examples
    --------
    >>> whole = TreeSum.of_leaves(0, np.array([[0.1], [0.2], [0.3]]))
    >>> parts = [TreeSum.of_leaves(2, np.array([[0.3]])), TreeSum.of_leaves(0, np.array([[0.1], [0.2]]))]
    >>> bool(TreeSum.join(parts).total() == whole.total())
    True
    """

    nodes: dict[tuple[int, int], FloatArray] = field(default_factory=dict)

    @classmethod
    def of_leaves(cls, first: int, leaves: FloatArray) -> TreeSum:
        """Return the sum of consecutive leaves, one per row of ``leaves``; ``first`` is the number of the first."""
        nodes: dict[tuple[int, int], FloatArray] = {}
        level = 0
        while len(leaves):
            if first % 2:
                nodes[level, first] = leaves[0]
                first, leaves = first + 1, leaves[1:]
            if len(leaves) % 2:
                nodes[level, first + len(leaves) - 1] = leaves[-1]
                leaves = leaves[:-1]
            leaves = leaves[0::2] + leaves[1::2]
            level, first = level + 1, first // 2
        return cls(nodes)

    @classmethod
    def join(cls, parts: Iterable[TreeSum]) -> TreeSum:
        """Return the sum of parts that have no leaf in common; their order does not matter."""
        nodes: dict[tuple[int, int], FloatArray] = {}
        for part in parts:
            for node, value in part.nodes.items():
                if node in nodes:
                    raise ValueError(f"The same rows were summed twice (leaf {node[1] << node[0]} is in two parts).")
                nodes[node] = value
        waiting = sorted(nodes)
        while waiting:
            found = []
            for level, number in waiting:
                left, right = (level, number & ~1), (level, number | 1)
                if left in nodes and right in nodes:
                    parent = (level + 1, number >> 1)
                    nodes[parent] = nodes.pop(left) + nodes.pop(right)
                    found.append(parent)
            waiting = sorted(found)
        return cls(nodes)

    def total(self) -> FloatArray:
        """Return the sum of all nodes, from the first rows to the last."""
        order = sorted(self.nodes, key=lambda node: node[1] << node[0])
        if not order:
            raise ValueError("There is nothing to sum.")
        total = self.nodes[order[0]].copy()
        for node in order[1:]:
            total += self.nodes[node]
        return total


def exact_sum(values: FloatArray) -> int:
    """Return the exact sum of finite numbers as a whole number of ``2**-1126``: sums of parts are added in any order.

    Examples
    --------
    >>> rounded(exact_sum(np.array([1e100, 1.0, -1e100])))
    1.0
    """
    mantissa, exponent = np.frexp(values)
    whole, total = np.ldexp(mantissa, 53).astype(np.int64), 0
    for shift in np.unique(exponent).tolist():
        part = whole[exponent == shift]
        # In two halves, so that 64 bits hold the sum of a billion of them.
        total += ((int((part >> 26).sum()) << 26) + int((part & 0x3FFFFFF).sum())) << (shift + 1073)
    return total


def rounded(total: int, count: int = 1) -> float:
    """Return what `exact_sum` found, divided by a count, as the nearest number."""
    return total / (count << 1126)
