"""One read of the data: everything a round needs, as sums that merge.

A `Pass` says what to compute: at which model, with which cells and keys. `read` runs it on every chunk of a
source and merges the parts into a `Summary`: the exact risk, a lower bound on the optimum, the mean gradient,
and a keyed sample of every cell. Nothing in it grows with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.certificate import first_order_bound, squared_bound, trivial_bound
from dualcore.coreset import Anchor
from dualcore.forms import MarginForm, SquaredForm
from dualcore.geometry import FloatArray
from dualcore.keys import row_keys
from dualcore.losses import Logistic
from dualcore.problem import Problem
from dualcore.sources import Chunk, Source

__all__ = ["CellRule", "Pass", "Sample", "Summary", "read"]


class CellRule(NamedTuple):
    """Which cell a row belongs to: how sharply ``h`` bends near it, and how large ``h`` is there.

    Bend levels halve: level 0 holds the rows where ``h`` bends most (nearest to a kink, or of the largest
    curvature), the last level those where it is as good as linear. Loss layers double, against ``scale``: 0
    for ``h <= scale``, j for ``(2^{j-1}, 2^j] scale``.
    """

    scale: float
    width: float
    n_bends: int
    n_layers: int
    by_class: bool = False

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return self.n_bends * self.n_layers * (2 if self.by_class else 1)

    def assign(
        self, problem: Problem, multiplier: float, t: FloatArray, h: FloatArray, slope: FloatArray, y: FloatArray
    ) -> npt.NDArray[np.intp]:
        """Return the cell of each row."""
        cell = np.zeros(t.size, dtype=np.intp)
        if self.n_bends > 1:
            cell = np.clip(self._bend_level(problem, multiplier, t, slope), 0, self.n_bends - 1) * self.n_layers
        if self.n_layers > 1 and self.scale > 0.0:
            exponent = np.frexp(h / self.scale)[1]
            cell += np.clip(exponent, 0, self.n_layers - 1)
        if self.by_class:
            cell[y > 0.0] += self.n_bends * self.n_layers
        return cell

    def _bend_level(
        self, problem: Problem, multiplier: float, t: FloatArray, slope: FloatArray
    ) -> npt.NDArray[np.intp]:
        loss, gamma = problem.loss, problem.geometry.label_cost
        flips = problem.is_classification and np.isfinite(gamma) and problem.geometry.order == 1
        distance: FloatArray | None = None
        for kink in loss.kinks:
            here = np.abs(t - kink)
            distance = here if distance is None else np.minimum(distance, here)
        if flips and isinstance(problem.form, MarginForm):
            here = np.abs(problem.form.loss.flip_gain(t) - multiplier * gamma) / loss.lipschitz
            distance = here if distance is None else np.minimum(distance, here)
        level = np.full(t.size, self.n_bends, dtype=np.intp)
        if not loss.kinks:
            if isinstance(loss, Logistic):
                curvature = -slope * (1.0 + slope) if not flips else loss.curvature(t)
                curvature *= 4.0
            else:
                curvature = loss.curvature(t)
            level = -np.frexp(curvature)[1].astype(np.intp)
            level[curvature == 0.0] = self.n_bends
        if distance is not None:
            level = np.minimum(level, np.frexp(distance / self.width)[1])
        return level


class Pass(NamedTuple):
    """What a read computes.

    Attributes
    ----------
    problem, anchor
        Where ``h`` and its gradient are evaluated.
    cells : CellRule
    seed : int
        Of the row keys.
    keep : ndarray of shape (n_cells,)
        A row is kept if its key is below this; the row of smallest key in a cell always is.
    width : float
        Smoothing of the second dual candidate, for losses with kinks; 0 for none.
    origin : Anchor or None
        Where a line search starts; its risk and that at ``steps`` towards ``anchor`` are summed too.
    steps : tuple of float
    """

    problem: Problem
    anchor: Anchor
    cells: CellRule
    seed: int
    keep: FloatArray
    width: float = 0.0
    origin: Anchor | None = None
    steps: tuple[float, ...] = ()


class Sample(NamedTuple):
    """Rows that were kept, with what calibration needs of them."""

    rows: npt.NDArray[np.int64]
    keys: FloatArray
    cells: npt.NDArray[np.intp]
    X: Any
    y: FloatArray
    masses: FloatArray
    h: FloatArray
    slope: FloatArray
    flipped: npt.NDArray[np.bool_]

    def pick(self, chosen: npt.NDArray[np.intp]) -> Sample:
        """Return the chosen rows of the sample."""
        return Sample(
            self.rows[chosen], self.keys[chosen], self.cells[chosen], self.X[chosen], self.y[chosen],
            self.masses[chosen], self.h[chosen], self.slope[chosen], self.flipped[chosen],
        )  # fmt: skip


@dataclass
class Summary:
    """The merged result of a read; `merge` is associative, and commutative up to rounding at the last bit.

    Sums over chunks are kept in pairs (sum, error) so that the order of merging does not show.
    """

    n_rows: int
    totals: FloatArray  # (2, k) compensated: mass, loss, h, slope, flipped, then the risk sums of the line search
    gradient: FloatArray  # (2, m) compensated
    cell_mass: FloatArray  # (2, n_cells) compensated
    cell_count: npt.NDArray[np.int64]
    duals: list[FloatArray]  # each (2, 6 + 2 m) compensated, see `_dual_sums`
    tail: FloatArray  # (2, r): Delta and mass of the rows beyond kappa
    tails: list[FloatArray]  # the same for each step of the line search
    sample: Sample

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both parts together."""
        return Summary(
            self.n_rows + other.n_rows,
            _add(self.totals, other.totals),
            _add(self.gradient, other.gradient),
            _add(self.cell_mass, other.cell_mass),
            self.cell_count + other.cell_count,
            [_add(a, b) for a, b in zip(self.duals, other.duals, strict=True)],
            np.concatenate([self.tail, other.tail], axis=1),
            [np.concatenate([a, b], axis=1) for a, b in zip(self.tails, other.tails, strict=True)],
            _join(self.sample, other.sample),
        )


def _add(a: FloatArray, b: FloatArray) -> FloatArray:
    """Add two compensated sums (Knuth's two-sum on the heads, errors collected in the tails)."""
    total = a[0] + b[0]
    back = total - a[0]
    error = (a[0] - (total - back)) + (b[0] - back)
    return np.stack([total, a[1] + b[1] + error])


def _lift(values: FloatArray) -> FloatArray:
    return np.stack([values, np.zeros_like(values)])


def _join(a: Sample, b: Sample) -> Sample:
    X = sp.vstack([a.X, b.X], format="csr") if sp.issparse(a.X) else np.concatenate([a.X, b.X])
    return Sample(
        np.concatenate([a.rows, b.rows]),
        np.concatenate([a.keys, b.keys]),
        np.concatenate([a.cells, b.cells]),
        X,
        np.concatenate([a.y, b.y]),
        np.concatenate([a.masses, b.masses]),
        np.concatenate([a.h, b.h]),
        np.concatenate([a.slope, b.slope]),
        np.concatenate([a.flipped, b.flipped]),
    )


def read(source: Source, task: Pass) -> Reading:
    """Run ``task`` on every chunk of ``source``: one read."""
    merged: Summary | None = None
    waiting: list[Summary] = []
    for part in source.map(lambda chunk: _summarise(chunk, task, source)):
        waiting.append(part)
        if len(waiting) == 64:  # merge in batches: joining samples one by one would copy them over and over
            merged = _merge_all(waiting if merged is None else [merged, *waiting], task)
            waiting = []
    if waiting:
        merged = _merge_all(waiting if merged is None else [merged, *waiting], task)
    if merged is None:
        raise ValueError("The source has no rows.")
    return Reading(task, merged)


def _merge_all(parts: list[Summary], task: Pass) -> Summary:
    while len(parts) > 1:
        parts = [parts[i].merge(parts[i + 1]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return _trim(parts[0], task)


def _trim(summary: Summary, task: Pass) -> Summary:
    """Drop rows that were kept only as the smallest key of their cell in one part."""
    sample = summary.sample
    first = np.full(task.cells.n_cells, np.inf)
    np.minimum.at(first, sample.cells, sample.keys)
    wanted = (sample.keys < task.keep[sample.cells]) | (sample.keys <= first[sample.cells])
    if wanted.all():
        return summary
    chosen = np.flatnonzero(wanted)
    summary.sample = sample.pick(chosen)
    return summary


def _summarise(chunk: Chunk, task: Pass, source: Source) -> Summary:
    """Summarise one chunk. This is the hot path: one product with X, one with its transpose, O(rows) besides."""
    problem, anchor, form = task.problem, task.anchor, task.problem.form
    n, size = chunk.y.size, problem.size(anchor.coef)
    masses = np.full(n, 1.0 / source.n_rows) if chunk.weights is None else chunk.weights / source.total_weight
    sign = chunk.y if problem.is_classification else None
    score = chunk.X @ anchor.coef + anchor.intercept
    t = score * sign if sign is not None else score - chunk.y
    gamma = problem.geometry.label_cost

    flipped = np.zeros(n, dtype=bool)
    tail = np.empty((2, 0))
    if isinstance(form, SquaredForm):
        value = problem.loss.value(t)
        h, slope = form.h(t, anchor.multiplier, size), form.partials(t, anchor.multiplier, size).t
        if not np.isfinite(anchor.multiplier):
            h, slope = value, problem.loss.slope(t)
        flipped = slope > 0.0 if problem.is_classification else flipped
    else:
        value, slope = problem.loss.value_and_slope(t)
        h = value
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            gain = form.loss.flip_gain(t)
            flipped = gain > anchor.multiplier * gamma
            if flipped.any():
                h = value + np.maximum(gain - anchor.multiplier * gamma, 0.0)
                slope = slope.copy()
                slope[flipped] = -problem.loss.slope(-t[flipped])
            beyond = np.flatnonzero(gain > form.kappa(size) * gamma)
            tail = np.stack([gain[beyond] / gamma, masses[beyond]])

    pull = masses * slope
    if sign is not None:
        pull *= sign
    # Fenchel equality at an exact slope: -L*(s) = h - s t + q gamma lam, less s y for a residual.
    dual_value = h - slope * (t if sign is not None else score)
    if flipped.any() and problem.geometry.order == 1:
        dual_value = dual_value + np.where(flipped, anchor.multiplier * gamma, 0.0)
    if problem.geometry.order == 2:  # the squared losses need lin and quad apart, see `squared_bound`
        dual_value = -slope if sign is not None else -slope * chunk.y
    exact = _dual_sums(chunk.X, masses, pull, dual_value)
    exact[4:6] = _quadratic(masses, pull, slope) if problem.geometry.order == 2 else (masses @ flipped, 0.0)
    duals = [exact]
    if task.width > 0.0:
        duals.append(_smooth_dual(task, chunk, masses, t, sign))
    gradient = exact[6 : 6 + source.n_features] + exact[6 + source.n_features :]

    totals = [masses.sum(), masses @ value, masses @ h, pull.sum(), masses @ flipped]
    tails: list[FloatArray] = []
    if task.origin is not None:
        line, tails = _along(task, chunk, t, sign, masses)
        totals += line

    rows = np.arange(chunk.start, chunk.start + n)
    cells = task.cells.assign(problem, anchor.multiplier, t, h, slope, chunk.y)
    keys = row_keys(task.seed, rows)
    count = np.bincount(cells, minlength=task.cells.n_cells)
    if chunk.weights is None:
        mass = count / source.n_rows
    else:
        mass = np.bincount(cells, masses, task.cells.n_cells).astype(np.float64)
    chosen = np.flatnonzero(keys < task.keep[cells])
    missing = np.flatnonzero((count > 0) & (np.bincount(cells[chosen], minlength=task.cells.n_cells) == 0))
    if missing.size:  # every cell of a part sends at least the row of its smallest key
        extra = [int(members[np.argmin(keys[members])]) for members in (np.flatnonzero(cells == c) for c in missing)]
        chosen = np.sort(np.concatenate([chosen, extra]))
    sample = Sample(
        rows[chosen], keys[chosen], cells[chosen], chunk.X[chosen], chunk.y[chosen],
        masses[chosen], h[chosen], slope[chosen], flipped[chosen],
    )  # fmt: skip
    return Summary(
        n, _lift(np.array(totals)), _lift(gradient), _lift(mass), count,
        [_lift(dual) for dual in duals], tail, tails, sample,
    )  # fmt: skip


def _dual_sums(X: Any, masses: FloatArray, pull: FloatArray, value: FloatArray) -> FloatArray:
    """Return value (2), balance (2), room for two more, and moment (2 m) of a dual candidate.

    Each is apart by the side a row pulls to.
    """
    up = np.maximum(pull, 0.0)
    down = pull - up
    worth = masses * value
    on_up = float(worth @ (pull > 0.0))
    moments = np.asarray(X.T @ np.stack([down, up], axis=1))
    head = [float(worth.sum()) - on_up, on_up, -float(down.sum()), float(up.sum()), 0.0, 0.0]
    return np.concatenate([head, moments[:, 0], moments[:, 1]])


def _quadratic(masses: FloatArray, pull: FloatArray, slope: FloatArray) -> tuple[float, float]:
    squares = 0.25 * masses * slope * slope
    on_up = float(squares @ (pull > 0.0))
    return float(squares.sum()) - on_up, on_up


def _smooth_dual(task: Pass, chunk: Chunk, masses: FloatArray, t: FloatArray, sign: FloatArray | None) -> FloatArray:
    """Return the dual sums for slopes averaged over ``[t - width, t + width]``, without flips."""
    loss, width = task.problem.loss, task.width
    low, high = loss.slope_range
    slope = np.clip((loss.value(t + width) - loss.value(t - width)) / (2.0 * width), low, high)
    value = -loss.conjugate(slope)
    if sign is None:
        value = value - slope * chunk.y
    pull = masses * slope if sign is None else masses * slope * sign
    return _dual_sums(chunk.X, masses, pull, value)


def _along(
    task: Pass, chunk: Chunk, t: FloatArray, sign: FloatArray | None, masses: FloatArray
) -> tuple[list[float], list[FloatArray]]:
    """Return the mean loss, and the flip tail, at each step of the line search from ``origin`` to ``anchor``."""
    problem, origin = task.problem, task.origin
    if origin is None:
        return [], []
    start = chunk.X @ origin.coef + origin.intercept
    start = start * sign if sign is not None else start - chunk.y
    gamma, form = problem.geometry.label_cost, problem.form
    sums, tails = [], []
    for step in task.steps:
        at = start + step * (t - start)
        sums.append(float(masses @ problem.loss.value(at)))
        if isinstance(form, MarginForm) and np.isfinite(gamma):
            coef = origin.coef + step * (task.anchor.coef - origin.coef)
            gain = form.loss.flip_gain(at) / gamma
            beyond = np.flatnonzero(gain > form.kappa(problem.size(coef)))
            tails.append(np.stack([gain[beyond], masses[beyond]]))
    return sums, tails


class Reading:
    """A finished read, with its answers."""

    def __init__(self, task: Pass, summary: Summary) -> None:
        self.task, self.summary = task, summary
        self.problem, self.anchor = task.problem, task.anchor
        self.mass, self.mean_loss, self.mean_h, self.slope, self.flipped, *self._line = summary.totals.sum(axis=0)
        self.gradient = summary.gradient.sum(axis=0)
        self.cell_mass = summary.cell_mass.sum(axis=0)
        self.cell_count = summary.cell_count
        self.sample = summary.sample
        self.risk, self.multiplier = self._risk(self.anchor.coef, float(self.mean_loss), summary.tail)
        if isinstance(self.problem.form, SquaredForm) and np.isfinite(self.anchor.multiplier):
            # Any multiplier bounds the risk from above; with flips of order 2 this is all that sums can tell.
            bound = (
                self.problem.price * self.anchor.multiplier
                + float(self.mean_h)
                + self.problem.penalty(self.anchor.coef)
            )
            if self.flipped:
                self.risk, self.multiplier = bound, self.anchor.multiplier

    def _risk(self, coef: FloatArray, mean_loss: float, tail: FloatArray) -> tuple[float, float]:
        """Return the exact risk, ridge included, and the multiplier, from the mean loss and the flip tail."""
        problem, form, size = self.problem, self.problem.form, self.problem.size(coef)
        if isinstance(form, MarginForm):
            value, multiplier = form.minimise_sums(mean_loss, tail[0], tail[1], size)
        elif isinstance(form, SquaredForm):
            value, multiplier = form.minimise_mean(mean_loss, size)
        else:
            multiplier = form.kappa(size)
            value = problem.radius * multiplier + mean_loss
        return float(value + problem.penalty(coef)), float(multiplier)

    def line(self) -> list[tuple[float, float]]:
        """Return ``(step, risk)`` along the line search, exact on the full data."""
        origin = self.task.origin
        if origin is None:
            return []
        tails = self.summary.tails or [np.empty((2, 0))] * len(self.task.steps)
        return [
            (step, self._risk(origin.coef + step * (self.anchor.coef - origin.coef), float(loss), tail)[0])
            for step, loss, tail in zip(self.task.steps, self._line, tails, strict=True)
        ]

    def lower_bound(self, upper: float) -> float:
        """Return a lower bound on the optimal risk of the full data, from sums alone.

        ``upper`` is the risk of any model; it bounds the optimal multiplier, and so prices what is infeasible.
        """
        best = trivial_bound(self.problem)
        for dual in self.summary.duals:
            best = max(best, self._bound(dual.sum(axis=0), upper))
        return best

    def _bound(self, sums: FloatArray, upper: float) -> float:
        problem, m = self.problem, self.anchor.coef.size
        value, balance, extra = sums[:2], sums[2:4], sums[4:6]
        moment = np.stack([sums[6 : 6 + m], sums[6 + m :]])
        scale = np.ones(2)
        if problem.fit_intercept and balance[0] != balance[1]:
            side = int(balance[1] > balance[0])
            scale[side] = balance[1 - side] / balance[side]
        if problem.geometry.order == 2:
            if self.flipped:  # sums do not bound the transport of flipped rows of order 2
                return 0.0
            return squared_bound(problem, float(scale @ value), float(scale**2 @ extra), scale @ moment, upper)
        # Scaling a slope by f <= 1 keeps at least the share f of -L*(s): it is concave, and -L*(0) = min L >= 0.
        total = float(scale @ value)
        return first_order_bound(problem, lambda f: f * total, scale @ moment, float(extra[0]), upper)
