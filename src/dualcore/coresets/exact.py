"""Rows and weights whose optimum is a given model: rows near kinks keep their weights, the others are recombined.

`CoresetBuilder` compares them with a calibrated draw and a uniform draw, by the risk on all rows of the model that each
of them trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.coresets.anchors import uniform_sample
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.matched import Matched, MatchedModel, centre_of, has_ties, read_sums
from dualcore.coresets.sample import REFINED, corrected
from dualcore.coresets.weights import Basis, eliminate, recombine
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.sources import Source, TransformedSource
from dualcore.data.threads import one_blas_thread
from dualcore.problem import Problem
from dualcore.problem.normal import dense
from dualcore.reading.models import read_risks
from dualcore.solvers import Solution, solve_quietly
from dualcore.solvers.base import able_solver
from dualcore.solvers.moving.closedform import closed_form
from dualcore.solvers.pilot import Pilot

Indices = npt.NDArray[np.intp]
# With this many rows per matched number, calibrated weights of a draw match the numbers too, and are cheaper.
ROWS_OF_A_DRAW = 10
# Limit on the matched numbers d, because recombination takes O(d^3).
MOST_COLUMNS = 4000
# Limit on the matched numbers including those of the curvature, each of which costs two evaluations of h.
_MOST_WITH_CURVATURE = 256


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
    family, scores = problem.family, max(problem.family.n_outputs - 1, 1)
    spends = family.moves_rows or family.flips
    return max(len(family.strata), 1), 1 + int(spends) + scores * (n_features + int(problem.fit_intercept))


def _moved(values: FloatArray, weights: FloatArray, goal: FloatArray) -> FloatArray | None:
    """Return the non-negative weights nearest to ``weights`` with sums ``goal`` (d,) of ``values`` (n, d).

    They are ``weights max(0, 1 + values nu)`` (see `calibrate`), by Newton's method: one step if none is zero. None if
    that finds none.
    """
    nu, moved = np.zeros(goal.size), weights
    for _ in range(20):
        half = np.sqrt(np.where(moved > 0.0, weights, 0.0))[:, None] * values
        nu += np.linalg.lstsq(half.T @ half, goal - moved @ values, rcond=1e-12)[0]
        moved = weights * np.maximum(1.0 + values @ nu, 0.0)
        if np.abs(moved @ values - goal).max() <= 1e-8:  # values are in standard deviations: more than rounding
            return moved
    return None


def _distinct(rows: Pilot, masses: FloatArray) -> tuple[Pilot, FloatArray]:
    """Return rows in which equal ones are merged, the first of them with the ``masses`` (k, n) of all, and these."""
    _, first, same = np.unique(np.column_stack([dense(rows.X), rows.y]), axis=0, return_index=True, return_inverse=True)
    masses = np.array([np.bincount(same.ravel(), own) for own in masses])
    return rows.pick(first, masses.mean(axis=0)), masses


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


def _joined(source: Source, optima: Sequence[Optima]) -> tuple[Pilot, FloatArray]:
    """Return the rows of the samples of all classes, with the mean of their weights, and the weights (k, n) of each."""
    found = np.unique(np.concatenate([each.rows.rows for each in optima]))
    masses = np.zeros((len(optima), found.size))
    for own, each in zip(masses, optima, strict=True):
        own[np.searchsorted(found, each.rows.rows)] = each.rows.weights
    return Pilot(found, *source.take(found), masses.mean(axis=0)), masses


def _nearest(matched: Matched, rows: Pilot, masses: FloatArray, count: int) -> tuple[Indices, FloatArray]:
    """Return ``count`` rows nearest to kinks, as many for each model, and their masses (k, n) in its class."""
    distances = matched.distances(rows.X, rows.y, rows.weights) if count else None
    if distances is None:
        return np.empty(0, dtype=np.intp), np.empty(0)
    own = np.repeat(masses, len(distances) // len(masses), axis=0)
    ranks = np.argsort(np.argsort(np.where(own > 0.0, distances, np.inf), kind="stable"))
    near = np.argsort(ranks.min(axis=0), kind="stable")[:count]
    return near, own[ranks.argmin(axis=0)[near], near]


def _fewest(values: FloatArray, weights: FloatArray, goal: FloatArray, most_rows: float) -> FloatArray:
    """Return weights (n,) with the sums ``goal`` of ``values`` (n, d), as few of them as possible positive."""
    # No row gets more than a tenth of the mass, unless it already has more or rows are too few.
    found = eliminate(values, weights, np.maximum(weights, max(0.1, 1.5 / values.shape[1])))
    if np.count_nonzero(found) > most_rows:
        found = eliminate(values, weights)
    chosen = np.flatnonzero(found)
    better = found[chosen] + np.linalg.lstsq(values[chosen].T, goal - values.T @ found, rcond=1e-12)[0]
    found[chosen] = better if (better > 0.0).all() else found[chosen]
    return found


class Optima(NamedTuple):
    """Models that are optima of weighted rows in memory, of one radius or several, and the coreset to make of them."""

    models: Sequence[tuple[Problem, Solution]]
    rows: Pilot
    seed: int
    size: int | None = None


class CoresetBuilder:
    """Builds coresets that reproduce trained models, measures their excess and returns the best.

    Parameters
    ----------
    source : Source
        With several classes its targets are their numbers.
    *optima : Optima
        The problem with its model, whose ``value`` is its risk on all rows; models of other radii after it are
        reproduced too. If there is only one and the size allows, models of other radii are added. Of several classes
        the models of each against the rest, whose targets are -1 and +1: one coreset reproduces all of them.
    also : sequence of MatchedModel
        Further models at which the sums of the sample are matched if there are enough rows.

    Attributes
    ----------
    form : Problem
        The problem whose optimality conditions are matched: the closed form with the same optimum, if there is one.
    """

    def __init__(self, source: Source, *optima: Optima, also: Sequence[MatchedModel] = ()) -> None:
        self.source, self.optima, self.before = source, optima, source.n_reads
        models, self.rows, self.seed, self.size = optima[0]
        self.problem, self.solution = models[0]
        self.is_stacked, codes = len(optima) > 1, list[int | None]([None])
        self.classes, self.sources, self.masses = self.problem, list[Source]([source]), self.rows.weights[None]
        if self.is_stacked:
            self.classes, codes = Problem("softmax", n_classes=len(optima)), list(range(len(optima)))
            self.sources = [TransformedSource(source, classes=codes, positive=code) for code in codes]
            self.rows, self.masses = _joined(source, optima)
        owned = [(model, each.rows, code) for code, each in zip(codes, optima, strict=True) for model in each.models]
        self.models = [self._refined(*model, rows, code) for model, rows, code in owned]
        self.also = tuple(at._replace(problem=closed_form(at.problem, self.rows.data)).scaled(1.0) for at in also)
        self.form, self.centre = self.models[0].problem, centre_of(self.problem, self.rows.X, self.rows.weights)
        family, self.near = self.form.family, has_ties(self.form)
        # Relative gap to which coresets are solved. Without a closed form smaller gaps take long, most of all on boxes
        # and with categories.
        self.tol = 1e-8 if family.is_closed else 1e-5 if family.moves_rows else 1e-6
        if not self.near:
            distances = Matched(tuple(self.models), self.centre).distances(*self.rows[1:])
            # A few of very many rows near a kink do not change the curvature.
            self.near = distances is not None and bool(((distances <= 0.1) @ self.rows.weights).max() > 1e-3)
        self.drawn: Pilot | None = None

    def _refined(self, problem: Problem, solution: Solution, rows: Pilot, positive: int | None = None) -> MatchedModel:
        """Return the model of a sample, solved to a relative gap of `REFINED` unless rows move.

        Its problem is the closed form with the same optimum if there is one, also where categories change.
        """
        closed = closed_form(problem, rows.data)
        if not closed.family.moves_rows and not solution.gap <= REFINED * abs(solution.value):
            # The interior point reaches this gap, where descent may stall.
            work = float(len(rows.y)) * self.source.n_features**2
            solver = "structured" if able_solver(problem) == "structured" and work <= 1e10 else "auto"
            solution = solve_quietly(problem, rows, tol=REFINED, warm_start=solution, solver=solver)
        return MatchedModel.of(closed, solution, positive)

    def best(self) -> Coreset:
        """Return the coreset of ``size`` rows whose own optima have the smallest risk on all rows.

        The candidates are tried in the order exact, calibrated, uniform, until one has an excess of at most
        ``self.tol``. All rows are drawn with their own masses.
        """
        size, spare, message = self._plan()
        # More rows than the sample has are drawn: they are many for each matched number.
        kinds = ("exact", "calibrated", "uniform")[spare < 0 or size > len(self.rows.y) :]
        found: list[tuple[float, Coreset]] = []
        for kind in kinds if size < self.source.n_rows else ("uniform",):
            if kind == "exact":
                made = self._exact(size, spare)
                if not made.exact_at:
                    self._train_again()
                    made = replace(self._exact(size, spare), exact_at=())
            else:
                made = self.draw(size, calibrated=kind == "calibrated")
            found.append((self._excess(made), made))
            if found[-1][0] <= self.tol:
                break
        excess, best = min(found, key=lambda each: each[0])
        # If it is far below zero, training of the model stopped early, and the coreset has a better optimum.
        exact_at = best.exact_at if abs(excess) <= max(self.tol, 1e-6) else ()
        if self.near and len(exact_at) > 1:  # of these only the first was measured
            missed = {at.problem.radius for at in self.models[1:] if not self._is_optimum(best, at)}
            exact_at = tuple(radius for radius in exact_at if radius not in missed)
        known = best.details | ({"message": message} if message else {})
        return replace(best, excess=excess, exact_at=exact_at, details=known, n_reads=self.source.n_reads - self.before)

    def _plan(self) -> tuple[int, int, str]:
        """Return the number of rows, how many of them are more than the matched numbers, and a message for the user.

        If no rows are exact, the second is -1 and the message says why.
        """
        m, n, n_models = self.source.n_features, self.source.n_rows, len(self.models)
        if self.size is not None and self.size >= n:
            return n, 0, ""
        (fixed, own), more = columns_of(self.form, m), max(len(self.optima) - 2, 0)  # masses of classes beyond two
        least = more + rows_for(self.form, m, self.near, n_models)
        size = min(least, n) if self.size is None else self.size
        if self.size is not None and size < len(self.also) * own + rows_for(self.form, m, near=False):
            self.also = ()
        spare = size - more - fixed - (n_models + len(self.also)) * own
        if spare < 0 and self.size is not None:
            what, would = "models" if self.is_stacked else "model", f"{least} rows" if least < n else "only all rows"
            return size, -1, f"{size} rows are too few to reproduce the {what}: {would} would. The best draw was taken."
        if n_models * own > min(MOST_COLUMNS, len(self.rows.y)):
            said = f"More than {MOST_COLUMNS:,} numbers would have to be matched: the best draw was taken."
            return size, -1, said
        return size, spare, ""

    def _exact(self, size: int, spare: int) -> Coreset:
        """Return a coreset of which the models are optima, and if many rows are spare up to two of other radii."""
        problem, models, start = self.problem, list(self.models), replace(self.solution, gap=np.inf)
        is_one = len(models) > 1 or problem.radius == 0.0 or self.form.family.moves_rows
        # Half of the spare rows at most. On boxes and with categories training further models takes long.
        further = spare // (2 * columns_of(self.form, self.source.n_features)[1])
        if is_one or self.near or size >= ROWS_OF_A_DRAW * (size - spare):
            further = 0
        for share in (1.0 / 3.0, 3.0)[:further]:
            model = self._refined(problem.replace(radius=share * problem.radius), start, self.rows)
            # At a large radius the model may be constant, and needs no matched numbers.
            if np.abs(model.anchor.coef).max() > 1e-6 * np.abs(start.coef).max():
                models.append(model)
        matched = Matched((*models, *self.also), self.centre)
        with one_blas_thread():
            rows, rank, is_met = self._recombined(matched, len(models), size)
        made = self._coreset("DualCoreset", *rows, matched=rank)
        return replace(made, exact_at=tuple(sorted({at.problem.radius for at in models if is_met})))

    def _recombined(self, matched: Matched, n_models: int, size: int) -> tuple[Pilot, int, bool]:
        """Return a few rows of the sample with weights that match its sums at some models, and the rank of the sums.

        Also whether the models are optima of these rows: they are if they are optima of the sample, because the few
        rows meet the same optimality conditions.

        Each class's models are optima of the sample with weights of its own. The sums that are matched are those. The
        weights of the sample, at first the mean of the classes', are changed as little as possible, so that the models
        of all classes are optima of it. If that needs negative weights, as it may with heavy tails or many radii, their
        mean is used; see `_train_again`.

        Parameters
        ----------
        matched : Matched
            Problems that differ in their radius, and a model of each, for every class.
        n_models : int
            The first ``n_models`` models are optima of the sample.
        size : int
            Limit on the number of rows. If the user gave none, a few more are used if no row then has more than a tenth
            of the mass.
        """
        rows, masses = _distinct(self.rows, self.masses)
        if rows.y.size <= size:
            return rows.pick(np.argsort(rows.rows)), rows.y.size, bool((masses == masses[0]).all())
        order = np.argsort(row_keys(seed_from(self.seed, 8), rows.rows))
        rows, masses = rows.pick(order), masses[:, order]
        for numbers in (*matched.both_sides(), matched):  # with fewer rows only one side is matched, and curvature
            values = numbers.values(rows.X, rows.y)
            if size > (basis := Basis.of(values, rows.weights)).rank:
                break
        asked = numbers.targets(numbers.of_classes(masses @ values), n_models, self.solution.value)
        values, goal = basis.apply(values), basis.apply(asked[None])[0]
        spare = max(size - 1 - basis.rank, 0)
        count = (
            spare if numbers is not matched else self._count_near(n_models, spare, size < ROWS_OF_A_DRAW * goal.size)
        )
        near, own = _nearest(numbers, rows, masses, count)
        rest = np.delete(np.arange(rows.y.size), near)
        moved = _moved(values[rest], rows.weights[rest], goal - own @ values[near])
        weights = rows.weights[rest] if moved is None else moved
        rest, weights = rest[weights > 0.0], weights[weights > 0.0]
        # Models of many radii cover a region already.
        around = None if n_models > 3 or self.form.family.moves_rows else numbers
        most = (np.inf if self.size is None else size) - near.size
        chosen, few = self._fewer(rows, values, rest, weights, spare - near.size, most, around)
        chosen, few = np.concatenate([near, chosen]), np.concatenate([own, few])
        chosen, few = chosen[few > 0.0], few[few > 0.0]
        order, is_met = np.argsort(rows.rows[chosen]), moved is not None or not self.is_stacked
        return rows.pick(chosen[order], few[order]), basis.rank, is_met

    def _count_near(self, n_models: int, spare: int, is_small: bool) -> int:
        """Return how many of ``spare`` rows are those nearest to kinks, which keep their own masses.

        One for each parameter and kind of kink, or with many rows half of them. The ``h`` of the other rows are smooth
        around the models.
        """
        if not (self.near and self.form.family.is_closed):
            return 0
        most = n_models * (1 + self.form.family.flips) * (self.centre.size + 1) if is_small else spare
        return min(spare if is_small and self.form.loss.kinks else (spare + 1) // 2, most)

    def _fewer(
        self, rows: Pilot, values: FloatArray, rest: Indices, weights: FloatArray, spare: int, most: float, around: Any
    ) -> tuple[Indices, FloatArray]:
        """Return some of the rows ``rest`` and weights with the sums that ``weights`` have of ``values``.

        Their number, at most ``most``, is that of the sums and ``spare``. With spare rows ``h`` is also matched, not
        exactly, at models ``around`` the first one, unless that is None. Many rows are drawn at random instead, and
        their weights changed as little as possible: their curvature is that of all rows.
        """
        goal, count = weights @ values[rest], min(spare, _MOST_WITH_CURVATURE - values.shape[1])
        if spare >= (ROWS_OF_A_DRAW - 1) * values.shape[1]:
            drawn = slice(values.shape[1] + spare)  # the rows are in random order
            few = _moved(values[rest[drawn]], weights[drawn] * (goal[0] / weights[drawn].sum()), goal)
            if few is not None:
                return rest[drawn], few
        elif count > 0 and around is not None:
            added = _components(around, rows, values, count, self.seed)
            values, spare = np.column_stack([values, added]), spare - added.shape[1]
            goal = weights @ values[rest]
        found, recombined = recombine(values[rest], weights, 2 * spare)
        chosen, kept = rest[found], recombined[:spare]
        goal -= kept @ values[chosen[:spare]]
        few = _fewest(values[chosen[spare:]], recombined[spare:], goal, most - spare)
        return chosen, np.concatenate([kept, few])

    def _train_again(self) -> None:
        """Correct the weights of the sample to the sums of all rows, for all classes alike, and train the models again.

        All rows are one distribution, so common weights that have their sums exist, up to a sample that is too small.
        It is one read.
        """
        matched, start = Matched(tuple(self.models), self.centre), replace(self.solution, gap=np.inf)
        values, means = matched.values(self.rows.X, self.rows.y), read_sums(self.source, matched.sums)[0, 1:]
        self.rows = corrected(self.classes, self.rows, values, means)
        self.masses = np.repeat(self.rows.weights[None], len(self.optima), axis=0)
        samples = [self.rows._replace(y=at.targets_of(self.rows.y)) for at in self.models]
        found = zip(self.models, samples, strict=True)
        self.models = [self._refined(at.problem, start, rows, at.positive) for at, rows in found]

    def draw(self, size: int, *, calibrated: bool) -> Coreset:
        """Return a uniform draw, or the same rows with weights calibrated to the sums at the models."""
        if self.drawn is None:
            self.drawn, _ = uniform_sample(self.classes, self.source, size, self.seed, self.rows)
        if not calibrated:
            is_all = size >= self.source.n_rows
            made = self._coreset("DualCoreset" if is_all else "UniformCoreset", *self.drawn)
            return replace(made, exact_at=(self.problem.radius,) * is_all)
        matched = Matched((*self.models, *self.also), self.centre)
        means = matched.of_classes(matched.sums(self.rows.X, self.rows.y, self.masses))
        values = matched.values(self.drawn.X, self.drawn.y)
        return self._coreset("DualCoreset", *corrected(self.classes, self.drawn, values, means))

    def _coreset(self, method: str, rows: Any, X: Any, y: FloatArray, weights: FloatArray, **details: Any) -> Coreset:
        n, anchor = self.source.n_rows, None if self.is_stacked else self.models[0].anchor
        return Coreset(rows, X, y, normalised(weights), n, anchor, method, {"seed": self.seed} | details)

    def _is_optimum(self, coreset: Coreset, at: MatchedModel) -> bool:
        """Whether a model is an optimum of a coreset, which it may not be where too few rows near kinks were kept."""
        rows = replace(coreset, y=at.targets_of(coreset.y))
        risk = at.problem.risk(at.anchor.coef, at.anchor.intercept, rows.X, rows.y, rows.weights)
        return bool(risk - solve_quietly(at.problem, rows, tol=self.tol).value <= 1e-6 * abs(risk))

    def _excess(self, coreset: Coreset) -> float:
        """Return the excess of a coreset: train on it alone, and evaluate the model on all rows by one read.

        Of several classes it is the largest; each takes a read.
        """
        found = []
        for source, each, at in zip(self.sources, self.optima, self.models[:: len(self.optima[0].models)], strict=True):
            problem, solution = each.models[0]
            alone = solve_quietly(problem, replace(coreset, y=at.targets_of(coreset.y)), tol=self.tol)
            risk, own = read_risks(source, problem, [alone, solution])
            found.append(float((risk - own) / max(abs(own), np.finfo(float).tiny)))
        return max(found)
