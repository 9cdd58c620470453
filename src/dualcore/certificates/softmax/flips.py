"""Changes of label: which rows take which label, and the rows for which that is open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.softmax.design import ClassDesign
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data

__all__ = ["Flips", "OpenRows", "settle"]


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


class OpenRows(NamedTuple):
    """Rows near a change of label, with one entry for every label they may take, entries in row order.

    ``row``, ``label``, ``gain`` (entries,): what taking the label adds to the loss; ``place`` (entries,): which of
    ``features`` (rows, width) belongs to the entry.
    """

    row: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    gain: FloatArray
    place: npt.NDArray[np.int64]
    features: FloatArray


def settle(
    design: ClassDesign,
    W: FloatArray,
    gain: FloatArray,
    tie: FloatArray,
    lowest: npt.NDArray[np.int64],
    multiplier: float,
    limit: int,
) -> tuple[Flips, OpenRows]:
    """Decide the rows far from any change of label; leave the nearest ``limit`` of them open.

    Parameters
    ----------
    gain, tie, lowest : ndarrays of shape (n,)
        Most that another label gains, how far the second-lowest score is above the lowest, and the label of the lowest.
    multiplier : float
        Minimiser of the risk at ``W``: the mass that gains more than its price is then affordable.
    """
    data, code = design.data, design.code
    beyond = gain - multiplier * design.problem.geometry.label_cost
    distance = np.where(beyond > 0.0, np.minimum(beyond, tie), -beyond)
    near = np.sort(np.argpartition(distance, limit)[:limit]) if distance.size > limit else np.arange(distance.size)
    reach = float(distance[near].max())
    far = np.ones(distance.size, dtype=bool)
    far[near] = False
    flipped = np.flatnonzero(far & (beyond > 0.0))
    features = design.rows(data.rows.take(near))
    scores = features @ W.T
    gains = np.take_along_axis(scores, code[near, None], axis=1) - scores
    candidate = np.ones(gains.shape, dtype=bool)
    if candidate.size > 4 * limit:  # many classes: leave out the labels that are far from gaining most
        candidate = gains >= gains.max(axis=1, keepdims=True) - 2.0 * reach
    candidate[np.arange(near.size), code[near]] = False
    index, label = np.nonzero(candidate)
    chosen = Flips(flipped, lowest[flipped], np.ones(flipped.size))
    return chosen, OpenRows(near[index], label, gains[index, label], index, features)
