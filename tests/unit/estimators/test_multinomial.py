"""``multi_class="multinomial"``: one softmax model of all classes, with one risk and one certificate."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from dualcore import GridCoreset, Problem, WassersteinLogisticRegression, WassersteinLogisticRegressionCV, solve


@pytest.fixture(scope="module")
def flowers():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


def model(**parameters):
    return WassersteinLogisticRegression(**({"multi_class": "multinomial", "radius": 0.05} | parameters))


def test_what_is_learned_describes_the_solution(flowers):
    X, y = flowers
    fitted = model(label_cost=2.0, ridge=0.01).fit(X, y)
    code = np.unique(y, return_inverse=True)[1]
    assert fitted.problem_ == Problem("softmax", n_classes=3, radius=0.05, label_cost=2.0, ridge=0.01)
    best = solve(fitted.problem_, X, code)
    np.testing.assert_array_equal(fitted.coef_, best.coef)
    assert fitted.coef_.shape == (3, 4)
    assert fitted.intercept_.shape == (3,)
    assert fitted.worst_case_risk_ == fitted.certificate_.upper == best.value
    assert fitted.worst_case_risk(X, y) == pytest.approx(best.value, rel=1e-12)
    assert fitted.dual_variable_ == best.dual_variable
    assert fitted.certificate_.relative_gap <= 1e-6
    assert fitted.certificate_.n_reads > fitted.n_iter_
    assert fitted.coreset_ is None
    assert fitted.score(X, y) > 0.9
    X, y = X[50:], y[50:]  # two classes are one model
    np.testing.assert_array_equal(model().fit(X, y).coef_, WassersteinLogisticRegression(radius=0.05).fit(X, y).coef_)


@pytest.mark.parametrize("coreset", [0.5, GridCoreset(size=60)])
def test_a_coreset_model_is_certified_on_the_full_data(flowers, coreset):
    X, y = flowers
    fitted = model(coreset=coreset, random_state=0).fit(X, y)
    assert fitted.worst_case_risk_ == fitted.certificate_.upper == pytest.approx(fitted.worst_case_risk(X, y))
    whole, rounding = model().fit(X, y).worst_case_risk_, fitted.certificate_.rounding
    assert fitted.certificate_.lower <= whole <= fitted.certificate_.upper + rounding
    assert len(fitted.coreset_) <= 75
    again = clone(fitted).fit(X, y)
    np.testing.assert_array_equal(again.coef_, fitted.coef_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"multi_class": "softmax"}, "multi_class must be one of"),
        ({"multi_class": None}, "multi_class must be one of"),
        ({"coreset": GridCoreset(size=0.5, epsilon=0.1, parameter_radius=1.0)}, "epsilon mode"),
        ({"solver": "simplex"}, "Unknown solver"),
    ],
)
def test_what_is_not_supported_is_refused(flowers, parameters, message):
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(*flowers)


@pytest.mark.parametrize("label_cost", [np.inf, 0.4])
def test_the_adversary_of_many_classes_attains_the_risk(flowers, label_cost):
    X, y = flowers
    fitted = model(label_cost=label_cost).fit(X, y)
    worst = fitted.worst_case_distribution(X, y)
    assert set(worst.y) <= set(fitted.classes_)
    assert (worst.y != y[worst.source]).any() == np.isfinite(label_cost)
    assert worst.weights.sum() == pytest.approx(1.0)
    assert worst.transport_cost <= 0.05 * (1.0 + 1e-12)
    assert worst.expected_loss + worst.gap >= fitted.worst_case_risk_ * (1.0 - 1e-9)
    chances = fitted.predict_log_proba(worst.X)[np.arange(len(worst.y)), np.searchsorted(fitted.classes_, worst.y)]
    assert -worst.weights @ chances == pytest.approx(worst.expected_loss)


@pytest.mark.parametrize("settings", [{}, {"class_weight": "balanced"}], ids=str)
def test_cross_validation_follows_a_path_of_softmax_models(settings):
    """The held-out scores are those of models trained alone, up to the tolerance of folds."""
    X, y = load_iris(return_X_y=True)
    settings = {"multi_class": "multinomial"} | settings
    found = WassersteinLogisticRegressionCV(radii=[0.01, 0.1], cv=3, scoring="accuracy", **settings).fit(X, y)
    assert found.certificate_.relative_gap <= 1e-6
    for fold, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        for number, radius in enumerate((0.01, 0.1)):
            alone = WassersteinLogisticRegression(radius=radius, **settings).fit(X[train], y[train])
            assert found.scores_[number, fold] == pytest.approx(alone.score(X[test], y[test]), abs=0.021)
    in_units = WassersteinLogisticRegressionCV(radii=[0.01, 0.1], cv=3, feature_weights="std", **settings).fit(X, y)
    assert in_units.certificate_.relative_gap <= 1e-6
