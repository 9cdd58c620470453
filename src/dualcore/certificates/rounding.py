"""What rounding can do to a lower bound: errors of sums, and the largest models that have to be considered.

A bound is ``C + min over models of (v . theta + delta b + ...)`` with sums ``C``, ``v`` and ``delta`` over the rows.
Each sum is known up to rounding only. An error of ``C`` is subtracted as it is. An error of ``v`` or ``delta`` counts
times the coefficients and the intercept of the best model, so it takes a bound on these: every model that matters has
a risk of at most ``upper``, and that holds

* the coefficients by the norm, ``Lip sigma ||theta||_* <= upper``, where the adversary can move the features,
* by the ridge, ``rho / 2 ||theta||_2^2 <= upper``,
* and neither for the others, the *free* directions: the intercept, and at radius 0 (or at an infinite price) without a
  ridge the coefficients themselves. There the rows do: the loss bounds ``sum_i w_i D_i |theta . x_i + b|``, so
  ``e . theta`` is at most ``max_i |x_i . c|`` times that, where ``c`` solves ``(sum_i w_i D_i x_i x_i') c = e``.
  Where this matrix is singular up to rounding no bound is known, and the certificate is withheld.

The error of a sum of ``n`` products is taken as ``(8 + 4 sqrt(n)) eps`` times the sum of their sizes. That is the usual
probabilistic bound; the worst case, ``n eps``, is never approached by errors that are not aligned. Where that matters
small data are summed in extended precision, if the machine has it; what is left then is the rounding of the masses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.certificates.dependence import drop_dependent, with_ones
from dualcore.certificates.points import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem

EPS = float(np.finfo(np.float64).eps) / 2.0
_LONG_EPS = float(np.finfo(np.longdouble).eps) / 2.0
# With more free features no bound is computed: the matrix of their rows would be too expensive.
_MOST_FREE = 2000
# Products that a smaller allowance is worth: a second or so.
_MOST_WORK = 1e9
# Columns whose least singular value is below this share of their length count as dependent up to rounding.
_DEPENDENT = 1e-12
# The same for solvers: below this share they cannot separate the columns, and certificates may stay loose for it.
_NEARLY = 1e-8

BoolArray = npt.NDArray[np.bool_]


def sum_error(n: int) -> float:
    """Return the relative error granted to a sum of ``n`` products."""
    return (8.0 + 4.0 * float(np.sqrt(n))) * EPS


def free_features(problem: Problem, n_features: int) -> BoolArray:
    """Return which coefficients neither the norm nor the ridge holds, shape (n_features,)."""
    if problem.ridge > 0.0:
        return np.zeros(n_features, dtype=bool)
    if problem.radius == 0.0:
        return np.ones(n_features, dtype=bool)
    prices = problem.geometry.norm.weights
    return np.zeros(n_features, dtype=bool) if prices is None else np.isinf(prices)


class Moment(NamedTuple):
    """``v = sum_i w_i s_i y_i x_i`` and ``delta = sum_i w_i s_i y_i``, each with the error granted to it."""

    value: FloatArray
    level: float
    error: FloatArray
    intercept_error: float


class SlopeNorms(NamedTuple):
    """Of the slopes of a dual point: their mean size, its root mean square, the flipped mass and what it adds.

    ``flip_root`` is the root of ``sum_i w_i q_i s'_i^2``, for order 2.
    """

    mean: float
    root: float
    flipped: float = 0.0
    flip_root: float = 0.0


class LevelSet:
    """The models of risk at most ``upper``: how large ``v . theta + delta b`` can be on it, from sums over the rows.

    Parameters
    ----------
    problem : Problem
        On unbounded features.
    upper : float
        The risk of any model.
    sizes : ndarray of shape (n_features,)
        Root mean square of every column.
    n_rows : int
    target_size : float
        At least the mean of ``|y|``; not used in classification.
    """

    def __init__(
        self, problem: Problem, upper: float, sizes: FloatArray, n_rows: int, *, target_size: float = 0.0
    ) -> None:
        self.problem, self.upper, self.sizes = problem, max(float(upper), 0.0), sizes
        self.target_size = target_size
        self.free = free_features(problem, sizes.size)
        self.error = sum_error(n_rows)
        if problem.radius == 0.0:
            self.limit = np.inf
        else:
            root = self.upper ** (1.0 / problem.geometry.order)
            self.limit = root / (problem.loss.root_lipschitz * problem.radius)

    def held(self, sizes: FloatArray) -> float:
        """Return the most that ``sum_j sizes_j |theta_j|`` can be, free features left out."""
        problem, norm = self.problem, self.problem.geometry.norm
        sizes = np.where(self.free, 0.0, np.abs(sizes))
        if not sizes.any() or self.upper == 0.0:
            return 0.0
        by_ridge = np.inf
        ridge = np.sqrt(2.0 * self.upper / problem.ridge) if problem.ridge > 0.0 else np.inf
        if problem.ridge > 0.0:
            by_ridge = ridge * float(np.linalg.norm(sizes))
        if problem.radius == 0.0:
            return by_ridge
        immovable = np.zeros(sizes.size, dtype=bool) if norm.weights is None else np.isinf(norm.weights)
        by_norm = self.limit * norm.value(np.where(immovable, 0.0, sizes))
        if immovable.any() and sizes[immovable].any():
            by_norm += ridge * float(np.linalg.norm(sizes[immovable]))
        return float(min(by_ridge, by_norm))

    def risk_error(self, coef: FloatArray, intercept: float) -> float:
        """Return the error granted to the risk of a model: that of its scores, and that of their sum."""
        scores = sum_error(coef.size) * (float(np.abs(coef) @ self.sizes) + abs(intercept))
        if not self.problem.is_classification:
            scores += EPS * self.target_size
        return self.problem.loss.largest_rise(self.upper, scores) + self.error * self.upper

    def _leverage(self, root: float, free: BoolArray) -> float:
        """Return the most that ``sum_i w_i D_i |x_i . theta|`` can be over the features that are not free.

        ``root`` is the root mean square of ``D``.
        """
        sizes = root * np.where(free, 0.0, self.sizes)
        # By Cauchy sum w D |x_j| is at most this; and so is the mean Euclidean norm of the rows its length. The largest
        # entry of a row has no such bound by columns, but it is at most the Euclidean norm.
        return self.held(sizes * np.sqrt(sizes.size) if self.problem.geometry.norm.name == "linf" else sizes)

    def _scores(self, slopes: SlopeNorms, moment: FloatArray) -> float:
        """Return the most that ``sum_i w_i D_i |theta . x_i + b|`` can be on the level set, less the price itself."""
        problem, loss, upper = self.problem, self.problem.loss, self.upper
        if not problem.is_classification:
            return loss.largest_size(upper) + self.target_size
        held = self.held(moment)
        if not loss.is_lipschitz:
            # z_- <= [1 - z]_+ and z_+ <= [1 + z]_+; the flipped mass earns at most upper, and pays at most upper.
            return float(2.0 * np.sqrt(upper) * (slopes.root + np.sqrt(2.0) * slopes.flip_root) + held)
        slope = 0.5 * loss.lipschitz
        extra = max(float(loss.conjugate(np.array([-slope]))[0]), 0.0)
        down, up = (upper + extra) / slope, 0.0
        if slopes.flipped > 0.0:
            spent = problem.geometry.label_cost * slopes.flipped
            up = (upper * (1.0 + spent / problem.radius) + extra) / slope
        return loss.lipschitz * (3.0 * down + 2.0 * up) + held

    def sum_price(self, slopes: SlopeNorms, moment: FloatArray) -> float:
        """Return what to subtract for the rounding of a moment and of balanced slopes that are known as sums only.

        Infinite where features are free.
        """
        if self.free.any():
            return np.inf
        price = self.held(self.error * slopes.root * self.sizes)
        if self.problem.fit_intercept and slopes.root > 0.0:
            mean = slopes.mean if self.problem.is_classification else 1.0
            share = self.error * slopes.root / mean if mean > 0.0 else np.inf
            if not share < 0.5:
                return np.inf
            price += share / (1.0 - share) * (self._scores(slopes, moment) + self._leverage(slopes.root, self.free))
        return float(price)


class RowLevelSet(LevelSet):
    """A level set on data whose rows are at hand: they bound free directions too, and small data are summed precisely.

    Where rows are sums over those of other data, ``whole`` is the level set of these. Their rounding is granted too.
    """

    def __init__(self, problem: Problem, data: Data, upper: float, whole: LevelSet | None = None) -> None:
        self.data, self.masses = data, data.masses
        targets = 0.0 if problem.is_classification else float(self.masses @ np.abs(data.y))
        sizes = column_sizes(data) if whole is None else whole.sizes
        super().__init__(problem, upper, sizes, data.rows.n, target_size=targets)
        self.is_sum = whole is not None
        if whole is not None:
            self.error += whole.error
        self.precise = False
        self.withheld = False

    def refine(self) -> bool:
        """Sum in extended precision from now on; False where that is so already, or does not help."""
        data = self.data
        if (
            self.precise
            or self.is_sum
            or not data.rows.in_memory
            # Data of at most this many numbers are summed in extended precision.
            or data.rows.n * data.rows.m > 2_000_000
            or _LONG_EPS >= EPS
        ):
            return False
        # Equal masses are all rounded alike, which changes the risk by a factor only.
        self.precise = True
        self.error = sum_error(data.rows.n) * _LONG_EPS / EPS + (0.0 if data.weights is None else 2.0 * EPS)
        return True

    def is_small(self, price: float) -> bool:
        """Whether an allowance does not matter beside the risk."""
        # An allowance below this share of the risk is good enough as it is.
        return price <= 1e-9 * self.upper

    def moment(self, point: DualPoint, signs: FloatArray | float) -> Moment:
        """Return the gradient of the linear part, and the errors granted to it."""
        slope, size = point.slope, point.absolute_slope
        if not self.precise:
            signed = self.masses * slope * signs
            scale = self.error * self._root(size)
            return Moment(self.data.rows.transpose_dot(signed), float(signed.sum()), scale * self.sizes, scale)
        masses = self.masses.astype(np.longdouble)
        weighted, sizes = masses * slope * signs, masses * size
        value, total = np.zeros((2, self.data.rows.m), dtype=np.longdouble)
        for part, block in self.data.rows.dense_blocks():
            long = block.astype(np.longdouble)
            value += weighted[part] @ long
            total += sizes[part] @ np.abs(long)
        error = self.error * total.astype(np.float64)
        return Moment(value.astype(np.float64), float(weighted.sum()), error, self.error * float(sizes.sum()))

    def total(self, terms: FloatArray) -> float:
        """Return ``sum_i w_i terms_i``."""
        return float((self.masses * np.longdouble(1.0)) @ terms) if self.precise else float(self.masses @ terms)

    def price(self, point: DualPoint, moment: Moment) -> float:
        """Return what to subtract for rounding, and for free directions in which the moment does not vanish.

        Infinite where it is not known. ``withheld`` says that it cannot be: columns are dependent up to rounding. The
        entries of the moment of features that are not free count only through their error.
        """
        price = self.free_price(point, moment, self.free) + self.held(moment.error)
        rows = self.data.rows
        cheap = rows.m <= _MOST_FREE and float(rows.n) * rows.m**2 <= _MOST_WORK
        if cheap and not self.is_small(price) and not self.free.all():
            # Rows may bound the coefficients better than a small radius, or a small ridge.
            price = min(price, self.free_price(point, moment, np.ones_like(self.free)))
        return price

    def _root(self, slope: FloatArray) -> float:
        return float(np.sqrt(self.masses @ (slope * slope)))

    def free_price(self, point: DualPoint, moment: Moment, features: BoolArray) -> float:
        """Return the most that ``e . theta + delta b`` can be below zero, over some features and the intercept.

        ``e`` is the moment of the features that are free, and its error at the others, whose moment is paid for by the
        norm or the ridge. The moment and ``delta`` are known up to their error.
        """
        columns, with_intercept = np.flatnonzero(features), self.problem.fit_intercept
        if not columns.size and not with_intercept:
            return 0.0
        weight = point.absolute_slope if self.problem.is_classification else np.ones_like(point.stay)
        if not point.absolute_slope.any():
            return 0.0
        error = np.append(moment.error[columns], [moment.intercept_error] * with_intercept)
        excess = np.append(np.where(self.free, moment.value, 0.0)[columns], [moment.level] * with_intercept)
        share = np.inf
        # Slopes below the first of these shares of the largest are left out, then below the second: small slopes bound
        # the scores weakly.
        for least in (1e-2, 1e-5, 0.0) if columns.size and self.problem.is_classification else (0.0,):
            used = np.where(weight >= least * weight.max(), weight, 0.0)
            share = min(share, self._largest_share(used * self.masses, columns, excess, error))
        if not share < 0.5:
            return np.inf
        # Scores, and what the features left out add to them.
        most = float(
            self._scores(self._slope_norms(point), moment.value) + self._leverage(self._root(weight), features)
        )
        if self.problem.is_classification:  # the bound on the scores has the price itself on its right-hand side
            most /= 1.0 - share
        return share * most

    def _slope_norms(self, point: DualPoint) -> SlopeNorms:
        w, size = self.masses, point.absolute_slope
        flipped, flip_root = 0.0, 0.0
        if point.share is not None and point.flip is not None:
            flipped = float(w @ point.share)
            steep = np.divide(point.flip**2, point.share, out=np.zeros_like(point.flip), where=point.share > 0.0)
            flip_root = float(np.sqrt(w @ steep))
        return SlopeNorms(float(w @ size), self._root(size), flipped, flip_root)

    def _largest_share(
        self, weights: FloatArray, columns: npt.NDArray[np.intp], excess: FloatArray, error: FloatArray
    ) -> float:
        """Return ``max_i |x_i . c|`` where ``(sum_i weights_i x_i x_i') c = e``, for the worst ``e`` within ``error``.

        ``x_i`` are the free columns of a row, and 1 for an intercept.
        """
        with_intercept = self.problem.fit_intercept
        if not columns.size:
            return float((np.abs(excess[0]) + error[0]) / max(float(weights.sum()), 1e-300))
        if columns.size > _MOST_FREE or not self.data.rows.in_memory:
            return np.inf
        kept = self._independent[np.append(columns, self.free.size)[: excess.size]]
        if self.problem.is_classification:  # no row with a slope has anything in these columns
            kept = kept & (np.abs(excess) + error > 0.0)
        excess, error = excess[kept], error[kept]
        columns = columns[kept[: columns.size]]
        with_intercept = with_intercept and bool(kept[-1])
        if not columns.size and not with_intercept:
            return 0.0

        def blocks(weights: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
            for part, block in self.data.rows.dense_blocks():
                yield with_ones(block[:, columns], with_intercept), weights[part]

        rounding = sum_error(self.data.rows.n)
        share, least = largest_share(lambda: blocks(weights), excess, error, rounding)
        if not least > _NEARLY:
            # Few rows have entries in these columns, or the columns are dependent whatever the rows' weights.
            plain = WeightedFactor.of(blocks(self.masses), excess.size, rounding).least
            self.withheld = self.withheld or not plain > _NEARLY
        return share

    @cached_property
    def _independent(self) -> BoolArray:
        """Which columns (then the intercept) to keep so that no free one is exactly a combination of other free ones.

        Where it is, its moment is the same combination of their moments: the others take over its coefficient, and
        scores and ``e . theta`` stay as they are. With a held column among them they do not: there ``e`` is an error.
        """
        columns = np.flatnonzero(self.free)
        among_free = drop_dependent(self.data, columns, with_intercept=self.problem.fit_intercept)
        kept = np.append(self.sizes > 0.0, True)
        kept[np.append(columns, self.free.size)[: among_free.size]] = among_free
        return kept


class WeightedFactor(NamedTuple):
    """``sum_i weights_i x_i x_i'`` as ``(D R)^-T (D R)^-1``: R of shape (k, k), D the norms of the weighted columns.

    ``least`` is the least singular value of the weighted columns at unit norm, less what rounding can have added.
    """

    root: FloatArray
    norms: FloatArray
    least: float

    @classmethod
    def of(cls, blocks: Iterable[tuple[FloatArray, FloatArray]], size: int, rounding: float) -> WeightedFactor:
        """Factor rows of ``size`` numbers with their weights, block by block."""
        factor = np.zeros((0, size))
        for x, weights in blocks:
            factor = np.asarray(np.linalg.qr(np.vstack([factor, x * np.sqrt(weights)[:, None]]), mode="r"))
        norms = np.linalg.norm(factor, axis=0)
        if factor.shape[0] < size or not (norms > 0.0).all():
            return cls(factor, norms, 0.0)
        _, values, axes = np.linalg.svd(factor / norms)
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(axes.T / values, norms, float(values[-1]) - size * rounding)


def largest_share(
    blocks: Callable[[], Iterable[tuple[FloatArray, FloatArray]]],
    excess: FloatArray,
    error: FloatArray | float,
    rounding: float,
) -> tuple[float, float]:
    """Return ``max_i |x_i . c|`` where ``(sum_i weights_i x_i x_i') c = e``, for the worst ``e`` near ``excess``.

    ``e`` is within ``error`` of it. Infinite where the columns are dependent up to rounding. The second number is the
    least singular value of the weighted columns. ``blocks`` yields rows and weights; those without weight do not count.
    """
    root, norms, least = WeightedFactor.of(blocks(), excess.size, rounding)
    if not least > _DEPENDENT:
        return np.inf, least
    solved = (root @ (root.T @ (excess / norms))) / norms
    longest = far = 0.0
    for x, weights in blocks():
        x = x[weights > 0.0]
        longest = max(longest, float((((x / norms) @ root) ** 2).sum(axis=1).max(initial=0.0)))
        far = max(far, float(np.abs(x @ solved).max(initial=0.0)))
    # Twice: the factor and its inverse are rounded as well.
    return float(2.0 * (far + np.sqrt(longest) * np.linalg.norm(error / norms) / least)), least


def column_sizes(data: Data) -> FloatArray:
    """Return the root mean square of every column."""
    return data.rows.column_sizes(data.weights)
