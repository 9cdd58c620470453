"""Newton's method on the smoothed worst case of a box, for decreasing widths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.families import BoxFamily, CategoriesFamily
from dualcore.solvers.moving.branches.branched import Branched
from dualcore.solvers.moving.branches.featureset import FeatureSet
from dualcore.solvers.moving.result import NewtonResult
from dualcore.solvers.moving.smoothed import ObjectiveSums, Progress, minimise

__all__ = ["can_use_branches", "run_branches"]

# The factor by which the width falls.
_FALL = 0.25
# Largest number of widths, and of growths of the feature set at one width.
_MOST_STAGES, _MOST_GROWTHS = 12, 10
# Newton's method at one width ends at this predicted decrease, in widths: for the path, and for an accurate minimum.
_ROUGH, _TIGHT = 1e-2, 1e-10
# A bound is computed at a minimum whose smoothing error is at most this share of the tolerance.
_LAST = 0.7
# The method stops after this many bounds in a row that leave more than the given share of the gap.
_GIVEN_UP, _STALLED = 2, 0.7
# Steps may leave the region that contains all models at least as good as the first, by this factor.
_BEYOND = 10.0
# With more features the Hessian would be too large.
_MOST_FEATURES = 2500


def can_use_branches(problem: Problem, data: Data) -> bool:
    """Whether every movable feature has two limits, and the loss is smooth or piecewise linear."""
    family, m = problem.family, data.rows.m
    if not isinstance(family, BoxFamily) or isinstance(family, CategoriesFamily) or problem.radius == 0.0:
        return False
    if problem.loss.kinks and problem.loss.pieces is None:
        return False
    if m > _MOST_FEATURES:
        return False
    low, high = family.support.spread(m)
    return bool((np.isfinite(high - low) | np.isinf(family.prices(m))).all())


class _WidthStage(NamedTuple):
    """A rough minimum: its width, its point (m + 2,), and the value of its plane there (see `plane_at`)."""

    mu: float
    x: FloatArray
    ideal: float


class _Descent:
    """The path of minimisers for decreasing widths, with the best model and bound so far."""

    def __init__(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> None:
        self.problem, self.tol = problem, tol
        whole = Branched(problem, BoxFamily.of(problem.family), data)
        self.progress = Progress(whole, coef, intercept)
        # All models at least as good as the first lie in this region. Steps may leave it, but only by a factor.
        most = whole.bounds.region(self.progress.upper).coef
        self.work = FeatureSet(problem, data, whole.bounds.centre, coef, _BEYOND * np.maximum(most, np.abs(coef)))
        self.x = self.work.inside(self.progress.best)
        #: number of consecutive bounds that hardly reduced the gap
        self.idle = 0

    def run(self) -> NewtonResult:
        """Reduce the width until the gap is closed.

        Every minimum yields a model, whose risk is an upper bound, and a plane, which is a tight lower bound if its
        gradient vanishes. Good models need smaller widths than good planes, and at large widths accurate minima are
        cheaper. So the width is reduced with rough minima until the risk is close to the value of one of their planes.
        The minimum at the largest such width is then computed accurately.
        """
        progress, stages = self.progress, list[_WidthStage]()
        if not progress.upper > 0.0:  # a risk of zero is optimal
            return progress.result()
        smoothed = self.work.smoothed
        smoothed.set_width(smoothed.finder.first_width * progress.upper, self.x)
        for _ in range(_MOST_STAGES):
            sums, is_found = self._minimise(_ROUGH)
            smoothed = self.work.smoothed
            self._record(sums)
            if is_found:
                stages.append(_WidthStage(smoothed.mu, self.work.whole(self.x), smoothed.plane_at(sums.plane, self.x)))
            while not progress.is_within(self.tol) and self.idle < _GIVEN_UP:
                near = progress.upper * (1.0 - _LAST * self.tol)
                widest = next((k for k, each in enumerate(stages) if each.ideal >= near), None)
                if widest is None:
                    break
                self._bound(stages[widest])
                del stages[: widest + 1]
            if progress.is_within(self.tol) or self.idle == _GIVEN_UP:
                break
            if is_found:
                self.x = self.work.smoothed.follow(self.x, sums, _FALL)
            else:
                self.work.smoothed.set_width(_FALL * self.work.smoothed.mu, self.x)
        if stages and not progress.is_within(self.tol) and self.idle < _GIVEN_UP:  # try the last plane all the same
            self._bound(stages[-1])
        return progress.result()

    def _bound(self, stage: _WidthStage) -> None:
        """Minimise accurately at the width of a stage, then restore the current point and width."""
        here, mu, gap = self.work.whole(self.x), self.work.smoothed.mu, self.progress.gap
        if stage.mu != mu:
            self.x = self.work.inside(stage.x)
            self.work.smoothed.set_width(stage.mu, self.x)
        self._record(self._minimise(_TIGHT)[0])
        if stage.mu != mu:
            self.x = self.work.inside(here)
            self.work.smoothed.set_width(mu, self.x)
        self.idle = self.idle + 1 if self.progress.gap > _STALLED * gap else 0

    def _minimise(self, tolerance: float) -> tuple[ObjectiveSums, bool]:
        """Minimise at the current width, adding features as needed; return the sums and whether it converged."""
        is_enough = self._is_enough if tolerance == _TIGHT else None
        for _ in range(_MOST_GROWTHS):
            self.work.smoothed.keep_branches(is_enough is not None)
            self.x, sums, is_found = minimise(self.work.smoothed, self.x, tolerance, is_enough)
            _, wanted = self.work.widened(sums)
            if not wanted.any():
                break
            self.x = self.work.grow(self.x, wanted)
        return sums, is_found

    def _is_enough(self, x: FloatArray, sums: ObjectiveSums) -> bool:
        plane, _ = self.work.widened(sums)
        self.progress.bound(plane)
        return self.progress.is_within(self.tol)

    def _record(self, sums: ObjectiveSums) -> None:
        plane, _ = self.work.widened(sums)
        self.progress.record(self.work.whole(self.x), plane)


def run_branches(problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> NewtonResult:
    """Close the relative gap to ``tol`` from a starting model, or return the best point where the method stops."""
    return _Descent(problem, data, coef, intercept, tol).run()
