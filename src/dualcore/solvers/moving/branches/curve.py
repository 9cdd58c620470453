r"""A loss as a function of the signal in the direction of a move, cut into intervals between *nodes*: given slopes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem

__all__ = ["Curve"]

# Number of nodes that are always used, and the smallest number of cells of the grid.
_NODES, _FEWEST = 12, 4
# Size of the table of slopes from which nodes are interpolated.
_FINE = 1000
# First end of the interval of signals in which slopes are inverted.
_FAR = 40.0
# Distance of nodes, in units of the root of the width; and distance of nodes from a slope lam / u_j at which a move of
# feature j begins to pay, in widths of its smoothed positive part.
_APART, _AROUND = 2.0, 6.0


class Curve:
    """The loss ``l(e)``, increasing in the signal ``e``, with its slopes from 0 to the largest cut at nodes.

    ``ends`` are the signals at which the slope is that of a node. ``l(e) = L(-e)`` for margins, ``L(side e)`` with
    ``e >= 0`` for residuals.
    """

    def __init__(self, problem: Problem, side: float) -> None:
        self.loss, self.side = problem.loss, side
        self.is_margin = problem.is_classification
        least, most = problem.loss.slope_range
        self.steepest = -least if self.is_margin or side < 0.0 else most
        self.far = _FAR
        while self.far < 1e12 and float(self._slope(np.array([self.far]))[0]) < (1.0 - 1e-9) * self.steepest:
            self.far *= 4.0
        self._slopes = self.steepest * np.sin(np.linspace(0.0, 0.5 * np.pi, _FINE)) ** 2
        low, high = np.full(_FINE, -self.far if self.is_margin else 0.0), np.full(_FINE, self.far)
        for _ in range(60):
            middle = 0.5 * (low + high)
            short = self._slope(middle) < self._slopes
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        self._places = np.maximum.accumulate(0.5 * (low + high))
        self._places[0] = -self.far if self.is_margin else 0.0
        # Length in sqrt(l'') de: over a cell of length r the chord of the conjugate has an error of about r^2 / 8.
        self._lengths = np.append(0.0, np.cumsum(np.sqrt(np.diff(self._slopes) * np.diff(self._places))))
        self.cut(np.zeros((2, 0)), np.inf)

    def cut(self, wanted: FloatArray, apart: float) -> None:
        """Place nodes over the whole range, and around the slopes ``wanted`` (2, k), on a grid of length ``apart``."""
        total = float(self._lengths[-1])
        last = max(int(np.ceil(total / apart)), _FEWEST)
        apart = total / last
        near = np.interp(wanted, self._slopes, self._lengths) / apart + np.array([[-1.0], [1.0]])
        grid = np.round(np.append(near, np.linspace(0.0, last, _NODES)))
        ends = np.interp(np.unique(np.clip(grid, 0.0, last)) * apart, self._lengths, self._places)
        ends[-1] = max(float(ends[-1]), float(ends[-2]) + 1e-3)
        self.ends = ends
        self.nodes = np.append(0.0, np.append(self._slope(self.ends[1:-1]), self.steepest))
        self.nodes = np.maximum.accumulate(self.nodes)
        self.widths = np.maximum(np.diff(self.nodes), 1e-12)

    def cut_around(self, sizes: FloatArray, lam: float, soft: FloatArray, mu: float) -> None:
        """Place nodes around the slopes ``lam / u_j`` at which features begin to pay; ``mu`` sets their distance."""
        some = sizes > 0.0
        around = (lam + _AROUND * soft[some] * np.array([[-1.0], [1.0]])) / sizes[some]
        self.cut(around[:, around[0] < self.steepest], _APART * float(np.sqrt(mu)))

    def _slope(self, e: FloatArray) -> FloatArray:
        sign = -1.0 if self.is_margin else self.side
        return sign * self.loss.slope(sign * e)

    def at(self, e: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and slopes (n, K - 1) of the loss restricted to each interval and extended linearly."""
        inside = np.minimum(np.maximum(e, self.ends[:-1]), self.ends[1:])
        sign = -1.0 if self.is_margin else self.side
        value, slope = self.loss.value_and_slope(sign * inside)
        slope = sign * slope
        np.maximum(slope, self.nodes[:-1], out=slope)
        np.minimum(slope, self.nodes[1:], out=slope)
        # Beyond the first and the last end the slope is the limit, which the loss may approach without attaining it.
        slope[e[:, 0] < self.ends[0], 0] = 0.0
        slope[e[:, -1] > self.ends[-1], -1] = self.steepest
        e = e - inside
        e *= slope
        value += e
        return value, slope

    def curvature(self, interval: npt.NDArray[np.intp], e: FloatArray) -> FloatArray:
        """Return the curvatures at signals ``e`` of given intervals, shape (k,)."""
        sign = -1.0 if self.is_margin else self.side
        outside = (e < self.ends[interval]) | (e > self.ends[interval + 1])
        return np.where(outside, 0.0, self.loss.curvature(sign * e))
