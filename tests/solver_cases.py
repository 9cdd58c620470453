"""Rows and parameters that the tests of `solve` share."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem

NORMS = ("l1", "l2", "linf")
FIRST_ORDER = ("logistic", "hinge", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")
both_solvers = pytest.mark.parametrize("solver", ["structured", "conic"])
every_norm = pytest.mark.parametrize("norm", NORMS)


def classes(n: int = 60, m: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = np.where(X[:, 0] - 0.5 * X[:, -1] + rng.normal(size=n) > 0.2, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    return X, y


def separable(n: int = 40, m: int = 3, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two classes a unit apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    X[:, 0] += 0.5 * y
    return X, y


def targets(n: int = 60, m: int = 3, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    return X, X @ np.linspace(1.0, -1.0, m) + rng.standard_t(3, size=n) + 2.0


def data_for(problem: Problem, n: int = 60, m: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return classes(n, m) if problem.is_classification else targets(n, m)


def sample(problem: Problem, n: int = 50, m: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose columns have different scales, for any problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.3, 3.0, size=m)
    score = X @ rng.normal(size=m) + rng.normal(size=n) + 0.2
    if problem.is_classification:
        score = np.where(score > np.median(score), 1.0, -1.0)
    return X, score
