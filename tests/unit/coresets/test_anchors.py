"""The pilot: a keyed sample by class, in proportion, and the model trained on it."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.data.keys import row_keys
from dualcore.data.sources import ArraySource
from dualcore.solvers.pilot import draw_pilot

PROBLEM = Problem("logistic", radius=0.1, label_cost=1.0)


def sample(n: int = 500, positive: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) < positive, 1.0, -1.0)
    return rng.normal(size=(n, 3)) + 0.5 * y[:, None], rng.permutation(y)


def test_each_class_gives_its_smallest_keys_in_proportion():
    X, y = sample()
    pilot = draw_pilot(PROBLEM, ArraySource(X, y), 50, seed=9)
    keys = row_keys(9, np.arange(500))
    expected = []
    for label, share in ((1.0, 10), (-1.0, 40)):
        rows = np.flatnonzero(y == label)
        expected += rows[np.argsort(keys[rows])[:share]].tolist()
    np.testing.assert_array_equal(pilot.rows, np.sort(expected))
    np.testing.assert_allclose(pilot.weights, 1.0 / 50, rtol=1e-13)
    np.testing.assert_array_equal(pilot.X, X[pilot.rows])
    np.testing.assert_array_equal(pilot.y, y[pilot.rows])


def test_classes_keep_their_mass_and_rows_without_weight_are_not_in_it():
    X, y = sample(1000, 1)
    pilot = draw_pilot(PROBLEM, ArraySource(X, y), 20, seed=0)
    assert (pilot.y > 0.0).sum() == 1
    assert pilot.weights[pilot.y > 0.0].sum() == pytest.approx(1e-3)
    X, y = sample()
    weights = np.where(np.arange(500) % 2, np.random.default_rng(1).uniform(size=500), 0.0)
    weights /= weights.sum()
    pilot = draw_pilot(PROBLEM, ArraySource(X, y, weights), 60, seed=0)
    assert (weights[pilot.rows] > 0.0).all()
    for label in (-1.0, 1.0):
        assert pilot.weights[pilot.y == label].sum() == pytest.approx(weights[y == label].sum())
