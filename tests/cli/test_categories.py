"""Columns of text on the command line: coded without being listed, the same from every format, priced, stored."""

import json
import math

import numpy as np
import pytest

import dualcore
from command_line import call
from dualcore import (
    Coreset,
    CoresetStream,
    Problem,
    WassersteinLogisticRegression,
    changed_categories,
    worst_case_distribution,
)
from dualcore.cli.outcome import as_csv

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
N = 300
CITY = RNG.choice(["Oslo", "Lima", "Rome"], N)
MARK = RNG.choice(["yes", "no"], N)
AGE = RNG.normal(40.0, 10.0, N)
SCORE = (AGE - 40.0) / 10.0 + 2.0 * (CITY == "Oslo") - (CITY == "Rome")
LABEL = np.where(SCORE + RNG.logistic(size=N) > 0.5, "good", "bad")
# What the command line should see: values in their order, columns where they were.
PARTS = [CITY == "Lima", CITY == "Oslo", CITY == "Rome", AGE, MARK == "no", MARK == "yes"]
CODED = np.column_stack(PARTS).astype(float)
GROUPS = [[None, 0, 1, 2], [None, 4, 5]]


def write(path, **changes):
    columns = {"city": CITY, "age": AGE, "mark": MARK, "label": LABEL} | changes
    columns = {name: values for name, values in columns.items() if values is not None}
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path, 64)
    else:
        path.write_text(as_csv(columns))
    return path


def fit(path, *options):
    model = path.with_suffix(".json")
    code, out, errors = call("fit", path, "-t", "label", "--radius", 0.05, *options, "--out", model, "--json")
    assert (code, errors) == (0, "")
    return json.loads(out), dualcore.load(model), model


@pytest.fixture(params=["parquet", "csv"])
def kind(request):
    """Files of columns with names."""
    return request.param


def test_text_is_coded_and_the_coding_is_stored(tmp_path, kind):
    told, model, _ = fit(write(tmp_path / f"rows.{kind}"))
    assert (told["features"], told["coded"]) == (6, {"city": 3, "mark": 2})
    expected = WassersteinLogisticRegression(radius=0.05, categories=GROUPS, random_state=0).fit(CODED, LABEL)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.categories_ == {"city": ("Lima", "Oslo", "Rome"), "mark": ("no", "yes")}
    assert model.coef_names_ == ("city=Lima", "city=Oslo", "city=Rome", "age", "mark=no", "mark=yes")
    assert model.problem_.geometry.categories.costs == (1.0, 1.0)


def test_a_text_that_training_did_not_see_is_no_category(tmp_path, kind):
    _, model, path = fit(write(tmp_path / f"rows.{kind}"), "--standardize")
    city = CITY.copy()
    city[:3] = ["Bern", "Oslo", "Bern"]
    changed = CODED.copy()
    changed[:3, :3] = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    for label in (LABEL, None):  # with a target, and without
        new = write(tmp_path / f"new.{kind}", city=city, label=label)
        code, out, errors = call("predict", path, new, "--scores")
        assert (code, errors) == (0, "")
        scores = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
        np.testing.assert_allclose(scores, changed @ model.coef_[0] + model.intercept_, rtol=1e-10)
    code, _, errors = call("certify", path, write(tmp_path / f"new.{kind}", city=city))  # such rows fit the family
    assert (code, errors) == (0, "")


def test_a_file_of_texts_alone_is_predicted_without_a_target(tmp_path, kind):
    _, _, path = fit(write(tmp_path / f"rows.{kind}", age=None))
    code, out, errors = call("predict", path, write(tmp_path / f"new.{kind}", age=None, label=None))
    assert (code, errors) == (0, "")
    assert len(out.splitlines()) == N + 1


def test_prices_are_for_all_columns_or_for_one(tmp_path):
    path = write(tmp_path / "rows.csv")
    _, model, _ = fit(path, "--category-cost", "2", "--category-cost", "mark=inf", "--ridge", 0.01)
    assert model.problem_.geometry.categories.costs == (2.0, math.inf)
    expected = WassersteinLogisticRegression(
        radius=0.05, ridge=0.01, categories=GROUPS, category_cost=[2.0, math.inf], random_state=0
    ).fit(CODED, LABEL)
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_coresets_and_paths_take_text(tmp_path):
    path = write(tmp_path / "rows.parquet")
    _, model, _ = fit(path, "--coreset", 100)
    whole = WassersteinLogisticRegression(radius=0.05, categories=GROUPS).fit(CODED, LABEL)
    assert model.certificate_.lower <= whole.certificate_.upper <= model.certificate_.upper * (1 + 1e-6)
    out = tmp_path / "c.npz"
    assert call("coreset", path, "-t", "label", "--radius", 0.05, "--size", 60, "--out", out)[0] == 0
    coreset = Coreset.load(out)
    np.testing.assert_array_equal(coreset.X, CODED[coreset.indices])
    code, out, _ = call("path", path, "-t", "label", "--radii", "0.05,0.1", "--out", tmp_path / "p.json", "--json")
    assert code == 0
    assert json.loads(out)["feature_names"] == list(model.coef_names_)


def test_rows_with_missing_text_are_left_out_if_asked(tmp_path):
    holed = CITY.astype(object)
    holed[[3, 4]] = None
    holed[5] = "Bern"  # in a row that is left out for another reason
    age = [None if k == 5 else value for k, value in enumerate(AGE.tolist())]
    path = write(tmp_path / "rows.parquet", city=holed, age=age)
    code, _, errors = call("fit", path, "-t", "label", "--drop", "age", "--out", tmp_path / "m.json")
    assert code == 3
    assert "Column 'city' has a null; --drop-missing leaves such rows out" in errors
    told, model, _ = fit(path, "--drop-missing")
    assert (told["rows"], told["rows_dropped"]) == (N - 3, 3)
    assert model.categories_["city"] == ("Lima", "Oslo", "Rome")
    told, model, _ = fit(path, "--drop-missing", "--fill", "mean")
    assert told["rows_dropped"] == 2
    assert model.categories_["city"] == ("Bern", "Lima", "Oslo", "Rome")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([f"name {k}" for k in range(N)], "more than 200 different texts, so it is not coded as a category. Leave it"),
        (
            [str(k % 40) if k else "?" for k in range(N)],
            "for example '?', but 40 of its 41 different",
        ),
    ],
)
def test_text_that_is_no_category_is_refused(tmp_path, texts, message):
    path = write(tmp_path / "rows.csv", city=texts)
    code, out, errors = call("fit", path, "-t", "label", "--out", tmp_path / "m.json")
    assert (code, out) == (3, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "m.json").exists()


def test_whole_numbers_stored_as_text_are_codes(tmp_path):
    path = write(tmp_path / "rows.parquet", city=[f"{k % 3:02d}" for k in range(N)])
    assert fit(path)[1].categories_["city"] == ("00", "01", "02")


@pytest.mark.needs("matplotlib")
def test_a_report_says_which_categories_change(tmp_path):
    path = write(tmp_path / "rows.csv")
    _, model, file = fit(path, "--category-cost", "city=0.5")
    page = tmp_path / "r.html"
    code, out, errors = call("report", file, path, "--out", page, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(out)["pictures"] == ["categories", "rounds", "weights", "path"]
    text = page.read_text()
    y = np.where(LABEL == "good", 1.0, -1.0)
    worst = worst_case_distribution(model.problem_, model.coef_[0], model.intercept_[0], CODED, y)
    change = changed_categories(model.problem_, worst, CODED)[0]
    names = [model.coef_names_[column] for column in (change.before, change.after)]
    assert f"<td>{names[0]}</td><td>{names[1]}</td><td>{change.mass:.2%}</td>" in text
    assert "--category-cost city=0.5" in text
    assert "category costs 0.5 and 1" in text


def parts(tmp_path, kind, **changes):
    """The rows in two files, the second of which may have other columns."""
    columns = {"city": CITY, "age": AGE, "mark": MARK, "label": LABEL}
    first = write(tmp_path / f"first.{kind}", **{name: values[:200] for name, values in columns.items()})
    second = {name: values[200:] for name, values in columns.items()} | changes
    return first, write(tmp_path / f"second.{kind}", **second)


def stream(path, *options):
    code, out, errors = call("stream", path, "-t", "label", "--radius", 0.05, "--size", 50, *options, "--json")
    return code, json.loads(out) if code == 0 else {}, " ".join(errors.split())


def test_a_stream_codes_text_as_its_first_file_says(tmp_path, kind):
    state, out = tmp_path / "state.npz", tmp_path / "c.npz"
    first, second = parts(tmp_path, kind)
    assert stream(first, "--state", state)[1]["coded"] == {"city": 3, "mark": 2}
    code, told, errors = stream(second, "--state", state, "--out", out)
    assert (code, told["rows"], told["unseen"], errors) == (0, N, {"city": 0, "mark": 0}, "")
    whole = CoresetStream(Problem("logistic", radius=0.05, categories=GROUPS), 50, random_state=0)
    whole.update(CODED, np.where(LABEL == "good", 1.0, -1.0))
    coreset, expected = Coreset.load(out), whole.coreset()
    np.testing.assert_array_equal(coreset.indices, expected.indices)
    np.testing.assert_array_equal(coreset.X, CODED[coreset.indices])
    assert coreset.details["feature_names"] == ["city=Lima", "city=Oslo", "city=Rome", "age", "mark=no", "mark=yes"]


def test_a_text_that_the_first_file_did_not_have_is_a_category_without_a_feature(tmp_path, kind):
    state, out = tmp_path / "state.npz", tmp_path / "c.npz"
    city = CITY[200:].copy()
    city[:7] = "Bern"
    first, second = parts(tmp_path, kind, city=city)
    assert stream(first, "--state", state)[0] == 0
    code, told, errors = stream(second, "--state", state, "--out", out)
    assert (code, told["unseen"]) == (0, {"city": 7, "mark": 0})
    assert "warning: 7 rows hold a text in column 'city' that the first file of the stream did not" in errors
    coreset = Coreset.load(out)
    of_bern = (coreset.indices >= 200) & (coreset.indices < 207)
    assert not coreset.X[of_bern][:, :3].any()


def test_a_stream_prices_text_and_refuses_another_price_later(tmp_path):
    state = tmp_path / "state.npz"
    first, second = parts(tmp_path, "csv")
    assert stream(first, "--state", state, "--category-cost", "city=2")[0] == 0
    code, _, errors = stream(second, "--state", state)
    assert code == 3
    assert "category_cost=[2.0, 1.0]" in errors
    assert stream(second, "--state", state, "--category-cost", "city=2")[1]["rows"] == N


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"city": None}, "has no column 'city'"),
        ({"age": ["old"] * 100}, "column 'age' is string, not a number"),
    ],
)
def test_a_stream_refuses_columns_of_another_kind(tmp_path, changes, message):
    state = tmp_path / "state.npz"
    first, second = parts(tmp_path, "csv", **changes)
    assert stream(first, "--state", state)[0] == 0
    code, _, errors = stream(second, "--state", state)
    assert code == 3
    assert message in errors


def test_another_choice_of_columns_is_refused_by_a_stream(tmp_path):
    state = tmp_path / "state.npz"
    first, second = parts(tmp_path, "csv")
    assert stream(first, "--state", state)[0] == 0
    code, _, errors = stream(second, "--state", state, "--drop", "city")
    assert code == 2
    assert "the rows before had" in errors
    state.write_bytes(b"not an archive")
    code, _, errors = stream(second, "--state", state)
    assert code == 3
    assert "state.npz is not a file written by CoresetStream.save" in errors
