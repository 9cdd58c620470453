"""Losses by name, their parameters, and values worked out by hand. What all losses share is in ``tests/contract``."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.problem.losses import LOSSES, EpsilonInsensitive, Huber, Logistic, MarginLoss, Pinball, get_loss

# name, parameters, t, L(t), L'(t)
BY_HAND = [
    ("logistic", {}, 0.0, np.log(2.0), -0.5),
    ("logistic", {}, -1e8, 1e8, -1.0),
    ("logistic", {}, 800.0, 0.0, 0.0),
    ("logistic", {}, 30.0, np.log1p(np.exp(-30.0)), -np.exp(-30.0)),
    ("hinge", {}, 0.25, 0.75, -1.0),
    ("smooth_hinge", {}, 0.5, 0.125, -0.5),
    ("smooth_hinge", {}, -3.0, 3.5, -1.0),
    ("squared_hinge", {}, -1.0, 4.0, -4.0),
    ("huber", {"delta": 2.0}, 1.0, 0.5, 1.0),
    ("huber", {"delta": 2.0}, -5.0, 8.0, -2.0),
    ("pinball", {"quantile": 0.9}, -2.0, 1.8, -0.9),
    ("pinball", {"quantile": 0.9}, 2.0, 0.2, 0.1),
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
    margins = {name for name, cls in LOSSES.items() if issubclass(cls, MarginLoss)}
    assert margins == {"logistic", "hinge", "smooth_hinge", "squared_hinge"}
    assert {name for name in LOSSES if get_loss(name).order == 2} == {"squared", "squared_hinge"}
    assert get_loss("power", power=1.5).order == 1.5


def test_a_pinball_of_quantile_q_is_least_at_the_q_quantile():
    y = np.random.default_rng(0).standard_normal(501)
    loss = Pinball(quantile=0.8)
    best = min(y, key=lambda guess: loss.value(guess - y).mean())
    assert best == np.quantile(y, 0.8)


def test_the_logistic_gain_of_a_flip_is_the_margin():
    """``L(-z) - L(z) = z`` exactly, also where both losses are too large to be subtracted."""
    z = np.array([-1e8, -3.0, 0.0, 1e-9, 1e8])
    np.testing.assert_array_equal(Logistic().flip_gain(z), z)


def test_a_loss_object_passes_through_and_shows_its_parameters():
    loss = Huber(delta=0.5)
    assert get_loss(loss) is loss
    assert repr(loss) == "Huber(delta=0.5)"
    assert EpsilonInsensitive(epsilon=0.0).kinks == (0.0,)


@pytest.mark.parametrize(
    ("loss", "name", "values", "error", "message"),
    [
        (Huber(), "delta", [1.0], TypeError, r"already a Huber: give it \['delta'\] when you build it"),
        ("squared hinge", None, [0], ValueError, r"Unknown loss .* Use one of \['absolute', .*'squared_hinge'\]"),
        (np.square, None, [0], TypeError, r"loss must be a name or a dualcore\.problem\.losses\.Loss object, not"),
        ("hinge", "delta", [1.0], TypeError, r"Loss 'hinge' does not take the parameters \['delta'\]"),
        ("huber", "delta", [0.0, -1.0, np.nan, np.inf], ValueError, "Huber delta must be positive and finite, got"),
        ("pinball", "quantile", [0.0, 1.0, np.nan], ValueError, "quantile must lie strictly between 0 and 1, got"),
        ("epsilon_insensitive", "epsilon", [-1e-9, np.inf], ValueError, "epsilon must be non-negative and finite, got"),
        ("huber", "delta", ["large"], TypeError, "delta must be a number, got str"),
    ],
)
def test_what_is_no_loss_is_refused(loss, name, values, error, message):
    for value in values:
        with pytest.raises(error, match=message):
            get_loss(loss, **({} if name is None else {name: value}))
