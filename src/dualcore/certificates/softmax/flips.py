"""Label flips: which rows take which label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data

__all__ = ["Flips"]


class Flips(NamedTuple):
    """Which share of which row takes which label, shape (n_flips,) each, rows ascending."""

    row: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    share: FloatArray

    @classmethod
    def none(cls) -> Flips:
        """No label changes."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))

    def labels(self, code: npt.NDArray[np.int64], part: slice, n_classes: int) -> FloatArray:
        """Return the labels of a block after the flips as shares, shape (rows, K)."""
        out = np.zeros((part.stop - part.start, n_classes))
        out[np.arange(out.shape[0]), code[part]] = 1.0
        low, high = np.searchsorted(self.row, (part.start, part.stop))
        row, label, share = self.row[low:high], self.label[low:high], self.share[low:high]
        np.add.at(out, (row - part.start, label), share)
        np.add.at(out, (row - part.start, code[row]), -share)
        return np.maximum(out, 0.0)

    def mass(self, data: Data) -> float:
        """Return the mass that takes another label."""
        return float(data.masses[self.row] @ self.share)

    def joined(self, other: Flips) -> Flips:
        """Return both together."""
        row, label, share = (np.concatenate(pair) for pair in zip(self, other, strict=True))
        order = np.argsort(row, kind="stable")
        return Flips(row[order], label[order], share[order])

    def within(self, budget: float, data: Data, label_cost: float) -> Flips:
        """Return shares scaled down until they cost no more than the budget."""
        spent = label_cost * self.mass(data)
        return self if spent <= budget else self._replace(share=self.share * (budget / spent * (1.0 - 1e-12)))
