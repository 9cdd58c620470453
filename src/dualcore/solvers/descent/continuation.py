"""The loop: minimise the smoothed risk, certify, narrow the smoothing, until the certified gap is small enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dualcore.solvers.base import Iterate, tell
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.oracle import Certified, Oracle
from dualcore.solvers.descent.rowsums import Point

# A method minimises an objective from a point until the test (third argument) returns True or the number of evaluations
# (fourth) is reached. The last argument is the width for second derivatives. It is that of the previous stage: with a
# larger width more rows are in the smoothed part of the loss and contribute to the Hessian.
Method = Callable[[Objective, Valued, Callable[[Valued], bool], int, float], Valued]

# The first smoothing width, relative to a typical margin or residual.
_FIRST_WIDTH = 0.1
# Share of the tolerance that the error of smoothing may take; the error falls with the square of the width.
_SMOOTHING_SHARE = 0.3
# The loop ends at this share of the tolerance, because rounding in `score` differs from that in its own certificate.
_SAFETY = 0.9


@dataclass
class Stalling:
    """Predicts how many more evaluations a method needs, from its progress in windows of evaluations.

    Parameters
    ----------
    begun : int
        Evaluations so far.
    value : float
        The risk then.
    window : int
        Evaluations between two predictions.
    """

    begun: int
    value: float
    window: int
    slow: int = 0  # consecutive windows whose prediction exceeded the limit
    gap: float = np.inf
    least: float = np.inf

    def stalls(self, now: int, value: float, gap: float, goal: float, left: float) -> bool:
        """Return whether two windows in a row predict more than ``left`` evaluations until ``gap`` reaches ``goal``.

        Progress is the decrease of the risk or of the gap: the risk may be nearly optimal long before the gap is small.
        """
        if np.isinf(self.gap):
            self.gap = gap
        self.least = min(self.least, gap)
        done = now - self.begun
        if done < self.window or not self.least > goal > 0.0:
            return False
        gained = max((self.value - value) / gap, np.log(self.gap / self.least))
        self.begun, self.value, self.gap = now, value, self.least
        self.slow = self.slow + 1 if left * gained < done * np.log(self.least / goal) else 0
        return self.slow > 1


@dataclass
class Continuation:
    """Runs a method over stages of decreasing smoothing width, and keeps the best model and bound."""

    oracle: Oracle
    tol: float  # certified relative gap to reach
    max_evaluations: int
    callback: Callable[[Iterate], None] | None = None  # called after every certificate
    certified: Certified | None = None
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
        """Return the absolute gap to reach, relative to the value at a point."""
        return _SAFETY * self.tol * abs(at.value)

    @property
    def left(self) -> int:
        """Evaluations left."""
        return self.max_evaluations - self.oracle.n_evaluations

    def first_width(self) -> float:
        """Return the first width: 0 if neither the loss nor label flips have kinks."""
        problem = self.oracle.problem
        if not problem.family.linear_in_multiplier or not (problem.loss.kinks or problem.family.flips):
            return 0.0
        return _FIRST_WIDTH * self.oracle.typical_signal()

    def certify(self, at: Valued, width: float) -> None:
        """Certify a point; keep its model and its bound if they are better than the known ones."""
        self.keep(self.oracle.certify(at.point, width))

    def keep(self, found: Certified) -> None:
        """Keep the model and the bound of a certified point if they are better than the known ones."""
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
        """Add an evaluation to the history: smoothed risk and estimated gap, or risk and gap of a certificate."""
        self.history.append(done)
        tell(done)

    def run(self, point: Point, width: float, method: Method) -> None:
        """Run stages from a point until done, out of evaluations, or out of progress."""
        least, before = 1e-9 * width, width
        while self.left > 0 and not self.is_done():
            objective = Objective(self.oracle, width)
            [here] = objective.at([point._replace(size=max(point.size, objective.size(point.coef)))])
            there = method(objective, here, _Stage(self, objective, here).is_over, self.left, before)
            point, rough = there.point, there.sums.roughness
            goal = _SMOOTHING_SHARE * self.goal(there)
            last = rough <= goal or width <= least
            if not self.is_done() and (last or self.left <= 0):
                self.certify(there, width)
            if last and not self.is_done() and not self.oracle.refine():
                return  # neither less smoothing nor higher precision can improve the bound
            if not last:
                before, width = width, width * float(np.clip(np.sqrt(goal / rough), 0.2, 0.6))


class _Stage:
    """The stopping test of the minimisation with one width."""

    def __init__(self, loop: Continuation, objective: Objective, here: Valued) -> None:
        self.loop, self.objective, self.again = loop, objective, 0
        self.progress = Stalling(loop.oracle.n_evaluations, here.value, 50)

    def is_over(self, at: Valued) -> bool:
        """Whether the certified gap is within tolerance, smoothing dominates the gap, or the method stalls."""
        loop, oracle, width = self.loop, self.loop.oracle, self.objective.width
        goal, gap, rough, now = loop.goal(at), self.objective.estimated_gap(at), at.sums.roughness, oracle.n_evaluations
        if oracle.certifies_freely:
            loop.certify(at, width)
        else:
            loop.record(Iterate(now, at.value, gap))
            if gap <= goal and now >= self.again:  # after a certificate above the goal, wait a few steps
                self.again = now + 4
                loop.certify(at, width)
        if loop.is_done() or (width == 0.0 and self.progress.stalls(now, at.value, gap, goal, loop.left)):
            return True
        return rough > _SMOOTHING_SHARE * goal and gap - rough <= 0.5 * rough
