"""The moments that the bound on all differences of coefficients can hold.

``max_{j,k} ||theta_j - theta_k||_* <= lam`` costs ``sigma lam``. Its multipliers are a flow of vectors between classes:
``f_jk`` from j to k, of cost ``sum ||f_jk||`` in the feature norm, with the divergence ``M_j = sum_k f_jk - f_kj``. For
all coefficients ``sum_j theta_j . M_j <= cost * max_{j,k} ||theta_j - theta_k||_*``, so a moment that some flow of cost
``sigma`` explains is held by the radius. That is the transport constraint of the dual problem.
"""

from __future__ import annotations

from typing import NamedTuple

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, Norm

__all__ = ["Transport", "routing_cost"]


class Transport(NamedTuple):
    """A moment between classes, shape (K, m), and the cost of a flow that has it as its divergence."""

    moment: FloatArray
    cost: float


def routing_cost(norm: Norm, moment: FloatArray) -> float:
    """Return the cost of one flow with this divergence (columns summing to zero), the least one for the l1 norm.

    The l1 norm prices features apart, and of one feature what leaves a class must be carried once. Otherwise every
    class sends to every other the K-th part of their difference.
    """
    if isinstance(norm, L1Norm):
        return 0.5 * sum(norm.value(row) for row in moment)
    n_classes = len(moment)
    total: float = sum((norm.value(moment[j] - moment[k]) for j in range(n_classes) for k in range(j)), 0.0)
    return total / n_classes
