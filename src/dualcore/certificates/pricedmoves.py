r"""Moves of rows that pay a quadratic price besides the transport cost: they change continuously with the model.

For a slope ``a`` of the loss and the sizes ``c`` of the coefficients

    G = max over 0 <= v <= cap of  a c.v - lam ||v|| - nu/2 ||v||_2^2 ,

``v`` in units in which every feature costs one. With linf

    v_j = min(cap_j, a c_j / nu, tau) ,

where ``tau`` solves ``sum over j with min(cap_j, a c_j / nu) > tau of (a c_j - nu tau) = lam``. Every ``v`` is the move
of an atom, whatever ``tau`` and ``nu`` are: errors here cost progress, never the validity of a bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray

__all__ = ["LinfMoves", "Response"]

# A level is looked for first within this share of the one before.
_NEAR = 0.05
# Levels at which walls are counted as met together, relatively: how fast a level changes with the model.
_TOGETHER = 0.1


class Response(NamedTuple):
    """Moves of some rows at their slopes.

    ``move`` (k, features), ``cost``, ``gain``: ``c.v``, ``square``: ``||v||_2^2``, ``level``: what the search begins
    with next time.
    """

    move: FloatArray
    cost: FloatArray
    gain: FloatArray
    square: FloatArray
    level: FloatArray


class LinfMoves:
    """Moves of the rows of a block towards one side: all features together, up to a level.

    Parameters
    ----------
    sizes : ndarray of shape (k,)
        Of the coefficients, per unit of cost; all positive.
    caps : ndarray of shape (n_rows, k)
        How far each feature may go, in units of cost.
    lam, nu : float
        Multiplier and quadratic price.
    """

    def __init__(self, sizes: FloatArray, caps: FloatArray, lam: float, nu: float) -> None:
        self.sizes, self.caps, self.lam, self.nu = sizes, caps, lam, nu
        #: the steepest that the score changes with the level
        self.open = (caps > 0.0).astype(np.float64) @ sizes

    def respond(self, slope: FloatArray, level: FloatArray | None = None, rows: Any = slice(None)) -> Response:
        """Return the best moves of some rows at slopes of the loss, from known levels on."""
        farthest = np.multiply.outer(slope / self.nu, self.sizes)
        np.minimum(farthest, self.caps[rows], out=farthest)
        tau = self._levels(farthest, slope, level)
        move = np.minimum(farthest, tau[:, None], out=farthest)
        return Response(move, move.max(axis=1, initial=0.0), move @ self.sizes, np.vecdot(move, move), tau)

    def _levels(self, farthest: FloatArray, slope: FloatArray, level: FloatArray | None) -> FloatArray:
        out = np.zeros(slope.size)
        pays = np.flatnonzero(slope * ((farthest > 0.0).astype(np.float64) @ self.sizes) > self.lam)
        if level is not None:
            known = pays[level[pays] > 0.0]
            if known.size:
                near = level[known]
                low, high = (1.0 - _NEAR) * near, (1.0 + _NEAR) * near
                out[known] = self._between(farthest[known], slope[known], low, high)
                pays = np.setdiff1d(pays, known[~np.isnan(out[known])], assume_unique=True)
        if pays.size:
            zero = np.zeros(pays.size)
            out[pays] = np.nan_to_num(self._between(farthest[pays], slope[pays], zero, zero + np.inf))
        return out

    def _between(self, farthest: FloatArray, slope: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the levels of rows between two limits; NaN where they are outside."""
        above, beyond = farthest > low[:, None], farthest > high[:, None]
        steep, count = slope * (beyond.astype(np.float64) @ self.sizes), beyond.sum(axis=1)
        inside = above & ~beyond
        row, column = np.nonzero(inside)
        each = inside.sum(axis=1)
        most = int(each.max(initial=1))
        place = np.arange(row.size) - np.repeat(np.cumsum(each) - each, each)
        wall, rate = np.full((slope.size, most), -np.inf), np.zeros((slope.size, most))
        wall[row, place] = farthest[row, column]
        rate[row, place] = slope[row] * self.sizes[column]
        order = np.argsort(-wall, axis=1)
        at = np.arange(slope.size)
        wall = np.take_along_axis(wall, order, 1)
        # Active features before each wall, from the highest down, and the equation at the wall with it.
        steep = np.column_stack([steep, steep[:, None] + np.cumsum(np.take_along_axis(rate, order, 1), axis=1)])
        number = count[:, None] + np.arange(most + 1)
        with np.errstate(invalid="ignore"):
            met = steep[:, 1:] - self.nu * np.where(np.isfinite(wall), wall, 0.0) * number[:, 1:] >= self.lam
        met &= np.isfinite(wall)
        first = np.where(met.any(axis=1), met.argmax(axis=1), each)
        least = np.column_stack([wall, np.full(slope.size, -np.inf)])[at, first]
        active = number[at, first]
        tau = np.divide(steep[at, first] - self.lam, self.nu * active, out=np.zeros(slope.size), where=active > 0)
        tau = np.maximum(tau, least)
        return np.where((tau >= low) & (tau <= high) & (tau > 0.0), tau, np.nan)

    def free(
        self, slope: FloatArray, found: Response, rows: Any = slice(None)
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``D``, ``F`` and ``rho`` of ``dv_j = a D_j dc_j + F_j rho (a F.dc - dlam)``, how moves follow a model.

        ``D`` and the indicators ``F`` have the shape (k, features), ``rho`` (k,).
        """
        caps, tau = self.caps[rows], found.cost[:, None]
        own = np.multiply.outer(slope / self.nu, self.sizes)
        single = (own < caps) & (own < tau)
        together = (caps > tau * (1.0 + 1e-12)) & (own > tau)
        # Walls met around the level slow it down; it stops at each of them, which a step of Newton's must not see.
        near = (np.abs(caps - tau) <= _TOGETHER * tau) & (own > tau)
        slowed = slope * (near.astype(np.float64) @ self.sizes) / (2.0 * _TOGETHER * np.maximum(found.cost, 1e-300))
        stiff = self.nu * together.sum(axis=1) + slowed
        rho = np.divide(1.0, stiff, out=np.zeros(slope.size), where=(found.cost > 0.0) & (stiff > 0.0))
        return single / self.nu, together.astype(np.float64), rho
