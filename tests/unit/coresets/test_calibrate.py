"""Calibration: exact where it can be, never negative, never worse than the weights it was given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from dualcore.coresets.calibrate import calibrate


def problem_of(seed: int, size: int, k: int, shift: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 2.0, size=size)
    weights /= weights.sum()
    moments = rng.normal(size=(size, k)) * 10.0 ** rng.uniform(-3, 3, size=k) + rng.normal(size=k)
    spread = np.sqrt(weights @ (moments - weights @ moments) ** 2)
    return weights, moments, weights @ moments + shift * spread * rng.normal(size=k) / np.sqrt(size)


def distance(moments: np.ndarray, weights: np.ndarray, targets: np.ndarray, start: np.ndarray) -> float:
    """How far moments are from their targets, in units of their spread under the weights it began with."""
    spread = np.sqrt(start @ (moments - start @ moments) ** 2)
    varied = spread > 1e-12 * np.abs(moments).max(axis=0)
    return float(np.linalg.norm((weights @ moments - targets)[varied] / spread[varied]))


@given(seed=st.integers(0, 10**6), k=st.integers(1, 8), many=st.integers(8, 40))
def test_moments_are_reproduced_where_there_are_many_more_rows_than_moments(seed, k, many):
    weights, moments, targets = problem_of(seed, (k + 1) * many, k)
    result = calibrate(weights, moments, targets)
    assert (result.weights >= 0.0).all()
    assert result.weights.sum() == pytest.approx(1.0, abs=1e-13)
    assert distance(moments, result.weights, targets, weights) <= 1e-8
    assert result.residual <= 1e-8


@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 12), k=st.integers(1, 12), shift=st.sampled_from((0.1, 1.0, 30.0))
)
def test_below_the_number_of_moments_it_comes_as_near_as_it_can(seed, size, k, shift):
    weights, moments, targets = problem_of(seed, size, k, shift)
    result = calibrate(weights, moments, targets)
    assert (result.weights >= 0.0).all()
    assert result.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.isfinite(result.residual)
    before, after = distance(moments, weights, targets, weights), distance(moments, result.weights, targets, weights)
    assert after <= before * (1.0 + 1e-6) + 1e-9


def test_weights_that_fit_already_stay():
    weights, moments, _ = problem_of(0, 40, 3)
    result = calibrate(weights, moments, weights @ moments)
    np.testing.assert_allclose(result.weights, weights, rtol=1e-12)
    assert result.residual <= 1e-12


def test_the_weights_move_as_little_as_possible():
    """The optimality conditions: ``u / w - 1`` is affine in the moments on the rows kept, and negative on the rest."""
    rng = np.random.default_rng(3)
    weights, moments, _ = problem_of(3, 40, 2)
    goal = weights * rng.exponential(size=40) * (moments[:, 0] > np.quantile(moments[:, 0], 0.4))
    targets = goal @ moments / goal.sum()
    new = calibrate(weights, moments, targets).weights
    assert distance(moments, new, targets, weights) <= 1e-7
    kept = new > 0.0
    assert 0 < np.count_nonzero(kept) < 40
    design = np.column_stack([np.ones(40), moments / moments.std(axis=0)])
    lift, *_ = np.linalg.lstsq(design[kept], new[kept] / weights[kept] - 1.0)
    np.testing.assert_allclose(design[kept] @ lift, new[kept] / weights[kept] - 1.0, atol=1e-7)
    assert (design[~kept] @ lift <= -1.0 + 1e-7).all()


@pytest.mark.parametrize(("size", "k"), [(100, 800), (60, 90)])
def test_more_moments_than_rows_take_a_few_systems_of_the_rows(monkeypatch, size, k):
    """Wide text: the optimum of the soft problem, by systems no larger than the rows, and a few of them."""
    weights, moments, targets = problem_of(5, size, k, shift=3.0)
    sizes = []
    solve = np.linalg.solve

    def counted(matrix, right):
        sizes.append(matrix.shape[0])
        return solve(matrix, right)

    monkeypatch.setattr(np.linalg, "solve", counted)
    softness = 1e-5
    new = calibrate(weights, moments, targets, softness=softness).weights
    assert max(sizes) <= size
    assert len(sizes) <= 25
    spread = np.sqrt(weights @ moments**2 - (weights @ moments) ** 2)
    basis = np.column_stack([np.ones(size), (moments - weights @ moments) / spread])
    goal = np.append(1.0, (targets - weights @ moments) / spread)
    root, soft = np.sqrt(weights), np.sqrt(np.append(1e-3 * softness, np.full(k, softness)))
    stacked = np.vstack([np.eye(size), (basis / soft).T * root])
    best = root * nnls(stacked, np.concatenate([root, goal / soft]))[0]
    assert 0 < np.count_nonzero(new) < size
    np.testing.assert_allclose(new, best / best.sum(), atol=1e-9)


def test_moments_without_spread_are_left_out():
    weights = np.full(6, 1.0 / 6.0)
    moments = np.column_stack([np.full(6, 3.0), np.arange(6.0)])
    result = calibrate(weights, moments, np.array([99.0, 3.0]))
    assert result.weights @ moments[:, 1] == pytest.approx(3.0, abs=1e-7)
    assert (result.weights > 0.0).all()


def test_a_target_outside_the_hull_is_approached_from_inside():
    weights = np.full(5, 0.2)
    moments = np.arange(5.0)[:, None]
    result = calibrate(weights, moments, np.array([100.0]))
    assert result.weights @ moments[:, 0] == pytest.approx(4.0, abs=1e-3)
    assert result.residual > 1.0
