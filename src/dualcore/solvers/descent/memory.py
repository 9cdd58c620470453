"""The oracle of rows in memory, or mapped into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import DualPoint, RowBounds
from dualcore.data.arrays import FloatArray
from dualcore.data.threads import allowed_threads, one_blas_thread
from dualcore.problem import Data, Problem
from dualcore.solvers.constant import best_constant
from dualcore.solvers.descent.blocks import Operator, blocks_of
from dualcore.solvers.descent.oracle import Certified, ColumnScaling, Oracle, RowSample
from dualcore.solvers.descent.rowsums import Point, RowCurvatures, RowFunction, RowSums

T = TypeVar("T")


def target_spread(y: FloatArray, masses: FloatArray | None = None) -> float:
    """Return the mean distance of targets from their median; if all are equal, their absolute value; if zero, 1.

    Examples
    --------
    >>> target_spread(np.array([1.0, 2.0, 6.0])), target_spread(np.array([-3.0])), target_spread(np.zeros(2))
    (1.6666666666666667, 3.0, 1.0)
    """
    middle = float(np.median(y))
    return float(np.average(np.abs(y - middle), weights=masses)) or abs(middle) or 1.0


class MemoryOracle(Oracle):
    """Rows in memory or mapped into it."""

    def __init__(self, problem: Problem, data: Data) -> None:
        self.problem, self.data = problem, data
        self.n_rows, self.n_features = data.rows.n, data.rows.m
        self.masses = data.masses
        self.threads = allowed_threads()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._blocks = blocks_of(data.rows, self.threads)
        self.precise = not self._blocks.single
        self.columns = self._find_columns()
        self._signals: list[tuple[Point, FloatArray]] = []
        self._seen: tuple[float, list[tuple[Point, RowSums]]] = (0.0, [])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    # Products

    def map_blocks(self, function: Callable[[slice, Any], T]) -> list[T]:
        """Apply a function to every block. Results are in the order of blocks, so sums do not depend on timing."""
        spans = self._blocks.spans
        if self._pool is None or len(spans) < 2:
            with one_blas_thread() if len(spans) > 1 else nullcontext():
                return [function(part, self._blocks.take(k, part)) for k, part in enumerate(spans)]

        def work(worker: int) -> list[T]:
            mine = range(worker * len(spans) // self.threads, (worker + 1) * len(spans) // self.threads)
            return [function(spans[k], self._blocks.take(k, spans[k])) for k in mine]

        with one_blas_thread():  # the threads of the pool already use all cores
            parts = list(self._pool.map(work, range(self.threads)))
        return [each for part in parts for each in part]

    def operator(self) -> Operator:
        """Return the products in the current precision, which `refine` raises."""
        return Operator(self.columns, self._blocks, wide=self.precise)

    def signal(self, point: Point) -> FloatArray:
        """Return the margins or residuals of all rows."""
        known = self._known_signal(point)
        if known is None:
            scores = self.scores(point.coef)
            known = RowFunction(self.problem, 0.0).signal(scores + point.intercept, self.data.y)
            self._signals = [(point, known)]
        return known

    def _known_signal(self, point: Point) -> FloatArray | None:
        for each, t in self._signals:
            if each.coef is point.coef and each.intercept == point.intercept:
                return t
        return None

    def evaluate(self, points: Sequence[Point], width: float) -> list[RowSums]:
        known = [self._find(point, width) for point in points]
        if all(each is not None for each in known):
            return [each for each in known if each is not None]
        self.n_evaluations += 1
        operator, function = self.operator(), RowFunction(self.problem, width)
        coefs = [operator.narrow(point) for point in points]
        signals = [self._known_signal(point) for point in points]
        fresh = [t is None for t in signals]
        filled = [np.empty(self.n_rows) if t is None else t for t in signals]

        def work(part: slice, block: Any) -> list[RowSums]:
            block, y, masses = operator.centred(block), self.data.y[part], self.masses[part]
            out = []
            for point, coef, t, new in zip(points, coefs, filled, fresh, strict=True):
                if new:
                    scores = operator.dot(block, coef) if coef[0].any() else np.zeros(y.size)
                    t[part] = function.signal(scores + point.intercept, y)
                sums, slope = function.sums(t[part], y, masses, point.size)
                out.append(sums._replace(coef=operator.transpose_dot(block, slope)))
            return out

        parts = self.map_blocks(work)
        found = [RowSums.join(list(column)) for column in zip(*parts, strict=True)]
        found = [sums._replace(coef=operator.finish(sums.coef, sums.intercept)) for sums in found]
        self._signals = list(zip(points, filled, strict=True))
        self._seen = (width, list(zip(points, found, strict=True)))
        return found

    def _find(self, point: Point, width: float) -> RowSums | None:
        """Return the sums at a point if the last pass evaluated it, else None."""
        for each, sums in self._seen[1] if self._seen[0] == width else []:
            if each[1:] == point[1:] and (each.coef is point.coef or np.array_equal(each.coef, point.coef)):
                return sums
        return None

    def certify(self, point: Point, width: float) -> Certified:
        return self.certify_dual(point, RowFunction(self.problem, width).dual(self.signal(point), point.size))

    def certify_dual(self, point: Point, dual: DualPoint) -> Certified:
        """Return the risk of a model and the lower bound of a dual point, both in double precision."""
        coef, intercept = self.columns.model(point)
        t = RowFunction(self.problem, 0.0).signal(self.data.rows.dot(coef) + intercept, self.data.y)
        least = self.problem.form.minimise(t, self.data.weights, self.problem.size(coef))
        risk = least._replace(value=float(least.value + self.problem.penalty(coef)))
        bound = RowBounds(self.problem, self.data, risk.value).bound(dual, repair=False)
        return Certified(risk.value, bound.value, dual, point, bound.rounding, risk)

    def scores(self, coef: FloatArray) -> FloatArray:
        """Return the scores (n,) of all rows for coefficients of centred and scaled columns, without an intercept."""
        operator, out = self.operator(), np.empty(self.n_rows)
        narrow = operator.narrow(Point(coef, 0.0, 0.0))

        def work(part: slice, block: Any) -> None:
            out[part] = operator.dot(operator.centred(block), narrow)

        self.map_blocks(work)
        return out

    def moment(self, weights: FloatArray) -> FloatArray:
        """Return ``sum_i weights_i x_i`` (m,) over all rows, in centred and scaled columns."""
        operator = self.operator()
        parts = self.map_blocks(lambda part, block: operator.transpose_dot(operator.centred(block), weights[part]))
        return operator.finish(np.sum(parts, axis=0), float(weights.sum()))

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self._blocks.sparse

    def copy_rows(self, rows: np.ndarray) -> Any:
        """Return chosen rows for products by the current `operator`."""
        return self.operator().centred(self._blocks.rows(rows))

    def refine(self) -> bool:
        if self.precise:
            return False
        self.precise, self._signals, self._seen = True, [], (0.0, [])
        return True

    # Second derivatives and samples

    def curvature(self, point: Point, width: float) -> RowCurvatures:
        """Return the second derivatives of all rows."""
        return RowFunction(self.problem, width).curvature(self.signal(point), self.masses, point.size)

    def mean_curvature(self, point: Point, width: float) -> tuple[float, float]:
        found = self.curvature(point, width)
        mean = float(found.along.sum() + (found.flip * found.slope_change**2).sum())
        level = self.problem.geometry.label_cost**2 * float(found.flip.sum()) if found.flip.size else 0.0
        return (mean if mean > 0.0 else self._rough_curvature()), level

    def _rough_curvature(self) -> float:
        """Return the curvature of a loss whose slope crosses its range within four typical signals."""
        low, high = self.problem.loss.slope_range
        return (high - low) / (4.0 * self.typical_signal()) if np.isfinite(high - low) else 1.0

    def sample(self, point: Point, width: float, size: int, rng: np.random.Generator) -> RowSample:
        found = self.curvature(point, width)
        along = found.along
        if not along.any():  # all rows are on linear pieces now; after a step others will be near kinks
            along = self.masses * self._rough_curvature()
        rows, weights = _draw(along, size, rng)
        flips, flip_weights = _draw(found.flip * found.slope_change**2, size, rng)
        slope_change = found.slope_change[flips]
        sign = self.data.y[found.rows[flips]]
        level = np.append(np.zeros(rows.size), -sign * self.problem.geometry.label_cost / slope_change)
        taken = self._take(np.append(rows, found.rows[flips]))
        return RowSample(taken, np.append(weights, flip_weights), level)

    def _take(self, rows: np.ndarray) -> FloatArray:
        """Return rows in centred and scaled columns, as a dense array of shape (rows.size, m)."""
        order = np.argsort(rows, kind="stable")
        X = self._blocks.rows(rows[order])
        out = np.empty((rows.size, self.n_features), dtype=X.dtype)
        out[order] = X.toarray() if sp.issparse(X) else X
        out -= self.columns.centre.astype(out.dtype)
        out /= self.columns.scale.astype(out.dtype)
        return out

    def typical_signal(self) -> float:
        if self.problem.is_classification:
            return 1.0
        return target_spread(self.data.y, self.masses)

    def constant(self) -> float:
        return best_constant(self.problem.loss, self.data.y, self.masses) if self.problem.fit_intercept else 0.0

    def _find_columns(self) -> ColumnScaling:
        """Return the means of the columns, zero without an intercept, and their root mean squares about them."""
        centred = self.problem.fit_intercept
        if self._blocks.sparse:
            mean, square = self._blocks.moments(self.masses)
            centre = mean if centred else np.zeros_like(mean)
            spread = np.sqrt(np.maximum(square - centre * (2.0 * mean - centre), 0.0))
        else:
            centre, spread = self._moments(centred)
            square = centre**2 + spread**2
        if np.isfinite(square).all():  # cached for the certificate
            self.data.rows.keep_sizes(self.data.weights, np.sqrt(square))
        centre = self._blocks.round(centre)
        tiny = 64.0 * np.finfo(np.float64).eps * np.abs(centre)  # constant but for rounding
        return ColumnScaling(centre, np.where(spread > tiny, spread, 1.0))

    def _moments(self, centred: bool) -> tuple[FloatArray, FloatArray]:
        """Return means (m,), zero if not ``centred``, and root mean square distances from them, by two passes."""
        centre = np.zeros(self.n_features)
        if centred:
            parts = self.map_blocks(lambda part, block: self.masses[part] @ np.asarray(block, dtype=np.float64))
            centre = np.sum(parts, axis=0)

        def work(part: slice, block: Any) -> FloatArray:
            away = block - centre
            away *= away
            return np.asarray(self.masses[part] @ away)

        return centre, np.sqrt(np.sum(self.map_blocks(work), axis=0))


def _draw(weights: FloatArray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, FloatArray]:
    """Return rows drawn in proportion to their weights, and new weights with the same sum (systematic sampling)."""
    held = np.flatnonzero(weights > 0.0)
    if held.size <= size:
        return held, weights[held]
    total = np.cumsum(weights[held])
    places = (np.arange(size) + rng.random()) * (total[-1] / size)
    rows, counts = np.unique(np.searchsorted(total, places), return_counts=True)
    return held[rows], counts * (total[-1] / size)
