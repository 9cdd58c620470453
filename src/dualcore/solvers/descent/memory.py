"""The oracle of rows in memory, or mapped into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

from dualcore.certificates import lower_bound
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import DenseRows, Rows, SparseRows
from dualcore.data.threads import allowed_threads, one_blas_thread
from dualcore.problem import Data, Problem
from dualcore.solvers.descent.blocks import BLOCK_NUMBERS, Operator, blocks_of
from dualcore.solvers.descent.oracle import Certified, Columns, Oracle, RowSample
from dualcore.solvers.descent.polish import free_features, polish
from dualcore.solvers.descent.rowsums import Curvature, Point, RowFunction, RowSums, SmoothedLoss

__all__ = ["MemoryOracle"]

T = TypeVar("T")

# Numbers that the centre and the scale of many dense rows are taken from.
_SAMPLE_NUMBERS = 6291456


class MemoryOracle(Oracle):
    """Rows in memory or mapped into it.

    Parameters
    ----------
    problem : Problem
    data : Data
    columns : Columns, optional
        Those of a larger data set that these rows are part of.
    """

    def __init__(self, problem: Problem, data: Data, columns: Columns | None = None) -> None:
        self.problem, self.data = problem, data
        self.n_rows, self.n_features = data.rows.n, data.rows.m
        self.masses = data.masses
        self.threads = allowed_threads()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._blocks = blocks_of(data.rows, self.threads)
        self.precise = not self._blocks.single
        self.columns = self._find_columns() if columns is None else columns
        self.free = free_features(problem, self.n_features)
        self._free: FloatArray | None = None
        self._last: tuple[Point, FloatArray] | None = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    # Products

    def map_blocks(self, function: Callable[[slice, Any], T]) -> list[T]:
        """Apply a function to every block; each thread takes consecutive blocks, so sums do not depend on timing."""
        spans = self._blocks.spans
        if self._pool is None or len(spans) < 2:
            with one_blas_thread() if len(spans) > 1 else nullcontext():
                return [function(part, self._blocks.take(k, part)) for k, part in enumerate(spans)]

        def work(worker: int) -> list[T]:
            mine = range(worker * len(spans) // self.threads, (worker + 1) * len(spans) // self.threads)
            return [function(spans[k], self._blocks.take(k, spans[k])) for k in mine]

        with one_blas_thread():  # our threads already fill the cores
            parts = list(self._pool.map(work, range(self.threads)))
        return [each for part in parts for each in part]

    def operator(self) -> Operator:
        """Return the products in the precision that is asked for now."""
        return Operator(self.columns, self._blocks, wide=self.precise)

    def signal(self, point: Point) -> FloatArray:
        """Return the margins or residuals of all rows."""
        if self._last is not None and self._last[0] is point:
            return self._last[1]
        operator, function = self.operator(), RowFunction(self.problem, 0.0)
        coef = operator.narrow(point)
        t = np.empty(self.n_rows)

        def work(part: slice, block: Any) -> None:
            scores = operator.dot(operator.centred(block), coef) + point.intercept
            t[part] = function.signal(scores, self.data.y[part])

        self.map_blocks(work)
        self._last = (point, t)
        return t

    def evaluate(self, points: Sequence[Point], width: float) -> list[RowSums]:
        self.n_evaluations += 1
        operator, function = self.operator(), RowFunction(self.problem, width)
        coefs = [operator.narrow(point) for point in points]
        signals = [np.empty(self.n_rows) for _ in points]

        def work(part: slice, block: Any) -> list[RowSums]:
            block, y, masses = operator.centred(block), self.data.y[part], self.masses[part]
            out = []
            for point, coef, t in zip(points, coefs, signals, strict=True):
                t[part] = function.signal(operator.dot(block, coef) + point.intercept, y)
                sums, slope = function.sums(block, t[part], y, masses, point.size)
                out.append(sums._replace(coef=operator.transpose_dot(block, slope)))
            return out

        parts = self.map_blocks(work)
        found = [RowSums.join(list(column)) for column in zip(*parts, strict=True)]
        self._last = (points[-1], signals[-1])
        return [sums._replace(coef=operator.finish(sums.coef, sums.intercept)) for sums in found]

    def certify(self, point: Point, width: float) -> Certified:
        function = RowFunction(self.problem, width)
        # The products of the bound are the engine's own: in single precision where the data are.
        data = self.data._replace(rows=_FastRows(self, self.data.rows))
        given, given_t = point, self.signal(point)
        point, t = polish(self, function, point)
        coef, _ = self.columns.model(point)
        value, _ = self.problem.form.minimise(t, self.data.weights, self.problem.size(coef))
        upper = float(value + self.problem.penalty(coef))
        dual = function.dual(t, point.size)
        lower = lower_bound(self.problem, data, dual, upper, repair=False)
        if function.flips:  # polishing spends the budget of flips exactly, but may lengthen the moment
            other = function.dual(given_t, given.size)
            bound = lower_bound(self.problem, data, other, upper, repair=False)
            dual, lower = (other, bound) if bound > lower else (dual, lower)
        return Certified(upper, lower, dual, point)

    def refine(self) -> bool:
        if self.precise:
            return False
        self.precise, self._last = True, None
        return True

    def free_columns(self) -> FloatArray:
        """Return the columns that no price and no ridge holds, as far as they are few, shape (n, f)."""
        if self._free is None:
            out = np.empty((self.n_rows, self.free.size))
            centre, scale = self.columns.centre[self.free], self.columns.scale[self.free]
            if self.free.size:

                def work(part: slice, block: Any) -> None:
                    X = block[:, self.free]
                    out[part] = ((X.toarray() if sp.issparse(X) else X) - centre) / scale

                self.map_blocks(work)
            self._free = out
        return self._free

    # Looks at rows

    def curvature(self, point: Point, width: float) -> Curvature:
        """Return the second derivatives of all rows."""
        return RowFunction(self.problem, width).curvature(self.signal(point), self.masses, point.size)

    def mean_curvature(self, point: Point, width: float) -> tuple[float, float]:
        found = self.curvature(point, width)
        mean = float(found.along.sum() + (found.flip * found.steepness**2).sum())
        level = self.problem.geometry.label_cost**2 * float(found.flip.sum()) if found.flip.size else 0.0
        return (mean if mean > 0.0 else self._rough_curvature()), level

    def _rough_curvature(self) -> float:
        """Return the curvature of a loss whose slope goes from end to end within a few typical signals."""
        low, high = self.problem.loss.slope_range
        return (high - low) / (4.0 * self.typical_signal()) if np.isfinite(high - low) else 1.0

    def sample(self, point: Point, width: float, size: int, rng: np.random.Generator) -> RowSample:
        found = self.curvature(point, width)
        along = found.along
        if not along.any():  # all rows on linear pieces: they will not stay there
            along = self.masses * self._rough_curvature()
        rows, weights = _draw(along, size, rng)
        flips, flip_weights = _draw(found.flip * found.steepness**2, size, rng)
        steepness = found.steepness[flips]
        sign = self.data.y[found.rows[flips]]
        level = np.append(np.zeros(rows.size), -sign * self.problem.geometry.label_cost / steepness)
        taken = self._take(np.append(rows, found.rows[flips]))
        return RowSample(taken, np.append(weights, flip_weights), level)

    def _take(self, rows: np.ndarray) -> FloatArray:
        """Return rows in the engine's coordinates, written out."""
        order = np.argsort(rows, kind="stable")
        X = self._blocks.rows(rows[order])
        out = np.empty((rows.size, self.n_features), dtype=X.dtype)
        out[order] = X.toarray() if sp.issparse(X) else X
        out -= self.columns.centre.astype(out.dtype)
        out /= self.columns.scale.astype(out.dtype)
        return out

    def part(self, size: int, rng: np.random.Generator) -> MemoryOracle | None:
        held = np.flatnonzero(self.masses)
        chosen = np.sort(rng.permutation(held)[:size])
        y, masses = self.data.y[chosen], self.masses[chosen]
        if self.problem.is_classification and np.unique(y).size < 2:
            return None
        X = self._blocks.rows(chosen)
        rows: Rows = SparseRows(X) if sp.issparse(X) else DenseRows(X)
        return MemoryOracle(self.problem, Data(rows, y, masses / masses.sum()), self.columns)

    def typical_signal(self) -> float:
        if self.problem.is_classification:
            return 1.0
        y = self.data.y
        middle = float(np.median(y))
        return max(float(np.average(np.abs(y - middle), weights=self.masses)), 1e-300)

    def constant(self, width: float) -> float:
        if not self.problem.fit_intercept:
            return 0.0
        loss, y, masses = SmoothedLoss(self.problem.loss, width), self.data.y, self.masses
        if self.problem.is_classification:
            shares = np.array([masses[y < 0.0].sum(), masses[y > 0.0].sum()])
            signs = np.array([-1.0, 1.0])

            def slope(intercept: float) -> float:
                return float((shares * signs) @ loss.value_and_slope(signs * intercept)[1])

            middle, reach = 0.0, 1.0
        else:

            def slope(intercept: float) -> float:
                return float(masses @ loss.value_and_slope(intercept - y)[1])

            middle, reach = float(masses @ y), self.typical_signal()
        low, high = middle - reach, middle + reach
        for _ in range(60):
            if slope(low) <= 0.0 <= slope(high):
                return float(brentq(slope, low, high, xtol=1e-14 * reach))
            low, high = middle - 2.0 * (middle - low), middle + 2.0 * (high - middle)
        return middle

    def with_problem(self, problem: Problem) -> MemoryOracle:
        return MemoryOracle(problem, self.data, self.columns)

    def _find_columns(self) -> Columns:
        m = self.n_features
        centred = self.problem.fit_intercept
        if self._blocks.sparse:
            mean, square = self._blocks.moments(self.masses)
            centre = mean if centred else np.zeros(m)
            spread = np.sqrt(np.maximum(square - centre * (2.0 * mean - centre), 0.0))
        else:
            few = max(_SAMPLE_NUMBERS // m, 256)
            spread = np.zeros(m)
            if self.n_rows > 2 * few:
                held = np.flatnonzero(self.masses)
                held = np.sort(np.random.default_rng(0).permutation(held)[:few])
                centre, spread = _weighted_moments(self._blocks.rows(held), self.masses[held], centred)
            if not (spread > 0.0).all():  # few rows, or a column whose values are rare: look at every row
                centre, spread = self._moments(centred)
        centre = self._blocks.round(centre)
        tiny = 64.0 * np.finfo(np.float64).eps * np.abs(centre)  # constant but for rounding
        return Columns(centre, np.where(spread > tiny, spread, 1.0))

    def _moments(self, centred: bool) -> tuple[FloatArray, FloatArray]:
        """Return mean (zero where nothing is centred) and root mean square distance from it, over all rows."""
        centre = np.zeros(self.n_features)
        if centred:
            parts = self.map_blocks(lambda part, block: self.masses[part] @ np.asarray(block, dtype=np.float64))
            centre = np.sum(parts, axis=0)

        def work(part: slice, block: Any) -> FloatArray:
            away = block - centre
            return np.asarray(self.masses[part] @ (away * away))

        return centre, np.sqrt(np.sum(self.map_blocks(work), axis=0))


def _weighted_moments(X: Any, masses: FloatArray, centred: bool) -> tuple[FloatArray, FloatArray]:
    """Return weighted mean (zero where nothing is centred) and root mean square distance from it, by blocks."""
    weights = masses / masses.sum()
    centre, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    step = max(1, BLOCK_NUMBERS // X.shape[1])
    for first in range(0, X.shape[0] if centred else 0, step):
        centre += weights[first : first + step] @ np.asarray(X[first : first + step], dtype=np.float64)
    for first in range(0, X.shape[0], step):
        away = X[first : first + step] - centre
        square += weights[first : first + step] @ (away * away)
    return centre, np.sqrt(square)


def _draw(weights: FloatArray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, FloatArray]:
    """Return rows in proportion to their weights, and the weights that make their sum stand for all."""
    held = np.flatnonzero(weights > 0.0)
    if held.size <= size:
        return held, weights[held]
    total = np.cumsum(weights[held])
    places = (np.arange(size) + rng.random()) * (total[-1] / size)
    rows, counts = np.unique(np.searchsorted(total, places), return_counts=True)
    return held[rows], counts * (total[-1] / size)


class _FastRows(Rows):
    """The rows of an oracle with its products, for the certificate: the moment is all that it asks for."""

    def __init__(self, oracle: MemoryOracle, rows: Rows) -> None:
        self._oracle, self._given = oracle, rows
        self.n, self.m = rows.n, rows.m

    def block(self, part: slice) -> Any:
        return self._given.block(part)

    def take(self, indices: Any) -> Any:
        return self._given.take(indices)

    def column_sizes(self, weights: FloatArray | None) -> FloatArray:
        return self._given.column_sizes(weights)

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        oracle = self._oracle
        operator = oracle.operator()

        def work(part: slice, block: Any) -> tuple[FloatArray, float]:
            return operator.transpose_dot(operator.centred(block), vector[part]), float(vector[part].sum())

        parts = oracle.map_blocks(work)
        moment, total = np.sum([part[0] for part in parts], axis=0), sum(part[1] for part in parts)
        if operator.explicit:
            moment = moment + total * oracle.columns.centre
        return np.asarray(moment)
