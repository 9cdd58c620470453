"""Which coreset is handed out: the exact one, a calibrated draw or a uniform draw, by the risk of what each trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.coresets.anchors import anchor_at, uniform_sample
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.exact import MOST_COLUMNS, ROWS_OF_A_DRAW, Plan, columns_of, exact_coreset, plan_rows, rows_for
from dualcore.coresets.matched import At, Matched, centre_of, has_ties
from dualcore.coresets.sample import corrected
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Problem
from dualcore.reading.closed import spread_of
from dualcore.reading.models import read_risks
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.base import able_solver
from dualcore.solvers.pilot import Pilot

# Relative gap that the models of coresets are solved to where digits are cheap; and the excess of a coreset that is as
# good as any.
_TOLERANCE, _GOOD = 1e-8, 1e-6


class CoresetBuilder:
    """Builds coresets of a trained model, measures them and chooses the best.

    Parameters
    ----------
    problem, source
        What the model was trained on.
    solution : Solution
    rows : Pilot
        A sample of the source that is in memory, with the weights that the model was trained with.
    seed : int
    others : sequence of (Problem, Solution), optional
        Models of other radii that are reproduced too. None chooses some where rows allow.
    also : sequence of At
        Models at which the coreset has the sums of the sample where there are rows enough for that.
    """

    def __init__(
        self,
        problem: Problem,
        source: Source,
        solution: Solution,
        rows: Pilot,
        seed: int,
        *,
        others: Sequence[tuple[Problem, Solution]] | None = None,
        also: Sequence[At] = (),
    ) -> None:
        self.problem, self.source, self.solution, self.rows, self.seed = problem, source, solution, rows, seed
        self.before, self.tol = source.n_reads, _TOLERANCE
        if not problem.family.is_closed:  # the last digits take long, most where rows move
            self.tol = 1e-5 if problem.family.moves_rows else 1e-6
        self.model = self._at(problem, solution)
        self.models, self.are_given = [self.model, *(self._at(*each) for each in others or ())], others is not None
        self.also = tuple(also)
        self.centre = centre_of(problem, rows.X, rows.weights)
        self.drawn: Pilot | None = None

    def _at(self, problem: Problem, solution: Solution) -> At:
        """Return the model of the sample, to the last digits where these are cheap."""
        if not problem.family.moves_rows:
            # The last digits are the interior point's, where descent would stall first.
            work = float(len(self.rows.y)) * self.source.n_features**2
            solver = "structured" if able_solver(problem) == "structured" and work <= 1e10 else "auto"
            solution = solve_quietly(problem, self.rows, tol=0.1 * _TOLERANCE, warm_start=solution, solver=solver)
        return At(problem, anchor_at(problem, solution))

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
        elif len(self.models) * own > min(MOST_COLUMNS, len(self.rows.y)):
            plan, size = None, min(least, n) if size is None else size
            message = f"More than {MOST_COLUMNS:,} numbers would have to be matched: the best draw was taken."
        kinds = ["calibrated", "uniform"]
        if plan is not None:
            # So many calibrated rows match as much, without a search, unless what is matched is that of a few rows.
            enough = size is not None and size >= (len(self.rows.y) if plan.n_near else ROWS_OF_A_DRAW * least)
            kinds.insert(int(enough), "exact")
        found: list[tuple[float, Coreset]] = []
        for kind in kinds:
            if kind == "exact":
                made = self._exact(plan, size)  # type: ignore[arg-type]
            else:
                made = self.draw(size or len(found[0][1]), calibrated=kind == "calibrated")
            found.append((self._excess(made), made))
            if found[-1][0] <= max(_GOOD, self.tol):
                break
        excess, best = min(found, key=lambda each: each[0])
        details = best.details | ({"message": message} if message else {})
        return replace(best, excess=excess, details=details, n_reads=self.source.n_reads - self.before)

    def _near(self) -> bool:
        """Whether rows lie near a kink of ``h`` at the model."""
        if has_ties(self.problem):
            return True
        distances = Matched((self.model,), self.centre).distances(self.rows.X, self.rows.y)
        if distances is None:
            return False
        t = self.problem.family.signal_at(self.model.anchor, self.rows.X, self.rows.y)
        return bool((distances <= 0.1 * spread_of(t, self.rows.weights)).any())

    def _exact(self, plan: Plan, size: int | None) -> Coreset:
        """Return rows of which the model, and as many others as planned, are optima."""
        problem, models, start = self.problem, list(self.models), self.solution
        # Where rows move training takes long, and rows are the cheaper curvature.
        is_one = self.are_given or problem.radius == 0.0 or problem.family.moves_rows
        further = [] if is_one else [1.0 / 3.0, 3.0, 10.0]
        for factor in further[: plan.n_models - 1]:
            at = problem.replace(radius=factor * problem.radius)
            model = self._at(at, start)
            # At a large radius a model is a constant, which needs no rows of its own.
            if np.abs(model.anchor.coef).max() > 1e-6 * np.abs(start.coef).max():
                models.append(model)
        spared = max(plan.n_models - len(models), 0) * columns_of(problem, self.source.n_features)[1]
        plan = Plan(len(models), plan.n_near, plan.n_spare + spared)
        factor = 1.0 if self.are_given else 8.0  # what was asked for comes first
        matched = Matched((*models, *self.also), self.centre, distance_factor=factor)
        with one_blas_thread():
            rows, rank = exact_coreset(matched, self.rows, plan, self.seed, size)
        made = self._coreset("DualCoreset", *rows, matched=rank)
        return replace(made, exact_at=tuple(sorted(at.problem.radius for at in models)))

    def draw(self, size: int, *, calibrated: bool) -> Coreset:
        """Return a uniform draw of the seed, or the same rows with weights calibrated at the models."""
        if self.drawn is None:
            self.drawn, _ = uniform_sample(self.problem, self.source, size, self.seed)
        if not calibrated:
            return self._coreset("UniformCoreset", *self.drawn)
        matched = Matched((*self.models, *self.also), self.centre)
        means = matched.sums(self.rows.X, self.rows.y, self.rows.weights[None])[0]
        values = matched.values(self.drawn.X, self.drawn.y)
        return self._coreset("DualCoreset", *corrected(self.problem, self.drawn, values, means))

    def _coreset(self, method: str, rows: Any, X: Any, y: FloatArray, weights: FloatArray, **details: Any) -> Coreset:
        n, anchor = self.source.n_rows, self.model.anchor
        return Coreset(rows, X, y, normalised(weights), n, anchor, method, {"seed": self.seed} | details)

    def _excess(self, coreset: Coreset) -> float:
        """Return the excess of a coreset: it is solved alone, and its model is read on all rows."""
        alone = solve_quietly(self.problem, coreset, tol=self.tol)
        risk, own = read_risks(self.source, self.problem, [alone, self.solution])
        return float((risk - own) / max(abs(own), np.finfo(float).tiny))
