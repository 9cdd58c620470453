r"""Steps for the l1 norm: every coefficient within half of the widest difference, which is a number of the model too.

Adding a number to the coefficients of a feature in all classes changes nothing, so that the widest difference of the l1
norm is the least c with :math:`|U_{kj}| \le c / 2`, in units without prices. Nothing of it is smoothed:

.. math:: \min_{W, c}\; F(W, c) \quad \text{subject to} \quad |U| \le c / 2

Coefficients at a bound that the gradient holds there move with c, the others by quasi-Newton steps that are projected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.certificates.softmax.widest import SmoothedMaximum
from dualcore.data.arrays import FloatArray
from dualcore.solvers.softmax.classmetric import ClassMetric
from dualcore.solvers.softmax.smoothrisk import SmoothRisk, SmoothRiskValue

__all__ = ["BoundedSteps"]

# Pairs of the quasi-Newton formula, and the least cosine of a step and its change of the gradient.
_MOST_PAIRS, _CURVED = 30, 1e-10
# A coefficient this near to its bound, relatively, is at it.
_AT = 1e-9
# Factor on the length of a step that does not gain enough, and lengths tried.
_SHORTER, _TRIALS = 0.4, 20


class BoundedSteps:
    """Rounds of such steps; pairs of steps and changes of the gradient outlive a round.

    Parameters
    ----------
    risk : SmoothRisk
        Of a problem with the l1 norm and a positive radius.
    scale : float
        The bound to start with for a model without coefficients.
    """

    def __init__(self, risk: SmoothRisk, scale: float) -> None:
        self.risk, self.scale = risk, scale
        shape = risk.design.shape
        self._steps, self._changes = np.empty((0, shape[0] * shape[1] + 1)), np.empty((0, shape[0] * shape[1] + 1))

    def round(
        self, W: FloatArray, width: float, metric: ClassMetric, enough: float, most: int, max_evaluations: int
    ) -> SmoothRiskValue:
        """Return where steps lead that end once they gain less than ``enough``, or after ``most`` evaluations."""
        risk, m = self.risk, self.risk.price.size
        U = risk.unit(W)
        W = W.copy()
        W[:, :m] -= 0.5 * (U.max(axis=0) + U.min(axis=0)) * risk.price
        bound = risk.widest.exact(U) or self.scale
        here, first = risk.at(W, width, 0.0, bound=bound), risk.n_evaluations
        while True:
            signs = self._signs(here, bound)
            # What a coefficient at its bound changes with the bound; free numbers do not.
            along = np.zeros(W.shape)
            along[:, :m] = 0.5 * risk.price * signs
            free = np.append((along == 0.0).ravel(), True)
            stiff = float((metric.inward(along) ** 2).sum())
            gradient = self._reduced(np.append(here.gradient, here.budget)[None, :], along, free)[0]
            plain = _divided(gradient, metric, free, stiff)
            gain = 0.5 * float(gradient @ plain)
            taken = risk.n_evaluations - first
            if gain <= enough or taken >= most or risk.n_evaluations >= max_evaluations:
                break
            step = -self._direction(gradient, metric, along, free, stiff)
            if not float(gradient @ step) < 0.0:
                self._forget()
                step = -plain
            change = step[:-1].reshape(W.shape) + step[-1] * along
            ahead = self._search(here, bound, change, float(step[-1]), width)
            if ahead is None and not len(self._steps):
                break
            if ahead is None:
                self._forget()
                continue
            there, wider = ahead
            self._remember(
                np.append(there.W - here.W, wider - bound),
                np.append(there.gradient - here.gradient, there.budget - here.budget),
            )
            here, bound = there, wider
        self.scale = bound
        return self._with_flow(here, bound, signs)

    def _signs(self, here: SmoothRiskValue, bound: float) -> FloatArray:
        """Return the signs of the coefficients that the gradient holds at their bounds, 0 for the others: (K, m)."""
        risk = self.risk
        U, slope = risk.unit(here.W), here.gradient[:, : risk.price.size]
        signs = np.sign(U) * ((np.abs(U) >= 0.5 * bound * (1.0 - _AT)) & (slope * U < 0.0))
        return np.asarray(np.where(risk.price > 0.0, signs, 0.0))

    def _with_flow(self, here: SmoothRiskValue, bound: float, signs: FloatArray) -> SmoothRiskValue:
        """Put the flow between classes into a point: what the gradient of the loss has at the bounds."""
        flow = np.where(signs != 0.0, -here.gradient[:, : signs.shape[1]] * self.risk.price, 0.0)
        cost = 0.5 * float(np.abs(flow).sum())
        flow = flow / cost if cost > 0.0 else flow
        return here._replace(found=SmoothedMaximum(bound, flow, flow))

    def _search(
        self, here: SmoothRiskValue, bound: float, change: FloatArray, wider: float, width: float
    ) -> tuple[SmoothRiskValue, float] | None:
        """Return the first projected point of a shrinking step that gains enough, and its bound."""
        risk, m, length = self.risk, self.risk.price.size, 1.0
        held = risk.price > 0.0
        for _ in range(_TRIALS):
            most = max(bound + length * wider, 1e-3 * bound)
            W = here.W + length * change
            half = np.where(held, 0.5 * most * risk.price, np.inf)
            W[:, :m] = np.clip(W[:, :m], -half, half)
            there = risk.at(W, width, 0.0, bound=most)
            expected = float((here.gradient * (W - here.W)).sum()) + here.budget * (most - bound)
            if there.value - here.value <= 1e-4 * min(expected, 0.0) + 1e-14 * abs(here.value):
                return there, most
            length *= _SHORTER
        return None

    def _reduced(self, gradients: FloatArray, along: FloatArray, free: npt.NDArray[np.bool_]) -> FloatArray:
        """Return derivatives, one a row, by free numbers and by the bound with all that moves with it."""
        out = np.where(free, gradients, 0.0)
        out[:, -1] += gradients[:, :-1] @ along.ravel()
        return out

    def _direction(
        self, gradient: FloatArray, metric: ClassMetric, along: FloatArray, free: npt.NDArray[np.bool_], stiff: float
    ) -> FloatArray:
        """Return the limited-memory BFGS formula's inverse second derivative times a gradient."""
        steps, changes = np.where(free, self._steps, 0.0), self._reduced(self._changes, along, free)
        products = np.einsum("ij,ij->i", steps, changes)
        sizes = np.sqrt(np.einsum("ij,ij->i", steps, steps) * np.einsum("ij,ij->i", changes, changes))
        kept = np.flatnonzero(products > _CURVED * sizes)
        if not kept.size:
            return _divided(gradient, metric, free, stiff)
        out, shares = gradient.copy(), np.zeros(len(products))
        for i in kept[::-1]:
            shares[i] = float(steps[i] @ out) / products[i]
            out -= shares[i] * changes[i]
        last = changes[kept[-1]]
        factor = float(products[kept[-1]]) / float(last @ _divided(last, metric, free, stiff))
        out = factor * _divided(out, metric, free, stiff)
        for i in kept:
            out += (shares[i] - float(changes[i] @ out) / products[i]) * steps[i]
        return np.asarray(out)

    def _remember(self, step: FloatArray, change: FloatArray) -> None:
        self._steps = np.vstack([self._steps[1 - _MOST_PAIRS :], step])
        self._changes = np.vstack([self._changes[1 - _MOST_PAIRS :], change])

    def _forget(self) -> None:
        self._steps, self._changes = self._steps[:0], self._changes[:0]


def _divided(given: FloatArray, metric: ClassMetric, free: npt.NDArray[np.bool_], stiff: float) -> FloatArray:
    """Return the metric's inverse times a gradient, on the free numbers; the bound has a scale of its own."""
    inner = metric.outward(metric.gradient(given[:-1].reshape(metric.shape)))
    return np.where(free, np.append(inner, given[-1] / stiff if stiff > 0.0 else 0.0), 0.0)
