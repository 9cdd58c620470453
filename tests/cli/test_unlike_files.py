"""Folders whose files are not alike, links as outputs, interrupts: the same answer whichever way it is asked."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dualcore
from command_line import call
from dualcore.cli.outcome import as_csv
from pairs import every_pair, every_value

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
SOURCE = Path(__file__).resolve().parents[2] / "src"
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 400))
LABEL = np.where(A + RNG.normal(size=400) > 0.0, "yes", "no")


def columns(part, **changes):
    return {"a": A[part].tolist(), "b": B[part].tolist(), "label": LABEL[part].tolist()} | changes


def write(folder, kind, first, second):
    folder.mkdir()
    for name, content in (("0", first), ("1", second)):
        if kind == "parquet":
            pq.write_table(pa.table(content), folder / f"{name}.parquet")
        elif kind == "csv.gz":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(as_csv(content).encode()))
        elif kind == "tsv":
            (folder / f"{name}.tsv").write_text(as_csv(content).replace(",", "\t"))
        else:
            (folder / f"{name}.{kind}").write_text(as_csv(content))
    return folder


def both(folder, tmp_path, *options, target="label"):
    """Fit with and without a coreset of all rows; return code, errors and model of either."""
    found = []
    for extra in ((), ("--coreset", "400")):
        out = tmp_path / "model.json"
        code, _, errors = call("fit", folder, "-t", target, "--out", out, "--quiet", *extra, *options)
        found.append((code, errors, dualcore.load(out) if out.exists() else None))
        out.unlink(missing_ok=True)
    return found


FIRST, SECOND = slice(0, 200), slice(200, 400)
TEXT = [str(value) for value in B[SECOND]]
UNLIKE = {
    "an extra column in the second": (columns(FIRST), columns(SECOND, c=[1.0] * 200), "they differ in 'c'"),
    "an extra column in the first": (columns(FIRST, c=[1.0] * 200), columns(SECOND), "they differ in 'c'"),
    "a column of words": (columns(FIRST), columns(SECOND, b=["x"] * 200), "is a number in .*0.* and category in .*1"),
    "words first": (columns(FIRST, b=["x"] * 200), columns(SECOND), "is a number in .*1.* and category in .*0"),
    "numbers as text": (columns(FIRST), columns(SECOND, b=TEXT), "'b' is a number in .*0.* and category in .*1"),
    "labels of two kinds": (
        columns(FIRST, label=[0, 1] * 100), columns(SECOND), "'label' is a number in .*0.* and category in .*1"
    ),
}  # fmt: skip


@every_pair(
    pytest.mark.parametrize(("first", "second", "said"), UNLIKE.values(), ids=UNLIKE),
    kind=["parquet", "csv"],
    dropped=[False, True],
)
def test_files_that_are_not_alike_are_refused_either_way(tmp_path, kind, first, second, said, dropped):
    kind = "parquet" if second["b"] == TEXT else kind  # in a CSV file they are numbers
    folder = write(tmp_path / "rows", kind, first, second)
    options = ("--drop", "c") if dropped and "c" in first else ("--drop", "b") if dropped and "c" not in second else ()
    for code, errors, model in both(folder, tmp_path, *options):
        assert (code, model) == (3, None)
        assert errors.count("\n") == 1
        assert re.search(said, errors)


def test_numbers_written_as_text_are_text_either_way(tmp_path):
    everywhere = [str(value) for value in B]
    text = write(tmp_path / "text", "parquet", columns(FIRST, b=everywhere[:200]), columns(SECOND, b=everywhere[200:]))
    for path in (text, text / "0.parquet"):
        for code, errors, _ in both(path, tmp_path):
            assert code == 3
            assert re.search("Column 'b' (is text|holds more than 200 different texts)", errors)
        for code, _, model in both(path, tmp_path, "--drop", "b"):
            assert code == 0
            assert list(model.feature_names_in_) == ["a"]


@pytest.mark.parametrize("values", [("0", "1"), (False, True), (0, 1)])
def test_labels_are_what_the_file_says_either_way(tmp_path, values):
    labels = [values[int(label == "yes")] for label in LABEL]
    folder = write(
        tmp_path / "rows", "parquet", columns(FIRST, label=labels[:200]), columns(SECOND, label=labels[200:])
    )
    (_, _, whole), (_, _, few) = both(folder, tmp_path)
    assert whole.classes_.tolist() == few.classes_.tolist() == list(values)
    assert whole.classes_.dtype == few.classes_.dtype
    np.testing.assert_allclose(few.coef_, whole.coef_, atol=1e-3)


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "txt", "csv.gz"])
def test_every_kind_of_folder_is_read_either_way(tmp_path, kind):
    other = {name: columns(SECOND)[name] for name in ("label", "b", "a")}  # another order of columns is no fault
    (code, errors, whole), (_, more, few) = both(write(tmp_path / "rows", kind, columns(FIRST), other), tmp_path)
    assert (code, errors, more) == (0, "", "")
    assert list(whole.feature_names_in_) == list(few.feature_names_in_) == ["a", "b"]
    assert whole.n_rows_ == few.n_rows_ == 400
    assert whole.notes_["sha256"] == few.notes_["sha256"]
    np.testing.assert_allclose(few.coef_, whole.coef_, atol=1e-3)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_without_rows_is_no_fault_either_way(tmp_path, kind):
    folder = write(tmp_path / "rows", kind, columns(slice(0, 400)), columns(slice(0, 0)))
    for code, errors, model in both(folder, tmp_path):
        assert (code, errors) == (0, "")
        assert model.n_rows_ == 400


def test_two_kinds_of_files_in_a_folder_are_refused_either_way(tmp_path):
    folder = write(tmp_path / "rows", "parquet", columns(FIRST), columns(SECOND))
    (folder / "notes.txt").write_text("about these rows\n")
    assert [code for code, _, _ in both(folder, tmp_path)] == [0, 0]
    (folder / "2.csv").write_text(as_csv(columns(FIRST)))
    for code, errors, _ in both(folder, tmp_path):
        assert code == 3
        assert "holds Parquet files and CSV files (0.parquet and 2.csv)" in errors


# Outputs


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_an_output_that_is_a_link_is_written_through(tmp_path):
    folder = write(tmp_path / "rows", "csv", columns(FIRST), columns(SECOND))
    (tmp_path / "elsewhere").mkdir()
    for command, suffix, extra in (("fit", "json", ()), ("coreset", "npz", ()), ("path", "json", ("--radii", "0.1"))):
        real, link = tmp_path / "elsewhere" / f"{command}.{suffix}", tmp_path / f"{command}.{suffix}"
        link.symlink_to(real)
        code, _, errors = call(command, folder, "-t", "label", *extra, "--out", link)
        assert (code, errors) == (0, "")
        assert link.is_symlink()
        assert real.stat().st_size > 100
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["coreset.npz", "fit.json", "path.json"]
    (tmp_path / "lost.json").symlink_to(tmp_path / "nowhere" / "m.json")
    code, _, errors = call("fit", folder, "-t", "label", "--out", tmp_path / "lost.json")
    assert code == 3
    assert f"there is no folder {tmp_path / 'nowhere'}" in errors


# Interrupts

CONSOLE = "import sys\nfrom dualcore.cli import main\nsys.exit(main())\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@every_value(package=["numpy", "sklearn", "typer", "dualcore.cli.commands"], start=["script", "module", "code"])
def test_an_interrupt_while_importing_is_no_traceback(tmp_path, package, start):
    """Wherever in the imports it comes; the imports wait for it, so that it cannot come late."""
    (tmp_path / "dualcore").write_text(CONSOLE)
    (tmp_path / "sitecustomize.py").write_text(f"""
import importlib.abc, os, signal, sys, time

class Interrupter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

# A shell has its background jobs ignore interrupts, and so would what the tests start from there.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupter())
""")
    how = {"script": [str(tmp_path / "dualcore")], "module": ["-m", "dualcore"], "code": ["-c", CONSOLE]}[start]
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    settings = {"env": os.environ | {"PYTHONPATH": path}, "capture_output": True, "text": True, "check": False}
    ran = subprocess.run([sys.executable, *how, "fit", "rows.csv"], timeout=120, **settings)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "error: interrupted\n")


def test_an_interrupt_of_ones_own_program_is_its_own_business(tmp_path):
    code = "import signal, dualcore; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True\n"


def test_results_are_json_whatever_the_labels_are(tmp_path):
    labels = [bool(label == "yes") for label in LABEL]
    folder = write(
        tmp_path / "rows", "parquet", columns(FIRST, label=labels[:200]), columns(SECOND, label=labels[200:])
    )
    code, out, _ = call("fit", folder, "-t", "label", "--out", tmp_path / "m.json", "--json")
    assert code == 0
    assert json.loads(out)["classes"] == [False, True]
    code, out, _ = call("predict", tmp_path / "m.json", folder, "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.6
