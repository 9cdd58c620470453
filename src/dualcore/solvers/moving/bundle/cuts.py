"""Cuts below the shares of groups of rows: planes, or the losses of rows after moves that are held fixed.

A move that is best at one model is a move at every other, so ``L(t of the moved row) - lam * cost`` lies below ``h``
everywhere. Where every row is a group of its own these curves are kept as they are; they say at once what many tangents
of a curved loss would have to learn. The sum over a larger group is kept as the sum of its rows' tangents, a plane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses import Loss

__all__ = ["CurveStore", "MovedRows", "PlaneStore", "Tangents", "tangents"]


class MovedRows(NamedTuple):
    """Rows after their best moves, in centred coordinates.

    Attributes
    ----------
    gradient : ndarray of shape (n_rows, d - 1)
        Of the signal, in coefficients and level.
    offset : ndarray of shape (n_rows,)
        Signal where coefficients and level are zero: minus the target, in regression.
    signal : ndarray of shape (n_rows,)
        At the model of the moves; a tangent there lies below the loss, whatever rounding did to it.
    cost : ndarray of shape (n_rows,)
        Of the move, label included.
    share : ndarray of shape (n_rows,)
        The largest moved feature, in units of the region.
    """

    gradient: FloatArray
    offset: FloatArray
    signal: FloatArray
    cost: FloatArray
    share: FloatArray


class Tangents(NamedTuple):
    """Planes ``rows @ x + offsets``, and the sizes of what was added up for each: four columns, see `Bundle.bound`."""

    rows: FloatArray
    offsets: FloatArray
    sizes: FloatArray


def tangents(loss: Loss, rows: MovedRows) -> Tangents:
    """Return the tangent of every row's loss at its signal, less the multiplier times the cost of the move."""
    value, slope = loss.value_and_slope(rows.signal)
    offsets = value - slope * rows.signal + slope * rows.offset
    steep = np.abs(slope)
    size = np.abs(value) + steep * (np.abs(rows.signal) + np.abs(rows.offset))
    planes = np.column_stack([rows.gradient * slope[:, None], -rows.cost])
    return Tangents(planes, offsets, np.column_stack([size, steep * rows.share, steep, rows.cost]))


class PlaneStore:
    """Planes ``rows @ x + offsets`` below the shares of groups.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    offsets : ndarray of shape (n,)
    owner : ndarray of shape (n,)
    n_groups : int
    sizes : ndarray of shape (n, 4), optional
    """

    is_linear = True

    def __init__(
        self,
        rows: FloatArray,
        offsets: FloatArray,
        owner: npt.NDArray[np.intp],
        n_groups: int,
        sizes: FloatArray | None = None,
    ) -> None:
        self.rows, self.offsets, self.owner, self.n_groups = rows, offsets, owner, n_groups
        self.sizes = np.zeros((offsets.size, 4)) if sizes is None else sizes

    def __len__(self) -> int:
        return self.owner.size

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Drop all others."""
        self.rows, self.offsets, self.sizes = self.rows[which], self.offsets[which], self.sizes[which]
        self.owner = self.owner[which]

    def add(self, found: Tangents, owner: npt.NDArray[np.intp]) -> None:
        """Add one plane for each of the groups ``owner``."""
        self.rows, self.offsets = np.vstack([self.rows, found.rows]), np.append(self.offsets, found.offsets)
        self.sizes, self.owner = np.vstack([self.sizes, found.sizes]), np.append(self.owner, owner)

    def tangents(self, x: FloatArray) -> Tangents:
        """Return a plane below every cut that meets it at ``x``."""
        return Tangents(self.rows, self.offsets, self.sizes)

    def heights(self, x: FloatArray) -> FloatArray:
        """Return the values of all cuts."""
        return np.asarray(self.rows @ x + self.offsets)

    def near(self, x: FloatArray, free: npt.NDArray[np.intp]) -> PlaneStore:
        """Return the cuts as functions of the variables ``free``, the others held at ``x``."""
        offsets = self.offsets
        if free.size < x.size:
            fixed = np.setdiff1d(np.arange(x.size), free)
            offsets = offsets + self.rows[:, fixed] @ x[fixed]
        return PlaneStore(self.rows[:, free], offsets, self.owner, self.n_groups, self.sizes)

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients."""
        return self.heights(x), self.rows

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return None: they have none."""
        return None


class CurveStore:
    """Curves ``mass * (L(gradient . x + offset) - lam * cost) + base`` below the shares of rows.

    Parameters
    ----------
    loss : Loss
    gradients : ndarray of shape (n, d)
        Of the signals; nothing in the column of the multiplier.
    offsets, costs, masses, shares : ndarrays of shape (n,)
        ``costs`` and ``shares`` as in `MovedRows`.
    owner : ndarray of shape (n,)
    n_groups : int
    unit : float, default=1.0
        By which the multiplier is multiplied to be a variable.
    base : ndarray of shape (n,), optional
        What a multiplier that is held adds.
    multiplier : int or None, default=-1
        The column of the multiplier; None where it is held.
    """

    is_linear = False

    def __init__(
        self,
        loss: Loss,
        gradients: FloatArray,
        offsets: FloatArray,
        costs: FloatArray,
        masses: FloatArray,
        shares: FloatArray,
        owner: npt.NDArray[np.intp],
        n_groups: int,
        *,
        unit: float = 1.0,
        base: FloatArray | None = None,
        multiplier: int | None = -1,
    ) -> None:
        self.loss, self.gradients, self.offsets, self.costs = loss, gradients, offsets, costs
        self.masses, self.shares, self.owner, self.n_groups = masses, shares, owner, n_groups
        self.unit = unit
        self.base, self.multiplier = np.zeros(offsets.size) if base is None else base, multiplier

    def __len__(self) -> int:
        return self.owner.size

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Drop all others."""
        self.gradients, self.offsets, self.costs = self.gradients[which], self.offsets[which], self.costs[which]
        self.masses, self.shares, self.owner = self.masses[which], self.shares[which], self.owner[which]
        self.base = self.base[which]

    def add(self, rows: MovedRows, masses: FloatArray, scale: FloatArray, owner: npt.NDArray[np.intp]) -> None:
        """Add a curve for each of the rows ``owner``, in variables multiplied by ``scale``."""
        gradients = np.column_stack([rows.gradient / scale[:-1], np.zeros(owner.size)])
        self.gradients, self.offsets = np.vstack([self.gradients, gradients]), np.append(self.offsets, rows.offset)
        self.costs, self.masses = np.append(self.costs, rows.cost), np.append(self.masses, masses)
        self.shares, self.owner = np.append(self.shares, rows.share), np.append(self.owner, owner)
        self.base = np.append(self.base, np.zeros(owner.size))

    def _signals(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.gradients @ x + self.offsets)

    def tangents(self, x: FloatArray) -> Tangents:
        """Return a plane below every cut that meets it at ``x``."""
        rows = MovedRows(self.gradients[:, :-1], self.offsets, self._signals(x), self.costs, self.shares)
        found = tangents(self.loss, rows)
        found.rows[:, -1] /= self.unit
        mass = self.masses[:, None]
        return Tangents(mass * found.rows, self.masses * found.offsets, mass * found.sizes)

    def heights(self, x: FloatArray) -> FloatArray:
        """Return the values of all cuts."""
        paid = 0.0 if self.multiplier is None else x[self.multiplier] / self.unit * self.costs
        return np.asarray(self.masses * (self.loss.value(self._signals(x)) - paid) + self.base)

    def near(self, x: FloatArray, free: npt.NDArray[np.intp]) -> CurveStore:
        """Return the cuts as functions of the variables ``free``, the others held at ``x``."""
        fixed = np.setdiff1d(np.arange(x.size), free)
        held = x.size - 1 in fixed
        return CurveStore(
            self.loss,
            self.gradients[:, free],
            self.offsets + self.gradients[:, fixed] @ x[fixed],
            self.costs,
            self.masses,
            self.shares,
            self.owner,
            self.n_groups,
            unit=self.unit,
            base=-self.masses * self.costs * (x[-1] / self.unit) if held else None,
            multiplier=None if held else -1,
        )

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients."""
        value, slope = self.loss.value_and_slope(self._signals(x))
        gradients = self.gradients * (self.masses * slope)[:, None]
        height = self.masses * value + self.base
        if self.multiplier is not None:
            paid = self.masses * self.costs / self.unit
            gradients[:, self.multiplier] -= paid
            height -= paid * x[self.multiplier]
        return height, gradients

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return the Hessian of their sum, each times its multiplier."""
        weights = multipliers * self.masses * self.loss.curvature(self._signals(x))
        root = self.gradients * np.sqrt(weights)[:, None]
        return np.asarray(root.T @ root)
