r"""Training on a working sample that is corrected by reads of all rows, at one radius or along a path of radii.

A read of all rows computes risk, gradient and certificate of the models trained on the sample. If a certificate is not
tight enough, the weights of the sample are changed as little as possible so that it has the sums of all rows at the
models read last, and the models are trained again. If the data are small, the sample is all rows and needs no
correction. If there are so many features that the sample does not fit into memory, `solve` trains over reads of the
source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualcore.certificates import Certificate, trivial_bound
from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.exact import MOST_COLUMNS, columns_of
from dualcore.coresets.matched import MatchedModel, sums_of
from dualcore.coresets.radii import evenly
from dualcore.coresets.sample import WorkingSample
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.closed import smoothing_width
from dualcore.reading.models import read_models, reads_together
from dualcore.reading.reading import Reading, read
from dualcore.reading.repair import can_repair, repaired_bounds
from dualcore.reading.rowdata import rows_in_memory
from dualcore.reading.summary import Pass
from dualcore.solvers import Iterate, Solution, Status, solve
from dualcore.solvers.assess import certify_rows, read_model
from dualcore.solvers.pilot import Pilot


@dataclass(frozen=True)
class Round:
    """One read of the data: the number of rows trained on, the risk of the model read, and the best bounds after it."""

    read: int
    rows: int
    risk: float
    upper: float
    lower: float

    @property
    def relative_gap(self) -> float:
        """``(upper - lower) / upper``."""
        return (self.upper - self.lower) / max(abs(self.upper), np.finfo(float).tiny)


Callback = Callable[[Round], None]


class Trained(NamedTuple):
    """A model, its certificate on all rows, and the weighted rows in memory on which it was trained."""

    solution: Solution
    certificate: Certificate
    history: tuple[Round, ...]
    rows: Any
    on_rows: Solution  # the model, with its gap on these rows and its risk on all rows


def train(
    problem: Problem, source: Source, *, rounds: int, target_gap: float, seed: int, callback: Callback, **settings: Any
) -> Trained:
    """Return a model whose certified relative gap on all rows is at most ``target_gap``, if ``rounds`` suffice.

    ``rounds`` limits the corrections, each followed by training. The first model starts from ``warm_start`` if there is
    one. ``settings`` are those of `solve`.
    """
    sample, history = WorkingSample.of(problem, source, seed, dict(settings), target_gap), list[Round]()
    if sample.is_thin:
        if rows_in_memory(source) is None:  # a gap below the target would cost further reads
            settings |= {"tol": max(settings.get("tol", 0.0), target_gap)}
        trained = train_all(problem, source, None, callback, **settings)
        if columns_of(problem, source.n_features)[1] <= MOST_COLUMNS:  # the model is no optimum of the sample: correct
            sample.correct([problem.radius], [trained.solution])
        return trained._replace(rows=sample.working)
    if sample.is_whole:
        return train_all(problem, source, sample.rows, callback, **settings)
    if not problem.family.is_closed:  # a certificate takes as long as training, so a smaller gap is not worth it
        sample.settings["tol"] = max(settings.get("tol", 0.0), 1e-4)

    def tell(stage: str, done: int) -> None:
        if stage == "certify":
            known = models.last_risk, float(models.risk[0]), float(models.lower[0])
            history.append(Round(models.n_reads, len(sample.rows.y), *known))
            callback(history[-1])

    models = CertifiedModels(sample, [problem.radius], target_gap, tell)
    if settings.get("warm_start") is not None:
        models.models[0] = settings["warm_start"]
    models.train([0])
    models.improve(rounds)
    models.tighten(1)
    return Trained(*models.found(0), tuple(history), *models.trained_on[0])


def train_all(problem: Problem, source: Source, rows: Pilot | None, callback: Callback, **settings: Any) -> Trained:
    """Train on all rows: on ``rows``, loaded before, or by `solve` on the source."""
    before, last = source.n_reads, list[Round]()

    def tell(done: Iterate) -> None:
        reads = max(source.n_reads - before, 1)
        last[:] = [Round(reads, source.n_rows, done.value, done.value, done.value - done.gap)]
        callback(last[0])

    solution = solve(problem, *((source,) if rows is None else rows[1:]), callback=tell, **settings)
    tell(Iterate(solution.iterations, solution.value, solution.gap))
    certificate = Certificate(solution.value, solution.lower_bound, last[0].read, solution.rounding)
    # An infinite gap, so that `CoresetBuilder` solves the model again to a small gap on its rows.
    return Trained(solution, certificate, tuple(last), rows, replace(solution, gap=np.inf))


class CertifiedModels:
    """Models of ascending radii, certified by reads of all rows and trained again while a gap is too large.

    Parameters
    ----------
    sample : WorkingSample
    radii : list of float
    target_gap : float
        The certified relative gap to reach.
    tell : callable
        Called with "solve" or "certify" and the number of models done.
    """

    def __init__(
        self, sample: WorkingSample, radii: list[float], target_gap: float, tell: Callable[[str, int], None]
    ) -> None:
        # At a radius of zero no label flips, so the family is that of the largest radius.
        self.sample, self.source, self.problem = sample, sample.source, sample.problem.replace(radius=radii[-1])
        self.radii, self.problems = radii, [sample.problem.replace(radius=radius) for radius in radii]
        self.target_gap, self.tell, self.first_read = target_gap, tell, sample.source.n_reads
        # For every radius: the best model so far; the rows it was trained on, and its solution there; its reading, if
        # models are read one by one.
        self.models: dict[int, Solution] = {}
        self.trained_on: dict[int, tuple[Any, Solution]] = {}
        self.readings: dict[int, Reading] = {}
        self.risk, self.last_risk = np.full(len(radii), np.finfo(float).max), np.inf
        self.lower = np.array([trivial_bound(at) for at in self.problems])
        self.column_sizes: FloatArray | None = None
        self.duals: list[FloatArray] = []
        self.reads_together = len(radii) > 1 and reads_together(self.problem)

    @property
    def n_reads(self) -> int:
        """Number of reads of the data."""
        return self.source.n_reads - self.first_read

    def found(self, k: int) -> tuple[Solution, Certificate]:
        """Return the best model of a radius and its certificate on all rows."""
        model, upper, lower = self.models[k], float(self.risk[k]), float(self.lower[k])
        certificate = Certificate(upper, lower, self.n_reads, model.rounding)
        status = Status.OPTIMAL if certificate.relative_gap <= self.target_gap else Status.MAX_ITER
        known: dict[str, Any] = {"value": upper, "lower_bound": lower, "gap": upper - lower, "dual": None}
        return replace(model, **known, status=status, n_reads=self.n_reads), certificate

    def gaps(self) -> FloatArray:
        """Return the certified relative gaps; shape (n_radii,)."""
        return np.asarray((self.risk - self.lower) / np.maximum(np.abs(self.risk), np.finfo(float).tiny))

    def train(self, positions: list[int], rows: Any = None) -> None:
        """Train the models of some radii on the sample, or on other rows, and read them."""
        starts = [self.models[k] for k in positions] if self.models else None
        radii, done = [self.radii[k] for k in positions], len(self.radii) - len(positions)
        # On a coreset, models between two radii may be interpolated if that is accurate enough for the target gap.
        between = 0.0 if rows is None else 0.2 * self.target_gap
        found = self.sample.train(radii, rows, starts, lambda count: self.tell("solve", done + count), between)
        if self.sample.is_whole and rows is None:  # the sample is all rows, so the solver's bound is valid
            self.lower[positions] = np.maximum(self.lower[positions], [model.lower_bound for model in found])
        self.score(dict(zip(positions, found, strict=True)), self.sample.working if rows is None else rows)

    def improve(self, rounds: int) -> None:
        """Correct the sample by the sums read, and train the models of too large a gap again; repeat."""
        for _ in range(rounds):
            gaps, risk = self.gaps(), self.risk.copy()
            loose = np.flatnonzero(gaps > self.target_gap).tolist()
            if not loose:
                break
            if not self.sample.is_whole and self.reads_together:
                some = [loose[k] for k in evenly([self.radii[k] for k in loose])]
                self.sample.correct([self.radii[k] for k in some], [self.models[k] for k in some])
            elif not self.sample.is_whole:
                self.sample.recalibrate()
            self.train(loose)
            # Where the risk no longer decreases, the model is good and only its bound is loose: see `tighten`.
            falls = (risk - self.risk)[loose] > 0.1 * self.target_gap * np.abs(self.risk[loose])
            if len(self.radii) > 1:  # one read may tighten many bounds
                falls |= self.gaps()[loose] <= 0.5 * gaps[loose]
            if not falls.any():
                break

    def tighten(self, rounds: int) -> None:
        """Improve the lower bounds that are loose; this takes further reads."""
        for k, reading in self.readings.items():
            if reading.needs_rows:
                known, multiplier = certify_rows(self.problems[k], self.source, reading.anchor)
                self.models[k] = replace(self.models[k], dual_variable=multiplier, rounding=known.rounding)
                self.risk[k] = known.upper
                self._raise(k, known.lower)
        for _ in range(rounds):
            k = int(np.argmax(self.gaps()))
            before = self.lower[k]
            if self.gaps()[k] <= self.target_gap or not can_repair(self.problem, self.source.n_features):
                break
            best = self.readings.get(k) or read_model(self.problems[k], self.source, self.models[k])
            if not self.sample.is_whole:  # the sample needs the gradient of all rows to choose smoothing widths
                self.sample.known[-1.0] = MatchedModel(self.problems[k], best.anchor), sums_of(best, self.sample.centre)
                self.sample.recalibrate()
            anchor, level_set = replace(best.anchor, multiplier=best.multiplier), best.level_set(best.risk)  # type: ignore[attr-defined]
            for bound in repaired_bounds(self.source, self.problems[k], anchor, self.sample.working, level_set):
                self._raise(k, bound)
                if self.gaps()[k] <= self.target_gap:
                    break
            if not self.lower[k] > before:
                break

    def _raise(self, k: int, bound: float) -> None:
        """Raise the lower bound of a radius, and by concavity those of its neighbours."""
        self.lower[k] = max(self.lower[k], bound)
        self.lower = np.minimum(self._lifted(), self.risk)
        self.tell("certify", len(self.models))

    def score(self, found: dict[int, Solution], rows: Any) -> None:
        """Read the models of some radii on all rows; ``rows`` are those on which they were trained."""
        if self.reads_together:
            self._read_together(found, rows)
        else:
            for k, model in found.items():
                self._read_one(k, model, rows)
        self._raise(0, -np.inf)

    def _read_one(self, k: int, model: Solution, rows: Any) -> None:
        at, anchor = self.problems[k], anchor_at(self.problems[k], model)
        task = Pass(at, anchor, smoothing_width(at, anchor, rows), sized=self.column_sizes is None)
        reading = read(self.source, task, self.column_sizes)
        self.column_sizes, self.last_risk = reading.column_sizes, reading.risk
        self.lower[k] = max(self.lower[k], reading.lower_bound(min(self.risk[k], reading.risk), self.duals))
        if len(self.radii) == 1:  # dual points of earlier models of the same radius are combined in later bounds
            self.duals += reading.duals
        known, key = self.sample.known, self.n_reads if len(self.radii) == 1 else at.radius
        if len(self.radii) == 1 and len(known) > 1:  # to match more models that hardly differ would distort the weights
            del known[min(known)]
        known[key] = MatchedModel(at, anchor), sums_of(reading, self.sample.centre)
        if self._note(k, model, rows, reading.risk, reading.multiplier, reading.rounding):
            self.readings[k] = reading

    def _read_together(self, found: dict[int, Solution], rows: Any) -> None:
        """Read the data once; keep the risks of the models, and raise the lower bounds by their slopes."""
        bounding = self._bounding(found)
        order = [*bounding, *(k for k in found if k not in bounding)]
        models, widths = [found[k] for k in order], [smoothing_width(self.problem, found[k], rows) for k in bounding]
        asked = models[: len(bounding)], widths, self.radii[-1], models[len(bounding) :], self.column_sizes
        reading = read_models(self.source, self.problems[-1], *asked)
        self.column_sizes = reading.column_sizes
        for j, k in enumerate(order):
            at = self.problems[k]
            risk, multiplier = reading.risk(at, j)
            self._note(k, found[k], rows, risk, multiplier, reading.rounding(at, j))
            # The slopes of a neighbouring radius may prove a better bound.
            for near in range(max(j - 2, 0), min(j + 3, len(bounding))) if j < len(bounding) else ():
                self.lower[k] = max(self.lower[k], reading.lower_bound(at, near, risk))

    def _bounding(self, found: dict[int, Solution]) -> list[int]:
        """Return indices of models whose lower bounds imply those between them: the optimum is concave in the price.

        They are chosen so that the chords between them are within half the target gap of the optima on the rows trained
        on.
        """
        order, chosen = list(found), [0]
        x, y = np.array([(self.problems[k].price, found[k].value) for k in order]).T
        for k in range(2, len(order)):
            ends = [chosen[-1], k]
            if ((y - np.interp(x, x[ends], y[ends]))[ends[0] : k] > 0.5 * self.target_gap * np.abs(y[k])).any():
                chosen.append(k - 1)
        return [order[k] for k in dict.fromkeys([*chosen, len(order) - 1])]

    def _note(self, k: int, model: Solution, rows: Any, risk: float, multiplier: float, rounding: float) -> bool:
        """Keep a model if it is the best of its radius."""
        if not risk < self.risk[k]:
            return False
        self.models[k] = replace(model, dual_variable=multiplier, dual=None, rounding=rounding)
        self.risk[k], self.trained_on[k] = risk, (rows, replace(model, value=risk))
        return True

    def _lifted(self) -> FloatArray:
        """Return the concave hull (n_radii,) of the lower bounds: the optimum is concave in ``price``, as a minimum."""
        x, y = np.array([at.price for at in self.problems]), self.lower
        hull = [0]
        while hull[-1] < x.size - 1:  # go to the point to which the line is steepest
            later = slice(hull[-1] + 1, None)
            slopes = (y[later] - y[hull[-1]]) / np.maximum(x[later] - x[hull[-1]], 1e-300)
            hull.append(hull[-1] + 1 + int(np.argmax(slopes)))
        # Rounded down, so that interpolated values remain lower bounds.
        return np.asarray(np.maximum(y, np.interp(x, x[hull], y[hull]) * (1.0 - 1e-14)))
