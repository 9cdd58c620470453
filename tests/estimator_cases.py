"""Estimators and rows that several tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

import dualcore

NAMED = {name: getattr(dualcore, name) for name in dualcore.__all__ if name.startswith("Wasserstein")}
# Those that are given a radius, and those that choose one.
ESTIMATORS = [cls for name, cls in NAMED.items() if not name.endswith("CV")]
CHOOSERS = [cls for name, cls in NAMED.items() if name.endswith("CV")]


def is_classifier(cls: Any) -> bool:
    return hasattr(cls, "decision_function")


CLASSIFIERS = [cls for cls in ESTIMATORS if is_classifier(cls)]


def data_for(cls: Any, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Six standardised columns of bundled rows, with two classes or a target of mean and deviation 1."""
    X, y = load_breast_cancer(return_X_y=True) if is_classifier(cls) else load_diabetes(return_X_y=True)
    return scale(X[:n, :6]), y[:n] if is_classifier(cls) else 1.0 + scale(y[:n])
