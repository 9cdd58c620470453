"""The widest difference of two classes' coefficients, smoothed, and the flows between classes that it suggests.

All in units in which the norm has no prices: ``U = theta / prices``, of shape (K, m). The widest difference
``kappa = max_{j,k} ||U_j - U_k||_*`` is a maximum of linear functions, ``kappa = max <T, U>`` over the divergences T of
flows of cost one (see the module `transport`). With a prior ``pi`` over pairs and a width ``mu``

    kappa_mu = mu log sum_jk pi_jk exp(||U_j - U_k||_* / mu)

is smooth, and its gradient is such a divergence: the flow between j and k has the share ``q_jk`` that the pair has of
the sum. Taking the shares as the next prior is the exponential method of multipliers: it converges at a fixed width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from dualcore.data.arrays import FloatArray
from dualcore.problem.geometry import L1Norm, L2Norm, Norm

__all__ = ["SmoothedMaximum", "Widest", "widest_for"]

# Width of a coefficient's sign, for a width of one of a whole difference, over the root of the number of features: the
# more features, the fewer of them have coefficients. And most signs, pairs of classes times features, with priors.
_SIGN_WIDTH, _MOST_SIGNS = 1.25, 20_000_000

Classes = npt.NDArray[np.intp]


class SmoothedMaximum(NamedTuple):
    """A smoothed maximum: its value, its gradient of shape (K, m), and the shares behind it."""

    value: float
    gradient: FloatArray
    shares: Any


class Widest(ABC):
    """The widest difference of two classes under one norm.

    Parameters
    ----------
    n_classes, n_features : int
    """

    #: relative width below which priors do better than narrower ones, by measurement
    least_width = 0.05

    def __init__(self, n_classes: int, n_features: int) -> None:
        self.n_classes, self.n_features = n_classes, n_features

    @abstractmethod
    def exact(self, U: FloatArray) -> float:
        """Return ``max_{j,k} ||U_j - U_k||_*``."""

    @abstractmethod
    def at(self, U: FloatArray, width: float) -> SmoothedMaximum:
        """Return the smoothed maximum for the prior of now."""

    @abstractmethod
    def renew(self, shares: Any, floor: float) -> None:
        """Take shares as the next prior, which keeps ``floor`` of an even one."""

    @abstractmethod
    def cost(self, U: FloatArray, width: float, found: SmoothedMaximum, budget: float, rest: FloatArray) -> float:
        """Return the cost of a flow of divergence ``budget * found.gradient + rest``; columns of ``rest`` sum to 0."""

    def capped(self, U: FloatArray, most: float) -> FloatArray:
        """Return coefficients near these whose widest difference is at most ``most``; these where none is at hand."""
        return U

    @abstractmethod
    def curvature(self, U: FloatArray, width: float, found: SmoothedMaximum) -> FloatArray:
        """Return about how much second derivative every number has, shape (K, m) or one that spreads to it."""


class _ByPair(Widest):
    """Norms for which every pair of classes has a difference of its own."""

    metric = ""

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.even = np.full((n_classes, n_classes), 1.0 / (n_classes * (n_classes - 1)))
        np.fill_diagonal(self.even, 0.0)
        self.prior = self.even

    def exact(self, U: FloatArray) -> float:
        return float(cdist(U, U, self.metric).max())

    def renew(self, shares: Any, floor: float) -> None:
        prior = np.maximum(shares, floor * self.even)
        self.prior = prior / prior.sum()

    def _shares(self, size: FloatArray, width: float) -> tuple[float, FloatArray]:
        """Return the smoothed maximum of the sizes of all pairs, and the share of each."""
        top = float(size.max())
        share = self.prior * np.exp((size - top) / width)
        total = float(share.sum())
        return top + width * float(np.log(total)), share / total

    def cost(self, U: FloatArray, width: float, found: SmoothedMaximum, budget: float, rest: FloatArray) -> float:
        # How much of an even spread the shares get when a rest is routed along them.
        return min(self._routed(U, width, found, budget, rest, spread) for spread in (1e-3, 0.1, 1.0))

    def _routed(
        self, U: FloatArray, width: float, found: SmoothedMaximum, budget: float, rest: FloatArray, spread: float
    ) -> float:
        """Send the rest along pairs in proportion to their shares, mixed with an even spread."""
        shares = self._of_pairs(found)
        weight = (1.0 - spread) * shares + spread * self.even
        weight = weight + weight.T
        potential = np.linalg.lstsq(np.diag(weight.sum(axis=1)) - weight, rest, rcond=1e-13)[0]
        total, left = 0.0, budget * found.gradient + rest
        for one, other in self._pairs():
            flow = weight[one, other, None] * (potential[one] - potential[other])
            flow += 2.0 * budget * self._flow(U, width, shares, one, other)
            left -= _divergence(flow, one, other, self.n_classes)
            total += float(self._norms(flow).sum())
        # What rounding left goes from every class to every other.
        spilt = sum(float(self._norms(left[one] - left[other]).sum()) for one, other in self._pairs())
        return total + spilt / self.n_classes

    def _pairs(self) -> Iterator[tuple[Classes, Classes]]:
        """Yield the pairs of two different classes, some at a time, as two arrays."""
        one, other = np.tril_indices(self.n_classes, -1)
        # Differences of coefficients, pairs of classes times features, that are held at a time.
        step = max(1, 1_000_000 // self.n_features)
        for start in range(0, one.size, step):
            yield one[start : start + step], other[start : start + step]

    def _of_pairs(self, found: SmoothedMaximum) -> FloatArray:
        """Return the shares of the pairs, shape (K, K)."""
        return np.asarray(found.shares[0] if isinstance(found.shares, tuple) else found.shares)

    @abstractmethod
    def _flow(self, U: FloatArray, width: float, shares: FloatArray, one: Classes, other: Classes) -> FloatArray:
        """Return half of the flows from one class to another of each pair, shape (pairs, m)."""

    @abstractmethod
    def _norms(self, flow: FloatArray) -> FloatArray:
        """Return the feature norm of every row."""


def _divergence(flow: FloatArray, one: Classes, other: Classes, n_classes: int) -> FloatArray:
    """Return what flows from one class to another of each pair take out of every class, shape (K, m)."""
    classes = np.arange(n_classes)[:, None]
    return np.asarray(((classes == one) - 1.0 * (classes == other)) @ flow)


class _Lengths(_ByPair):
    """The l2 norm: differences have Euclidean lengths."""

    metric, least_width = "euclidean", 0.004

    def _sizes(self, U: FloatArray, width: float) -> FloatArray:
        gram = U @ U.T
        square = np.diag(gram)
        return np.sqrt(np.maximum(square[:, None] + square - 2.0 * gram, 0.0) + (0.1 * width) ** 2)

    def at(self, U: FloatArray, width: float) -> SmoothedMaximum:
        size = self._sizes(U, width)
        value, share = self._shares(size, width)
        force = share / size
        return SmoothedMaximum(value, 2.0 * (force.sum(axis=1)[:, None] * U - force @ U), share)

    def curvature(self, U: FloatArray, width: float, found: SmoothedMaximum) -> FloatArray:
        return 2.0 * np.asarray((found.shares / self._sizes(U, width)).sum(axis=1, keepdims=True))

    def _flow(self, U: FloatArray, width: float, shares: FloatArray, one: Classes, other: Classes) -> FloatArray:
        apart = U[one] - U[other]
        length = np.sqrt(np.einsum("kj,kj->k", apart, apart) + (0.1 * width) ** 2)
        return np.asarray((shares[one, other] / length)[:, None] * apart)

    def _norms(self, flow: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm(flow, axis=1))


class _AbsoluteSums(_ByPair):
    """The linf norm: differences have the sum of their sizes.

    Each size is ``|d| = max s d`` over s in [-1, 1], smoothed with a prior t of its own: ``max s d - e (s - t)^2 / 2``.
    """

    metric = "cityblock"

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.keeps = n_classes * n_classes * n_features <= _MOST_SIGNS
        self.signs: FloatArray | None = None

    def _small(self, width: float) -> float:
        return _SIGN_WIDTH * width / float(np.sqrt(self.n_features))

    def _each(self, U: FloatArray, width: float, one: Any, other: Any = slice(None)) -> tuple[FloatArray, FloatArray]:
        """Return smoothed sizes of the differences of classes from others, by feature, and their derivatives."""
        small, apart = self._small(width), U[one] - U[other]
        prior = np.zeros(1) if self.signs is None else self.signs[one, other]
        sign = np.clip(prior + apart / small, -1.0, 1.0)
        return sign * apart - 0.5 * small * (sign - prior) ** 2, sign

    def at(self, U: FloatArray, width: float) -> SmoothedMaximum:
        sizes, slopes = np.empty((self.n_classes, self.n_classes)), []
        for j in range(self.n_classes):
            size, slope = self._each(U, width, j)
            sizes[j] = size.sum(axis=1)
            slopes.append(slope)
        value, share = self._shares(sizes, width)
        return SmoothedMaximum(
            value, np.stack([2.0 * share[j] @ slopes[j] for j in range(self.n_classes)]), (share, U, width)
        )

    def renew(self, shares: Any, floor: float) -> None:
        share, U, width = shares
        if self.keeps:
            self.signs = np.stack([self._each(U, width, j)[1] for j in range(self.n_classes)])
        super().renew(share, floor)

    def curvature(self, U: FloatArray, width: float, found: SmoothedMaximum) -> FloatArray:
        small = self._small(width)
        slopes = (self._each(U, width, j)[1] for j in range(self.n_classes))
        return np.stack([2.0 * found.shares[0][j] @ (np.abs(s) < 1.0) / small for j, s in enumerate(slopes)])

    def _flow(self, U: FloatArray, width: float, shares: FloatArray, one: Classes, other: Classes) -> FloatArray:
        return np.asarray(shares[one, other, None] * self._each(U, width, one, other)[1])

    def _norms(self, flow: FloatArray) -> FloatArray:
        return np.asarray(np.abs(flow).max(axis=1, initial=0.0))


class _Ranges(Widest):
    """The l1 norm: of every feature the largest coefficient less the smallest.

    Adding a number to the coefficients of a feature in all classes changes nothing, so that is ``2 max |U|`` for the
    best such numbers, ``max <T, U>`` over ``sum |T| <= 2``; smoothed ``max <T, U> - e |T - Y|^2 / 2``, with T the
    projection of ``Y + U / e`` and the next prior Y.
    """

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.prior = np.zeros((n_classes, n_features))

    def exact(self, U: FloatArray) -> float:
        return float(np.ptp(U, axis=0).max(initial=0.0))

    def _small(self, width: float) -> float:
        return 0.25 * width * self.prior.size

    def at(self, U: FloatArray, width: float) -> SmoothedMaximum:
        small = self._small(width)
        flow = L1Norm().project((self.prior + U / small).ravel(), 2.0).reshape(U.shape)
        value = float((flow * U).sum()) - 0.5 * small * float(((flow - self.prior) ** 2).sum())
        return SmoothedMaximum(value, flow, flow)

    def renew(self, shares: Any, floor: float) -> None:
        self.prior = shares

    def cost(self, U: FloatArray, width: float, found: SmoothedMaximum, budget: float, rest: FloatArray) -> float:
        return 0.5 * float(np.abs(budget * found.gradient + rest).sum())

    def capped(self, U: FloatArray, most: float) -> FloatArray:
        middle = 0.5 * (U.max(axis=0) + U.min(axis=0))
        return np.clip(U, middle - 0.5 * most, middle + 0.5 * most)

    def curvature(self, U: FloatArray, width: float, found: SmoothedMaximum) -> FloatArray:
        return np.full((1, 1), 1.0 / self._small(width))  # most numbers are at the bound in the end


def widest_for(norm: Norm, n_classes: int, n_features: int) -> Widest:
    """Return the widest difference for a feature norm."""
    kind = _Ranges if isinstance(norm, L1Norm) else _Lengths if isinstance(norm, L2Norm) else _AbsoluteSums
    return kind(n_classes, n_features)
