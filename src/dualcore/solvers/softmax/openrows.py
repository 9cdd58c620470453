"""Rows near a change of label, whose labels a cone program decides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.data.arrays import FloatArray

__all__ = ["OpenRows", "choose_open"]


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


def choose_open(
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
