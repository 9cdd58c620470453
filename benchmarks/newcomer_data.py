"""Data with the traits of those that new users bring: heavy tails, few positives, an order, wide sparse text."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def delays(n: int = 60_000, seed: int = 0) -> tuple[Any, Any]:
    """Return standardised features with one-hot columns, and delays in minutes: deviation about 45, heavy tails."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 6))
    carrier = np.eye(16)[rng.choice(16, n, p=np.arange(16, 0, -1) / 136)]
    X = np.hstack([numbers, carrier])
    y = 7 + X @ rng.normal(0, 6, X.shape[1]) + 18 * np.abs(rng.standard_t(2.1, n)) - 15
    return X, y


def few_positives(n: int = 40_000, share: float = 0.03, seed: int = 1) -> tuple[Any, Any]:
    """Return standardised features and labels of which few are positive, and hard to find."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    score = 0.6 * X[:, 0] - 0.4 * X[:, 1] + rng.logistic(size=n)
    return X, np.where(score > np.quantile(score, 1 - share), 1.0, -1.0)


def ordered(n: int = 120_000, seed: int = 2) -> tuple[Any, Any]:
    """Return rows whose distribution moves from the first to the last: a calendar, a file written by group."""
    rng = np.random.default_rng(seed)
    place = np.linspace(-1.0, 1.0, n)
    X = rng.normal(size=(n, 5))
    X[:, 0] += 3.0 * place
    X[:, 1] *= np.exp(place)
    score = 0.8 * X[:, 0] + (1.0 - 2.0 * place) * X[:, 1] - 0.5 * X[:, 2] + 1.5 * place
    return X, np.where(score + rng.logistic(size=n) > 0, 1.0, -1.0)


def text(n: int = 5000, m: int = 8000, per_row: int = 60, seed: int = 3) -> tuple[Any, Any]:
    """Return rows like TF-IDF of newswire: unit length, columns by a power law."""
    rng = np.random.default_rng(seed)
    likely = 1.0 / np.arange(1, m + 1) ** 0.8
    columns = rng.choice(m, (n, per_row), p=likely / likely.sum())
    values = rng.exponential(size=(n, per_row)) * np.log(2 + columns)
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * per_row + 1, per_row)), shape=(n, m))
    X.sum_duplicates()
    X = sp.diags(1.0 / np.sqrt(_row_squares(X))) @ X
    score = X @ (rng.normal(size=m) * (rng.random(m) < 0.1)) * 12.0
    return sp.csr_matrix(X), np.where(score + rng.logistic(size=n) > 0, 1.0, -1.0)


def _row_squares(X: Any) -> Any:
    return np.asarray(X.multiply(X).sum(axis=1)).ravel()
