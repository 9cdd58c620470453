"""How far the score of a row can be moved inside a box, and at what cost: one path for each feature norm.

Write ``u_j = |theta_j|`` and let ``cap_j`` be the capacity of feature ``j``, its distance to the limit towards which it
pushes the score as wanted. The cheapest way to move the score by ``s`` costs

    phi(s) = min { ||v|| : u . v = s, 0 <= v <= cap } ,

convex, and the moves that attain it form a path: with l1 the features fill up one after the other, steepest first;
with linf all move together until each meets its limit; with l2 feature ``j`` moves by ``min(cap_j, mu u_j)``. On such
a path

    sup_s L(t + d s) - lam phi(s)

is a maximum over the corners of ``phi`` where it is piecewise linear (l1, linf), a closed form for each linear piece of
``L``, and otherwise enclosed by branch and bound (l2). Everything works on a block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.families.boxl2 import TOLERANCE, L2Path
from dualcore.problem.families.boxpath import (
    Best,
    Path,
    Places,
    Side,
    WalledPath,
    count_before,
    rising_rates,
    running_sums,
)
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.problem.losses import Loss

__all__ = ["TOLERANCE", "Best", "L2Path", "Path", "best_corner", "get_path"]


def best_corner(
    loss: Loss, start: FloatArray, side: Side, multiplier: float, gain: FloatArray, cost: FloatArray
) -> Best:
    """Choose among corners; of equal ones the cheapest, which stands first."""
    value = loss.value(start[:, None] + (side if isinstance(side, float) else side[:, None]) * gain)
    value -= multiplier * cost
    upper = value.max(axis=1)
    rows = np.arange(start.size)
    # A tie that rounding breaks would move a row for nothing.
    at = (value >= (upper - 1e-15 * np.abs(upper))[:, None]).argmax(axis=1)
    return Best(value[rows, at], upper, gain[rows, at], cost[rows, at], at.astype(np.float64))


def _best_of(
    places: list[tuple[FloatArray, FloatArray, FloatArray]],
    value: Callable[[FloatArray], FloatArray],
    multiplier: float,
) -> Best:
    """Choose among a few places ``(gain, cost, key)`` of every row, no move first; of equal ones the first."""
    found: Best | None = None
    for gain, cost, key in places:
        earned = value(gain)
        earned -= multiplier * cost
        new = Best(earned, earned, gain, cost, key)
        if found is None:
            found = new
            continue
        better = earned > found.lower + 1e-15 * np.abs(found.lower)
        upper = np.maximum(found.upper, earned)
        found = Best(*(np.where(better, a, b) for a, b in zip(new, found, strict=True)))._replace(upper=upper)
    if found is None:
        raise RuntimeError("a row can always stay")
    return found


class L1Path(Path):
    """Features fill up one after the other, steepest first: the same order for every row."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.order = np.argsort(-slopes, kind="stable")
        self.is_ordered = bool((slopes[1:] <= slopes[:-1]).all())

    def best(
        self, loss: Loss, start: FloatArray, side: Side, multiplier: float, enough: FloatArray | None = None
    ) -> Best:
        # The first features that a slope of the loss pays for; no later corner is better.
        steep = self.slopes[self.order]
        rates = [loss.lipschitz] if loss.pieces is None else rising_rates(loss, side)
        counts = [int((rate * steep > multiplier).sum()) for rate in rates]
        most = max(counts, default=0)
        room = self.caps[:, :most] if self.is_ordered else self.caps[:, self.order[:most]]
        if not np.isfinite(room).all():
            room = np.where(np.isfinite(room), room, 0.0)
        if loss.pieces is None:
            gain, cost = running_sums(room * steep[:most]), running_sums(room)
            return best_corner(loss, start, side, multiplier, gain, cost)
        zero = np.zeros(start.size)
        places = [(zero, zero, zero)]
        for count in sorted(set(counts) - {0}):
            part = room[:, :count]
            places.append((part @ steep[:count], part.sum(axis=1), np.full(start.size, float(count))))
        return _best_of(places, lambda gain: loss.value(start + side * gain), multiplier)


class LinfPath(WalledPath):
    """All features move together until each meets its limit; ``key`` is how far."""

    def __init__(self, slopes: FloatArray, caps: FloatArray) -> None:
        super().__init__(slopes, caps)
        self.length = float(slopes.sum())

    def _order(self, caps: FloatArray, slopes: FloatArray) -> None:
        n, m = caps.shape
        if not np.isfinite(caps).all():
            caps = np.minimum(caps, np.where(np.isfinite(caps), caps, 0.0).max(axis=1, initial=0.0)[:, None])
        order = np.argsort(caps, axis=1)
        steep, walls = slopes[order], np.take_along_axis(caps, order, axis=1)
        # After k limits: how far, what the features that met one gained, and the slope of the others.
        self.met = np.zeros((n, m + 1))
        self.met[:, 1:] = walls
        self.gained = running_sums(walls * steep)
        self.free = np.ascontiguousarray(running_sums(steep[:, ::-1])[:, ::-1])

    def _corner(self, at: Places, k: Places) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return gain, cost and key where the k-th limit is met."""
        far = self.met[at, k]
        return self.gained[at, k] + far * self.free[at, k], far, far

    def _search(self, loss: Loss, at: Places, start: FloatArray, side: Side, multiplier: float) -> Best:
        def walls(rate: float) -> Places:
            return count_before(self.free, 0, self.free.shape[1], at, multiplier / rate, falls=True)

        if loss.pieces is not None:
            zero = np.zeros(at.size)
            places = [(zero, zero, zero), *(self._corner(at, walls(rate)) for rate in rising_rates(loss, side))]
            return _best_of(places, lambda gain: loss.value(start + side * gain), multiplier)
        # A corner that the steepest slope does not pay for is never the best.
        most = int(walls(loss.lipschitz).max(initial=0)) + 1
        cost = self.met[at, :most]
        gain = cost * self.free[at, :most] + self.gained[at, :most]
        found = best_corner(loss, start, side, multiplier, gain, cost)
        return found._replace(key=found.cost)


_PATHS: dict[type[Norm], Callable[[FloatArray, FloatArray], Path]] = {
    L1Norm: L1Path,
    L2Norm: L2Path,
    LinfNorm: LinfPath,
}


def get_path(norm: Norm, slopes: FloatArray, caps: FloatArray) -> Path:
    """Return the path of the cheapest moves in this norm."""
    if type(norm) not in _PATHS:
        known = sorted(cls.__name__ for cls in _PATHS)
        raise TypeError(f"A support needs one of the norms {known}, not {type(norm).__name__}.")
    return _PATHS[type(norm)](slopes, caps)
