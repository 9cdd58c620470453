"""What goes wrong on the command line is said in one line, ends with a code, and leaves nothing behind."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dualcore
from command_line import DROP, call, finish, start
from dualcore import Coreset
from dualcore.cli.wording import _SPELLED

ROWS = ("{rows}", "-t", "label")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("fit", "{rows}", "-t", "nosuch"), 3, "rows.csv has no column 'nosuch'. It has: age, dose, x, y, label"),
        (("fit", "{rows}", "-t", "lable"), 3, "no column 'lable'. Did you mean 'label'? It has: age"),
        (("fit", *ROWS, "--category-cost", "word=0"), 2, "--category-cost takes a positive number"),
        (("fit", *ROWS, "--category-cost", "inf"), 2, "--category-cost inf needs --ridge"),
        (("fit", "{folder}", "-t", "label", "--category-cost", "ward=2"), 3, "['ward'], which are no columns of text"),
        (("fit", "{rows}", "-t", "target", "--loss", "squared"), 3, "leave the columns of text out with --drop"),
        (("fit", *ROWS, *DROP, "--coreset", "9", "--rounds", "0"), 3, "--rounds must be a whole"),
        (("fit", *ROWS, "--drop", "nosuch"), 3, "no column 'nosuch'"),
        (("fit", *ROWS, "--weight", "word"), 3, "column 'word' is string, not a number"),
        (("fit", "absent.csv", "-t", "label"), 3, "There is no file absent.csv"),
        (("fit", ".", "-t", "label"), 3, "holds no file that ends in .parquet"),
        (("fit", "{rows}", "-t", "target"), 3, "these are no classes. Use --loss huber"),
        (("fit", "{rows}", "-t", "word", "--loss", "huber"), 3, "not numbers; use --loss logistic or hinge"),
        (("fit", *ROWS, "--radius", "-1"), 2, "--radius must be finite and non-negative"),
        (("fit", *ROWS, "--norm", "l7"), 2, "Unknown norm 'l7'"),
        (("fit", *ROWS, "--loss", "luck"), 2, "--loss luck is unknown"),
        (("fit", *ROWS, "--coreset", "1.5"), 2, "number of rows or a share in (0, 1]"),
        (("fit", *ROWS, "--tol", "0"), 2, "--tol must be positive"),
        (("stream", "{rows}", "-t", "target", "--loss", "squared", "--state", "s.npz"), 3, "of text are label, word"),
        (("path", *ROWS, "--radii", "1:0:5"), 2, "--radii takes LOW:HIGH:COUNT"),
        (("path", "{rows}", "-t", "grade", *DROP[:4], "--drop", "label"), 3, "path takes two classes"),
        (("path", "{rows}", "-t", "grade", "--loss", "hinge"), 3, "one is asked for. Keep the rows of two classes."),
        (("coreset", *ROWS, *DROP, "--size", "0"), 3, "size"),
        (("predict", "{rows}", "{rows}"), 3, "rows.csv is not a model file"),
        (("certify", "absent.json", "{rows}"), 3, "There is no file absent.json"),
        (("fit", *ROWS, "--out", "m.txt"), 2, "must end in"),
        (("coreset", *ROWS, "--out", "c.txt"), 2, "must end in"),
        (("predict", "absent.json", "{rows}", "--out", "p.txt"), 2, "must end in"),
        (("report", "absent.json", "{rows}", "--out", "r.txt"), 2, "must end in"),
        (("path", *ROWS, "--out", "p.txt"), 2, "must end in"),
        (("fit", *ROWS, *DROP, "--out", "no/m.json"), 3, "there is no folder"),
        (("demo", "--out", "{rows}"), 3, "is not a folder"),
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
    joined = re.compile(r'"\n\s*f?"')  # texts of several lines
    texts = "\n".join(joined.sub("", file.read_text(encoding="utf-8")) for file in files)
    assert [spelling for spelling in _SPELLED if spelling not in texts and not spelling.endswith("must")] == []


def test_a_coreset_that_proves_little_is_noted(many_rows, tmp_path):
    options = ("--target", "y", "--coreset", 12, "--rounds", 1, "--gap", 1e-12, "--out", tmp_path / "m.json", "--quiet")
    code, _, errors = call("fit", many_rows, *options)
    assert code == 0
    advice = "Use more rounds by --rounds and --gap, a smaller --tol, or leave out --coreset"
    assert f"more than the --gap of 1e-12. {advice}" in errors
    assert errors.count("\n") == 1
    code, _, errors = call("fit", many_rows, *options, "--require-gap", 1e-12)
    assert code == 4
    assert "asked for a gap of 1e-12" in errors
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


@pytest.mark.parametrize("command", ["fit", "coreset", "predict", "path", "report"])
def test_a_full_disk_is_one_line_and_leaves_nothing(data, model, tmp_path, monkeypatch, command):
    suffix = {"coreset": "npz", "predict": "csv", "report": "html"}.get(command, "json")
    if command == "report":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr("dualcore.cli.report.explain_fit", lambda *_, **__: (None, ()))
    inputs = (model, data[0]) if command in ("predict", "report") else (data[0], "--target", "label", *DROP)
    extra = ("--radii", "0.1,0.2") if command == "path" else ()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    out = tmp_path / f"out.{suffix}"
    code, told, errors = call(command, *inputs, *extra, "--out", out)
    assert (code, told, errors.count("\n")) == (3, "", 1)
    assert errors.startswith(f"error: Cannot write {out}: ")
    assert "No space left on device" in errors
    assert list(tmp_path.iterdir()) == []


# The command says when the work begins. A shell has its background jobs ignore interrupts, and so would those of tests.
TELLING = """
import signal, sys
from dualcore.cli import main
import dualcore

def tell(*args, **settings):
    print("started", file=sys.stderr, flush=True)
    return follow(*args, **settings)

signal.signal(signal.SIGINT, signal.default_int_handler)
follow, dualcore.radius_path = dualcore.radius_path, tell
main()
"""


def test_an_interrupt_leaves_no_file(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20000, 20))
    np.savez(tmp_path / "rows.npz", X=X, y=np.where(X[:, 0] + rng.logistic(size=20000) > 0, 1, 0))
    out = tmp_path / "p.json"
    process = start("-c", TELLING, "path", tmp_path / "rows.npz", "-t", "y", "--radii", "0.01:1:999", "--out", out)
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
    assert errors.startswith("warning: WassersteinLogisticRegression: Iteration limit reached")
    assert "not converged: asked for a relative gap of 1e-06" in errors
    assert dualcore.load(out).certificate_.relative_gap > 1e-6


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
