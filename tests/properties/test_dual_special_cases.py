"""Special cases of the dual that are known otherwise: radius 0, prices at their ends, changes of units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualcore.problem.geometry import get_norm
from reference.brute_force import plain_losses
from reference.cases import (
    LOSS_NAMES,
    MARGIN_LOSSES,
    cases,
)

any_loss = st.sampled_from(LOSS_NAMES)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_radius_zero_is_empirical_risk(loss, data):
    case = data.draw(cases(loss)).replace(radius=0.0)
    plain = case.masses @ plain_losses(case)
    risk = case.problem.risk(*case.model, *case.data, case.weights)
    assert risk == pytest.approx(plain, rel=1e-12, abs=1e-15)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_an_infinite_label_cost_is_norm_regularisation(loss, data):
    case = data.draw(cases(loss, label_cost=np.inf))
    plain = case.masses @ plain_losses(case)
    size = np.linalg.norm(case.coef, {"l1": np.inf, "l2": 2, "linf": 1}[case.norm])
    if case.order == 1:
        steepest = case.parameters.get("delta", 1.0)
        if "quantile" in case.parameters:
            steepest = max(case.parameters["quantile"], 1.0 - case.parameters["quantile"])
        expected = plain + case.radius * steepest * size
    else:
        expected = (np.sqrt(plain) + case.radius * size) ** 2
    assert case.problem.risk(*case.model, *case.data, case.weights) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_a_label_cost_too_high_to_pay_is_an_infinite_one(loss, data):
    case = data.draw(cases(loss, label_cost=np.inf))
    assume(np.any(case.coef != 0.0))
    dear = case.replace(label_cost=1e6).problem.risk(*case.model, *case.data, case.weights)
    assert dear == pytest.approx(case.problem.risk(*case.model, *case.data, case.weights), rel=1e-12)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_the_ridge_is_added_to_the_risk(loss, data):
    case = data.draw(cases(loss))
    arguments = (*case.model, *case.data, case.weights)
    ridged = case.problem.replace(ridge=0.3)
    extra = 0.15 * float(case.coef @ case.coef)
    assert ridged.risk(*arguments) == pytest.approx(case.problem.risk(*arguments) + extra, rel=1e-12, abs=1e-15)
    assert ridged.multiplier(*arguments) == case.problem.multiplier(*arguments)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_a_repeated_row_is_a_heavier_row(loss, data):
    case = data.draw(cases(loss))
    counts = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(case.y), max_size=len(case.y))))
    heavy = case.replace(weights=counts.astype(float))
    many = case.replace(X=np.repeat(case.X, counts, axis=0), y=np.repeat(case.y, counts), weights=None)
    expected = many.problem.risk(*many.model, *many.data)
    assert heavy.problem.risk(*heavy.model, *heavy.data, heavy.weights) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    one, other = (c.problem.gradient(*c.model, *c.data, c.weights) for c in (heavy, many))
    if len(set(map(tuple, np.column_stack([case.X, case.y])))) == len(case.y):  # ties may be split in several ways
        moments = [c.problem.risk(c.coef + 1e-3, c.intercept, *c.data, c.weights) for c in (heavy, many)]
        assert moments[0] == pytest.approx(moments[1], rel=1e-9, abs=1e-15)
    assert np.isfinite(one.coef).all()
    assert np.isfinite(other.coef).all()


@settings(max_examples=80)
@given(any_loss, st.data())
def test_weights_are_relative_and_rows_of_no_mass_do_not_matter(loss, data):
    case = data.draw(cases(loss))
    arguments = (*case.model, *case.data)
    risk = case.problem.risk(*arguments, case.masses)
    assert case.problem.risk(*arguments, 17.0 * case.masses) == pytest.approx(risk, rel=1e-12, abs=1e-15)
    more = case.replace(
        X=np.vstack([case.X, 100.0 * case.X[:1]]), y=np.append(case.y, case.y[0]), weights=np.append(case.masses, 0.0)
    )
    assert more.problem.risk(*more.model, *more.data, more.weights) == pytest.approx(risk, rel=1e-12, abs=1e-15)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_the_order_of_the_rows_does_not_matter(loss, data):
    case = data.draw(cases(loss))
    order = np.array(data.draw(st.permutations(range(len(case.y)))))
    shuffled = case.problem.risk(*case.model, case.X[order], case.y[order], case.masses[order])
    expected = case.problem.risk(*case.model, *case.data, case.masses)
    assert shuffled == pytest.approx(expected, rel=1e-12, abs=1e-15)


@settings(max_examples=80)
@given(any_loss, st.data())
def test_a_change_of_units_changes_nothing(loss, data):
    """Features in other units, with the radius and the label cost in the same units."""
    case, unit = data.draw(cases(loss)), data.draw(st.sampled_from((1e-3, 0.5, 8.0, 1e3)))
    scaled = case.replace(
        X=unit * case.X, coef=case.coef / unit, radius=unit * case.radius, label_cost=unit * case.label_cost
    )
    expected = case.problem.risk(*case.model, *case.data, case.weights)
    assert scaled.problem.risk(*scaled.model, *scaled.data, case.weights) == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


@settings(max_examples=80)
@given(any_loss, st.data())
def test_feature_weights_are_units_of_single_features(loss, data):
    """A feature that costs ``a`` a unit is the same feature measured in units of ``1 / a`` at the common price."""
    case = data.draw(cases(loss))
    prices = np.array([data.draw(st.sampled_from((1.0, 0.25, 3.0, 50.0))) for _ in case.coef])
    priced = case.problem.replace(norm=get_norm(case.norm, prices))
    scaled = case.replace(X=case.X * prices, coef=case.coef / prices)
    expected = scaled.problem.risk(*scaled.model, *scaled.data, case.weights)
    assert priced.risk(*case.model, *case.data, case.weights) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert priced.kappa(case.coef) == pytest.approx(scaled.problem.kappa(scaled.coef), rel=1e-12)
    score = case.X @ case.coef + case.intercept
    signal = case.y * score if case.problem.is_classification else score - case.y
    for kink in case.problem.loss.kinks:  # there the gradient is not unique, and rounding chooses one
        assume((np.abs(signal - kink) > 1e-9).all())
    gradient = scaled.problem.gradient(*scaled.model, *scaled.data, case.weights)
    found = priced.gradient(*case.model, *case.data, case.weights)
    np.testing.assert_allclose(found.coef, gradient.coef / prices, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", MARGIN_LOSSES)
@settings(max_examples=20)
@given(data=st.data())
def test_the_two_classes_are_treated_alike(loss, data):
    case = data.draw(cases(loss))
    expected = case.problem.risk(*case.model, *case.data, case.weights)
    mirrored = case.problem.risk(-case.coef, -case.intercept, case.X, -case.y, case.weights)
    assert mirrored == pytest.approx(expected, rel=1e-12, abs=1e-15)
