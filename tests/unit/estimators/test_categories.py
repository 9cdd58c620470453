"""Categories on the estimators: by number, by name, from an encoder; and the problem that comes of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dualcore import (
    Problem,
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegression,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    find_categories,
    solve,
)
from estimator_cases import ESTIMATORS, is_classifier

GROUPS = [[1, 2, 3], [None, 4]]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    city, colour, age = rng.integers(0, 3, 80), rng.integers(0, 2, 80), rng.normal(size=80)
    X = np.column_stack([age, *(city == k for k in range(3)), colour]).astype(float)
    score = X @ np.array([1.0, 1.5, 0.0, -1.5, 0.8]) + rng.normal(size=80)
    return X, score


NAMES = ["age", "Oslo", "Rome", "Lima", "red"]
NAMED = [["Oslo", "Rome", "Lima"], [None, "red"]]


@pytest.mark.parametrize("estimator", [cls for cls in ESTIMATORS if cls is not WassersteinLinearRegression])
def test_every_estimator_states_the_problem(estimator, data):
    X, score = data
    y = np.sign(score) if is_classifier(estimator) else score
    model = estimator(radius=0.1, categories=GROUPS, category_cost=[1.0, 2.0]).fit(X, y)
    groups = model.problem_.geometry.categories
    assert (groups.groups, groups.costs) == (((1, 2, 3), (None, 4)), (1.0, 2.0))
    assert model.certificate_.relative_gap <= 1e-6 + 1e-12
    assert model.worst_case_risk_ == pytest.approx(solve(model.problem_, X, y).value, rel=1e-9)
    still = clone(model).set_params(category_cost=0.1).fit(X, y)
    assert still.worst_case_risk_ > model.worst_case_risk_  # cheaper changes, a stronger adversary


def test_names_are_looked_up_in_a_frame(data):
    X, score = data
    frame = pd.DataFrame(X, columns=NAMES)
    named = WassersteinHuberRegressor(radius=0.1, categories=NAMED)
    numbered = WassersteinHuberRegressor(radius=0.1, categories=GROUPS).fit(X, score)
    # A frame lies column by column in memory, so that sums round differently.
    np.testing.assert_allclose(named.fit(frame, score).coef_, numbered.coef_, rtol=1e-5, atol=1e-6)
    assert named.categories is NAMED  # as it was given
    with pytest.raises(ValueError, match=r"names \['Paris'\]"):
        WassersteinHuberRegressor(categories=[["Oslo", "Paris"]]).fit(frame, score)
    with pytest.raises(TypeError, match="names, and X has none"):
        named.fit(X, score)


def test_a_radius_is_chosen_with_categories(data):
    X, score = data
    radii = [0.01, 0.3]
    chosen = WassersteinHuberRegressorCV(radii=radii, cv=3, categories=NAMED)
    assert chosen.fit(pd.DataFrame(X, columns=NAMES), score).radius_ in radii
    assert WassersteinLogisticRegressionCV(radii=radii, cv=3, categories=GROUPS).fit(X, np.sign(score)).radius_ in radii


def test_what_has_no_closed_form_is_refused(data):
    X, score = data
    with pytest.raises(ValueError, match="categories need a loss of order 1"):
        WassersteinLinearRegression(categories=GROUPS).fit(X, score)
    three = np.digitize(score, [-1.0, 1.0])
    with pytest.raises(ValueError, match="one score"):
        WassersteinLogisticRegression(multi_class="multinomial", categories=GROUPS).fit(X, three)
    one_by_one = WassersteinLogisticRegression(categories=GROUPS).fit(X, three)
    assert one_by_one.coef_.shape == (3, 5)


TABLE = pd.DataFrame(
    {"age": [1.0, 2.0, 3.0, 4.0], "city": ["a", "b", "c", "a"], "sex": ["f", "m", "f", "m"], "kind": ["x"] * 4}
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[0, 1, 2], [3, 4], [5]]),
        ({"drop": "first"}, [[None, 0, 1], [None, 2]]),
        ({"drop": "if_binary"}, [[0, 1, 2], [None, 3], [4]]),
        ({"handle_unknown": "ignore"}, [[None, 0, 1, 2], [None, 3, 4], [None, 5]]),
        ({"min_frequency": 2}, [[0, 1], [2, 3], [4]]),
        ({"max_categories": 2, "drop": "first"}, [[None, 0], [None, 1]]),
    ],
)
def test_groups_of_an_encoder(settings, expected):
    encoder = OneHotEncoder(sparse_output=False, **settings).fit(TABLE[["city", "sex", "kind"]])
    assert find_categories(encoder) == expected
    coded = encoder.transform(TABLE[["city", "sex", "kind"]])
    assert coded.shape[1] == 1 + max(column for group in expected for column in group if column is not None)
    Problem("hinge", radius=0.1, categories=expected).validate(coded, np.array([1.0, -1.0, 1.0, -1.0]))


def test_groups_of_a_column_transformer():
    prepare = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["age"]),
            ("cities", make_pipeline("passthrough", OneHotEncoder()), ["city"]),
            ("nothing", "drop", ["kind"]),
            ("sexes", OneHotEncoder(drop="first"), ["sex"]),
        ]
    ).fit(TABLE)
    assert find_categories(prepare) == [[1, 2, 3], [None, 4]]
    model = make_pipeline(prepare, WassersteinHuberRegressor(radius=0.1, categories=find_categories(prepare)))
    assert model.fit(TABLE, [1.0, 2.0, 3.0, 4.0]).predict(TABLE).shape == (4,)
    assert find_categories(model) == find_categories(prepare)  # the model at its end makes no columns


def test_what_has_no_groups_is_an_error():
    with pytest.raises(TypeError, match="StandardScaler"):
        find_categories(StandardScaler().fit([[1.0], [2.0]]))
    with pytest.raises(ValueError, match="No OneHotEncoder"):
        find_categories(ColumnTransformer([("numbers", StandardScaler(), [0])]).fit([[1.0], [2.0]]))
