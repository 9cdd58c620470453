"""Norms, their duals, steepest directions and projections; the cost of a label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualcore.problem.geometry import Norm, get_norm

NAMES = ("l1", "l2", "linf")
ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
DUALS = {"l1": "linf", "l2": "l2", "linf": "l1"}
numbers = st.integers(-300, 300).map(lambda k: k / 10.0)
vectors = st.lists(numbers, min_size=1, max_size=6).map(np.array)


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


def directions(norm: Norm, m: int, count: int = 400) -> np.ndarray:
    """Vectors of norm 1, many of them on edges."""
    rng = np.random.default_rng(0)
    v = rng.standard_normal((count, m)) * (rng.random((count, m)) < 0.7)
    v = v[np.any(v != 0.0, axis=1)]
    return np.array([u / norm.value(u) for u in v])


@settings(max_examples=40)
@given(coef=vectors)
def test_norms_are_those_of_numpy_and_a_dual_is_the_largest_product_with_a_unit_vector(coef):
    for name in NAMES:
        norm = get_norm(name)
        assert norm.value(coef) == pytest.approx(np.linalg.norm(coef, ORDERS[name]), rel=1e-14)
        assert norm.dual(coef) == pytest.approx(np.linalg.norm(coef, ORDERS[DUALS[name]]), rel=1e-14)
        products = directions(norm, len(coef)) @ coef
        assert products.max(initial=0.0) <= norm.dual(coef) * (1.0 + 1e-12)
        steepest = norm.steepest(coef)
        assert coef @ steepest == pytest.approx(norm.dual(coef), rel=1e-12)
        assert norm.value(steepest) == pytest.approx(1.0 if np.any(coef != 0.0) else 0.0, rel=1e-12)


@pytest.mark.parametrize("weights", [[2.0, 0.5, 1.0], [1.0, np.inf, 3.0], [np.inf, np.inf, 1e-3]])
def test_feature_weights_price_each_feature(name, weights):
    """``||W v||`` and its dual ``||theta / W||_*``; an infinite weight forbids moving the feature."""
    prices, coef = np.array(weights), np.array([1.5, -2.0, 0.7])
    norm = get_norm(name, prices)
    movable = np.isfinite(prices)
    plain = get_norm(name)
    v = np.where(movable, [0.3, -1.0, 2.0], 0.0)
    assert norm.value(v) == pytest.approx(plain.value((v * np.where(movable, prices, 0.0))[movable]), rel=1e-14)
    assert norm.dual(coef) == pytest.approx(plain.dual((coef / prices)[movable]), rel=1e-14)
    steepest = norm.steepest(coef)
    assert (steepest[~movable] == 0.0).all()
    assert norm.value(steepest) == pytest.approx(1.0, rel=1e-12)
    assert coef @ steepest == pytest.approx(norm.dual(coef), rel=1e-12)


@settings(max_examples=50)
@given(vector=vectors, radius=st.sampled_from((0.0, 0.1, 1.0, 20.0, 1e3)))
def test_projections_land_in_the_ball_at_the_nearest_point(vector, radius):
    rng = np.random.default_rng(0)
    for name in NAMES:
        norm = get_norm(name)
        before = vector.copy()
        nearest = norm.project(vector, radius)
        np.testing.assert_array_equal(vector, before)
        assert not np.shares_memory(nearest, vector)
        assert norm.value(nearest) <= radius * (1.0 + 1e-12) + 1e-15
        if norm.value(vector) <= radius:
            np.testing.assert_array_equal(nearest, vector)
        # The angle at the nearest point is obtuse towards every other point of the ball.
        others = radius * directions(norm, len(vector), 60) * rng.random((1, 1))
        products = (others - nearest) @ (vector - nearest)
        assert products.max(initial=-np.inf) <= 1e-9 * (1.0 + vector @ vector)


def test_the_check_on_projections_notices_a_wrong_one():
    vector, scaled = np.array([3.0, 1.0]), np.array([0.75, 0.25])  # scaled back to the l1 ball, but not the nearest
    products = (directions(get_norm("l1"), 2, 60) - scaled) @ (vector - scaled)
    assert products.max() > 0.1


def test_weighted_projections_lie_in_the_ball_and_do_not_overflow(name):
    for weights, vector in (([2.0, 0.5, 1.0], [5.0, -4.0, 3.0]), ([1.0, np.inf, 3.0], [1.0, 1e10, 3.0])):
        norm = get_norm(name, np.array(weights))
        assert norm.value(norm.project(np.array(vector), 1.5)) <= 1.5 * (1.0 + 1e-12)
