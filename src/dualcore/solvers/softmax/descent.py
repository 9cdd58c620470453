"""Quasi-Newton steps on the smoothed risk of a softmax model, whose work is products with X.

A round minimises the risk for one smoothing width and one prior. The shares of the smoothed maxima at its end are a
dual point, whose bound decides when to stop, and the prior of the next round. A sample of the rows yields the starting
point and the metric.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flow import flow_bound
from dualcore.certificates.softmax.products import ClassProducts
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Data
from dualcore.problem.geometry import LinfNorm
from dualcore.solvers.lbfgs import LimitedMemory
from dualcore.solvers.softmax.classmetric import ClassMetric, sample_gram, sample_rows
from dualcore.solvers.softmax.smoothrisk import SmoothRisk, SmoothRiskValue

__all__ = ["ClassDescent"]

# Evaluations of a round, at least and at most; at most four times as many where the remaining gradient dominates the
# gap. A round ends when the expected decrease of a step is below this share of the error of smoothing.
_FEWEST, _MOST, _DONE = 4, 30, 0.05
# When certifying a known model: no further bound is computed if it could close less than this share of the gap.
ENOUGH = 0.02


class ClassDescent:
    """A run of descent: the best model, the best lower bound and the last one, and the history.

    Parameters
    ----------
    design : ClassDesign
    tol : float
        Relative gap between the risk and the bound at which to stop.
    max_evaluations : int
    start : ndarray of shape (K, width), optional
    known : float, optional
        The risk of a model to be certified: the run ends when no bound can close much more of its gap.
    certified : bool, default=True
        Whether bounds are computed. Without them the run ends when an estimate of the gap is small.
    """

    def __init__(
        self,
        design: ClassDesign,
        tol: float,
        max_evaluations: int,
        start: FloatArray | None = None,
        *,
        known: float | None = None,
        certified: bool = True,
    ) -> None:
        self.design, self.tol, self.max_evaluations = design, tol, max_evaluations
        self.risk = SmoothRisk(ClassProducts(design))
        self.W = np.zeros(design.shape) if start is None else start
        self.upper, self.known = np.inf, known
        self.lower = self.last = Bound(-np.inf, 0.0)
        #: evaluations so far, best risk and gap, one entry per round
        self.history: list[tuple[int, float, float]] = []
        # Relative width of the smoothing in the first round; it halves from round to round.
        self.width, self.scale = 0.1, 0.0
        self.gram: FloatArray | None = None
        #: expected decrease of a step, and the estimate of the gap where no bounds are computed
        self.expected, self.estimate = np.inf, None if certified else np.inf
        self.converged = False
        #: factor on the expected decrease at which a round ends
        self.strictness = 1.0
        self._least, self._since = np.inf, 0

    def follow(self, other: ClassDescent) -> None:
        """Start from the model and the priors of another run."""
        self.W, self.scale = other.W, other.scale
        self.risk.widest, self.risk.narrow = other.risk.widest, other.risk.narrow

    @property
    def iterations(self) -> int:
        """Passes over the rows so far, without those of the bounds."""
        return self.risk.n_evaluations

    @property
    def n_passes(self) -> int:
        """Passes over the rows so far, including those for the sample."""
        return self.risk.products.n_passes + 2

    @property
    def gap(self) -> float:
        """Best risk minus best bound, which is at least 0; without bounds an estimate."""
        return self.upper - max(self.lower.value, 0.0) if self.estimate is None else self.estimate

    @property
    def closed(self) -> bool:
        """Whether the gap is within tolerance."""
        enough = self.tol * self.upper
        if self.known is not None:
            enough = max(enough, ENOUGH * (self.known - self.lower.value))
        return self.gap <= enough

    def run(self) -> None:
        """Minimise until the gap is within tolerance, the evaluations are used up, or the gap stops falling."""
        # Products with few features are too small for several BLAS threads.
        with one_blas_thread() if self.design.scale.size <= 256 else nullcontext():
            self._run()

    def _run(self) -> None:
        design = self.design
        self.gram = sample_gram(design)
        if design.intercept and not self.W.any():
            shares = np.bincount(design.code, design.data.masses, design.shape[0])
            self.W[:, -1] = np.log(np.maximum(shares, 1e-12))
        if not (self.scale > 0.0 or self._start_on_sample() or self._start_unchanged()):
            self._start_here()
        curvature, extra, memory, metric = 0.0, np.zeros(1), LimitedMemory(self.W.size), None
        here = self.risk.at(self.W, self.width, self.scale)
        self._keep(here)  # rounds may end above a good start
        while True:
            found, held = _mean_curvature(here, design), self._extra(here)
            if metric is None or _differ(found, curvature) or _differ(float(held.sum()), float(extra.sum())):
                curvature, extra, memory = found, held, LimitedMemory(self.W.size)
                metric = ClassMetric.of(design, self.gram, curvature, extra)
            here = self._round(here, metric, memory)
            if self._is_over(here):
                break
            self.scale = self._expected_width(here) or self.scale
            capped = self.risk.at(self._capped(here), self.width, self.scale)
            if self._keep(capped):
                break
            here = self.risk.at(here.W, self.width, self.scale) if here.labels is not None else capped

    def _is_over(self, here: SmoothRiskValue) -> bool:
        """Compute the bound at the end of a round; return whether the run ends, else set the next priors and widths."""
        self._bound(here)
        if self.closed or self.iterations >= self.max_evaluations:
            return True
        gap = self.gap
        self._least, self._since = (gap, 0) if gap < 0.9 * self._least else (self._least, self._since + 1)
        self.risk.renew(here, gap)
        if self.converged:
            self.width = max(0.5 * self.width, self.risk.widest.least_width)
        # The run ends after 20 rounds in a row that reduce the gap by less than a tenth.
        return self._since >= 20

    def _start_on_sample(self) -> bool:
        """Start from the optimum of a sample, with its priors and widths, if rows are many and there is no start."""
        design, risk = self.design, self.risk
        if self.W[:, : risk.price.size].any():
            return False
        # Five rows per feature and at least 2,000, solved to a relative gap of 1e-2.
        chosen = sample_rows(design, 5, 2000)
        if 4 * chosen.size > design.data.rows.n:  # the sample is too large to save time
            return False
        masses = design.data.masses[chosen]
        data = Data(as_rows(design.data.rows.take(chosen)), design.data.y[chosen], masses / masses.sum())
        small = ClassDescent(replace(design, data=data), 1e-2, self.max_evaluations, self.W)
        small.run()
        self.follow(small)
        self.width = small.width
        return True

    def _start_unchanged(self) -> bool:
        """Start from the optimum without label flips, if there is no start and the norm is linf.

        At the zero model all labels are near a flip, and smoothed flips lead to poor steps. With linf the run may then
        end near the zero model; with l1 and l2 it does not, and the start was measured to take longer.
        """
        problem, risk = self.design.problem, self.risk
        if not problem.family.flips or not isinstance(self.design.norm, LinfNorm) or self.W[:, : risk.price.size].any():
            return False
        fixed = replace(self.design, problem=problem.replace(label_cost=np.inf))
        plain = ClassDescent(fixed, 0.3, self.max_evaluations, self.W)
        plain.run()
        risk.n_evaluations += plain.iterations
        risk.products.n_passes += plain.risk.products.n_passes
        self.follow(plain)
        self.width = plain.width
        return True

    def _expected_width(self, here: SmoothRiskValue) -> float:
        """Return an estimate of the widest difference at the optimum: the mean over pairs, weighted by their shares."""
        U = self.risk.unit(here.W)
        return max(float((here.found.gradient * U).sum()), 0.1 * self.risk.widest.exact(U))

    def _start_here(self) -> None:
        """Estimate the widest difference at the optimum by that of the start, or of the best step in the metric."""
        risk = self.risk
        self.scale = risk.widest.exact(risk.unit(self.W))
        if self.scale == 0.0:
            at = risk.at(self.W, self.width, 1.0)
            # The multiplier is at most the risk over the radius, which bounds the curvature of the norm from below.
            held = self.design.problem.radius**2 / (at.risk * self.design.shape[0]) * risk.inverse**2
            held = held + self.design.ridge[0, : risk.price.size]
            metric = ClassMetric.of(self.design, self.gram, _mean_curvature(at, self.design), held)
            step = metric.outward(-metric.gradient(at.gradient))
            trials = [risk.at(self.W + length * step, self.width, 1.0) for length in (1.0, 0.3, 0.1, 0.03, 0.01)]
            best = min(trials, key=lambda trial: trial.risk)
            self.scale = risk.widest.exact(risk.unit(best.W)) or 1.0
            if best.risk < at.risk:
                self.W = best.W

    def _extra(self, at: SmoothRiskValue) -> FloatArray:
        """Return the curvature (m,) that radius and ridge add to each feature, averaged over classes."""
        risk, m = self.risk, self.risk.price.size
        curvature = risk.widest.curvature(risk.unit(at.W), at.width, at.found)
        held = at.budget * np.broadcast_to(curvature, (self.design.shape[0], m)).mean(axis=0) * risk.inverse**2
        return np.asarray(held + self.design.ridge[0, :m])

    def _round(self, here: SmoothRiskValue, metric: ClassMetric, memory: LimitedMemory) -> SmoothRiskValue:
        """Take steps until their expected decrease is small compared with the error of smoothing."""
        z, gradient = metric.inward(here.W), metric.gradient(here.gradient)
        first = self.iterations
        most, enough = _MOST if self.strictness == 1.0 else 4 * _MOST, self.strictness * _DONE
        while self.iterations < self.max_evaluations:
            done = self.iterations - first
            left = max(self.risk.smoothing_gap(here), 0.2 * self.tol * here.risk)
            self.expected = 0.5 * float(gradient @ gradient)
            self.converged = self.expected <= enough * left
            if done >= most or (done >= _FEWEST and self.converged):
                break
            direction = memory.direction(gradient)
            slope = float(gradient @ direction)
            if not slope < 0.0:
                memory.clear()
                direction, slope = -gradient, -float(gradient @ gradient)
            ahead = self._search(here, metric, z, direction, slope)
            if ahead is None:
                break
            there, step = ahead
            after = metric.gradient(there.gradient)
            memory.add(step, after - gradient)
            z, here, gradient = z + step, there, after
        return here

    def _search(
        self, here: SmoothRiskValue, metric: ClassMetric, z: FloatArray, direction: FloatArray, slope: float
    ) -> tuple[SmoothRiskValue, FloatArray] | None:
        """Return the first point of a backtracking line search with sufficient decrease; None if there is none."""
        length = 1.0
        for _ in range(20):
            there = self.risk.at(metric.outward(z + length * direction), self.width, self.scale)
            rise = there.value - here.value
            if rise <= 1e-4 * length * slope + 1e-14 * abs(here.value):
                return there, length * direction
            length *= float(np.clip(-0.5 * slope * length / (rise - slope * length), 0.1, 0.5))
        return None

    def _capped(self, here: SmoothRiskValue) -> FloatArray:
        """Return the model with its widest difference reduced to the mean under the shares, where that is simple."""
        U = self.risk.unit(here.W)
        out, most = here.W.copy(), float((here.found.gradient * U).sum())
        out[:, : self.risk.price.size] += (self.risk.widest.capped(U, most) - U) * self.risk.price
        return out

    def _keep(self, here: SmoothRiskValue) -> bool:
        """Keep a model if it is the best so far; return whether the gap is within tolerance."""
        if here.risk < self.upper:
            self.W, self.upper = here.W, here.risk
        return self.closed

    def _bound(self, here: SmoothRiskValue) -> None:
        self._keep(here)
        if self.estimate is not None:
            self.estimate = self.risk.smoothing_gap(here) + self.expected
            return
        self.last = flow_bound(self.risk.products, self.risk.point(here), self.upper)
        self.lower = max(self.lower, self.last)
        if here.value - self.last.value > max(self.upper - here.value, 0.2 * self.tol * self.upper):
            # The remaining gradient weakens the bound more than the smoothing does: rounds must be longer.
            self.strictness = max(0.3 * self.strictness, 1e-6)
        self.history.append((self.iterations, self.upper, self.gap))


def _differ(one: float, other: float) -> bool:
    """Whether two numbers differ by more than a factor of two, so that a new metric is worth its cost."""
    return not 0.5 * other <= one <= 2.0 * other


def _mean_curvature(at: SmoothRiskValue, design: ClassDesign) -> float:
    """Return the mean over rows and classes of ``p (1 - p)``, plus the curvature of smoothed label flips."""
    scores = at.scores - at.scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    total = float(design.data.masses @ (chances * (1.0 - chances)).sum(axis=1))
    if at.labels is not None:
        total += float(design.data.masses @ (at.labels * (1.0 - at.labels)).sum(axis=1)) / at.label_width
    return float(max(total / chances.shape[1], 1e-6))
