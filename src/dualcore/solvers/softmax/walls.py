r"""The l1 norm where labels stay: the problem of `within` by scipy's method for walls that stand still.

.. math:: \min_{W, c}\; F(W, c) \quad \text{subject to} \quad |U| \le c / 2

With :math:`c = c_0 t` and :math:`W = t Y` the walls stand still, :math:`|Y| \le c_0 / 2`, and scipy's L-BFGS-B takes
the problem. The map is one to one for positive t: every local minimum is one of the convex problem. It needs no metric,
and columns that depend on each other, as one-hot columns do, do not cut its steps short. Changes of label make another
function every round, for which it forgets what it learned: those are for `within`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from dualcore.certificates.softmax.widest import SmoothedMaximum
from dualcore.data.arrays import FloatArray
from dualcore.solvers.softmax.smoothrisk import SmoothRisk, SmoothRiskValue

__all__ = ["FixedWalls"]

# Pairs of the quasi-Newton formula.
_PAIRS = 30
# A coefficient this near to its bound, relatively, is at it.
_AT = 1e-9
# The least factor on the bound in one run; a smaller model is reached by several.
_LEAST = 1e-3
# The unit of coefficients, for one in which the risk is curved along each of them as it is along the bound, by
# measurement; and the units that may come of it.
_UNIT, _LEAST_UNIT, _MOST_UNIT = 0.4, 0.1, 100.0


class _Enough(Exception):  # noqa: N818  (no error: the caller has what it wants)
    """Ends a run of scipy's method."""


class FixedWalls:
    """Runs of L-BFGS-B on the model and its bound.

    Parameters
    ----------
    risk : SmoothRisk
        Of a problem with the l1 norm and a positive radius.
    scale : float
        The bound to start with for a model without coefficients.
    """

    def __init__(self, risk: SmoothRisk, scale: float) -> None:
        self.risk, self.scale = risk, scale

    def run(
        self, W: FloatArray, width: float, is_enough: Callable[[SmoothRiskValue], bool]
    ) -> tuple[SmoothRiskValue, bool]:
        """Descend from a model until ``is_enough``, which is asked after every step, or until no step gains.

        Returns the last point, with the flow between classes that belongs to it, and whether it was enough.
        """
        risk, m = self.risk, self.risk.price.size
        U = risk.unit(W)
        W = W.copy()
        W[:, :m] -= 0.5 * (U.max(axis=0) + U.min(axis=0)) * risk.price
        first = risk.widest.exact(U) or self.scale
        here = risk.at(W, width, 0.0, bound=first)
        self.scale, last = first, here
        units = np.ones(W.shape)
        moves = np.zeros(W.shape, dtype=bool)  # with the bound: coefficients that have one
        moves[:, :m] = risk.price > 0.0
        units[moves] = self._unit(here)

        def value(numbers: FloatArray) -> tuple[float, FloatArray]:
            nonlocal here
            Y, t = units * numbers[:-1].reshape(W.shape), float(numbers[-1])
            factor = np.where(moves, t, 1.0)
            here = risk.at(factor * Y, width, 0.0, bound=first * t)
            by_bound = float((here.gradient * Y)[moves].sum()) + first * here.budget
            return here.value, np.append(factor * units * here.gradient, by_bound)

        def after_step(numbers: FloatArray) -> None:
            nonlocal last
            self.scale, last = first * float(numbers[-1]), here
            if is_enough(self._with_flow(here)):
                raise _Enough

        half = np.full(W.shape, np.inf)
        half[moves] = np.broadcast_to(0.5 * first * risk.price, (len(W), m))[moves[:, :m]]
        low, high = np.append(-half / units, _LEAST), np.append(half / units, np.inf)
        try:
            minimize(
                value,
                np.clip(np.append(W / units, 1.0), low, high),
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack([low, high]),
                callback=after_step,
                options={"maxcor": _PAIRS, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0},
            )
        except _Enough:
            return self._with_flow(last), True
        return self._with_flow(last), False

    def _unit(self, here: SmoothRiskValue) -> float:
        """Return a unit of coefficients of about unit spread in which the loss is curved as along the whole model."""
        risk = self.risk
        levels = here.W[:, risk.price.size :].sum(axis=1)
        chances, across = softmax(here.scores, axis=1), here.scores - levels
        one = float(risk.masses @ (chances * (1.0 - chances)).mean(axis=1))
        all_along = float(risk.masses @ ((chances * across**2).sum(axis=1) - (chances * across).sum(axis=1) ** 2))
        ratio = max(all_along, 0.0) / max(one, 1e-300)
        return float(np.clip(_UNIT * np.sqrt(ratio), _LEAST_UNIT, _MOST_UNIT)) if ratio > 0.0 else 1.0

    def _with_flow(self, here: SmoothRiskValue) -> SmoothRiskValue:
        """Put the flow between classes into a point: what the gradient of the loss has at the bounds."""
        risk, m = self.risk, self.risk.price.size
        U, slope = risk.unit(here.W), here.gradient[:, :m]
        at_bound = (np.abs(U) >= 0.5 * self.scale * (1.0 - _AT)) & (slope * U < 0.0)
        flow = np.where(at_bound, -slope * risk.price, 0.0)
        cost = 0.5 * float(np.abs(flow).sum())
        flow = flow / cost if cost > 0.0 else flow
        return here._replace(found=SmoothedMaximum(self.scale, flow, flow))
