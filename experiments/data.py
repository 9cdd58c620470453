"""The data of the experiments as they go into training: chosen, scaled, contaminated, split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dualcore.attacks import add_noise, flip_labels
from dualcore.data.arrays import FloatArray
from experiments import datasets

DataKey = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on and rows to judge by; targets are labels -1 and +1, or real."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray


def _split(data: datasets.Dataset) -> Split:
    parts = (data.X_train, data.y_train, data.X_test, data.y_test)
    return Split(*(np.ascontiguousarray(part, dtype=np.float64) for part in parts))


def _letter(home: str | None, attack: Literal["clean", "alfa", "minmax"]) -> Split:
    """Y against Z as the paper's authors left it, poisoned."""
    return _split(datasets.load_letter_authors(attack, home))


def _letter_unit(home: str | None, attack: Literal["clean", "alfa", "minmax"]) -> Split:
    """The same, scaled to [0, 1]."""
    data = _letter(home, attack)
    X, X_test = (np.clip(0.5 * (part + 1.0), 0.0, 1.0) for part in (data.X, data.X_test))
    return Split(X, data.y, X_test, data.y_test)


def _letter_against_rest(home: str | None, letter: int) -> Split:
    """One of the 26 letters (+1) against all others, clean."""
    data = datasets.load_letter(home, scaled=True)
    y, y_test = (np.where(part == letter, 1.0, -1.0) for part in (data.y_train, data.y_test))
    return Split(data.X_train, y, data.X_test, y_test)


def _energy(home: str | None, seed: int) -> Split:
    """A random half of the readings, features and target scaled to [0, 1]."""
    return _split(datasets.load_appliances_energy(home, random_state=seed))


@lru_cache(maxsize=1)
def _mnist(home: str | None) -> datasets.Dataset:
    return datasets.load_mnist(home)


def _mnist_pair(home: str | None, first: int, second: int) -> Split:
    """A random half of two digits (``first`` is +1) in [0, 1], with N(0, 1) noise and a tenth of the labels flipped.

    The noise is drawn once a pair, so trials differ in their coresets only; the other half stays clean.
    """
    data = _mnist(home)
    X, digits = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    chosen = np.flatnonzero((digits == first) | (digits == second))
    rng = np.random.default_rng([first, second])
    train, test = np.split(rng.permutation(chosen), [chosen.size // 2])
    y = np.where(digits == first, 1.0, -1.0)
    noisy = add_noise(X[train] / 255.0, random_state=rng)
    return Split(noisy, flip_labels(y[train], 0.1, rng), X[test] / 255.0, y[test])


def _mnist_parity(home: str | None) -> Split:
    """All of MNIST: odd digits (+1) against even ones, clean, in [0, 1]."""
    data = _mnist(home)
    y, y_test = (np.where(part % 2 == 1, 1.0, -1.0) for part in (data.y_train, data.y_test))
    return Split(data.X_train / 255.0, y, data.X_test / 255.0, y_test)


def _adult(home: str | None) -> Split:
    return _split(datasets.load_adult(home))


def _standin(home: str | None, kind: Literal["letter", "appliances"], n_train: int) -> Split:
    """Generated rows; for tests only."""
    make = {"letter": datasets.make_letter_standin, "appliances": datasets.make_appliances_standin}[kind]
    return _split(make(n_train=n_train))


LOADERS: dict[str, Callable[..., Split]] = {
    "letter": _letter,
    "letter-unit": _letter_unit,
    "letter-against-rest": _letter_against_rest,
    "energy": _energy,
    "mnist-pair": _mnist_pair,
    "mnist-parity": _mnist_parity,
    "adult": _adult,
    "standin": _standin,
}


@lru_cache(maxsize=2)
def load_split(key: DataKey, data_home: str | None = None) -> Split:
    """Return the data that ``key`` names: a loader of `LOADERS` and its arguments. The last two are kept.

    Examples
    --------
    >>> load_split(("standin", "letter", 40)).X.shape
    (40, 16)
    """
    name, *arguments = key
    if name not in LOADERS:
        raise ValueError(f"Unknown data {name!r}. Use one of {sorted(LOADERS)}.")
    return LOADERS[name](data_home, *arguments)
