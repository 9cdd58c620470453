"""The transport geometry: the cost of moving a row, and the region in which it may move.

The cost of moving a row ``(x, y)`` to ``(x', y')`` is ``||x - x'|| + (gamma / 2) |y - y'|`` where ``||.||`` is the
*feature norm* and ``gamma`` the *label cost*. Coefficients are measured in its
dual norm: ``||theta||_* = sup { theta . v : ||v|| <= 1 }``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from dualcore.data.arrays import LARGEST, FloatArray, plain_array

if TYPE_CHECKING:
    from dualcore.problem.families.categories import Categories

# Coefficients this near to zero, or to the largest, relatively, count as there.
_TIED = 1e-6


def check_range(name: str, number: float) -> None:
    """Raise ValueError where a positive, finite number is so small or so large that arithmetic with it overflows."""
    if 0.0 < number < np.inf and not 1.0 / LARGEST <= number <= LARGEST:
        raise ValueError(
            f"{name} must lie between {1.0 / LARGEST:g} and {LARGEST:g}, got {number!r}: arithmetic with it would "
            "overflow. Use other units."
        )


def frozen(value: Any) -> Any:
    """Return a value as something that can be compared and hashed; by identity where it cannot."""
    if isinstance(value, np.ndarray):
        return value.shape, tuple(value.ravel().tolist())
    if isinstance(value, dict):
        return tuple((name, frozen(part)) for name, part in sorted(value.items(), key=lambda item: str(item[0])))
    if isinstance(value, (list, tuple)):
        return tuple(frozen(part) for part in value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


class ByValue:
    """Objects that are compared and hashed by their attributes."""

    def _content(self) -> Any:
        return frozen(vars(self))

    def __eq__(self, other: object) -> bool:
        """Whether both have the same class and equal attributes."""
        return type(other) is type(self) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((type(self), self._content()))


@dataclass(frozen=True, eq=False)
class Norm(ByValue):
    """A feature norm ``||diag(weights) v||`` and its dual ``||theta / weights||_*``.

    Parameters
    ----------
    weights : ndarray of shape (n_features,), optional
        Price of moving each feature by one unit; ``inf`` makes a feature immovable. With ``None`` all prices are 1.
    """

    weights: FloatArray | None = None
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", _prices(self.weights))

    @property
    def _prices(self) -> FloatArray | float:
        return 1.0 if self.weights is None else self.weights

    def value(self, vector: FloatArray) -> float:
        """Return the feature norm of ``vector``."""
        with np.errstate(invalid="ignore"):  # inf * 0 is a feature that stays where it is
            return self._value(np.where(vector == 0.0, 0.0, vector * self._prices))

    def dual(self, coef: FloatArray) -> float:
        """Return the dual norm of ``coef``."""
        return self._dual(coef / self._prices)

    def steepest(self, coef: FloatArray) -> FloatArray:
        """Return ``v`` with ``||v|| = 1`` and ``coef . v = ||coef||_*``; zero where the dual norm is zero."""
        return self._steepest(coef / self._prices) / self._prices

    def project(self, vector: FloatArray, radius: float) -> FloatArray:
        """Return the Euclidean projection of ``vector`` on the feature-norm ball of ``radius``."""
        prices = np.broadcast_to(self._prices, vector.shape)
        movable = np.isfinite(prices)
        out = np.zeros_like(vector)
        out[movable] = self._project(vector[movable], prices[movable], radius)
        return out

    def face(self, coef: FloatArray, target: FloatArray, radius: float) -> FloatArray:
        """Return the point nearest to ``target`` among the subgradients of ``radius * ||coef||_*``."""
        if not coef.any():
            return self.project(target, radius)
        finite = np.where(np.isfinite(self._prices), self._prices, 0.0)
        return self._face(coef / self._prices, target * finite, radius) / self._prices

    def _face(self, coef: FloatArray, target: FloatArray, radius: float) -> FloatArray:
        raise NotImplementedError("a Norm subclass defines _face")

    def _value(self, vector: FloatArray) -> float:
        raise NotImplementedError("a Norm subclass defines _value")

    def _dual(self, coef: FloatArray) -> float:
        raise NotImplementedError("a Norm subclass defines _dual")

    def _steepest(self, coef: FloatArray) -> FloatArray:
        raise NotImplementedError("a Norm subclass defines _steepest")

    def _project(self, vector: FloatArray, prices: FloatArray, radius: float) -> FloatArray:
        raise NotImplementedError("a Norm subclass defines _project")


class L1Norm(Norm):
    """Feature norm ``sum |v_j|``; its dual norm is ``max |theta_j|``."""

    name = "l1"

    def _value(self, vector: FloatArray) -> float:
        return float(np.abs(vector).sum())

    def _dual(self, coef: FloatArray) -> float:
        return float(np.abs(coef).max(initial=0.0))

    def _steepest(self, coef: FloatArray) -> FloatArray:
        out = np.zeros_like(coef)
        if coef.size:
            j = int(np.abs(coef).argmax())
            out[j] = np.sign(coef[j])
        return out

    def _face(self, coef: FloatArray, target: FloatArray, radius: float) -> FloatArray:
        out = np.zeros_like(coef)
        top = np.flatnonzero(np.abs(coef) >= (1.0 - _TIED) * self._dual(coef))
        along = target[top] * np.sign(coef[top])  # onto the simplex: all entries positive, their sum the radius
        threshold = self._threshold(along, np.ones(along.size), radius)
        out[top] = np.sign(coef[top]) * np.maximum(along - threshold, 0.0)
        return out

    @staticmethod
    def _threshold(sizes: FloatArray, prices: FloatArray, radius: float) -> float:
        """Return ``tau`` with ``sum prices (sizes - tau prices)_+ = radius``."""
        order = np.argsort(-sizes / prices)
        spent, squares = np.cumsum((prices * sizes)[order]), np.cumsum((prices * prices)[order])
        excess = (spent - radius) / squares
        above = np.flatnonzero((sizes / prices)[order] > excess)
        return float(excess[above[-1] if above.size else 0])

    def _project(self, vector: FloatArray, prices: FloatArray, radius: float) -> FloatArray:
        """Return ``sign(v) (|v| - tau p)_+`` with the least ``tau >= 0`` that makes the priced sum fit."""
        size = np.abs(vector)
        if float(size @ prices) <= radius:
            return vector.copy()
        if radius <= 1e-15 * float(size @ prices):
            return np.zeros_like(vector)
        tau = self._threshold(size, prices, radius)
        return _into_ball(np.sign(vector) * np.maximum(size - tau * prices, 0.0), prices, radius, self._value)


class L2Norm(Norm):
    """Euclidean feature norm, its own dual."""

    name = "l2"

    def _value(self, vector: FloatArray) -> float:
        return float(np.linalg.norm(vector))

    def _dual(self, coef: FloatArray) -> float:
        return float(np.linalg.norm(coef))

    def _steepest(self, coef: FloatArray) -> FloatArray:
        size = float(np.linalg.norm(coef))
        return coef / size if size > 0.0 else np.zeros_like(coef)

    def _face(self, coef: FloatArray, target: FloatArray, radius: float) -> FloatArray:
        return radius * self._steepest(coef)

    def _project(self, vector: FloatArray, prices: FloatArray, radius: float) -> FloatArray:
        """Return ``v / (1 + tau p^2)`` with the ``tau >= 0`` that puts it on the ellipsoid."""
        priced = prices * vector
        size = float(np.linalg.norm(priced))
        if size <= radius:
            return vector.copy()
        if radius <= 1e-15 * size or prices.min() == prices.max():
            return vector * (radius / size)

        squares = prices * prices

        def excess(log_tau: float) -> float:
            left = priced / (1.0 + np.exp(log_tau) * squares)
            return math.sqrt(left @ left) - radius

        # At the lower end hardly anything is taken away, at the upper hardly anything is left.
        low, high = np.log(1e-20 / float(prices.max()) ** 2), np.log(1e20 / float(prices.min()) ** 2)
        log_tau = brentq(excess, low, high, xtol=1e-14) if excess(low) > 0.0 > excess(high) else low
        out = vector / (1.0 + np.exp(log_tau) * squares)
        return _into_ball(out, prices, radius, self._value)


class LinfNorm(Norm):
    """Feature norm ``max |v_j|``; its dual is ``sum |theta_j|`` and makes coefficients sparse."""

    name = "linf"

    def _value(self, vector: FloatArray) -> float:
        return float(np.abs(vector).max(initial=0.0))

    def _dual(self, coef: FloatArray) -> float:
        return float(np.abs(coef).sum())

    def _steepest(self, coef: FloatArray) -> FloatArray:
        return np.sign(coef)

    def _face(self, coef: FloatArray, target: FloatArray, radius: float) -> FloatArray:
        at_rest = np.abs(coef) <= _TIED * np.abs(coef).max()
        return np.where(at_rest, np.clip(target, -radius, radius), radius * np.sign(coef))

    def _project(self, vector: FloatArray, prices: FloatArray, radius: float) -> FloatArray:
        return np.clip(vector, -radius / prices, radius / prices)


def _into_ball(
    vector: FloatArray, prices: FloatArray, radius: float, value: Callable[[FloatArray], float]
) -> FloatArray:
    """Return the vector, shortened by what rounding may have left outside the ball."""
    size = value(prices * vector)
    return vector * (radius / size) if size > radius else vector


_NORMS: dict[str, type[Norm]] = {cls.name: cls for cls in (L1Norm, L2Norm, LinfNorm)}


def get_norm(norm: str | Norm, weights: npt.ArrayLike | None = None) -> Norm:
    """Return the norm called ``norm``.

    Examples
    --------
    >>> get_norm("l1").dual(np.array([1.0, -3.0]))
    3.0
    """
    if isinstance(norm, Norm):
        if weights is not None:
            raise TypeError("norm is already a Norm: give it the feature weights when you build it.")
        return norm
    if not isinstance(norm, str):
        raise TypeError(f"norm must be a string or a Norm, not {type(norm).__name__}.")
    if norm not in _NORMS:
        raise ValueError(f"Unknown norm {norm!r}. Use one of {sorted(_NORMS)}.")
    return _NORMS[norm]() if weights is None else _NORMS[norm](_prices(weights))


def _prices(weights: Any) -> FloatArray:
    """Return feature weights, checked; a copy, which the caller cannot change later."""
    prices = plain_array("feature_weights", weights).astype(np.float64)
    if prices.ndim != 1 or not np.all(prices > 0.0):
        raise ValueError("feature_weights must be one positive number (or inf) per feature.")
    finite = prices[np.isfinite(prices)]
    for price in (finite.min(initial=1.0), finite.max(initial=1.0)):  # the others lie between
        check_range("feature_weights", float(price))
    return prices


@dataclass(frozen=True, eq=False)
class Box(ByValue):
    """The support ``[low, high]`` of the features; either side may be infinite.

    Parameters
    ----------
    low, high : ndarray of shape (n_features,), or a single number in shape ()
    """

    low: FloatArray
    high: FloatArray

    def __post_init__(self) -> None:
        for name, side in (("low", self.low), ("high", self.high)):
            if side.ndim > 1 or side.size == 0 or np.isnan(side).any():
                raise ValueError(f"support: {name} must be a number, or one number per feature, and not NaN.")
        if self.low.ndim == self.high.ndim == 1 and self.low.size != self.high.size:
            raise ValueError(f"support: low holds {self.low.size} numbers but high holds {self.high.size}.")
        low, high = np.broadcast_arrays(np.atleast_1d(self.low), np.atleast_1d(self.high))
        if (low > high).any() or (low == np.inf).any() or (high == -np.inf).any():
            j = int(np.flatnonzero((low > high) | (low == np.inf) | (high == -np.inf))[0])
            raise ValueError(f"support: low must not exceed high, found [{low[j]:g}, {high[j]:g}] for feature {j}.")

    @classmethod
    def of(cls, support: Any) -> Box | None:
        """Return the box of ``(low, high)``; None where there are no limits at all.

        Examples
        --------
        >>> Box.of((0, 1)).spread(2)
        (array([0., 0.]), array([1., 1.]))
        """
        if support is None or isinstance(support, Box):
            return support
        try:
            if isinstance(support, str):
                raise TypeError("text is no pair of numbers")
            low, high = support
            sides = [plain_array("support: a side", side).astype(np.float64) for side in (low, high)]
            box = cls(*sides)
        except (TypeError, ValueError) as error:
            if str(error).startswith("support:"):
                raise
            raise ValueError("support must be None or a pair (low, high) of numbers or arrays.") from None
        return None if np.isneginf(box.low).all() and np.isposinf(box.high).all() else box

    def spread(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        """Return both sides written out, one number per feature."""
        for side in (self.low, self.high):
            if side.ndim == 1 and side.size != n_features:
                raise ValueError(f"support holds {side.size} numbers a side but X has {n_features} features.")
        return np.broadcast_to(self.low, n_features).copy(), np.broadcast_to(self.high, n_features).copy()

    def __repr__(self) -> str:
        return f"({self.low.tolist()!r}, {self.high.tolist()!r})"


@dataclass(frozen=True)
class Geometry:
    """Feature norm, label cost ``gamma``, support of the features and order ``p`` of the transport distance."""

    norm: Norm = field(default_factory=L2Norm)
    label_cost: float = np.inf  # price of one label flip (classification); half of it prices a unit of target
    support: Box | None = None  # where the adversary may put features; None is all of R^m
    order: float = 1  # that of the loss
    categories: Categories | None = None  # groups of one-hot columns that change at a price

    def __post_init__(self) -> None:
        if not self.label_cost > 0.0:
            raise ValueError(
                f"label_cost must be positive (inf forbids flips), got {self.label_cost!r}. "
                "A label that can be changed for nothing carries no information."
            )
        check_range("label_cost", self.label_cost)

    @property
    def target_slope(self) -> float:
        """``2 / gamma``: how fast a regression residual changes per unit of cost spent on the target."""
        return 2.0 / self.label_cost
