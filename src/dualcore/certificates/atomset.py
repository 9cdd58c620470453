"""Rows and the places they were moved to, as a convex programme whose constraints are these *atoms*.

Every place to which a row may be moved, an atom ``a`` with cost ``c_a``, bounds its dual loss from below, for all
models: ``h_i >= L(t_a) - lam c_a``. Groups of categories that changed are written by their extremes (`Extremes`), so
that an atom stands for all categories that the group may have been changed to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates.extremes import Extremes
from dualcore.certificates.onehot import OneHotRows
from dualcore.certificates.plane import Plane, PlaneBound
from dualcore.certificates.psd import solve_damped
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.families.categories import CategoriesFamily
from dualcore.problem.geometry import L1Norm, L2Norm

__all__ = ["AtomSet", "Heights", "Limits"]

# Rows whose atom with all groups changed is known from the beginning.
_FIRST_ROWS = 200
# Times that slopes are moved towards balance.
_REPAIRS = 3


class Heights(NamedTuple):
    """Of every atom at a point: ``L(t_a) - lam c_a``, its slope in the score, and the curvature of the loss."""

    value: FloatArray
    slope: FloatArray
    bent: FloatArray


class Limits(NamedTuple):
    """What must not be negative at a point, its Jacobian, and the Hessian of the last one where that is curved."""

    room: FloatArray
    jacobian: sp.csr_array
    bent: FloatArray | None


class AtomSet:
    """Rows, the atoms they were moved to, and what limits a point.

    A point holds coefficients, extremes, intercept and multiplier. Atoms ``0 .. n - 1`` are the rows themselves.

    Parameters
    ----------
    problem : Problem
    family : BoxFamily
    data : Data
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.n, self.m = data.rows.n, data.rows.m
        self.w = data.masses
        self.extremes = Extremes(family, self.m)
        self.width = self.extremes.width
        groups = family.columns if isinstance(family, CategoriesFamily) else []
        # Sums over all rows, three or more a step, are those of their categories where that is cheaper.
        self.rows = OneHotRows(data.rows, groups) if OneHotRows.pays(groups) else data.rows
        self.X = np.empty((0, self.width))
        self.moved = np.empty(0, dtype=np.intp)
        self.labels, self.costs = data.y.copy(), np.zeros(self.n)
        self.below = PlaneBound(problem, family, data)
        self.open = np.flatnonzero(self.below.open)
        self.rates = problem.loss.lipschitz / family.prices(self.m)[self.open]
        pinned = family.pinned(self.m, fit_intercept=problem.fit_intercept)
        self.free_coef = ~pinned | (problem.ridge > 0.0)
        self.used: npt.NDArray[np.bool_] = np.zeros(self.width - self.m, dtype=bool)
        self._add_far()
        self._limit()

    @property
    def owner(self) -> npt.NDArray[np.intp]:
        """Row of every atom."""
        return np.concatenate([np.arange(self.n), self.moved])

    @property
    def free(self) -> npt.NDArray[np.bool_]:
        """Which entries of a point can change."""
        return np.concatenate([self.free_coef, self.used, [self.problem.fit_intercept, True]])

    # Atoms

    def _add(self, X: FloatArray, owner: npt.NDArray[np.intp], label: FloatArray, cost: FloatArray) -> None:
        self.X = np.vstack([self.X, X])
        self.moved = np.concatenate([self.moved, owner])
        self.labels = np.concatenate([self.labels, label])
        self.costs = np.concatenate([self.costs, cost])

    def _add_far(self) -> None:
        """Add atoms with all groups changed: without any the programme may have no optimum, as of separable rows."""
        rows = np.unique(np.linspace(0, self.n - 1, min(self.n, _FIRST_ROWS)).astype(np.intp))
        own = self.dense(rows)
        y, cost = self.data.y[rows], np.full(rows.size, self.extremes.price)
        sides = [y < 0.0] if self.problem.is_classification else [np.full(rows.size, up) for up in (False, True)]
        for up in sides:
            self._add(self.extremes.all_changed(own, up), rows, y, cost)

    def dense(self, rows: npt.NDArray[np.intp]) -> FloatArray:
        """Return a few rows as an array."""
        own = self.data.rows.take(rows)
        return np.asarray(own.toarray() if hasattr(own, "toarray") else own, dtype=np.float64)

    def look(self, x: FloatArray, known: FloatArray, least: float) -> float:
        """Return the objective at a point, and add the atoms that are higher than ``known`` by more than ``least``."""
        coef, intercept, multiplier = x[: self.m], float(x[-2]), float(x[-1])
        total, new = 0.0, []
        for part, X in self.data.rows.dense_blocks():
            y = self.data.y[part]
            moves = self.family.moves(X, y, coef, intercept, multiplier)
            total += float(self.w[part] @ moves.upper)
            moved = (moves.cost > 0.0) & (self.w[part] > 0.0)  # an unmoved row is known, but for rounding
            better = np.flatnonzero((moves.lower > known[part] + least) & moved)
            if better.size:
                led = self.family.moves(X[better], y[better], coef, intercept, multiplier, points=True)
                price = led.cost - led.travel
                cost = price + self.family.lengths(led.X - X[better])  # of where the move led
                new.append((self.extremes.lift(X[better], led.X, coef), better + part.start, led.label, cost))
        for atoms in new:
            self._add(*atoms)
        return self.problem.radius * multiplier + total + self.problem.penalty(coef)

    def forget(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop atoms; rows themselves stay."""
        kept = keep[self.n :]
        self.X, self.moved = self.X[kept], self.moved[kept]
        self.labels, self.costs = self.labels[keep], self.costs[keep]

    def heights(self, x: FloatArray) -> Heights:
        """Return the heights of all atoms, their slopes in the score, and their curvatures."""
        score = self.along(x[:-1])
        signed = self.problem.is_classification
        t = score * self.labels if signed else score - self.labels
        value, slope = self.problem.loss.value_and_slope(t)
        return Heights(
            value - x[-1] * self.costs, slope * self.labels if signed else slope, self.problem.loss.curvature(t)
        )

    def highest(self, values: FloatArray) -> FloatArray:
        """Return the largest value of a row's atoms."""
        out = values[: self.n].copy()
        np.maximum.at(out, self.moved, values[self.n :])
        return out

    def total(self, values: FloatArray) -> FloatArray:
        """Return the sum over a row's atoms."""
        return values[: self.n] + np.bincount(self.moved, values[self.n :], self.n)

    # Sums over atoms

    def along(self, direction: FloatArray, X: FloatArray | None = None) -> FloatArray:
        """Return ``(x_a, 1) . direction`` of every atom."""
        X = self.X if X is None else X
        along = np.concatenate([self.rows.dot(direction[: self.m]), X @ direction[:-1]])
        return np.asarray(along + direction[-1])

    def moment(self, slope: FloatArray, X: FloatArray | None = None) -> FloatArray:
        """Return ``sum_a slope_a (x_a, 1)``."""
        along = slope[self.n :] @ (self.X if X is None else X)
        along[: self.m] += self.rows.transpose_dot(slope[: self.n])
        return np.append(along, slope.sum())

    def gram(self, weight: FloatArray, X: FloatArray | None = None) -> FloatArray:
        """Return ``sum_a weight_a (x_a, 1) (x_a, 1)'``."""
        X = self.X if X is None else X
        out = np.empty((X.shape[1] + 1, X.shape[1] + 1))
        out[:-1, :-1] = (X * weight[self.n :, None]).T @ X
        out[: self.m, : self.m] += self.rows.gram(weight[: self.n])
        out[-1] = out[:, -1] = self.moment(weight, X)
        return out

    # What limits a point

    def settled(self, x: FloatArray) -> FloatArray:
        """Return a point whose extremes are on their sides of the coefficients; those in no atom follow them."""
        self.used = np.asarray(self.X[:, self.m :].any(axis=0))
        self._limit()
        return np.append(self.extremes.settle(x[:-2], self.used), x[-2:])

    def _limit(self) -> None:
        """Write the linear limits: of the multiplier, and of the extremes that are in an atom."""
        at, size = self.open, self.width + 2
        limits = [sp.csr_array(([1.0], ([0], [size - 1])), shape=(1, size))]
        if at.size and isinstance(self.problem.geometry.norm, L1Norm):
            number = np.arange(at.size)
            place = np.tile(number, 2), np.concatenate([at, np.full(at.size, size - 1)])
            for side in (1.0, -1.0):
                entries = np.concatenate([side * self.rates, np.ones(at.size)])
                limits.append(sp.csr_array((entries, place), shape=(at.size, size)))
        self.n_numeric = sum(limit.shape[0] for limit in limits)
        order = self.extremes.order[self.used[self.extremes.of - self.m]]
        limits.append(sp.hstack([order, sp.csr_array((order.shape[0], 2))]))
        self.linear = sp.csr_array(sp.vstack(limits))

    def limits(self, x: FloatArray, soft: float) -> Limits:
        """Return what must not be negative; ``soft`` rounds the corners of a norm."""
        room = self.linear @ x
        room[0] -= self.family.floor()
        at, norm = self.open, self.problem.geometry.norm
        if not at.size or isinstance(norm, L1Norm):
            return Limits(room, self.linear, None)
        part = self.rates * x[at]
        gradient, bent = np.zeros(x.size), np.zeros((x.size, x.size))
        gradient[-1] = 1.0
        if isinstance(norm, L2Norm):
            length = float(np.sqrt(part @ part + soft * soft))
            gradient[at] = -self.rates * part / length
            pull = self.rates * part
            bent[np.ix_(at, at)] = np.outer(pull, pull) / length**3 - np.diag(self.rates**2 / length)
        else:
            sizes = np.sqrt(part * part + soft * soft)
            length = float(sizes.sum())
            gradient[at] = -self.rates * part / sizes
            bent[at, at] = -(self.rates**2) * soft * soft / sizes**3
        jacobian = sp.csr_array(sp.vstack([self.linear, sp.csr_array(gradient[None, :])]))
        return Limits(np.append(room, x[-1] - length), jacobian, bent)

    # The bound

    def bound(
        self, x: FloatArray, heights: Heights, mass: FloatArray, limits: Limits, pulls: FloatArray, upper: float
    ) -> tuple[float, float]:
        """Return what shares and slopes say of every model in the region, and what rounding may have added.

        Parameters
        ----------
        x : ndarray
            Point.
        heights : Heights
            There.
        mass : ndarray of shape (n_atoms,)
            Positive; of a row's mass each of its atoms has a share in proportion.
        limits : Limits
            At the point.
        pulls : ndarray of shape (n_limits,)
            Multipliers of the limits. Those of the extremes say in which proportions the categories are used.
        upper : float
            A risk that is known to be possible.
        """
        problem, data, m = self.problem, self.data, self.m
        shown, last = self.used[self.extremes.of - m], self.linear.shape[0]
        by_limit = np.zeros(shown.size)
        by_limit[shown] = pulls[self.n_numeric : last]
        X = self.X[:, :m] + self.X[:, m:] @ self.extremes.targets(by_limit)
        numeric = np.r_[: self.n_numeric, last : pulls.size]
        wanted = (limits.jacobian[numeric].T @ pulls[numeric])[:m] - problem.ridge * x[:m]
        share = mass * (self.w / self.total(mass))[self.owner]
        share, mixed = self._repaired(share, heights, wanted, X)
        used = share > 0.0
        own, labels = mixed[used] / share[used], self.labels[used]
        signs = labels if problem.is_classification else np.ones(labels.size)
        least_slope, most_slope = problem.loss.slope_range
        own = np.clip(own * signs, least_slope, most_slope)
        mixed = np.zeros(share.size)
        mixed[used] = own * signs * share[used]
        conjugate = share[used] * problem.loss.conjugate(own)
        target = np.zeros(labels.size) if problem.is_classification else mixed[used] * (labels - self.below.middle)
        sizes = data.rows.column_sizes(None) if self.n else np.zeros(m)
        plane = Plane(
            -float(conjugate.sum()) - float(target.sum()),
            float(np.abs(conjugate).sum()) + float(np.abs(target).sum()),
            self.moment(mixed, X),
            float(np.abs(mixed).sum()),
            float(share @ self.costs),
            np.maximum(sizes, np.abs(X).max(axis=0, initial=0.0)),
            share.size,
        )
        return self.below.least(plane, x[:m], upper)

    def _repaired(
        self, share: FloatArray, heights: Heights, wanted: FloatArray, X: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares that cost no more than the radius, and slopes times shares whose moment balances.

        A slope moves by the curvature of the loss times the change of its score along a direction that takes the
        gradient away.
        """
        spent, radius = float(share @ self.costs), self.problem.radius
        if spent > radius:
            back = np.where(self.costs > 0.0, (1.0 - radius / spent) * share, 0.0)
            share = share - back
            share[: self.n] += self.total(back)
        slope, room = share * heights.slope, share * heights.bent
        free = np.append(self.free_coef, self.problem.fit_intercept)
        K = self.gram(room, X)
        direction = np.zeros(self.m + 1)
        least, most = self.problem.loss.slope_range
        sign = self.labels if self.problem.is_classification else 1.0
        for _ in range(_REPAIRS):
            left = np.append(wanted, 0.0) - self.moment(slope, X)
            direction[free] = solve_damped(K[np.ix_(free, free)], left[free])
            slope = slope + room * self.along(direction, X)
            slope = np.clip(slope * sign, least * share, most * share) * sign
        return share, slope
