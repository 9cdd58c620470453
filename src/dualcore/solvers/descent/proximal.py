"""Proximal quasi-Newton: the smooth part by a quadratic model, the norm as it is.

Each step minimises the quadratic model of the smooth part on the cone ``k >= max(||theta||_*, floor)``, which takes no
look at the data, and is shortened until the risk falls. The model starts from the Hessian of a sample, or a diagonal,
and learns from the gradients that the evaluations bring (BFGS).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.solvers.descent.metric import DiagonalHessian, Hessian, SampleHessian
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.prox import prox_with_size
from dualcore.solvers.descent.rowsums import Point
from dualcore.solvers.lbfgs import LimitedMemory

# Pairs of steps and gradients that a model without a matrix keeps.
_PAIRS = 20
# Steps of the inner method, and the share of its first step at which it stops.
_INNER, _INNER_SHARE = 400, 0.02
# Step lengths tried at once where the full step does not lower the risk.
_LENGTHS = (0.5, 0.2, 0.05)
# Steps in a row that lower nothing before the method gives up.
_FAILURES = 6
# Steps that are taken although the risk is the same but for rounding.
_BLIND, _ROUNDING = 6, 4e-16
# A renewed model's diagonal is at least this share of the first one's.
_LEAST = 1e-2


class Quadratic(ABC):
    """A symmetric positive matrix ``B`` that learns: ``B s = y`` for the latest step and change of gradient."""

    diagonal: FloatArray

    @abstractmethod
    def apply(self, vector: FloatArray) -> FloatArray:
        """Return ``B v``."""

    @abstractmethod
    def learn(self, step: FloatArray, change: FloatArray) -> None:
        """Take in a step and the change of the gradient along it."""


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
    """A diagonal, corrected by the last few pairs."""

    def __init__(self, diagonal: FloatArray) -> None:
        self.base = self.diagonal = diagonal
        self.memory = LimitedMemory(diagonal.size, _PAIRS)
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
    """The variables ``(coef, intercept, size)``; the size is one where the smooth part curves in it."""

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
        """Return the nearest point of the cone in the metric ``weights``; ``size_price`` where the size is linear."""
        m, norm, prices = self.m, self.objective.norm, self.objective.prices
        if self.sized:
            coef, size = prox_with_size(
                norm, prices, target[:m], weights[:m], float(target[-1]), float(weights[-1]), self.objective.floor
            )
            return np.concatenate([coef, target[m:-1], [size]])
        coef, _ = prox_with_size(norm, prices, target[:m], weights[:m], -size_price, 0.0, self.objective.floor)
        return np.concatenate([coef, target[m:]])


def model_of(hessian: Hessian, objective: Objective, at: Valued, reference: FloatArray | None = None) -> Quadratic:
    """Return the quadratic model of the smooth part in (coef, intercept, size).

    ``reference`` is a diagonal that this one is not far below: that of a model where more rows curve.
    """
    m, variables = objective.oracle.n_features, _Variables(objective)
    if isinstance(hessian, SampleHessian):
        matrix = hessian.matrix.copy()
        matrix[np.arange(m), np.arange(m)] += objective.ridge
        if not objective.problem.family.linear_in_multiplier:
            vector, known = objective.outer_curvature(at), matrix.shape[0]
            matrix = (
                np.pad(matrix, (0, variables.sized))
                + np.outer(vector, vector)[: known + variables.sized, : known + variables.sized]
            )
        diagonal = np.diag(matrix)
        least = 1e-6 * max(float(diagonal.max()), 1e-300) if reference is None else _LEAST * reference
        matrix[np.diag_indices_from(matrix)] += np.maximum(least - diagonal, 0.0) + 1e-9 * diagonal
        return DenseQuadratic(matrix)
    if not isinstance(hessian, DiagonalHessian):
        raise TypeError("the Hessian is that of a sample or a diagonal")
    squares = hessian.curvature + objective.ridge
    linear = objective.problem.family.linear_in_multiplier
    in_size = hessian.in_size if linear else float(objective.outer_curvature(at)[-1] ** 2)
    rest = [hessian.curvature] * variables.intercept + [in_size] * variables.sized
    return LimitedQuadratic(np.concatenate([squares, rest]))


def proximal_newton(
    objective: Objective,
    start: Valued,
    enough: Callable[[Valued], bool],
    max_evaluations: int,
    hessian: Hessian,
    renew: Callable[[Valued], Hessian],
) -> Valued:
    """Minimise until ``enough`` says so, or no step lowers the risk any more.

    A step that has to be shortened shows that the model is out of date: it is made anew from ``renew``, and damped
    where even its shortened steps lower nothing.
    """
    variables = _Variables(objective)
    model = model_of(hessian, objective, start)
    reference = model.diagonal
    here, failures, spent, blind, damping = start, 0, 0, 0, 0.0
    while spent < max_evaluations and failures < _FAILURES:
        x, gradient = variables.vector(here.point), variables.gradient(here)
        step = _inner(variables, model, x, gradient, here.size, damping * reference) - x
        [trial] = objective.at([variables.point(x + step)])
        spent += 1
        model.learn(step, variables.gradient(trial) - gradient)
        whole = trial.value < here.value
        if not whole and blind < _BLIND and trial.value <= here.value + _ROUNDING * abs(here.value):
            # The last digits of the risk cannot tell the points apart; the model still can.
            whole, blind = True, blind + 1
        if not whole:
            points = [variables.point(x + length * step) for length in _LENGTHS]
            trial = min(objective.at(points), key=lambda each: each.value)
            spent += 1
        fallen = whole or trial.value < here.value
        if fallen:
            failures, here = 0, trial
            if enough(here):
                break
        if whole:
            damping = 0.25 * damping if damping > 1e-3 else 0.0
            continue
        model = model_of(renew(here), objective, here, reference)
        if not fallen:
            failures += 1
            damping = max(8.0 * damping, 0.1)
    return here


def _inner(
    variables: _Variables, model: Quadratic, x0: FloatArray, gradient: FloatArray, size_price: float, added: FloatArray
) -> FloatArray:
    """Minimise the quadratic model with a diagonal added to it, by accelerated proximal gradient with restarts."""
    weights, scale = model.diagonal + added, 1.0
    x, image = x0, np.zeros_like(x0)  # image: B (x - x0)
    ahead, ahead_image, momentum = x, image, 1.0
    first = np.inf
    for count in range(_INNER):
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
        done = length <= _INNER_SHARE * first
        if float((ahead - new) @ (weights * (new - x))) > 0.0:
            momentum = 1.0
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        push = (momentum - 1.0) / grown
        ahead, ahead_image = new + push * (new - x), new_image + push * (new_image - image)
        x, image, momentum = new, new_image, grown
        if done:
            break
    return x
