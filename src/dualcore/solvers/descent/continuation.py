"""The loop: minimise the smoothed risk, certify, narrow the smoothing, until the certified gap is small enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dualcore.solvers.base import Iterate, tell
from dualcore.solvers.descent.metric import MOST_FEATURES
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.oracle import Certified, Oracle
from dualcore.solvers.descent.rowsums import Point

# From an objective and a point of it, until something says enough or evaluations are spent. The last argument is the
# width to take second derivatives at: that of the stage before, where more rows curve.
Method = Callable[[Objective, Valued, Callable[[Valued], bool], int, float], Valued]

# The first width, as a share of a typical margin or residual.
_FIRST_WIDTH = 0.1
# A stage ends when what is left to gain is this share of what smoothing costs.
_STAGE = 0.5
# Of the tolerance, what smoothing may use; its cost falls with the square of the width.
_SMOOTHING_SHARE = 0.3
_LEAST_SHRINK, _MOST_SHRINK = 0.6, 0.2
# Of the tolerance, what the loop asks of its own certificate: that of the front door rounds differently.
_SAFETY = 0.9
# A certificate that disappointed is tried again when what is left to gain has fallen to this share.
_LOWER = 0.7
# ... or after this many evaluations.
_AGAIN = 4
# Evaluations after which the rate of descent is looked at, and those that a metric would take; the work of making it,
# in evaluations, is this many times features squared over rows.
_LOOK, _METRIC_EVALUATIONS, _GRAM_COST = 10, 15, 0.4
# The pace is taken over so many evaluations; that many slow stretches in a row end a run that nothing smooths.
_STRETCH, _SLOW_STRETCHES = 50, 2


@dataclass
class Pace:
    """Tells when a descent is so slow that the evaluations it has left cannot bring it to its goal."""

    begun: int  # evaluations so far
    value: float  # the risk then
    slow: int = 0
    gap: float = np.inf
    least: float = np.inf

    def crawls(self, now: int, value: float, gap: float, goal: float, left: int, *, by_gap: bool = True) -> bool:
        """Return whether to give up: ``left`` evaluations are to bring ``gap``, as it is estimated, to ``goal``.

        The risk may be near its optimum long before the gap is small, so that a gap that falls counts as well, unless
        ``by_gap`` is false: where there is a quicker method to turn to.
        """
        self.least = min(self.least, gap)
        if now - self.begun < _STRETCH or not gap > goal > 0.0:
            return False
        fallen = np.log(self.gap / self.least) if by_gap and np.isfinite(self.gap) else 0.0
        share, stretches = max((self.value - value) / gap, fallen), left / (now - self.begun)
        self.begun, self.value, self.gap = now, value, self.least
        self.slow = self.slow + 1 if stretches * share < np.log(gap / goal) else 0
        return self.slow >= _SLOW_STRETCHES


class Rate:
    """Tells when descent in the columns as they are, to the gap ``goal``, is so slow that a sample's metric pays."""

    def __init__(self, oracle: Oracle, goal: float) -> None:
        self.oracle, self.goal, self.begun = oracle, goal, oracle.n_evaluations
        self.gaps: list[float] = []
        self.slow = False
        m = oracle.n_features
        work = _GRAM_COST * float(m) ** 2 / oracle.n_rows
        self.most = np.inf if m > MOST_FEATURES else _METRIC_EVALUATIONS + work

    def crawls(self, gap: float) -> bool:
        """Return whether the evaluations that are still to come, at the rate so far, cost more than a metric."""
        self.gaps.append(gap)
        done = self.oracle.n_evaluations - self.begun
        if done < _LOOK or not np.isfinite(self.most):
            return False
        first, last = max(self.gaps[:3]), min(self.gaps[-3:])
        if not last > self.goal:
            return False
        gained = np.log(first / last) if first > last else 0.0
        self.slow = done * np.log(last / self.goal) > self.most * gained
        return self.slow


@dataclass
class Continuation:
    """Runs a method over stages of smoothing."""

    oracle: Oracle
    tol: float  # certified relative gap to reach
    max_evaluations: int
    callback: Callable[[Iterate], None] | None = None  # called after every certificate
    certified: Certified | None = None
    width: float = 0.0
    history: list[Iterate] = field(default_factory=list)

    def is_done(self) -> bool:
        """Whether the certified gap is within tolerance."""
        return self.certified is not None and self.certified.relative_gap <= _SAFETY * self.tol

    @property
    def best(self) -> Certified:
        """The best model and the best bound so far."""
        if self.certified is None:
            raise ValueError("nothing has been certified yet")
        return self.certified

    def goal(self, at: Valued) -> float:
        """Return the gap to reach, about a point."""
        return _SAFETY * self.tol * abs(at.value)

    @property
    def left(self) -> int:
        """Evaluations left."""
        return self.max_evaluations - self.oracle.n_evaluations

    def first_width(self) -> float:
        """Return the width to start with: 0 where nothing has a kink."""
        problem = self.oracle.problem
        if not problem.family.linear_in_multiplier or not (problem.loss.kinks or problem.family.flips):
            return 0.0
        return _FIRST_WIDTH * self.oracle.typical_signal()

    def certify(self, at: Valued, width: float) -> None:
        """Certify a point and keep it, and the bound, where they are better."""
        self.keep(self.oracle.certify(at.point, width))

    def keep(self, found: Certified) -> None:
        """Keep a certified point, and the bound, where they are better than those known."""
        self.record(Iterate(self.oracle.n_evaluations, found.upper, found.upper - found.lower))
        known = self.certified
        if known is None:
            known = found
        if found.upper < known.upper:
            known = known._replace(upper=found.upper, point=found.point, risk=found.risk)
        if found.lower > known.lower:
            known = known._replace(lower=found.lower, dual=found.dual, rounding=found.rounding)
        self.certified = known
        if self.callback is not None:
            self.callback(Iterate(self.oracle.n_evaluations, known.upper, known.upper - known.lower))

    def record(self, done: Iterate) -> None:
        """Keep what is known of an evaluation: its smoothed risk and estimated gap, or those of its certificate."""
        self.history.append(done)
        tell(done)

    def run(self, start: Point, width: float, method: Method) -> None:
        """Run stages from a point until done, out of evaluations, or out of progress."""
        least, self.width, before = 1e-9 * self.first_width(), width, width
        point = start._replace(size=max(start.size, Objective(self.oracle, width).size(start.coef)))
        while self.left > 0 and not self.is_done():
            objective = Objective(self.oracle, width)
            [here] = objective.at([point], fit_size=True)
            wanted, again = np.inf, 0
            pace = Pace(self.oracle.n_evaluations, here.value)

            def enough(at: Valued, width: float = width, objective: Objective = objective, pace: Pace = pace) -> bool:
                nonlocal wanted, again
                goal = _SAFETY * self.tol * abs(at.value)
                estimate = objective.estimated_gap(at)
                if not self.oracle.certifies_freely:
                    self.record(Iterate(self.oracle.n_evaluations, at.value, estimate))
                if width == 0.0 and pace.crawls(self.oracle.n_evaluations, at.value, estimate, goal, self.left):
                    return True
                rough = at.sums.roughness
                if self.oracle.certifies_freely:
                    self.certify(at, width)
                    if self.is_done():
                        return True
                elif estimate <= goal and (estimate - rough <= wanted or self.oracle.n_evaluations >= again):
                    self.certify(at, width)
                    wanted, again = _LOWER * (estimate - rough), self.oracle.n_evaluations + _AGAIN
                    return self.is_done()
                return rough > _SMOOTHING_SHARE * goal and estimate - rough <= _STAGE * rough

            there = method(objective, here, enough, self.left, before)
            point = there.point
            goal = _SMOOTHING_SHARE * _SAFETY * self.tol * abs(there.value)
            last = there.sums.roughness <= goal or width <= least
            if not self.is_done() and (last or self.left <= 0):
                self.certify(there, width)
            if self.is_done():
                break
            if last:
                # Smoothing is not what keeps the bound down: only more digits can help.
                if self.left <= 0 or not self.oracle.refine():
                    return
                continue
            before, width = width, self._next_width(width, there)
            self.width = width

    def _next_width(self, width: float, at: Valued) -> float:
        goal = _SMOOTHING_SHARE * _SAFETY * self.tol * abs(at.value)
        rough = max(at.sums.roughness, 1e-300)
        return width * float(np.clip(np.sqrt(goal / rough), _MOST_SHRINK, _LEAST_SHRINK))
