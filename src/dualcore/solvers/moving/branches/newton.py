"""Newton's method on the smoothed worst case of a box, at widths that fall with the gap."""

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
# Newton's method at one width ends where the predicted decrease is below this, in widths: at first, and for a bound.
_ROUGH, _TIGHT = 1e-2, 1e-10
# A bound is computed at a minimum whose smoothing error is at most this share of the tolerance.
_LAST = 0.7
# The method stops after so many bounds in a row that leave more than this share of the gap.
_GIVEN_UP, _STALLED = 2, 0.7
# How much larger coefficients may be than those of any model at least as good as the first.
_BEYOND = 10.0
# More features than these make too large a Hessian.
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
    """A rough minimum: its width, the point of all features, and the bound of its plane were its gradient zero."""

    mu: float
    x: FloatArray
    ideal: float


class _Descent:
    """The path of minimisers as the width falls, with what is known of the optimum."""

    def __init__(self, problem: Problem, data: Data, coef: FloatArray, intercept: float, tol: float) -> None:
        self.problem, self.tol = problem, tol
        whole = Branched(problem, BoxFamily.of(problem.family), data)
        self.progress = Progress(whole, coef, intercept)
        # Models at least as good as this one lie in the region of its risk. Steps may leave it, but not by far.
        most = whole.bounds.region(self.progress.upper).coef
        self.work = FeatureSet(problem, data, whole.bounds.centre, coef, _BEYOND * np.maximum(most, np.abs(coef)))
        self.x = self.work.inside(self.progress.best)
        #: bounds in a row that hardly reduced the gap
        self.idle = 0

    def run(self) -> NewtonResult:
        """Reduce the width until the gap is closed.

        A minimum at a width gives the risk of its model, and a lower bound once the gradient of its plane vanishes.
        Risks need smaller widths than bounds do, and gradients vanish sooner at large ones. So the width is reduced
        with rough minima until the risk is near the bound that one of their planes would give. The minimum at the
        largest such width is then computed to high accuracy.
        """
        progress, stages = self.progress, list[_WidthStage]()
        if not progress.upper > 0.0:  # no width is a share of nothing
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
        if stages and not progress.is_within(self.tol) and self.idle < _GIVEN_UP:  # no plane was near enough
            self._bound(stages[-1])
        return progress.result()

    def _bound(self, stage: _WidthStage) -> None:
        """Minimise accurately at the width of a stage, and return to where the last one ended."""
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
        """Minimise at the width, adding features as needed; say whether that succeeded."""
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
