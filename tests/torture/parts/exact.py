"""Arithmetic of the referee: long doubles, compensated products, exact constants.

Rows are centred at numbers that occur in the data, so the differences are exact in a long double, and products with
the coefficients are summed with all rounding errors carried along. Coefficients may be as large as 1e13 (two columns
that differ in their last digits) and the scores are still right to a long double's last digits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Long = np.longdouble
LongArray = npt.NDArray[np.longdouble]

# Half of the digits of a long double, for the exact product of two of them.
_SPLIT = Long(2.0) ** ((np.finfo(Long).nmant + 2) // 2) + Long(1.0)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return ``a + b`` rounded, and what rounding took away."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _halves(a: Any) -> tuple[Any, Any]:
    big = _SPLIT * a
    high = big - (big - a)
    return high, a - high


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return ``a b`` rounded, and what rounding took away."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def product(A: LongArray, theta: LongArray, start: Any) -> LongArray:
    """Return ``A @ theta + start`` as if computed with twice the digits of a long double, then rounded."""
    total, error = np.full(A.shape[0], start, dtype=Long), np.zeros(A.shape[0], dtype=Long)
    for j in np.flatnonzero(theta):
        term, lost = two_product(A[:, j], theta[j])
        total, more = two_sum(total, term)
        error += lost + more
    return np.asarray(total + error)


def exact_constant(theta: npt.NDArray[np.float64], at: npt.NDArray[np.float64], plus: float, minus: float) -> Fraction:
    """Return ``theta . at + plus - minus`` exactly."""
    total = Fraction(float(plus)) - Fraction(float(minus))
    for a, b in zip(theta.tolist(), at.tolist(), strict=True):
        if a and b:
            total += Fraction(a) * Fraction(b)
    return total


def to_long(value: Fraction) -> Any:
    """Return a long double within an ulp or two of a fraction."""
    high = float(value)
    rest = float(value - Fraction(high))
    return Long(high) + Long(rest)


def reference_row(X: npt.NDArray[np.float64], w: LongArray) -> npt.NDArray[np.float64]:
    """Return the row nearest to the weighted mean, all columns in units of their spread.

    One row for all columns: near copies of a column then stay near copies once they are centred.
    """
    long = X.astype(Long)
    away = long - (long * w[:, None]).sum(axis=0)
    spread = np.abs(away).mean(axis=0)
    return np.asarray(X[(np.abs(away) / np.where(spread > 0, spread, Long(1))).sum(axis=1).argmin()].copy())


def orthonormal(A: LongArray, w: LongArray, cut: float) -> tuple[LongArray, LongArray, list[int]]:
    """Return ``Q`` (orthonormal in the masses), ``T`` with ``Q = A[:, kept] T``, and the columns kept.

    Gram and Schmidt, each column twice, in long doubles. A column whose remainder is below ``cut`` of its length is
    left out.
    """
    n, m = A.shape
    columns: list[LongArray] = []
    maps: list[LongArray] = []
    kept: list[int] = []
    for j in range(m):
        rest = A[:, j].copy()
        length = np.sqrt((w * rest * rest).sum())
        if not length > 0:
            continue
        rest /= length
        combination = np.zeros(m, dtype=Long)
        combination[j] = 1 / length
        for _ in range(2):
            for q, made in zip(columns, maps, strict=True):
                share = (w * q * rest).sum()
                rest -= share * q
                combination -= share * made
        left = np.sqrt((w * rest * rest).sum())
        if left > cut:
            columns.append(rest / left)
            maps.append(combination / left)
            kept.append(j)
    Q = np.array(columns, dtype=Long).T if columns else np.zeros((n, 0), dtype=Long)
    T = np.array(maps, dtype=Long).T if maps else np.zeros((m, 0), dtype=Long)
    return Q, T, kept
