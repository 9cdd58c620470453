r"""The numbers that a coreset matches so that a model is its optimum: the terms of the optimality conditions, by row.

The training problem is ``min sigma^p lam + sum_i w_i h_i(theta, b, lam) + ridge`` over ``lam >= kappa(theta)``. It is
jointly convex. A model is optimal for weighted rows if and only if the sums

.. math:: \Big( \sum_i w_i s_i x'_i, \quad \sum_i w_i s_i, \quad \sum_i w_i \, \text{spent}_i \Big)

of slopes times moved rows, slopes and transport have values that depend on the model alone: the first is minus a
subgradient of ridge and dual norm, the second is 0, the third is the budget, or less if ``lam = kappa``. So all rows
and weights with these sums have the model as an optimum. The mean of ``h`` is matched too, so that the risk has the
same value; for powers the derivative in the dual norm is a multiple of it.

The matched sums are those over weighted rows of which the model is an optimum up to rounding. If the model is not quite
optimal, a gradient ``g`` remains, and the optimum of the coreset is ``-H^-1 g`` away, where the Hessian ``H`` of a few
rows is a poor one. So where ``h`` is smooth, the targets are replaced by sums that meet the conditions exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.anchors import anchor_at
from dualcore.coresets.weights import Basis
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.rows import as_rows
from dualcore.data.sources import Chunk, Source
from dualcore.data.sources.base import default_chunk_rows
from dualcore.data.sources.transform import Folds
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.families import CategoriesFamily
from dualcore.problem.normal import dense
from dualcore.reading.closed import kink_distance, spread_of
from dualcore.reading.leaves import LeafRead
from dualcore.reading.reading import Reading
from dualcore.solvers import Solution


class MatchedModel(NamedTuple):
    """A problem and a model of it: the pair whose optimality conditions are matched.

    ``positive`` is the class that is told from the rest, if targets are the numbers of several classes.
    """

    problem: Problem
    anchor: Anchor
    positive: int | None = None

    @classmethod
    def of(cls, problem: Problem, solution: Solution, positive: int | None = None) -> MatchedModel:
        """Return a solution as the model of a problem."""
        return cls(problem, anchor_at(problem, solution), positive)

    def targets_of(self, y: FloatArray) -> FloatArray:
        """Return the targets (n,) of the problem: -1 and +1 for one class against the rest."""
        return y if self.positive is None else np.where(y == self.positive, 1.0, -1.0)

    def scaled(self, factor: float) -> MatchedModel:
        """Return the model with ``factor`` times its multiplier, or the smallest at which ``h`` is finite."""
        multiplier = self.problem.family.feasible_multiplier(self.anchor.coef, factor * self.anchor.multiplier)
        return self._replace(anchor=replace(self.anchor, multiplier=multiplier))


@dataclass(frozen=True)
class Matched:
    """The matched numbers of a row at one or several models.

    ``centre`` (m,) is subtracted from the columns to reduce rounding. It is zero if there is no intercept. ``counted``
    are columns whose means are matched too.
    """

    models: tuple[MatchedModel, ...]
    centre: FloatArray
    counted: Any = ()

    @property
    def problem(self) -> Problem:
        """The first problem: all have its loss, geometry and classes."""
        return self.models[0].problem

    @property
    def n_scores(self) -> int:
        """Number of independent slopes: those of several classes sum to zero, so one less than there are classes."""
        return max(self.problem.family.n_outputs - 1, 1)

    @property
    def n_strata(self) -> int:
        """Number of matched masses: of all classes but one, as the masses sum to one, and of categories."""
        return (self.models[-1].positive or max(len(self.problem.family.strata) - 1, 0)) + len(self.counted)

    @property
    def n_for_model(self) -> int:
        """Number of columns per model: ``h``, transport, derivative in the dual norm, slopes, slopes times rows."""
        return 3 + self.n_scores * (self.centre.size + 1)

    @property
    def n_columns(self) -> int:
        """Number of matched numbers of a row."""
        return self.n_strata + len(self.models) * self.n_for_model

    def values(self, X: Any, y: FloatArray) -> FloatArray:
        """Return the numbers of each row, shape (n, n_columns)."""
        out, m = np.empty((y.size, self.n_columns)), self.centre.size
        out[:, : self.n_strata] = self._strata(X, y)
        first = self.n_strata
        for at in self.models:
            head, slope, moved = self._rows(at, X, y)
            block = out[:, first : first + self.n_for_model]
            block[:, : head.shape[1]] = head
            moved = dense(moved) - self.centre
            for score in range(self.n_scores):
                start = head.shape[1] + score * m
                np.multiply(moved, slope[:, score : score + 1], out=block[:, start : start + m])
            first += self.n_for_model
        return out

    def sums(self, X: Any, y: FloatArray, masses: FloatArray) -> FloatArray:
        """Return the sums of the numbers over rows of ``masses`` (k, n); shape (k, n_columns)."""
        out = [masses @ self._strata(X, y)]
        for at in self.models:
            head, slope, moved = self._rows(at, X, y)
            out.append(masses @ head)
            for score in range(self.n_scores):
                weighted = masses * slope[:, score]
                out.append((moved.T @ weighted.T).T - weighted.sum(axis=1)[:, None] * self.centre)
        return np.column_stack(out)

    def _strata(self, X: Any, y: FloatArray) -> FloatArray:
        """Return indicators of all classes but the first, and of categories, shape (n, n_strata)."""
        last = self.models[-1].positive
        labels = range(1, last + 1) if last else self.problem.family.strata[1:]
        classes = np.equal.outer(y, np.array(labels, dtype=np.float64))
        return np.column_stack([classes, dense(X[:, self.counted])]) if len(self.counted) else classes.astype(float)

    def _rows(self, at: MatchedModel, X: Any, y: FloatArray) -> tuple[FloatArray, FloatArray, Any]:
        """Return the first columns of a model (n, 3 + n_scores), the slopes (n, scores) and the moved rows (n, m).

        The other columns are products of slopes and moved rows.
        """
        (problem, anchor, _), y = at, at.targets_of(y)
        family, k = problem.family, self.n_scores
        found = family.rows(anchor, X, y)
        slope = found.slope.reshape(y.size, -1)
        head = np.zeros((y.size, 3 + k))
        head[:, 0], head[:, 1] = found.upper, found.spent
        if not family.linear_in_multiplier:
            t = family.signal_at(anchor, X, y)
            head[:, 2] = family.form.partials(t, anchor.multiplier, family.size(anchor.coef)).size
        if problem.fit_intercept:  # without an intercept the sum of slopes is not matched
            head[:, 3:] = slope[:, :k]
        return head, slope, found.moved

    def of_classes(self, sums: FloatArray) -> FloatArray:
        """Return the sums (d,) of each class's models over its own masses, of ``sums`` (k, d) over those of k classes.

        The masses of the classes are averaged.
        """
        own = np.einsum("kkd->kd", sums[:, self.n_strata :].reshape(len(sums), len(sums), -1))
        return np.concatenate([sums[:, : self.n_strata].mean(axis=0), own.ravel()])

    def distances(self, X: Any, y: FloatArray, weights: FloatArray) -> FloatArray | None:
        """Return the distances (k, n) of weighted rows from kinks of ``h``, in standard deviations; None without kinks.

        There is one for each model, or for both of `both_sides`.

        If all rows on a kink are kept, the objective has the same directional derivatives at the model as that of all
        rows. Where loss and norm are piecewise linear it may still be constant along directions in which the scores of
        these rows do not change, and for longer than that of all rows. So distances are divided by the norm of the row
        along these directions. Under l2 the norm of the coefficients is constant along no such direction.
        """
        if has_ties(self.problem):
            pairs = zip(self.models[::2], self.models[1::2], strict=True)
            return np.array([self._distances_of_moves(*pair, X, y) for pair in pairs])
        found, is_flat = list[FloatArray](), self.problem.loss.kinks and self.problem.geometry.norm.name != "l2"
        Z = Basis.of(dense(X), weights).apply(dense(X)) if is_flat else np.empty(0)
        for at in self.models if self.problem.family.is_closed else ():
            t = at.problem.family.signal_at(at.anchor, X, at.targets_of(y))
            if (distance := kink_distance(at.problem, at.anchor.multiplier, t)) is None:
                return None
            distance = distance / spread_of(t, weights)
            if is_flat:
                on = distance <= 1e-6
                variances, axes = np.linalg.eigh(Z[on].T @ Z[on])
                free = Z @ axes[:, variances <= 1e-6 * variances[-1]]
                distance = np.where(on, 0.0, distance / np.sqrt(1.0 + 1e3 * (free**2).sum(axis=1)))
            found.append(distance)
        return np.array(found) if found else None

    def _distances_of_moves(self, first: MatchedModel, last: MatchedModel, X: Any, y: FloatArray) -> FloatArray:
        """Return the change of the score (n,), in standard deviations, at which the slope of a row jumps.

        For rows whose move jumps, so that its cost changes, it is 0.01 more than the relative change of the multiplier.
        ``first`` and ``last`` are the `both_sides` of one model.
        """
        problem, below, above, y = first.problem, first.anchor, last.anchor, first.targets_of(y)
        at = MatchedModel(problem, replace(below, multiplier=0.5 * (below.multiplier + above.multiplier)))
        found, slope = np.full(y.size, np.inf), problem.family.rows(at.anchor, X, y).slope.reshape(y.size, -1)
        for step in (5e-2, 1e-2, 1e-3):
            spent = [problem.family.rows(at.scaled(each).anchor, X, y).spent for each in (1.0 - step, 1.0 + step)]
            found[np.abs(spent[0] - spent[1]) > 1e-6 * max(problem.radius, 1e-300)] = 1e-2 + step
        spread = float(np.std(X @ below.coef.T))
        for step in (1e-1, 1e-2, 1e-4, 1e-6):
            for shift in (*(step * spread * np.eye(slope.shape[1])), *(-step * spread * np.eye(slope.shape[1]))):
                intercept = below.intercept + (shift if np.ndim(below.intercept) else float(shift[0]))
                other = problem.family.rows(replace(at.anchor, intercept=intercept), X, y).slope.reshape(y.size, -1)
                # A jump, not a change by the curvature of the loss.
                found = np.where(np.abs(other - slope).max(axis=1) > 0.1, np.minimum(found, step), found)
        return found

    def around(self, X: Any, y: FloatArray, weights: FloatArray, count: int, seed: int) -> FloatArray:
        """Return ``h`` of weighted rows at models drawn around the first, shape (n, count).

        The root mean square differences of their scores from the first are 0.05, 0.3 and 1 by turns, for residuals in
        standard deviations.
        """
        (problem, at, _), y, family = self.models[0], self.models[0].targets_of(y), self.problem.family
        centred = dense(X) - self.centre
        variances, axes = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        kept = variances > 1e-10 * variances[-1]
        unit = 1.0 if problem.is_classification else spread_of(family.signal_at(at, X, y), weights)
        shape = (count, *np.shape(at.coef)[:-1], 1 + np.count_nonzero(kept))
        steps = np.random.default_rng(seed_from(seed, 9)).normal(size=shape)
        steps *= unit / np.linalg.norm(steps, axis=-1, keepdims=True)
        found, rows = np.empty((y.size, count)), as_rows(X)
        for k, step in enumerate(steps):
            step *= (0.05, 0.3, 1.0)[k % 3]
            change = (step[..., 1:] / np.sqrt(variances[kept])) @ axes[:, kept].T
            coef, intercept = at.coef + change, at.intercept
            if problem.fit_intercept:
                intercept = intercept + step[..., 0] - change @ self.centre
            model = Anchor(coef, intercept, family.feasible_multiplier(coef, at.multiplier))
            found[:, k] = family.bounds(model, rows, y)[1]
        return found

    def both_sides(self) -> list[Matched]:
        """Return the matched numbers at multipliers 0.1 % smaller and 0.1 % larger, if rows may have several moves.

        At an optimum many rows often have several optimal moves, and the worst case is a mixture of these. At a smaller
        multiplier all of these moves are made, at a larger one none. Rows that match the sums of all rows on both sides
        have nearly the same objective between them.

        Where categories change and the loss is smooth, the first alternative matches their masses too. Nothing but
        ``h`` limits the coefficient of a category. If it is not the largest or smallest of its group, the slopes of the
        rows of the category sum to zero, so without the masses these rows could be missing or have hardly any weight.
        """
        if not has_ties(self.problem):
            return []
        sides = replace(self, models=tuple(at.scaled(each) for at in self.models for each in (1.0 - 1e-3, 1.0 + 1e-3)))
        if self.problem.loss.kinks or not isinstance(family := self.problem.family, CategoriesFamily):
            return [sides]
        return [replace(sides, counted=family.one_hot), sides]

    def targets(self, sums: FloatArray, n_models: int, risk: float | None = None) -> FloatArray:
        """Return the nearest sums that meet the optimality conditions of the first ``n_models`` models exactly.

        Where ``h`` is not smooth, the given sums are returned. ``risk``: that of the first model, if the sums imply
        another one.
        """
        found, (problem, anchor, _) = sums.copy(), self.models[0]
        if not problem.family.is_closed:
            return found
        if risk is not None and problem.family.linear_in_multiplier:
            found[self.n_strata] = risk - problem.price * anchor.multiplier - problem.penalty(anchor.coef)
        if problem.loss.kinks:
            return found
        for number, (problem, anchor, _) in enumerate(self.models[:n_models]):
            first, family = self.n_strata + number * self.n_for_model, problem.family
            out = found[first : first + self.n_for_model]  # a view
            h, spent, in_size, slope = out[:4]
            moment, ridge = out[4:] + slope * self.centre, problem.ridge * anchor.coef
            if problem.radius == 0.0:
                budget = 0.0
            elif family.linear_in_multiplier:
                at_kappa = anchor.multiplier <= family.kappa(anchor.coef) * (1.0 + 1e-9)  # but for rounding
                out[1] = min(spent, problem.radius) if at_kappa else problem.radius
                budget = problem.radius - out[1]
            else:
                out[1] = problem.price
                if spent > 0.0 and not family.flips:  # all three are multiples of the mean of h
                    out[0], out[2] = h * out[1] / spent, in_size * out[1] / spent
                budget = out[2]
            if problem.fit_intercept:
                out[3] = 0.0
            asked = -(family.multiplier_face(anchor.coef, -moment - ridge, budget) + ridge)
            out[4:] = asked - out[3] * self.centre
        return found


def has_ties(problem: Problem) -> bool:
    """Whether rows may have several optimal moves or labels at a multiplier, so that `both_sides` are matched."""
    return not problem.family.is_closed and (problem.family.moves_rows or problem.family.flips)


def sums_of(reading: Reading, centre: FloatArray) -> FloatArray:
    """Return the sums of the matched numbers at the model of a reading; NaN for those that it does not contain."""
    family = reading.problem.family
    k = max(family.n_outputs - 1, 1)
    slope = np.atleast_1d(reading.slope)[:k]
    gradient = reading.gradient.reshape(-1, centre.size)[:k] - slope[:, None] * centre
    spent = reading.spent if family.linear_in_multiplier else np.nan
    return np.concatenate([[reading.mean_h, spent, np.nan], slope, gradient.ravel()])


def centre_of(problem: Problem, X: Any, weights: FloatArray) -> FloatArray:
    """Return the weighted means (m,) of the columns of a sample; zero if there is no intercept."""
    if not problem.fit_intercept:
        return np.zeros(X.shape[1])
    return np.asarray(X.T @ weights, dtype=np.float64).ravel()


@dataclass(frozen=True)
class _SumsRead(LeafRead[TreeSum]):
    """The mass of every fold, and sums over its rows; shape (n_folds * (1 + d),)."""

    sums: Callable[[Any, FloatArray, FloatArray], FloatArray]
    folds: Folds

    def leaf_of(self, chunk: Chunk) -> int:
        """Return the default number of rows of a chunk: smaller leaves would make products slow."""
        return default_chunk_rows(chunk.X.shape[1], sparse=sp.issparse(chunk.X))

    def sums_of(self, chunk: Chunk) -> TreeSum:
        leaf, table = self.leaf_of(chunk), []
        for part in chunk.cut(leaf):
            fold = self.folds.of(part.start, part.start + part.y.size)
            masses = part.masses(self.total) * (fold == np.arange(self.folds.count)[:, None])
            table.append(np.column_stack([masses.sum(axis=1), self.sums(part.X, part.y, masses)]).ravel())
        return TreeSum.of_leaves(chunk.start // leaf, np.array(table))

    def join(self, found: list[TreeSum]) -> TreeSum:
        return TreeSum.join(found)


def read_sums(
    source: Source, sums: Callable[[Any, FloatArray, FloatArray], FloatArray], folds: Folds | None = None
) -> FloatArray:
    """Return the mass of every fold and sums over its rows, one fold of all rows by default; shape (n_folds, 1 + d).

    ``sums`` is called with features, targets and masses, shape (n_folds, n), of some rows; such as `Matched.sums`. One
    read.
    """
    folds = folds or Folds(1, 0)
    return _SumsRead(source.n_rows, source.total_weight, sums, folds).over(source).total().reshape(folds.count, -1)
