"""Caps say ``lam >= kappa(theta)``: values, gradients and curvature."""

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers.moving.bundle.caps import LengthCaps, find_caps
from pairs import every_pair

OPEN = (np.array([-np.inf, 0.0, -1.0, -np.inf]), np.array([np.inf, np.inf, 1.0, 0.5]))


@every_pair(
    # With linf coefficients are always split.
    pytest.mark.parametrize(("norm", "parts"), [("l1", 1), ("l2", 1), ("l1", 2), ("l2", 2), ("linf", 2)]),
    loss=["hinge", "absolute", "pinball"],
    prices=[None, [0.5, 2.0, 1.0, 3.0]],
)
def test_caps_hold_exactly_from_kappa_on(loss: str, norm: str, parts: int, prices: list[float] | None) -> None:
    parameters = {"quantile": 0.2} if loss == "pinball" else {}
    problem = Problem(loss, radius=0.1, norm=norm, support=OPEN, feature_weights=prices, **parameters)
    box, rng = problem.family, np.random.default_rng(0)
    scale = np.append(np.tile([1.0, 2.0, 0.5, 3.0], parts), [1.0, 4.0])
    caps = find_caps(box, scale, parts, np.arange(scale.size), 0.0)
    for _ in range(50):
        coef = rng.normal(size=4)
        split = coef if parts == 1 else np.concatenate([np.maximum(coef, 0.0), np.maximum(-coef, 0.0)])
        largest = caps.at(np.append(split, [0.3, 0.0]) * scale)[0].max()
        assert largest == pytest.approx(box.kappa(coef), rel=1e-12)
        at_kappa = caps.at(np.append(split, [0.3, box.kappa(coef)]) * scale)[0].max()
        assert at_kappa == pytest.approx(0.0, abs=1e-12)


def test_gradients_and_curvature_of_lengths() -> None:
    rng = np.random.default_rng(1)
    up, down = rng.uniform(size=(2, 4)), rng.uniform(size=(2, 4))
    up[:, -1] = down[:, -1] = 0.0
    caps = LengthCaps(up, down, np.array([0.0, 0.0, 0.0, -1.0]), 1e-3)
    x, weights, step = rng.normal(size=4), np.array([0.7, 1.9]), 1e-6
    gradient = np.stack([(caps.at(x + e)[0] - caps.at(x - e)[0]) / (2 * step) for e in step * np.eye(4)], axis=1)
    np.testing.assert_allclose(caps.at(x)[1], gradient, atol=1e-8)
    hessian = [(weights @ caps.at(x + e)[1] - weights @ caps.at(x - e)[1]) / (2 * step) for e in step * np.eye(4)]
    np.testing.assert_allclose(caps.curvature(x, weights), hessian, atol=1e-7)


def test_a_box_with_all_walls_has_no_caps() -> None:
    for norm in ("l1", "l2", "linf"):
        box = Problem("hinge", radius=0.1, norm=norm, support=(0.0, 1.0)).family
        scale = np.ones(8)
        assert len(find_caps(box, scale, 2, np.arange(8), 0.0)) == 0
