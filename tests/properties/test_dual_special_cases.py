"""Special cases of the dual that are known otherwise: radius 0, prices at their ends, changes of units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reference.brute_force import plain_losses
from reference.cases import LOSS_NAMES, Case, cases

each_loss = st.sampled_from(LOSS_NAMES)
any_case = each_loss.flatmap(cases)
no_flips = each_loss.flatmap(lambda loss: cases(loss, label_cost=np.inf))


def risk(case: Case) -> float:
    return case.problem.risk(*case.model, *case.data, case.weights)


def same(expected: float, rel: float = 1e-12, near: float = 1e-15) -> object:
    return pytest.approx(expected, rel=rel, abs=near)


@settings(max_examples=40)
@given(no_flips)
def test_an_infinite_label_cost_is_norm_regularisation(case):
    plain = case.masses @ plain_losses(case)
    size = np.linalg.norm(case.coef, {"l1": np.inf, "l2": 2, "linf": 1}[case.norm])
    if case.order == 1:
        steepest = case.parameters.get("delta", 1.0)
        if "quantile" in case.parameters:
            steepest = max(case.parameters["quantile"], 1.0 - case.parameters["quantile"])
        expected = plain + case.radius * steepest * size
    else:
        expected = (np.sqrt(plain) + case.radius * size) ** 2
    assert risk(case) == same(expected)


@settings(max_examples=60)
@given(any_case, st.lists(st.integers(1, 4), min_size=5, max_size=5))
def test_radius_zero_a_ridge_and_weights(case, counts):
    """Radius 0 is empirical risk, a ridge is added, weights are relative, and a repeated row is a heavier row."""
    arguments, expected = (*case.model, *case.data, case.weights), risk(case)
    assert risk(case.replace(radius=0.0)) == same(case.masses @ plain_losses(case))
    ridged = case.problem.replace(ridge=0.3)
    assert ridged.risk(*arguments) == same(expected + 0.15 * float(case.coef @ case.coef))
    assert ridged.multiplier(*arguments) == case.problem.multiplier(*arguments)
    assert risk(case.replace(weights=17.0 * case.masses)) == same(expected)
    X, y = np.vstack([case.X, 100.0 * case.X[:1]]), np.append(case.y, case.y[0])
    assert risk(case.replace(X=X, y=y, weights=np.append(case.masses, 0.0))) == same(expected)
    times = np.array(counts[: len(case.y)])
    many = case.replace(X=np.repeat(case.X, times, axis=0), y=np.repeat(case.y, times), weights=None)
    assert risk(case.replace(weights=times.astype(float))) == same(risk(many), rel=1e-9)


@settings(max_examples=60)
@given(any_case, st.sampled_from((1e-3, 0.5, 8.0, 1e3)), st.lists(st.sampled_from((1.0, 0.25, 3.0, 50.0)), min_size=3))
def test_units_change_nothing_and_feature_weights_are_units_of_single_features(case, unit, prices):
    """Features, radius and label cost in other units; a feature that costs ``a`` a unit, measured in ``1 / a``."""
    units = {"radius": unit * case.radius, "label_cost": unit * case.label_cost}
    assert risk(case.replace(X=unit * case.X, coef=case.coef / unit, **units)) == same(risk(case), 1e-9, 1e-12)
    prices = np.array(prices[: len(case.coef)])
    priced = case.problem.replace(feature_weights=prices)
    scaled = case.replace(X=case.X * prices, coef=case.coef / prices)
    assert priced.risk(*case.model, *case.data, case.weights) == same(risk(scaled), 1e-9, 1e-12)
    assert priced.kappa(case.coef) == pytest.approx(scaled.problem.kappa(scaled.coef), rel=1e-12)
    score = case.X @ case.coef + case.intercept
    signal = case.y * score if case.problem.is_classification else score - case.y
    for kink in case.problem.loss.kinks:  # there the gradient is not unique, and rounding chooses one
        assume((np.abs(signal - kink) > 1e-9).all())
    gradient = scaled.problem.gradient(*scaled.model, *scaled.data, case.weights)
    found = priced.gradient(*case.model, *case.data, case.weights)
    np.testing.assert_allclose(found.coef, gradient.coef / prices, rtol=1e-6, atol=1e-8)
