r"""A working set of features on a box with linf: whether others can stay outside, and their effect on a bound.

Where the coefficient of a feature is zero, any move of an atom along it, up to the step of the atom, is optimal and
with linf costs nothing. So the moment of the feature, ``sum_a q_a s_a x_aj``, can be chosen in an interval. If the
interval contains zero, the feature does not weaken the bound; if not, its coefficient is not zero at the optimum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.certificates.plane import Plane
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers.moving.branches.branched import Branched
from dualcore.solvers.moving.branches.curvature import LIGHT
from dualcore.solvers.moving.narrow import choose_columns
from dualcore.solvers.moving.smoothed import BranchAtoms, ObjectiveSums

__all__ = ["FeatureSet"]

# Coefficients up to this share of the largest are outside at first. When the set grows: its relative growth, and the
# smallest number of features added.
_ZERO, _GROWTH, _FEWEST = 1e-3, 0.5, 10


class FeatureSet:
    """The smoothed objective over a growing set of features; the coefficients of the others are zero.

    It is used with linf only, where the risk has a kink at zero coefficients and most are zero. With other norms all
    features are in the set.

    Parameters
    ----------
    problem : Problem
    data : Data
    centre : ndarray of shape (m,)
        Means of the features. The slope of a feature is its moment minus its mean times the moment of the intercept.
    coef : ndarray of shape (m,)
        Features with a coefficient other than zero are in the set at first, and those that cannot move.
    farthest : ndarray of shape (m,), optional
        As of `Branched`.
    """

    def __init__(
        self,
        problem: Problem,
        data: Data,
        centre: FloatArray,
        coef: FloatArray,
        farthest: FloatArray | float = np.inf,
    ) -> None:
        self.problem, self.data, self.centre, self.m = problem, data, centre, data.rows.m
        self.farthest = np.broadcast_to(farthest, self.m)
        family = BoxFamily.of(problem.family)
        self.low, self.high = family.support.spread(self.m)
        self.prices = family.prices(self.m)
        size = np.abs(coef) / self.prices
        used = (size > _ZERO * size.max(initial=0.0)) | np.isinf(self.prices) | (self.low == self.high)
        if not used.any():  # the start is the zero model, but the problem needs at least one feature
            used[np.argsort(-self._relevance(), kind="stable")[:_FEWEST]] = True
        self.features = np.flatnonzero(used | (not family.moves_together))
        self.smoothed = self._narrowed()

    def _relevance(self) -> FloatArray:
        """Return the absolute covariance of every feature with the target, per unit of cost, shape (m,)."""
        w, y = self.data.masses, self.data.y
        return np.abs(self.data.rows.transpose_dot(w * (y - float(w @ y)))) / self.prices

    def _narrowed(self) -> Branched:
        problem, data = self.problem, self.data
        if self.features.size < self.m:
            problem = problem.narrowed(self.features, self.m)
            data = data._replace(rows=choose_columns(data.rows, self.features))
        return Branched(problem, BoxFamily.of(problem.family), data, self.farthest[self.features])

    def inside(self, x: FloatArray) -> FloatArray:
        """Return a point (m + 2,) restricted to the features of the set."""
        return np.append(x[self.features], x[-2:])

    def whole(self, x: FloatArray) -> FloatArray:
        """Return a point (m + 2,) of all features, with zeros outside the set."""
        out = np.zeros(self.m + 2)
        out[self.features], out[-2:] = x[:-2], x[-2:]
        return out

    def grow(self, x: FloatArray, wanted: FloatArray) -> FloatArray:
        """Add the features with the largest ``wanted``, and return the point in the larger set."""
        new = np.argsort(-wanted, kind="stable")[: max(int(_GROWTH * self.features.size), _FEWEST)]
        x, mu = self.whole(x), self.smoothed.mu
        self.features = np.union1d(self.features, new[wanted[new] > 0.0])
        self.smoothed = self._narrowed()
        x = self.inside(x)
        self.smoothed.set_width(mu, x)
        return x

    def widened(self, sums: ObjectiveSums) -> tuple[Plane, FloatArray]:
        """Return the plane over all features, and by how much each violates the optimality conditions, shape (m,)."""
        wanted, plane, rows = np.zeros(self.m), sums.plane, self.data.rows
        if self.features.size == self.m:
            return plane, wanted
        pushes = np.bincount(sums.atoms.row, sums.atoms.steep, rows.n).astype(np.float64)
        moment = np.append(rows.transpose_dot(pushes), plane.moment[-1])
        moment[self.features] = plane.moment[:-1]
        others = np.setdiff1d(np.arange(self.m), self.features)
        slope = moment[others] - self.centre[others] * moment[-1]
        capacity = self._capacity(sums.atoms, others, np.sign(slope))
        moment[others] -= np.sign(slope) * np.minimum(np.abs(slope), capacity)
        wanted[others] = np.maximum(np.abs(slope) - capacity, 0.0)
        sizes = 2.0 * plane.slope_sum * np.maximum(np.abs(self.low), np.abs(self.high))
        sizes[self.features] = plane.sizes
        return plane._replace(moment=moment, sizes=sizes), wanted

    def _capacity(self, atoms: BranchAtoms, others: npt.NDArray[np.intp], sign: FloatArray) -> FloatArray:
        """Return by how much free moves can change the moments of features outside the set, against ``sign``."""
        heavy = np.flatnonzero(np.abs(atoms.steep) > LIGHT * self.data.masses[atoms.row])
        heavy = heavy[np.argsort(atoms.row[heavy], kind="stable")]
        row, steep, step = atoms.row[heavy], atoms.steep[heavy], atoms.step[heavy]
        low, high, price = self.low[others], self.high[others], self.prices[others]
        out = np.zeros(others.size)
        for part, X in self.data.rows.dense_blocks():
            first, last = np.searchsorted(row, [part.start, part.stop])
            block = X[:, others]
            for push in (1.0, -1.0):
                own = first + np.flatnonzero(steep[first:last] * push > 0.0)
                capacity = block[row[own] - part.start]
                # The distance to the limit in the direction that reduces the moment.
                capacity = np.where(push * sign < 0.0, high - capacity, capacity - low)
                np.minimum(capacity, np.divide.outer(step[own], price), out=capacity)
                out += np.abs(steep[own]) @ np.maximum(capacity, 0.0)
        return out
