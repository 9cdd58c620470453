"""Rows that leave the Newton system because the piece they end on is known.

Near the optimum most rows lie on one linear piece, ``f_k(z) - price_k lam``, far from the kinks. Fixed to it they are
together one linear function of the model, and an iteration costs what the other rows, the active ones, cost. A row
counts as decided where its lead, the distance of the next piece below its highest, is several times what nearly all
leads can have changed by along the last direction: the directions of an interior point shrink from step to step. That
is a guess. At the end the heights of all rows are compared, and where fixed rows cost more than their pieces say, the
run goes on from before they were fixed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.solvers.design import Design
from dualcore.solvers.rowmodel import RowState


class ActiveRows(NamedTuple):
    """The active rows, and of all rows the piece that they are fixed to unless they are active."""

    kept: npt.NDArray[np.int64]
    piece: npt.NDArray[np.int64]

    @classmethod
    def all_of(cls, n: int) -> ActiveRows:
        """Return all rows, none of them fixed."""
        return cls(np.arange(n), np.zeros(n, dtype=np.int64))

    def multipliers(self, p: FloatArray) -> FloatArray:
        """Return the multipliers (k, n) of all rows, from those of the active ones."""
        if self.kept.size == self.piece.size:
            return p
        out: FloatArray = (self.piece == np.arange(p.shape[0])[:, None]).astype(np.float64)
        out[:, self.kept] = p
        return out

    def excess(self, heights: FloatArray, weights: FloatArray) -> float:
        """Return by how much the highest pieces of fixed rows exceed those they are fixed to, in the objective."""
        over = heights.max(axis=0) - np.take_along_axis(heights, self.piece[None], axis=0)[0]
        over[self.kept] = 0.0
        return float(weights @ over)


class FixedPart(NamedTuple):
    """What newly fixed rows add to the objective: linear in the model (coef, intercept) and in the multiplier."""

    model: FloatArray
    multiplier: float
    value: float  # at the current point


def fix_rows(
    rows: RowState,
    design: Design,
    lam: float,
    change: FloatArray,
    dlam: float,
    *,
    fewest: int = 500,
    safety: float = 5.0,
    share: float = 0.5,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FixedPart] | None:
    """Return the positions that stay active, the highest piece of every row, and what the others add.

    ``rows`` are of lines, ``design`` is of the same rows. Along the last direction the signals change by ``change``
    (n,), the multiplier ``lam`` by ``dlam``. A row is decided if its lead exceeds ``safety`` times the change that
    99 of 100 leads stay below. None where more than a ``share`` of the rows would stay active, as every time costs a
    copy of those, where no row would, or for fewer than ``fewest`` rows, which cost nothing beside the calls.
    """
    n = change.size
    if n < fewest:
        return None
    nearly = int(0.99 * (n - 1))
    signals = float(np.partition(np.abs(change), nearly)[nearly])
    near = safety * (float(np.ptp(rows.slopes)) * signals + float(np.ptp(rows.prices)) * abs(dlam))
    lowest = rows.s.min(axis=0)
    # The row's second smallest slack is the only one besides the smallest below the bound, if any is.
    active = np.count_nonzero(rows.s <= lowest + near, axis=0) > 1
    # Without an active row (separable rows at radius 0, an exact fit) no system would be left.
    if not 0 < np.count_nonzero(active) <= share * n:
        return None
    piece = rows.s.argmin(axis=0)
    slopes = np.where(active, 0.0, rows.slopes[piece, 0])
    held = np.where(active, 0.0, rows.w)
    height = np.take_along_axis(rows.heights(lam), piece[None], axis=0)[0]
    part = FixedPart(design.adjoint(slopes), -float(held @ rows.prices[piece]), float(held @ height))
    return np.flatnonzero(active), piece, part
