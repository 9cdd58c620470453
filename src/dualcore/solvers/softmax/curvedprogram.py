"""The cones of softmax problems: the bound on all differences of coefficients, whose multipliers are a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.certificates.softmax.transport import Transport
from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import Norm
from dualcore.solvers.coneprogram import Affine, ConeProgram, ConeSolution
from dualcore.solvers.cones import DUAL_BOUNDS

__all__ = ["CurvedProgram", "bound_differences"]


class CurvedProgram(ConeProgram):
    """A cone program whose objective has one dense quadratic term, ``v' matrix v / 2`` in the variables ``v``."""

    def minimise_form(self, matrix: FloatArray, variables: Affine) -> None:
        """Add the quadratic term; ``variables`` as returned by `variables`."""
        self._form = (variables.terms[0][0], matrix)

    def _assemble(self) -> tuple[Any, FloatArray, Any, FloatArray]:
        quadratic, linear, left, right = super()._assemble()
        start, matrix = self._form
        rows, columns = np.triu_indices(len(matrix))
        form = sp.csc_matrix((matrix[rows, columns], (rows + start, columns + start)), shape=quadratic.shape)
        return quadratic + form, linear, left, right


def bound_differences(
    program: ConeProgram, norm: Norm, bound: Affine, coef: Affine, n_classes: int, n_features: int
) -> Callable[[ConeSolution], Transport]:
    """Demand ``||theta_j - theta_k||_* <= bound`` for all pairs of classes; return a function that reads the flow.

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
    kept = np.arange(movable.size)
    scaled = sp.csr_array((1.0 / prices[movable], (kept, movable)), shape=(kept.size, n_features))
    flows = []
    for j in range(n_classes):
        for k in range(j):
            sign = np.zeros((1, n_classes))
            sign[0, j], sign[0, k] = 1.0, -1.0
            difference = coef.mapped(sp.csr_array(sp.kron(sign, scaled)))
            flows.append((j, k, DUAL_BOUNDS[type(norm)](program, bound, difference)))

    def read(solution: ConeSolution) -> Transport:
        moment, cost = np.zeros((n_classes, n_features)), 0.0
        for j, k, multiplier in flows:
            flow = multiplier(solution)
            cost += type(norm)().value(flow)
            moment[j, movable] += flow / prices[movable]
            moment[k, movable] -= flow / prices[movable]
        return Transport(moment, cost)

    return read
