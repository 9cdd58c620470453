"""Rows and weights whose own optimum is the model: those near kinks as they are, the others recombined."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dualcore.coresets.calibrate import EXACT, calibrate
from dualcore.coresets.matched import Matched
from dualcore.coresets.recombine import Pool, eliminate
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.problem import Problem
from dualcore.solvers.pilot import Pilot

# With so many rows for each matched number a draw with calibrated weights matches them too, and is cheaper.
ROWS_OF_A_DRAW = 10
# In standard deviations of the matched numbers: errors that count as none.
MET = 1e-8


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
        return n if problem.family.moves_rows else 0, 0
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
    matched: Matched,
    means: FloatArray,
    rows: Pilot,
    plan: Plan,
    seed: int,
    most_rows: int | None = None,
    *,
    solved: bool = False,
) -> Pool:
    """Return rows of a sample, and weights with which the first models are their optima.

    Parameters
    ----------
    matched : Matched
        Problems that differ in their radius, and a model of each; more of them than planned have the sums of all rows,
        whether these make them optimal or not.
    means : ndarray of shape (d,)
        Of the matched numbers over all rows.
    rows : Pilot
        A sample, best with the weights that the first model was trained with.
    most_rows : int, optional
        The size that was asked for.
    solved : bool
        Whether the first model is the optimum of ``rows``, to the last digits. Their own sums are matched then where
        the loss has kinks: the rows that lie on them are kept, with the slopes between two sides that make it so.
    """
    whole, is_solved = Pool.of(rows, matched.values(rows.X, rows.y), seed_from(seed, 8)), solved
    if matched.problem.family.moves_rows:
        sides = matched.both_sides()
        wider = Pool.of(rows, sides.values(rows.X, rows.y), seed_from(seed, 8))
        n_near = plan.n_near if most_rows is None else most_rows - wider.basis.rank - 1
        if n_near >= 0:
            matched, whole, plan, is_solved = sides, wider, Plan(plan.n_models, n_near, 0), True
            means = whole.weights @ whole.values
    weights, distances = whole.weights, matched.distances(whole.X, whole.y) if plan.n_near else None
    near = np.empty(0, dtype=np.intp) if distances is None else np.argsort(distances, kind="stable")[: plan.n_near]
    pool = whole.pick(np.delete(np.arange(len(whole)), near)).reduced(2 * plan.n_spare)
    n_tied, step = 0, 0.0
    if distances is not None:
        # Rows are on a kink as long as their distances from it, times their masses, sum to next to nothing.
        error = np.cumsum(weights[near] * distances[near])
        n_tied = int(np.searchsorted(error, 1e-8 * abs(float(means[matched.n_strata])), side="right"))
        step = 4.0 * float(distances[near[:n_tied]].max(initial=0.0)) + 1e-9
    tied, kept = whole.pick(near[:n_tied]), whole.pick(near[n_tied:])
    asked = (0,) if is_solved and near.size else (plan.n_models, 1)
    targets = [matched.targets(means, n_models) for n_models in asked]
    weights = _moved(Pool.join([pool, *_sides(matched, tied, step, plan.n_models)]), kept, targets)
    pool = replace(pool, weights=weights[: len(pool)])
    pool = pool.pick(pool.weights > 0.0)
    spare, rest = pool.pick(slice(plan.n_spare)), pool.pick(slice(plan.n_spare, None))
    chosen = _fewest(rest, None if most_rows is None else most_rows - near.size - len(spare))
    if n_tied:
        tied = replace(tied, weights=weights[-2 * n_tied :].reshape(2, -1).sum(axis=0))
    found = Pool.join([tied, kept, spare, chosen])
    found = found.pick(found.weights > 0.0)
    return found.pick(np.argsort(found.rows))


def _sides(matched: Matched, tied: Pool, step: float, n_models: int) -> list[Pool]:
    """Return rows on a kink twice, with half of their masses each: on either side of it.

    At the optimum the slope of such a row is a mixture of both. Weights that move choose the mixture.
    """
    if not len(tied):
        return []
    values = [matched.shifted(sign * step, n_models).values(tied.X, tied.y) for sign in (-1.0, 1.0)]
    return [replace(tied, values=each, weights=0.5 * tied.weights) for each in values]


def _moved(pool: Pool, kept: Pool, targets: list[FloatArray]) -> FloatArray:
    """Return weights of the pool, moved as little as possible so that pool and kept rows have the target sums.

    Where no weights have the first targets the others are tried, then parts of the way from the data to the last.
    """
    basis = pool.basis
    mass = float(pool.weights.sum())
    values = basis.apply(pool.values)[:, 1:]
    have = (kept.weights @ basis.apply(kept.values)[:, 1:]) if len(kept) else np.zeros(basis.rank)
    asked = [basis.apply(each[None])[0, 1:] for each in targets]
    asked += [0.5 * asked[-1], 0.1 * asked[-1]]
    start = pool.weights / mass
    for each in asked:
        goal = (each - have) / mass
        weights = calibrate(start, values, goal, softness=EXACT).weights
        if float(np.abs(weights @ values - goal).max(initial=0.0)) <= MET:
            return weights * mass
    return pool.weights


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
