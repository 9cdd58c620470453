"""Columns of a frame that are no numbers are named, with what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dualcore import WassersteinHuberRegressor, WassersteinLogisticRegression, WassersteinLogisticRegressionCV


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(size=60),
            "city": rng.choice(["Bern", "Oslo"], 60),
            "car": pd.Categorical(rng.choice(["x", "y"], 60)),
            "when": pd.Timestamp("2020-01-01"),
        }
    )


Y = np.arange(60) % 2


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
@pytest.mark.parametrize("estimator", [WassersteinLogisticRegression, WassersteinHuberRegressor])
def test_the_column_is_named_with_what_to_do(frame, estimator, fit):
    more = {"classes": [0, 1]} if (fit, estimator) == ("partial_fit", WassersteinLogisticRegression) else {}
    with pytest.raises(ValueError, match=r"Column 'city' \('(Bern|Oslo)'\) holds no numbers.*categories='from_dtype'"):
        getattr(estimator(), fit)(frame[["age", "city"]], Y, **more)


def test_several_columns_are_named(frame):
    with pytest.raises(ValueError, match=r"Columns 'city' .*'car' .* and 'when' \('2020-01-01.*codes columns of text"):
        WassersteinLogisticRegression().fit(frame, Y)
    with pytest.raises(ValueError, match=r"Columns 1 .* and 2 .* hold no numbers"):
        WassersteinLogisticRegression().fit(frame[["age", "city", "car"]].to_numpy(), Y)
    many = pd.DataFrame({f"c{k}": ["text"] * 60 for k in range(8)})
    with pytest.raises(ValueError, match=r"'c4' \('text'\) and 3 others hold"):
        WassersteinLogisticRegression().fit(many, Y)


def test_new_rows_are_looked_at_too(frame):
    model = WassersteinLogisticRegression().fit(frame[["age"]].assign(city=frame.age**2), Y)
    with pytest.raises(ValueError, match="Column 'city'"):
        model.predict(frame[["age", "city"]])


def test_other_errors_stay_what_they_are(frame):
    with pytest.raises(ValueError, match="NaN"):
        WassersteinLogisticRegression().fit(frame[["age"]].mask(frame.age > 0.0), Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        WassersteinLogisticRegression().fit(frame[["age"]], Y[:10])


@pytest.mark.parametrize("categories", [["city"], "city", ("city", [1])])
@pytest.mark.parametrize("estimator", [WassersteinLogisticRegression, WassersteinLogisticRegressionCV])
def test_the_name_of_a_column_is_no_group(frame, estimator, categories):
    with pytest.raises(TypeError, match=r"'from_dtype', or a list of groups of one-hot columns"):
        estimator(categories=categories).fit(frame, Y)
