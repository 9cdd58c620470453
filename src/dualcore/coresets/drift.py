"""Whether the anchor of a stream is still one for all rows seen."""

from __future__ import annotations

import numpy as np

from dualcore.coresets.anchors import anchor_at
from dualcore.problem import Anchor, Problem
from dualcore.solvers import Solution
from dualcore.solvers.pilot import Pilot


class DriftWarning(UserWarning):
    """The rows of a stream changed so much that its anchor does not serve them all."""


def drift_text(excess: float) -> str:
    """Return what a coreset of drifting rows is; ``excess`` is the relative one of the anchor on the rows kept."""
    return (
        "The first rows do not stand for all: on the rows kept, the anchor learned from them has a risk "
        f"{excess:.1%} above the least. The coreset was drawn from them around a new anchor, at which the sums over "
        "all rows are not known. For a better one shuffle the rows."
    )


def find_drift(problem: Problem, anchor: Anchor, rows: Pilot, best: Solution, size: float) -> float | None:
    r"""Return how much worse an anchor is than the optimum of ``rows``; None where it is as near as chance explains.

    An anchor trained on ``size`` rows like all others exceeds the least risk by about ``tr(H^-1 G) / (2 size)``, with
    ``H`` the Hessian of the risk and ``G`` the covariance of the gradients of rows. Let ``d_i`` be the difference of
    ``h_i`` between both models. Where ``G`` is proportional to ``H``,

    .. math:: 4 \, \text{size} \, \frac{(R(\text{anchor}) - R(\text{best}))^2}{\text{Var}(d)}

    is then near the number of parameters, whatever the units of the loss. It grows with the square of the distance.

    ``rows`` are all that are kept, weighted to stand for all rows seen, and ``best`` is their model.
    """
    found = problem.minimum(anchor.coef, anchor.intercept, rows.data)
    excess = found.value - best.value
    if not excess > 1e-3 * abs(best.value):  # it serves whatever chance says
        return None
    there = anchor_at(problem, best)
    lam = problem.family.feasible_multiplier(anchor.coef, found.multiplier)
    differences = problem.h(anchor.coef, anchor.intercept, lam, rows.X, rows.y) - problem.h(
        there.coef, there.intercept, there.multiplier, rows.X, rows.y
    )
    variance = float(rows.weights @ (differences - rows.weights @ differences) ** 2)
    n_parameters = problem.family.n_outputs * (rows.X.shape[1] + 1)
    likely = n_parameters + 4.0 * np.sqrt(2.0 * n_parameters)
    if 4.0 * size * excess**2 <= 4.0 * likely * variance:  # up to twice as far as chance explains
        return None
    return float(excess / max(abs(best.value), np.finfo(float).tiny))
