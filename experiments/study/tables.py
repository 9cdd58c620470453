"""The tables of the study: public data, two classes or a real target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from dualcore.data.arrays import FloatArray
from experiments import datasets

Loss = Literal["logistic", "huber", "pinball"]
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class StudyTable:
    """One table: where its rows come from, how many of them train, and the loss that all methods use."""

    title: str
    shape: tuple[int, int]  # rows and columns
    n_train: int
    load: Callable[[str | None], tuple[Any, Any]]
    classes: tuple[Any, Any] | None = None  # labelled -1 and +1; None for a real target
    loss: Loss = "logistic"

    def rows(self, home: str | None) -> Pair:
        """Return all rows and their targets; ``home`` is the folder of the files."""
        X, y = self.load(home)
        if self.classes is None:
            return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        kept = np.isin(y, self.classes)
        return np.asarray(X[kept], dtype=np.float64), np.where(y[kept] == self.classes[1], 1.0, -1.0)


def _letter(home: str | None) -> tuple[Any, Any]:
    data = datasets.load_letter(home)
    return np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])


def _mnist(home: str | None) -> tuple[Any, Any]:
    """Images of 7 x 7 pixels: means of blocks of 4 x 4."""
    data = datasets.load_mnist(home)
    return data.X_test.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49), data.y_test


def _half(load: Callable[[str | None], datasets.Dataset]) -> Callable[[str | None], tuple[Any, Any]]:
    """Read the training rows of a data set."""

    def read(home: str | None) -> tuple[Any, Any]:
        data = load(home)
        return data.X_train, data.y_train

    return read


def _shipped(load: Callable[..., Any]) -> Callable[[str | None], tuple[Any, Any]]:
    """Read a data set that comes with scikit-learn."""
    return lambda home: load(return_X_y=True)


TABLES: dict[str, StudyTable] = {
    "iris": StudyTable("iris, 2 or 3", (100, 4), 60, _shipped(load_iris), (1, 2)),
    "wine": StudyTable("wine, 2 or 3", (119, 13), 60, _shipped(load_wine), (1, 2)),
    "cancer": StudyTable("breast cancer", (569, 30), 200, _shipped(load_breast_cancer), (0, 1)),
    "digits": StudyTable("digits, 3 or 8", (357, 64), 150, _shipped(load_digits), (3, 8)),
    "digits-18": StudyTable("digits, 1 or 8", (356, 64), 150, _shipped(load_digits), (1, 8)),
    "letter": StudyTable("LETTER, O or Q", (1536, 16), 200, _letter, (14, 16)),
    "mnist": StudyTable("MNIST, 4 or 9", (1991, 49), 300, _mnist, (4, 9)),
    "adult": StudyTable("Adult (a9a)", (32561, 123), 400, _half(datasets.load_adult), (-1, 1)),
    "diabetes": StudyTable("diabetes, Huber", (442, 10), 200, _shipped(load_diabetes), loss="huber"),
    "energy": StudyTable(
        "appliances energy, Huber", (9867, 27), 400, _half(datasets.load_appliances_energy), loss="huber"
    ),
    "energy-quantile": StudyTable(
        "appliances energy, quantile 0.9", (9867, 27), 400, _half(datasets.load_appliances_energy), loss="pinball"
    ),
}
