"""Columns of a frame that are no numbers are named, with what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dualcore import (
    SourceError,
    WassersteinHuberRegressor,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
)
from pairs import every_value


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=60), "city": rng.choice(["Bern", "Oslo"], 60)})
    return frame.assign(car=pd.Categorical(rng.choice(["x", "y"], 60)), when=pd.Timestamp("2020-01-01"))


Y = np.arange(60) % 2


def test_columns_are_named_with_what_to_do(frame):
    for fit in (
        WassersteinLogisticRegression().fit,
        lambda X, y: WassersteinLogisticRegression().partial_fit(X, y, classes=[0, 1]),
        WassersteinHuberRegressor().fit,
        WassersteinHuberRegressor().partial_fit,
        WassersteinLogisticRegression().fit(frame[["age"]].assign(city=frame.age**2), Y).worst_case_risk,
    ):
        with pytest.raises(ValueError, match=r"Column 'city' \('(Bern|Oslo)'\) holds no numbers.*'from_dtype'"):
            fit(frame[["age", "city"]], Y)
    with pytest.raises(ValueError, match=r"Columns 'city' .*'car' \('(x|y)'\) hold.*codes text"):
        WassersteinLogisticRegression().fit(frame.drop(columns="when"), Y)
    with pytest.raises(ValueError, match=r"Columns 1 .*, 2 .* hold no numbers"):
        WassersteinLogisticRegression().fit(frame[["age", "city", "car"]].to_numpy(), Y)
    many = pd.DataFrame({f"c{k}": ["text"] * 60 for k in range(8)})
    with pytest.raises(ValueError, match=r"'c4' \('text'\), 3 others hold"):
        WassersteinLogisticRegression().fit(many, Y)


@pytest.mark.needs("pyarrow", "polars")
@pytest.mark.parametrize("days", [pd.date_range("2020", periods=60), pd.to_timedelta(np.arange(60), unit="D")])
def test_dates_are_no_numbers(frame, days):
    """numpy, polars and pyarrow would turn them into counts of nanoseconds since 1970."""
    import polars as pl
    import pyarrow as pa

    mixed = frame[["age"]].assign(day=days, buys=Y)
    day = pl.from_pandas(mixed).with_columns(pl.col("day").cast(pl.Date if days.dtype.kind == "M" else pl.Duration))
    for table in (mixed, day, pl.from_pandas(mixed), pa.Table.from_pandas(mixed)):
        model = WassersteinLogisticRegression().fit(frame[["age"]].assign(buys=Y), "buys")
        assert model.score(table) > 0.0  # other columns do not matter
        for coded in (None, "from_dtype"):
            with pytest.raises(TypeError, match=r"X\['day'\] holds dates or durations"):
                WassersteinLogisticRegression(categories=coded).fit(table, "buys")
        with pytest.raises(
            ValueError, match=r"column 'day' is (timestamp|date|dur).*numbers, or choose another column"
        ):
            WassersteinHuberRegressor(source_options={"drop_missing": True}).fit(table, "day")
    with pytest.raises(TypeError, match="X holds dates or durations"):
        WassersteinHuberRegressor().fit(days.to_numpy()[:, None], np.arange(60.0))
    with pytest.raises(TypeError, match="y holds dates or durations"):
        WassersteinHuberRegressor().fit(np.arange(60.0)[:, None], days)


def test_other_errors_stay_what_they_are(frame):
    gaps = frame[["age"]].mask(frame.age > 0.0)
    fill = "Train with fill='mean'"
    for X, name, do in ((gaps, "'age'", fill), (gaps.to_numpy(), 0, fill), (sp.csr_matrix(gaps), 0, "Fill them, or")):
        with pytest.raises(ValueError, match=rf"Column {name} \(\d+ missing\) holds NaN. {do}"):
            WassersteinLogisticRegression().fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        WassersteinLogisticRegression().fit(frame[["age"]], Y[:10])
    with pytest.raises(TypeError, match=r"y=1 is no name: rename columns first"):
        WassersteinLogisticRegression().fit(frame[["age"]].assign(buys=Y).set_axis([0, 1], axis=1), 1)


@every_value(
    categories=[["city"], "city", ("city", [1])],
    estimator=[WassersteinLogisticRegression, WassersteinLogisticRegressionCV],
)
def test_the_name_of_a_column_is_no_group(frame, estimator, categories):
    with pytest.raises(TypeError, match=r"'from_dtype', or a list of groups of one-hot columns"):
        estimator(categories=categories).fit(frame, Y)


@pytest.mark.parametrize("estimator", [WassersteinLogisticRegression, WassersteinHuberRegressor])
def test_names_that_occur_twice_are_named(estimator):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "a", "b"])
    with pytest.raises(ValueError, match=r"The header of X names 'a' twice; rename"):
        estimator().fit(X, Y)
    model = estimator().fit(X.set_axis(["a", "c", "b"], axis=1), Y)
    with pytest.raises(ValueError, match="names 'a' twice"):
        model.predict(X)
    text = pd.DataFrame([[1.0, "Bern", 2.0]] * 60, columns=["a", "a", "b"])
    with pytest.raises(ValueError, match="names 'a' twice"):  # before that one is text
        estimator().fit(text, Y)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_missing_labels_are_named_by_their_row(missing):
    X, labels = np.random.default_rng(0).normal(size=(60, 2)), np.array(["no", "yes"], dtype=object)[Y]
    model = WassersteinLogisticRegression().fit(X, labels)
    labels[7] = missing
    fits = WassersteinLogisticRegression().fit, WassersteinLogisticRegressionCV().fit
    for call in (*fits, model.score, model.worst_case_risk, model.worst_case_distribution):
        with pytest.raises(ValueError, match=rf"no label in row 7: it holds {missing}\. Leave such rows out"):
            call(X, labels)
    with pytest.raises(ValueError, match="no label in row 7"):
        WassersteinLogisticRegression().partial_fit(X, labels, classes=["no", "yes"])
    with pytest.raises(ValueError, match="classes has no label in row 1"):
        WassersteinLogisticRegression().partial_fit(X, np.array(["no", "yes"])[Y], classes=["no", None])
    with pytest.raises(ValueError, match="The target is missing in row 7"):
        WassersteinHuberRegressor().fit(X, labels)
    labels[7] = 7  # of another kind
    with pytest.raises(ValueError, match=r"labels of one kind, found .*'no' \(str\).*Make them all text"):
        WassersteinLogisticRegression().fit(X, labels)


@pytest.mark.needs("pyarrow")
def test_text_among_the_features_beside_a_target_by_name(frame):
    text = frame[["city", "age"]].assign(buys=Y)
    with pytest.raises(SourceError, match=r"'city' is .*, not a number; .*estimators: 'from_dtype'"):
        WassersteinLogisticRegression(fill="mean").fit(text, "buys")
    model = WassersteinLogisticRegression(categories="from_dtype").fit(text, "buys")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        scores = model.decision_function(text[["city", "age"]].to_numpy(object))
    np.testing.assert_array_equal(scores, model.decision_function(text))


@pytest.mark.needs("pyarrow", "dask")
@pytest.mark.parametrize("settings", [{"categories": "from_dtype"}, {"fill": "mean"}])
def test_dask_is_neither_coded_nor_filled(frame, settings):
    import dask.dataframe as dd

    rows = dd.from_pandas(frame[["age"]].assign(buys=Y), npartitions=2)
    with pytest.raises(TypeError, match="are not for Dask: code and fill its columns first"):
        WassersteinLogisticRegression(**settings).fit(rows, "buys")
