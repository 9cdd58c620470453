"""`feature_weights="std"`: the model of standardised columns, in raw units."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from dualcore import (
    Problem,
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    open_source,
)
from dualcore.problem.geometry import L1Norm
from estimator_cases import ESTIMATORS, is_classifier
from pairs import every_value

SIZES = np.array([1.0, 100.0, 0.01, 5.0])


def rows(kind: type, n: int = 120, seed: int = 0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    X = Z * SIZES + np.array([3.0, -50.0, 0.0, 100.0])
    signal = Z @ [1.0, -1.0, 0.5, 0.2] + 0.5 * rng.normal(size=n)
    return X, (np.where(signal > 0.0, "yes", "no") if is_classifier(kind) else signal)


def assert_same(raw, standard, scaler, X, rtol=1e-7):
    """A raw model and one of standardised columns are the same."""
    coef = np.atleast_2d(standard.coef_) / scaler.scale_
    intercept = np.atleast_1d(standard.intercept_)
    if scaler.with_mean:
        intercept = intercept - coef @ scaler.mean_
    np.testing.assert_allclose(np.atleast_2d(raw.coef_), coef, rtol=rtol, atol=rtol * np.abs(coef).max())
    np.testing.assert_allclose(np.atleast_1d(raw.intercept_), intercept, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(raw.worst_case_risk_, standard.worst_case_risk_, rtol=1e-10)


@every_value(kind=ESTIMATORS, settings=[{}, {"ridge": 0.3}, {"norm": "linf", "ridge": 0.01}, {"norm": "l1"}])
def test_the_model_is_that_of_standardised_columns(kind, settings):
    X, y = rows(kind)
    weights = np.random.default_rng(1).random(y.size)
    scaler = StandardScaler().fit(X, sample_weight=weights)
    raw = kind(radius=0.05, feature_weights="std", **settings).fit(X, y, weights)
    assert_same(raw, kind(radius=0.05, **settings).fit(scaler.transform(X), y, weights), scaler, X)
    np.testing.assert_allclose(raw.feature_weights_, 1.0 / scaler.scale_, rtol=1e-12)
    warm = clone(raw).set_params(warm_start=True).fit(X, y, weights)
    assert warm.fit(X, y, weights).worst_case_risk_ == pytest.approx(raw.worst_case_risk_, rel=1e-5)
    # The problem is stated for raw rows, and every evaluation agrees.
    assert raw.worst_case_risk(X, y, weights) == pytest.approx(raw.worst_case_risk_, rel=1e-10)
    labels = np.where(y == "yes", 1.0, -1.0) if is_classifier(kind) else y
    risk = raw.problem_.risk(np.ravel(raw.coef_), float(np.squeeze(raw.intercept_)), X, labels, weights)
    assert risk == pytest.approx(raw.worst_case_risk_, rel=1e-10)
    if not is_classifier(kind):
        source = open_source(X, labels, weights)
        assert raw.worst_case_risk(source) == pytest.approx(raw.worst_case_risk_, rel=1e-9)


@every_value(kind=[WassersteinLinearSVC, WassersteinLogisticRegression], ridge=[0.0, 0.1])
def test_boxes_are_in_raw_units(kind, ridge):
    X, y = rows(kind)
    low, high = X.min(axis=0), X.max(axis=0)
    scaler = StandardScaler().fit(X)
    inner = (low - scaler.mean_) / scaler.scale_ - 1e-12, (high - scaler.mean_) / scaler.scale_ + 1e-12
    settings = {"radius": 0.3, "norm": "l1", "ridge": ridge}
    raw = kind(feature_weights="std", support=(low, high), **settings).fit(X, y)
    theirs = kind(support=inner, **settings).fit(scaler.transform(X), y)
    assert raw.worst_case_risk_ == pytest.approx(theirs.worst_case_risk_, rel=1e-6)
    assert raw.worst_case_risk(X, y) == pytest.approx(raw.worst_case_risk_, rel=1e-9)
    worst = raw.worst_case_distribution(X, y)
    np.testing.assert_allclose(worst.X, np.clip(worst.X, low, high), atol=1e-9 * SIZES.max())
    X[7, 1], numbers = high[1] + 1.0, np.arange(float(len(X))) % 2
    for call, data in ((raw.certify, (X, y)), (raw.fit, (X, y)), (raw.fit, (open_source(X, numbers),))):
        with pytest.raises(ValueError, match=rf"Row 7 lies .* feature 1 is {X[7, 1]:.6}.*{high[1]:.6}"):
            call(*data)


def test_one_hot_columns_stay_as_they_are():
    X, y = rows(WassersteinLogisticRegression, 300)
    codes = np.eye(3)[np.random.default_rng(5).integers(3, size=300)]
    whole, groups = np.hstack([codes, X]), [[0, 1, 2]]
    settings = {"radius": 0.05, "categories": groups, "category_cost": 2.0, "ridge": 0.01}
    raw = WassersteinLogisticRegression(feature_weights="std", **settings).fit(whole, y)
    scaler = StandardScaler().fit(X)
    theirs = WassersteinLogisticRegression(**settings).fit(np.hstack([codes, scaler.transform(X)]), y)
    assert raw.worst_case_risk_ == pytest.approx(theirs.worst_case_risk_, rel=1e-8)
    np.testing.assert_allclose(raw.coef_[:, 3:], theirs.coef_[:, 3:] / scaler.scale_, rtol=1e-4)
    np.testing.assert_array_equal(raw.feature_weights_[:3], 1.0)


@pytest.mark.parametrize("multi_class", ["ovr", "multinomial"])
def test_more_than_two_classes(multi_class):
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(150, 4))
    y = np.argmax(Z[:, :3] + 0.3 * rng.normal(size=(150, 3)), axis=1)
    X, scaler = Z * SIZES, StandardScaler().fit(Z * SIZES)
    settings = {"radius": 0.02, "ridge": 0.05, "multi_class": multi_class}
    raw = WassersteinLogisticRegression(feature_weights="std", **settings).fit(X, y)
    assert_same(raw, WassersteinLogisticRegression(**settings).fit(scaler.transform(X), y), scaler, X)
    np.testing.assert_allclose(raw.worst_case_risk(X, y), raw.worst_case_risk_, rtol=1e-9)
    source = open_source(X, y.astype(float))
    np.testing.assert_allclose(raw.worst_case_risk(source), raw.worst_case_risk_, rtol=1e-9)
    again = WassersteinLogisticRegression(feature_weights="std", **settings).fit(source)
    np.testing.assert_allclose(again.worst_case_risk_, raw.worst_case_risk_, rtol=1e-4)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_sparse_columns_are_divided_and_not_centred(ridge):
    rng = np.random.default_rng(3)
    X = sp.random(200, 4, density=0.4, random_state=4, format="csr") @ sp.diags(SIZES)
    y = np.where(X @ (1.0 / SIZES) + 0.2 * rng.normal(size=200) > 0.6, 1, 0)
    scaler = StandardScaler(with_mean=False).fit(X)
    raw = WassersteinLogisticRegression(feature_weights="std", ridge=ridge).fit(X, y)
    assert_same(raw, WassersteinLogisticRegression(ridge=ridge).fit(scaler.transform(X), y), scaler, X)
    dense = WassersteinLogisticRegression(feature_weights="std", ridge=ridge).fit(X.toarray(), y)
    assert dense.worst_case_risk_ == pytest.approx(raw.worst_case_risk_, rel=1e-5)
    assert raw.worst_case_risk(X, y) == pytest.approx(raw.worst_case_risk_, rel=1e-9)


@every_value(fit_intercept=[True, False], kind=[WassersteinLogisticRegression, WassersteinLinearRegression])
def test_constant_columns_have_the_coefficient_0(kind, fit_intercept):
    X, y = rows(kind)
    X = np.insert(X, 1, 7.0, axis=1)
    for data in (X, sp.csr_matrix(X)):
        model = kind(feature_weights="std", ridge=0.1, fit_intercept=fit_intercept).fit(data, y)
        assert (np.atleast_2d(model.coef_)[:, 1] == 0.0).all()
        assert np.isfinite(model.feature_weights_).all()
        coreset = model.set_params(coreset=60, random_state=0).fit(data, y).coreset_
        np.testing.assert_allclose(sp.csr_matrix(coreset.X).toarray(), X[coreset.indices], rtol=1e-9, atol=1e-12)
    if kind is WassersteinLogisticRegression:
        box = kind(feature_weights="std", support=(X.min(axis=0), np.inf)).fit(X, y)
        assert (box.coef_[:, 1] == 0.0).all()


def test_parts_keep_the_units_of_the_first():
    X, y = rows(WassersteinHuberRegressor, 900)
    model = WassersteinHuberRegressor(feature_weights="std", ridge=0.1, random_state=0)
    model.partial_fit(X[:300], y[:300])
    first = model.feature_weights_.copy()
    np.testing.assert_allclose(first, 1.0 / X[:300].std(axis=0), rtol=1e-12)
    model.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.feature_weights_, first)
    whole = WassersteinHuberRegressor(feature_weights="std", ridge=0.1).fit(X, y)
    assert model.score(X, y) == pytest.approx(whole.score(X, y), abs=1e-3)
    np.testing.assert_allclose(model.coreset_.X, X[model.coreset_.indices], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_a_radius_is_chosen_in_the_same_units(ridge):
    X, y = rows(WassersteinLogisticRegression)
    scaler = StandardScaler().fit(X)
    raw = WassersteinLogisticRegressionCV(feature_weights="std", ridge=ridge, radii=4, cv=3).fit(X, y)
    theirs = WassersteinLogisticRegressionCV(ridge=ridge, radii=4, cv=3).fit(scaler.transform(X), y)
    np.testing.assert_allclose(raw.radii_, theirs.radii_, rtol=1e-9)
    np.testing.assert_allclose(raw.scores_, theirs.scores_, rtol=1e-8)
    assert_same(raw, theirs, scaler, X)
    labels = np.where(y == "yes", 1.0, -1.0)
    over = clone(raw).fit(open_source(X, labels))
    np.testing.assert_allclose(over.radii_, raw.radii_, rtol=1e-6)
    box = clone(raw).set_params(radii=[0.01, 0.1], support=(X.min(axis=0), X.max(axis=0)), norm="l1").fit(X, y)
    assert box.worst_case_risk(X, y) == pytest.approx(box.worst_case_risk_, rel=1e-9)
    huber = WassersteinHuberRegressorCV(feature_weights="std", radii=3, cv=3).fit(X, labels)
    assert huber.feature_weights_ == pytest.approx(raw.feature_weights_)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_an_infinite_price_holds_a_feature_still(kind):
    """With a radius that silences all other features only the immovable one is left; its coefficient is free."""
    X, y = rows(kind)
    X = X / SIZES
    fixed = kind(radius=50.0, feature_weights=[1.0, np.inf, 1.0, 1.0], tol=1e-8).fit(X, y)
    alone = kind(radius=0.0, tol=1e-8).fit(X[:, [1]], y)
    coef = np.atleast_2d(fixed.coef_)
    assert np.abs(coef[:, [0, 2, 3]]).max() < 1e-5
    np.testing.assert_allclose(coef[:, 1], np.atleast_2d(alone.coef_)[:, 0], atol=2e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature_weights": [1.0, 2.0]}, "2 prices but X has 4"),
        ({"feature_weights": [1.0, 0.0, 2.0, 1.0]}, "positive"),
        ({"feature_weights": "var"}, "feature_weights must be 'std', None or one positive number"),
        ({"feature_weights": "std", "norm": L1Norm(np.ones(4))}, "norm has weights already"),
    ],
)
def test_what_is_no_price_is_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        WassersteinLinearSVC(**settings).fit(*rows(WassersteinLinearSVC))


def test_a_problem_with_a_ridge_for_each_feature_evaluates_and_is_not_solved():
    X, y = np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([1.0, -1.0])
    one, each = Problem("hinge", radius=0.1, ridge=0.5), Problem("hinge", radius=0.1, ridge=[0.5, 0.5])
    coef = np.array([0.3, -0.2])
    assert one.risk(coef, 0.1, X, y) == pytest.approx(each.risk(coef, 0.1, X, y), rel=1e-15)
    np.testing.assert_allclose(one.gradient(coef, 0.1, X, y).coef, each.gradient(coef, 0.1, X, y).coef)
    assert each != one
    assert each == each.replace(radius=0.1)
    assert hash(each) == hash(each.replace())
    with pytest.raises(TypeError, match="a ridge for each feature"):
        _ = each.ridge
    with pytest.raises(ValueError, match="ridge holds 2 numbers but X has 1"):
        each.risk([1.0], 0.0, X[:, :1], y)
    with pytest.raises(ValueError, match="got shape"):
        Problem("hinge", ridge=np.ones((2, 2)))
    with pytest.raises(ValueError, match="ridge must be finite and non-negative"):
        Problem("hinge", ridge=[1.0, -1.0])
