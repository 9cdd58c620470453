"""Lower bounds from a distribution of moved rows: a plane below the worst-case risk, and its least value.

For slopes ``s_a`` of atoms ``a``, moved rows ``x_a`` with shares ``q_a`` of the mass and costs ``c_a``,

    risk(theta, b, lam) >= -sum_a q_a L*(s_a) + sum_a q_a s_a (theta . x_a + b) + lam (radius - sum_a q_a c_a) ,

by Fenchel's inequality, for every choice of slopes and every distribution of moved rows inside the support. Minimised
over (theta, b, lam), and with the ridge added, this is a lower bound on the optimum. The minimum is taken over a region
that contains the optimum (`find_region`), so that it is finite also where the gradient of the plane does not vanish.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.certificates.region import BoxLevelSet, find_region, side_means
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily


class Plane(NamedTuple):
    """The plane of a distribution of moved rows, as sums over its atoms."""

    value: float  # at the origin: minus the conjugates and, in regression, minus slopes times centred targets
    size: float  # sum of the absolute terms of `value`
    moment: FloatArray  # (m + 1,): sum_a q_a s_a (x_a, 1)
    slope_sum: float  # sum_a |q_a s_a|
    spent: float  # mean transport cost
    sizes: FloatArray  # (m,): at least sum_a |q_a s_a x_a|
    n_atoms: int


class PlaneBound:
    """Least values of planes over the region that must hold the optimum."""

    def __init__(self, problem: Problem, family: BoxFamily, data: Data) -> None:
        self.problem, self.family, self.data = problem, family, data
        m, w = data.rows.m, data.masses
        mass, means = self.sides = side_means(problem, data)  # passes over the rows, so only once
        self.centre = mass @ means if problem.fit_intercept else np.zeros(m)
        shifted = problem.fit_intercept and not problem.is_classification
        #: what is subtracted from the targets: their mean in regression with an intercept
        self.middle = float(w @ data.y) if shifted else 0.0
        self.spread = np.sqrt(np.maximum(data.rows.column_squares(w) - self.centre**2, 0.0))

    def region(self, upper: float) -> BoxLevelSet:
        """Return the region of models whose risk is at most ``upper``."""
        above = upper * (1.0 + 1e-9)
        return find_region(self.problem, self.family, self.data, self.sides, self.middle, self.spread, above)

    def least(self, plane: Plane, upper: float) -> tuple[float, float]:
        """Return the minimum of plane plus ridge over the models of risk at most ``upper``, and its rounding error.

        Notes
        -----
        Sums over at most N atoms have an error of at most (N + 64) machine precisions of the sums of absolute terms:
        64 for the exponentials, the loss, and the products behind a term, among them the shares, which sum to the
        masses up to as much. An error of a slope costs at most itself times how far the optimum can be.
        """
        problem, m, region = self.problem, self.centre.size, self.region(upper)
        slope = plane.moment[:-1] - self.centre * plane.moment[-1]
        ridge, left = problem.ridge, problem.radius - plane.spent
        lam = left * (region.high if left < 0.0 else region.low)
        far = region.coef
        if ridge > 0.0:
            inside = np.abs(slope) <= ridge * far
            parts = np.where(inside, -(slope**2) / (2.0 * ridge), -np.abs(slope) * far + 0.5 * ridge * far**2)
            least = float(parts.sum())
        else:
            priced = np.where(far > 0.0, np.abs(slope), 0.0)
            steepest = np.divide(priced, region.units, out=np.zeros(m), where=region.units > 0.0).max(initial=0.0)
            least = max(-float(priced @ far), -float(steepest) * region.capacity)
        lower = plane.value + least - abs(plane.moment[-1]) * (region.intercept if problem.fit_intercept else 0.0) + lam
        # The error of a sum relative to the sum of its absolute terms; see the notes.
        count = (plane.n_atoms + 64.0) * np.finfo(float).eps
        off = float((plane.sizes + plane.slope_sum * np.abs(self.centre)) @ far) + plane.slope_sum * region.intercept
        off += plane.size + (problem.radius + plane.spent) * region.high
        return float(lower), count * float(off)
