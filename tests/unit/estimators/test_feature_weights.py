"""Mixed costs: every estimator prices features one by one, and can hold some of them still."""

import numpy as np
import pytest
from sklearn.base import is_regressor

from dualcore import estimators
from dualcore.estimators import WassersteinLinearSVC, WassersteinLogisticRegression
from expected import warns_of_radius
from pairs import every_value

NAMES = [name for name in estimators.__all__ if name.startswith("Wasserstein")]
EVERY = {name: getattr(estimators, name)() for name in NAMES if not name.endswith("CV")} | {
    "squared hinge": WassersteinLinearSVC(loss="squared_hinge"),
    "multinomial": WassersteinLogisticRegression(multi_class="multinomial"),
}
each = pytest.mark.parametrize("name", EVERY)


def sample(name, n=80):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    score = X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=n)
    if name == "multinomial":
        return X, np.digitize(score, [-0.7, 0.7])
    return X, score if is_regressor(EVERY[name]) else np.where(score > 0.0, 1, 0)


def fit(name, X, y, **parameters):
    return EVERY[name].__class__(**(EVERY[name].get_params() | {"radius": 0.1, "tol": 1e-8} | parameters)).fit(X, y)


@warns_of_radius
@every_value(each, norm=["l1", "l2", "linf"])
def test_prices_are_a_change_of_units(name, norm):
    """A column ten times as long whose moves cost a tenth is the same column."""
    X, y = sample(name)
    prices = np.array([0.1, 1.0, 4.0])
    priced = fit(name, X, y, norm=norm, feature_weights=prices)
    scaled = fit(name, X * prices, y, norm=norm)
    assert priced.worst_case_risk_ == pytest.approx(scaled.worst_case_risk_, rel=1e-6)
    np.testing.assert_allclose(priced.coef_, scaled.coef_ * prices, atol=2e-3)


@each
def test_an_infinite_price_holds_a_feature_still(name):
    """With a radius that silences all other features, only the immovable one is left; its coefficient is free."""
    X, y = sample(name)
    held = fit(name, X, y, radius=50.0, feature_weights=[1.0, np.inf, 1.0])
    alone = fit(name, X[:, [1]], y, radius=0.0)
    coef = np.atleast_2d(held.coef_)
    assert np.abs(coef[:, [0, 2]]).max() < 1e-5
    np.testing.assert_allclose(coef[:, 1], np.atleast_2d(alone.coef_)[:, 0], atol=2e-3)


@each
def test_prices_must_fit_the_features(name):
    X, y = sample(name)
    with pytest.raises(ValueError, match="2 prices but X has 3"):
        fit(name, X, y, feature_weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="positive"):
        fit(name, X, y, feature_weights=[1.0, 0.0, 2.0])
