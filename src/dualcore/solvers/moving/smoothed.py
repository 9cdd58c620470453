"""The parts common to Newton's methods on smoothed worst cases: the risk, a barrier, damped steps, bounds.

A method smooths ``radius lam + sum_i w_i h_i(theta, b, lam)`` with a width ``mu``, minimises it, and reduces the width
until the bound of its plane (`dualcore.certificates.plane`) is close enough to the risk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates.plane import Plane, PlaneBound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily
from dualcore.solvers.base import Iterate, tell
from dualcore.solvers.factor import solve_damped
from dualcore.solvers.moving.result import NewtonResult

__all__ = ["BranchAtoms", "ObjectiveSums", "Progress", "SmoothedObjective", "minimise"]

# Numbers in a block of rows; each block adds one product of shape (m + 2, m + 2) to the Hessian.
_BLOCK = 262_144
# Weight of the barrier that keeps the multiplier above its floor, in widths.
_BARRIER = 0.01
# Relative accuracy, in the risk, of the first multiplier.
SHARPNESS = 1e-3
# Steps at one width, and trials of a step.
_MOST_STEPS, _TRIES = 60, 20
# Smallest positive damping of a step, and the factor by which it changes. A step is accepted, and the next one damped
# more or less, at these shares of the decrease predicted by the quadratic model.
_DAMPED, _FACTOR = 1e-3, 3.0
_ACCEPTED, _POOR, _GOOD = 0.05, 0.25, 0.7
# Largest share of the distance between multiplier and floor that a step may cover.
_DEEPEST = 0.9
# ``is_enough`` is called once the predicted decrease of a step is below this, in widths.
_CLOSE = 1e-2


class BranchAtoms(NamedTuple):
    """Moved rows (k,): index of the row, mass times slope in the score, and with linf the step."""

    row: npt.NDArray[np.intp]
    steep: FloatArray
    step: FloatArray


class ObjectiveSums(NamedTuple):
    """Value, gradient (m + 2,) and Hessian of the smoothed objective, and the plane of its shares.

    ``secant`` (m + 2,): the contribution of moves to the gradient, divided by the coefficients. ``atoms``: moved rows.
    """

    value: float
    gradient: FloatArray
    hessian: FloatArray
    plane: Plane
    secant: FloatArray | float = 0.0
    atoms: BranchAtoms = BranchAtoms(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))


class SmoothedObjective(ABC):
    """A smoothed objective over coefficients, intercept and multiplier, ``x = (theta, b, lam)``.

    Parameters
    ----------
    problem : Problem
    family : BoxFamily
    data : Data
    """

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        self.m, self.w = data.rows.m, data.masses
        self.bounds = PlaneBound(problem, family, data)
        #: the width of the smoothed maximum
        self.mu = 1.0

    @abstractmethod
    def value(self, x: FloatArray) -> float:
        """Return the smoothed objective; infinite unless the multiplier exceeds its floor."""

    @abstractmethod
    def sums(self, x: FloatArray) -> ObjectiveSums:
        """Return the smoothed objective and its derivatives."""

    @property
    def jump(self) -> float:
        """Bound on jumps of the objective."""
        return 0.0

    def scale(self, sums: ObjectiveSums) -> FloatArray:
        """Return the diagonal (m + 2,) by which steps are damped.

        It contains secants besides the Hessian: near zero a coefficient has curvature by its moves, which the Hessian
        at the current point does not show, and a step may cross zero.
        """
        return np.asarray(sums.secant + np.diag(sums.hessian))

    def refine(self, x: FloatArray, sums: ObjectiveSums) -> ObjectiveSums | None:
        """Improve the approximation at its minimiser; return the new sums there, or None if nothing changes."""
        return None

    def plane_at(self, plane: Plane, x: FloatArray) -> float:
        """Return the value of a plane at a point, which is its bound if its gradient vanishes."""
        shifted = np.append(x[:-2], x[-2] - self.bounds.middle)
        left = float(x[-1]) * (self.problem.radius - plane.spent)
        return plane.value + float(plane.moment @ shifted) + left + self.problem.penalty(x[:-2])

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, block)`` in order, in dense blocks large enough for efficient products."""
        rows, step = self.data.rows, max(_BLOCK // max(self.m, 1), 64)
        if not rows.in_memory:  # iterating over the blocks of a source is one read
            yield from rows.dense_blocks()
            return
        for first in range(0, rows.n, step):
            part = slice(first, min(first + step, rows.n))
            block = rows.block(part)
            yield part, np.asarray(block.toarray() if sp.issparse(block) else block)

    def slack(self, x: FloatArray) -> float:
        """Return the multiplier minus its floor."""
        return float(x[-1]) - self.family.floor()

    def complete(self, x: FloatArray, mu: float, total: float) -> float:
        """Return the objective from the sum over rows; infinite unless the multiplier exceeds its floor."""
        slack = self.slack(x)
        if not slack > 0.0:
            return float(np.inf)
        value = total + self.problem.radius * float(x[-1]) + self.problem.penalty(x[:-2])
        return float(value - _BARRIER * mu * np.log(slack))

    def complete_derivatives(self, x: FloatArray, mu: float, gradient: FloatArray, H: FloatArray) -> None:
        """Add the derivatives of radius, ridge and barrier to those of the sum over rows, in place."""
        problem, m, slack = self.problem, self.m, self.slack(x)
        gradient[:m] += problem.ridge * x[:m]
        gradient[-1] += problem.radius - _BARRIER * mu / slack
        H[np.arange(m), np.arange(m)] += problem.ridge
        H[-1, -1] += _BARRIER * mu / slack**2
        if not problem.fit_intercept:
            gradient[m], H[m], H[:, m] = 0.0, 0.0, 0.0
            H[m, m] = 1.0

    def risk(self, x: FloatArray) -> float:
        """Return the objective without smoothing."""
        sweep = self.family.sweep(self.data.rows, self.data.y, x[:-2], float(x[-2]), float(x[-1]))
        total = sum(float(self.w[part] @ moves.upper) for part, moves in sweep)
        return self.problem.radius * float(x[-1]) + total + self.problem.penalty(x[:-2])


def minimise(
    smoothed: SmoothedObjective,
    x: FloatArray,
    tolerance: float,
    is_enough: Callable[[FloatArray, ObjectiveSums], bool] | None = None,
) -> tuple[FloatArray, ObjectiveSums, bool]:
    """Return the minimiser at the current width, or the first point that ``is_enough`` accepts, its sums, and success.

    Steps are damped by a multiple of the diagonal (Levenberg-Marquardt), adapted to the ratio of actual and predicted
    decrease. The method ends when the predicted decrease is below ``tolerance`` widths.
    """
    sums, damping = smoothed.sums(x), 0.0
    sums_at_once = not smoothed.data.rows.in_memory
    for _ in range(_MOST_STEPS):
        step = -solve_damped(sums.hessian, sums.gradient)
        promised = -float(sums.gradient @ step)
        if promised <= tolerance * smoothed.mu:
            refined = smoothed.refine(x, sums)
            if refined is None:
                return x, sums, True
            sums = refined
            continue
        if is_enough is not None and promised <= _CLOSE * smoothed.mu and is_enough(x, sums):
            return x, sums, True
        scale, slack = smoothed.scale(sums), smoothed.jump + 1e-14 * abs(sums.value)
        for _ in range(_TRIES):
            if damping > 0.0:
                step = -solve_damped(sums.hessian + np.diag(damping * scale), sums.gradient)
            step *= min(1.0, _DEEPEST * smoothed.slack(x) / max(-float(step[-1]), 1e-300))
            expected = -float(sums.gradient @ step + 0.5 * step @ sums.hessian @ step)
            trial = x + step
            there = smoothed.sums(trial) if sums_at_once else None  # one read instead of two
            value = smoothed.value(trial) if there is None else there.value
            ratio = (sums.value - value + slack) / (max(expected, 0.0) + slack)
            if ratio > _ACCEPTED:
                break
            damping = max(_FACTOR * damping, _DAMPED)
        else:
            return x, sums, False
        if ratio > _GOOD:
            damping = damping / _FACTOR if damping > _DAMPED / _FACTOR else 0.0
        elif ratio < _POOR:
            damping = max(2.0 * damping, _DAMPED)
        x, sums = trial, there or smoothed.sums(trial)
    return x, sums, False


class Progress:
    """The best point so far, its risk, and the best lower bound.

    Parameters
    ----------
    smoothed : SmoothedObjective
    coef : ndarray of shape (m,)
    intercept : float
        The starting model; its multiplier is computed.
    """

    def __init__(self, smoothed: SmoothedObjective, coef: FloatArray, intercept: float) -> None:
        self.smoothed = smoothed
        family, data = smoothed.family, smoothed.data
        least, _ = family.search(data.rows, data.y, data.weights, coef, intercept, sharpness=SHARPNESS)
        # The barrier needs a multiplier above its floor. The value includes the penalty, which may be the whole risk.
        value = least.value + smoothed.problem.penalty(coef)
        multiplier = max(least.multiplier, family.floor() + 1e-3 * value / smoothed.problem.radius)
        self.best = np.append(coef, [intercept, multiplier])
        self.upper, self.lower, self.rounding = smoothed.risk(self.best), 0.0, 0.0  # losses are not negative
        self.history: list[tuple[float, float]] = []
        self.ideal = 0.0

    def record(self, x: FloatArray, plane: Plane) -> tuple[float, float]:
        """Evaluate a point and the bound of a plane; return the risk and the bound before rounding."""
        value = self.evaluate(x)
        known = self.bound(plane)
        self.history.append((self.lower, self.upper))
        tell(Iterate(len(self.history), self.upper, self.gap))
        return value, known

    def evaluate(self, x: FloatArray) -> float:
        """Return the risk at a point, and keep the point if it is the best."""
        value = self.smoothed.risk(x)
        if value < self.upper:
            self.upper, self.best = value, x
        return value

    def bound(self, plane: Plane) -> float:
        """Return the bound of a plane before rounding, and keep it if it is the best."""
        known, off = self.smoothed.bounds.least(plane, self.upper)
        self.ideal = max(self.ideal, known)
        if known - off > self.lower:
            self.lower, self.rounding = known - off, off
        return known

    @property
    def gap(self) -> float:
        """Risk minus bound."""
        return self.upper - self.lower

    def is_within(self, tol: float) -> bool:
        """Whether the relative gap is at most 0.9 ``tol``: the rest allows for rounding in the final evaluation."""
        return self.gap <= 0.9 * tol * abs(self.upper)

    def result(self) -> NewtonResult:
        """Return the best model with its bounds."""
        history = self.history or [(self.lower, self.upper)]
        coef, (intercept, multiplier) = self.best[:-2], self.best[-2:].tolist()
        return NewtonResult(coef, intercept, multiplier, self.upper, self.lower, self.rounding, history, self.ideal)
