"""Columns of text on the command line: coded without being listed, the same from every format, priced, stored."""

import json
import math

import numpy as np
import pytest

import dualcore
from command_line import call
from dualcore import Coreset, CoresetStream, Problem, WassersteinLogisticRegression, changed_categories
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
COLUMNS = {"city": CITY, "age": AGE, "mark": MARK, "label": LABEL}
# What the command line should see: values in their order, columns where they were.
CODED = np.column_stack([CITY == "Lima", CITY == "Oslo", CITY == "Rome", AGE, MARK == "no", MARK == "yes"]).astype(
    float
)
NAMES = ("city=Lima", "city=Oslo", "city=Rome", "age", "mark=no", "mark=yes")
GROUPS = [[None, 0, 1, 2], [None, 4, 5]]

each_kind = pytest.mark.parametrize("kind", ["parquet", "csv"])


def write(path, **changes):
    columns = {name: values for name, values in (COLUMNS | changes).items() if values is not None}
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


@each_kind
def test_text_is_coded_priced_and_the_coding_is_stored(tmp_path, kind):
    prices = ("--category-cost", "2", "--category-cost", "mark=inf")
    told, model, _ = fit(write(tmp_path / f"rows.{kind}"), *prices, "--ridge", 0.01)
    assert (told["features"], told["coded"]) == (6, {"city": 3, "mark": 2})
    settings = {"radius": 0.05, "ridge": 0.01, "categories": GROUPS, "category_cost": [2.0, math.inf]}
    expected = WassersteinLogisticRegression(random_state=0, **settings).fit(CODED, LABEL)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.categories_ == {"city": ("Lima", "Oslo", "Rome"), "mark": ("no", "yes")}
    assert model.coef_names_ == NAMES
    assert model.problem_.geometry.categories.costs == (2.0, math.inf)


@each_kind
def test_a_text_that_training_did_not_see_is_no_category(tmp_path, kind):
    _, model, path = fit(write(tmp_path / f"rows.{kind}"), "--standardize")
    city = CITY.copy()
    city[:3] = ["Bern", "Oslo", "Bern"]
    changed = CODED.copy()
    changed[:3, :3] = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    for label in (None, LABEL):  # without a target, and with one
        new = write(tmp_path / f"new.{kind}", city=city, label=label)
        code, out, errors = call("predict", path, new, "--scores")
        assert (code, errors) == (0, "")
        scores = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
        np.testing.assert_allclose(scores, changed @ model.coef_[0] + model.intercept_, rtol=1e-10)
    assert call("certify", path, new)[::2] == (0, "")  # such rows fit the family


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
    assert json.loads(out)["feature_names"] == list(NAMES)


def test_rows_with_missing_text_are_left_out_if_asked(tmp_path):
    holed = CITY.astype(object)
    holed[[3, 4]] = None
    holed[5] = "Bern"  # in a row that is left out for another reason
    age = [None if k == 5 else value for k, value in enumerate(AGE.tolist())]
    path = write(tmp_path / "rows.parquet", city=holed, age=age)
    code, _, errors = call("fit", path, "-t", "label", "--drop", "age", "--out", tmp_path / "m.json")
    assert code == 3
    assert "Column 'city' has a null; --drop-missing leaves such rows out of training" in errors
    for options, dropped, cities in (
        ((), 3, ("Lima", "Oslo", "Rome")),
        (("--fill", "mean"), 2, ("Bern", "Lima", "Oslo", "Rome")),
    ):
        told, model, _ = fit(path, "--drop-missing", *options)
        assert (told["rows"], told["rows_dropped"]) == (N - dropped, dropped)
        assert model.categories_["city"] == cities


def test_text_that_is_no_category_is_refused_and_codes_are_some(tmp_path):
    few = "for example '?', but 40 of its 41 different"
    for texts, message in (
        ([f"name {k}" for k in range(N)], "more than 200 different texts, such as 'name 0', so it is not coded"),
        ([f"{k % 40},5" for k in range(N)], "holds numbers with ',', such as '0,5', which are text. Make them numbers"),
        ([f"{k / 2}%" for k in range(N)], "holds numbers with '%', such as '0.0%'"),
        ([f"${k % 40 + 1234:,}" for k in range(N)], "holds numbers with '$', such as '$1,234'"),
        ([str(k % 40) if k else "?" for k in range(N)], few),
    ):
        path = write(tmp_path / "rows.csv", city=texts)
        code, out, errors = call("fit", path, "-t", "label", "--out", tmp_path / "m.json")
        assert (code, out, errors.count("\n")) == (3, "", 1)
        assert message in errors
        assert not (tmp_path / "m.json").exists()
    path = write(tmp_path / "rows.parquet", city=[f"{k % 3:02d}" for k in range(N)])
    assert fit(path)[1].categories_["city"] == ("00", "01", "02")


def test_the_gap_that_many_numbers_may_have_is_no_failure(tmp_path):
    path = write(tmp_path / "rows.csv", **{name: np.tile(values, 8) for name, values in COLUMNS.items()})
    options = ("-t", "label", "--radius", 0.05, "--tol", 1e-15, "--out", tmp_path / "m.json")
    code, _, errors = call("fit", path, *options)
    assert (code, errors) == (0, "")
    code, _, errors = call("fit", path, *options, "--require-gap", 1e-15)
    assert code == 4
    assert "gap" in errors


@pytest.mark.needs("matplotlib")
def test_a_report_says_which_categories_change(tmp_path, monkeypatch):
    path = write(tmp_path / "rows.csv")
    _, model, file = fit(path, "--category-cost", "city=0.5")
    page = tmp_path / "r.html"
    monkeypatch.setattr("dualcore.cli.report.explain_fit", lambda *_, **__: (model.certificate_, ()))
    code, out, errors = call("report", file, path, "--out", page, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(out)["pictures"] == ["categories"]
    text = page.read_text()
    worst = model.worst_case_distribution(path)
    change = changed_categories(model.problem_, worst, CODED)[0]
    names = [NAMES[column] for column in (change.before, change.after)]
    assert f"<td>{names[0]}</td><td>{names[1]}</td><td>{change.mass:.2%}</td>" in text
    assert "--category-cost city=0.5" in text
    assert "category costs 0.5 and 1" in text


@pytest.fixture
def stream(tmp_path):
    """Run the command on one of two files, the first of 200 rows; return code, results, errors."""

    def run(part, *options, kind="csv", **changes):
        columns = {name: values[:200] if part == 0 else values[200:] for name, values in COLUMNS.items()} | changes
        path = write(tmp_path / f"{part}.{kind}", **columns)
        options = ("-t", "label", "--radius", 0.05, "--size", 50, *options, "--json")
        code, out, errors = call("stream", path, "--state", tmp_path / "state.npz", *options)
        return code, json.loads(out) if code == 0 else {}, " ".join(errors.split())

    return run


@each_kind
def test_a_stream_codes_text_as_its_first_file_says(tmp_path, stream, kind):
    out = tmp_path / "c.npz"
    assert stream(0, kind=kind)[1]["coded"] == {"city": 3, "mark": 2}
    before = (tmp_path / "state.npz").read_bytes()
    code, told, errors = stream(1, "--out", out, kind=kind)
    assert (code, told["rows"], told["unseen"], errors) == (0, N, {"city": 0, "mark": 0}, "")
    whole = CoresetStream(Problem("logistic", radius=0.05, categories=GROUPS), 50, random_state=0)
    whole.update(CODED, np.where(LABEL == "good", 1.0, -1.0))
    coreset, expected = Coreset.load(out), whole.coreset()
    np.testing.assert_array_equal(coreset.indices, expected.indices)
    np.testing.assert_array_equal(coreset.X, CODED[coreset.indices])
    assert coreset.details["feature_names"] == list(NAMES)
    # A text that the first file did not have is a category without a feature.
    (tmp_path / "state.npz").write_bytes(before)
    code, told, errors = stream(1, "--out", out, kind=kind, city=np.where(np.arange(100) < 7, "Bern", CITY[200:]))
    assert (code, told["unseen"]) == (0, {"city": 7, "mark": 0})
    assert "warning: 7 rows hold a text in column 'city' that the first file of the stream did not" in errors
    coreset = Coreset.load(out)
    of_bern = (coreset.indices >= 200) & (coreset.indices < 207)
    assert not coreset.X[of_bern][:, :3].any()


def test_a_stream_refuses_other_columns_prices_and_states(tmp_path, stream):
    price = ("--category-cost", "city=2")
    assert stream(0, *price)[0] == 0
    for options, changes, expected, message in (
        ((), {}, 3, "category_cost=[2.0, 1.0]"),
        (price, {"city": None}, 3, "has no column 'city'"),
        (price, {"age": ["old"] * 100}, 3, "column 'age' is string, not a number"),
        ((*price, "--drop", "city"), {}, 2, "the rows before had"),
    ):
        code, _, errors = stream(1, *options, **changes)
        assert code == expected
        assert message in errors
    assert stream(1, *price)[1]["rows"] == N
    (tmp_path / "state.npz").write_bytes(b"not an archive")
    code, _, errors = stream(1, *price)
    assert code == 3
    assert "state.npz is not a file written by CoresetStream.save" in errors
