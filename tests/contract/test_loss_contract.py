"""What every loss promises, asked of every loss. A new one is one line in ``LOSS_OBJECTS``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dualcore.problem.losses import (
    LOSSES,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MarginLoss,
    Pinball,
    Power,
    ResidualLoss,
    SmoothHinge,
    Squared,
    SquaredHinge,
)
from own_losses import LogCosh

LOSS_OBJECTS: list[Loss] = [
    Logistic(),
    Hinge(),
    SmoothHinge(),
    SquaredHinge(),
    Huber(),
    Huber(delta=0.01),
    Huber(delta=30.0),
    Pinball(),
    Pinball(quantile=0.05),
    Pinball(quantile=0.9),
    EpsilonInsensitive(),
    EpsilonInsensitive(epsilon=0.0),
    EpsilonInsensitive(epsilon=2.5),
    Absolute(),
    Squared(),
    Power(3.5),
    LogCosh(),
]
# Powers of ten on both sides, zero, and a fine grid where the losses bend.
WIDE = np.concatenate([-np.geomspace(1e8, 1e-8, 161), [0.0], np.geomspace(1e-8, 1e8, 161)])
NEAR = np.linspace(-40.0, 40.0, 4001)


@pytest.fixture(params=LOSS_OBJECTS, ids=repr)
def loss(request) -> Loss:
    return request.param


def corners(loss: Loss) -> np.ndarray:
    return np.array(sorted({*loss.kinks, *loss.bends}))


def away_from_corners(loss: Loss, t: np.ndarray, distance: np.ndarray | float) -> np.ndarray:
    """The ``t`` that have no kink or bend within ``distance``."""
    gaps = np.abs(t[:, None] - corners(loss)[None, :])
    return t[(gaps > np.broadcast_to(distance, t.shape)[:, None]).all(axis=1)]


def test_the_contract_covers_every_registered_loss():
    assert set(LOSSES.values()) <= {type(loss) for loss in LOSS_OBJECTS}


def test_arithmetic_holds_at_any_margin(loss):
    with np.errstate(all="raise", under="ignore"):
        results = [loss.value(WIDE), loss.slope(WIDE), loss.curvature(WIDE), *loss.value_and_slope(WIDE)]
    for result in results:
        assert result.shape == WIDE.shape
        assert result.dtype == np.float64
        assert np.isfinite(result).all()


def test_float32_arguments_lose_nothing_but_digits(loss):
    narrow = away_from_corners(loss, WIDE, 1e-6).astype(np.float32)  # a kink is only as sharp as its argument
    wide = narrow.astype(np.float64)
    with np.errstate(all="raise", under="ignore"):
        pairs = [(loss.value(narrow), loss.value(wide)), (loss.slope(narrow), loss.slope(wide))]
    for got, expected in pairs:
        assert np.isfinite(got).all()
        # An argument is known to six digits, so a loss that subtracts a constant near it is known to that absolutely.
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


def test_arguments_are_left_alone_and_results_are_new_arrays_of_their_shape(loss):
    """Callers write into values and slopes, so these must not share memory with the argument."""
    t, s = WIDE.copy(), np.linspace(-1.0, 0.0, 11)
    t.flags.writeable = s.flags.writeable = False
    for result in (loss.value(t), loss.slope(t), *loss.value_and_slope(t)):
        assert not np.shares_memory(result, t)
        assert result.flags.writeable
    loss.curvature(t), loss.conjugate(s)
    if isinstance(loss, MarginLoss):
        loss.flip_gain(t)
    np.testing.assert_array_equal(t, WIDE)
    assert loss.value(np.empty(0)).shape == loss.slope(np.empty(0)).shape == (0,)
    np.testing.assert_array_equal(loss.value(np.array([0.7])), loss.value(np.array([0.7, -3.0]))[:1])


def test_the_value_is_non_negative_and_convex(loss):
    value = loss.value(NEAR)
    assert (value >= 0.0).all()
    middle = loss.value(0.5 * (NEAR[:-1] + NEAR[1:]))
    assert (middle <= 0.5 * (value[:-1] + value[1:]) + 1e-12 * (1.0 + value[1:])).all()


def test_the_slope_is_the_derivative_of_the_value(loss):
    step = 1e-6 * (1.0 + np.abs(NEAR))
    t = away_from_corners(loss, NEAR, 2.0 * step)
    step = 1e-6 * (1.0 + np.abs(t))
    difference = (loss.value(t + step) - loss.value(t - step)) / (2.0 * step)
    np.testing.assert_allclose(loss.slope(t), difference, rtol=1e-6, atol=1e-7)


def test_the_curvature_is_the_derivative_of_the_slope(loss):
    step = 1e-5
    t = away_from_corners(loss, NEAR, 3e-3)  # the default curvature is itself a difference over up to 4e-4
    difference = (loss.slope(t + step) - loss.slope(t - step)) / (2.0 * step)
    np.testing.assert_allclose(loss.curvature(t), difference, rtol=1e-4, atol=1e-6)
    assert (loss.curvature(WIDE) >= 0.0).all()


def test_the_slope_is_a_subgradient_everywhere(loss):
    """Kinks included: ``L(u) >= L(t) + L'(t) (u - t)``."""
    t = np.concatenate([corners(loss), NEAR[::40], corners(loss) + 1e-9, corners(loss) - 1e-9])
    value, slope = loss.value(t), loss.slope(t)
    others = loss.value(NEAR)
    tangent = value[:, None] + slope[:, None] * (NEAR[None, :] - t[:, None])
    assert (others[None, :] >= tangent - 1e-9 * (1.0 + np.abs(tangent))).all()


def test_value_and_slope_agree_with_each_alone(loss):
    t = np.concatenate([WIDE, NEAR, corners(loss)])
    value, slope = loss.value_and_slope(t)
    np.testing.assert_allclose(value, loss.value(t), rtol=1e-14, atol=0.0)
    np.testing.assert_allclose(slope, loss.slope(t), rtol=1e-14, atol=0.0)


def test_the_kinks_are_where_the_slope_jumps(loss):
    for kink in loss.kinks:
        before, after = loss.slope(np.array([kink - 1e-9, kink + 1e-9]))
        assert after - before > 1e-3, f"the slope does not jump at {kink}"
    # Elsewhere: follow the larger half of the rise of every interval until a jump is all that could be left of it.
    left = np.linspace(-40.0, 40.0, 8001)[:-1]
    right = left + 0.01
    free = np.array([not any(a <= kink <= b for kink in loss.kinks) for a, b in zip(left, right, strict=True)])
    left, right = left[free], right[free]
    for _ in range(25):
        middle = 0.5 * (left + right)
        low, here, high = loss.slope(left), loss.slope(middle), loss.slope(right)
        lower = here - low > high - here
        left, right = np.where(lower, left, middle), np.where(lower, middle, right)
    assert (loss.slope(right) - loss.slope(left)).max() < 1e-6


def test_the_bends_are_where_the_curvature_jumps(loss):
    for bend in loss.bends:
        before, after = loss.curvature(np.array([bend - 1e-6, bend + 1e-6]))
        assert abs(after - before) > 1e-3, f"the curvature does not jump at {bend}"
        assert abs(np.diff(loss.slope(np.array([bend - 1e-9, bend + 1e-9])))[0]) < 1e-7
    smooth = away_from_corners(loss, NEAR, 0.02)
    joined = np.diff(smooth) < 0.021
    steepest = max(1.0, float(np.abs(loss.curvature(smooth)).max()))
    assert (np.abs(np.diff(loss.curvature(smooth)))[joined] < 0.02 * steepest).all()


def test_the_lipschitz_constant_is_the_largest_slope_and_all_slopes_fill_their_range(loss):
    low, high = loss.slope_range
    slope = loss.slope(WIDE)
    steepest = np.abs(slope).max()
    assert (slope >= low).all()
    assert (slope <= high).all()
    if loss.order > 1:
        assert loss.lipschitz == np.inf
        assert steepest > 1e7
    else:
        assert steepest <= loss.lipschitz
        assert steepest == pytest.approx(loss.lipschitz, rel=1e-12)
        assert slope.min() == pytest.approx(low, abs=1e-12)
        assert slope.max() == pytest.approx(high, abs=1e-12)


def test_fenchel_young_holds_with_equality_at_the_slope(loss):
    t = NEAR[::20]
    slope = loss.slope(t)
    equal = loss.value(t) + loss.conjugate(slope) - slope * t
    np.testing.assert_allclose(equal, 0.0, atol=1e-9 * (1.0 + np.abs(slope * t).max()))
    low, high = (max(loss.slope_range[0], -50.0), min(loss.slope_range[1], 50.0))
    s = np.linspace(low, high, 101)
    gap = loss.value(t)[None, :] + loss.conjugate(s)[:, None] - s[:, None] * t[None, :]
    assert (gap >= -1e-9 * (1.0 + np.abs(s[:, None] * t[None, :]))).all()


def test_the_conjugate_is_the_supremum(loss):
    low, high = (max(loss.slope_range[0], -50.0), min(loss.slope_range[1], 50.0))
    for s in np.linspace(low, high, 23)[1:-1]:
        found = minimize_scalar(
            lambda t, s=s: float(loss.value(np.array([t]))[0] - s * t),
            bounds=(-60.0, 60.0),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert float(loss.conjugate(np.array([s]))[0]) == pytest.approx(-found.fun, rel=1e-7, abs=1e-7)


def test_the_conjugate_is_finite_on_the_slope_range_and_infinite_outside(loss):
    low, high = loss.slope_range
    if np.isfinite(low):
        assert np.isinf(loss.conjugate(np.array([low - 1e-6]))).all()
        assert np.isfinite(loss.conjugate(np.array([low]))).all()
    if np.isfinite(high):
        assert np.isinf(loss.conjugate(np.array([high + 1e-6]))).all()
        assert np.isfinite(loss.conjugate(np.array([high]))).all()


def test_a_loss_without_curvature_has_pieces_that_make_it(loss):
    assert (loss.pieces is None) == (loss.curvature(np.linspace(-3.0, 3.0, 601)).max() > 0.0)
    if loss.pieces is not None:
        pieces = np.max([slope * NEAR + offset for slope, offset in loss.pieces], axis=0)
        np.testing.assert_allclose(loss.value(NEAR), pieces, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("loss", [loss for loss in LOSS_OBJECTS if loss.envelope_of is not None], ids=repr)
def test_the_envelope_makes_the_loss(loss):
    for t in np.linspace(-3.0, 3.0, 25) * max(1.0, loss.lipschitz):
        found = minimize_scalar(
            lambda v, t=t: max(slope * (t - v) + offset for slope, offset in loss.envelope_of) + 0.5 * v * v,
            bounds=(-2.0 * loss.lipschitz - 1.0, 2.0 * loss.lipschitz + 1.0),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert float(loss.value(np.array([t]))[0]) == pytest.approx(found.fun, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("loss", [loss for loss in LOSS_OBJECTS if isinstance(loss, MarginLoss)], ids=repr)
def test_a_margin_loss_falls_and_gains_by_flips(loss):
    assert (np.diff(loss.value(NEAR)) <= 0.0).all()
    gain = loss.flip_gain(NEAR)
    np.testing.assert_allclose(gain, loss.value(-NEAR) - loss.value(NEAR), rtol=1e-12, atol=1e-12)
    assert (np.diff(gain) >= 0.0).all()


@pytest.mark.parametrize("loss", [loss for loss in LOSS_OBJECTS if isinstance(loss, ResidualLoss)], ids=repr)
def test_a_residual_loss_vanishes_where_the_prediction_is_right(loss):
    assert loss.value(np.zeros(1))[0] == 0.0


def test_the_representation_builds_the_loss_again(loss):
    namespace = {cls.__name__: cls for cls in [*LOSSES.values(), LogCosh]}
    again = eval(repr(loss), namespace)
    np.testing.assert_array_equal(again.value(NEAR), loss.value(NEAR))


def test_a_broken_loss_breaks_its_contract():
    """The contract can fail: each of these losses lies in one thing."""
    for method, breakage in [
        (test_the_slope_is_the_derivative_of_the_value, {"slope": lambda self, t: np.full_like(t, 0.5)}),
        (test_the_lipschitz_constant_is_the_largest_slope_and_all_slopes_fill_their_range, {"lipschitz": 1.01}),
        (test_the_kinks_are_where_the_slope_jumps, {"kinks": (0.5,)}),
        (test_the_kinks_are_where_the_slope_jumps, {"slope": lambda self, t: np.sign(t)}),
        (test_the_bends_are_where_the_curvature_jumps, {"bends": (0.5,)}),
        (test_fenchel_young_holds_with_equality_at_the_slope, {"conjugate": lambda self, s: 0.25 * s * s}),
        (test_the_conjugate_is_the_supremum, {"conjugate": lambda self, s: 0.25 * s * s}),
        (test_the_value_is_non_negative_and_convex, {"value": lambda self, t: np.sqrt(np.abs(t))}),
        (test_arithmetic_holds_at_any_margin, {"value": lambda self, t: np.log(np.cosh(t))}),
        (test_arguments_are_left_alone_and_results_are_new_arrays_of_their_shape, {"slope": lambda self, t: t}),
    ]:
        broken = type("Broken", (LogCosh,), breakage)()
        with pytest.raises((AssertionError, FloatingPointError)):
            method(broken)
