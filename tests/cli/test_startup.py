"""What starting costs: nothing heavy is imported before it is used, and nothing optional at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dualcore

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEAVY = ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "dask", "matplotlib")


def run(code, *, path=()):
    places = os.pathsep.join([*map(str, path), str(SOURCE)])
    settings = {"env": os.environ | {"PYTHONPATH": places}, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", code], check=True, timeout=300, **settings)


def imported_by(code):
    loaded = json.loads(run(f"{code}\nimport sys, json; print(json.dumps(list(sys.modules)))").stdout.splitlines()[-1])
    return {name.partition(".")[0] for name in loaded}


def test_importing_the_package_imports_nothing_heavy():
    assert imported_by("import dualcore").isdisjoint(HEAVY)


def test_help_imports_nothing_heavy():
    code = """
import sys
sys.argv = ["dualcore", "--help"]
from dualcore.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    assert imported_by(code).isdisjoint(HEAVY)


def test_the_command_line_is_a_module_too():
    settings = {"env": os.environ | {"PYTHONPATH": str(SOURCE)}, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-m", "dualcore", "--version"], check=True, timeout=300, **settings)
    assert dualcore.__version__ in ran.stdout


def test_every_public_name_is_found_when_it_is_used():
    assert sorted(dualcore._MODULES) == sorted(dualcore.__all__)
    assert set(dualcore.__all__) <= set(dir(dualcore))
    for name in dualcore.__all__:
        assert getattr(dualcore, name).__name__ == name
    code = "import dualcore; print(dualcore.problem.losses.__name__, dualcore.Problem.__name__)"
    assert run(code).stdout.split() == ["dualcore.problem.losses", "Problem"]
    with pytest.raises(AttributeError, match="module 'dualcore' has no attribute 'Nothing'"):
        _ = dualcore.Nothing


def test_the_demo_runs_without_matplotlib(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("""
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "matplotlib" else found(name, *rest)
sys.meta_path.insert(0, Absent())
""")
    out = tmp_path / "demo"
    arguments = ["dualcore", "demo", "--rows", "4000", "--out", str(out)]
    code = f"import sys; sys.argv = {arguments!r}\nfrom dualcore.cli import main; main()"
    ran = run(code, path=[tmp_path])
    assert "pictures need matplotlib. Install it with: pip install 'dualcore[plots]'" in ran.stderr
    assert "report.html is in" in ran.stdout
    assert sorted(path.name for path in out.iterdir()) == ["demo.json", "report.html"]
    assert "The fit" in (out / "report.html").read_text()
