"""Recombination: a few rows with the sums of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.coresets.recombine import Basis, eliminate, recombine


def table(n: int = 40_000, m: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_t(3, size=(n, m)) + 100.0 * np.arange(m), rng.choice([-1.0, 1.0], size=n)


@pytest.mark.parametrize(("n", "d"), [(3, 2), (40, 7), (200, 150), (300, 40)])
def test_elimination_keeps_the_sums_and_leaves_as_many_weights_as_the_rank(n, d):
    rng = np.random.default_rng(n)
    values, weights = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))]), rng.uniform(0.1, 1.0, size=n)
    new = eliminate(values, weights)
    assert (new >= 0.0).all()
    assert np.count_nonzero(new) == d
    np.testing.assert_allclose(new @ values, weights @ values, atol=1e-11)


def test_dependent_numbers_need_no_rows():
    rng = np.random.default_rng(0)
    values = np.column_stack([np.ones(50), rng.normal(size=(50, 3))])
    values = np.column_stack([values, values[:, 1] + values[:, 2], values[:, 3]])
    assert np.count_nonzero(eliminate(values, np.full(50, 0.02))) == 4


def test_a_largest_weight_is_kept():
    rng = np.random.default_rng(1)
    values, weights = np.column_stack([np.ones(60), rng.normal(size=(60, 2))]), np.full(60, 1.0 / 60)
    new = eliminate(values, weights, 0.1)
    assert new.max() <= 0.1
    assert 10 <= np.count_nonzero(new) <= 13
    np.testing.assert_allclose(new @ values, weights @ values, atol=1e-14)


@pytest.mark.parametrize("rare", [False, True])
def test_the_sums_of_all_rows_are_those_of_a_few(rare):
    X, _ = table()
    if rare:  # ten of 40,000 rows have it
        X = np.column_stack([X, np.where(np.arange(len(X)) % 4000 == 0, 1.0, 0.0)])
    weights = np.full(len(X), 1.0 / len(X))
    basis = Basis.of(X, weights)
    assert basis.rank == X.shape[1]
    values = basis.apply(X)
    parts = [recombine(values[half::2], weights[half::2]) for half in (0, 1)]
    together = np.concatenate([half + 2 * rows for half, (rows, _) in enumerate(parts)])
    again, merged = recombine(values[together], np.concatenate([new for _, new in parts]))
    for rows, new in (recombine(values, weights), (together[again], merged)):
        assert rows.size <= 4 * (X.shape[1] + 1)
        np.testing.assert_allclose(new @ X[rows], X.mean(axis=0), rtol=1e-10)
        assert new.sum() == pytest.approx(1.0, abs=1e-13)


def test_a_constant_column_has_no_direction():
    assert Basis.of(np.array([[2.0, 0.0], [2.0, 2.0]]), np.full(2, 0.5)).rank == 1
