"""What goes wrong on the command line is said in one line, ends with a code, and leaves nothing behind."""

import ast
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dualcore
from command_line import DROP, TELLING, call, finish, spawn
from dualcore import Coreset
from dualcore.cli.wording import _SPELLED

# What goes wrong is said in one line, ends with a code, and leaves nothing


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("fit", "{rows}", "-t", "nosuch"), 3, "rows.csv has no column 'nosuch'. It has: age, dose, x, y, label"),
        (("fit", "{rows}", "-t", "lable"), 3, "no column 'lable'. Did you mean 'label'? It has: age"),
        (
            ("stream", "{rows}", "-t", "target", "--loss", "squared", "--state", "s.npz"),
            3,
            "The columns of text are label, word",
        ),
        (("fit", "{rows}", "-t", "label", "--category-cost", "word=0"), 2, "--category-cost takes a positive number"),
        (("fit", "{rows}", "-t", "label", "--category-cost", "inf"), 2, "--category-cost inf needs --ridge"),
        (("fit", "{rows}", "-t", "label", *DROP, "--category-cost", "word=2"), 3, "which are no columns of text"),
        (("fit", "{rows}", "-t", "target", "--loss", "squared"), 3, "leave the columns of text out with --drop"),
        (("fit", "{rows}", "-t", "label", *DROP, "--coreset", "9", "--rounds", "0"), 3, "--rounds must be a whole"),
        (
            ("path", "{rows}", "-t", "grade", "--loss", "hinge"),
            3,
            "here one is asked for. Keep the rows of two classes.",
        ),
        (("fit", "{rows}", "-t", "label", "--drop", "nosuch"), 3, "no column 'nosuch'"),
        (("fit", "{rows}", "-t", "label", "--weight", "word"), 3, "column 'word' is string, not a number"),
        (("fit", "absent.csv", "-t", "label"), 3, "There is no file absent.csv"),
        (
            ("fit", "{folder}", "-t", "label", "--category-cost", "ward=2"),
            3,
            "--category-cost names ['ward'], which are no columns of text",
        ),
        (("fit", "{rows}.xlsx", "-t", "label"), 3, "There is no file"),
        (("fit", ".", "-t", "label"), 3, "holds no file that ends in .parquet"),
        (("fit", "{rows}", "-t", "target"), 3, "these are no classes. Use --loss huber"),
        (("fit", "{rows}", "-t", "word", "--loss", "huber"), 3, "not numbers; use --loss logistic or hinge"),
        (("fit", "{rows}", "-t", "label", "--radius", "-1"), 2, "--radius must be finite and non-negative"),
        (("fit", "{rows}", "-t", "label", "--norm", "l7"), 2, "Unknown norm 'l7'"),
        (("fit", "{rows}", "-t", "label", "--loss", "luck"), 2, "--loss luck is unknown"),
        (("fit", "{rows}", "-t", "label", "--coreset", "some"), 2, "number of rows or a share in (0, 1]"),
        (("fit", "{rows}", "-t", "label", "--coreset", "1.5"), 2, "share in (0, 1]"),
        (("fit", "{rows}", "-t", "label", "--tol", "0"), 2, "--tol must be positive"),
        (("path", "{rows}", "-t", "label", "--radii", "1:0:5"), 2, "--radii takes LOW:HIGH:COUNT"),
        (("path", "{rows}", "-t", "grade", *DROP[:4], "--drop", "label"), 3, "path takes two classes"),
        (("coreset", "{rows}", "-t", "label", *DROP, "--size", "0"), 3, "size"),
        (("predict", "{rows}", "{rows}"), 3, "rows.csv is not a model file"),
        (("certify", "absent.json", "{rows}"), 3, "There is no file absent.json"),
        (("report", "absent.json", "{rows}"), 3, "There is no file absent.json"),
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


def test_every_spelling_of_a_parameter_is_that_of_some_message():
    """An entry that no message has any more would hide that its advice names a parameter of Python again."""
    files = [file for file in Path(dualcore.__file__).parent.rglob("*.py") if file.name != "wording.py"]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    assert [spelling for spelling in _SPELLED if spelling not in texts and not spelling.endswith("must")] == []


def test_a_coreset_that_proves_little_is_noted(many_rows, tmp_path):
    options = ("--target", "y", "--coreset", 12, "--rounds", 1, "--gap", 1e-12, "--out", tmp_path / "m.json", "--quiet")
    code, _, errors = call("fit", many_rows, *options)
    assert code == 0
    assert (
        "more than the --gap of 1e-12. Use more rounds by --rounds and --gap, a smaller --tol, or leave out --coreset"
        in errors
    )
    assert errors.count("\n") == 1
    assert call("fit", many_rows, *options, "--require-gap", 1e-12)[0] == 4
    few = tmp_path / "few.npz"
    code, out, _ = call("coreset", many_rows, "--target", "y", "--size", 4, "--out", few, "--quiet")
    assert code == 0
    assert Coreset.load(few).details["message"] in " ".join(out.split())


def test_wrong_usage_of_the_parser_has_its_own_code():
    wrong = ("fit", "x.csv", "-t", "y", "--radius", "much"), ("fit", "x.csv", "-t", "y", "--seed", "-1")
    for arguments in (("fit",), ("nosuch",), *wrong, ("path", "x.csv", "--cv", "1"), ("demo", "--rows", "10")):
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
    assert f"{secret.name} is not a whole file" in errors
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
        monkeypatch.setattr("dualcore.cli.report.explain_fit", lambda *_, **__: (None, ()))
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


def test_not_converged_has_a_code_and_keeps_what_was_found(data, many_rows, tmp_path):
    out = tmp_path / "m.json"
    code, told, errors = call("fit", data[0], "--target", "label", *DROP, "--max-iter", 1, "--out", out, "--json")
    assert code == 4
    assert json.loads(told)["converged"] is False
    assert errors.startswith("warning: WassersteinLogisticRegression: Iteration limit reached")
    assert "not converged: asked for a relative gap of 1e-06" in errors
    assert dualcore.load(out).certificate_.relative_gap > 1e-6
    coreset = ("--coreset", 30, "--rounds", 1, "--require-gap", 1e-12)
    code, _, errors = call("fit", many_rows, "--target", "y", *coreset, "--out", out)
    assert code == 4
    assert "asked for a gap of 1e-12" in errors


def test_an_error_of_ours_is_owned_up_to(data, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("loose\nscrew")

    monkeypatch.setattr("dualcore.cli.rows.find_rows", broken)
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
