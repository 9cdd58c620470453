"""Losses by name, their parameters, and values worked out by hand. What all losses share is in ``tests/contract``."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.problem.losses import (
    LOSSES,
    EpsilonInsensitive,
    Huber,
    Logistic,
    MarginLoss,
    Pinball,
    ResidualLoss,
    SquaredHinge,
    get_loss,
)

# name, parameters, t, L(t), L'(t)
BY_HAND = [
    ("logistic", {}, 0.0, np.log(2.0), -0.5),
    ("logistic", {}, -1e8, 1e8, -1.0),
    ("logistic", {}, 800.0, 0.0, 0.0),
    ("logistic", {}, 30.0, np.log1p(np.exp(-30.0)), -np.exp(-30.0)),
    ("hinge", {}, 0.25, 0.75, -1.0),
    ("hinge", {}, 3.0, 0.0, 0.0),
    ("smooth_hinge", {}, 2.0, 0.0, 0.0),
    ("smooth_hinge", {}, 0.5, 0.125, -0.5),
    ("smooth_hinge", {}, -3.0, 3.5, -1.0),
    ("squared_hinge", {}, -1.0, 4.0, -4.0),
    ("squared_hinge", {}, 1.5, 0.0, 0.0),
    ("huber", {"delta": 2.0}, 1.0, 0.5, 1.0),
    ("huber", {"delta": 2.0}, -5.0, 8.0, -2.0),
    ("pinball", {"quantile": 0.9}, -2.0, 1.8, -0.9),
    ("pinball", {"quantile": 0.9}, 2.0, 0.2, 0.1),
    ("epsilon_insensitive", {"epsilon": 0.5}, 0.4, 0.0, 0.0),
    ("epsilon_insensitive", {"epsilon": 0.5}, -2.0, 1.5, -1.0),
    ("absolute", {}, -3.0, 3.0, -1.0),
    ("squared", {}, -3.0, 9.0, -6.0),
]


@pytest.mark.parametrize(("name", "parameters", "t", "value", "slope"), BY_HAND)
def test_values_and_slopes_worked_out_by_hand(name, parameters, t, value, slope):
    loss = get_loss(name, **parameters)
    assert loss.value(np.array([t]))[0] == pytest.approx(value, rel=1e-14, abs=1e-300)
    assert loss.slope(np.array([t]))[0] == pytest.approx(slope, rel=1e-12, abs=1e-300)


def test_every_name_finds_its_class():
    assert {name: type(get_loss(name)) for name in LOSSES} == LOSSES
    assert all(cls.name == name for name, cls in LOSSES.items())
    assert {name for name, cls in LOSSES.items() if issubclass(cls, MarginLoss)} == {
        "logistic",
        "hinge",
        "smooth_hinge",
        "squared_hinge",
    }
    assert all(issubclass(cls, (MarginLoss, ResidualLoss)) for cls in LOSSES.values())
    assert {name for name in LOSSES if get_loss(name).order == 2} == {"squared", "squared_hinge"}
    assert get_loss("power", power=1.5).order == 1.5


def test_a_loss_object_passes_through():
    loss = Huber(delta=0.5)
    assert get_loss(loss) is loss
    with pytest.raises(TypeError, match=r"already a Huber: give it \['delta'\] when you build it"):
        get_loss(loss, delta=1.0)


def test_an_unknown_loss_lists_the_known_ones():
    for bad in ["Hinge", "l2", "", "squared hinge"]:
        with pytest.raises(ValueError, match=r"Unknown loss .* Use one of \['absolute', .*'squared_hinge'\]"):
            get_loss(bad)


def test_a_loss_of_another_type_is_refused():
    for bad in [None, 1, Huber, np.square]:
        with pytest.raises(TypeError, match=r"loss must be a name or a dualcore\.problem\.losses\.Loss object, not"):
            get_loss(bad)


def test_a_parameter_the_loss_does_not_have_is_named():
    with pytest.raises(TypeError, match=r"Loss 'hinge' does not take the parameters \['delta'\]"):
        get_loss("hinge", delta=1.0)


def test_huber_delta_must_be_positive():
    for delta in [0.0, -1.0, np.nan, np.inf]:
        with pytest.raises(ValueError, match="Huber delta must be positive and finite, got"):
            get_loss("huber", delta=delta)


def test_the_quantile_must_lie_strictly_between_zero_and_one():
    for quantile in [0.0, 1.0, -0.2, 1.2, np.nan]:
        with pytest.raises(ValueError, match="quantile must lie strictly between 0 and 1, got"):
            get_loss("pinball", quantile=quantile)


def test_epsilon_must_not_be_negative():
    for epsilon in [-1e-9, np.nan, np.inf]:
        with pytest.raises(ValueError, match="epsilon must be non-negative and finite, got"):
            get_loss("epsilon_insensitive", epsilon=epsilon)


def test_a_parameter_of_the_wrong_type_is_called_that():
    for name, parameter in [("huber", "delta"), ("pinball", "quantile"), ("epsilon_insensitive", "epsilon")]:
        with pytest.raises(TypeError, match=f"{parameter} must be a number, got str"):
            get_loss(name, **{parameter: "large"})


def test_the_parameters_shape_the_loss():
    assert Huber(delta=0.7).lipschitz == 0.7
    assert Pinball(quantile=0.2).lipschitz == 0.8
    assert Pinball(quantile=0.2).slope_range == (-0.2, 0.8)
    assert EpsilonInsensitive(epsilon=0.3).kinks == (-0.3, 0.3)
    assert EpsilonInsensitive(epsilon=0.0).kinks == (0.0,)


def test_a_pinball_of_quantile_q_is_least_at_the_q_quantile():
    y = np.random.default_rng(0).standard_normal(501)
    loss = Pinball(quantile=0.8)
    best = min(y, key=lambda guess: loss.value(guess - y).mean())
    assert best == np.quantile(y, 0.8)


def test_representations_show_the_parameters():
    assert repr(Huber(delta=0.5)) == "Huber(delta=0.5)"
    assert repr(Logistic()) == "Logistic()"
    assert repr(Pinball(quantile=0.25)) == "Pinball(quantile=0.25)"


def test_the_logistic_gain_of_a_flip_is_the_margin():
    """``L(-z) - L(z) = z`` exactly, also where both losses are too large to be subtracted."""
    z = np.array([-1e8, -3.0, 0.0, 1e-9, 1e8])
    np.testing.assert_array_equal(Logistic().flip_gain(z), z)


def test_the_squared_hinge_is_for_order_two():
    assert SquaredHinge.order == 2
    assert SquaredHinge().lipschitz == np.inf
