"""Links as outputs, interrupts while packages are imported, what starting costs, labels of any kind."""

from __future__ import annotations

import json
import os

import pytest

from command_line import DROP, call, finish, start

CONSOLE = "import sys\nfrom dualcore.cli import main\nsys.exit(main())\n"


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_an_output_that_is_a_link_is_written_through(data, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for command, suffix, extra in (("fit", "json", ()), ("coreset", "npz", ()), ("path", "json", ("--radii", "0.1"))):
        real, link = tmp_path / "elsewhere" / f"{command}.{suffix}", tmp_path / f"{command}.{suffix}"
        link.symlink_to(real)
        code, _, errors = call(command, data[0], "-t", "label", *DROP, *extra, "--out", link)
        assert (code, errors) == (0, "")
        assert link.is_symlink()
        assert real.stat().st_size > 100
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["coreset.npz", "fit.json", "path.json"]
    (tmp_path / "lost.json").symlink_to(tmp_path / "nowhere" / "m.json")
    (tmp_path / "folder.json").mkdir()
    for name, message in (("lost", f"there is no folder {tmp_path / 'nowhere'}"), ("folder", "is not a plain file")):
        code, _, errors = call("fit", data[0], "-t", "label", *DROP, "--out", tmp_path / f"{name}.json")
        assert code == 3
        assert message in errors


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("package", "way"), [("numpy", "script"), ("typer", "module"), ("dualcore.cli.rows", "code")])
def test_an_interrupt_while_importing_is_no_traceback(tmp_path, package, way):
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
    how = {"script": [tmp_path / "dualcore"], "module": ["-m", "dualcore"], "code": ["-c", CONSOLE]}[way]
    assert finish(start(*how, "fit", "rows.csv", path=[tmp_path])) == (130, "", "error: interrupted\n")


@pytest.mark.needs("pyarrow", "pandas")
def test_results_are_json_whatever_the_labels_are(data, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(data[1], columns=["a", "b", "c"]).assign(label=data[2] == "well")
    (tmp_path / "rows").mkdir()
    for number in range(2):
        frame[number::2].to_parquet(tmp_path / "rows" / f"{number}.parquet", index=False)
    code, out, _ = call("fit", tmp_path / "rows", "-t", "label", "--out", tmp_path / "m.json", "--json")
    assert code == 0
    assert json.loads(out)["classes"] == [False, True]
    code, out, _ = call("predict", tmp_path / "m.json", tmp_path / "rows", "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.6


# What starting costs: nothing heavy is imported before it is used, and nothing optional at all

HELP = """
import json, sys
sys.argv = ["dualcore", "--help"]
import dualcore
from dualcore.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
print(dualcore.problem.losses.__name__, dualcore.Problem.__name__)
"""


def test_help_imports_nothing_heavy_and_modules_are_found_when_they_are_used():
    code, out, errors = finish(start("-c", HELP))
    assert (code, errors) == (0, "")
    *_, imported, found = out.splitlines()
    heavy = {"numpy", "scipy", "sklearn", "pandas", "pyarrow", "dask", "matplotlib"}
    assert heavy.isdisjoint(json.loads(imported))
    assert found == "dualcore.problem.losses Problem"
