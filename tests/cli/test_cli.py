"""The command line, end to end: files in, files out, exit codes that mean something, nothing left behind."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

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
from dualcore.cli.app import app
from dualcore.cli.commands.options import parse_radii, parse_size
from dualcore.cli.commands.outcome import OptionError, Output
from dualcore.cli.commands.progress import Observed, watching
from dualcore.cli.model import Model, Scaling
from dualcore.cli.tables import read_table, write_csv
from dualcore.coresets.path import radius_path

SOURCE = Path(__file__).resolve().parents[2] / "src"
NAMES = ("age", "dose", "x, y")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A CSV file with three features, labels, targets, weights and a column of words; and its arrays."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3)) * [1.0, 20.0, 0.1] + [50.0, 0.0, 1.0]
    score = (X - [50.0, 0.0, 1.0]) @ [1.0, -0.1, 5.0]
    labels = np.where(score + rng.logistic(size=800) > 0, "sick", "well")
    target = score + rng.normal(size=800)
    grade = np.digitize(target, [-1.0, 1.0])
    columns = {name: X[:, j].tolist() for j, name in enumerate(NAMES)}
    columns |= {"label": labels.tolist(), "target": target.tolist(), "grade": grade.tolist()}
    columns |= {"word": ["a" if k % 2 else "b" for k in range(800)], "weight": (1.0 + np.arange(800) % 3).tolist()}
    (folder / "rows.csv").write_text(write_csv(columns))
    return folder / "rows.csv", X, labels, target, grade, np.array(columns["weight"])


DROP = ("--drop", "word", "--drop", "target", "--drop", "grade", "--drop", "weight")


def call(*arguments):
    """Run a command in this process; return code, output, errors."""
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


def spawn(*arguments, code="from dualcore.cli import main; main()", **settings):
    """Start a command as a user would, in a process of its own."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **settings)


# The same, but it says when the work begins.
TELLING = """
import signal
import sys
from dualcore.cli import main
from dualcore.commands import training

# A shell has its background jobs ignore interrupts, and so would what the tests start from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

follow = training.radius_path

def tell(*args, **settings):
    print("started", file=sys.stderr, flush=True)
    return follow(*args, **settings)

training.radius_path = tell
main()
"""


def finish(process, timeout=180):
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


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
    assert text.count("<img ") == 5
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
    estimator = WassersteinLogisticRegression(random_state=0).fit(X, grade, sample_weight=weights)
    np.testing.assert_array_equal(Model.load(out).coef, estimator.coef_)
    assert json.loads(told)["classes"] == [0, 1, 2]
    code, told, _ = call("certify", out, path, "--weight", "weight", "--json")
    values = json.loads(told)
    assert [c["worst_case_risk"] for c in values["certificates"]] == pytest.approx(estimator.worst_case_risk_)
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
    assert values["n_builds"] >= 2
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
    names = {"rounds.png", "cells.png", "weights.png", "sizes.png", "path.png", "report.html", "demo.json"}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == names == set(values["files"])
    assert (tmp_path / "demo" / "report.html").read_text().count("<img ") == 5
    for lines in values["tables"].values():
        plain, whole, small = lines
        assert small["rows"] < whole["rows"] == plain["rows"]
        assert small["worst_case_risk"] == pytest.approx(whole["worst_case_risk"], rel=1e-2)
        assert small["relative_gap"] < 1e-2
        assert whole["worst_case_risk"] < plain["worst_case_risk"]
        assert whole["accuracy_shifted"] > plain["accuracy_shifted"] + 0.1


# What goes wrong is said in one line, ends with a code, and leaves nothing


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("fit", "{rows}", "-t", "nosuch"), 3, "rows.csv has no column 'nosuch'. It has: age, dose, x, y, label"),
        (("fit", "{rows}", "-t", "lable"), 3, "no column 'lable'. Did you mean 'label'? It has: age"),
        (
            ("stream", "{rows}", "-t", "label", "--state", "s.npz"),
            3,
            "Column 'word' of rows.csv is not numeric: 'b' in",
        ),
        (("fit", "{rows}", "-t", "label", "--category-cost", "word=0"), 2, "--category-cost takes a positive number"),
        (("fit", "{rows}", "-t", "label", "--category-cost", "inf"), 2, "--category-cost inf needs --ridge"),
        (("fit", "{rows}", "-t", "label", *DROP, "--category-cost", "2"), 2, "no feature is coded from text here"),
        (("fit", "{rows}", "-t", "target", "--loss", "squared"), 2, "The columns of text are label, word"),
        (("fit", "{rows}", "-t", "label", "--drop", "nosuch"), 3, "no column 'nosuch'"),
        (("fit", "{rows}", "-t", "label", "--weight", "word"), 3, "Column 'word' of rows.csv is not numeric"),
        (("fit", "absent.csv", "-t", "label"), 3, "There is no file absent.csv"),
        (("fit", "{folder}", "-t", "label", "--category-cost", "ward=2"), 2, "'ward'; the columns of text are word"),
        (("fit", "{rows}.xlsx", "-t", "label"), 3, "rows.csv.xlsx is of no kind that can be read"),
        (("fit", ".", "-t", "label"), 3, "is a folder that holds no Parquet, CSV or TSV file"),
        (("fit", ".", "-t", "label", "--coreset", "0.1"), 3, "holds no file that ends in .parquet"),
        (("fit", "{rows}", "-t", "target"), 3, "800 different labels"),
        (
            ("fit", "{rows}", "-t", "word", "--loss", "huber"),
            3,
            "is not numeric, and a regression learns numbers. For labels use",
        ),
        (("fit", "{rows}", "-t", "label", "--radius", "-1"), 2, "radius must be finite and non-negative"),
        (("fit", "{rows}", "-t", "label", "--norm", "l7"), 2, "Unknown norm 'l7'"),
        (("fit", "{rows}", "-t", "label", "--loss", "luck"), 2, "--loss luck is unknown"),
        (("fit", "{rows}", "-t", "label", "--coreset", "some"), 2, "number of rows or a share like 0.05"),
        (("fit", "{rows}", "-t", "label", "--coreset", "1.5"), 2, "share in (0, 1]"),
        (("fit", "{rows}", "-t", "label", "--seed", "-1"), 2, "--seed must not be negative"),
        (("fit", "{rows}", "-t", "label", "--rounds", "0"), 2, "--rounds must be at least 1"),
        (("fit", "{rows}", "-t", "label", "--tol", "0"), 2, "--tol must be positive"),
        (("path", "{rows}", "-t", "label", "--radii", "1:0:5"), 2, "--radii takes LOW:HIGH:COUNT"),
        (("path", "{rows}", "-t", "label", "--cv", "1"), 2, "--cv must be at least 2"),
        (("path", "{rows}", "-t", "grade", *DROP[:4], "--drop", "label"), 3, "path takes two classes"),
        (("coreset", "{rows}", "-t", "label", "--size", "0"), 2, "A coreset size is"),
        (("predict", "{rows}", "{rows}"), 3, "rows.csv is not a model file"),
        (("certify", "absent.json", "{rows}"), 3, "There is no file absent.json"),
        (("report", "absent.json", "{rows}"), 3, "There is no file absent.json"),
        (("demo", "--rows", "10"), 2, "--rows must be at least 2000"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    found, out, errors = call(*(text.format(rows=data[0], folder=data[0].parent) for text in arguments))
    assert found == code
    assert out == ""
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_coreset_that_proves_little_is_noted(data, tmp_path):
    path = data[0]
    options = ("--target", "label", "--coreset", 12, "--rounds", 1, *DROP, "--out", tmp_path / "m.json")
    code, out, errors = call("fit", path, *options)
    assert code == 0
    assert errors.startswith("note: the certified gap ")
    assert "Use a larger --coreset" in errors
    assert errors.count("\n") == 1
    assert call("fit", path, *options, "--require-gap", 0.01)[0] == 4
    code, out, _ = call("coreset", path, "--target", "label", "--size", 12, *DROP, "--out", tmp_path / "c.csv")
    assert code == 0
    n_rows = read_table(tmp_path / "c.csv").n_rows
    assert f"{n_rows} of 800 rows written" in out
    assert (f"weights of the other {12 - n_rows} rows" in out) == (n_rows < 12)


def test_wrong_usage_of_the_parser_has_its_own_code():
    for arguments in (("fit",), ("nosuch",), ("fit", "x.csv", "-t", "y", "--radius", "much")):
        assert call(*arguments)[0] == 2
    assert call("--version")[1].startswith("dualcore ")
    assert "certified" in call("--help")[1]


@pytest.mark.parametrize(
    ("command", "name"),
    [("fit", "m.txt"), ("coreset", "c.txt"), ("predict", "p.txt"), ("report", "r.txt"), ("path", "p.txt")],
)
def test_the_suffix_of_an_output_says_what_it_is(data, tmp_path, command, name):
    first = tmp_path / "model.json" if command in ("predict", "report") else data[0]
    second = (data[0],) if command in ("predict", "report") else ("--target", "label")
    code, _, errors = call(command, first, *second, "--out", tmp_path / name)
    assert code == 2
    assert "must end in" in errors


def test_an_output_that_cannot_be_is_refused_before_any_work(data, tmp_path):
    (tmp_path / "folder.json").mkdir()
    for out, message in (("folder.json", "is not a plain file"), ("no/m.json", "there is no folder")):
        code, _, errors = call("fit", data[0], "--target", "label", *DROP, "--out", tmp_path / out)
        assert code == 3
        assert message in errors
    (tmp_path / "file").write_text("")
    code, _, errors = call("demo", "--out", tmp_path / "file")
    assert code == 3
    assert "is not a folder" in errors


def test_an_unreadable_file_is_named(data, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text(data[0].read_text())
    secret.chmod(0)
    if os.access(secret, os.R_OK):
        secret.unlink()  # nothing is forbidden to root: a file that breaks off serves instead
        secret = tmp_path / "secret.npz"
        secret.write_bytes(b"PK\x03\x04 broken")
    code, _, errors = call("fit", secret, "--target", "label", "--out", tmp_path / "m.json")
    assert code == 3
    assert f"{secret.name} cannot be read" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "m.json").exists()


def limit_files():
    """Let no file grow beyond 64 bytes, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


def test_a_full_disk_is_one_line_and_leaves_nothing(data, tmp_path):
    out = tmp_path / "model.json"
    code, told, errors = finish(spawn("fit", data[0], "--target", "label", *DROP, "--out", out, preexec_fn=limit_files))
    assert code == 3
    assert told == ""
    assert errors.startswith(f"error: Cannot write {out}: ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["coreset", "predict", "path", "report"])
def test_a_failing_write_of_any_command_leaves_nothing(data, tmp_path, monkeypatch, command):
    model = tmp_path / "model.json"
    assert call("fit", data[0], "--target", "label", *DROP, "--out", model)[0] == 0
    suffix = {"coreset": "npz", "predict": "csv", "path": "json", "report": "html"}[command]
    if command == "report":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr("dualcore.cli.commands.reporting.explain_fit", lambda *_, **__: (None, ()))
    inputs = (model, data[0]) if command in ("predict", "report") else (data[0], "--target", "label", *DROP)
    extra = ("--radii", "0.1,0.2") if command == "path" else ()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, out, errors = call(command, *inputs, *extra, "--out", tmp_path / f"out.{suffix}")
    assert code == 3
    assert out == ""
    assert "No space left on device" in errors
    assert errors.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_an_interrupt_leaves_no_file(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60000, 20))
    np.savez(tmp_path / "rows.npz", X=X, y=np.where(X[:, 0] + rng.logistic(size=60000) > 0, 1, 0))
    out = tmp_path / "p.json"
    process = spawn("path", tmp_path / "rows.npz", "-t", "y", "--radii", "0.01:1:999", "--out", out, code=TELLING)
    assert process.stderr.readline() == "started\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "error: interrupted; no file is left half-written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_not_converged_has_a_code_and_keeps_what_was_found(data, tmp_path):
    out = tmp_path / "m.json"
    code, told, errors = call("fit", data[0], "--target", "label", *DROP, "--max-iter", 1, "--out", out, "--json")
    assert code == 4
    assert json.loads(told)["converged"] is False
    assert errors.startswith("warning: Iteration limit reached")
    assert "not converged: asked for a relative gap of 1e-06" in errors
    assert Model.load(out).certificates[0].relative_gap > 1e-6
    coreset = ("--coreset", 30, "--rounds", 1, "--require-gap", 1e-9)
    code, _, errors = call("fit", data[0], "--target", "label", *DROP, *coreset, "--out", out)
    assert code == 4
    assert "asked for a gap of 1e-09" in errors


def test_an_error_of_ours_is_owned_up_to(data, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("loose\nscrew")

    monkeypatch.setattr("dualcore.cli.commands.training.open_stream", broken)
    code, _, errors = call("fit", data[0], "--target", "label", "--out", tmp_path / "m.json")
    assert code == 1
    assert errors.startswith("error: internal error: RuntimeError: loose screw\n")
    monkeypatch.setenv("DUALCORE_DEBUG", "1")
    assert "Traceback" in call("fit", data[0], "--target", "label", "--out", tmp_path / "m.json")[2]


def test_plots_without_matplotlib_name_the_extra(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "p.png"
    code, _, errors = call("path", data[0], "--target", "label", *DROP, "--radii", "0.1", "--plot", out)
    assert code == 3
    assert "dualcore[plots]" in errors
    assert list(tmp_path.iterdir()) == []


# Progress


def test_the_gap_falls_before_the_users_eyes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.where(X[:, 0] + rng.logistic(size=3000) > 0, 1.0, -1.0)
    problem, screen = Problem("logistic", radius=0.05), io.StringIO()
    output = Output()
    output.errors, output.shows_progress = Console(file=screen, force_terminal=True, width=200), True
    sampler = DualCoreset(size=100, rounds=3, random_state=0)
    with watching(output, "training", 4) as watch:
        told = []
        observed = Observed(sampler, lambda done: (told.append(done), watch.round(done), time.sleep(0.15)))
        fit = observed.fit(problem, X, y)
    assert tuple(told) == fit.history
    assert observed.size == 100
    shown = screen.getvalue()
    for done in fit.history:
        assert f"certified gap {done.relative_gap:.1e}" in shown
    with watching(output, "path") as watch:
        radius_path(
            problem, X, y, [0.01, 0.1], 0.1, random_state=0, callback=lambda s: (watch.step(s), time.sleep(0.15))
        )
    assert "2 coresets" in screen.getvalue()
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
