r"""Steps of a softmax coreset with fewer rows than parameters: a sample's risk, corrected by the gradients of reads.

As in `tilt`, a linear term gives weighted rows the slope of the full data at the model of a read:

.. math:: f_S(W) + \langle \nabla f(W_k) - \nabla f_S(W_k), W \rangle + \text{norm}

A softmax model has so many parameters that quasi-Newton steps over few reads lead nowhere near. But a sample of about
as many rows as parameters, kept in memory, knows the curvature in every direction: the minimiser of the corrected risk
is the next model to read at. The sums of a read also give a lower bound on the optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from dualcore.certificates.rounding import free_features, sum_error
from dualcore.certificates.rows import Bound
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flow import SmoothPoint
from dualcore.certificates.softmax.totals import ClassSums, sums_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import Source
from dualcore.problem import Anchor, Data, Problem
from dualcore.problem.normal import Normal
from dualcore.reading.classtotals import class_totals
from dualcore.reading.reading import Reading
from dualcore.solvers import Solution, Status
from dualcore.solvers.softmax.classsolvers import norm_fault
from dualcore.solvers.softmax.descent import ClassDescent
from dualcore.solvers.softmax.smoothrisk import Lean

# Rows of the sample for every parameter, and at least; no more than so many numbers (64 MB).
_ROWS_PER_NUMBER, _FEWEST, _MOST_NUMBERS = 10, 20_000, 8_000_000
# Relative gap and evaluations of the model that the sample alone gives.
_START_TOL, _START_EVALUATIONS = 1e-2, 600
# Rounds of descent on the corrected risk, and their evaluations at most.
_ROUNDS, _EVALUATIONS = 3, 100
# Damping with fewer rows than parameters, and its factor after a step back.
_DAMPING, _MORE = 0.3, 3.0
# A model is stepped back from where its risk is above the best by more than this share of the gap.
_BACK = 0.05


def can_step(problem: Problem, n_features: int) -> bool:
    """Whether the steps are known: many classes, labels that stay, and coefficients that all cost something."""
    if problem.family.name != "softmax" or problem.family.flips:
        return False
    held = not free_features(problem, n_features).any()
    return held and norm_fault(problem) is None


def sample_rows(problem: Problem, source: Source) -> int:
    """Return how many rows are kept in memory to learn the curvature from: all, if they are few."""
    n_features = source.n_features
    numbers = problem.family.n_outputs * (n_features + 1)
    wanted = max(_ROWS_PER_NUMBER * numbers, _FEWEST)
    return min(wanted, source.n_rows, max(_MOST_NUMBERS // n_features, 1))


class ClassSteps:
    """Models to read at, the best of them, and the best lower bound.

    Parameters
    ----------
    problem : Problem
        One that `can_step` accepts.
    source : Source
        Read once at the start, for the means of the classes.

    Attributes
    ----------
    risk, multiplier : float
        Of the best model, on the full data.
    lower : Bound
        The best so far.
    n_reads : int
        Reads taken in.
    """

    def __init__(self, problem: Problem, source: Source) -> None:
        self.problem, self.source = problem, source
        self.risk, self.multiplier, self.n_reads = np.inf, 0.0, 0
        self.lower = Bound(-np.inf, 0.0)
        self._best: Anchor | None = None
        self._sums: ClassSums | None = None
        self._damping = 0.0

    @property
    def message(self) -> str:
        """What a coreset says of itself whose model was found by such steps."""
        return (
            "So few rows cannot match the gradient of the full data. The model was found on a sample of "
            f"{self._descent.design.data.rows.n:,} rows, whose gradient every read corrected to that of all rows; a "
            "model trained on these rows and weights alone is another one."
        )

    def width(self, y: FloatArray) -> float:
        """Return the smoothing of a read: none, the loss has no kinks."""
        return 0.0

    def start(self, X: Any, y: FloatArray, weights: FloatArray) -> Anchor:
        """Keep the sample, train on it, and return its model."""
        problem = self.problem
        rows = as_rows(X if sp.issparse(X) else np.asarray(X))
        self._normal = Normal.of(problem, Data(rows, y, weights))
        design = ClassDesign.of(problem, self._normal.data)
        self._shift = design.shift if self._normal.centre is None else design.shift + self._normal.centre
        self._descent = ClassDescent(design, _START_TOL, _START_EVALUATIONS)
        if rows.n < design.shape[0] * design.shape[1]:
            self._damping = _DAMPING
        with np.errstate(under="ignore"):
            self._descent.run()
        self._totals = class_totals(self.source, design.shape[0])
        return self._anchor(self._descent.W)

    def see(self, reading: Reading) -> None:
        """Take in a read."""
        anchor = reading.anchor
        self.n_reads += 1
        sums = ClassSums(float(reading.mean_h), np.asarray(reading.slope), reading.gradient)
        upper = min(self.risk, reading.risk)
        # The l1 norm is smoothed about one of all models that differ by the same number in every class.
        W = self._asked[1] if anchor is self._asked[0] else self._weights(anchor)
        with np.errstate(under="ignore"):
            bound = sums_bound(self._descent.design, self._shift, self._totals, sums, self._point(W), upper)
        self.lower = max(self.lower, bound)
        if reading.risk - upper <= _BACK * (upper - max(self.lower.value, 0.0)):
            self._W, self._read, self._sums = W, anchor, sums
        else:
            self._damping = max(_MORE * self._damping, _DAMPING)
        if reading.risk < self.risk:
            self._best, self.risk, self.multiplier = anchor, reading.risk, reading.multiplier

    def next(self, X: Any, y: FloatArray, weights: FloatArray) -> Anchor:
        """Return where to read next: the minimiser of the sample's risk with the gradient of all rows."""
        if self._sums is None:
            raise RuntimeError("a step needs a read")
        descent, slope = self._descent, self._sums.slope
        risk, design = descent.risk, descent.design
        gradient = (self._sums.gradient - slope[:, None] * self._shift) / design.scale
        if design.intercept:
            gradient = np.column_stack([gradient, slope])
        with np.errstate(under="ignore"):
            risk.lean = Lean(self._W, gradient - risk.loss_gradient(self._W), self._damped(X, weights), descent.gram)
            descent.max_evaluations = risk.n_evaluations + _EVALUATIONS
            return self._anchor(descent.onward(self._W, _ROUNDS))

    def solution(self, lower: float, status: Status) -> Solution:
        """Return the best model so far, scored on the full data."""
        anchor = self._best_model()
        return Solution(
            anchor.coef, anchor.intercept, self.multiplier, self.risk, lower, self.risk - lower, status, "tilted",
            self.n_reads, problem=self.problem,
        )  # fmt: skip

    def rounding(self, reading: Reading) -> float:
        """Return the error of `risk` and of the bound."""
        anchor, totals = self._best_model(), self._totals
        scores = float(np.abs(anchor.coef).max(axis=0) @ totals.sizes) + float(np.abs(anchor.intercept).max())
        error = 2.0 * sum_error(self.source.n_features) * scores + sum_error(totals.n_rows) * self.risk
        return error + (self.lower.rounding if np.isfinite(self.lower.value) else 0.0)

    def _best_model(self) -> Anchor:
        if self._best is None:
            raise RuntimeError("a model needs a read")
        return self._best

    def _damped(self, X: Any, weights: FloatArray) -> float:
        """Return the damping in units of the curvature of the loss, which rows of the last read tell.

        A sample of fewer rows than parameters does not: its own are all but certain in the end.
        """
        if self._damping == 0.0:
            return 0.0
        chances = softmax(np.asarray(X @ self._read.coef.T) + self._read.intercept, axis=1)
        return self._damping * float(weights @ (chances * (1.0 - chances)).mean(axis=1))

    def _point(self, W: FloatArray) -> SmoothPoint:
        descent, none = self._descent, np.zeros((0, 0))
        risk = descent.risk
        width = descent.width * descent.scale * risk.narrow
        return SmoothPoint(W, none, None, risk.widest, width, risk.widest.at(risk.unit(W), width))

    def _anchor(self, W: FloatArray) -> Anchor:
        coef, intercept = self._normal.outside(*self._descent.design.model(W))
        anchor = Anchor(coef, intercept, self.problem.family.feasible_multiplier(coef, 0.0))
        self._asked = anchor, W
        return anchor

    def _weights(self, anchor: Anchor) -> FloatArray:
        return self._descent.design.weights(*self._normal.inside(anchor.coef, np.asarray(anchor.intercept)))
