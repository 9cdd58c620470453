"""Calibration: exact where it can be, never negative, never worse than the weights it was given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualcore.coresets.calibrate import calibrate
from dualcore.coresets.recombine import Basis


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
    weights = np.full(6, 1.0 / 6.0)
    moments = np.column_stack([np.full(6, 3.0), np.arange(6.0)])
    result = calibrate(weights, moments, np.array([99.0, 3.0]))
    assert result @ moments[:, 1] == pytest.approx(3.0, abs=1e-7)
    assert (result > 0.0).all()


def test_a_target_outside_the_hull_is_approached_from_inside():
    weights = np.full(5, 0.2)
    moments = np.arange(5.0)[:, None]
    result = calibrate(weights, moments, np.array([100.0]))
    assert result @ moments[:, 0] == pytest.approx(4.0, abs=1e-3)
