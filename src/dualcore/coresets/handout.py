"""Which coreset is handed out: the exact one, a calibrated draw or a uniform draw, by the risk of what each trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.coresets.allocate import allocate
from dualcore.coresets.anchors import anchor_at, pilot_sample
from dualcore.coresets.calibrate import keeps_classes, match_means
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.exact import (
    MET,
    MOST_COLUMNS,
    ROWS_OF_A_DRAW,
    Plan,
    columns_of,
    exact_coreset,
    plan_rows,
    refilled,
    rows_for,
)
from dualcore.coresets.matched import At, Matched, centre_of
from dualcore.coresets.recombine import find_means
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.models import read_models
from dualcore.reading.rowdata import source_data
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.pilot import Pilot

# Excess at which a coreset is as good as any: others are not looked at.
_AS_GOOD = 1e-8
# Excess at which a draw is as good as it needs to be: no search for better rows.
_GOOD = 1e-6
# Radii of further models, in units of the one asked for.
_FURTHER = (1.0 / 3.0, 3.0, 10.0)
# Relative gap that the models of other radii, and those of coresets, are solved to.
_TOLERANCE = 1e-8


class HandOut:
    """Builds the coresets of a trained model and measures them.

    Parameters
    ----------
    problem, source
        What the model was trained on.
    solution : Solution
    rows : Pilot
        A sample of the source that is in memory.
    seed : int
    risk : float, optional
        Of the model on all rows, where it is known.
    others : sequence of At, optional
        Models of other radii that are reproduced too. None chooses some where rows allow.
    also : sequence of At
        Models at which the coreset has the sums of all rows where there are rows enough for that.
    solved : bool
        Whether the model is the optimum of the source, to the last digits.
    """

    def __init__(
        self,
        problem: Problem,
        source: Source,
        solution: Solution,
        rows: Pilot,
        seed: int,
        *,
        risk: float | None = None,
        others: Sequence[At] | None = None,
        also: Sequence[At] = (),
        solved: bool = False,
    ) -> None:
        self.problem, self.source, self.solution, self.rows, self.seed = problem, source, solution, rows, seed
        self.risk, self.model = risk, At(problem, anchor_at(problem, solution))
        self.models, self.are_given = [self.model, *(others or ())], others is not None
        self.also, self.solved = tuple(also), solved
        self.before = source.n_reads

    def best(self, size: int | None) -> Coreset:
        """Return the coreset of ``size`` rows whose own model has the least risk on all rows."""
        m = self.source.n_features
        spent = len(self.also) * columns_of(self.problem, m)[1]
        if size is not None and spent and size < spent + rows_for(self.problem, m, near=False):
            spent, self.also = 0, ()
        left = None if size is None else size - spent
        plan = plan_rows(self.problem, m, left, len(self.models) if self.are_given else None, self._near())
        least = rows_for(self.problem, m, self._near(), len(self.models))
        message = None if plan is not None else _too_few(size, least, self.source.n_rows)
        if plan is not None and size is None and least >= self.source.n_rows:
            plan, message, size = None, None, self.source.n_rows
        if plan is not None and len(self.models) * columns_of(self.problem, m)[1] > MOST_COLUMNS:
            plan, size = None, min(least, self.source.n_rows) if size is None else size
            message = f"More than {MOST_COLUMNS:,} numbers would have to be matched: the best draw was taken."
        # So many calibrated rows match as much, without a search, unless what is matched is that of a few rows.
        search_later = bool(plan and not plan.n_near and size is not None and size >= ROWS_OF_A_DRAW * least)
        found: list[Coreset] = []
        if plan is not None and not search_later:
            found = self._measure([self._exact(plan, size)])
        if not found or _least_excess(found) > (_AS_GOOD if self.problem.family.is_closed else _GOOD):
            found = self._measure(found + self._draws(len(found[0]) if size is None else size))
        met = not self.also or found[0].details.get("calibration_residual", np.inf) <= MET
        if plan is not None and search_later and not (met and _least_excess(found) <= _GOOD):
            found = self._measure([*found, self._exact(plan, size)])
        best = min(found, key=lambda coreset: coreset.excess if coreset.excess is not None else np.inf)
        details = best.details | ({"message": message} if message else {})
        return replace(best, details=details, n_reads=self.source.n_reads - self.before)

    def _near(self) -> bool:
        """Whether rows lie near a kink of ``h`` at the model."""
        rows = self.rows
        matched = Matched((self.model,), np.zeros(self.source.n_features))
        distances = matched.distances(rows.X, rows.y)
        if distances is None:
            return False
        t = self.problem.family.signal_at(self.model.anchor, rows.X, rows.y)
        spread = float(np.sqrt(rows.weights @ (t - rows.weights @ t) ** 2))
        return bool((distances <= 0.1 * spread).any())

    def _exact(self, plan: Plan, size: int | None) -> Coreset:
        models = list(self.models)
        start: Any = self.solution
        for radius in () if self.are_given else [f * self.problem.radius for f in _FURTHER[: plan.n_models - 1]]:
            if radius > 0.0:
                at = self.problem.replace(radius=radius)
                solution = solve_quietly(at, self.rows, tol=_TOLERANCE, warm_start=start)
                if _learned(solution, self.solution):
                    models.append(At(at, anchor_at(at, solution)))
        plan = refilled(plan, self.problem, self.source.n_features, len(models))
        factor = 1.0 if self.are_given else 8.0  # what was asked for comes first
        options: dict[str, Any] = {"also": self.also, "solved": self.solved, "distance_factor": factor}
        return exact_coreset(self.source, models, self.rows, plan, self.seed, size, **options)

    def _draws(self, size: int) -> list[Coreset]:
        """Return a uniform draw of the seed, and the same rows with weights calibrated at the models."""
        rows, problem, n = self._fewer(size), self.problem, self.source.n_rows
        details: dict[str, Any] = {"seed": self.seed}
        uniform = Coreset(
            rows.rows, rows.X, rows.y, normalised(rows.weights), n, self.model.anchor, "UniformCoreset", details
        )
        matched = Matched((*self.models, *self.also), centre_of(problem, rows.X, rows.weights))
        means, values = find_means(self.source, matched), matched.values(rows.X, rows.y)
        # The conditions of models that are only nearly optimal may contradict each other: then the first counts.
        for count in sorted({len(self.models), 1, 0}, reverse=True):
            found = match_means(rows.weights, values, matched.targets(means, count))
            if found.residual <= MET:
                break
        if problem.is_classification and not keeps_classes(rows.y, rows.weights, found.weights):
            return [uniform]
        kept = found.weights > 0.0
        calibrated = Coreset(
            rows.rows[kept], rows.X[kept], rows.y[kept], normalised(found.weights[kept]), n, self.model.anchor,
            "DualCoreset", details | {"calibration_residual": found.residual},
        )  # fmt: skip
        return [calibrated, uniform]

    def _fewer(self, size: int) -> Pilot:
        """Return a draw of those in memory where they suffice."""
        rows, seed = self.rows, seed_from(self.seed, 1)
        if size > len(rows.y):
            return pilot_sample(self.problem, self.source, size, seed)
        return draw_rows(self.problem, rows, size, seed)

    def _measure(self, coresets: list[Coreset]) -> list[Coreset]:
        """Return the coresets with their excess: each is solved alone, and all models are read on all rows."""
        waiting = [k for k, coreset in enumerate(coresets) if coreset.excess is None]
        if not waiting:
            return coresets
        tol = _TOLERANCE if self.problem.family.is_closed else _GOOD  # the last digits of others take long
        solutions = [solve_quietly(self.problem, coresets[k], tol=tol) for k in waiting]
        asked = solutions if self.risk is not None else [self.solution, *solutions]
        risks = risks_of(self.problem, self.source, asked)
        self.risk = risks[0] if self.risk is None else self.risk
        risk, out = self.risk, list(coresets)
        for k, value in zip(waiting, risks[-len(waiting) :], strict=True):
            excess = (value - risk) / max(abs(risk), np.finfo(float).tiny)
            out[k] = replace(coresets[k], excess=float(excess))
        return out


def _least_excess(coresets: Sequence[Coreset]) -> float:
    return min(coreset.excess for coreset in coresets if coreset.excess is not None)


def draw_rows(problem: Problem, rows: Pilot, size: int, seed: int) -> Pilot:
    """Return ``size`` rows of smallest keys, in classification by class."""
    if size >= len(rows.y):
        return rows
    strata = problem.family.strata
    group = problem.family.stratum(rows.y) if strata else np.zeros(len(rows.y), dtype=np.intp)
    n_groups = max(len(strata), 1)
    counts = np.bincount(group, minlength=n_groups)
    masses = np.bincount(group, rows.weights, n_groups).astype(np.float64)
    draws = allocate(size, counts, masses)
    order = np.lexsort((row_keys(seed, rows.rows), group))
    rank = np.arange(order.size) - np.searchsorted(group[order], group[order])
    chosen = np.sort(order[rank < draws[group[order]]])
    drawn = np.bincount(group[chosen], rows.weights[chosen], n_groups)
    weights = rows.weights[chosen] * (masses / np.where(drawn > 0.0, drawn, 1.0))[group[chosen]]
    return Pilot(rows.rows[chosen], rows.X[chosen], rows.y[chosen], normalised(weights))


def _learned(solution: Solution, other: Solution) -> bool:
    """Whether a model has coefficients: at a large radius it is a constant, which needs no rows of its own."""
    return bool(np.abs(solution.coef).max() > 1e-6 * np.abs(other.coef).max())


def risks_of(problem: Problem, source: Source, solutions: Sequence[Solution]) -> list[float]:
    """Return the worst-case risks of several models on all rows: one read, or a few for families that move rows."""
    family = problem.family
    if family.is_closed and (problem.form.sums_decide or not family.flips):
        readings = read_models(source, problem, [], [], problem.radius, solutions)
        return [readings.risk(problem, number)[0] for number in range(len(solutions))]
    data = source_data(source)
    return [problem.evaluate(each.coef, each.intercept, data).value for each in solutions]


def _too_few(size: int | None, least: int, n_rows: int) -> str:
    would = f"{least} rows would" if least < n_rows else "only all rows would"
    return f"{size} rows are too few to reproduce the model: {would}. The best draw of so many rows was taken."
