r"""The smoothed worst-case risk on a box, from the branches of rows: value, derivatives, and a plane below the risk.

The maximum over the branches of a row (`dualcore.solvers.moving.branches.finding`) is smoothed,

    h ~ mu log sum_b exp(h_b / mu) .

The weights ``exp(h_b / mu)``, normalised over the branches of a row, are its *shares*: with the moves of the branches
they are a distribution in the ball. With the slopes of the loss it defines a plane below the risk of every model
(`dualcore.certificates.plane`), whose gradient vanishes at the minimum of the smoothed risk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualcore.certificates.plane import Plane
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.solvers.factor import solve_damped
from dualcore.solvers.moving.branches.curvature import BranchCurvature
from dualcore.solvers.moving.branches.finding import Branch, Direction, Finder, L1Finder, L2Finder, LinfFinder
from dualcore.solvers.moving.smoothed import BranchAtoms, ObjectiveSums, SmoothedObjective

__all__ = ["Branched"]

# Branches this many widths below the best of their row have share zero.
_NEGLIGIBLE = 30.0
# Relative change of the width for the finite difference that estimates the derivative of the minimiser in the width.
_CLOSE = 1e-3
# The nodes of `Curve` are placed anew at a minimiser while that lowers the objective by this many widths.
_FREED = 1e-3

_FINDERS: dict[type[Norm], type[Finder]] = {L1Norm: L1Finder, L2Norm: L2Finder, LinfNorm: LinfFinder}


class _BranchTotals:
    """Sums over the rows."""

    def __init__(self, m: int) -> None:
        self.gradient, self.secant, self.hessian = np.zeros(m + 2), np.zeros(m + 2), np.zeros((m + 2, m + 2))
        self.value = self.offset = self.size = self.slope_sum = self.spent = 0.0
        self.count = 0
        self.atoms: list[BranchAtoms] = []


class Branched(SmoothedObjective):
    """The objective with a smoothed maximum over the branches.

    Parameters
    ----------
    problem : Problem
    family : BoxFamily
    data : Data
    farthest : ndarray of shape (m,), optional
        Bounds on the absolute coefficients. Beyond them the value is infinite, so that a step along a nearly singular
        Hessian cannot overflow.
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data, farthest: FloatArray | float = np.inf) -> None:
        super().__init__(problem, family, data)
        self.farthest = farthest
        prices = family.prices(self.m)
        self.low, self.high = family.support.spread(self.m)
        movable = np.isfinite(prices) & (self.high > self.low)
        self.columns, self.prices = np.flatnonzero(movable), prices[movable]
        self.finder = _FINDERS[type(problem.geometry.norm)](
            problem, data.rows.n, (self.high - self.low)[movable] * self.prices
        )
        self.widest = np.where(movable, np.maximum(np.abs(self.low), np.abs(self.high)), 0.0)
        for _, X in data.rows.dense_blocks():
            self.widest = np.maximum(self.widest, np.abs(X).max(axis=0, initial=0.0))

    def set_width(self, mu: float, x: FloatArray) -> None:
        """Set the width of the smoothed maximum, and place the nodes of `Curve` for a minimisation from ``x``."""
        self.mu = self.finder.mu = mu
        self.finder.place(self.sides(x)[0], float(x[-1]))

    def follow(self, x: FloatArray, sums: ObjectiveSums, fall: float) -> FloatArray:
        """Multiply the width by ``fall``; return a first-order prediction of the minimiser, or ``x`` if that is better.

        ``sums`` are those of the minimiser ``x`` at the previous width.
        """
        mu = self.mu
        self.mu = self.finder.mu = mu * (1.0 - _CLOSE)
        change = self.sums(x).gradient - sums.gradient
        there = x - solve_damped(sums.hessian, sums.gradient + change * (1.0 - fall) / _CLOSE)
        self.set_width(fall * mu, x)
        if not self.value(there) < self.value(x):
            return x
        self.set_width(fall * mu, there)
        return there

    def refine(self, x: FloatArray, sums: ObjectiveSums) -> ObjectiveSums | None:
        if not self.finder.keeps or not self.finder.place(self.sides(x)[0], float(x[-1])):
            return None
        return self.sums(x) if self.value(x) <= sums.value - _FREED * self.mu else None

    def keep_branches(self, keeps: bool) -> None:
        """Choose whether to search only for branches near those of the last sums, or for all of them."""
        self.finder.keeps = keeps

    @property
    def jump(self) -> float:
        """Bound on jumps of the objective: where two branches of a curved loss meet, one of them is lost."""
        return 2.0 * self.mu * float(self.w.max()) if self.finder.loses_branches else 0.0

    # Branches of a block

    def _directions(self, score: FloatArray, y: FloatArray) -> Iterator[Direction]:
        if not self.problem.is_classification:
            for number, side in enumerate((1.0, -1.0)):
                yield Direction(number, np.full(y.size, side), side * (score - y), side, 0.0, number == 0)
            return
        yield Direction(0, -y, -y * score, -1.0, 0.0, True)
        if self.problem.family.flips:
            yield Direction(1, y, y * score, -1.0, self.problem.geometry.label_cost, True)

    def sides(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``|theta_j| / price_j`` of the movable features, shape (c,), and the signs of their coefficients."""
        coef = x[self.columns]
        return np.abs(coef) / self.prices, np.where(coef < 0.0, -1.0, 1.0)

    def _caps(self, X: FloatArray, push: FloatArray, side: FloatArray) -> FloatArray:
        """Return the distances (n, c) from features to their limits in the direction of ``push``, in units of cost."""
        low, high = self.low[self.columns], self.high[self.columns]
        ends = np.stack([np.where(side > 0.0, high, low), np.where(side > 0.0, low, high)])
        caps = ends.take((push < 0.0).astype(np.intp), axis=0)
        caps -= X if self.columns.size == self.m else X[:, self.columns]
        caps *= side * self.prices
        caps *= push[:, None]
        return np.asarray(np.maximum(caps, 0.0, out=caps))

    def branches(self, part: slice, X: FloatArray, x: FloatArray) -> list[Branch]:
        """Return the branches of a block."""
        sizes, side = self.sides(x)
        out: list[Branch] = []
        for direction in self._directions(X @ x[: self.m] + x[-2], self.data.y[part]):
            out += self.finder.find(direction, part, sizes, self._caps(X, direction.push, side), float(x[-1]))
        return [branch for branch in out if branch.row.size]

    # Sums

    def value(self, x: FloatArray) -> float:
        """Return the smoothed objective; infinite beyond ``farthest``, and unless the multiplier exceeds its floor."""
        if not self.slack(x) > 0.0 or (np.abs(x[: self.m]) > self.farthest).any():
            return float(np.inf)
        total, self.finder.moves_rows = 0.0, False
        for part, X in self.blocks():
            best, weight, _ = _soft(self.branches(part, X, x), X.shape[0], self.mu)
            total += float(self.w[part] @ (best + self.mu * np.log(weight)))
        return self.complete(x, self.mu, total)

    def sums(self, x: FloatArray) -> ObjectiveSums:
        """Return the smoothed objective and its derivatives, one pass over the rows."""
        totals, self.finder.moves_rows = _BranchTotals(self.m), True
        self.finder.begin()
        for part, X in self.blocks():
            self._add(totals, part, X, x)
        self.finder.end()
        gradient, H = totals.gradient, totals.hessian
        moment, sizes = gradient[:-1].copy(), 2.0 * totals.slope_sum * self.widest
        plane = Plane(totals.offset, totals.size, moment, totals.slope_sum, totals.spent, sizes, totals.count)
        self.complete_derivatives(x, self.mu, gradient, H)
        atoms = BranchAtoms(*(np.concatenate(parts) for parts in zip(*totals.atoms, strict=True)))
        return ObjectiveSums(self.complete(x, self.mu, totals.value), gradient, H, plane, totals.secant, atoms)

    def _add(self, totals: _BranchTotals, part: slice, X: FloatArray, x: FloatArray) -> None:
        """Add the sums of a block."""
        problem, m, mu, w, y = self.problem, self.m, self.mu, self.w[part], self.data.y[part]
        blocks = self.branches(part, X, x)
        best, total, weights = _soft(blocks, X.shape[0], mu)
        totals.value += float(w @ (best + mu * np.log(total)))
        sizes, side = self.sides(x)
        per_cost, columns = side / self.prices, self.columns
        pushes, portions = np.zeros(X.shape[0]), []
        for branch, weight in zip(blocks, weights, strict=True):
            row, push = branch.row, branch.direction.push[branch.row]
            portion = weight / total[row]
            share = w[row] * portion
            steep = share * branch.slope
            pushes += np.bincount(row, steep * push, X.shape[0])
            step = np.zeros(row.size)
            totals.spent += float(share.sum()) * branch.direction.price
            if branch.found is not None:
                moment, step = steep @ branch.found.move, branch.found.cost
                totals.spent += float(share @ step)
                totals.gradient[columns] += per_cost * moment
                totals.secant[columns] += np.abs(per_cost) * moment / np.maximum(np.abs(x[columns]), 1e-100)
            totals.atoms.append(BranchAtoms(part.start + row, steep * push, step))
            totals.gradient[m] += float(steep @ push)
            totals.gradient[-1] -= float(share @ branch.cost)
            own = np.clip(branch.direction.sign * branch.slope, *problem.loss.slope_range)
            conjugate = share * problem.loss.conjugate(own)
            goal = np.zeros(0) if problem.is_classification else steep * push * (y[row] - self.bounds.middle)
            totals.offset -= float(conjugate.sum()) + float(goal.sum())
            totals.size += float(np.abs(conjugate).sum()) + float(np.abs(goal).sum())
            totals.slope_sum += float(np.abs(steep).sum())
            totals.count += row.size
            portions.append(portion)
        totals.gradient[:m] += X.T @ pushes
        BranchCurvature(problem.loss, mu, columns, sizes, per_cost, X, w, totals.hessian).add(blocks, portions)


def _soft(blocks: list[Branch], n: int, mu: float) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Return for every row the largest value (n,), the sum of ``exp((value - largest) / mu)``, and these weights."""
    best, total, weights = np.full(n, -np.inf), np.zeros(n), []
    for branch in blocks:
        np.maximum.at(best, branch.row, branch.value)
    for branch in blocks:
        off = (branch.value - best[branch.row]) / mu
        weight = np.where(off < -_NEGLIGIBLE, 0.0, np.exp(np.maximum(off, -_NEGLIGIBLE)))
        weight *= np.where(off < 0.0, branch.fade, 1.0)
        total += np.bincount(branch.row, weight, n)
        weights.append(weight)
    return best, total, weights
