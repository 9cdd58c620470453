"""The estimators against scikit-learn where the radius is 0."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import HuberRegressor, LinearRegression, LogisticRegression, QuantileRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from dualcore.estimators import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
)


@pytest.fixture(scope="module")
def labelled():
    """Two overlapping classes: without a penalty a minimiser must exist."""
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[:, [1, 4, 8, 9, 14]]), y


@pytest.fixture(scope="module")
def targets():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return StandardScaler().fit_transform(X), (y - y.mean()) / y.std()


def assert_no_worse_and_certified(model, coef, intercept, X, y, tol=1e-6):
    """The peer's model cannot beat ours by more than ``tol``, nor fall short of it by more (it converged as well)."""
    theirs = model.problem_.risk(np.ravel(coef), float(np.squeeze(intercept)), X, y)
    assert model.worst_case_risk_ == pytest.approx(theirs, rel=tol)
    assert model.certificate_.lower <= theirs * (1 + 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_without_penalty(labelled, fit_intercept):
    X, y = labelled
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000, fit_intercept=fit_intercept).fit(X, y)
    model = WassersteinLogisticRegression(radius=0.0, fit_intercept=fit_intercept).fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, np.where(y == 1, 1.0, -1.0))
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-4)


def test_logistic_regression_with_ridge_and_weights(labelled):
    X, y = labelled
    C = 0.3
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=10000, class_weight="balanced").fit(X, y)
    model = WassersteinLogisticRegression(radius=0.0, ridge=1 / (C * len(y)), class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-3, atol=1e-4)


def test_huber_regression(targets):
    """scikit-learn estimates a scale too; given it, coefficients minimise the Huber loss of delta = epsilon * scale."""
    X, y = targets
    peer = HuberRegressor(epsilon=1.35, alpha=0.0, tol=1e-10, max_iter=10000).fit(X, y)
    model = WassersteinHuberRegressor(delta=1.35 * peer.scale_, radius=0.0).fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, y)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), atol=2e-3)


def test_least_squares(targets):
    X, y = targets
    peer = LinearRegression().fit(X, y)
    model = WassersteinLinearRegression(radius=0.0).fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, y)
    assert model.worst_case_risk_ == pytest.approx(np.mean((y - peer.predict(X)) ** 2), rel=1e-6)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_quantile_regression_and_its_lasso(targets, quantile, alpha):
    """An l1 penalty on the coefficients is a radius in the linf norm."""
    X, y = targets
    with np.errstate(all="ignore"):
        peer = QuantileRegressor(quantile=quantile, alpha=alpha, solver="highs").fit(X, y)
    radius = alpha / max(quantile, 1 - quantile)
    model = WassersteinQuantileRegressor(quantile=quantile, radius=radius, norm="linf").fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, y)


def test_support_vector_machines(labelled, targets):
    X, y = labelled
    C = 0.05
    peer = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)
    model = WassersteinLinearSVC(radius=0.0, ridge=1 / (C * len(y))).fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, np.where(y == 1, 1.0, -1.0))
    X, y = targets
    peer = SVR(kernel="linear", C=C, epsilon=0.2, tol=1e-8).fit(X, y)
    model = WassersteinLinearSVR(epsilon=0.2, radius=0.0, ridge=1 / (C * len(y))).fit(X, y)
    assert_no_worse_and_certified(model, peer.coef_, peer.intercept_, X, y)
