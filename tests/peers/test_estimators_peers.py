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


def assert_no_worse_and_certified(model, peer, X, y, tol=1e-6):
    """The peer's model cannot beat ours by more than ``tol``, nor fall short of it by more (it converged as well)."""
    with np.errstate(all="ignore"):
        peer.fit(X, y)
    model.fit(X, y)
    y = np.where(y == 1, 1.0, -1.0) if hasattr(model, "classes_") else y
    theirs = model.problem_.risk(np.ravel(peer.coef_), float(np.squeeze(peer.intercept_)), X, y)
    assert model.worst_case_risk_ == pytest.approx(theirs, rel=tol)
    assert model.certificate_.lower <= theirs * (1 + 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_without_penalty(labelled, fit_intercept):
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000, fit_intercept=fit_intercept)
    model = WassersteinLogisticRegression(radius=0.0, fit_intercept=fit_intercept)
    assert_no_worse_and_certified(model, peer, *labelled)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(labelled[0]), peer.predict_proba(labelled[0]), atol=1e-4)


def test_logistic_regression_with_ridge_and_weights(labelled):
    X, y = labelled
    C = 0.3
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=10000, class_weight="balanced").fit(X, y)
    model = WassersteinLogisticRegression(radius=0.0, ridge=1 / (C * len(y)), class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-3, atol=1e-4)


def test_huber_regression_and_least_squares(targets):
    """scikit-learn estimates a scale too; given it, coefficients minimise the Huber loss of delta = epsilon * scale."""
    peer = HuberRegressor(epsilon=1.35, alpha=0.0, tol=1e-10, max_iter=10000).fit(*targets)
    assert_no_worse_and_certified(WassersteinHuberRegressor(delta=1.35 * peer.scale_, radius=0.0), peer, *targets)
    assert_no_worse_and_certified(WassersteinLinearRegression(radius=0.0), LinearRegression(), *targets)


@pytest.mark.parametrize(("quantile", "alpha"), [(0.5, 0.05), (0.9, 0.0), (0.9, 0.05)])
def test_quantile_regression_and_its_lasso(targets, quantile, alpha):
    """An l1 penalty on the coefficients is a radius in the linf norm."""
    peer = QuantileRegressor(quantile=quantile, alpha=alpha, solver="highs")
    radius = alpha / max(quantile, 1 - quantile)
    model = WassersteinQuantileRegressor(quantile=quantile, radius=radius, norm="linf")
    assert_no_worse_and_certified(model, peer, *targets)


def test_support_vector_machines(labelled, targets):
    C = 0.05
    settings = {"kernel": "linear", "C": C, "tol": 1e-8}
    classifier = WassersteinLinearSVC(radius=0.0, ridge=1 / (C * len(labelled[1])))
    assert_no_worse_and_certified(classifier, SVC(**settings), *labelled)
    regressor = WassersteinLinearSVR(epsilon=0.2, radius=0.0, ridge=1 / (C * len(targets[1])))
    assert_no_worse_and_certified(regressor, SVR(epsilon=0.2, **settings), *targets)
