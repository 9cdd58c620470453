"""New weights with given sums: recombination; calibration, exact where it can be and never worse than before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualcore.coresets.weights import Basis, calibrate, eliminate, recombine


@pytest.mark.parametrize(("n", "d"), [(3, 2), (40, 7), (200, 150), (300, 40)])
def test_elimination_keeps_the_sums_and_leaves_as_many_weights_as_the_rank(n, d):
    rng = np.random.default_rng(n)
    values, weights = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))]), rng.uniform(0.1, 1.0, size=n)
    new = eliminate(values, weights)
    assert (new >= 0.0).all()
    assert np.count_nonzero(new) == d
    np.testing.assert_allclose(new @ values, weights @ values, atol=1e-11)


def test_dependent_numbers_and_constants_need_no_rows():
    values = np.column_stack([np.ones(50), np.random.default_rng(0).normal(size=(50, 3))])
    values = np.column_stack([values, values[:, 1] + values[:, 2], values[:, 3]])
    assert np.count_nonzero(eliminate(values, np.full(50, 0.02))) == 4
    assert Basis.of(np.array([[2.0, 0.0], [2.0, 2.0]]), np.full(2, 0.5)).rank == 1


def test_a_largest_weight_is_kept():
    rng = np.random.default_rng(1)
    values, weights = np.column_stack([np.ones(60), rng.normal(size=(60, 2))]), np.full(60, 1.0 / 60)
    new = eliminate(values, weights, 0.1)
    assert new.max() <= 0.1
    assert 10 <= np.count_nonzero(new) <= 13
    np.testing.assert_allclose(new @ values, weights @ values, atol=1e-14)


@pytest.mark.parametrize("rare", [False, True])
def test_the_sums_of_all_rows_are_those_of_a_few(rare):
    X = np.random.default_rng(0).standard_t(3, size=(40_000, 5)) + 100.0 * np.arange(5)
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


# Calibration


def problem_of(seed: int, size: int, k: int, shift: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 2.0, size=size)
    weights /= weights.sum()
    moments = rng.normal(size=(size, k)) * 10.0 ** rng.uniform(-3, 3, size=k) + rng.normal(size=k)
    spread = np.sqrt(weights @ (moments - weights @ moments) ** 2)
    return weights, moments, weights @ moments + shift * spread * rng.normal(size=k) / np.sqrt(size)


def distance(moments: np.ndarray, weights: np.ndarray, targets: np.ndarray, start: np.ndarray) -> float:
    """How far moments are from their targets, in units of their spread under the weights it began with."""
    basis = Basis.of(moments, start)
    have, asked = basis.apply(np.array([weights @ moments, targets]))
    return float(np.linalg.norm(have - asked))


@given(seed=st.integers(0, 10**6), k=st.integers(1, 8), many=st.integers(8, 40))
def test_moments_are_reproduced_where_there_are_many_more_rows_than_moments(seed, k, many):
    weights, moments, targets = problem_of(seed, (k + 1) * many, k)
    result = calibrate(weights, moments, targets)
    assert (result >= 0.0).all()
    assert result.sum() == pytest.approx(1.0, abs=1e-13)
    assert distance(moments, result, targets, weights) <= 1e-8


@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 12), k=st.integers(1, 12), shift=st.sampled_from((0.1, 1.0, 30.0))
)
def test_below_the_number_of_moments_it_comes_as_near_as_it_can(seed, size, k, shift):
    weights, moments, targets = problem_of(seed, size, k, shift)
    result = calibrate(weights, moments, targets)
    assert (result >= 0.0).all()
    assert result.sum() == pytest.approx(1.0, abs=1e-12)
    before, after = distance(moments, weights, targets, weights), distance(moments, result, targets, weights)
    assert after <= before * (1.0 + 1e-6) + 1e-9


def test_weights_that_fit_already_stay():
    weights, moments, _ = problem_of(0, 40, 3)
    result = calibrate(weights, moments, weights @ moments)
    np.testing.assert_allclose(result, weights, rtol=1e-12)


def test_the_weights_move_as_little_as_possible():
    """The optimality conditions: ``u / w - 1`` is affine in the moments on the rows kept, and negative on the rest."""
    rng = np.random.default_rng(3)
    weights, moments, _ = problem_of(3, 40, 2)
    goal = weights * rng.exponential(size=40) * (moments[:, 0] > np.quantile(moments[:, 0], 0.4))
    targets = goal @ moments / goal.sum()
    new = calibrate(weights, moments, targets)
    assert distance(moments, new, targets, weights) <= 1e-7
    kept = new > 0.0
    assert 0 < np.count_nonzero(kept) < 40
    design = np.column_stack([np.ones(40), moments / moments.std(axis=0)])
    lift, *_ = np.linalg.lstsq(design[kept], new[kept] / weights[kept] - 1.0)
    np.testing.assert_allclose(design[kept] @ lift, new[kept] / weights[kept] - 1.0, atol=1e-7)
    assert (design[~kept] @ lift <= -1.0 + 1e-7).all()


def test_moments_without_spread_are_left_out():
    moments = np.column_stack([np.full(6, 3.0), np.arange(6.0)])
    result = calibrate(np.full(6, 1.0 / 6.0), moments, np.array([99.0, 3.0]))
    assert result @ moments[:, 1] == pytest.approx(3.0, abs=1e-7)
    assert (result > 0.0).all()


def test_a_target_outside_the_hull_is_approached_from_inside():
    moments = np.arange(5.0)[:, None]
    assert calibrate(np.full(5, 0.2), moments, np.array([100.0])) @ moments[:, 0] == pytest.approx(4.0, abs=1e-3)
