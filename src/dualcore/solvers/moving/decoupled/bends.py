"""The Hessian of curved losses with l1 on a box, from the gradients of intervals of slopes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray

__all__ = ["Bends", "Table"]

Table = npt.NDArray[np.float32]
Places = npt.NDArray[np.intp]


class Bends:
    """The curvature of a block: of the loss on intervals, and of the maximum over the intervals of a row.

    In single precision: a Hessian needs few digits.

    Parameters
    ----------
    n, d : int
        Rows of the block, and variables.
    """

    def __init__(self, n: int, d: int) -> None:
        self.mean, self.held = np.zeros((n, d), dtype=np.float32), np.zeros(n)
        self.tables: list[Table] = []

    def add(
        self, Q: Table, bend: FloatArray, T: Table, row: npt.NDArray[np.intp], share: FloatArray, mu: float
    ) -> None:
        """Take the gradients of signals ``Q``, and those of values ``T`` of rows with several intervals."""
        Q *= np.sqrt(bend).astype(np.float32)[:, None]
        n = self.held.size
        first = np.append(0, np.cumsum(np.bincount(row, minlength=n)))  # rows come in order
        shares = sp.csr_array((share.astype(np.float32), np.arange(row.size), first), shape=(n, row.size))
        self.mean += shares @ T
        self.held += np.bincount(row, share, n)
        T *= np.sqrt(share / mu).astype(np.float32)[:, None]
        self.tables += [Q, T]

    def hessian(self, mu: float) -> Table:
        """Return the sum of the products."""
        if not self.tables:
            return np.zeros((self.mean.shape[1],) * 2, dtype=np.float32)
        table = np.concatenate(self.tables)
        tied = np.flatnonzero(self.held > 0.0)
        mean = self.mean[tied] / np.sqrt(mu * self.held[tied]).astype(np.float32)[:, None]
        return np.asarray(table.T @ table - mean.T @ mean)
