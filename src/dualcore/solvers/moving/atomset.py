"""Moved rows, called *atoms*, as the constraints of a convex program.

Every position to which a row may be moved, an atom ``a`` of cost ``c_a``, bounds its dual loss from below for all
models: ``h_i >= L(t_a) - lam c_a``. One atom may represent all categories that a group may change to, or with l1 all
moves at one slope of the loss (`Extremes`). A row without atoms contributes its loss, a smooth function of the model. A
row with atoms has one for its own position too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates.plane import PlaneBound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.geometry import L1Norm, L2Norm
from dualcore.solvers.moving.covariance import rough_gram, widest
from dualcore.solvers.moving.extremes import Extremes
from dualcore.solvers.moving.opensides import OpenSide, open_sides

# Number of rows that begin with an atom in which all groups are changed.
_FIRST_ROWS = 200
# At most this many rows, or n divided by the second if that is more, get a new atom in one pass.
_MOST_NEW, _SHARE_NEW = 2000, 20
# Matrices of at most this many numbers are stored dense: the overhead of sparse products is larger.
_SMALL = 200_000


class Heights(NamedTuple):
    """``L(t_a) - lam c_a`` of atoms or rows at a point, its slope in the score, and the curvature of the loss."""

    value: FloatArray
    slope: FloatArray
    curvature: FloatArray


class Rest(NamedTuple):
    """The quadratic model of the loss of rows without atoms, about a point (coefficients, intercept)."""

    at: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def gradient_at(self, model: FloatArray) -> FloatArray:
        """Return the gradient of the quadratic model at another point."""
        return np.asarray(self.gradient + self.hessian @ (model - self.at))


class Limits(NamedTuple):
    """Constraints ``slack >= 0`` at a point: first linear ones, with matrix ``linear``, then concave ones.

    ``gradients`` (k, d) and ``curvatures`` are those of the concave ones.
    """

    slack: FloatArray
    linear: Any
    gradients: FloatArray
    curvatures: list[FloatArray]

    def along(self, step: FloatArray) -> FloatArray:
        """Return the first-order changes of the slacks along a step."""
        return np.append(self.linear @ step, self.gradients @ step)

    def gradient(self, y: FloatArray) -> FloatArray:
        """Return the gradient of ``y . slack``."""
        count = self.linear.shape[0]
        return np.asarray(self.linear.T @ y[:count] + y[count:] @ self.gradients)

    def hessian(self, y: FloatArray) -> FloatArray:
        """Return the block of the Newton matrix of these constraints with dual variables ``y``."""
        count, weight = self.linear.shape[0], y / self.slack
        linear = self.linear.T @ (self.linear * weight[:count, None])
        out = (self.gradients.T * weight[count:]) @ self.gradients
        out += linear.toarray() if sp.issparse(linear) else linear
        for multiplier, curvature in zip(y[count:].tolist(), self.curvatures, strict=True):
            out -= multiplier * curvature
        return out


class AtomSet:
    """Rows, their atoms, and the constraints on a point.

    A point is a vector (width + 2,) of coefficients, extremes, intercept and multiplier.
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.n, self.m = data.rows.n, data.rows.m
        self.w = data.masses
        self.extremes = Extremes.of_problem(problem, family, data)
        self.width = self.extremes.width
        #: largest absolute value of each feature
        self.widest = widest(data.rows)
        #: rows with atoms, in the order in which they were added; the position of each row among them, else -1
        self.atom_rows, self.number = np.empty(0, dtype=np.intp), np.full(self.n, -1, dtype=np.intp)
        #: for every row with atoms, the index of the atom at its own position
        self.own_atom = np.empty(0, dtype=np.intp)
        #: features of atoms, positions of their rows in ``atom_rows``, labels and costs
        self.X, self.owner = np.empty((0, self.width)), np.empty(0, dtype=np.intp)
        self.labels, self.costs = np.empty(0), np.empty(0)
        #: slopes and offsets of a polyhedral loss, and the piece of every atom; not used for a curved loss
        self.is_polyhedral = problem.loss.pieces is not None
        self.pieces, self.piece = np.array(problem.loss.pieces or [(0.0, 0.0)]), np.empty(0, dtype=np.intp)
        self.bounds = PlaneBound(problem, family, data)
        self.open_sides = open_sides(problem, self.m)
        #: number of features without a limit
        self.n_open = int(np.count_nonzero(np.any([side.up + side.down for side in self.open_sides], axis=0)))
        pinned = family.pinned(self.m, fit_intercept=problem.fit_intercept)
        self.free_coef = ~pinned | (problem.ridge > 0.0)
        self.used: npt.NDArray[np.bool_] = np.zeros(self.width - self.m, dtype=bool)
        if self.is_polyhedral:  # the loss is not smooth, so every row needs atoms, one for each linear piece
            self._enter(np.flatnonzero(self.w > 0.0))
        if self.extremes.groups:
            self._add_far()
        self._limit()

    @property
    def masses(self) -> FloatArray:
        """Mass of every row with atoms."""
        return self.w[self.atom_rows]

    @property
    def others(self) -> FloatArray:
        """Mass of every row without atoms; 0 for the others."""
        out = self.w.copy()
        out[self.atom_rows] = 0.0
        return out

    @property
    def free(self) -> npt.NDArray[np.bool_]:
        """Which entries of a point can change."""
        return np.concatenate([self.free_coef, self.used, [self.problem.fit_intercept, True]])

    # Atoms

    def _enter(self, new: npt.NDArray[np.intp]) -> None:
        """Add atoms at the own positions of rows; with a polyhedral loss one for every piece.

        Lifted moves need no further atoms, so with label flips those of the other label are added too.
        """
        each = len(self.pieces)
        self.number[new] = self.atom_rows.size + np.arange(new.size)
        self.atom_rows = np.append(self.atom_rows, new)
        self.own_atom = np.append(self.own_atom, self.owner.size + each * np.arange(new.size))
        own = self.dense(new)
        flips = [1.0, -1.0] if self.extremes.sizes.size and self.problem.family.flips else [1.0]
        for flip in flips:
            pieces = np.arange(each) if flip > 0.0 else np.flatnonzero(self.pieces[:, 0])
            rows, pieces = np.repeat(np.arange(new.size), pieces.size), np.tile(pieces, new.size)
            labels = flip * self.data.y[new[rows]]
            slopes = self.pieces[pieces, 0] * (labels if self.problem.is_classification else 1.0)
            cost = np.full(rows.size, 0.0 if flip > 0.0 else self.problem.geometry.label_cost)
            self._add(self.extremes.own(own[rows], slopes), new[rows], labels, cost, pieces)

    def _add(
        self,
        X: FloatArray,
        rows: npt.NDArray[np.intp],
        label: FloatArray,
        cost: FloatArray,
        piece: npt.NDArray[np.intp],
    ) -> None:
        """Add atoms of rows; rows without any first get the atom of their own position."""
        new = np.unique(rows[self.number[rows] < 0])
        if new.size:
            self._enter(new)
        self.X, self.owner = np.vstack([self.X, X]), np.append(self.owner, self.number[rows])
        self.labels, self.costs = np.append(self.labels, label), np.append(self.costs, cost)
        self.piece = np.append(self.piece, piece)

    def _add_far(self) -> None:
        """Add atoms with all groups changed: without them the program may have no minimiser, as on separable rows."""
        heavy = np.flatnonzero(self.w > 0.0)
        rows = heavy[np.unique(np.linspace(0, heavy.size - 1, min(heavy.size, _FIRST_ROWS)).astype(np.intp))]
        own = self.dense(rows)
        y, cost = self.data.y[rows], np.full(rows.size, self.extremes.price)
        sides = [y < 0.0] if self.problem.is_classification else [np.full(rows.size, up) for up in (False, True)]
        for up in sides:
            signal = np.where(up & (not self.problem.is_classification), 1e3, -1e3)
            self._add(self.extremes.all_changed(own, up), rows, y, cost, self._piece(signal))

    def _piece(self, signal: FloatArray) -> npt.NDArray[np.intp]:
        """Return the pieces of a polyhedral loss that signals are on."""
        return np.asarray(np.argmax(np.multiply.outer(signal, self.pieces[:, 0]) + self.pieces[:, 1], axis=1))

    def dense(self, rows: npt.NDArray[np.intp]) -> FloatArray:
        """Return a few rows as an array."""
        own = self.data.rows.take(rows)
        return np.asarray(own.toarray() if hasattr(own, "toarray") else own, dtype=np.float64)

    def evaluate(self, x: FloatArray, own: Heights, least: float) -> float:
        """Return the objective at a point, and add the atoms whose constraints it violates by more than ``least``.

        It takes one pass over the rows. ``own`` are the heights of the unmoved rows at the point.
        """
        coef, intercept, multiplier = x[: self.m], float(x[-2]), float(x[-1])
        known, total = own.value.copy(), float(self.w @ own.value)
        known[self.atom_rows] = self.highest(self.heights(x).value)
        better: list[tuple[npt.NDArray[np.intp], FloatArray]] = []
        for part, X in self.data.rows.dense_blocks():
            y, w = self.data.y[part], self.w[part]
            moves = self.family.moves(X, y, coef, intercept, multiplier)
            total += float(w @ (moves.upper - own.value[part]))
            moved = (moves.cost > 0.0) & (w > 0.0)  # the atom of an unmoved row exists already
            missed = np.where(moved, w * (moves.lower - known[part] - least), 0.0)
            better.append((part.start + np.flatnonzero(missed > 0.0), missed[missed > 0.0]))
        new, missed = (np.concatenate(each) for each in zip(*better, strict=True))
        most = max(_MOST_NEW, self.n // _SHARE_NEW)
        if new.size > most:  # far from the optimum: only the largest violations; others follow in later passes
            new = np.sort(new[np.argsort(-missed, kind="stable")[:most]])
        if new.size:
            X, y = self.dense(new), self.data.y[new]
            led = self.family.moves(X, y, coef, intercept, multiplier, points=True)
            cost = led.cost - led.travel + self.family.lengths(led.X - X)  # the cost of the rounded position
            self._add(self.extremes.lift(X, led.X, coef), new, led.label, cost, self._piece(led.signal))
        return self.problem.radius * multiplier + total + self.problem.penalty(coef)

    def heights(self, x: FloatArray) -> Heights:
        """Return the heights of all atoms, their slopes in the score, and their curvatures."""
        score = self.along(x[:-1])
        if not self.is_polyhedral:
            out = self.heights_at(score, self.labels)
            return out._replace(value=out.value - x[-1] * self.costs)
        slope, offset = self.pieces[self.piece].T
        if self.problem.is_classification:
            slope = slope * self.labels
        else:
            score = score - self.labels
        return Heights(slope * score + offset - x[-1] * self.costs, slope, np.zeros(score.size))

    def own(self, x: FloatArray) -> Heights:
        """Return the heights of all rows at their own positions."""
        return self.heights_at(self.data.rows.dot(x[: self.m]) + x[-2], self.data.y)

    def heights_at(self, score: FloatArray, labels: FloatArray) -> Heights:
        signed = self.problem.is_classification
        t = score * labels if signed else score - labels
        value, slope = self.problem.loss.value_and_slope(t)
        return Heights(value, slope * labels if signed else slope, self.problem.loss.curvature(t))

    def rest(self, x: FloatArray, own: Heights) -> Rest:
        """Return the quadratic model of the loss of rows without atoms; ``own``: heights of all rows at ``x``."""
        w = self.others
        if not w.any():
            return Rest(np.zeros(self.m + 1), np.zeros(self.m + 1), np.zeros((self.m + 1, self.m + 1)))
        slope, curvature = w * own.slope, w * own.curvature
        hessian = np.empty((self.m + 1, self.m + 1))
        hessian[:-1, :-1] = rough_gram(self.data.rows, curvature)
        hessian[-1] = hessian[:, -1] = np.append(self.data.rows.transpose_dot(curvature), curvature.sum())
        gradient = np.append(self.data.rows.transpose_dot(slope), slope.sum())
        return Rest(np.append(x[: self.m], x[-2]), gradient, hessian)

    def highest(self, values: FloatArray) -> FloatArray:
        """Return the largest value of the atoms of each row with atoms."""
        out = values[self.own_atom]
        np.maximum.at(out, self.owner, values)
        return out

    def total(self, values: FloatArray) -> FloatArray:
        """Return the sum over the atoms of each row with atoms."""
        return np.bincount(self.owner, values, self.atom_rows.size).astype(np.float64)

    def along(self, direction: FloatArray) -> FloatArray:
        """Return ``(x_a, 1) . direction`` of every atom."""
        return np.asarray(self.X @ direction[:-1] + direction[-1])

    def moment(self, slope: FloatArray) -> FloatArray:
        """Return ``sum_a slope_a (x_a, 1)`` over atoms."""
        return np.append(slope @ self.X, slope.sum())

    def gram(self, weight: FloatArray) -> FloatArray:
        """Return ``sum_a weight_a (x_a, 1) (x_a, 1)'`` over atoms."""
        out = np.empty((self.width + 1, self.width + 1))
        used = np.flatnonzero(weight)
        root = self.X[used] * np.sqrt(weight[used])[:, None]
        out[:-1, :-1] = root.T @ root
        out[-1] = out[:, -1] = self.moment(weight)
        return out

    # Constraints on a point

    def feasible(self, x: FloatArray, most: float = np.inf) -> FloatArray:
        """Return a point whose extremes are strictly feasible; those in no atom are recomputed.

        The slacks of new extremes are so small that heights rise by at most ``most``.
        """
        largest = np.abs(self.X[:, self.m :]).max(axis=0, initial=0.0)
        was, self.used = self.used, largest > 0.0
        self._limit()
        most /= max(int(self.used.sum()), 1)
        return self.extremes.make_feasible(x, was & self.used, most / np.maximum(largest, 1e-300))

    def _limit(self) -> None:
        """Compute the matrix of the linear constraints: on the multiplier, and on the extremes used by an atom."""
        size = self.width + 2
        limits = [sp.csr_array(([1.0], ([0], [size - 1])), shape=(1, size))]
        #: numbers of the limits of every open side
        self.side_limits = list[npt.NDArray[np.intp]]()
        if isinstance(self.problem.geometry.norm, L1Norm):
            for side in self.open_sides:
                first = sum(limit.shape[0] for limit in limits)
                for sign, rates in ((-1.0, side.up), (1.0, side.down)):
                    at = np.flatnonzero(rates)
                    place = np.tile(np.arange(at.size), 2), np.concatenate([at, np.full(at.size, size - 1)])
                    entries = np.concatenate([sign * rates[at], np.ones(at.size)])
                    limits.append(sp.csr_array((entries, place), shape=(at.size, size)))
                self.side_limits.append(np.arange(first, sum(limit.shape[0] for limit in limits)))
        self.n_numeric = sum(limit.shape[0] for limit in limits)
        order = self.extremes.order[self.used[self.extremes.of - self.m]]
        limits.append(order)
        linear = sp.csr_array(sp.vstack(limits))
        self.linear: Any = linear.toarray() if linear.shape[0] * size <= _SMALL else linear
        self.side_limits += [np.array([self.linear.shape[0] + k]) for k in range(len(self.curved_sides))]

    @property
    def curved_sides(self) -> list[OpenSide]:
        """Open sides whose constraint is not linear."""
        return [] if isinstance(self.problem.geometry.norm, L1Norm) else self.open_sides

    @property
    def n_limits(self) -> int:
        """Number of `limits`."""
        return int(self.linear.shape[0]) + len(self.curved_sides)

    def slacks(self, x: FloatArray, soft: float) -> FloatArray:
        """Return the slacks (n_limits,); ``soft`` is the width by which the corners of a norm are rounded."""
        linear = self.linear @ x
        linear[0] -= self.family.floor()
        return np.append(linear, [x[-1] - length for length, _, _ in self._lengths(x[: self.m], soft)])

    def _lengths(self, theta: FloatArray, soft: float) -> Iterator[tuple[float, FloatArray, FloatArray]]:
        """Yield for each curved open side the rounded norm of the coefficients, its gradient (m,), and its terms."""
        for side in self.curved_sides:
            rates = np.where(theta > 0.0, side.up, side.down)
            sizes = np.sqrt((rates * theta) ** 2 + soft * soft)
            if isinstance(self.problem.geometry.norm, L2Norm):
                sizes = np.array([np.sqrt(float(np.sum((rates * theta) ** 2)) + soft * soft)])
                yield float(sizes[0]), rates**2 * theta / sizes, sizes
            else:
                yield float(sizes[(side.up + side.down) > 0.0].sum()), rates**2 * theta / sizes, sizes

    def limits(self, x: FloatArray, soft: float) -> Limits:
        """Return the slacks with their first and second derivatives."""
        m, theta = self.m, x[: self.m]
        gradients, curvatures = np.zeros((len(self.curved_sides), x.size)), list[FloatArray]()
        every = zip(self.curved_sides, self._lengths(theta, soft), strict=True)
        for number, (side, (_, slope, sizes)) in enumerate(every):
            gradients[number, :m], gradients[number, -1] = -slope, 1.0
            curvature, square = np.zeros((x.size, x.size)), np.where(theta > 0.0, side.up, side.down) ** 2
            curvature[np.arange(m), np.arange(m)] = -square / sizes
            if isinstance(self.problem.geometry.norm, L2Norm):
                curvature[:m, :m] += np.outer(slope, slope) / sizes
            else:
                curvature[np.arange(m), np.arange(m)] *= (soft / sizes) ** 2
            curvatures.append(curvature)
        return Limits(self.slacks(x, soft), self.linear, gradients, curvatures)
