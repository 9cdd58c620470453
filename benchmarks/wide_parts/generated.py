"""Generated rows of every kind that wide data come in, and targets of a linear model of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

PER_ROW = 70


def make_rows(kind: str, n: int, m: int, seed: int = 0) -> Any:
    """Return rows: float32 ``independent`` or ``correlated`` columns, or ``sparse`` ones, 70 numbers a row."""
    rng = np.random.default_rng([n, m, seed])
    if kind == "sparse":
        chance = 1.0 / np.arange(1, m + 1) ** 0.8
        columns = rng.choice(m, size=(n, min(PER_ROW, m)), p=chance / chance.sum())
        values = rng.random(columns.shape) + 0.1
        pointers = np.arange(0, columns.size + 1, columns.shape[1])
        X = sp.csr_matrix((values.ravel(), columns.ravel(), pointers), shape=(n, m))
        X.sum_duplicates()
        return X
    X = rng.standard_normal((n, m), dtype=np.float32)
    if kind == "correlated":
        rotation = np.linalg.qr(rng.standard_normal((m, m)))[0].astype(np.float32)
        X = (X * np.geomspace(1.0, 1e-2, m, dtype=np.float32)) @ rotation
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    return X


def make_target(X: Any, classify: bool, seed: int = 1) -> np.ndarray:
    """Return labels or targets of a linear model with scores of standard deviation 2."""
    rng = np.random.default_rng([*X.shape, seed])
    score = np.asarray(X @ rng.standard_normal(X.shape[1]).astype(X.dtype), dtype=np.float64)
    score = 2.0 * (score - score.mean()) / score.std()
    if classify:
        return np.where(rng.random(score.size) < 1.0 / (1.0 + np.exp(-score)), 1.0, -1.0)
    return score + rng.standard_t(3, size=score.size)
