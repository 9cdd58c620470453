"""The command line, end to end: files in, files out, exit codes that mean something, nothing left behind."""

import io
import json
import time

import numpy as np
import pytest
from rich.console import Console

from command_line import DROP, NAMES, call, finish, spawn
from dualcore import (
    Coreset,
    DualCoreset,
    Problem,
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
    solve,
)
from dualcore.cli.commands.options import parse_radii, parse_size
from dualcore.cli.commands.outcome import OptionError, Output
from dualcore.cli.commands.progress import Observed, watching
from dualcore.cli.model import Model, Scaling
from dualcore.cli.tables import read_table
from dualcore.coresets.path import radius_path

# End to end


@pytest.mark.needs("matplotlib")
def test_from_a_table_to_a_model_a_report_and_predictions(data, tmp_path):
    path, X, labels, *_ = data
    model, report, predicted = tmp_path / "model.json", tmp_path / "report.html", tmp_path / "predicted.csv"
    options = ("--target", "label", "--radius", 0.05, "--coreset", 0.25, "--standardize", "--seed", 3, *DROP)
    code, out, errors = finish(spawn("fit", path, *options, "--out", model, "--json"))
    assert (code, errors) == (0, "")
    told = json.loads(out)
    assert told["coreset_rows"] == [200]
    assert told["certificates"][0]["relative_gap"] < 1e-2

    code, _, errors = finish(spawn("predict", model, path, "--out", predicted, "--scores"))
    assert (code, errors) == (0, "")
    code, out, errors = finish(spawn("report", model, path, "--out", report, "--seeds", 1))
    assert (code, errors) == (0, "")
    assert "The worst-case risk of this model on the full data is" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "predicted.csv", "report.html"]

    # The same through the estimator: the model file must decide alike, to the last bit.
    scaled = Scaling.fit(X).apply(X)
    sampler = DualCoreset(size=0.25, rounds=4, target_gap=1e-3, random_state=3)
    estimator = WassersteinLogisticRegression(radius=0.05, coreset=sampler, random_state=3).fit(scaled, labels)
    table = read_table(predicted)
    np.testing.assert_array_equal(table.labels("prediction"), estimator.predict(scaled))
    np.testing.assert_array_equal(table.numbers("score"), estimator.decision_function(scaled))
    assert told["certificates"][0]["worst_case_risk"] == estimator.worst_case_risk_

    text = report.read_text()
    assert text.count("<figure ") == 4
    command = next(line for line in text.splitlines() if "dualcore fit" in line)
    for part in ("--target label", "--coreset 0.25", "--seed 3", "--standardize", "--drop word", "--radius 0.05"):
        assert part in command


ESTIMATORS = [
    ("logistic", WassersteinLogisticRegression, {}),
    ("hinge", WassersteinLinearSVC, {"norm": "l1", "label_cost": 3.0}),
    ("huber", WassersteinHuberRegressor, {"delta": 0.7}),
    ("pinball", WassersteinQuantileRegressor, {"quantile": 0.8}),
    ("epsilon_insensitive", WassersteinLinearSVR, {"epsilon": 0.2, "ridge": 0.01}),
    ("squared", WassersteinLinearRegression, {"fit_intercept": False}),
]


@pytest.mark.parametrize(("loss", "cls", "settings"), ESTIMATORS)
def test_every_loss_is_fitted_as_by_its_estimator(data, tmp_path, loss, cls, settings):
    path, X, labels, target, *_ = data
    classification = loss in ("logistic", "hinge")
    own = ("label", "target") if classification else ("target", "label")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items() if name != "fit_intercept"]
    flags += [] if settings.get("fit_intercept", True) else ["--no-intercept"]
    drop = ("--drop", own[1], "--drop", "word", "--drop", "grade", "--drop", "weight")
    out = tmp_path / "model.json"
    code, _, errors = call(
        "fit", path, "--target", own[0], "--loss", loss, "--radius", 0.02, *flags, *drop, "--out", out
    )
    assert (code, errors) == (0, "")
    estimator = cls(radius=0.02, random_state=0, **settings).fit(X, labels if classification else target)
    model = Model.load(out)
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    np.testing.assert_array_equal(model.coef, np.atleast_2d(estimator.coef_))
    assert repr(model.problem) == repr(estimator.problem_)
    assert model.feature_names == NAMES


def test_weights_and_more_than_two_classes(data, tmp_path):
    path, X, _, _, grade, weights = data
    out = tmp_path / "model.json"
    drop = ("--drop", "word", "--drop", "label", "--drop", "target")
    code, told, _ = call("fit", path, "-t", "grade", "--weight", "weight", *drop, "--out", out, "--json")
    assert code == 0
    estimator = WassersteinLogisticRegression(random_state=0, multi_class="ovr").fit(X, grade, sample_weight=weights)
    np.testing.assert_array_equal(Model.load(out).coef, estimator.coef_)
    assert json.loads(told)["classes"] == [0, 1, 2]
    code, told, _ = call("certify", out, path, "--weight", "weight", "--json")
    values = json.loads(told)
    known = [part.upper for part in estimator.certificates_]
    assert [c["worst_case_risk"] for c in values["certificates"]] == pytest.approx(known)
    assert values["accuracy"] == np.mean(estimator.predict(X) == grade)
    code, told, _ = call("predict", out, path, "--scores")
    assert told.splitlines()[0] == "prediction,score 0,score 1,score 2"
    assert len(told.splitlines()) == 801
    code, _, errors = call("report", out, path, "--out", tmp_path / "r.html")
    assert code == 3
    assert "has 3 classes" in errors


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_other_kinds_of_files(data, tmp_path, kind):
    _, X, labels, *_ = data
    y = (labels == "well").astype(float)
    path = tmp_path / f"rows.{kind}"
    target = "y"
    if kind == "npz":
        np.savez(path, X=X, y=labels)
    elif kind == "npy":
        np.save(path, np.column_stack([X, y]))
        target = "-1"
    else:
        pa = pytest.importorskip("pyarrow")
        columns = {f"x{j}": X[:, j] for j in range(3)} | {"y": labels}
        __import__("pyarrow.parquet").parquet.write_table(pa.table(columns), path)
    assert call("fit", path, "--target", target, "--out", tmp_path / "m.json", "--quiet")[0] == 0
    model = Model.load(tmp_path / "m.json")
    estimator = WassersteinLogisticRegression().fit(X, labels)
    np.testing.assert_array_equal(model.coef, estimator.coef_)
    code, out, _ = call("predict", tmp_path / "m.json", path, "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] == np.mean(estimator.predict(X) == labels)


def test_a_coreset_can_be_drawn(data, tmp_path):
    path, X, labels, *_ = data
    arguments = ("coreset", path, "--target", "label", "--size", 80, *DROP)
    code, out, _ = call(*arguments, "--out", tmp_path / "c.npz", "--json")
    assert code == 0
    assert json.loads(out)["coreset_rows"] == 80
    coreset = Coreset.load(tmp_path / "c.npz")
    np.testing.assert_array_equal(coreset.X, X[coreset.indices])
    np.testing.assert_array_equal(coreset.y > 0, labels[coreset.indices] == "well")
    assert call(*arguments, "--out", tmp_path / "c.csv")[0] == 0
    table = read_table(tmp_path / "c.csv")
    np.testing.assert_array_equal(table.labels("row"), coreset.indices)
    np.testing.assert_array_equal(table.numbers("weight"), coreset.weights)


def test_a_path_is_followed(data, tmp_path):
    pytest.importorskip("matplotlib")
    path, X, labels, *_ = data
    options = ("--coreset", 0.3, "--radii", "0.01:0.1:4", "--cv", 3, "--suggest", *DROP)
    files = ("--out", tmp_path / "p.json", "--plot", tmp_path / "p.png")
    code, out, errors = call("path", path, "--target", "label", *options, *files, "--standardize")
    assert (code, errors) == (0, "")
    assert "cross-validated radius" in out
    assert "suggested radius" in out
    values = json.loads((tmp_path / "p.json").read_text())
    assert len(values["points"]) == 4
    assert values["n_builds"] == 1
    y = np.where(labels == "well", 1.0, -1.0)
    point = values["points"][2]
    risk = Problem("logistic", radius=point["radius"]).risk(
        point["coef"], point["intercept"], Scaling.fit(X).apply(X), y
    )
    assert point["worst_case_risk"] == pytest.approx(risk, rel=1e-10)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert call("path", path, "-t", "target", "--loss", "huber", "--radii", "0.1", *DROP[:2], "--drop", "label")[0] == 0


@pytest.mark.needs("matplotlib")
def test_the_demo_writes_pictures_and_a_report(tmp_path):
    code, out, errors = finish(spawn("demo", "--rows", 4000, "--out", tmp_path / "demo", "--json"))
    assert (code, errors) == (0, "")
    values = json.loads(out)
    names = {"rounds.png", "weights.png", "sizes.png", "path.png", "report.html", "demo.json"}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == names == set(values["files"])
    assert (tmp_path / "demo" / "report.html").read_text().count("<figure ") == 4
    for lines in values["tables"].values():
        plain, whole, small = lines
        assert small["rows"] < whole["rows"] == plain["rows"]
        assert small["worst_case_risk"] == pytest.approx(whole["worst_case_risk"], rel=1e-2)
        assert small["relative_gap"] < 1e-2
        assert whole["worst_case_risk"] < plain["worst_case_risk"]
        assert whole["accuracy_shifted"] > plain["accuracy_shifted"] + 0.1


# Progress


@pytest.mark.parametrize("n", [3000, 30_000])
def test_the_gap_falls_before_the_users_eyes(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + rng.logistic(size=n) > 0, 1.0, -1.0)
    problem, screen = Problem("logistic", radius=0.05), io.StringIO()
    output = Output()
    output.errors, output.shows_progress = Console(file=screen, force_terminal=True, width=200), True
    sampler = DualCoreset(size=100, rounds=3, target_gap=1e-9, random_state=0)
    with watching(output, "training", 4) as watch:
        told = []
        observed = Observed(sampler, lambda done: (told.append(done), watch.round(done), time.sleep(0.15)))
        fit = observed.fit(problem, X, y)
    if n > 20_000:  # a sample trains, and every read of all rows is told
        assert tuple(told) == fit.history
        assert len(told) > 1
    else:  # all rows train, and every iteration is told
        assert (told[-1],) == fit.history
        assert {done.read for done in told} == {1}
    gaps = [done.relative_gap for done in told]
    assert gaps[-1] < 1e-2 * gaps[0]
    assert observed.size == 100
    shown = screen.getvalue()
    for done in told:
        assert f"certified gap {done.relative_gap:.1e}" in shown
    with watching(output, "path") as watch:
        radius_path(
            problem, X, y, [0.01, 0.1], 0.1, random_state=0, callback=lambda s: (watch.step(s), time.sleep(0.15))
        )
    assert "coresets: 1, reads: " in screen.getvalue()  # one serves the path
    assert "largest certified gap" in screen.getvalue()
    assert len(observed.build(problem, X, y)) == 100


def test_nothing_moves_where_nobody_looks(capsys):
    with watching(Output(), "training") as watch:
        watch.say("text")
    assert capsys.readouterr() == ("", "")


def test_sizes_and_radii_are_parsed():
    assert parse_size("1") == 1
    assert parse_size("1.0") == 1.0
    assert parse_radii("0.2,0.1,0.2") == [0.1, 0.2]
    for text in ("a", "1:2", "0:1:3", "1:2:1", "0.1,-1", "inf", ""):
        with pytest.raises(OptionError):
            parse_radii(text)


def test_the_whole_data_model_is_the_solution(data, tmp_path):
    path, X, labels, *_ = data
    assert call("fit", path, "--target", "label", *DROP, "--radius", 0.3, "--out", tmp_path / "m.json")[0] == 0
    best = solve(Problem("logistic", radius=0.3), X, np.where(labels == "well", 1.0, -1.0))
    assert Model.load(tmp_path / "m.json").certificates[0].upper == pytest.approx(best.value, rel=1e-9)
