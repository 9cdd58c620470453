"""Losses cut into intervals of slopes: where the nodes lie, and values on the intervals."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem
from dualcore.solvers.moving.branches.curve import Curve
from pairs import every_value

LOSSES = ["logistic", "huber", "smooth_hinge"]


def curve_of(loss):
    return Curve(Problem(loss, radius=0.1, norm="l1", support=(0.0, 1.0)), 1.0 if loss == "huber" else -1.0)


@every_value(loss=LOSSES, apart=[np.inf, 0.1, 1e-3, 1e-5])
def test_nodes(loss, apart):
    curve = curve_of(loss)
    low = np.random.default_rng(0).uniform(0.02, 0.9, 20) * curve.steepest
    high = low + 0.01 * curve.steepest
    curve.cut(np.stack([low, high]), apart)
    assert (curve.nodes[0], curve.nodes[-1]) == (0.0, curve.steepest)
    assert (np.diff(curve.nodes) > 0.0).all()
    assert (np.diff(curve.ends) > 0.0).all()
    if apart > 1e-2:
        return
    # A node on either side of every range, no further away than two cells.
    for a, b in zip(low, high, strict=True):
        below, above = curve.nodes[curve.nodes < a].max(), curve.nodes[curve.nodes > b].min()
        assert max(a - below, above - b) <= 2.0 * apart


@pytest.mark.parametrize("loss", LOSSES)
def test_intervals_add_up_to_the_loss(loss):
    # The loss is the greatest of its parts, each continued by its tangents.
    curve = curve_of(loss)
    curve.cut(np.array([[0.3], [0.4]]) * curve.steepest, 0.01)
    e = np.linspace(0.0 if loss == "huber" else -6.0, 6.0, 101)
    value, slope = curve.at(np.repeat(e[:, None], curve.nodes.size - 1, axis=1))
    sign = curve.side
    np.testing.assert_allclose(value.max(axis=1), curve.loss.value(sign * e), rtol=0.0, atol=1e-12)
    assert ((slope >= curve.nodes[:-1]) & (slope <= curve.nodes[1:])).all()
