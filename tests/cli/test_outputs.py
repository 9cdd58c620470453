"""Links as outputs, interrupts while packages are imported, labels of any kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from dualcore.cli.outcome import as_csv
from pairs import every_value

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
        else:
            (folder / f"{name}.{kind}").write_text(as_csv(content))
    return folder


FIRST, SECOND = slice(0, 200), slice(200, 400)


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
@every_value(package=["numpy", "sklearn", "typer", "dualcore.cli.rows"], start=["script", "module", "code"])
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
