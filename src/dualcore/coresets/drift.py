"""A test whether the anchor of a stream, learned from its first rows, is close to the optimum of all rows seen."""

from __future__ import annotations

import numpy as np

from dualcore.coresets.anchors import anchor_at
from dualcore.problem import Anchor, Problem
from dualcore.solvers import Solution
from dualcore.solvers.pilot import Pilot


class DriftWarning(UserWarning):
    """The distribution of a stream's rows has changed so much that its anchor is far from the optimum."""


def drift_text(excess: float) -> str:
    """Return the message of a `DriftWarning`; ``excess`` is the relative excess risk of the anchor on the kept rows."""
    return (
        "The first rows do not stand for all: on the rows kept, the anchor learned from them has a risk "
        f"{excess:.1%} above the least. The coreset was drawn from them around a new anchor, at which the sums over "
        "all rows are not known. For a better one shuffle the rows."
    )


def find_drift(problem: Problem, anchor: Anchor, rows: Pilot, best: Solution, size: float) -> float | None:
    r"""Return the relative excess risk of an anchor on ``rows``, or None if chance explains it.

    The risk of an anchor trained on ``size`` rows of the same distribution exceeds the minimum by about
    ``tr(H^-1 G) / (2 size)``, with ``H`` the Hessian of the risk and ``G`` the covariance of the gradients of rows. Let
    ``d_i`` be the difference of ``h_i`` between both models. Where ``G`` is proportional to ``H``,

    .. math:: 4 \, \text{size} \, \frac{(R(\text{anchor}) - R(\text{best}))^2}{\text{Var}(d)}

    is close to the number of parameters, in any unit of the loss. It grows with the square of the distance between the
    models.

    ``rows`` are all kept rows, weighted to represent all rows seen, and ``best`` is their optimum.
    """
    found = problem.minimum(anchor.coef, anchor.intercept, rows.data)
    excess = found.value - best.value
    if not excess > 1e-3 * abs(best.value):  # close enough, whether or not chance explains it
        return None
    there = anchor_at(problem, best)
    lam = problem.family.feasible_multiplier(anchor.coef, found.multiplier)
    differences = problem.h(anchor.coef, anchor.intercept, lam, rows.X, rows.y) - problem.h(
        there.coef, there.intercept, there.multiplier, rows.X, rows.y
    )
    variance = float(rows.weights @ (differences - rows.weights @ differences) ** 2)
    n_parameters = problem.family.n_outputs * (rows.X.shape[1] + 1)
    likely = n_parameters + 4.0 * np.sqrt(2.0 * n_parameters)
    if 4.0 * size * excess**2 <= 4.0 * likely * variance:  # up to twice the distance that chance explains
        return None
    return float(excess / max(abs(best.value), np.finfo(float).tiny))
