"""What a feature without a wall asks of the multiplier: ``lam >= rate * ||theta_J||_*``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag

from dualcore.data.arrays import FloatArray
from dualcore.problem.families import BoxFamily
from dualcore.problem.geometry import L1Norm, LinfNorm

__all__ = ["LengthCaps", "LinearCaps", "find_caps"]


class LinearCaps:
    """Caps ``rows @ x <= 0``."""

    def __init__(self, rows: FloatArray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients."""
        return self.rows @ x, self.rows

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return None: they have none."""
        return None


class LengthCaps:
    """Caps ``| rates * (x)_J |_2 - lam <= 0``, ``J`` the signs on which a feature runs away.

    ``up``, ``down`` of shape (k, d): the rate of a coefficient above and below zero, 0 where a wall stops it.
    """

    def __init__(self, up: FloatArray, down: FloatArray, multiplier: FloatArray, soft: float) -> None:
        self.up, self.down, self.multiplier, self.soft = up, down, multiplier, soft

    def __len__(self) -> int:
        return len(self.up)

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        rate = np.where(x > 0.0, self.up, self.down)
        part = rate * x
        return rate, part, np.sqrt((part * part).sum(axis=1) + self.soft**2)

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients; rounded off at zero, where the length has an edge."""
        rate, part, length = self._parts(x)
        gradient = rate * part / length[:, None]
        return length - self.soft + self.multiplier @ x, gradient + self.multiplier

    def curvature(self, x: FloatArray, multipliers: FloatArray) -> FloatArray | None:
        """Return the Hessian of their sum."""
        rate, part, length = self._parts(x)
        out = np.diag((multipliers / length) @ (rate * rate))
        pull = rate * part
        return np.asarray(out - (pull * (multipliers / length**3)[:, None]).T @ pull)


def find_caps(
    box: BoxFamily, scale: FloatArray, parts: int, free: npt.NDArray[np.intp], soft: float
) -> LinearCaps | LengthCaps:
    """Return the caps in the variables ``free`` of a bundle: coefficients (twice where split), level, multiplier.

    ``soft``: over which multiplier the edge of a length at zero is rounded off.
    """
    m = (scale.size - 2) // parts
    low, high = box.support.spread(m)
    prices = np.ones(m) if box.geometry.norm.weights is None else box.geometry.norm.weights
    least, most = box.loss.slope_range
    above, below = np.zeros((2, m)), np.zeros((2, m))
    for row, push in enumerate((1.0, -1.0)):
        rate = -least if box.is_classification or push < 0.0 else most
        sides = np.isposinf(high), np.isneginf(low)
        rises, falls = sides if push > 0.0 else sides[::-1]
        above[row] = np.where(rises, rate / prices, 0.0)
        below[row] = np.where(falls, rate / prices, 0.0)
    multiplier = np.zeros(scale.size)
    multiplier[-1] = -1.0 / scale[-1]
    alone = int((above + below).any(axis=0).sum()) <= 1  # one coefficient has the same length in every norm
    if isinstance(box.geometry.norm, L1Norm) or alone:
        up, down = (np.diag(side.max(axis=0)) for side in (above, below))
        both = block_diag(up, down) if parts == 2 else np.vstack([up, -down])
        both = both[both.any(axis=1)]
        return LinearCaps((np.hstack([both, np.zeros((len(both), 2))]) / scale + multiplier)[:, free])
    used = above.any(axis=1) | below.any(axis=1)
    above, below = above[used], below[used]
    nothing = np.zeros((len(above), 2))
    split = np.hstack([above, below, nothing]) / scale if parts == 2 else None
    if isinstance(box.geometry.norm, LinfNorm) and split is not None:
        return LinearCaps((split + multiplier)[:, free])
    if split is not None:  # parts are never negative
        return LengthCaps(split[:, free], np.zeros_like(split)[:, free], multiplier[free], soft)
    rates = [np.hstack([side, nothing]) / scale for side in (above, below)]
    return LengthCaps(rates[0][:, free], rates[1][:, free], multiplier[free], soft)
