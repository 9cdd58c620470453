r"""Steps of a coreset with about as few rows as parameters: gradients from the reads, lengths of steps from its rows.

The weights of such a coreset cannot match the gradient of the full data. A linear term can: around ``theta_k``

.. math:: f_S(\theta) + \langle \nabla f(\theta_k) - \nabla f_S(\theta_k), \theta \rangle + \text{norm}

has the value of the rows and the slope of the full data. Over all directions a few rows know too little of the
curvature, so that it is trusted along one: the step of a quasi-Newton method, which learns from the gradients of all
reads so far. The line search of the next read, on the full data, corrects the length. With three rows a parameter or
more their curvature is the metric of that method, else it is a multiple of the identity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.problem import Anchor, Data, Problem
from dualcore.reading.closed import ClosedReading
from dualcore.reading.reading import Reading
from dualcore.solvers import Solution, Status
from dualcore.solvers.descent.memory import MemoryOracle, target_spread
from dualcore.solvers.descent.metric import MOST_FEATURES, DiagonalHessian, Hessian, SampleHessian
from dualcore.solvers.descent.objective import Objective, Valued
from dualcore.solvers.descent.oracle import ColumnScaling
from dualcore.solvers.descent.proximal import proximal_target
from dualcore.solvers.descent.rowsums import Point, RowFunction, RowSums

# What a coreset says of itself whose model was found by such steps.
TILTED_MESSAGE = (
    "So few rows cannot match the gradient of the full data. The model was found by steps along gradients of all rows, "
    "whose lengths these rows suggested; a model trained on these rows and weights alone is another one."
)

# The same of rows whose curvature is the metric of the steps.
METRIC_MESSAGE = (
    "The model was found by steps along gradients of all rows, in the metric of these rows; a model trained on these "
    "rows and weights alone is another one."
)
# Rows for each parameter from which on their curvature is a metric.
_METRIC_ROWS = 3.0

# Smoothing of kinks, and of flips where there are no kinks, in typical margins or residuals: wide in the first read,
# where steps are long, and narrower by a factor in each read after it.
_KINK_WIDTH, _FLIP_WIDTH, _NARROWER = 0.5, 0.25, 0.7
# Lengths of a step, in units of that of the quadratic model, that the rows may suggest.
_SHORTEST, _LONGEST = 0.01, 4.0
# A column whose spread is below this share of its size is not scaled by it.
_CONSTANT = 1e-6


def can_tilt(problem: Problem) -> bool:
    """Whether the steps are known: for closed forms whose risk is linear in the multiplier."""
    family = problem.family
    return family.is_closed and family.linear_in_multiplier and (problem.radius > 0.0 or not family.flips)


class Seen(NamedTuple):
    """A point of the full data's risk and the sums of rows there."""

    point: Point
    sums: RowSums


class TiltedSteps:
    """The quasi-Newton method over reads, its step lengths by weighted rows with a linear term.

    Parameters
    ----------
    problem : Problem
        One that `can_tilt` accepts.

    Attributes
    ----------
    risk, multiplier : float
        Of `anchor`, on the full data.
    n_reads : int
        Reads taken in.
    message : str
        What a coreset says of itself whose model was found by such steps.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.message = problem, TILTED_MESSAGE
        self.risk, self.multiplier, self.n_reads = np.inf, 0.0, 0
        self._columns = ColumnScaling(np.zeros(0), np.ones(0))
        self._here: Seen | None = None
        self._pairs: list[tuple[Seen, Seen]] = []
        self._width = 0.0

    def width(self, y: FloatArray) -> float:
        """Return the smoothing of the next read; ``y`` are the targets of some rows."""
        if not (self.problem.loss.kinks or self.problem.family.flips):
            return 0.0
        spread = 1.0 if self.problem.is_classification else target_spread(y)
        first = _KINK_WIDTH if self.problem.loss.kinks else _FLIP_WIDTH
        return first * _NARROWER**self.n_reads * spread

    def start(self, X: Any, y: FloatArray, weights: FloatArray) -> Anchor:
        """Return the model without coefficients, its multiplier such that no row flips."""
        m, problem = X.shape[1], self.problem
        intercept = self._oracle(X, y, weights, ColumnScaling(np.zeros(m), np.ones(m))).constant(0.0)
        coef, multiplier = np.zeros(m), 0.0
        if problem.family.flips:
            t = np.array([abs(intercept)])
            gain = float((problem.loss.value(-t) - problem.loss.value(t))[0])
            multiplier = (gain + 2.0 * problem.loss.lipschitz * self.width(y)) / problem.geometry.label_cost
        return Anchor(coef, intercept, problem.family.feasible_multiplier(coef, multiplier))

    @property
    def anchor(self) -> Anchor | None:
        """The best model so far; it may lie between two that were read at."""
        return None if self._here is None else self._anchor(self._here.point)

    def solution(self, lower: float, status: Status) -> Solution:
        """Return the best model so far, scored on the full data."""
        anchor, gap = self._best(), self.risk - lower
        return Solution(
            anchor.coef, anchor.intercept, self.multiplier, self.risk, lower, gap, status, "tilted", self.n_reads,
            problem=self.problem,
        )  # fmt: skip

    def rounding(self, reading: Reading) -> float:
        """Return the error of `risk`; ``reading`` knows the sizes of the columns."""
        anchor = self._best()
        return _closed(reading).level_set(self.risk).risk_error(anchor.coef, anchor.intercept)

    def _best(self) -> Anchor:
        anchor = self.anchor
        if anchor is None:
            raise RuntimeError("a model needs a read")
        return anchor

    def see(self, reading: Reading) -> None:
        """Take in a read whose line search began at `anchor`."""
        reading = _closed(reading)
        before = self._here
        # In a read flips set in over twice the width; where the loss has no kinks that is all there is to smooth.
        self._width = reading.task.width * (1.0 if self.problem.loss.kinks else 2.0)
        if before is None:
            self._columns = self._find_columns(reading)
        self.n_reads += 1
        there = self._seen(reading)
        full = (1.0, reading.risk, reading.multiplier)
        step, risk, multiplier = min([full, *reading.line_minima()], key=lambda found: found[1])
        if before is not None:
            self._pairs.append((before, there))
            there = there if step == 1.0 else _between(before, there, step)
        if risk < self.risk:
            self._here, self.risk, self.multiplier = there, risk, multiplier

    def next(self, X: Any, y: FloatArray, weights: FloatArray) -> Anchor:
        """Return where to read next: a step from `anchor`, as long as weighted rows with a linear term suggest."""
        if self._here is None:
            raise RuntimeError("a step needs a read")
        oracle = self._oracle(X, y, weights, self._columns)
        objective = Objective(oracle, self._width)
        here = objective.compose(*self._here)
        pairs = [(objective.compose(*before), objective.compose(*after)) for before, after in self._pairs]
        hessian: Hessian = DiagonalHessian(objective, here, self._width)
        m = X.shape[1]
        if len(y) >= _METRIC_ROWS * (m + 1) and m <= MOST_FEATURES:
            hessian = SampleHessian(objective, here, self._width, np.random.default_rng(0))
            self.message = METRIC_MESSAGE
        target = proximal_target(objective, here, hessian, pairs)
        line = _Line(objective, oracle, here, target)
        bounds = (np.log(_SHORTEST), np.log(_LONGEST))
        found = minimize_scalar(
            lambda length: line.value(float(np.exp(length))), bounds=bounds, method="bounded", options={"xatol": 0.02}
        )
        return self._anchor(line.point(float(np.exp(found.x))))

    def _oracle(self, X: Any, y: FloatArray, weights: FloatArray, columns: ColumnScaling) -> MemoryOracle:
        X = X.astype(np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        return MemoryOracle(self.problem, Data(as_rows(X), y, weights), columns)

    def _find_columns(self, reading: ClosedReading) -> ColumnScaling:
        centre, spread = reading.columns()
        if not self.problem.fit_intercept:
            spread, centre = np.sqrt(spread**2 + centre**2), np.zeros_like(centre)
        return ColumnScaling(centre, np.where(spread > _CONSTANT * (np.abs(centre) + spread), spread, 1.0))

    def _anchor(self, point: Point) -> Anchor:
        coef, intercept = self._columns.model(point)
        multiplier = self.problem.family.feasible_multiplier(coef, self.problem.loss.lipschitz * point.size)
        return Anchor(coef, intercept if self.problem.fit_intercept else 0.0, multiplier)

    def _seen(self, reading: ClosedReading) -> Seen:
        columns, anchor, found = self._columns, reading.anchor, reading.smoothed_sums()
        problem = self.problem
        size = anchor.multiplier / problem.loss.lipschitz if problem.family.flips else problem.size(anchor.coef)
        point = columns.point(anchor.coef, float(anchor.intercept))._replace(size=size)
        gradient = (found.coef - found.intercept * columns.centre) / columns.scale
        return Seen(point, RowSums(float(reading.mean_h), gradient, found.intercept, found.flipped, 0.0))


class _Line:
    """The risk of weighted rows with the linear term, along a step."""

    def __init__(self, objective: Objective, oracle: MemoryOracle, here: Valued, target: Point) -> None:
        self.objective, self.here, self.target = objective, here.point, target
        self.function, self.masses = RowFunction(objective.problem, objective.width), oracle.masses
        # From the origin nothing is known yet of the flips at larger models but what the rows tell.
        self.fits_size = objective.problem.family.flips and not here.point.coef.any()
        self.start = oracle.signal(here.point)
        self.move = oracle.signal(target) - self.start
        rows = self.function.parts(self.start, self.masses, here.point.size)
        along = float(here.sums.coef @ (target.coef - here.point.coef))
        along += here.sums.intercept * (target.intercept - here.point.intercept)
        # The derivatives of all rows less those of the coreset's, along the step and in the multiplier.
        self.tilt = along - float((self.masses * rows.slope) @ self.move)
        cost = objective.problem.geometry.label_cost if objective.problem.family.flips else 0.0
        self.size_tilt = -objective.lipschitz * cost * (here.sums.flipped - rows.flipped)

    def point(self, length: float) -> Point:
        """Return a point of the line."""
        here, target = self.here, self.target
        coef = here.coef + length * (target.coef - here.coef)
        size, least = here.size + length * (target.size - here.size), self.objective.size(coef)
        if self.fits_size:
            size = self.function.best_size(self.start + length * self.move, self.masses, least)
        size = max(size, least)
        return Point(coef, here.intercept + length * (target.intercept - here.intercept), size)

    def value(self, length: float) -> float:
        """Return the risk at a point of the line, up to a constant."""
        objective, at = self.objective, self.point(length)
        rows = self.function.parts(self.start + length * self.move, self.masses, at.size).value
        rows += length * self.tilt + at.size * self.size_tilt
        penalty = 0.5 * float(objective.ridge @ (at.coef * at.coef))
        return rows + objective.radius * objective.lipschitz * at.size + penalty


def _closed(reading: Reading) -> ClosedReading:
    if not isinstance(reading, ClosedReading):
        raise TypeError("steps with a linear term need the sums of a closed form")
    return reading


def _between(before: Seen, there: Seen, step: float) -> Seen:
    """Return a point of the line search: the gradient is about linear along so short a way."""

    def mixed(old: Any, new: Any) -> list[Any]:
        return [(1.0 - step) * one + step * other for one, other in zip(old, new, strict=True)]

    return Seen(Point(*mixed(before.point, there.point)), RowSums(*mixed(before.sums, there.sums)))
