"""Recombination: a few rows with the sums of all rows, whatever the cutting and the order of merging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dualcore.coresets.recombine import Basis, NearRule, eliminate, find_basis, find_means, recombine
from dualcore.data.sources import ArraySource, PartsSource


@dataclass(frozen=True)
class Plain:
    """The columns themselves, and the distance of the first from zero."""

    n_columns: int

    def values(self, X, y):
        return np.ascontiguousarray(X)

    def distances(self, X, y):
        return np.abs(X[:, 0])


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


def test_the_sums_of_all_rows_are_those_of_a_few():
    X, y = table()
    source, features = ArraySource(X, y), Plain(5)
    basis = find_basis(source, features)
    np.testing.assert_allclose(basis.centre, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(find_means(source, features), X.mean(axis=0), rtol=1e-13)
    found = recombine(source, features, basis, NearRule(0.0, 0), 7)
    assert len(found.pool) <= 48
    np.testing.assert_allclose(found.pool.weights @ found.pool.X, X.mean(axis=0), rtol=1e-13)
    assert found.pool.weights.sum() == pytest.approx(1.0, abs=1e-13)


def test_rows_near_a_kink_are_kept_apart_with_their_masses():
    X, y = table()
    X[:, 0] -= X[:, 0].mean()
    source, features = ArraySource(X, y), Plain(5)
    found = recombine(source, features, find_basis(source, features), NearRule(1e-3, 1000), 7)
    near = np.flatnonzero(np.abs(X[:, 0]) < 1e-3)
    np.testing.assert_array_equal(np.sort(found.near.rows), near)
    np.testing.assert_allclose(found.near.weights, 1.0 / len(y), rtol=1e-14)
    assert (np.diff(found.distances) >= 0.0).all()
    total = found.pool.weights @ found.pool.X + found.near.weights @ found.near.X
    np.testing.assert_allclose(total, X.mean(axis=0), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("step", [997, 16_384, 40_000])
def test_neither_cutting_nor_order_shows(step):
    X, y = table()
    features = Plain(5)

    def parts():
        for start in range(0, len(y), step):
            yield X[start : start + step], y[start : start + step]

    whole, cut = ArraySource(X, y), PartsSource(parts)
    found = [recombine(each, features, find_basis(each, features), NearRule(0.5, 50), 7) for each in (whole, cut)]
    for one, other in zip(found[0], found[1], strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_equal(one.rows, other.rows)
            np.testing.assert_array_equal(one.weights, other.weights)


def test_a_rare_column_is_not_lost():
    """Ten of 40,000 rows have it: a basis from a sample would not see it."""
    X, y = table()
    X = np.column_stack([X, np.zeros(len(y))])
    X[::4000, 5] = 1.0
    source, features = ArraySource(X, y), Plain(6)
    basis = find_basis(source, features)
    assert basis.rank == 6
    pool = recombine(source, features, basis, NearRule(0.0, 0), 7).pool
    assert pool.weights @ pool.X[:, 5] == pytest.approx(10 / 40_000, rel=1e-10)


def test_a_constant_column_has_no_direction():
    second = np.array([[4.0, 2.0], [2.0, 2.0]])  # of a constant 2, and of a number of mean 1 and variance 1
    assert Basis.of(np.array([2.0, 1.0]), second).rank == 1
