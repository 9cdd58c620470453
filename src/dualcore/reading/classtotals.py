"""Class by class, the mass and the sums of the features: one read, before any model is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.softmax.totals import ClassTotals
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.leafread import LeafRead
from dualcore.data.sums import Leaves, TreeSum

# Rows of a leaf for every class, at least: the sums of a leaf then take less memory than its rows.
_ROWS_PER_CLASS = 8


def class_totals(source: Source, n_classes: int) -> ClassTotals:
    """Return the totals of a source whose targets are class numbers; the same however its rows are cut."""
    total, m = _Totals(source.n_rows, source.total_weight, n_classes).over(source).total(), source.n_features
    sums = total[: n_classes * (1 + m)].reshape(n_classes, 1 + m)
    return ClassTotals(source.n_rows, sums[:, 0], sums[:, 1:], np.sqrt(total[n_classes * (1 + m) :]))


@dataclass(frozen=True)
class _Totals(LeafRead[TreeSum]):
    """Sums, class by class, masses and masses times rows; then masses times squared rows."""

    n_classes: int

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the rows of a leaf, more of them for many classes."""
        fewest = 1 << (_ROWS_PER_CLASS * self.n_classes - 1).bit_length()
        return max(super().leaf_of(chunk), fewest)

    def sums_of(self, chunk: Chunk) -> TreeSum:
        """Return the sums of whole leaves."""
        leaves, n = Leaves(chunk.X, self.leaf_of(chunk)), chunk.y.size
        masses = chunk.masses(self.total)
        # A row of this matrix for every class of every leaf; its products add up rows in their order.
        place = np.arange(n) // leaves.rows * self.n_classes + chunk.y.astype(np.intp)
        picks = sp.csr_matrix((masses, (place, np.arange(n))), shape=(leaves.n_leaves * self.n_classes, n))
        moments = picks @ chunk.X
        moments = moments.toarray() if sp.issparse(moments) else np.asarray(moments)
        by_class = np.column_stack([picks @ np.ones(n), moments]).reshape(leaves.n_leaves, -1)
        table = np.column_stack([by_class, leaves.squares(masses)])
        return TreeSum.of_leaves(chunk.start // leaves.rows, table)

    def join(self, found: list[TreeSum]) -> TreeSum:
        """Return the sums of all leaves."""
        return TreeSum.join(found)
