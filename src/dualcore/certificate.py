"""Rigorous lower bounds on the optimal worst-case risk, from any dual point.

Fenchel duality row by row: for shares ``q`` of flipped mass and slopes ``a`` (staying) and ``a'`` (flipped),

    h_i(t, lam) >= -((1-q) a - q a') t - (1-q) L*(-a) - q L*(-a') - q gamma lam ,

so every choice bounds the optimum once the linear part is minimised over (theta, b, lam). A `DualPoint` holds such a
choice; `lower_bound` repairs it to feasibility and evaluates it on every row.
"""

from __future__ import annotations

from typing import NamedTuple

from dualcore.geometry import FloatArray

__all__ = ["DualPoint"]


class DualPoint(NamedTuple):
    """A dual choice per row.

    ``stay`` (n,): slope of the loss in ``t`` times the share that stays, ``(1-q) L'``: non-positive for margins, signed
    for residuals. ``flip`` (n,): ``-q L'`` at the flipped margin, non-negative. ``share`` (n,): ``q`` in [0, 1].
    ``flip`` and ``share`` are None where no row flips.
    """

    stay: FloatArray
    flip: FloatArray | None = None
    share: FloatArray | None = None
