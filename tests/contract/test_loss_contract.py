"""What every loss promises, asked of every loss. A new one is one line in ``LOSS_OBJECTS``.

`check_loss` asks most of it; `test_own_loss` holds it against losses that are broken in one thing each.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dualcore import check_loss
from dualcore.problem.losses import (
    LOSSES,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Power,
    SmoothHinge,
    Squared,
    SquaredHinge,
)
from own_losses import LogCosh, RootHinge

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
    RootHinge(),
]
# Powers of ten on both sides, zero, and a fine grid where the losses bend.
WIDE = np.concatenate([-np.geomspace(1e8, 1e-8, 161), [0.0], np.geomspace(1e-8, 1e8, 161)])
NEAR = np.linspace(-40.0, 40.0, 4001)


@pytest.fixture(params=LOSS_OBJECTS, ids=repr)
def loss(request) -> Loss:
    return request.param


def corners(loss: Loss) -> np.ndarray:
    return np.array(sorted({*loss.kinks, *loss.curvature_jumps}))


def away_from_corners(loss: Loss, t: np.ndarray, distance: np.ndarray | float) -> np.ndarray:
    """The ``t`` that have no kink or bend within ``distance``."""
    gaps = np.abs(t[:, None] - corners(loss)[None, :])
    return t[(gaps > np.broadcast_to(distance, t.shape)[:, None]).all(axis=1)]


def test_the_contract_covers_every_registered_loss():
    assert set(LOSSES.values()) <= {type(loss) for loss in LOSS_OBJECTS}


def test_a_sound_loss_passes(loss):
    summary = check_loss(loss)
    assert repr(loss) in summary
    assert "checks passed" in summary


def test_float32_arguments_lose_nothing_but_digits(loss):
    narrow = away_from_corners(loss, WIDE, 1e-6).astype(np.float32)  # a kink is only as sharp as its argument
    wide = narrow.astype(np.float64)
    with np.errstate(all="raise", under="ignore"):
        pairs = [(loss.value(narrow), loss.value(wide)), (loss.slope(narrow), loss.slope(wide))]
    for got, expected in pairs:
        # An argument is known to six digits, so a loss that subtracts a constant near it is known to that absolutely.
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


def test_the_slope_is_a_subgradient_everywhere(loss):
    """Kinks included: ``L(u) >= L(t) + L'(t) (u - t)``."""
    t = np.concatenate([corners(loss), NEAR[::40], corners(loss) + 1e-9, corners(loss) - 1e-9])
    value, slope = loss.value(t), loss.slope(t)
    others = loss.value(NEAR)
    tangent = value[:, None] + slope[:, None] * (NEAR[None, :] - t[:, None])
    assert (others[None, :] >= tangent - 1e-9 * (1.0 + np.abs(tangent))).all()


def test_the_bends_are_where_the_curvature_jumps(loss):
    for bend in loss.curvature_jumps:
        before, after = loss.curvature(np.array([bend - 1e-6, bend + 1e-6]))
        assert abs(after - before) > 1e-3, f"the curvature does not jump at {bend}"
        assert abs(np.diff(loss.slope(np.array([bend - 1e-9, bend + 1e-9])))[0]) < 1e-7
    smooth = away_from_corners(loss, NEAR, 0.02)
    joined = np.diff(smooth) < 0.021
    steepest = max(1.0, float(np.abs(loss.curvature(smooth)).max()))
    assert (np.abs(np.diff(loss.curvature(smooth)))[joined] < 0.02 * steepest).all()


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


def test_the_representation_builds_the_loss_again(loss):
    namespace = {cls.__name__: cls for cls in [*LOSSES.values(), LogCosh, RootHinge]}
    again = eval(repr(loss), namespace)
    np.testing.assert_array_equal(again.value(NEAR), loss.value(NEAR))
