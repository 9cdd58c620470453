"""The cones of softmax problems: the bound on all differences of coefficients, whose multipliers are a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.softmax.transport import Transport
from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, L2Norm, LinfNorm, Norm
from dualcore.solvers.coneprogram import Affine, ConeProgram, ConeSolution

__all__ = ["CurvedProgram", "bound_differences"]


class CurvedProgram(ConeProgram):
    """A cone program whose objective has one dense quadratic term, ``v' matrix v / 2`` in the variables ``v``."""

    def minimise_form(self, matrix: FloatArray, variables: Affine) -> None:
        """Add the quadratic term; ``variables`` as handed out by `variables`."""
        self._form = (variables.terms[0][0], matrix)

    def _assemble(self) -> tuple[Any, FloatArray, Any, FloatArray]:
        quadratic, linear, left, right = super()._assemble()
        start, matrix = self._form
        rows, columns = np.triu_indices(len(matrix))
        form = sp.csc_matrix((matrix[rows, columns], (rows + start, columns + start)), shape=quadratic.shape)
        return quadratic + form, linear, left, right


Reading = Callable[[ConeSolution], Transport]


def bound_differences(
    program: ConeProgram, norm: Norm, bound: Affine, coef: Affine, n_classes: int, n_features: int
) -> Reading:
    """Demand ``||theta_j - theta_k||_* <= bound`` for all classes and return how to read the flow.

    Parameters
    ----------
    bound : Affine of length 1
    coef : Affine of length n_classes * n_features
        Class by class.
    """
    prices = np.ones(n_features) if norm.weights is None else norm.weights
    movable = np.flatnonzero(np.isfinite(prices))
    if movable.size == 0:
        return lambda solution: Transport(np.zeros((n_classes, n_features)), 0.0)
    picked = coef.mapped(_columns(n_classes, n_features, movable))
    builder = _by_feature if isinstance(norm, L1Norm) else _by_pair
    flow_of = builder(program, norm, bound, picked, n_classes, prices[movable])

    def read(solution: ConeSolution) -> Transport:
        inside, cost = flow_of(solution)
        moment = np.zeros((n_classes, n_features))
        moment[:, movable] = inside
        return Transport(moment, cost)

    return read


def _columns(n_classes: int, n_features: int, kept: np.ndarray) -> sp.csr_array:
    """Select some features of every class."""
    choose = sp.csr_array((np.ones(kept.size), (np.arange(kept.size), kept)), shape=(kept.size, n_features))
    return sp.csr_array(sp.kron(sp.eye_array(n_classes), choose))


def _by_feature(
    program: ConeProgram, norm: Norm, bound: Affine, coef: Affine, n_classes: int, prices: FloatArray
) -> Callable[[ConeSolution], tuple[FloatArray, float]]:
    """l1 norm: over its price, the largest and the smallest coefficient of a feature differ by at most the bound."""
    m = prices.size
    top, low = program.variables(m), program.variables(m)
    every = sp.kron(np.ones((n_classes, 1)), sp.eye_array(m))
    scaled = coef.mapped(sp.diags_array(np.tile(1.0 / prices, n_classes)))
    above = program.nonnegative(top.mapped(every) - scaled)
    below = program.nonnegative(scaled - low.mapped(every))
    program.nonnegative(bound.spread(m) - top + low)

    def read(solution: ConeSolution) -> tuple[FloatArray, float]:
        flow = (solution.multipliers[below] - solution.multipliers[above]).reshape(n_classes, m)
        flow = flow - flow.mean(axis=0)  # what leaves a class arrives in another, to the last digit
        return flow / prices, 0.5 * float(np.abs(flow).sum())

    return read


def _by_pair(
    program: ConeProgram, norm: Norm, bound: Affine, coef: Affine, n_classes: int, prices: FloatArray
) -> Callable[[ConeSolution], tuple[FloatArray, float]]:
    """Any norm: one cone for every pair of classes."""
    m = prices.size
    scaled = sp.diags_array(1.0 / prices)
    flows = []
    for j in range(n_classes):
        for k in range(j):
            sign = np.zeros((1, n_classes))
            sign[0, j], sign[0, k] = 1.0, -1.0
            flows.append((j, k, _PAIR_CONES[type(norm)](program, bound, coef.mapped(sp.kron(sign, scaled)))))

    def read(solution: ConeSolution) -> tuple[FloatArray, float]:
        moment, cost = np.zeros((n_classes, m)), 0.0
        plain = type(norm)()
        for j, k, multiplier in flows:
            flow = multiplier(solution)
            cost += plain.value(flow)
            moment[j] += flow / prices
            moment[k] -= flow / prices
        return moment, cost

    return read


def _pair_length(program: ConeProgram, bound: Affine, vector: Affine) -> Callable[[ConeSolution], FloatArray]:
    _, inside = program.second_order(bound, vector)
    return lambda solution: solution.multipliers[inside]


def _pair_sum(program: ConeProgram, bound: Affine, vector: Affine) -> Callable[[ConeSolution], FloatArray]:
    size = program.variables(len(vector))
    over = program.nonnegative(size - vector)
    under = program.nonnegative(size + vector)
    program.nonnegative(bound - size.mapped(np.ones(len(vector))))
    return lambda solution: solution.multipliers[under] - solution.multipliers[over]


_PAIR_CONES: dict[type[Norm], Callable[[ConeProgram, Affine, Affine], Callable[[ConeSolution], FloatArray]]] = {
    L2Norm: _pair_length,
    LinfNorm: _pair_sum,
}
