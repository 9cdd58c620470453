"""The command line, end to end: files in, files out, the same model as by the estimator."""

import json
import sys

import numpy as np
import pytest

import dualcore
from command_line import DROP, NAMES, call
from dualcore import Coreset, DualCoreset, Problem, WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.cli.outcome import Output
from dualcore.cli.progress import watching

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.mark.needs("matplotlib")
def test_from_a_table_to_a_model_a_report_and_predictions(data, tmp_path):
    path, X, labels, *_ = data
    model, report, predicted = tmp_path / "model.json", tmp_path / "report.html", tmp_path / "predicted.csv"
    options = ("--target", "label", "--radius", 0.05, "--coreset", 0.25, "--standardize", "--seed", 3, *DROP)
    code, out, errors = call("fit", path, *options, "--out", model, "--json")
    assert (code, errors) == (0, "")
    told = json.loads(out)
    assert told["coreset_rows"] == 200
    assert told["certificates"][0]["relative_gap"] < 1e-2
    assert call("predict", model, path, "--out", predicted, "--scores", "--quiet")[0] == 0
    code, out, errors = call("report", model, path, "--out", report, "--quiet")
    assert (code, errors) == (0, "")
    assert "The worst-case risk of this model on the full data is" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "predicted.csv", "report.html"]

    # The same through the estimator: the model file must decide alike, to the last bit.
    sampler = DualCoreset(size=0.25, rounds=4, target_gap=1e-3, random_state=3)
    estimator = WassersteinLogisticRegression(radius=0.05, coreset=sampler, random_state=3, feature_weights="std")
    table = pd.read_csv(predicted)
    np.testing.assert_array_equal(table["prediction"], estimator.fit(X, labels).predict(X))
    np.testing.assert_allclose(table["score"], estimator.decision_function(X), rtol=1e-12)
    assert told["certificates"][0]["worst_case_risk"] == pytest.approx(estimator.worst_case_risk_, rel=1e-14)

    text = report.read_text()
    assert text.count("<figure ") == 3
    command = next(line for line in text.splitlines() if "dualcore fit" in line)
    for part in ("--target label", "--coreset 0.25", "--seed 3", "--standardize", "--drop word", "--radius 0.05"):
        assert part in command


ESTIMATORS = [
    ("logistic", WassersteinLogisticRegression, {}),
    ("hinge", WassersteinLinearSVC, {"norm": "l1", "label_cost": 3.0}),
    ("huber", dualcore.WassersteinHuberRegressor, {"delta": 0.7}),
    ("pinball", dualcore.WassersteinQuantileRegressor, {"quantile": 0.8}),
    ("epsilon_insensitive", dualcore.WassersteinLinearSVR, {"epsilon": 0.2, "ridge": 0.01}),
    ("squared", dualcore.WassersteinLinearRegression, {"fit_intercept": False}),
]


@pytest.mark.parametrize(("loss", "cls", "settings"), ESTIMATORS)
def test_every_loss_is_fitted_as_by_its_estimator(data, tmp_path, loss, cls, settings):
    path, X, labels, target, *_ = data
    y, own, other = (labels, "label", "target") if loss in ("logistic", "hinge") else (target, "target", "label")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items() if name != "fit_intercept"]
    flags += [] if settings.get("fit_intercept", True) else ["--no-intercept"]
    drop = ("--drop", other, "--drop", "word", "--drop", "grade", "--drop", "weight")
    out = tmp_path / "model.json"
    code, _, errors = call("fit", path, "--target", own, "--loss", loss, "--radius", 0.02, *flags, *drop, "--out", out)
    assert (code, errors) == (0, "")
    estimator, model = cls(radius=0.02, random_state=0, **settings).fit(X, y), dualcore.load(out)
    np.testing.assert_array_equal(model.coef_, estimator.coef_)
    np.testing.assert_array_equal(model.predict(path), estimator.predict(X))
    assert repr(model.problem_) == repr(estimator.problem_)
    assert tuple(model.feature_names_in_) == NAMES


@pytest.mark.filterwarnings("ignore:.*leaves nothing to learn")  # that tells the middle class from the others
@pytest.mark.parametrize(("loss", "cls", "_"), ESTIMATORS[:2])
def test_weights_and_more_than_two_classes(data, tmp_path, loss, cls, _):
    path, X, _, _, grade, weights = data
    out = tmp_path / "model.json"
    drop = ("--drop", "word", "--drop", "label", "--drop", "target")
    options = ("-t", "grade", "--weight", "weight", "--loss", loss, *drop)
    code, told, _ = call("fit", path, *options, "--out", out, "--json")
    assert code == 0
    estimator = cls(random_state=0).fit(X, grade, sample_weight=weights)
    np.testing.assert_array_equal(dualcore.load(out).coef_, estimator.coef_)
    assert json.loads(told)["classes"] == [0, 1, 2]
    code, told, _ = call("certify", out, path, "--json")  # the column of weights is that of the fit
    values = json.loads(told)
    assert values["certificates"][0]["worst_case_risk"] == pytest.approx(estimator.certificate_.upper)
    assert values["accuracy"] == pytest.approx(estimator.score(X, grade, weights))
    lines = call("predict", out, path, "--scores")[1].splitlines()
    assert (lines[0], len(lines)) == ("prediction,score 0,score 1,score 2", 801)
    code, _, errors = call("report", out, path, "--out", tmp_path / "r.html")
    assert code == 3
    assert "has 3 classes" in errors


def test_the_target_may_be_the_last_column_of_an_array(data, tmp_path):
    path, X, labels = tmp_path / "rows.npy", data[1], data[2] == "well"
    np.save(path, np.column_stack([X, labels]))
    code, _, errors = call("fit", path, "--target", "-1", "--out", tmp_path / "m.json", "--quiet")
    assert (code, errors) == (0, "")
    estimator = WassersteinLogisticRegression().fit(X, labels)
    np.testing.assert_array_equal(dualcore.load(tmp_path / "m.json").coef_, estimator.coef_)
    code, out, _ = call("predict", tmp_path / "m.json", path, "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] == estimator.score(X, labels)


def test_a_coreset_can_be_drawn(data, tmp_path):
    path, X, labels, *_ = data
    arguments = ("coreset", path, "--target", "label", "--size", 80, *DROP)
    code, out, errors = call(*arguments, "--out", tmp_path / "c.npz", "--json")
    assert (code, errors) == (0, "")
    coreset = Coreset.load(tmp_path / "c.npz")
    assert 70 < json.loads(out)["coreset_rows"] == len(coreset) <= 80  # fewer where fewer are exact
    np.testing.assert_array_equal(coreset.X, X[coreset.indices])
    np.testing.assert_array_equal(coreset.to_frame()["y"], labels[coreset.indices])
    assert call(*arguments, "--out", tmp_path / "c.csv")[0] == 0
    table = pd.read_csv(tmp_path / "c.csv")  # before pandas 3 to the last digit but one
    np.testing.assert_array_equal(table["row"], coreset.indices)
    np.testing.assert_allclose(table["weight"], coreset.weights, rtol=1e-12)
    np.testing.assert_allclose(table[["label", *NAMES]].to_numpy()[:, 1:].astype(float), coreset.X, rtol=1e-15)
    several = ("--loss", "hinge", "--drop", "label", *DROP[:4], "--drop", "weight")
    assert call("coreset", path, "-t", "grade", *several, "--out", tmp_path / "c.npz")[0] == 0
    assert set(Coreset.load(tmp_path / "c.npz").y) == {0.0, 1.0, 2.0}


@pytest.mark.needs("matplotlib")
def test_a_path_is_followed(data, tmp_path):
    path, X, labels, *_ = data
    options = ("--coreset", 0.3, "--radii", "0.01:0.1:4", "--cv", 3, "--suggest", *DROP)
    files = ("--out", tmp_path / "p.json", "--plot", tmp_path / "p.png")
    code, out, errors = call("path", path, "--target", "label", *options, *files, "--standardize", "--quiet")
    assert (code, errors) == (0, "")
    assert "cross-validated radius" in out
    assert "suggested radius" in out
    values = json.loads((tmp_path / "p.json").read_text())
    assert (len(values["points"]), values["n_builds"]) == (4, 1)
    point = values["points"][2]
    prices = {"feature_weights": 1.0 / X.std(axis=0)}
    at, y = Problem("logistic", radius=point["radius"], **prices), np.where(labels == "well", 1.0, -1.0)
    assert point["worst_case_risk"] == pytest.approx(at.risk(point["coef"], point["intercept"], X, y), rel=1e-10)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_radii_of_a_path_reach_from_nothing_learned_down(data, tmp_path):
    options = ("-t", "target", "--loss", "huber", "--cv", 2, *DROP[:2], "--drop", "label", "--drop", "grade", *DROP[6:])
    code, out, _ = call("path", data[0], *options, "--json", "--quiet")
    assert code == 0
    points = json.loads(out)["points"]
    radii = [point["radius"] for point in points]
    assert len(radii) == 20
    assert radii[0] == pytest.approx(1e-3 * radii[-1])
    assert np.abs(points[-1]["coef"]).max() < 1e-3 * np.abs(points[0]["coef"]).max()
    np.savez(tmp_path / "rows.npz", X=data[1], target=data[3])
    code, told, _ = call("path", tmp_path / "rows.npz", *options[:6], "--json", "--quiet")
    assert code == 0
    assert json.loads(told)["choices"] == json.loads(out)["choices"]  # folds are the same in every file
    code, out, _ = call("path", data[0], *options, "--radii", "1,2,4", "--quiet")
    assert "Cross-validation chose the smallest of the radii: try smaller ones." in out


@pytest.mark.needs("matplotlib")
def test_the_demo_writes_pictures_and_a_report(tmp_path):
    code, out, errors = call("demo", "--rows", 4000, "--out", tmp_path, "--json", "--quiet")
    assert (code, errors) == (0, "")
    values = json.loads(out)
    names = {"rounds.png", "weights.png", "path.png", "report.html", "demo.json"}
    assert {path.name for path in tmp_path.iterdir()} == names == set(values["files"])
    assert (tmp_path / "report.html").read_text().count("<figure ") == 3
    for lines in values["tables"].values():
        plain, ridge, whole, small = lines
        assert ridge["relative_gap"] is None
        assert small["rows"] < whole["rows"] == plain["rows"]
        assert small["worst_case_risk"] == pytest.approx(whole["worst_case_risk"], rel=1e-2)
        assert small["relative_gap"] < 1e-2
        assert whole["worst_case_risk"] < min(plain["worst_case_risk"], ridge["worst_case_risk"])
        assert whole["accuracy_shifted"] > plain["accuracy_shifted"] + 0.1


def test_the_demo_runs_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, errors = call("demo", "--rows", 2000, "--out", tmp_path)
    assert code == 0
    assert "pictures need matplotlib. Install it with: pip install 'dualcore[plots]'" in " ".join(errors.split())
    assert "report.html is in" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.json", "report.html"]
    assert "The fit" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("quiet", "lines"), [(False, 2), (True, 0)])
def test_without_a_terminal_a_long_fit_writes_a_line_now_and_then(capsys, monkeypatch, quiet, lines):
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr("dualcore.cli.progress._EVERY", 10.0)
    monkeypatch.setattr("dualcore.cli.progress.time.monotonic", lambda: next(clock))
    with watching(Output(quiet=quiet), "training") as tell:
        for number in range(6):
            tell(f"read {number}")
    assert capsys.readouterr().err.count("read") == lines
