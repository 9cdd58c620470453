"""Rows and weights whose own optimum is the model: those near kinks as they are, the others recombined."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dualcore.coresets.calibrate import EXACT, calibrate
from dualcore.coresets.matched import Matched, has_ties
from dualcore.coresets.recombine import Pool, eliminate
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.problem import Problem
from dualcore.solvers.pilot import Pilot

# With so many rows for each matched number a draw with calibrated weights matches them too, and is cheaper.
ROWS_OF_A_DRAW = 10
# In standard deviations of the matched numbers: errors that count as none.
MET = 1e-8
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


def exact_coreset(matched: Matched, rows: Pilot, plan: Plan, seed: int, most_rows: int | None = None) -> Pool:
    """Return a few rows of a sample, and weights with which they have its sums at some models.

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
    seed = seed_from(seed, 8)
    whole = Pool.of(rows, matched.values(rows.X, rows.y), seed)
    if has_ties(matched.problem):
        sides = matched.both_sides()
        wider = Pool.of(rows, sides.values(rows.X, rows.y), seed)
        n_near = plan.n_near if most_rows is None else most_rows - wider.basis.rank - 1
        if n_near >= 0:
            matched, whole, plan = sides, wider, Plan(plan.n_models, n_near, 0)
        else:  # too few rows for both sides
            plan = Plan(plan.n_models, 0, plan.n_near + plan.n_spare)
    near = np.empty(0, dtype=np.intp)
    if plan.n_near and (distances := matched.distances(whole.X, whole.y)) is not None:
        near = np.argsort(distances, kind="stable")[: plan.n_near]
    pool = whole.pick(np.delete(np.arange(len(whole)), near)).reduced(2 * plan.n_spare)
    if matched.problem.family.is_closed and not matched.problem.loss.kinks:
        pool = _moved(pool, whole.pick(near), matched.targets(whole.weights @ whole.values, plan.n_models))
    spare, rest = pool.pick(slice(plan.n_spare)), pool.pick(slice(plan.n_spare, None))
    chosen = _fewest(rest, None if most_rows is None else most_rows - near.size - len(spare))
    found = Pool.join([whole.pick(near), spare, chosen])
    return found.pick(np.argsort(found.rows))


def _moved(pool: Pool, kept: Pool, target: FloatArray) -> Pool:
    """Return the pool with weights moved as little as possible so that pool and kept rows have the target sums.

    The pool itself, if there are no such weights, or nothing that they could change.
    """
    if not pool.basis.rank:
        return pool
    mass, basis = float(pool.weights.sum()), pool.basis
    values = basis.apply(pool.values)[:, 1:]
    goal = (basis.apply(target[None])[0, 1:] - kept.weights @ basis.apply(kept.values)[:, 1:]) / mass
    weights = calibrate(pool.weights / mass, values, goal, softness=EXACT).weights
    if float(np.abs(weights @ values - goal).max()) > MET:
        return pool
    pool = replace(pool, weights=weights * mass)
    return pool.pick(pool.weights > 0.0)


def _fewest(pool: Pool, most_rows: int | None) -> Pool:
    """Return as few rows as have the sums of the pool."""
    values = pool.basis.apply(pool.values)
    most = max(0.1, 1.5 / values.shape[1])  # of the mass, unless a row has more or so few rows leave no choice
    weights = eliminate(values, pool.weights, np.maximum(pool.weights, most))
    if most_rows is not None and np.count_nonzero(weights) > most_rows:
        weights = eliminate(values, pool.weights)
    chosen = np.flatnonzero(weights > 0.0)
    weights = weights[chosen]
    # What rounding left of the sums is put right once more.
    error = values.T @ pool.weights - values[chosen].T @ weights
    better = weights + np.linalg.lstsq(values[chosen].T, error, rcond=1e-12)[0]
    return pool.pick(chosen, better if (better > 0.0).all() else weights)
