"""What every loss promises, asked of every loss.

`check_loss` asks most of it; `test_own_loss` holds it against losses that are broken in one thing each.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dualcore import check_loss
from dualcore.problem.losses import LOSSES, EpsilonInsensitive, Huber, Loss, Pinball, Power
from own_losses import LogCosh, RootHinge

LOSS_OBJECTS: list[Loss] = [
    *(cls() for cls in LOSSES.values()),
    Huber(delta=0.01),
    Huber(delta=30.0),
    Pinball(quantile=0.05),
    Pinball(quantile=0.9),
    EpsilonInsensitive(epsilon=0.0),
    EpsilonInsensitive(epsilon=2.5),
    Power(3.5),
    LogCosh(),
    RootHinge(),
]
NEAR = np.linspace(-40.0, 40.0, 4001)


@pytest.fixture(params=LOSS_OBJECTS, ids=repr)
def loss(request) -> Loss:
    return request.param


def corners(loss: Loss) -> np.ndarray:
    return np.array(sorted({*loss.kinks, *loss.curvature_jumps}))


def test_a_sound_loss_passes(loss):
    summary = check_loss(loss)
    assert repr(loss) in summary
    assert "checks passed" in summary


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
    smooth = NEAR[(np.abs(NEAR[:, None] - corners(loss)) > 0.02).all(axis=1)]
    joined = np.diff(smooth) < 0.021
    steepest = max(1.0, float(np.abs(loss.curvature(smooth)).max()))
    assert (np.abs(np.diff(loss.curvature(smooth)))[joined] < 0.02 * steepest).all()


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
