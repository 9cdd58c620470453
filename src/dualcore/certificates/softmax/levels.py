"""What rounding can do to the lower bound of a softmax problem; as `dualcore.certificates.rounding` for one score.

All in units of the design: columns centred where there is an intercept, of root mean square one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from dualcore.certificates.dependence import drop_dependent
from dualcore.certificates.rounding import free_features, largest_share, sum_error
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.flips import Flips
from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm

__all__ = ["ClassLevelSet"]

# Limit on the order of the matrix of free parameters; for a larger one no bound is computed.
_MOST_FREE = 600
_MOST_NUMBERS = 50_000_000
_VANISHED = 1e-9


class ClassLevelSet:
    """The models of risk at most ``upper``: how much an error of the moment can matter on it.

    Parameters
    ----------
    design : ClassDesign
    upper : float
        The risk of any model.
    """

    def __init__(self, design: ClassDesign, upper: float) -> None:
        problem, m = design.problem, design.scale.size
        self.design, self.problem, self.upper = design, problem, max(upper, 0.0)
        self.n_classes = design.problem.family.n_outputs
        self.error = sum_error(design.data.rows.n)
        # Probabilities less labels are at most one, and columns have size one.
        self.moment_error = 2.0 * self.error
        #: whether columns that nothing penalises turned out to be dependent up to rounding
        self.withheld = False
        self.free = free_features(problem, m)

    def _prices(self) -> FloatArray:
        prices = self.design.norm.weights
        held = np.ones(self.design.scale.size) if prices is None else prices
        return np.where(self.free | np.isinf(held), 0.0, held)

    def routing_error(self) -> float:
        """Return the most that the flow of the moment's error can cost."""
        longest = self.design.norm.value(np.where(self.free, 0.0, self.moment_error))
        return (0.5 * self.n_classes if isinstance(self.design.norm, L1Norm) else self.n_classes - 1.0) * longest

    def _leverage(self) -> float:
        """Return the most that the mean of ``|(theta_j - theta_k) . x|`` can be over the features that are held."""
        by_ridge = by_norm = np.inf
        if self.problem.ridge > 0.0:
            length = float(np.linalg.norm(self.design.scale))
            by_ridge = 2.0 * float(np.sqrt(2.0 * self.upper / self.problem.ridge)) * length
        if self.problem.radius > 0.0:
            prices = self._prices()
            length = float(prices.sum()) if isinstance(self.design.norm, L1Norm) else float(np.linalg.norm(prices))
            by_norm = self.upper / self.problem.radius * length
        if self.free.all():
            return 0.0
        return min(by_ridge, by_norm)

    def intercept_price(self) -> float:
        """Return the price of probabilities and labels that balance up to rounding only.

        A row of class k loses at least ``s_j - s_k``. So the intercept of k is below that of another class by at most
        the loss of its rows over its mass, plus what the features add to scores. The error of its balance is a share of
        its mass.
        """
        if not self.problem.fit_intercept or self.free.any():  # free features are priced with the intercept
            return 0.0
        return 2.0 * self.n_classes * self.moment_error * (self.upper + self._leverage())

    def free_price(
        self, moment: FloatArray, chances: Callable[[FloatArray], FloatArray], flips: Flips, cost: float
    ) -> float:
        """Return the most that free features and intercepts can gain from a moment that does not vanish.

        With ``d_k = s_k - s_y`` a row of loss l has ``d_k <= l``, and the mean of ``sum_k p_k d_k`` is the moment times
        the model. So the mean of ``sum_k p_k |d_k|`` is at most twice ``upper`` but for the rest of the moment, which
        is at most ``max |c . x|`` times it, where ``c`` solves the normal equations of these differences.
        """
        design, with_intercept = self.design, self.design.intercept
        columns = np.flatnonzero(self.free)
        kept = drop_dependent(design.data, columns, with_intercept=with_intercept)
        width = np.append(columns, [design.scale.size] * with_intercept).astype(np.intp)[kept]
        most = 2.0 * self.upper + self._leverage() + self._earned(flips, cost)
        return self._price(moment, chances, width, most)

    def common_price(
        self,
        rest: FloatArray,
        chances: Callable[[FloatArray], FloatArray],
        flips: Flips,
        cost: float,
        reference: FloatArray,
    ) -> float:
        """Return the most that *all* features and intercepts can gain from a moment that radius and ridge do not hold.

        As `free_price`, which needs no penalty: rows that tell the features apart bound the scores by themselves, where
        columns are far from the origin or large much better than radius and ridge do.

        Parameters
        ----------
        rest : ndarray of shape (K, width)
            The moment less what the radius holds, and the ridge at ``reference``.
        reference : ndarray of shape (K, width)
        """
        design, with_intercept = self.design, self.design.intercept
        columns = np.arange(design.scale.size)
        # Of columns that are held those that others make up are priced apart: they cannot be left out.
        kept = np.ones(design.shape[1], dtype=bool)
        if self.free.any():
            free = columns[self.free]
            kept[free] = drop_dependent(design.data, free, with_intercept=with_intercept)[: free.size]
        width = np.flatnonzero(kept)
        by_ridge = float(np.sqrt(2.0 * self.upper * (design.ridge * reference**2).sum()))
        most, withheld = 2.0 * self.upper + self._earned(flips, cost) + by_ridge, self.withheld
        price = self._price(rest, chances, width, most)
        self.withheld = withheld
        return price

    def _price(
        self,
        moment: FloatArray,
        chances: Callable[[FloatArray], FloatArray],
        width: npt.NDArray[np.intp],
        most: float,
    ) -> float:
        """Return the most that the numbers ``width`` of every class gain from a moment; ``most`` bounds scores."""
        size = (self.n_classes - 1) * width.size
        if size == 0:
            return 0.0
        if size > _MOST_FREE or size * self.design.data.rows.n * (self.n_classes - 1) > _MOST_NUMBERS:
            return np.inf
        # Probabilities below these are left out in turn: a row that is all but certain bounds the scores weakly.
        share = min(self._largest_share(moment, chances, width, least) for least in (1e-2, 1e-5, 0.0))
        if not share < 0.5:
            # The moment vanishes up to rounding, and still no bound: rows that are separated bound no scores.
            self.withheld = self.withheld or float(np.abs(moment[:, width]).max(initial=0.0)) <= _VANISHED
            return np.inf
        return float(share / (1.0 - share) * most)

    def _earned(self, flips: Flips, cost: float) -> float:
        """Return the most that the held features add to the moment, and what flips earn and pay."""
        if self.problem.radius == 0.0:
            return 0.0
        return self.upper * cost / self.problem.radius + (4.0 * self.upper if flips.row.size else 0.0)

    def _largest_share(
        self,
        moment: FloatArray,
        chances: Callable[[FloatArray], FloatArray],
        width: npt.NDArray[np.intp],
        least_chance: float,
    ) -> float:
        """Return ``max |c . x|`` for the worst moment within its error, over rows and classes not too rare."""
        design = self.design

        def blocks() -> Iterator[tuple[FloatArray, FloatArray]]:
            for part, block in design.blocks():
                rows, weight = self._differences(block[:, width], chances(block), design.code[part])
                yield rows, (np.where(weight >= least_chance, weight, 0.0) * design.data.masses[part, None]).ravel()

        share, _ = largest_share(blocks, moment[1:][:, width].ravel(), self.moment_error, self.error)
        self.withheld = self.withheld or (least_chance == 0.0 and np.isinf(share))
        return share

    def _differences(
        self, x: FloatArray, chance: FloatArray, code: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``(e_k - e_y) x x_i`` for every row and other class, the first class left out, and ``p_k``.

        Shapes (rows * (K - 1), (K - 1) * width) and (rows, K - 1).
        """
        n, width = x.shape
        others = self.n_classes - 1
        out = np.zeros((n, others, self.n_classes, width))
        weight = np.empty((n, others))
        classes = np.arange(self.n_classes)
        for k in range(self.n_classes):
            own = np.flatnonzero(code == k)
            rest = np.delete(classes, k)
            weight[own] = chance[own][:, rest]
            for place, other in enumerate(rest):
                out[own, place, other] += x[own]
                out[own, place, k] -= x[own]
        return out[:, :, 1:].reshape(n * others, others * width), weight
