"""Rows and weights whose own optimum is the model: those near kinks as they are, the others recombined."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.coresets.calibrate import EXACT, calibrate
from dualcore.coresets.matched import Matched, has_ties
from dualcore.coresets.recombine import Basis, eliminate, recombine
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import row_keys, seed_from
from dualcore.problem import Problem
from dualcore.solvers.pilot import Pilot

# With so many rows for each matched number a draw with calibrated weights matches them too, and is cheaper.
ROWS_OF_A_DRAW = 10
# Largest number of matched numbers: an elimination takes O(d^3).
MOST_COLUMNS = 4000


class Plan(NamedTuple):
    """How the rows of a coreset are spent: models matched, rows kept near kinks, further rows that add curvature."""

    n_models: int
    n_near: int
    n_spare: int


def rows_for(problem: Problem, n_features: int, near: bool = True, n_models: int = 1) -> int:
    """Return how many rows reproduce some models: one more than the matched numbers, and rows near kinks.

    Examples
    --------
    >>> rows_for(Problem("logistic", radius=0.1), 20), rows_for(Problem("hinge", radius=0.1), 20)
    (24, 129)
    """
    fixed, own = columns_of(problem, n_features)
    kept, spare = _extra_rows(problem, n_features)
    return fixed + n_models * (own + near * kept) + spare


def columns_of(problem: Problem, n_features: int) -> tuple[int, int]:
    """Return the independent numbers that do not depend on the model, the mass among them, and those that do."""
    family = problem.family
    scores = family.n_outputs - 1 if family.n_outputs > 1 else 1
    spends = family.moves_rows or family.flips
    return max(len(family.strata), 1), 1 + int(spends) + scores * (n_features + int(problem.fit_intercept))


def _extra_rows(problem: Problem, n_features: int) -> tuple[int, int]:
    """Return rows to keep near kinks, and rows without which a loss that is linear far away has no curvature."""
    n = n_features + 1
    if not problem.family.is_closed:
        return n if has_ties(problem) else 0, 0
    has_kinks = problem.loss.kinks or problem.family.flips
    return min(5 * n, 200 + n) if has_kinks else 0, n if problem.loss.curvature_jumps else 0


def plan_rows(
    problem: Problem, n_features: int, size: int | None, n_models: int | None, has_near: bool = True
) -> Plan | None:
    """Return how ``size`` rows are spent, None where they are too few to reproduce a model.

    ``n_models`` is given where radii are. Otherwise more rows buy further models first, up to four. What is left then
    is kept from the last elimination: so many more rows have a curvature more like that of all rows.
    """
    fixed, own = columns_of(problem, n_features)
    near, spare = _extra_rows(problem, n_features)
    near *= has_near
    if size is None:
        return Plan(n_models or 1, (n_models or 1) * near, spare)
    left = size - fixed - (n_models or 1) * own
    if left < 0:
        return None
    if near:
        near = min(max(left // 2, size // 4), left)
    left -= near
    if n_models is None and size >= ROWS_OF_A_DRAW * (fixed + own):
        n_models = 1  # so many rows near kinks say more than other radii would
    models = n_models or 1 + min(left // own, 3)
    left -= (models - (n_models or 1)) * own
    spare = min(left, own) if near else left
    return Plan(models, near + left - spare, spare)


def exact_coreset(
    matched: Matched, rows: Pilot, plan: Plan, seed: int, most_rows: int | None = None
) -> tuple[Pilot, int]:
    """Return a few rows of a sample, with weights by which they have its sums at some models; and how many sums.

    Where the models are the optima of the sample they are those of the few rows, whatever these are otherwise. Rows
    near kinks are kept with their own masses. The others are linear around the models, so that there the objective of
    the few rows is that of the sample.

    Parameters
    ----------
    matched : Matched
        Problems that differ in their radius, and a model of each.
    rows : Pilot
        The sample.
    most_rows : int, optional
        The size that was asked for.
    """
    rows = rows.pick(np.argsort(row_keys(seed_from(seed, 8), rows.rows)))
    n_near, n_spare, both = plan.n_near, plan.n_spare, has_ties(matched.problem)
    if both:
        sides = matched.both_sides()
        values, basis = _numbers(sides, rows)
        n_near = n_near if most_rows is None else most_rows - basis.rank - 1
        both = n_near >= 0
        # Too few rows for both sides: one of them, and curvature.
        matched, n_near, n_spare = (sides, n_near, 0) if both else (matched, 0, plan.n_near + plan.n_spare)
    if not both:
        values, basis = _numbers(matched, rows)
    target, values = rows.weights @ values, basis.apply(values)
    near = np.empty(0, dtype=np.intp)
    if n_near and (distances := matched.distances(rows.X, rows.y)) is not None:
        near = np.argsort(distances, kind="stable")[:n_near]
    rest = np.delete(np.arange(rows.y.size), near)
    found, weights = recombine(values[rest], rows.weights[rest], 2 * n_spare)
    rest = rest[found]
    if matched.problem.family.is_closed and not matched.problem.loss.kinks and basis.rank:
        asked = basis.apply(matched.targets(target, plan.n_models)[None])[0]
        weights = _moved(values[rest], weights, asked - rows.weights[near] @ values[near])
        rest, weights = rest[weights > 0.0], weights[weights > 0.0]
    most_rows = None if most_rows is None else most_rows - near.size - n_spare
    few = _fewest(values[rest[n_spare:]], weights[n_spare:], most_rows)
    weights = np.concatenate([rows.weights[near], weights[:n_spare], few])
    chosen = np.concatenate([near, rest])[weights > 0.0]
    order = np.argsort(rows.rows[chosen])
    return rows.pick(chosen[order], weights[weights > 0.0][order]), basis.rank


def _numbers(matched: Matched, rows: Pilot) -> tuple[FloatArray, Basis]:
    """Return the matched numbers of rows, and the basis in which they are uncorrelated."""
    values = matched.values(rows.X, rows.y)
    return values, Basis.of(values, rows.weights)


def _moved(values: FloatArray, weights: FloatArray, target: FloatArray) -> FloatArray:
    """Return weights moved as little as possible to the target sums; as they are, if there are no such weights."""
    mass = float(weights.sum())
    goal = target[1:] / mass
    moved = calibrate(weights / mass, values[:, 1:], goal, softness=EXACT)
    # In standard deviations; more is not rounding.
    return moved * mass if float(np.abs(moved @ values[:, 1:] - goal).max()) <= 1e-8 else weights


def _fewest(values: FloatArray, weights: FloatArray, most_rows: int | None) -> FloatArray:
    """Return weights with the same sums, as few of them as possible positive."""
    most = max(0.1, 1.5 / values.shape[1])  # of the mass, unless a row has more or so few rows leave no choice
    found = eliminate(values, weights, np.maximum(weights, most))
    if most_rows is not None and np.count_nonzero(found) > most_rows:
        found = eliminate(values, weights)
    # What rounding left of the sums is put right once more.
    chosen = np.flatnonzero(found)
    error = values.T @ (weights - found)
    better = found[chosen] + np.linalg.lstsq(values[chosen].T, error, rcond=1e-12)[0]
    found[chosen] = better if (better > 0.0).all() else found[chosen]
    return found
