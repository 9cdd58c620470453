"""The loop: read, draw, calibrate, solve, and again from the new solution, until the certificate is tight enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualcore.coresets.coreset import Coreset
from dualcore.coresets.samplers.anchors import anchor_at, check_size, pilot_sample
from dualcore.coresets.samplers.base import Callback, CoresetFit, Round, finish
from dualcore.coresets.samplers.classsteps import ClassSteps, can_step, sample_rows
from dualcore.coresets.samplers.merged import merged_bounds
from dualcore.coresets.samplers.strata import draw_cells, keep_fractions
from dualcore.coresets.samplers.tilt import TiltedSteps, can_tilt
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.problem import Anchor, Problem
from dualcore.reading.cells import first_reach, spread_of
from dualcore.reading.closed import ClosedReading
from dualcore.reading.groups import can_merge
from dualcore.reading.reading import Reading, read
from dualcore.reading.repair import can_repair, repaired_bounds
from dualcore.reading.rowdata import rows_in_memory
from dualcore.reading.rowwise import along
from dualcore.reading.summary import Pass, WeightedRows, plan_cells
from dualcore.solvers import Solution, Status, solve_quietly
from dualcore.solvers.assess import certify_rows
from dualcore.solvers.descent.metric import MOST_FEATURES

# Shares of a step at which a thin coreset's line search looks; the full step is always looked at.
_STEPS = (0.03, 0.1, 0.2, 0.4, 0.7)
# Relative gap asked of a model trained on a coreset, and steps it may take, where a family is known by its rows only;
# fewer steps where rows are fewer than parameters: they are fitted exactly in the end, which says little of the others.
_ROUGH, _FEW_STEPS, _FEWER_STEPS = 1e-4, 20, 6
# Fewer rows than this many per parameter make a coreset thin. With fewer than the second number the reads alone decide
# where to go: on LETTER (17 parameters) both ways are equally good at about four rows a parameter.
_THIN, _TILTED = 12, 3.0
# Of losses with kinks few rows lie near a kink at the optimum, and a coreset's own optimum is a poor step even with
# more rows: up to some forty for each parameter, steps along gradients of all rows in the metric of the coreset have
# the smaller excess (benchmarks/check_thin_kinks.py).
_TILTED_KINKS = 40.0
# Such steps set out from a model trained on as many rows, if that is sound: where a class has fewer rows for each
# parameter than this, two classes may be separable and the model far off. They then set out from the origin.
_SEPARABLE = 2.7
# Of the gap asked for, what may be lost where merged rows are solved.
_SHARE = 0.05
# A larger gap that sums of reads leave of many classes is looked at again with all rows, where these are in memory.
_LOOSE = 0.02
# Relative gap asked of the first model of many classes, trained on more rows than the coreset has.
_START_TOL = 1e-3
# What a coreset says of itself where the model of many classes was trained on all rows.
_ALL_ROWS_MESSAGE = (
    "So few rows cannot tell the model of many classes. All rows fit in memory, and the model was trained on them; a "
    "model trained on these rows and weights alone is another one."
)


@dataclass(frozen=True)
class _Model:
    """A model to read the data at, and the weighted rows it was trained on (they predict the cells)."""

    anchor: Anchor
    X: Any
    y: FloatArray
    weights: FloatArray
    solution: Solution | None
    shortened: bool = False


class Refinement:
    """Re-anchor, redraw, recalibrate: a read a round, the risk of the best model never rising.

    A coreset calibrated at the anchor agrees with the full data there to first order, so the step towards its
    solution is a step downhill on the full data, and its length is the only question. With plenty of rows the
    full step is taken; a thin coreset is trusted along a line search only. With fewer than three rows a parameter, or
    forty where the loss has kinks, even its direction is not: `TiltedSteps`, for many classes `ClassSteps`, then makes
    the step from the gradients of the reads.

    The settings are those of `DualCoreset` and of its ``fit``; ``callback`` is called with a `Round` after every read.
    """

    def __init__(
        self,
        problem: Problem,
        source: Source,
        size: int,
        seed: int,
        *,
        rounds: int,
        target_gap: float | None = None,
        anchor: Anchor | None = None,
        calibrated: bool = True,
        focused: bool = True,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        callback: Callback | None = None,
    ) -> None:
        check_size(problem, size)
        self.problem, self.source, self.size, self.seed = problem, source, size, seed
        self.rounds, self.target_gap, self.anchor = rounds, target_gap, anchor
        self.calibrated, self.focused = calibrated, focused
        self.callback, self.max_iter = callback, max_iter
        self.pilot_rows = size
        n_parameters = problem.family.n_outputs * (source.n_features + 1)
        self.thin = size < _THIN * (n_parameters + 1)
        steps_known = can_tilt(problem) or can_step(problem, source.n_features)
        in_metric = bool(problem.loss.kinks) and can_tilt(problem) and source.n_features <= MOST_FEATURES
        self.may_tilt = size < (_TILTED_KINKS if in_metric else _TILTED) * n_parameters and steps_known
        self.in_metric, self.n_parameters = in_metric and size >= _TILTED * n_parameters, n_parameters
        self.tilted: TiltedSteps | ClassSteps | None = None
        # Where the certificate takes many reads, one more in each round, for a shorter step, costs little beside them.
        self.spares = not problem.family.is_closed
        # Rounds before the last need no more digits than the error of a coreset of a few rows.
        self.inner_tol = max(tol, _ROUGH) if self.spares else tol
        few = _FEWER_STEPS if size < n_parameters else _FEW_STEPS
        steps = min(max_iter, few) if self.spares else max_iter
        self.settings: dict[str, Any] = {"solver": solver, "tol": self.inner_tol, "max_iter": steps}
        self.most_reads = 1 + rounds * (2 if self.spares and not self.may_tilt else 1)
        self.history: list[Round] = []
        self.duals: list[FloatArray] = []
        self.column_sizes: FloatArray | None = None
        self.lower = -np.inf
        self.best: Reading | None = None
        self.last: Pass | None = None  # of the last reading, whose sample is not kept
        self.line: list[tuple[float, float]] = []
        self.stride = 1.0
        self.before = source.n_reads
        self.reach = first_reach(source.n_features + 1, size)

    def build(self) -> Coreset:
        """Return the last coreset; no read follows it."""
        model = self._start()
        for number in range(self.rounds):
            last = number + 1 == self.rounds
            reading = self._read(model, number, certified=not last)
            coreset = draw_cells(reading, self.size, calibrated=self.calibrated)
            if not last and not self._tight():
                model = self._next(coreset)
            else:
                break
        return coreset

    def fit(self) -> CoresetFit:
        """Return the best model seen, scored and certified on the full data."""
        many = self.problem.family.n_outputs > 1
        if many and self.size < _TILTED * self.n_parameters:
            # The model of so few rows is a poor start, whether or not steps are known from there.
            self.pilot_rows = max(self.size, sample_rows(self.problem, self.source))
            if self.pilot_rows == self.source.n_rows:
                return self._fit_all_rows()
        if self.may_tilt:
            self.tilted = ClassSteps(self.problem, self.source) if many else TiltedSteps(self.problem)
        model = self._start()
        coreset: Coreset | None = None
        trained = model.solution
        drawn: Pass | None = None
        redraw, left = 0, self.rounds
        for read_number in range(self.most_reads):
            here = self._read(model, read_number)
            if here is self.best:
                trained = model.solution
            if read_number + 1 == self.most_reads or self._tight():
                break
            shorter = self._shorter(model, here) if self.tilted is None else None
            if shorter is not None:
                model = shorter
                continue
            if not left:
                break
            left -= 1
            redraw = redraw + 1 if here.task is drawn else 0
            drawn = here.task
            # A linear term matches the full data whatever the weights are: those of the draw have less noise.
            calibrated = self.calibrated and self.tilted is None
            coreset, model = None, replace(model, X=None)  # rows of the last draw, as many as this one needs
            coreset = draw_cells(here, self.size, calibrated=calibrated, redraw=redraw)
            del here  # the next read needs the memory of its sample
            model = self._next(coreset)
        best = self.best
        if best is None:
            raise RuntimeError("the loop always reads at least once")
        if self.tilted is not None:
            return self._finish_tilted(self.tilted, best)
        if coreset is None:
            coreset = draw_cells(best, self.size, calibrated=self.calibrated)
        if self.target_gap is not None and not self._tight():
            self._repair(best, coreset, best.risk)
        anchor = best.anchor
        if best.needs_rows:
            anchor = self._best_on_line(best)
            self._settle(best, anchor)
        solution = trained or solve_quietly(self.problem, coreset, **self.settings)
        solution = replace(solution, coef=anchor.coef, intercept=anchor.intercept)
        return self._finish(solution, best.risk, best.multiplier, coreset, best.rounding)

    def _fit_all_rows(self) -> CoresetFit:
        """Return the model of all rows, and a coreset drawn at it.

        So few rows of a coreset say little of a model of many classes: others have to be kept in memory beside them
        until the curvature is known. Where those are all rows, training on them takes less time than any correction of
        a part of them, and its bound is about the full data.
        """
        rows = pilot_sample(self.problem, self.source, self.source.n_rows, seed_from(self.seed, 1))
        goal = self.inner_tol if self.target_gap is None else self.target_gap
        settings = self.settings | {"tol": goal, "max_iter": self.max_iter, "warm_start": self.anchor}
        solution = solve_quietly(self.problem, rows, **settings)
        self.lower = solution.lower_bound
        reading = self._read(_Model(anchor_at(self.problem, solution), rows.X, rows.y, rows.weights, solution), 0)
        coreset = draw_cells(reading, self.size, calibrated=self.calibrated)
        message = " ".join([*filter(None, [coreset.details.get("message")]), _ALL_ROWS_MESSAGE])
        coreset = replace(coreset, details=coreset.details | {"message": message})
        # Of columns far from the origin the solver's own risk has more digits than that of a read.
        self.history[-1] = replace(self.history[-1], risk=solution.value, upper=solution.value)
        return self._finish(solution, solution.value, solution.dual_variable, coreset, solution.rounding)

    def _finish(
        self, solution: Solution, risk: float, multiplier: float, coreset: Coreset, rounding: float
    ) -> CoresetFit:
        history = tuple(self.history)
        return finish(solution, risk, multiplier, self.lower, coreset, history, history[-1].read, rounding)

    def _finish_tilted(self, steps: TiltedSteps | ClassSteps, best: Reading) -> CoresetFit:
        """Return the best model of the steps, and a coreset of the best read."""
        coreset = draw_cells(best, self.size, calibrated=self.calibrated)
        message = " ".join([*filter(None, [coreset.details.get("message")]), steps.message])
        coreset = replace(coreset, details=coreset.details | {"message": message})
        if (
            isinstance(steps, ClassSteps)
            and self.history[-1].relative_gap > _LOOSE
            and rows_in_memory(self.source) is not None
        ):
            self._settle(best, best.anchor)
        if self.target_gap is not None and not self._tight():
            self._repair(best, coreset, steps.risk)
        goal = self.inner_tol if self.target_gap is None else self.target_gap
        status = Status.OPTIMAL if self.history[-1].relative_gap <= goal else Status.MAX_ITER
        solution = steps.solution(self.lower, status)
        rounding = max(steps.rounding(best), best.known_rounding)
        return self._finish(solution, steps.risk, steps.multiplier, coreset, rounding)

    def _repair(self, best: Reading, coreset: Coreset, risk: float) -> None:
        """Look for a tighter bound by a few more reads: a model may be better than its certificate can tell.

        ``risk`` is that of the best model, which may lie between two reads.
        """
        if (self.thin and self.tilted is None) or not isinstance(best, ClosedReading):  # too far from the optimum
            return
        for found in self._closer_bounds(best, coreset):
            self.lower = min(max(self.lower, found), risk)
            reads, rows = self.source.n_reads - self.before, self.history[-1].rows
            self.history.append(Round(reads, rows, risk, risk, self.lower))
            if self.callback is not None:
                self.callback(self.history[-1])
            if self._tight():
                break

    def _closer_bounds(self, best: ClosedReading, coreset: Coreset) -> Iterator[float]:
        """Return bounds that take a read each, as far as there are any for the problem."""
        problem, source, anchor = self.problem, self.source, replace(best.anchor, multiplier=best.multiplier)
        if can_merge(problem, source.n_features):
            return merged_bounds(source, best, anchor, max(self.inner_tol, _SHARE * (self.target_gap or 0.0)))
        if not can_repair(problem, source.n_features):
            return iter(())
        t = problem.family.signal_at(anchor, coreset.X, coreset.y)
        return repaired_bounds(source, problem, anchor, spread_of(t, coreset.weights), best.level_set(best.risk))

    def _best_on_line(self, best: Reading) -> Anchor:
        """Return the best model known, which may be one that the last line search passed."""
        step, risk = min(self.line, key=lambda pair: pair[1], default=(1.0, np.inf))
        if self.last is None or self.last.origin is None or risk >= best.risk:
            return best.anchor
        return along(self.problem.family, self.last.origin, self.last.anchor, step)

    def _settle(self, best: Reading, anchor: Anchor) -> None:
        """Look closer at the best model, where sums bound its risk from above only; it may be one of the last line."""
        known, multiplier = certify_rows(self.problem, self.source, anchor)
        best.replace_risk(known, multiplier)
        self.lower = min(max(self.lower, known.lower), known.upper)
        reads, rows = self.source.n_reads - self.before, self.history[-1].rows
        self.history.append(Round(reads, rows, known.upper, known.upper, self.lower))

    def _tight(self) -> bool:
        return self.target_gap is not None and self.history[-1].relative_gap <= self.target_gap

    def _start(self) -> _Model:
        pilot = pilot_sample(self.problem, self.source, self.pilot_rows, seed_from(self.seed, 1))
        start = None
        if self.tilted is not None and not (self.in_metric and self._is_sound(pilot.y)):
            start = self.tilted.start(pilot.X, pilot.y, pilot.weights)
        start = start if self.anchor is None else self.anchor
        if start is not None:
            return _Model(start, pilot.X, pilot.y, pilot.weights, None)
        larger = self.pilot_rows > self.size
        return self._model(pilot, **({"tol": _START_TOL, "max_iter": self.max_iter} if larger else {}))

    def _is_sound(self, y: FloatArray) -> bool:
        """Whether a model trained on rows with these targets says something of the others."""
        if not self.problem.is_classification:
            return True
        return bool(min(np.sum(y > 0.0), np.sum(y < 0.0)) >= _SEPARABLE * self.n_parameters)

    def _next(self, coreset: Coreset) -> _Model:
        self.reach = max(0.5 * self.reach, 1e-3)
        if self.tilted is not None:
            anchor = self.tilted.next(coreset.X, coreset.y, coreset.weights)
            return _Model(anchor, coreset.X, coreset.y, coreset.weights, None)
        model = self._model(coreset)
        if self.thin and coreset.anchor is not None and self.stride < 1.0:
            model = replace(model, anchor=along(self.problem.family, coreset.anchor, model.anchor, self.stride))
            self.stride = min(1.0, 1.5 * self.stride)
        return model

    def _model(self, rows: WeightedRows, **changes: Any) -> _Model:
        solution = solve_quietly(self.problem, rows, **self.settings | changes)
        return _Model(anchor_at(self.problem, solution), rows.X, rows.y, rows.weights, solution)

    def _read(self, model: _Model, number: int, *, certified: bool = True) -> Reading:
        """Read the data at a model; return the reading to draw from next, the model's own unless it is a step back."""
        task = self._task(model, number)
        if certified:
            reading = read(self.source, task._replace(sized=self.column_sizes is None), self.column_sizes)
            self.column_sizes = reading.column_sizes
        else:
            reading = read(self.source, task._replace(width=0.0, certified=False))
        self.last, self.line = reading.task, reading.line()
        previous = self.best
        if previous is None or reading.risk < previous.risk:
            self.best = reading
        risk = reading.risk
        if self.tilted is not None:
            self.tilted.see(reading)
            risk = min(risk, self.tilted.risk)
        upper = risk if previous is None else min(previous.risk, risk)
        if isinstance(self.tilted, ClassSteps):
            self.lower = max(self.lower, self.tilted.lower.value)
        self.lower = min(max(self.lower, reading.lower_bound(upper, self.duals)), upper)
        self.duals += reading.duals
        done = Round(self.source.n_reads - self.before, len(model.y), risk, upper, self.lower)
        self.history.append(done)
        if self.callback is not None:
            self.callback(done)
        # Near the optimum risks differ by less than the gap: a fresh anchor is then worth more than the last digit.
        if (
            previous is None
            or reading is self.best
            or (not self.thin and reading.risk <= upper + 0.5 * (upper - self.lower))
        ):
            return reading
        return previous

    def _task(self, model: _Model, number: int) -> Pass:
        problem, anchor = self.problem, model.anchor
        plan = plan_cells(problem, anchor, model, self.size, self.reach, focused=self.focused)
        keep = keep_fractions(plan.rule, plan.mass, self.size, self.source.n_rows)
        origin = self.best.anchor if self.thin and self.best is not None else None
        width = plan.smoothing
        if self.tilted is not None:
            # A step of many classes is as long as a sample says that knows all directions.
            origin = self.tilted.anchor if isinstance(self.tilted, TiltedSteps) else None
            width = self.tilted.width(model.y)
        steps = () if origin is None else _STEPS
        seed = seed_from(self.seed, 2 + number)
        return Pass(problem, anchor, plan.rule, seed, keep, width, origin, steps)

    def _shorter(self, model: _Model, here: Reading) -> _Model | None:
        """Return the best shorter step of a line search: where the full one was a step back, or reads are to spare."""
        if self.best is None or self.last is None or not self.thin or self.last.origin is None:
            return None
        forward = here.anchor is model.anchor
        if (forward and not self.spares) or (self.spares and model.shortened):
            return None
        step, risk = min(self.line, key=lambda pair: pair[1], default=(0.0, np.inf))
        if risk >= self.best.risk:
            return None
        # The next coreset is as thin as this one: its step will want to be about as short.
        self.stride = 1.0 if self.spares else step * self.stride
        anchor = along(self.problem.family, self.last.origin, model.anchor, step)
        return _Model(anchor, model.X, model.y, model.weights, model.solution, shortened=True)
