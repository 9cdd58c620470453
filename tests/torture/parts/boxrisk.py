"""The worst-case risk inside limits, by enumeration: every way a row can go is a list of (cost, loss) pairs.

Along a way the score rises or falls. With prices divided out, ``u_j = |theta_j|`` is what feature ``j`` yields for a
unit of cost and ``cap_j`` how far it can go. The cheapest moves are: l1, feature after feature, largest ``u`` first;
linf, all features together, each to its limit; l2, feature ``j`` by ``min(cap_j, mu u_j)`` for ``mu >= 0``. A convex
loss less a linear cost is largest at a corner of the first two; for l2 the corners and a few points between them are
looked at first, then `best_keys` finds the best place of all. All sums are in the type of their arguments, long double
in the referee.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .boxpeaks import Road, best_keys, slopes
from .cases import Case
from .exact import Long
from .referees import Point, Referee
from .risks import LOSSES, dual_norm, lines, lipschitz

_BETWEEN = 7
_FAR = 1e7
_ROUNDS = 60
_TINY = 1e-250
_ROUNDING = 8 * np.finfo(Long).eps


class Corners(NamedTuple):
    """Gains in the score and costs of candidate moves, one line a row; for l2 also where they lie on the path."""

    gain: Any
    cost: Any
    key: Any


def corners(norm: str, u: Any, cap: Any) -> Corners:
    """Return candidate moves of every row; ``cap`` has one line a row, an infinite entry has no limit."""
    n = cap.shape[0]
    zero = np.zeros((n, 1), dtype=cap.dtype)
    used = u > 0
    u, cap = u[used], cap[:, used]
    if norm == "l1":
        order = np.argsort(-u, kind="stable")
        u, cap = u[order], cap[:, order]
        # Beyond an open side nothing else is reached: all cost goes where a unit yields most.
        reached = np.cumsum(np.isinf(cap), axis=1) == 0
        cap = np.where(reached, cap, 0)
        return Corners(np.hstack([zero, np.cumsum(cap * u, axis=1)]), np.hstack([zero, np.cumsum(cap, axis=1)]), None)
    ends = cap if norm == "linf" else cap / u
    ends = np.where(np.isfinite(ends), ends, 0)
    keys = np.hstack([zero, np.sort(ends, axis=1)])
    if norm == "linf":
        gain = sum((np.minimum(keys, cap[:, j : j + 1]) * u[j] for j in range(u.size)), start=np.zeros_like(keys))
        return Corners(gain, keys, keys)
    steps = np.arange(_BETWEEN, dtype=cap.dtype) / _BETWEEN
    parts = [keys[:, :-1, None] + (keys[:, 1:] - keys[:, :-1])[:, :, None] * steps]
    fine = np.hstack([parts[0].reshape(n, -1), keys[:, -1:]])
    if u.size and np.isinf(cap).any():
        unit = np.where(keys[:, -1:] > 0, keys[:, -1:], 1)
        fine = np.hstack([fine, keys[:, -1:] + unit * 10.0 ** np.linspace(-3, np.log10(_FAR), 120).astype(cap.dtype)])
    return Corners(*along(u, cap, fine), fine)


def along(u: Any, cap: Any, key: Any) -> tuple[Any, Any]:
    """Return gain and cost of the l2 path at ``mu = key``, one line a row."""
    gain, square = np.zeros_like(key), np.zeros_like(key)
    for j in np.flatnonzero(u > 0):
        v = np.minimum(cap[:, j : j + 1], key * u[j])
        gain += u[j] * v
        square += v * v
    return gain, np.sqrt(square)


class Way(NamedTuple):
    """One way to go: where the signal starts, its direction, the features' yields and room, the price of the label."""

    start: Any
    side: float
    u: Any
    cap: Any
    price: Any


class BoxReferee(Referee):
    """Limits: rows enter with the room they have."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        if case.support is None:
            raise ValueError("a case on a box has a support")
        low, high = (np.asarray(side).astype(Long) - self.centre.astype(Long) for side in case.support)
        # A row a rounding error outside its limits stays where it is.
        self.up, self.down = np.maximum(high - self.rows, 0), np.maximum(self.rows - low, 0)
        self.open_up, self.open_down = np.isinf(case.support[1]), np.isinf(case.support[0])

    def loss(self, t: Any) -> Any:
        return LOSSES[self.case.loss](t, **self.case.parameters)

    def rates(self) -> tuple[Any, Any]:
        """Return the steepest slope of the loss as the score rises, and as it falls, in the worst of the labels."""
        slopes = [slope for slope, _ in lines(self.case.loss, self.case.parameters)]
        up, down = Long(max(slopes)), Long(-min(slopes))
        return (max(up, down), max(up, down)) if self.case.is_classification else (up, down)

    def kappa(self, theta: Any) -> Any:
        """Return the least multiplier at which no row can gain without end."""
        case = self.case
        up = np.where(theta > 0, self.open_up, self.open_down)
        down = np.where(theta > 0, self.open_down, self.open_up)
        sizes = [dual_norm(case.norm, case.prices, np.where(side, theta, 0)) for side in (up, down)]
        runs = [rate * size for rate, size in zip(self.rates(), sizes, strict=True)]
        floor = 0.0 if case.is_classification else lipschitz(case.loss, case.parameters) * 2.0 / case.label_cost
        return max(*runs, Long(floor))

    def ways(self, point: Point) -> list[tuple[Any, Way]]:
        """Return the ways with the rows (as a mask) that can go each."""
        case, theta = self.case, point.theta
        prices = np.ones(theta.size, dtype=Long) if case.prices is None else case.prices.astype(Long)
        movable = np.isfinite(prices)
        u = np.where(movable, np.abs(theta) / prices, 0)
        u = np.where(u > _TINY, u, 0)  # yields nothing, and limits divided by it overflow
        stretch = np.where(movable, prices, 0)

        def room(push: float, rows: Any) -> Any:
            rising = (theta * push) > 0
            cap = np.where(rising, self.up[rows], self.down[rows])
            return np.where(movable, cap, 0) * np.where(movable, stretch, 1)

        found = []
        if not case.is_classification:
            everywhere = np.ones(self.w.size, dtype=bool)
            start = point.score - self.target
            return [(everywhere, Way(start, push, u, room(push, everywhere), Long(0))) for push in (1.0, -1.0)]
        for label in (-1.0, 1.0):
            rows = self.y == label
            if not rows.any():
                continue
            z = label * point.score[rows]
            found.append((rows, Way(z, -1.0, u, room(-label, rows), Long(0))))
            if np.isfinite(case.label_cost):
                found.append((rows, Way(-z, -1.0, u, room(label, rows), Long(case.label_cost))))
        return found

    def risk(self, point: Point, radius: float | None = None) -> Any:
        case = self.case
        sigma = Long(case.radius if radius is None else radius)
        ridge = self.ridge(point.theta)
        with np.errstate(all="ignore"):
            ways = self.ways(point)
            if sigma == 0:
                stays = [(rows, way) for rows, way in ways if way.price == 0]
                total = sum((self.w[rows] * self.loss(way.start)).sum() for rows, way in stays)
                return (total if case.is_classification else total / 2) + ridge
            kappa = self.kappa(point.theta)
            table = Table(self, ways)
            lam, value = table.minimise(sigma, kappa)
            if case.norm == "l2":  # candidates bound the risk from below; with the best moves at lam, from above
                above = Long(np.inf)
                for _ in range(_ROUNDS):
                    table.refine(lam)
                    above = min(above, sigma * lam + (self.w * table.h(lam)[0]).sum())
                    lam, value = table.minimise(sigma, kappa)
                    if above - value <= 1e-15 * abs(above):
                        break
                value = above
            return value + ridge


class Table:
    """Costs and losses of all candidate moves of all rows, and the minimum over the multiplier."""

    def __init__(self, referee: BoxReferee, ways: list[tuple[Any, Way]]) -> None:
        self.referee, self.ways = referee, ways
        self.found = [corners(referee.case.norm, way.u, way.cap) for _, way in ways]
        self.losses = [
            referee.loss(way.start[:, None] + way.side * found.gain)
            for (_, way), found in zip(ways, self.found, strict=True)
        ]

    def h(self, lam: Any) -> tuple[Any, Any]:
        """Return the best of all candidates of every row, and its cost."""
        best = np.full(self.referee.w.size, -np.inf, dtype=Long)
        cost = np.zeros(self.referee.w.size, dtype=Long)
        for (rows, way), found, losses in zip(self.ways, self.found, self.losses, strict=True):
            paid = found.cost + way.price
            # A move far out earns and pays far more than is left of it: what rounding can add to the rest is no gain.
            values = losses - lam * paid - _ROUNDING * (np.abs(losses) + lam * paid)
            place = values.argmax(axis=1)[:, None]
            top, spent = np.take_along_axis(values, place, 1)[:, 0], np.take_along_axis(paid, place, 1)[:, 0]
            if self.referee.case.norm == "l2":
                far, distance = self._far(way, lam)
                spent = np.where(far > top, distance + way.price, spent)
                top = np.maximum(top, far)
            better = top > best[rows]
            best[rows] = np.where(better, top, best[rows])
            cost[rows] = np.where(better, spent, cost[rows])
        return best, cost

    def _far(self, way: Way, lam: Any) -> tuple[Any, Any]:
        """Return what a row earns beyond its last limit, on the line that the loss approaches, and what that costs.

        With ``Q`` the squares of the yields without a limit, ``T`` those of the room with one: best is
        ``mu^2 = T rate^2 / (lam^2 - rate^2 Q)``. Where every unit costs what it earns, that is in the limit.
        """
        used = way.u > 0
        nothing = np.full(way.start.size, -np.inf, dtype=Long)
        endless = np.isinf(way.cap[:, used])
        if not endless.any():
            return nothing, nothing
        u, cap = way.u[used], np.where(endless, 0, way.cap[:, used])
        case, (up, down) = self.referee.case, self.referee.rates()
        rate = up if way.side > 0 else down
        room = lam * lam - rate * rate * (np.where(endless, u, 0) ** 2).sum(axis=1)
        T, held, last = (cap * cap).sum(axis=1), (cap * u).sum(axis=1), (cap / u).max(axis=1)
        key = np.where(room > 0, np.sqrt(T / room) * rate, Long(np.inf))
        slope, constant = (max if way.side > 0 else min)(lines(case.loss, case.parameters))
        worth = slope * (way.start + way.side * held) + constant - np.sqrt(T * np.maximum(room, 0)) - lam * way.price
        reached = endless.any(axis=1) & (key >= last)
        return np.where(reached, worth, nothing), lam * key / rate

    def minimise(self, sigma: Any, kappa: Any) -> tuple[Any, Any]:
        """Return the best multiplier and the objective there: tangents from both sides, halving in between."""
        w = self.referee.w

        def at(lam: Any) -> tuple[Any, Any]:
            values, cost = self.h(lam)
            return sigma * lam + (w * values).sum(), sigma - (w * cost).sum()

        low = kappa
        value, slope = at(low)
        best = (value, low)
        if slope >= 0:
            return low, value
        high = max(2 * kappa, Long(1e-6))
        while True:
            top, rise = at(high)
            best = min(best, (top, high))
            if rise >= 0 or high > 1e40:
                break
            low, value, slope, high = high, top, rise, 4 * high
        for count in range(200):
            if rise == slope:
                break
            meet = low + (top - value - rise * (high - low)) / (slope - rise)
            floor = value + slope * (meet - low)
            trial = meet if count % 3 < 2 and low < meet < high else (low + high) / 2
            if best[0] - floor <= 1e-18 * abs(best[0]) or not low < trial < high:
                break
            there, derivative = at(trial)
            best = min(best, (there, trial))
            if derivative < 0:
                low, value, slope = trial, there, derivative
            else:
                high, top, rise = trial, there, derivative
        return best[1], best[0]

    def refine(self, lam: Any) -> None:
        """Add to every row of every way its best move (l2)."""
        for number, ((_, way), found) in enumerate(zip(self.ways, self.found, strict=True)):
            key = np.sort(found.key.astype(np.float64), axis=1)
            new = best_keys(self._road(way), key, float(lam))[:, None].astype(Long)
            gain, cost = along(way.u, way.cap, new)
            self.found[number] = Corners(
                np.hstack([found.gain, gain]), np.hstack([found.cost, cost]), np.hstack([found.key, new])
            )
            losses = self.referee.loss(way.start[:, None] + way.side * gain)
            self.losses[number] = np.hstack([self.losses[number], losses])

    def _road(self, way: Way) -> Road:
        """Return a way in float64: near a peak half of the digits are enough."""
        case, used = self.referee.case, way.u > 0
        u, cap, start = (each.astype(np.float64) for each in (way.u[used], way.cap[:, used], way.start))
        return Road(start, way.side, u, cap, self.referee.loss, partial(slopes, case.loss, **case.parameters))
