"""The regressors: what they learn is what the problem says, what they refuse they refuse at fit."""

import numpy as np
import pytest
from sklearn.datasets import make_regression

from dualcore import Problem
from dualcore.estimators import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVR,
    WassersteinQuantileRegressor,
)
from pairs import every_value

ALL = [
    (WassersteinHuberRegressor, {"delta": 0.7}, "huber"),
    (WassersteinQuantileRegressor, {"quantile": 0.8}, "pinball"),
    (WassersteinLinearRegression, {}, "squared"),
    (WassersteinLinearSVR, {"epsilon": 0.3}, "epsilon_insensitive"),
]


@pytest.fixture(scope="module")
def data():
    X, y = make_regression(80, 4, noise=10.0, random_state=0)
    return X, y / y.std()


@every_value(
    pytest.mark.parametrize(("cls", "extra", "loss"), ALL),
    settings=[{"radius": 0.05}, {"radius": 0.1, "norm": "linf", "label_cost": 4.0, "ridge": 0.02}],
)
def test_learned_attributes_describe_the_solution_on_the_data(data, cls, extra, loss, settings):
    X, y = data
    weights = np.random.default_rng(0).uniform(0.5, 2.0, y.size)
    model = cls(**extra, **settings).fit(X, y, sample_weight=weights)
    problem = Problem(loss, **extra, **settings)
    assert model.coef_.shape == (4,)
    assert isinstance(model.intercept_, float)
    risk = problem.risk(model.coef_, model.intercept_, X, y, weights)
    assert model.worst_case_risk_ == pytest.approx(risk, rel=1e-12)
    assert model.worst_case_risk(X, y, weights) == pytest.approx(risk, rel=1e-12)
    multiplier = problem.multiplier(model.coef_, model.intercept_, X, y, weights)
    assert model.dual_variable_ == pytest.approx(multiplier, rel=1e-12)
    assert model.certificate_.upper == model.worst_case_risk_
    assert 0.0 <= model.certificate_.gap <= 1e-6 * risk
    assert model.coreset_ is None
    assert model.n_iter_ >= 1
    assert model.solution_.dual is None
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_, rtol=1e-12)


@pytest.mark.parametrize(("cls", "extra", "loss"), [entry for entry in ALL if entry[2] != "squared"])
def test_the_worst_distribution_has_the_worst_case_risk(data, cls, extra, loss):
    X, y = data
    model = cls(**extra, radius=0.1, label_cost=2.0).fit(X, y)
    worst = model.worst_case_distribution(X, y)
    assert worst.transport_cost <= 0.1 + 1e-12
    assert worst.expected_loss == pytest.approx(model.worst_case_risk_, abs=worst.gap + 1e-9)


def test_the_worst_distribution_of_order_two_is_refused(data):
    with pytest.raises(ValueError, match="order 2"):
        WassersteinLinearRegression().fit(*data).worst_case_distribution(*data)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_a_quantile_regressor_leaves_that_share_below(data, quantile):
    X, y = data
    model = WassersteinQuantileRegressor(quantile=quantile, radius=0.0).fit(X, y)
    below = (y < model.predict(X) - 1e-6).mean()
    assert below <= quantile <= (y < model.predict(X) + 1e-6).mean()


@pytest.mark.parametrize(
    ("cls", "parameters", "error", "message"),
    [
        (WassersteinHuberRegressor, {"delta": 0.0}, ValueError, "delta must be positive"),
        (WassersteinHuberRegressor, {"delta": "big"}, TypeError, "delta must be a number, got str"),
        (WassersteinQuantileRegressor, {"quantile": 1.0}, ValueError, "quantile must lie strictly between 0 and 1"),
        (WassersteinQuantileRegressor, {"quantile": None}, TypeError, "quantile must be a number"),
        (WassersteinLinearSVR, {"epsilon": -0.1}, ValueError, "epsilon must be non-negative"),
        (WassersteinLinearSVR, {"epsilon": True}, TypeError, "epsilon must be a number, got bool"),
        (WassersteinLinearRegression, {"solver": "structured"}, TypeError, "Use solver='descent'"),
    ],
)
def test_a_wrong_parameter_is_refused_at_fit(data, cls, parameters, error, message):
    model = cls(**parameters)
    with pytest.raises(error, match=message):
        model.fit(*data)
