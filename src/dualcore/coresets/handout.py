"""Which coreset is handed out: the exact one, a calibrated draw or a uniform draw, by the risk of what each trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.coresets.anchors import anchor_at, pilot_sample
from dualcore.coresets.calibrate import keeps_classes, match_means
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.exact import MET, ROWS_OF_A_DRAW, Plan, columns_of, exact_coreset, plan_rows, rows_for
from dualcore.coresets.matched import At, Matched, centre_of
from dualcore.coresets.recombine import find_means
from dualcore.data.keys import seed_from
from dualcore.data.sources import ArraySource, Source
from dualcore.problem import Problem
from dualcore.reading.closed import spread_of
from dualcore.reading.models import read_risks
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.pilot import Pilot

# Relative gap that the models of other radii, and those of coresets, are solved to. A coreset of that excess is as good
# as any. The second where the last digits take long.
_TOLERANCE, _ROUGH = 1e-8, 1e-6
# Largest number of matched numbers: an elimination takes O(d^3).
_MOST_COLUMNS = 4000


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
        self.before, self.tol = source.n_reads, _TOLERANCE if problem.family.is_closed else _ROUGH

    def best(self, size: int | None) -> Coreset:
        """Return the coreset of ``size`` rows whose own model has the least risk on all rows."""
        m, n, near = self.source.n_features, self.source.n_rows, self._near()
        own = columns_of(self.problem, m)[1]
        if size is not None and size < len(self.also) * own + rows_for(self.problem, m, near=False):
            self.also = ()
        least = rows_for(self.problem, m, near, len(self.models))
        left = None if size is None else size - len(self.also) * own
        plan = plan_rows(self.problem, m, left, len(self.models) if self.are_given else None, near)
        message = None
        if plan is None:
            would = f"{least} rows would" if least < n else "only all rows would"
            message = f"{size} rows are too few to reproduce the model: {would}. The best draw of so many was taken."
        elif size is None and least >= n:
            plan, size = None, n
        elif len(self.models) * own > _MOST_COLUMNS:
            plan, size = None, min(least, n) if size is None else size
            message = f"More than {_MOST_COLUMNS:,} numbers would have to be matched: the best draw was taken."
        steps, good = [self._draws] if plan is None else [self._exact, self._draws], self.tol
        # So many calibrated rows match as much, without a search, unless what is matched is that of a few rows.
        if plan is not None and not plan.n_near and size is not None and size >= ROWS_OF_A_DRAW * least:
            steps, good = steps[::-1], _ROUGH
        found: list[Coreset] = []
        for make in steps:
            size = len(found[0]) if size is None and found else size
            found = self._measured([*found, *make(plan, size)])
            best = min(found, key=lambda coreset: np.inf if coreset.excess is None else coreset.excess)
            met = best.exact_at or best.details.get("calibration_residual", np.inf) <= MET
            if best.excess is not None and best.excess <= good and (met or not self.also):
                break
        details = best.details | ({"message": message} if message else {})
        return replace(best, details=details, n_reads=self.source.n_reads - self.before)

    def _near(self) -> bool:
        """Whether rows lie near a kink of ``h`` at the model."""
        rows = self.rows
        distances = Matched((self.model,), np.zeros(self.source.n_features)).distances(rows.X, rows.y)
        if distances is None:
            return False
        t = self.problem.family.signal_at(self.model.anchor, rows.X, rows.y)
        return bool((distances <= 0.1 * spread_of(t, rows.weights)).any())

    def _exact(self, plan: Plan | None, size: int | None) -> list[Coreset]:
        """Return rows of which the model, and as many others as planned, are optima."""
        if plan is None:
            return []
        problem, models, start = self.problem, list(self.models), self.solution
        further = [] if self.are_given else [1.0 / 3.0, 3.0, 10.0]
        for factor in further[: plan.n_models - 1] if problem.radius > 0.0 else []:
            at = problem.replace(radius=factor * problem.radius)
            # Where rows move a pass takes long, and the coreset is exact at a model however far that was trained.
            passes = 200 if problem.family.is_closed else 20
            solution = solve_quietly(at, self.rows, tol=self.tol, max_iter=passes, warm_start=start)
            # At a large radius a model is a constant, which needs no rows of its own.
            if np.abs(solution.coef).max() > 1e-6 * np.abs(start.coef).max():
                models.append(At(at, anchor_at(at, solution)))
        if len(models) < plan.n_models:
            spared = (plan.n_models - len(models)) * columns_of(problem, self.source.n_features)[1]
            plan = Plan(len(models), plan.n_products + spared, plan.n_near)
        factor = 1.0 if self.are_given else 8.0  # what was asked for comes first
        options: dict[str, Any] = {"also": self.also, "solved": self.solved, "distance_factor": factor}
        return [exact_coreset(self.source, models, self.rows, plan, self.seed, size, **options)]

    def _draws(self, plan: Plan | None, size: int | None) -> list[Coreset]:
        """Return a uniform draw of the seed, and the same rows with weights calibrated at the models."""
        problem, n, seed = self.problem, self.source.n_rows, seed_from(self.seed, 1)
        size = n if size is None else size
        if size > len(self.rows.y):
            rows = pilot_sample(problem, self.source, size, seed)
        else:
            rows = draw_rows(problem, self.rows, size, seed)
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

    def _measured(self, coresets: list[Coreset]) -> list[Coreset]:
        """Return the coresets with their excess: each is solved alone, and all models are read on all rows."""
        waiting = [k for k, coreset in enumerate(coresets) if coreset.excess is None]
        solutions = [solve_quietly(self.problem, coresets[k], tol=self.tol) for k in waiting]
        risks = read_risks(
            self.source, self.problem, solutions if self.risk is not None else [*solutions, self.solution]
        )
        self.risk = risks.pop() if self.risk is None else self.risk
        out, scale = list(coresets), max(abs(self.risk), np.finfo(float).tiny)
        for k, value in zip(waiting, risks, strict=True):
            out[k] = replace(coresets[k], excess=float((value - self.risk) / scale))
        return out


def draw_rows(problem: Problem, rows: Pilot, size: int, seed: int) -> Pilot:
    """Return ``size`` rows of smallest keys, in classification by class."""
    few = pilot_sample(problem, ArraySource(rows.X, rows.y, rows.weights, checked=True), size, seed)
    return few._replace(rows=rows.rows[few.rows])
