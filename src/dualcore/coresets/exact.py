"""Rows and weights whose optimum is a given model: rows near kinks keep their weights, the others are recombined.

`CoresetBuilder` compares them with a calibrated draw and a uniform draw, by the risk on all rows of the model that each
of them trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualcore.coresets.anchors import uniform_sample
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.matched import Matched, MatchedModel, centre_of, has_ties
from dualcore.coresets.sample import REFINED, corrected
from dualcore.coresets.weights import Basis, eliminate, recombine
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.sources import Source
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Problem
from dualcore.problem.normal import dense
from dualcore.reading.closed import kink_distance, spread_of
from dualcore.reading.models import read_risks
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.base import able_solver
from dualcore.solvers.moving.closedform import closed_form
from dualcore.solvers.pilot import Pilot

# With this many rows per matched number, calibrated weights of a draw match the numbers too, and are cheaper.
ROWS_OF_A_DRAW = 10
# Limit on the matched numbers d, because recombination takes O(d^3).
MOST_COLUMNS = 4000
# Relative gap to which coresets are solved where that is cheap.
_TOLERANCE = 1e-8
# Limit on the matched numbers including those of the curvature, each of which costs two evaluations of h.
_MOST_WITH_CURVATURE = 512


def rows_for(problem: Problem, n_features: int, near: bool = True, n_models: int = 1) -> int:
    """Return the number of rows that reproduce some models: the matched numbers, and rows near kinks.

    A loss whose curvature jumps, such as Huber, needs further rows.

    Examples
    --------
    >>> rows_for(Problem("logistic", radius=0.1), 20), rows_for(Problem("hinge", radius=0.1), 20)
    (24, 129)
    """
    (fixed, own), n, is_closed = columns_of(problem, n_features), n_features + 1, problem.family.is_closed
    has_kinks = bool(problem.loss.kinks or problem.family.flips) if is_closed else has_ties(problem)
    kept = (min(5 * n, 200 + n) if is_closed else n) if near and has_kinks else 0
    return fixed + n_models * (own + kept) + (n if is_closed and problem.loss.curvature_jumps else 0)


def columns_of(problem: Problem, n_features: int) -> tuple[int, int]:
    """Return how many matched numbers do not depend on the model, the masses of classes or of all, and how many do."""
    family = problem.family
    scores = family.n_outputs - 1 if family.n_outputs > 1 else 1
    spends = family.moves_rows or family.flips
    return max(len(family.strata), 1), 1 + int(spends) + scores * (n_features + int(problem.fit_intercept))


def exact_coreset(
    matched: Matched, n_models: int, rows: Pilot, size: int, most_rows: float, seed: int, near: bool, risk: float | None
) -> tuple[Pilot, int]:
    """Return a few rows of a sample with weights that match its sums at some models, and the rank of the sums.

    If the models are optima of the sample, they are optima of the few rows too, because these meet the same optimality
    conditions. Rows near kinks keep their own masses: one for each parameter and kind of kink, or with many rows half
    of them. The ``h`` of the others are smooth around the models. With further rows ``h`` is matched approximately at
    models around the first one too. Many rows are drawn at random instead, and their weights changed as little as
    possible.

    Parameters
    ----------
    matched : Matched
        Problems that differ in their radius, and a model of each.
    n_models : int
        The first ``n_models`` models are optima of the sample.
    rows : Pilot
        The sample.
    size : int
        Number of rows, approximately.
    most_rows : float
        Limit on the number of rows. A few more than ``size`` are used if no row then has more than a tenth of the mass.
    near : bool
        Whether ``h`` has kinks.
    risk : float or None
        Risk of the first model on all rows, if the sample has another one.
    """
    rows = _distinct(rows)
    rows = rows.pick(np.argsort(row_keys(seed_from(seed, 8), rows.rows)))
    for numbers in (*matched.both_sides(), matched):  # with fewer rows only one side is matched, and curvature
        values = numbers.values(rows.X, rows.y)
        if size > (basis := Basis.of(values, rows.weights)).rank:
            break
    both, matched = numbers is not matched, numbers
    n_more = max(size - 1 - basis.rank, 0)
    n_near, is_small = n_more if both else 0, size < ROWS_OF_A_DRAW * (1 + basis.rank)
    if near and matched.problem.family.is_closed:
        most = n_models * (1 + matched.problem.family.flips) * (matched.centre.size + 1) if is_small else n_more
        n_near = min(n_more if is_small and matched.problem.loss.kinks else (n_more + 1) // 2, most)
    asked, values = matched.targets(rows.weights @ values, n_models, risk), basis.apply(values)
    weights = rows.weights if (moved := _moved(values, rows.weights, basis.apply(asked[None])[0])) is None else moved
    distances = matched.distances(rows.X, rows.y, rows.weights) if n_near else np.empty(0)
    kept = np.argsort(distances, kind="stable")[:n_near]
    n_more -= kept.size
    rest, few = np.delete(np.arange(rows.y.size), kept), None
    goal = weights[rest] @ values[rest]
    many = n_more >= (ROWS_OF_A_DRAW - 1) * values.shape[1]
    if many:  # the rows are in random order
        drawn = rest[: values.shape[1] + n_more]
        few = _moved(values[drawn], weights[drawn] * (goal[0] / weights[drawn].sum()), goal)
    if few is None:
        count = min(n_more, _MOST_WITH_CURVATURE - values.shape[1])
        # Not with models of many radii, which cover a region already, nor with many rows, whose curvature is that of
        # all.
        if count > 0 and not (many or n_models > 3 or matched.problem.family.moves_rows):
            added = _components(matched, rows, values, count, seed)
            values, n_more = np.column_stack([values, added]), n_more - added.shape[1]
            goal = weights[rest] @ values[rest]
        found, recombined = recombine(values[rest], weights[rest], 2 * n_more)
        drawn, spare = rest[found], recombined[:n_more]
        goal -= spare @ values[drawn[:n_more]]
        few = _fewest(values[drawn[n_more:]], recombined[n_more:], goal, most_rows - kept.size - n_more)
        few = np.concatenate([spare, few])
    weights = np.concatenate([weights[kept], few])
    chosen = np.concatenate([kept, drawn])[weights > 0.0]
    order = np.argsort(rows.rows[chosen])
    return rows.pick(chosen[order], weights[weights > 0.0][order]), basis.rank


def _distinct(rows: Pilot) -> Pilot:
    """Return rows in which equal ones are merged: the first of them has the mass of all."""
    _, first, same = np.unique(np.column_stack([dense(rows.X), rows.y]), axis=0, return_index=True, return_inverse=True)
    return rows.pick(first, np.bincount(same.ravel(), rows.weights).astype(np.float64))


def _moved(values: FloatArray, weights: FloatArray, goal: FloatArray) -> FloatArray | None:
    """Return the weights nearest to ``weights`` with sums ``goal`` (d,) of ``values`` (n, d); None unless positive."""
    gram = (half := np.sqrt(weights)[:, None] * values).T @ half  # one factor, so that half the work suffices
    moved = weights * (1.0 + values @ np.linalg.lstsq(gram, goal - weights @ values, rcond=1e-12)[0])
    # Values are in standard deviations: a larger error is more than rounding.
    return moved if moved.min() > 0.0 and np.abs(moved @ values - goal).max() <= 1e-8 else None


def _components(matched: Matched, rows: Pilot, values: FloatArray, count: int, seed: int) -> FloatArray:
    """Return the principal components of ``h`` at models around the first one, without their projection on ``values``.

    They are computed from ``2 count`` models. ``values`` are uncorrelated with variance 1, and so are the components,
    of shape (n, count) or with fewer columns.
    """
    h = matched.around(rows.X, rows.y, rows.weights, 2 * count, seed)
    h -= values @ ((rows.weights[:, None] * values).T @ h)
    h /= np.maximum(np.sqrt(rows.weights @ h**2), 1e-300)
    some = h[: 16 * count] * np.sqrt(rows.weights[: 16 * count, None])  # the rows are in random order
    variances, vectors = np.linalg.eigh(some.T @ some)
    kept = slice(max(count, np.count_nonzero(variances <= 1e-8 * variances[-1])), None)
    return np.asarray(h @ (vectors[:, kept] / np.sqrt(variances[kept])))


def _fewest(values: FloatArray, weights: FloatArray, goal: FloatArray, most_rows: float) -> FloatArray:
    """Return weights (n,) with the sums ``goal`` of ``values`` (n, d), as few of them as possible positive."""
    most = max(0.1, 1.5 / values.shape[1])  # largest share of the mass for a row, unless it already has more
    found = eliminate(values, weights, np.maximum(weights, most))
    if np.count_nonzero(found) > most_rows:
        found = eliminate(values, weights)
    chosen = np.flatnonzero(found)
    better = found[chosen] + np.linalg.lstsq(values[chosen].T, goal - values.T @ found, rcond=1e-12)[0]
    found[chosen] = better if (better > 0.0).all() else found[chosen]
    return found


class CoresetBuilder:
    """Builds coresets that reproduce a trained model, measures their excess and returns the best.

    Parameters
    ----------
    source : Source
    models : sequence of (Problem, Solution)
        First the problem with its model, solved on ``rows``; models of other radii after it are reproduced too. If
        there is only one and the size allows, models of other radii are added.
    rows : Pilot
        A sample of the source in memory, with the weights with which the model was trained.
    seed : int
    also : sequence of MatchedModel
        Further models at which the sums of the sample are matched if there are enough rows.

    Attributes
    ----------
    form : Problem
        The problem whose optimality conditions are matched: the closed form with the same optimum, if there is one.
    """

    def __init__(
        self,
        source: Source,
        models: Sequence[tuple[Problem, Solution]],
        rows: Pilot,
        seed: int,
        also: Sequence[MatchedModel] = (),
    ) -> None:
        (self.problem, self.solution), self.source, self.rows, self.seed = models[0], source, rows, seed
        self.before, self.centre = source.n_reads, centre_of(self.problem, rows.X, rows.weights)
        self.models = [self._refined(*each) for each in models]
        self.also = tuple(at._replace(problem=closed_form(at.problem, rows.data)).scaled(1.0) for at in also)
        self.form = self.models[0].problem
        # Without a closed form smaller gaps take long, most of all on boxes and with categories.
        self.tol = _TOLERANCE if self.form.family.is_closed else 1e-5 if self.form.family.moves_rows else 1e-6
        self.drawn: Pilot | None = None

    def _refined(self, problem: Problem, solution: Solution) -> MatchedModel:
        """Return the model of the sample, solved to a relative gap of `REFINED` unless rows move.

        Its problem is the closed form with the same optimum if there is one, also where categories change.
        """
        closed = closed_form(problem, self.rows.data)
        if not closed.family.moves_rows and not solution.gap <= REFINED * abs(solution.value):
            # The interior point reaches this gap, where descent may stall.
            work = float(len(self.rows.y)) * self.source.n_features**2
            solver = "structured" if able_solver(problem) == "structured" and work <= 1e10 else "auto"
            solution = solve_quietly(problem, self.rows, tol=REFINED, warm_start=solution, solver=solver)
        return MatchedModel.of(closed, solution)

    def best(self, size: int | None) -> Coreset:
        """Return the coreset of ``size`` rows whose own optimum has the smallest risk on all rows.

        The candidates are tried in the order exact, calibrated, uniform, until one has an excess of at most
        ``self.tol``.
        """
        m, n, near = self.source.n_features, self.source.n_rows, self._near()
        (fixed, own), message = columns_of(self.form, m), None
        if size is not None and size < len(self.also) * own + rows_for(self.form, m, near=False):
            self.also = ()
        least = rows_for(self.form, m, near, len(self.models))
        left = (least if size is None else size) - fixed - (len(self.models) + len(self.also)) * own
        if left < 0:
            would = f"{least} rows would" if least < n else "only all rows would"
            message = f"{size} rows are too few to reproduce the model: {would}. The best draw of so many was taken."
        elif len(self.models) * own > min(MOST_COLUMNS, len(self.rows.y)):
            left = -1
            message = f"More than {MOST_COLUMNS:,} numbers would have to be matched: the best draw was taken."
        left = -1 if size is None and least >= n else left
        size, most_rows = (min(least, n), np.inf) if size is None else (size, size)
        found: list[tuple[float, Coreset]] = []
        # More rows than the sample has are drawn: they are many for each matched number.
        for kind in ("exact", "calibrated", "uniform")[left < 0 or size > len(self.rows.y) :]:
            if kind == "exact":  # up to half of the remaining rows are used for models of other radii
                further = 0 if near or size >= ROWS_OF_A_DRAW * (size - left) else left // (2 * own)
                made = self._exact(size, most_rows, further, near)
            else:
                made = self.draw(size, calibrated=kind == "calibrated")
            found.append((self._excess(made), made))
            if found[-1][0] <= self.tol:
                break
        excess, best = min(found, key=lambda each: each[0])
        details = best.details | ({"message": message} if message else {})
        return replace(best, excess=excess, details=details, n_reads=self.source.n_reads - self.before)

    def _near(self) -> bool:
        """Whether rows lie near a kink of ``h`` at the model."""
        if not self.form.family.is_closed:
            return has_ties(self.form)
        t = self.form.family.signal_at(self.models[0].anchor, self.rows.X, self.rows.y)
        distances = kink_distance(self.form, self.models[0].anchor.multiplier, t)
        return distances is not None and bool((distances <= 0.1 * spread_of(t, self.rows.weights)).any())

    def _exact(self, size: int, most_rows: float, further: int, near: bool) -> Coreset:
        """Return a coreset of which the model is an optimum, and up to two ``further`` models of other radii."""
        problem, models, start = self.problem, list(self.models), replace(self.solution, gap=np.inf)
        # On boxes and with categories training further models takes long.
        is_one = len(models) > 1 or problem.radius == 0.0 or self.form.family.moves_rows
        for share in () if is_one else (1.0 / 3.0, 3.0)[:further]:
            model = self._refined(problem.replace(radius=share * problem.radius), start)
            # At a large radius the model may be constant, and needs no matched numbers.
            if np.abs(model.anchor.coef).max() > 1e-6 * np.abs(start.coef).max():
                models.append(model)
        matched = Matched((*models, *self.also), self.centre)
        with one_blas_thread():
            found = exact_coreset(matched, len(models), self.rows, size, most_rows, self.seed, near, start.value)
        made = self._coreset("DualCoreset", *found[0], matched=found[1])
        return replace(made, exact_at=tuple(sorted(at.problem.radius for at in models)))

    def draw(self, size: int, *, calibrated: bool) -> Coreset:
        """Return a uniform draw, or the same rows with weights calibrated to the sums at the models."""
        if self.drawn is None:
            self.drawn, _ = uniform_sample(self.problem, self.source, size, self.seed, self.rows)
        if not calibrated:
            return self._coreset("UniformCoreset", *self.drawn)
        matched = Matched((*self.models, *self.also), self.centre)
        means = matched.sums(self.rows.X, self.rows.y, self.rows.weights[None])[0]
        values = matched.values(self.drawn.X, self.drawn.y)
        return self._coreset("DualCoreset", *corrected(self.problem, self.drawn, values, means))

    def _coreset(self, method: str, rows: Any, X: Any, y: FloatArray, weights: FloatArray, **details: Any) -> Coreset:
        n, anchor = self.source.n_rows, self.models[0].anchor
        return Coreset(rows, X, y, normalised(weights), n, anchor, method, {"seed": self.seed} | details)

    def _excess(self, coreset: Coreset) -> float:
        """Return the excess of a coreset: train on it alone, and evaluate the model on all rows by one read."""
        alone = solve_quietly(self.problem, coreset, tol=self.tol)
        risk, own = read_risks(self.source, self.problem, [alone, self.solution])
        return float((risk - own) / max(abs(own), np.finfo(float).tiny))
