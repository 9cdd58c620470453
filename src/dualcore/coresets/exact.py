"""The coreset that is handed out: rows and weights whose own optimum is the model, checked by solving and reading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dualcore.coresets.calibrate import EXACT, calibrate
from dualcore.coresets.coreset import Coreset, normalised
from dualcore.coresets.matched import At, CurvatureProducts, Matched, centre_of
from dualcore.coresets.recombine import NearRule, Pool, eliminate, find_basis, leaf_of, recombine
from dualcore.data.arrays import FloatArray
from dualcore.data.keys import seed_from
from dualcore.data.sources import Source
from dualcore.problem import Problem
from dualcore.reading.summary import WeightedRows

# With so many rows for each matched number a draw with calibrated weights matches them too, and is cheaper.
ROWS_OF_A_DRAW = 10
# In standard deviations of the matched numbers: errors that count as none, and a spread that counts as none.
MET, CONSTANT = 1e-8, 1e-7


class Plan(NamedTuple):
    """How the rows of a coreset are spent: models matched, random products for curvature, rows kept near kinks."""

    n_models: int
    n_products: int
    n_near: int


def rows_for(problem: Problem, n_features: int, near: bool = True, n_models: int = 1) -> int:
    """Return how many rows reproduce some models: one more than the matched numbers, and rows near kinks.

    Examples
    --------
    >>> rows_for(Problem("logistic", radius=0.1), 20), rows_for(Problem("hinge", radius=0.1), 20)
    (24, 129)
    """
    fixed, own = columns_of(problem, n_features)
    kept, products = _extra_rows(problem, n_features)
    return fixed + n_models * (own + near * kept) + products


def columns_of(problem: Problem, n_features: int) -> tuple[int, int]:
    """Return the independent numbers that do not depend on the model, the mass among them, and those that do."""
    family = problem.family
    scores = family.n_outputs - 1 if family.n_outputs > 1 else 1
    spends = family.moves_rows or family.flips
    return max(len(family.strata), 1), 1 + int(spends) + scores * (n_features + int(problem.fit_intercept))


def _extra_rows(problem: Problem, n_features: int) -> tuple[int, int]:
    """Return rows to keep near kinks, and products without which a loss that is linear far away has no curvature."""
    if not problem.family.is_closed:
        return 0, 0
    n = n_features + 1
    return min(5 * n, 200 + n) if problem.loss.kinks or problem.family.flips else 0, n if problem.loss.bends else 0


def plan_rows(
    problem: Problem, n_features: int, size: int | None, n_models: int | None, has_near: bool = True
) -> Plan | None:
    """Return how ``size`` rows are spent, None where they are too few to reproduce a model.

    ``n_models`` is given where radii are. Otherwise more rows buy further models first, up to four, then curvature.
    """
    fixed, own = columns_of(problem, n_features)
    near, products = _extra_rows(problem, n_features)
    near *= has_near
    if size is None:
        return Plan(n_models or 1, products, (n_models or 1) * near)
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
    products = min(left, own if near else ROWS_OF_A_DRAW * own)
    return Plan(models, products, near + left - products if near else 0)


def exact_coreset(
    source: Source,
    models: Sequence[At],
    rows: WeightedRows,
    plan: Plan,
    seed: int,
    most_rows: int | None = None,
    *,
    also: Sequence[At] = (),
    solved: bool = False,
    distance_factor: float = 1.0,
) -> Coreset:
    """Return rows and weights of which every model is an optimum: two reads.

    Parameters
    ----------
    models : sequence of At
        Problems that differ in their radius, and a model of each.
    rows : WeightedRows
        A sample of the source that is in memory; it says where the columns are and how wide scores spread.
    most_rows : int, optional
        The size that was asked for.
    also : sequence of At
        Models at which the coreset has the sums of all rows, whether these make them optimal or not.
    solved : bool
        Whether the models are the optima of the source, to the last digits. Its own sums are matched then where the
        loss has kinks: the rows that lie on them are kept, and have the slopes between two sides that make it so.
    distance_factor : float
        Of distances from kinks of models after the first, whose near rows then matter less.
    """
    problem, n = models[0].problem, source.n_rows
    matched = Matched((*models, *also), centre_of(problem, rows.X, rows.weights), distance_factor=distance_factor)
    if plan.n_products:
        curvature = CurvatureProducts.draw(models[0], rows, matched.centre, plan.n_products, seed_from(seed, 7))
        matched = replace(matched, curvature=curvature)
    basis = find_basis(source, matched)
    pool, near, distances = recombine(
        source, matched, basis, _near_rule(matched, rows, plan.n_near, n), seed_from(seed, 8)
    )
    kept, rest = near.pick(slice(plan.n_near)), near.pick(slice(plan.n_near, None))
    if len(rest):
        pool = Pool.join([pool, rest]).reduced()
    # Rows are on a kink as long as their distances from it, times their masses, sum to next to nothing.
    error = np.cumsum(kept.weights * distances[: len(kept)])
    n_tied = int(np.searchsorted(error, 1e-8 * abs(float(basis.centre[matched.n_strata])), side="right"))
    tied, kept = kept.pick(slice(n_tied)), kept.pick(slice(n_tied, None))
    asked = (0,) if solved and len(near) else (len(models), 1)
    targets = [matched.targets(basis.centre, n_models) for n_models in asked]
    weights = _moved(Pool.join([pool, *_sides(matched, tied, distances)]), kept, targets)
    most = None if most_rows is None else most_rows - n_tied - len(kept)
    chosen = _fewest(replace(pool, weights=weights[: len(pool)]), most)
    if n_tied:
        tied = replace(tied, weights=weights[len(pool) :].reshape(2, -1).sum(axis=0))
    found = Pool.join([tied, kept, chosen])
    found = found.pick(found.weights > 0.0)
    found = found.pick(np.argsort(found.rows))
    return Coreset(
        found.rows,
        found.X,
        found.y,
        normalised(found.weights),
        n,
        models[0].anchor,
        "DualCoreset",
        {"seed": seed, "matched": basis.rank, "near_kinks": n_tied + len(kept)},
        exact_at=tuple(sorted(at.problem.radius for at in models)),
    )


def _near_rule(matched: Matched, rows: WeightedRows, wanted: int, n_rows: int) -> NearRule:
    """Return a distance from kinks within which about twice the wanted rows lie, by those of a sample."""
    distances = matched.distances(rows.X, rows.y) if wanted else None
    if distances is None or not distances.size:
        return NearRule(0.0, 0)
    share = distances.size / n_rows
    # A model trained on the sample has about as many of its rows on kinks as it has parameters: they do not count.
    tied = 2 * len(matched.models) * (matched.centre.size + 1)
    place = min(tied + max(math.ceil(2.0 * wanted * share), 8), distances.size) - 1
    width = float(np.partition(distances, place)[place]) * (1.0 + 1e-12) + 1e-300
    leaf = leaf_of(matched.n_columns)
    return NearRule(width, math.ceil(4.0 * wanted * min(leaf / n_rows, 1.0)) + 4)


def _sides(matched: Matched, tied: Pool, distances: FloatArray) -> list[Pool]:
    """Return rows on a kink twice, with half of their masses each: on either side of it.

    At the optimum the slope of such a row is a mixture of both. Weights that move choose the mixture.
    """
    if not len(tied):
        return []
    step = 4.0 * float(distances[len(tied) - 1]) + 1e-9
    values = [matched.shifted(sign * step).values(tied.X, tied.y) for sign in (-1.0, 1.0)]
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
    # A direction may be that of a few rows, all of them near kinks: the pool says nothing of it, and cannot move there.
    varies = np.sqrt(start @ (values - start @ values) ** 2) > CONSTANT
    for each in asked:
        goal = (each - have) / mass
        weights = calibrate(start, values[:, varies], goal[varies], softness=EXACT).weights
        if float(np.abs(weights @ values - goal).max(initial=0.0)) <= MET:
            return weights * mass
    return pool.weights


def _fewest(pool: Pool, most_rows: int | None) -> Pool:
    """Return as few rows as have the sums of the pool."""
    pool = pool.pick(pool.weights > 0.0)
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
