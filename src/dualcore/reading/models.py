"""Reads that score many models at once: exact worst-case risks at any radius, and lower bounds on the optimum.

The products ``X coef`` of all models are one matrix product. Risk and bound at any radius follow from a few sums that
do not depend on the radius: the mean loss of a model, the rows that may flip, and the sums of a dual point at its
slopes. So the slopes of one model prove a lower bound for every radius.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificates import LevelSet, SideSums, side_bound, trivial_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import weighted_squares
from dualcore.data.sources import Chunk, Source
from dualcore.data.sums import TreeSum
from dualcore.problem import Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.problem.forms import Evaluated
from dualcore.problem.losses import Logistic
from dualcore.reading.leaves import LeafRead
from dualcore.reading.rowdata import source_data
from dualcore.reading.summary import in_range

# Rows of a leaf, and rows and models of a block, sized for the second-level cache.
_LEAF_ROWS, _BLOCK_ROWS, _BLOCK_MODELS = 8192, 2048, 24
# Positions of the sums of a dual point, for each model and sign of the slope: value, balance, square, then the moment.
_VALUE, _BALANCE, _SQUARE, _MOMENT = range(4)
# Flip tails of more rows are cut to those that can flip at the largest radius.
_TAIL_ROWS = 65536


class _Plan(NamedTuple):
    """What is computed on every chunk: the models as matrices, and which sums.

    All sums are computed for the first ``full`` models, only those of the risk for the others.
    """

    problem: Problem
    coef: FloatArray  # (k, m)
    intercept: FloatArray  # (k, 1)
    kappa: FloatArray  # (k,)
    multiplier: FloatArray  # (k,)
    widths: FloatArray  # (full, 1)
    full: int
    flips: bool
    sized: bool
    bounded: bool  # whether to sum, by the sign of the slopes, what a lower bound needs


class _Tail(NamedTuple):
    """Rows with ``Delta = (L(-z) - L(z)) / gamma`` above kappa, which may flip: model, Delta and mass."""

    model: npt.NDArray[np.intp]
    delta: FloatArray
    mass: FloatArray


class _ReadSums(NamedTuple):
    """Sums over rows. Each dual point is (full, 2, 3 + m), by the sign of the slope; see `_VALUE` and the rest."""

    loss: FloatArray  # (k,)
    flipped: FloatArray  # (full,)
    exact: FloatArray
    change: FloatArray  # change of `exact` if the rows with Delta above the multiplier flip
    smooth: FloatArray
    squares: FloatArray  # (m,) of the columns


def _shapes(plan: _Plan) -> _ReadSums:
    """Return the shapes of the sums; those that are not computed are empty."""
    k, m = plan.coef.shape
    dual, none = (plan.full, 2, _MOMENT + m), (0, 2, _MOMENT + m)
    change, smooth = dual if plan.flips else none, dual if plan.widths.any() else none
    shapes: Any = ((k,), (plan.full,), dual, change, smooth, (m if plan.sized else 0,))
    return _ReadSums(*shapes)


def _sums_in(vector: FloatArray, plan: _Plan) -> _ReadSums:
    """Return the sums as views of one vector, in which they are stored one after another."""
    shapes = _shapes(plan)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return _ReadSums(*(part.reshape(shape) for part, shape in zip(np.split(vector, ends), shapes, strict=False)))


class _ModelSums(NamedTuple):
    """The sums of some leaves as vectors, and their rows that may flip."""

    sums: TreeSum
    tail: _Tail


@dataclass(frozen=True)
class _ModelRead(LeafRead[_ModelSums]):
    """Scores all models."""

    plan: _Plan
    spendable: float  # mass that may flip at the largest radius

    def leaf_of(self, chunk: Chunk) -> int:
        """Return a power of two, larger than elsewhere, because the sums of a leaf are large."""
        return max(_LEAF_ROWS, super().leaf_of(chunk))

    def sums_of(self, chunk: Chunk) -> _ModelSums:
        """Return the sums of whole leaves; each is added at once, because its sums may be as large as its rows."""
        leaf, sums, tails = self.leaf_of(chunk), TreeSum(), []
        for part in chunk.cut(leaf):
            vector, tail = _sum_leaf(part, self.plan, self.total)
            sums = TreeSum.join([sums, TreeSum.of_leaves(part.start // leaf, vector[None])])
            tails.append(tail)
        return _ModelSums(sums, _join(tails))

    def join(self, found: list[_ModelSums]) -> _ModelSums:
        """Return the sums of all parts, and the rows that may flip at the largest radius."""
        tail = _join([each.tail for each in found])
        if tail.delta.size > _TAIL_ROWS:
            tail = _cut(tail, self.spendable)
        return _ModelSums(TreeSum.join(each.sums for each in found), tail)


def read_models(
    source: Source,
    problem: Problem,
    models: Sequence[Any],
    widths: Sequence[float] | None,
    largest_radius: float,
    others: Sequence[Any] = (),
    column_sizes: FloatArray | None = None,
) -> ModelReadings:
    """Read the data once and return the scores of all models.

    Parameters
    ----------
    source : Source
    problem : Problem
        Loss and geometry; its radius is not used. Not the squared hinge with a finite label cost.
    models : sequence of Solution
        Their ``dual_variable`` decides which rows flip in the dual point.
    widths : sequence of float
        Smoothing width of a second dual point for losses with kinks, for each model; 0 for none. None if no bound is
        needed, which costs less.
    largest_radius : float
        Largest radius at which risks will be evaluated.
    others : sequence of Solution
        Models of which only the risk is needed, which costs less; they are numbered after the first ones.
    column_sizes : ndarray of shape (n_features,), optional
        Root mean squares of the columns, if known; otherwise they are computed too.
    """
    both = [*models, *others]
    coef = np.stack([np.asarray(model.coef, dtype=np.float64) for model in both])
    intercept = np.array([[float(model.intercept)] for model in both])
    kappa, multiplier = np.array([(problem.kappa(model.coef), float(model.dual_variable)) for model in both]).T
    smoothing = np.zeros((len(models), 1)) if widths is None else np.asarray(widths, dtype=np.float64)[:, None]
    flips, sized = problem.form.flip_gains(np.zeros(1)) is not None, column_sizes is None and bool(widths)
    asked = smoothing, len(models), flips, sized, widths is not None
    plan = _Plan(problem, coef, intercept, kappa, multiplier, *asked)
    n_rows = source.n_rows
    sums, tail = _ModelRead(n_rows, source.total_weight, plan, largest_radius / problem.geometry.label_cost).over(
        source
    )
    found = _sums_in(sums.total(), plan)
    sizes = np.sqrt(found.squares) if column_sizes is None else column_sizes
    return ModelReadings(plan, found, tail, sizes, n_rows)


def reads_together(problem: Problem) -> bool:
    """Whether one read can evaluate and certify several models: closed forms whose sums determine the risk."""
    return problem.family.is_closed and (problem.form.sums_decide or not problem.family.flips)


def read_risks(source: Source, problem: Problem, models: Sequence[Any]) -> list[float]:
    """Return the worst-case risks of several models on all rows, by one read, or several without a closed form."""
    if reads_together(problem):
        readings = read_models(source, problem, [], [], problem.radius, models)
        return [readings.risk(problem, number)[0] for number in range(len(models))]
    data = source_data(source)
    return [problem.evaluate(each.coef, each.intercept, data).value for each in models]


class ModelReadings:
    """Risks and lower bounds of several models at any radius, from the sums of one read."""

    def __init__(self, plan: _Plan, sums: _ReadSums, tail: _Tail, column_sizes: FloatArray, n_rows: int) -> None:
        self._coef, self._intercept, self._sums, self._tail = plan.coef, plan.intercept[:, 0], sums, tail
        self._multiplier, self._n_rows, self.column_sizes = plan.multiplier, n_rows, column_sizes
        self._duals = [sums.exact, sums.smooth] if plan.widths.any() else [sums.exact]

    def risk(self, problem: Problem, model: int) -> tuple[float, float]:
        """Return the exact worst-case risk of a model, ridge included, and its multiplier."""
        coef, mean_loss, rows = self._coef[model], float(self._sums.loss[model]), self._tail
        own = rows.model == model
        tail = FlipTail(rows.delta[own], rows.mass[own])
        value, multiplier = problem.form.minimise_tail(mean_loss, 1.0, tail, problem.size(coef))
        return float(value + problem.penalty(coef)), float(multiplier)

    def lower_bound(self, problem: Problem, model: int, upper: float) -> float:
        """Return a lower bound on the optimal risk of ``problem``, from the slopes of a model.

        ``upper`` is the risk of any model at that radius.
        """
        sums, at = self._sums, self._level_set(problem, model, upper)
        best = trivial_bound(problem)
        for dual in self._duals:
            best = max(best, self._bound(at, model, dual[model], 0.0))
        flipped = float(sums.flipped[model])
        if flipped > 0.0 and problem.radius > 0.0:
            # A dual point for any flip probability: 1, or as much as the budget allows.
            share = min(1.0, problem.radius / (problem.geometry.label_cost * flipped) * (1.0 - 1e-15))
            mixed = sums.exact[model] + share * sums.change[model]
            best = max(best, self._bound(at, model, mixed, share * flipped))
        return best

    def means(self, model: int) -> tuple[float, float, FloatArray]:
        """Return the mean loss of a model, and its derivatives in the intercept and in the coefficients."""
        dual = self._sums.exact[model]
        slope = float(dual[1, _BALANCE] - dual[0, _BALANCE])
        return float(self._sums.loss[model]), slope, dual[:, _MOMENT:].sum(axis=0)

    def rounding(self, problem: Problem, model: int) -> float:
        """Return a bound on the rounding error of the risk of a model."""
        at = self._level_set(problem, model, self.risk(problem, model)[0])
        return at.risk_error(self._coef[model], float(self._intercept[model]))

    def _score_size(self, model: int) -> float:
        """Return an upper bound on the root mean square of the scores of a model."""
        return float(np.abs(self._coef[model]) @ self.column_sizes) + abs(float(self._intercept[model]))

    def _level_set(self, problem: Problem, model: int, upper: float) -> LevelSet:
        targets = 0.0
        if not problem.is_classification:  # |y| <= |score| + |r|
            targets = self._score_size(model) + problem.loss.largest_size(float(self._sums.loss[model]))
        return LevelSet(problem, upper, self.column_sizes, self._n_rows, target_size=targets)

    def _bound(self, at: LevelSet, model: int, dual: FloatArray, flipped: float) -> float:
        problem, balance = at.problem, dual[:, _BALANCE]
        slopes = problem.form.steepest(np.abs(balance))
        paid = problem.geometry.label_cost * flipped * float(self._multiplier[model]) if flipped else 0.0
        terms = 2.0 * float(self._sums.loss[model]) + slopes * self._score_size(model) + paid
        sums = SideSums(dual[:, _VALUE], balance, dual[:, _SQUARE], dual[:, _MOMENT:], flipped)
        return side_bound(at, sums, terms, self._n_rows)


def _sum_leaf(chunk: Chunk, plan: _Plan, weight: float) -> tuple[FloatArray, _Tail]:
    """Return the sums of a leaf as one vector, and the rows that may flip; ``weight`` is that of all rows.

    Dual points are summed for each class separately, where all slopes in the score have the same sign. Sums are
    unnormalised, and divided by ``weight`` at the end.
    """
    form, full, tails = plan.problem.form, plan.full, []
    vector = np.zeros(sum(int(np.prod(shape)) for shape in _shapes(plan)))
    counts = _sums_in(vector, plan)
    chunk, weight = in_range(chunk, weight)
    unit = 1.0 / weight
    if plan.sized:
        counts.squares[:] = weighted_squares(chunk.X, np.ones(chunk.y.size) if chunk.weights is None else chunk.weights)
    for part, first in product(chunk.cut(_BLOCK_ROWS), range(full, len(plan.coef), _BLOCK_MODELS)):
        some = slice(first, first + _BLOCK_MODELS)
        t = _signals(plan, some, part.X, part.y)
        if plan.flips:
            tails.append(_flip_tail(plan, first, part.weights, t)[0])
        counts.loss[some] += _losses(plan, t, part.weights, sloped=False)[0]
    has_classes = plan.problem.is_classification
    for X, y, label, mass in _by_class(chunk, has_classes and plan.bounded) if full else ():
        t = _signals(plan, slice(full), X, y)
        total, value, slope = _losses(plan, t, mass)
        counts.loss[:full] += total
        if not plan.bounded:
            slope = slope * ((y if has_classes else 1.0) * (1.0 if mass is None else mass))
            counts.exact[:, 1, _BALANCE] += slope.sum(axis=1)
            counts.exact[:, 1, _MOMENT:] += _moments(slope, X)
            continue
        worth = total if label else form.dual_values(Evaluated(value, value, slope, None), t, t + y, y, np.inf)
        _add_dual(counts.exact, plan, X, label, mass, t, slope, worth)
        if plan.widths.any():
            _add_smooth(counts.smooth, plan, X, y, label, mass, t)
        if plan.flips:
            tails.append(_add_flips(counts, plan, X, label, mass, t, slope))
    vector *= unit
    tail = _join(tails)
    return vector, tail._replace(mass=unit * tail.mass)


def _signals(plan: _Plan, models: slice, X: Any, y: FloatArray) -> FloatArray:
    """Return the margins or residuals of some models, shape (k, n)."""
    coef = plan.coef[models]
    t = np.ascontiguousarray((X @ coef.T).T) if sp.issparse(X) else coef @ X.T
    t += plan.intercept[models]
    if plan.problem.is_classification:
        t *= y
    else:
        t -= y
    return t


def _losses(
    plan: _Plan, t: FloatArray, mass: FloatArray | None, *, sloped: bool = True
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sums of the losses along each row of ``t``, all losses and, where ``sloped``, all slopes."""
    loss = plan.problem.loss
    if mass is None and isinstance(loss, Logistic):
        total, slope = _logistic(t, sloped=sloped)
        return total, slope, slope
    value, slope = loss.value_and_slope(t) if sloped else (loss.value(t), t)
    return _weigh(value, mass), value, slope


def _weigh(values: FloatArray, mass: FloatArray | None) -> FloatArray:
    """Return weighted sums over the rows of the data, shape (k,)."""
    return np.asarray(values.sum(axis=1) if mass is None else values @ mass, dtype=np.float64)


def _logistic(t: FloatArray, *, sloped: bool) -> tuple[FloatArray, FloatArray]:
    """Return the sums of logistic losses along each row of ``t`` and, if ``sloped``, all slopes; else overwrite ``t``.

    ``sum log(1 + e) = log prod(1 + e)``: the logarithm, the most expensive part, is computed once for sixteen factors,
    whose product does not overflow if ``t >= -43``. Below that the loss is linear up to rounding.
    """
    total, n = np.zeros(len(t)), t.shape[1] // 16 * 16
    if t.min(initial=0.0) < -43.0:
        beyond = np.minimum(t + 43.0, 0.0)
        total, t = -beyond.sum(axis=1), t - beyond
    factor = np.negative(t, out=None if sloped else t)
    np.exp(factor, out=factor)
    factor += 1.0
    total += np.log(np.multiply.reduce(factor[:, :n].reshape(len(t), 16, -1), axis=1)).sum(axis=1)
    total += np.log(factor[:, n:]).sum(axis=1)
    if sloped:
        np.divide(1.0, factor, out=factor)
        factor -= 1.0
    return total, factor


def _by_class(chunk: Chunk, has_classes: bool) -> Iterator[tuple[Any, FloatArray, float, FloatArray | None]]:
    """Yield features, targets, label (0 in regression) and weights of the rows of each class."""
    if not has_classes:
        yield chunk.X, chunk.y, 0.0, chunk.weights
        return
    for label in (-1.0, 1.0):
        rows = np.flatnonzero(chunk.y == label)
        if rows.size:
            yield chunk.X[rows], chunk.y[rows], label, None if chunk.weights is None else chunk.weights[rows]


def _add_dual(
    dual: FloatArray, plan: _Plan, X: Any, label: float, mass: FloatArray | None, t: FloatArray, slope: FloatArray,
    worth: FloatArray,
) -> None:  # fmt: skip
    """Add a block, separately by the sign of the slopes in the score; within a class all have the same sign.

    ``worth`` are the sums of the losses (k,) for a class, else the dual values (k, n) of all rows. Each sign is summed
    separately: one may have so little mass that a difference of sums would lose its digits.
    """
    weighted, powers = slope if mass is None else slope * mass, plan.problem.form.slope_powers(slope)
    if label:  # for powers only the linear part; else -L*(s) = L(t) - s t, by Fenchel's equality
        worth = worth - np.einsum("kn,kn->k", weighted, t) if powers is None else -weighted.sum(axis=1)
    for side in [int(label < 0.0)] if label else [0, 1]:
        own = True if label else (weighted > 0.0) == side
        part = weighted * own
        dual[:, side, _VALUE] += worth if label else _weigh(worth * own, mass)
        dual[:, side, _BALANCE] += np.abs(part).sum(axis=1)
        if powers is not None:
            dual[:, side, _SQUARE] += _weigh(powers * own, mass)
        dual[:, side, _MOMENT:] += (label or 1.0) * _moments(part, X)


def _add_smooth(
    dual: FloatArray, plan: _Plan, X: Any, y: FloatArray, label: float, mass: FloatArray | None, t: FloatArray
) -> None:
    """Add a block at slopes averaged over ``[t - width, t + width]``."""
    loss, width = plan.problem.loss, np.maximum(plan.widths, 1e-12)
    slope = np.clip((loss.value(t + width) - loss.value(t - width)) / (2.0 * width), *loss.slope_range)
    worth = -loss.conjugate(slope)
    worth = _weigh(worth + slope * t, mass) if label else worth - slope * y
    _add_dual(dual, plan, X, label, mass, t, slope, worth)


def _moments(weighted: FloatArray, X: Any) -> FloatArray:
    return np.asarray(X.T @ weighted.T).T if sp.issparse(X) else weighted @ X


def _add_flips(
    sums: _ReadSums, plan: _Plan, X: Any, label: float, mass: FloatArray | None, t: FloatArray, slope: FloatArray
) -> _Tail:
    """Add the changes by label flips of the few rows with Delta above kappa, and return these rows."""
    problem = plan.problem
    tail, row = _flip_tail(plan, 0, mass, t)
    flips = tail.delta > plan.multiplier[tail.model]
    model, row, w = tail.model[flips], row[flips], tail.mass[flips]
    if not model.size:
        return tail
    z = t[model, row]
    there, slope_there = problem.loss.value_and_slope(-z)
    here, slope_here = problem.loss.value(z), slope[model, row]
    side = int(label < 0.0)
    for number in np.unique(model):
        own = model == number
        features, weight = X[row[own]], w[own]
        for at, sign, worth, own_slope in (
            (side, -1.0, here[own] - slope_here[own] * z[own], slope_here[own]),
            (1 - side, 1.0, there[own] + slope_there[own] * z[own], slope_there[own]),
        ):
            change = sums.change[number, at]
            change[_VALUE] += sign * float(weight @ worth)
            change[_BALANCE] -= sign * float(weight @ own_slope)
            # The terms of the row before the flip are subtracted; its slope after the flip has the other sign.
            change[_MOMENT:] -= label * np.asarray(features.T @ (weight * own_slope)).ravel()
        sums.flipped[number] += float(weight.sum())
    return tail


def _flip_tail(plan: _Plan, first: int, mass: FloatArray | None, t: FloatArray) -> tuple[_Tail, npt.NDArray[np.intp]]:
    """Return the rows with Delta above kappa for the models from ``first`` on, and their row indices."""
    problem, gamma = plan.problem, plan.problem.geometry.label_cost
    kappa = plan.kappa[first : first + len(t)]
    # A gain is at most 2 Lip z, so only rows of larger margin can gain more than gamma * kappa.
    model, row = np.nonzero(t > (0.5 * gamma * kappa / problem.loss.lipschitz)[:, None])
    gain = np.asarray(problem.form.flip_gains(t[model, row]))
    keep = gain > gamma * kappa[model]
    model, row, gain = model[keep], row[keep], gain[keep]
    return _Tail(first + model, gain / gamma, np.ones(row.size) if mass is None else mass[row]), row


def _join(tails: Sequence[_Tail]) -> _Tail:
    if not tails:
        return _Tail(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
    return _Tail(*(np.concatenate(parts) for parts in zip(*tails, strict=True)))


def _cut(tail: _Tail, spendable: float) -> _Tail:
    """Drop rows that cannot flip: rows of larger ``Delta`` already have more mass than the largest radius can flip."""
    order = np.lexsort((-tail.delta, tail.model))
    model, mass = tail.model[order], tail.mass[order]
    before = np.cumsum(mass) - mass
    first = np.searchsorted(model, model)
    keep = order[before - before[first] <= spendable * (1.0 + 1e-9)]
    return _Tail(tail.model[keep], tail.delta[keep], tail.mass[keep])
