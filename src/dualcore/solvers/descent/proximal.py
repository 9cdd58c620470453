"""Proximal quasi-Newton: a quadratic model of the smooth part, with the norm treated exactly.

Each step minimises the quadratic model of the smooth part on the cone ``k >= max(||theta||_*, floor)``, which needs no
pass over the data, and is shortened until the risk falls. The model starts from the Hessian of a sample, or a diagonal,
and is updated with the gradients of later evaluations (BFGS).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.prox import prox_with_size
from dualcore.solvers.descent.rowsums import Point
from dualcore.solvers.lbfgs import LimitedMemory

# With more features no matrix of shape (m, m) is stored.
MOST_FEATURES = 3000


def sample_size(n_features: int) -> int:
    """Return the number of rows from which the Hessian of a sample is computed."""
    return max(4 * n_features, 256)


class Quadratic(ABC):
    """A positive definite ``B`` with ``B s = y`` for the last step ``s`` and the change ``y`` of the gradient."""

    diagonal: FloatArray

    @abstractmethod
    def apply(self, vector: FloatArray) -> FloatArray:
        """Return ``B v``."""

    @abstractmethod
    def learn(self, step: FloatArray, change: FloatArray) -> None:
        """Update ``B`` with a step and the change of the gradient along it, both (d,)."""


class DenseQuadratic(Quadratic):
    """A matrix, updated in place."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix
        self.diagonal = np.diag(matrix).copy()

    def apply(self, vector: FloatArray) -> FloatArray:
        return np.asarray(self.matrix @ vector)

    def learn(self, step: FloatArray, change: FloatArray) -> None:
        image = self.matrix @ step
        along, known = float(step @ change), float(step @ image)
        if along <= 1e-8 * known or known <= 0.0:
            return
        self.matrix += np.outer(change, change / along) - np.outer(image, image / known)
        self.diagonal = np.diag(self.matrix).copy()


class LimitedQuadratic(Quadratic):
    """A diagonal, corrected by the last ``n_pairs`` of steps and gradients."""

    def __init__(self, diagonal: FloatArray, n_pairs: int = 20) -> None:
        self.base = self.diagonal = diagonal
        self.memory = LimitedMemory(diagonal.size, n_pairs)
        self._wide, self._core = np.zeros((0, diagonal.size)), np.zeros((0, 0))

    def apply(self, vector: FloatArray) -> FloatArray:
        return np.asarray(self.base * vector - (self._core @ (self._wide @ vector)) @ self._wide)

    def learn(self, step: FloatArray, change: FloatArray) -> None:
        if float(step @ change) <= 1e-8 * float(step @ (self.base * step)) or not self.memory.add(step, change):
            return
        self._wide, self._core = self.memory.correction(self.base)
        taken = np.einsum("kj,kj->j", self._wide, self._core @ self._wide)
        self.diagonal = np.maximum(self.base - taken, 1e-3 * self.base)


class _Variables:
    """The vector ``(coef, intercept, size)``; the size is a variable only where the smooth part has curvature in it."""

    def __init__(self, objective: Objective) -> None:
        self.objective, self.m = objective, objective.oracle.n_features
        self.intercept = objective.problem.fit_intercept
        curved = not objective.problem.family.linear_in_multiplier and objective.radius > 0.0
        self.sized = objective.problem.family.flips or curved

    def vector(self, point: Point) -> FloatArray:
        rest = [point.intercept] * self.intercept + [point.size] * self.sized
        return np.concatenate([point.coef, rest])

    def gradient(self, at: Valued) -> FloatArray:
        rest = [at.intercept] * self.intercept + [at.size] * self.sized
        return np.concatenate([at.coef, rest])

    def point(self, x: FloatArray) -> Point:
        coef = x[: self.m]
        least = self.objective.size(coef)
        return Point(
            coef,
            float(x[self.m]) if self.intercept else 0.0,
            max(float(x[-1]), least) if self.sized else least,
        )

    def proximal(self, target: FloatArray, weights: FloatArray, size_price: float) -> FloatArray:
        """Return the nearest point of the cone in the metric ``weights``.

        ``size_price`` is the derivative in the size, used where the smooth part is linear in it.
        """
        m, norm, prices = self.m, self.objective.norm, self.objective.prices
        if self.sized:
            coef, size = prox_with_size(
                norm, prices, target[:m], weights[:m], float(target[-1]), float(weights[-1]), self.objective.floor
            )
            return np.concatenate([coef, target[m:-1], [size]])
        coef, _ = prox_with_size(norm, prices, target[:m], weights[:m], -size_price, 0.0, self.objective.floor)
        return np.concatenate([coef, target[m:]])


def diagonal_model(objective: Objective, at: Valued, width: float) -> LimitedQuadratic:
    """Return the model with the mean curvature of the rows for every coefficient, since columns have unit spread."""
    along, level = objective.oracle.mean_curvature(at.point, width)
    variables, problem = _Variables(objective), objective.problem
    linear = problem.family.linear_in_multiplier
    # Few rows may have curvature now and more after a step. With powers all rows have, but little near an exact fit.
    curvature = max(along * objective.growth(at.point, at.sums), 1e-6 if linear else 1e-300)
    if linear:
        # Even if no row is near a flip now, some may be after a step.
        least = 0.1 * curvature * problem.geometry.label_cost**2 if problem.family.flips else 0.0
        in_size = max(level * objective.lipschitz**2, least)
    else:
        in_size = float(objective.outer_curvature(at)[-1] ** 2)
    rest = [curvature] * variables.intercept + [in_size] * variables.sized
    return LimitedQuadratic(np.concatenate([curvature + objective.ridge, rest]))


def sample_model(
    objective: Objective, at: Valued, width: float, rng: np.random.Generator, least: FloatArray | None = None
) -> DenseQuadratic:
    """Return the model with the Hessian of a sample of the rows with curvature.

    ``width`` may be larger than that of the objective: more rows have curvature then, each less of it. ``least`` is a
    lower bound on the diagonal, from a model at which more rows had curvature.
    """
    variables, m, problem = _Variables(objective), objective.oracle.n_features, objective.problem
    drawn = objective.oracle.sample(at.point, width, sample_size(m), rng)
    root = np.sqrt(drawn.weights * objective.growth(at.point, at.sums))
    edge = [root] * variables.intercept
    edge += [objective.lipschitz * drawn.level * root] * problem.family.flips
    rows = np.column_stack([drawn.rows * root.astype(drawn.rows.dtype)[:, None], *edge])
    known, total = rows.shape[1], m + variables.intercept + variables.sized
    matrix = np.zeros((total, total))
    matrix[:known, :known] = rows.T @ rows
    matrix[np.arange(m), np.arange(m)] += objective.ridge
    if not problem.family.linear_in_multiplier:
        vector = objective.outer_curvature(at)[:total]
        matrix += np.outer(vector, vector)
    diagonal = np.diag(matrix)
    if least is None or not problem.family.linear_in_multiplier:  # near an exact fit a power has little curvature
        least = np.full(total, 1e-6 * max(float(diagonal.max()), 1e-300))
    matrix[np.diag_indices_from(matrix)] += np.maximum(least - diagonal, 0.0) + 1e-9 * diagonal
    return DenseQuadratic(matrix)


def proximal_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    model: Quadratic,
    renew: Callable[[Valued, FloatArray], Quadratic],
    *,
    shorter: Sequence[float] = (0.5, 0.2, 0.05),
    patience: int = 6,
    least: float = 1e-2,
) -> Valued:
    """Minimise until ``enough`` returns True or no step lowers the risk.

    ``renew`` computes the quadratic model anew if a step had to be shortened or the risk has fallen to a sixteenth; its
    diagonal is at least ``least`` times the first one. All ``shorter`` steps are evaluated in one pass; if none lowers
    the risk, the model is damped. The method ends after ``patience`` consecutive failures. It accepts at most
    ``patience`` steps whose change of the risk is below rounding.
    """
    variables, reference, made = _Variables(objective), model.diagonal, start.value
    here, failures, spent, blind, damping = start, 0, 0, 0, 0.0
    # Near an exact fit a power p behaves like |x|^p: Newton's step covers 1 / (p - 1) of the distance, so p - 1 steps
    # are tried too.
    lengths = sorted({1.0, max(1.0, objective.order - 1.0)})
    while spent < max_evaluations and failures < patience:
        x, gradient = variables.vector(here.point), variables.gradient(here)
        step = _inner(variables, model, x, gradient, here.size, damping * reference) - x
        trials = objective.at([variables.point(x + length * step) for length in lengths])
        length, trial = min(zip(lengths, trials, strict=True), key=lambda each: each[1].value)
        spent += 1
        model.learn(length * step, variables.gradient(trial) - gradient)
        whole = trial.value < here.value
        if not whole and blind < patience and trial.value <= here.value + 4e-16 * abs(here.value):
            # The two risks are equal up to rounding. The step is accepted, since it lowers the quadratic model.
            whole, blind = True, blind + 1
        if not whole:
            points = [variables.point(x + length * step) for length in shorter]
            trial = min(objective.at(points), key=lambda each: each.value)
            spent += 1
        fallen = whole or trial.value < here.value
        if fallen:
            failures, here = 0, trial
            if enough(here):
                break
        if whole:
            damping = 0.25 * damping if damping > 1e-3 else 0.0
            if here.value > made / 16.0:
                continue
        model, made = renew(here, least * reference), here.value
        if not fallen:
            failures += 1
            damping = max(8.0 * damping, 0.1)
    return here


def _inner(
    variables: _Variables,
    model: Quadratic,
    x0: FloatArray,
    gradient: FloatArray,
    size_price: float,
    added: FloatArray,
    *,
    most: int = 400,
    share: float = 0.02,
) -> FloatArray:
    """Minimise the quadratic model with a diagonal added to it, by accelerated proximal gradient with restarts.

    It ends when the length of a step is ``share`` times that of the first, or after ``most`` steps.
    """
    weights, scale = model.diagonal + added, 1.0
    x, image = x0, np.zeros_like(x0)  # image: B (x - x0)
    ahead, ahead_image, momentum = x, image, 1.0
    first = np.inf
    for count in range(most):
        slope = gradient + ahead_image
        while True:
            new = variables.proximal(ahead - slope / (scale * weights), scale * weights, size_price)
            move = new - ahead
            new_image = model.apply(new - x0) + added * (new - x0)
            bent, straight = float(move @ (new_image - ahead_image)), float(move @ (weights * move))
            if bent <= scale * straight * (1.0 + 1e-12) or scale > 1e8:
                break
            scale *= 1.5
        length = scale * np.sqrt(straight)
        if count == 0:
            first = length
        done = length <= share * first
        if float((ahead - new) @ (weights * (new - x))) > 0.0:
            momentum = 1.0
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        push = (momentum - 1.0) / grown
        ahead, ahead_image = new + push * (new - x), new_image + push * (new_image - image)
        x, image, momentum = new, new_image, grown
        if done:
            break
    return x
